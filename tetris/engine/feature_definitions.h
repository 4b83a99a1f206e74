// The features of an after-state (TETRIS features as in Thiery & Scherrer 2009; definitions in tetris/features.py, whose
// values these must equal).
//
// A feature is a struct with
//   unit            its value is an integer times this
//   of(board)       the integer, from a whole board
// and, for speed, where a drop that completes no row changes it in a way that can be told from the columns it touches,
//   prepare(board)  what is worth knowing of the board before the drop, computed once a decision
//   after(prepared, drop)  the integers of the after-states, one a lane
// A feature without `after` is computed from the whole after-state. Names: tetris/features.py's in PascalCase.
#pragma once

#include <type_traits>
#include <utility>

#include "board.h"

namespace tetris {

struct WholeFeature {
    static constexpr float unit = 1.0f;
    static constexpr bool zero_without_lines = false;
    template <class L>
    TETRIS_FUNCTION static int prepare(const Board<L>&) {
        return 0;
    }
};

// A count of bits: `factor` times those of `words(board)`, a word a column, plus `offset(geometry)`. Only the total is
// worth knowing beforehand.
template <class Self>
struct BitCount : WholeFeature {
    static constexpr int factor = 1;
    template <class L>
    TETRIS_FUNCTION static int of(const Board<L>& board) {
        return Self::factor * L::count_bits(Self::words(board)) + Self::offset(board.geometry);
    }
    template <class L>
    TETRIS_FUNCTION static typename L::Ints prepare(const Board<L>& board) {
        const typename L::Ints bits = L::count_bits_everywhere(Self::words(board));
        return (Self::factor == 2 ? bits + bits : bits) + L::ints(Self::offset(board.geometry));
    }
    template <class L>
    TETRIS_FUNCTION static int offset(const Geometry<L>&) {
        return 0;
    }
};

struct LandingHeight : WholeFeature {
    static constexpr float unit = 0.5f;
    template <class L>
    TETRIS_FUNCTION static int of(const Board<L>& board) {
        return board.twice_landing_height;
    }
    template <class L, int WIDTH>
    TETRIS_FUNCTION static typename L::Ints after(int, const Drop<L, WIDTH>& drop) {
        return drop.row + drop.row + drop.piece_height() - L::ints(1);
    }
};

struct ErodedCells : WholeFeature {
    static constexpr bool zero_without_lines = true;
    template <class L>
    TETRIS_FUNCTION static int of(const Board<L>& board) {
        return board.eroded_cells;
    }
    template <class L, int WIDTH>
    TETRIS_FUNCTION static typename L::Ints after(int, const Drop<L, WIDTH>&) {
        return L::ints(0);
    }
};

struct RowTransitions : BitCount<RowTransitions> {
    template <class L>
    TETRIS_FUNCTION static auto words(const Board<L>& board) {
        return (board.cells ^ L::right(board.cells)) & board.geometry.edges;
    }
    // The walls go on above the board, where every row is empty.
    template <class L>
    TETRIS_FUNCTION static int offset(const Geometry<L>& geometry) {
        return 2 * (geometry.height - (L::TOP + 1));
    }
    // Each of the piece's rows is one run of cells: two more transitions, less two for every cell beside it.
    template <class L, int WIDTH>
    TETRIS_FUNCTION static typename L::Ints after(typename L::Ints total, const Drop<L, WIDTH>& drop) {
        typename L::Bits beside[WIDTH + 2];
        TETRIS_UNROLL for (int k = -1; k <= WIDTH; ++k) {
            beside[k + 1] = drop.before(k) & drop.rows(drop.shape.contact[k + 1]);
        }
        const typename L::Ints more = drop.piece_height() - L::popcount_near(beside);
        return total + more + more;
    }
};

struct ColumnTransitions : BitCount<ColumnTransitions> {
    // A column has one transition at its top and two for every run of holes.
    static constexpr int factor = 2;
    template <class L>
    TETRIS_FUNCTION static auto words(const Board<L>& board) {
        const auto holes = board.holes();
        return holes & ~(holes << 1);
    }
    template <class L>
    TETRIS_FUNCTION static int offset(const Geometry<L>& geometry) {
        return geometry.width;
    }
    template <class L, int WIDTH>
    TETRIS_FUNCTION static typename L::Ints after(typename L::Ints total, const Drop<L, WIDTH>& drop) {
        typename L::Ints opened = L::ints(0);
        TETRIS_UNROLL for (int k = 0; k < WIDTH; ++k) opened = opened + L::count(drop.covered(k) != 0);
        return total + (opened + opened);
    }
};

struct Holes : BitCount<Holes> {
    template <class L>
    TETRIS_FUNCTION static auto words(const Board<L>& board) {
        return board.holes();
    }
    template <class L, int WIDTH>
    TETRIS_FUNCTION static typename L::Ints after(typename L::Ints total, const Drop<L, WIDTH>& drop) {
        typename L::Ints holes = total + L::ints(drop.shape.bottoms);
        TETRIS_UNROLL for (int k = 0; k < WIDTH; ++k) holes = holes + (drop.row - drop.height_before(k));
        return holes;
    }
};

// Empty cells between two full neighbours.
template <class Bits>
TETRIS_FUNCTION Bits well_cells(const Bits& left, const Bits& cells, const Bits& right) {
    return left & right & ~cells;
}

// For a family of wells: the depths of a set of columns, summed, with the columns' empty cells and well cells given.
// `Self::depths<L>(wells, empty)` reduces COUNT words to one integer a lane.
template <class Self>
struct WellFeature : WholeFeature {
    template <class L>
    struct Prepared {
        typename L::Ints total;
        typename L::ColumnInts depths;
    };
    template <class L>
    TETRIS_FUNCTION static auto column_depths(const Board<L>& board) {
        using Bits = typename L::ColumnBits;
        const Bits wells[1] = {well_cells(L::left(board.cells), board.cells, L::right(board.cells)) & board.geometry.inside};
        const Bits empty[1] = {~board.cells};
        return Self::template depths<L>(wells, empty);
    }
    template <class L>
    TETRIS_FUNCTION static int of(const Board<L>& board) {
        return L::sum(column_depths(board));
    }
    template <class L>
    TETRIS_FUNCTION static Prepared<L> prepare(const Board<L>& board) {
        const auto depths = column_depths(board);
        return {L::total(depths), depths};
    }
    // The columns under the piece change, and the wells of the two beside it.
    template <class L, int WIDTH>
    TETRIS_FUNCTION static typename L::Ints after(const Prepared<L>& prepared, const Drop<L, WIDTH>& drop) {
        using Bits = typename L::Bits;
        constexpr int COUNT = WIDTH + 2;
        Bits column[COUNT + 2], wells[COUNT], empty[COUNT];
        TETRIS_UNROLL for (int k = -2; k < COUNT; ++k) column[k + 2] = drop.after(k);
        typename L::Ints outside = prepared.total;
        TETRIS_UNROLL for (int i = 0; i < COUNT; ++i) {
            wells[i] = well_cells(column[i], column[i + 1], column[i + 2]);
            empty[i] = ~column[i + 1];
            outside = outside - drop.at(prepared.depths, i - 1);
        }
        return outside + Self::template depths<L>(wells, empty);
    }
};

struct Wells : WellFeature<Wells> {
    // Every well cell counts the empty cells from itself downwards.
    template <class L, class Bits, int COUNT>
    TETRIS_FUNCTION static auto depths(const Bits (&wells)[COUNT], const Bits (&empty)[COUNT]) {
        Bits falling[COUNT];
        TETRIS_UNROLL for (int i = 0; i < COUNT; ++i) falling[i] = wells[i];
        auto total = L::popcount_sum(falling);
        for (;;) {
            Bits left = falling[0] ^ falling[0];
            TETRIS_UNROLL for (int i = 0; i < COUNT; ++i) {
                falling[i] = (falling[i] << 1) & empty[i];
                left = left | falling[i];
            }
            if (!L::any(left)) return total;
            total = total + L::popcount_sum(falling);
        }
    }
};

struct WellsFast : WellFeature<WellsFast> {
    // In a run of empty cells all k from the topmost well cell downwards count: 1 + 2 + ... + k.
    template <class L, class Bits, int COUNT>
    TETRIS_FUNCTION static auto depths(const Bits (&wells)[COUNT], const Bits (&empty)[COUNT]) {
        Bits runs[COUNT];
        // The sum carries from a run's topmost well cell to the run's end and leaves zeros where it passed, but for
        // further well cells.
        TETRIS_UNROLL for (int i = 0; i < COUNT; ++i) runs[i] = empty[i] & ~((empty[i] + wells[i]) & ~wells[i]);
        auto total = L::as_ints(runs[0] ^ runs[0]);
        Bits left;
        do {
            left = runs[0] ^ runs[0];
            TETRIS_UNROLL for (int i = 0; i < COUNT; ++i) {
                const Bits others = runs[i] & (runs[i] + (runs[i] & -runs[i]));  // without the topmost run
                total = total + L::triangle(L::run_length(runs[i] ^ others));
                runs[i] = others;
                left = left | others;
            }
        } while (L::any(left));
        return total;
    }
};

struct HoleDepth : BitCount<HoleDepth> {
    // Cells above some hole of their column: those below the highest set bit of the holes.
    template <class L>
    TETRIS_FUNCTION static auto words(const Board<L>& board) {
        auto above = board.holes();
        above = above | (above >> 1);
        above = above | (above >> 2);
        above = above | (above >> 4);
        above = above | (above >> 8);
        if constexpr (L::TOP > 15) above = above | (above >> 16);
        return above & board.cells;
    }
    // The piece's cells count but in columns without a hole, where adding to the topmost cell carries to the floor.
    template <class L, int WIDTH>
    TETRIS_FUNCTION static typename L::Ints after(typename L::Ints total, const Drop<L, WIDTH>& drop) {
        typename L::Ints depth = total + L::ints(4);
        TETRIS_UNROLL for (int k = 0; k < WIDTH; ++k) {
            const auto solid = drop.after(k) + drop.rows(drop.shape.ceiling[k]) == L::bits(0);
            depth = depth - L::where(solid, L::ints(drop.shape.cells[k]));
        }
        return depth;
    }
};

struct RowsWithHoles : WholeFeature {
    template <class L>
    TETRIS_FUNCTION static int of(const Board<L>& board) {
        return popcount(L::first(L::or_all(board.holes())));
    }
    template <class L>
    TETRIS_FUNCTION static typename L::Bits prepare(const Board<L>& board) {
        return L::or_all(board.holes());
    }
    template <class L, int WIDTH>
    TETRIS_FUNCTION static typename L::Ints after(typename L::Bits rows, const Drop<L, WIDTH>& drop) {
        TETRIS_UNROLL for (int k = 0; k < WIDTH; ++k) rows = rows | drop.covered(k);
        return L::popcount(rows);
    }
};

struct Diversity : WholeFeature {
    template <class L>
    struct Prepared {
        typename L::ColumnBits before, after;
    };
    template <class L>
    TETRIS_FUNCTION static auto flags(const Board<L>& board) {
        return L::difference_flag(L::right(board.heights) - board.heights) & board.geometry.pairs;
    }
    template <class L>
    TETRIS_FUNCTION static int of(const Board<L>& board) {
        return popcount(L::first(L::or_all(flags(board))));
    }
    template <class L>
    TETRIS_FUNCTION static Prepared<L> prepare(const Board<L>& board) {
        const auto differences = flags(board);
        return {L::or_before(differences), L::or_after(differences)};
    }
    // Differences inside the piece are the shape's; the two at its sides are new.
    template <class L, int WIDTH>
    TETRIS_FUNCTION static typename L::Ints after(const Prepared<L>& prepared, const Drop<L, WIDTH>& drop) {
        const auto first = drop.row + L::ints(drop.shape.first_top), last = drop.row + L::ints(drop.shape.last_top);
        const auto outside = drop.at(prepared.before, -1) | drop.at(prepared.after, WIDTH - 1);
        const auto all = outside | L::bits(drop.shape.inner_flags) | L::difference_flag(first - drop.height_before(-1)) |
                         L::difference_flag(drop.height_before(WIDTH) - last);
        return L::popcount_small(all);
    }
};

template <int COLUMN>
struct ColumnHeight : WholeFeature {
    template <class L>
    TETRIS_FUNCTION static int of(const Board<L>& board) {
        return board.heights[FIRST_COLUMN + COLUMN];
    }
    template <class L, int WIDTH>
    TETRIS_FUNCTION static typename L::Ints after(int, const Drop<L, WIDTH>& drop) {
        return drop.column_height(COLUMN);
    }
};

template <int COLUMN>
struct HeightDifference : WholeFeature {
    template <class L>
    TETRIS_FUNCTION static int of(const Board<L>& board) {
        const int difference = board.heights[FIRST_COLUMN + COLUMN + 1] - board.heights[FIRST_COLUMN + COLUMN];
        return difference < 0 ? -difference : difference;
    }
    template <class L, int WIDTH>
    TETRIS_FUNCTION static typename L::Ints after(int, const Drop<L, WIDTH>& drop) {
        const auto difference = drop.column_height(COLUMN + 1) - drop.column_height(COLUMN);
        return L::maximum(difference, -difference);
    }
};

struct MaxHeight : WholeFeature {
    template <class L>
    TETRIS_FUNCTION static int of(const Board<L>& board) {
        return popcount(L::first(L::or_all(board.filled & board.geometry.inside)));
    }
    template <class L>
    TETRIS_FUNCTION static typename L::Ints prepare(const Board<L>& board) {
        return L::popcount(L::or_all(board.filled & board.geometry.inside));
    }
    template <class L, int WIDTH>
    TETRIS_FUNCTION static typename L::Ints after(typename L::Ints before, const Drop<L, WIDTH>& drop) {
        return L::maximum(before, drop.row + drop.piece_height());
    }
};

template <class F, class = void>
struct has_after : std::false_type {};
template <class F>
struct has_after<F, std::void_t<decltype(F::after(F::prepare(std::declval<Board<ScalarLanes>>()),
                                                  std::declval<Drop<ScalarLanes, 1>>()))>>
    : std::true_type {};

}  // namespace tetris
