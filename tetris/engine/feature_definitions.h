// The features of an after-state (definitions in tetris/game/features.py, whose values these equal).
//
// A feature is a struct with
//   denominator     its value is an integer divided by this; 1 but for LandingHeight (DENOMINATORS of tetris/game/features.py)
//   of(board)       the integer, from a whole board
//   of_placement    true where it tells of the placement, not of the board: PLACEMENT_FEATURES of tetris/game/features.py
// and, for speed,
//   prepare(board)  what is worth knowing of the board before the drop, computed once a decision
//   after(prepared, drop)  the integers of the after-states of a drop that completes no row, one a lane; from 0 to 32767
//   column_height, column_step  the column whose height it is, or the size of whose step to the next one; else -1. These
//                   features are scored together (column_scores.h)
//   least(prepared, drop), rest_of(board, touched)  where has_least = true: a part of `after` that takes little time, and the
//                   rest, not below 0, by the board after the drop; `touched`: all ones under the piece and beside it
//   table_steps     it stands for all features of so many steps, one after the other (step_tables.h); else 0
// A feature that cannot be told from the columns that a drop touches has no `after`, and says so: whole_board_only = true.
// Then every placement is scored by its whole after-state, for all features of the list, which takes several times as long.
//
// Features that want to know the same of the board name the struct that prepares it as their `Source`; one that wants to
// know what another struct prepares as well names that as its `SecondSource`: after(prepared, second, drop). Names:
// tetris/game/features.py's in PascalCase. Those of rows are in row_features.h, those of the heights of columns in
// surface_features.h.
#pragma once

#include <type_traits>
#include <utility>

#include "board.h"

