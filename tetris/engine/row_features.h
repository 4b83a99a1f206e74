// The features of rows: those that hold holes, and those that lack one cell (definitions in tetris/features.py; see
// feature_definitions.h).
#pragma once

#include "feature_definitions.h"

namespace tetris {

// The rows that hold a hole, for features of these.
struct HoleRows {
    template <class L>
    struct Prepared {
        typename L::Bits rows;
        typename L::template Kept<typename L::Word, typename L::ColumnBits> tops;  // the topmost cell of each column
    };
    template <class L>
    TETRIS_FUNCTION static Prepared<L> prepare(const Board<L>& board) {
        const auto tops = board.cells & -board.cells;
        return {L::or_all(board.holes()), board.template keep<typename L::Word>(tops)};
    }
    // Covered are the cells from the board's topmost one up to the piece. Its bit is the one above (numerically) those of
    // the rows over it, and likewise for the row below the piece.
    template <class L, int WIDTH>
    TETRIS_FUNCTION static typename L::Bits after(const Prepared<L>& prepared, const Drop<L, WIDTH>& drop) {
        typename L::Bits rows = prepared.rows;
        TETRIS_UNROLL for (int k = 0; k < WIDTH; ++k) {
            rows = rows | (drop.at(prepared.tops, k) - drop.rows(drop.shape.floor[k]));
        }
        return rows;
    }
};

struct RowsWithHoles : WholeFeature {
    using Source = HoleRows;
    template <class L>
    TETRIS_FUNCTION static int of(const Board<L>& board) {
        return popcount(L::or_columns(board.holes()));
    }
    template <class L, int WIDTH>
    TETRIS_FUNCTION static typename L::Ints after(const HoleRows::Prepared<L>& prepared, const Drop<L, WIDTH>& drop) {
        return L::popcount(HoleRows::after(prepared, drop));
    }
};

struct AdjacentRowsWithHoles : WholeFeature {
    using Source = HoleRows;
    template <class L>
    TETRIS_FUNCTION static int of(const Board<L>& board) {
        const uint32_t rows = L::or_columns(board.holes());
        return popcount(rows & (rows >> 1));
    }
    template <class L, int WIDTH>
    TETRIS_FUNCTION static typename L::Ints after(const HoleRows::Prepared<L>& prepared, const Drop<L, WIDTH>& drop) {
        const typename L::Bits rows = HoleRows::after(prepared, drop);
        return L::popcount(rows & (rows >> 1));
    }
};

struct HighestHole : WholeFeature {
    using Source = HoleRows;
    // The bits from that of the highest row to that of the floor.
    template <class L>
    TETRIS_FUNCTION static int of(const Board<L>& board) {
        const uint32_t rows = L::or_columns(board.holes());
        return run_length(static_cast<typename L::Word>(rows | (0u - rows)));
    }
    template <class L, int WIDTH>
    TETRIS_FUNCTION static typename L::Ints after(const HoleRows::Prepared<L>& prepared, const Drop<L, WIDTH>& drop) {
        const typename L::Bits rows = HoleRows::after(prepared, drop);
        return L::run_length(rows | -rows);
    }
};

// Rows with exactly one empty cell.
struct NearlyFullRows : WholeFeature {
    template <class L>
    struct Prepared {
        typename L::Bits empty[MAX_PIECE_SIZE + 1];  // the rows with 1, 2, ... empty cells
    };
    template <class L>
    TETRIS_FUNCTION static int of(const Board<L>& board) {
        const auto empty = L::without(board.geometry.inside, board.cells);
        return popcount(L::or_columns(empty) & ~L::or_columns(among_next<L>(empty, empty)));
    }
    template <class L>
    TETRIS_FUNCTION static Prepared<L> prepare(const Board<L>& board) {
        const auto empty = L::without(board.geometry.inside, board.cells);
        auto next = empty;
        typename L::Bits at_least = L::or_all(next);
        Prepared<L> prepared;
        TETRIS_UNROLL for (int n = 0; n <= MAX_PIECE_SIZE; ++n) {
            next = among_next<L>(empty, next);
            const typename L::Bits more = L::or_all(next);
            prepared.empty[n] = L::without(at_least, more);
            at_least = more;
        }
        return prepared;
    }
    // A row that gets n cells has to have n + 1 empty ones before. The piece that is four columns wide has one row.
    template <class L, int WIDTH>
    TETRIS_FUNCTION static typename L::Ints after(const Prepared<L>& prepared, const Drop<L, WIDTH>& drop) {
        typename L::Bits rows = prepared.empty[0];
        TETRIS_UNROLL for (int n = WIDTH == MAX_PIECE_SIZE ? WIDTH : 1; n <= WIDTH; ++n) {
            const typename L::Bits filled = drop.rows(drop.shape.rows[n - 1]);
            rows = L::without(rows, filled) | (filled & prepared.empty[n]);
        }
        return L::popcount(rows);
    }

   private:
    // The empty cells that have one of those given to their left.
    template <class L>
    TETRIS_FUNCTION static auto among_next(const typename L::ColumnBits& empty, const typename L::ColumnBits& given) {
        return empty & L::left(L::or_up_to(given));
    }
};

}  // namespace tetris
