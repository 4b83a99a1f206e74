// The features of rows: those that hold holes, and what rows lack (definitions in tetris/game/features.py; see
// feature_definitions.h).
#pragma once

#include "feature_definitions.h"

namespace tetris {

// The rows that hold a hole, for features of these.
struct HoleRows {
  template <class L>
  TETRIS_FUNCTION static typename L::Bits prepare(const Board<L>& board) {
    return L::or_all(board.holes());
  }
  // Covered are the cells from the board's topmost one up to the piece. Its bit is the one above (numerically) those of
  // the rows over it, and of the row below the piece.
  template <class L, int WIDTH>
  TETRIS_FUNCTION static typename L::Bits after(
      typename L::Bits rows, const Drop<L, WIDTH>& drop) {
    TETRIS_UNROLL for (int k = 0; k < WIDTH; ++k) {
      const typename L::Bits topmost = drop.before(k) & -drop.before(k);
      rows = rows | (topmost - drop.rows(drop.shape.floor[k]));
    }
    return rows;
  }
};

// A count of rows that are chosen by which rows hold holes: `Self::chosen(rows)`. Bits from that of the highest row to that of
// the floor stand for rows further and further down.
template <class Self>
struct HoleRowCount : FeatureBase {
  using Source = HoleRows;
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    return popcount(Self::chosen(static_cast<uint32_t>(L::or_columns(board.holes()))));
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static typename L::Ints after(
      typename L::Bits before, const Drop<L, WIDTH>& drop) {
    return L::popcount(Self::chosen(HoleRows::after<L>(before, drop)));
  }
};

struct RowsWithHoles : HoleRowCount<RowsWithHoles> {
  template <class Bits>
  TETRIS_FUNCTION static Bits chosen(Bits rows) {
    return rows;
  }
};

struct AdjacentRowsWithHoles : HoleRowCount<AdjacentRowsWithHoles> {
  template <class Bits>
  TETRIS_FUNCTION static Bits chosen(Bits rows) {
    return rows & (rows >> 1);
  }
};

// Rows with holes among the four from the highest one of them downwards.
struct UpperHoleRows : HoleRowCount<UpperHoleRows> {
  template <class Bits>
  TETRIS_FUNCTION static Bits chosen(Bits rows) {
    const Bits highest = rows & -rows;
    return rows & ((highest << 4) - highest);
  }
};

struct HighestHole : FeatureBase {
  using Source = HoleRows;
  // The bits from that of the highest row to that of the floor.
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    const uint32_t rows = L::or_columns(board.holes());
    return popcount(static_cast<typename L::Word>(rows | (0u - rows)));
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static typename L::Ints after(
      typename L::Bits before, const Drop<L, WIDTH>& drop) {
    const typename L::Bits rows = HoleRows::after<L>(before, drop);
    return L::popcount(rows | -rows);
  }
};

// How many empty cells each row has.
struct RowGaps {
  template <class L>
  struct Prepared {
    typename L::Bits
        exactly[MAX_PIECE_SIZE + 2];     // the rows with 0, 1, 2, ... of them; 0 is not needed
    typename L::Bits digit[ROW_DIGITS];  // of their number
  };
  template <class L>
  TETRIS_FUNCTION static Prepared<L> prepare(const Board<L>& board) {
    Prepared<L> prepared;
    L::count_rows(L::without(board.geometry.inside, board.cells), prepared.digit);
    TETRIS_UNROLL for (int n = 1; n <= MAX_PIECE_SIZE + 1; ++n) {
      typename L::Bits rows = prepared.digit[lowest_bit(static_cast<uint64_t>(n))];
      TETRIS_UNROLL for (int i = 0; i < ROW_DIGITS; ++i) {
        rows =
            (n >> i & 1) != 0 ? rows & prepared.digit[i] : L::without(rows, prepared.digit[i]);
      }
      prepared.exactly[n] = rows;
    }
    return prepared;
  }
  // The empty cells that some rows have left when the piece has come to rest.
  template <class L, int WIDTH>
  TETRIS_FUNCTION static typename L::Ints count(
      const Prepared<L>& prepared, const Drop<L, WIDTH>& drop, typename L::Bits rows) {
    typename L::Ints gaps = L::ints(0);
    TETRIS_UNROLL for (int i = ROW_DIGITS - 1; i >= 0; --i) gaps =
        gaps + gaps + L::popcount(prepared.digit[i] & rows);
    TETRIS_UNROLL for (int k = 0; k < WIDTH; ++k) gaps =
        gaps - L::popcount(drop.rows(drop.shape.piece[k]) & rows);
    return gaps;
  }
  // The empty cells of some rows of a board.
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board, uint32_t rows) {
    const auto empty = L::without(board.geometry.inside, board.cells);
    return L::count_bits(empty & L::bits_everywhere(static_cast<typename L::Word>(rows)));
  }
};

// The empty cells of rows that are chosen by which rows hold holes: `Self::covers(rows)`.
template <class Self>
struct GapsOverHoleRows : FeatureBase {
  using Source = HoleRows;
  using SecondSource = RowGaps;
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    return RowGaps::of(
        board, Self::covers(static_cast<uint32_t>(L::or_columns(board.holes()))));
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static typename L::Ints after(
      typename L::Bits before, const RowGaps::Prepared<L>& gaps, const Drop<L, WIDTH>& drop) {
    return RowGaps::count<L>(gaps, drop, Self::covers(HoleRows::after<L>(before, drop)));
  }
};

struct GapsOverHoles : GapsOverHoleRows<GapsOverHoles> {
  template <class Bits>
  TETRIS_FUNCTION static Bits covers(Bits rows) {
    return (rows | (rows >> 1)) ^ rows;
  }
};

struct GapsOverHighestHole : GapsOverHoleRows<GapsOverHighestHole> {
  template <class Bits>
  TETRIS_FUNCTION static Bits covers(Bits rows) {
    return (rows & -rows) >> 1;
  }
};

// Rows with exactly one empty cell.
struct NearlyFullRows : FeatureBase {
  using Source = RowGaps;
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    const auto empty = L::without(board.geometry.inside, board.cells);
    // Less the rows with one that has another to its left.
    return popcount(L::or_columns(empty) & ~L::or_columns(empty & L::left(L::or_up_to(empty))));
  }
  // A row that gets n cells has to have n + 1 empty ones before. The piece that is four columns wide has one row.
  template <class L, int WIDTH>
  TETRIS_FUNCTION static typename L::Ints after(
      const RowGaps::Prepared<L>& prepared, const Drop<L, WIDTH>& drop) {
    typename L::Bits rows = prepared.exactly[1];
    TETRIS_UNROLL for (int n = WIDTH == MAX_PIECE_SIZE ? WIDTH : 1; n <= WIDTH; ++n) {
      const typename L::Bits filled = drop.rows(drop.shape.rows[n - 1]);
      rows = L::without(rows, filled) | (filled & prepared.exactly[n + 1]);
    }
    return L::popcount(rows);
  }
};

}  // namespace tetris