namespace tetris {

// In every column the rows from the lowest one that is set (the highest bit) upwards.
template <class L>
TETRIS_FUNCTION typename L::ColumnBits from_lowest_row(typename L::ColumnBits columns) {
#if defined(__CUDA_ARCH__)
  // 32 where no bit is set, and the shift clamps.
  return mapped([](uint32_t x) { return __funnelshift_rc(~0u, 0u, __clz(x)); }, columns);
#else
  columns = columns | (columns >> 1);
  columns = columns | (columns >> 2);
  columns = columns | (columns >> 4);
  columns = columns | (columns >> 8);
  if constexpr (L::TOP > 15) columns = columns | (columns >> 16);
  return columns;
#endif
}

struct FeatureBase {
  static constexpr int denominator = 1;
  static constexpr bool whole_board_only = false;  // there is no `after`
  static constexpr bool zero_without_lines = false, of_placement = false;
  static constexpr bool loops = false, has_least = false;  // `after` loops
  static constexpr int column_height = -1, column_step = -1;
  static constexpr int table_steps = 0;
  template <class L>
  TETRIS_FUNCTION static int prepare(const Board<L>&) {
    return 0;
  }
  template <class L>
  TETRIS_FUNCTION static int rest_of(const Board<L>&, typename L::ColumnInts) {
    return 0;
  }
};

// What prepares a feature: its source, or itself.
template <class F, class = void>
struct source {
  using type = F;
};
template <class F>
struct source<F, std::void_t<typename F::Source>> {
  using type = typename F::Source;
};
template <class F>
using SourceOf = typename source<F>::type;
// What else it wants to know; its source where there is nothing else.
template <class F, class = void>
struct second_source {
  using type = SourceOf<F>;
};
template <class F>
struct second_source<F, std::void_t<typename F::SecondSource>> {
  using type = typename F::SecondSource;
};
template <class F>
using SecondSourceOf = typename second_source<F>::type;
// F::after of what has been prepared by both.
template <class F, class First, class Second, class D>
TETRIS_FUNCTION auto after_drop_of(const First& first, const Second& second, const D& drop) {
  if constexpr (std::is_same_v<SourceOf<F>, SecondSourceOf<F>>) return F::after(first, drop);
  else return F::after(first, second, drop);
}

// A count of bits: `factor` times those of `words(board)`, a word a column, plus `offset(geometry)`. Only the total is
// worth knowing beforehand.
template <class Self>
struct BitCount : FeatureBase {
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

struct LandingHeight : FeatureBase {
  static constexpr int denominator = 2;
  static constexpr bool of_placement = true;
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    return board.twice_landing_height;
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static typename L::Ints after(int, const Drop<L, WIDTH>& drop) {
    return drop.row + drop.end() - L::ints(1);
  }
};

struct ErodedCells : FeatureBase {
  static constexpr bool zero_without_lines = true;
  static constexpr bool of_placement = true;
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
  // The side walls go on above the board, where every row is empty.
  template <class L>
  TETRIS_FUNCTION static int offset(const Geometry<L>& geometry) {
    return 2 * (geometry.height - (L::TOP + 1));
  }
  // Each of the piece's rows is one run of cells: two more transitions, less two for every cell beside it. A row has one
  // cell at each end, so that the columns on one side never share a row; nor does an inner column with itself.
  template <class L, int WIDTH>
  TETRIS_FUNCTION static typename L::Ints after(
      typename L::Ints total, const Drop<L, WIDTH>& drop) {
    const auto touched = [&](int k) {
      return drop.before(k) & drop.rows(drop.shape.contact[k + 1]);
    };
    typename L::Ints more = L::ints(drop.shape.height);
    if constexpr (WIDTH == 1 || WIDTH == 4) {
      more = more - L::popcount_near(touched(-1), touched(WIDTH));
    } else {
      more = more -
             L::popcount_near(touched(-1) | touched(0), touched(WIDTH - 1) | touched(WIDTH));
    }
    if constexpr (WIDTH == 3) more = more - L::popcount(touched(1));
    return total + more + more;
  }
};

struct ColumnTransitions : BitCount<ColumnTransitions> {
  // A column has one transition at its top and two for every run of holes.
  static constexpr int factor = 2;
  template <class L>
  TETRIS_FUNCTION static auto words(const Board<L>& board) {
    const auto holes = board.holes();
    return L::without(holes, holes << 1);
  }
  template <class L>
  TETRIS_FUNCTION static int offset(const Geometry<L>& geometry) {
    return geometry.width;
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static typename L::Ints after(
      typename L::Ints total, const Drop<L, WIDTH>& drop) {
    typename L::Ints opened = L::ints(0);
    TETRIS_UNROLL for (int k = 0; k < WIDTH; ++k) opened = opened + L::count(drop.covers(k));
    return total + (opened + opened);
  }
};

struct Holes : BitCount<Holes> {
  template <class L>
  TETRIS_FUNCTION static auto words(const Board<L>& board) {
    return board.holes();
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static typename L::Ints after(
      typename L::Ints total, const Drop<L, WIDTH>& drop) {
    TETRIS_UNROLL for (int k = 0; k < WIDTH; ++k) total = total + drop.gap(k);
    return total;
  }
};

// For a family of wells: the depths of a set of columns, summed, with the columns' cells and well cells given (a well
// cell is an empty one between two full neighbours). `Self::depths<L>(wells, cells)` reduces COUNT words to one integer
// a lane.
template <class Self>
struct WellFeature : FeatureBase {
  static constexpr bool loops = true;
  template <class L>
  struct Prepared {
    typename L::Ints total;
    // Of each column; of it and the next one.
    typename L::template Kept<uint16_t, typename L::ColumnInts> depths, pairs;
  };
  template <class L>
  TETRIS_FUNCTION static auto column_depths(const Board<L>& board) {
    using Bits = typename L::ColumnBits;
    const Bits& cells = board.cells;
    const Bits wells[1] = {
        L::without(L::left(cells) & L::right(cells) & board.geometry.inside, cells)};
    const Bits columns[1] = {cells};
    return Self::template depths<L>(wells, columns);
  }
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    return L::sum(column_depths(board));
  }
  template <class L>
  TETRIS_FUNCTION static Prepared<L> prepare(const Board<L>& board) {
    const auto depths = column_depths(board);
    const auto pairs = depths + L::right(depths);
    return {L::total(depths), board.template keep<uint16_t>(depths),
        board.template keep<uint16_t>(pairs)};
  }
  // The columns under the piece change, and the wells of the two beside it.
  template <class L, int WIDTH>
  TETRIS_FUNCTION static typename L::Ints after(
      const Prepared<L>& prepared, const Drop<L, WIDTH>& drop) {
    using Bits = typename L::Bits;
    constexpr int COUNT = WIDTH + 2;
    Bits column[COUNT + 2], wells[COUNT], inner[COUNT];
    TETRIS_UNROLL for (int k = -2; k < COUNT; ++k) column[k + 2] = drop.after(k);
    TETRIS_UNROLL for (int i = 0; i < COUNT; ++i) {
      inner[i] = column[i + 1];
      wells[i] = L::without(column[i] & column[i + 2], inner[i]);
    }
    return least<L>(prepared, drop) + Self::template depths<L>(wells, inner);
  }
  // The columns that do not change.
  template <class L, int WIDTH>
  TETRIS_FUNCTION static typename L::Ints least(
      const Prepared<L>& prepared, const Drop<L, WIDTH>& drop) {
    typename L::Ints outside = prepared.total;
    TETRIS_UNROLL for (int k = -1; k < WIDTH; k += 2) outside =
        outside - drop.at(prepared.pairs, k);
    if constexpr (WIDTH % 2 == 1) outside = outside - drop.at(prepared.depths, WIDTH);
    return outside;
  }
  template <class L>
  TETRIS_FUNCTION static int rest_of(const Board<L>& board, typename L::ColumnInts touched) {
    return L::sum(column_depths(board) & touched);
  }
};

struct Wells : WellFeature<Wells> {
  static constexpr bool has_least = true;
  // Every well cell counts the empty cells from itself downwards.
  template <class L, class Bits, int COUNT>
  TETRIS_FUNCTION static auto depths(const Bits (&wells)[COUNT], const Bits (&cells)[COUNT]) {
    Bits falling[COUNT];
    TETRIS_UNROLL for (int i = 0; i < COUNT; ++i) falling[i] = wells[i];
    auto total = L::popcount_sum(falling);
    for (;;) {
      Bits left = falling[0] ^ falling[0];
      TETRIS_UNROLL for (int i = 0; i < COUNT; ++i) {
        falling[i] = L::without(falling[i] << 1, cells[i]);
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
  TETRIS_FUNCTION static auto depths(const Bits (&wells)[COUNT], const Bits (&cells)[COUNT]) {
    Bits rest[COUNT];
    auto total = topmost<L>(wells, cells, rest);
    // Most columns have one run.
    while (L::any(union_of(rest))) total = total + topmost<L>(rest, cells, rest);
    return total;
  }

 private:
  // What the topmost run with a well in each column counts, and the wells not in it.
  template <class L, class Bits, int COUNT>
  TETRIS_FUNCTION static auto topmost(
      const Bits (&wells)[COUNT], const Bits (&cells)[COUNT], Bits (&rest)[COUNT]) {
    auto total = L::as_ints(wells[0] ^ wells[0]);
    TETRIS_UNROLL for (int i = 0; i < COUNT; ++i) {
      // Taking away the topmost well cell borrows from the cell below the run.
      const Bits run = L::without(cells[i] - (wells[i] & -wells[i]), cells[i]);
      total = total + L::triangle(L::popcount(run));
      rest[i] = L::without(wells[i], run);
    }
    return total;
  }
  template <class Bits, int COUNT>
  TETRIS_FUNCTION static Bits union_of(const Bits (&words)[COUNT]) {
    Bits all = words[0];
    TETRIS_UNROLL for (int i = 1; i < COUNT; ++i) all = all | words[i];
    return all;
  }
};

struct HoleDepth : BitCount<HoleDepth> {
  // Cells above some hole of their column: those above its lowest hole.
  template <class L>
  TETRIS_FUNCTION static auto words(const Board<L>& board) {
    return from_lowest_row<L>(board.holes()) & board.cells;
  }
  template <class L>
  struct Prepared {
    typename L::Ints total;
    typename L::template Kept<uint8_t, typename L::ColumnInts>
        holed;  // columns with a hole, by L::nonzero
  };
  template <class L>
  TETRIS_FUNCTION static Prepared<L> prepare(const Board<L>& board) {
    return {BitCount::prepare(board), board.template keep<uint8_t>(L::nonzero(board.holes()))};
  }
  // The piece's cells count in the columns that have a hole.
  template <class L, int WIDTH>
  TETRIS_FUNCTION static typename L::Ints after(
      const Prepared<L>& prepared, const Drop<L, WIDTH>& drop) {
    typename L::Ints depth = prepared.total;
    TETRIS_UNROLL for (int k = 0; k < WIDTH; ++k) {
      const auto holed = L::flag(drop.at(prepared.holed, k)) | drop.covers(k);
      depth = depth + L::where(holed, L::ints(drop.shape.cells[k]));
    }
    return depth;
  }
};

// Columns with at least one hole.
struct ColumnsWithHoles : FeatureBase {
  using Source = HoleDepth;
  struct Total {
    template <class L>
    TETRIS_FUNCTION static typename L::Ints prepare(const Board<L>& board) {
      return L::ints(of(board));
    }
  };
  using SecondSource = Total;
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    const auto holes = board.holes();
    return popcount(L::negative(L::as_ints((holes | -holes) & board.geometry.inside)));
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static typename L::Ints after(const HoleDepth::Prepared<L>& columns,
      typename L::Ints total, const Drop<L, WIDTH>& drop) {
    TETRIS_UNROLL for (int k = 0; k < WIDTH; ++k) {
      const auto before = L::flag(drop.at(columns.holed, k));
      total = total + L::count(before | drop.covers(k)) - L::count(before);
    }
    return total;
  }
};

// Columns whose topmost cell stands alone on an empty one.
struct ThinCovers : FeatureBase {
  template <class L>
  TETRIS_FUNCTION static uint32_t columns(const Board<L>& board) {
    const auto covered =
        L::without((board.cells & -board.cells) << 1, board.cells) & board.geometry.inside;
    return L::negative(L::as_ints(-covered));  // one bit or none
  }
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    return popcount(columns(board));
  }
  template <class L>
  TETRIS_FUNCTION static typename L::Bits prepare(const Board<L>& board) {
    return L::bits(static_cast<typename L::Word>(columns(board)));
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static typename L::Ints after(
      typename L::Bits before, const Drop<L, WIDTH>& drop) {
    constexpr uint32_t PIECE = (2u << WIDTH) - 2;
    typename L::Ints total =
        L::popcount(L::without(before, L::template in_columns<PIECE>(drop.shape)));
    if constexpr (WIDTH > 1) {
      TETRIS_UNROLL for (int k = 0; k < WIDTH; ++k) {
        total = total + L::where(drop.covers(k), L::ints(drop.shape.lone[k]));
      }
    }
    return total;
  }
};

// What a source knows of a board where placements are scored one at a time.
template <class Source>
using PreparedBy = decltype(Source::prepare(std::declval<Board<ScalarLanes>>()));
using OneDrop = Drop<ScalarLanes, 1>;
template <class F, class = void>
struct has_after_of_one : std::false_type {};
template <class F>
struct has_after_of_one<F,
    std::void_t<decltype(F::after(std::declval<PreparedBy<SourceOf<F>>>(),
        std::declval<OneDrop>()))>> : std::true_type {};
template <class F, class = void>
struct has_after_of_two : std::false_type {};
template <class F>
struct has_after_of_two<F,
    std::void_t<decltype(F::after(std::declval<PreparedBy<SourceOf<F>>>(),
        std::declval<PreparedBy<SecondSourceOf<F>>>(), std::declval<OneDrop>()))>>
    : std::true_type {};
template <class F>
struct has_after
    : std::bool_constant<has_after_of_one<F>::value || has_after_of_two<F>::value> {};

// Whether a feature is told from what a drop touches. Nothing becomes slow unasked.
template <class F>
constexpr bool follows_drops() {
  static_assert(has_after<F>::value != F::whole_board_only,
      "expected a feature with after(prepared, drop), or without it and with whole_board_only "
      "= true");
  return has_after<F>::value;
}

}  // namespace tetris
