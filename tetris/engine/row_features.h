// The features of rows: of the rows that contain holes, and of the empty cells of rows. Their
// definitions are in tetris/game/features.py; see also feature_definitions.h.
//
// A set of rows is a word, like a column: the highest row is the lowest bit, and a shift to the
// right moves the set up by one row.
#pragma once

#include "feature_definitions.h"

namespace tetris {

// The source of the features of rows with holes. It prepares the set of the rows that contain a
// hole.
struct HoleRows {
  template <class L>
  TETRIS_FUNCTION static auto prepare(const Board<L>& board) {
    return L::or_all(board.holes());
  }
  // Returns the rows that contain a hole after a drop that completes no row, for every
  // placement. `rows` is the set before the drop.
  //
  // In each column under the piece, the rows between the column's topmost cell and the piece
  // become holes. `floor` is the row directly below the piece. Higher rows are lower bits, so
  // the bits of `topmost - floor` are the rows from `floor` down to the row above the topmost
  // cell. If the piece rests on the column, `floor` equals `topmost`, and no bit is set.
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto after(typename L::Bits rows, const Drop<L, WIDTH>& drop) {
    TETRIS_UNROLL for (int k = 0; k < WIDTH; ++k) {
      auto topmost = drop.cells_before(k) & -drop.cells_before(k);
      auto floor = drop.piece_rows(drop.shape.floor[k]);
      rows = rows | (topmost - floor);
    }
    return rows;
  }
};

// The number of rows that Self::select(rows) selects, where `rows` are the rows with holes.
template <class Self>
struct HoleRowCount : FeatureBase {
  using Source = HoleRows;
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    return popcount(Self::select(uint32_t(L::or_columns(board.holes()))));
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto after(typename L::Bits before, const Drop<L, WIDTH>& drop) {
    return L::popcount(Self::select(HoleRows::after<L>(before, drop)));
  }
};

struct RowsWithHoles : HoleRowCount<RowsWithHoles> {
  template <class Bits>
  TETRIS_FUNCTION static Bits select(Bits rows) {
    return rows;
  }
};

struct AdjacentRowsWithHoles : HoleRowCount<AdjacentRowsWithHoles> {
  template <class Bits>
  TETRIS_FUNCTION static Bits select(Bits rows) {
    return rows & (rows >> 1);
  }
};

// The rows with holes among four rows: the highest row with a hole, and the three rows below
// it.
struct UpperHoleRows : HoleRowCount<UpperHoleRows> {
  template <class Bits>
  TETRIS_FUNCTION static Bits select(Bits rows) {
    Bits highest = rows & -rows;
    Bits four_rows = (highest << 4) - highest;
    return rows & four_rows;
  }
};

// The height of the highest hole: the number of rows from it to the floor.
struct HighestHole : FeatureBase {
  using Source = HoleRows;
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    uint32_t rows = L::or_columns(board.holes());
    return popcount(typename L::Word(rows | (0u - rows)));
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto after(typename L::Bits before, const Drop<L, WIDTH>& drop) {
    auto rows = HoleRows::after<L>(before, drop);
    return L::popcount(rows | -rows);
  }
};

// The source of the features of the empty cells of rows.
struct RowGaps {
  static constexpr int MOST_EXACT = MAX_PIECE_SIZE + 1;
  template <class L>
  struct Prepared {
    // exactly[n], for n >= 1, is the set of the rows with n empty cells.
    typename L::Bits exactly[MOST_EXACT + 1];
    // The number of empty cells of every row, bit-sliced (see ROW_DIGITS).
    typename L::Bits digit[ROW_DIGITS];
  };
  template <class L>
  TETRIS_FUNCTION static Prepared<L> prepare(const Board<L>& board) {
    Prepared<L> prepared;
    L::count_rows(L::without(board.geometry.inside, board.cells), prepared.digit);
    TETRIS_UNROLL for (int n = 1; n <= MOST_EXACT; ++n) {
      prepared.exactly[n] = rows_with<L>(prepared.digit, n);
    }
    return prepared;
  }
  // Returns the number of empty cells in a set of rows after a drop, for every placement
  // (lane). `rows` is the set, one bit per row.
  //
  // prepared.digit holds the number of empty cells of every row before the drop. The numbers
  // are bit-sliced: bit r of digit[i] is binary digit i of the number of row r.
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto count(
      const Prepared<L>& prepared, const Drop<L, WIDTH>& drop, typename L::Bits rows) {
    // Sum up 2^i * popcount(digit[i] & rows), from the highest digit down (Horner's method).
    auto gaps = L::ints(0);
    TETRIS_UNROLL for (int i = ROW_DIGITS - 1; i >= 0; --i) {
      gaps = gaps + gaps + L::popcount(prepared.digit[i] & rows);
    }
    // Subtract the cells that the piece fills in these rows.
    TETRIS_UNROLL for (int k = 0; k < WIDTH; ++k) {
      gaps = gaps - L::popcount(drop.piece_rows(drop.shape.piece[k]) & rows);
    }
    return gaps;
  }
  // Returns the number of empty cells in some rows of a board.
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board, uint32_t rows) {
    auto empty = L::without(board.geometry.inside, board.cells);
    return L::count_bits(empty & L::bits_everywhere(typename L::Word(rows)));
  }

 private:
  // Returns the rows that have n empty cells, where n is at least 1. These rows agree with n in
  // every binary digit. The loop begins with the rows that agree in the lowest digit that is 1.
  template <class L>
  TETRIS_FUNCTION static auto rows_with(const typename L::Bits (&digit)[ROW_DIGITS], int n) {
    auto rows = digit[lowest_bit(uint64_t(n))];
    TETRIS_UNROLL for (int i = 0; i < ROW_DIGITS; ++i) {
      bool is_one = (n >> i & 1) != 0;
      rows = is_one ? rows & digit[i] : L::without(rows, digit[i]);
    }
    return rows;
  }
};

// The number of empty cells in the rows that Self::select(rows) selects, where `rows` are the
// rows with holes.
template <class Self>
struct GapsOverHoleRows : FeatureBase {
  using Source = HoleRows;
  using SecondSource = RowGaps;
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    return RowGaps::of(board, Self::select(uint32_t(L::or_columns(board.holes()))));
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto after(
      typename L::Bits before, const RowGaps::Prepared<L>& gaps, const Drop<L, WIDTH>& drop) {
    return RowGaps::count<L>(gaps, drop, Self::select(HoleRows::after<L>(before, drop)));
  }
};

// The empty cells in the rows that have no hole and lie directly above a row with holes.
struct GapsOverHoles : GapsOverHoleRows<GapsOverHoles> {
  template <class Bits>
  TETRIS_FUNCTION static Bits select(Bits rows) {
    return (rows | (rows >> 1)) ^ rows;
  }
};

// The empty cells in the row above the highest row with a hole.
struct GapsOverHighestHole : GapsOverHoleRows<GapsOverHighestHole> {
  template <class Bits>
  TETRIS_FUNCTION static Bits select(Bits rows) {
    return (rows & -rows) >> 1;
  }
};

// The number of rows with exactly one empty cell.
struct NearlyFullRows : FeatureBase {
  using Source = RowGaps;
  // A row counts if it has an empty cell, but no empty cell that has another empty cell further
  // left.
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    auto empty = L::without(board.geometry.inside, board.cells);
    auto empty_to_the_left = L::left(L::prefix_or(empty));
    auto with_several = L::or_columns(empty & empty_to_the_left);
    return popcount(L::or_columns(empty) & ~with_several);
  }
  // Returns the number of such rows after a drop that completes no row, for every placement. A
  // row without cells of the piece counts if it has exactly one empty cell. A row with n cells
  // of the piece counts if it had n + 1 empty cells before the drop; shape.rows[n - 1] is the
  // set of these rows of the piece. The only piece that is four columns wide has four cells in
  // its row, so the loop needs only n = 4 then.
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto after(
      const RowGaps::Prepared<L>& prepared, const Drop<L, WIDTH>& drop) {
    auto rows = prepared.exactly[1];
    TETRIS_UNROLL for (int n = WIDTH == MAX_PIECE_SIZE ? WIDTH : 1; n <= WIDTH; ++n) {
      auto with_n_cells = drop.piece_rows(drop.shape.rows[n - 1]);
      rows = L::without(rows, with_n_cells) | (with_n_cells & prepared.exactly[n + 1]);
    }
    return L::popcount(rows);
  }
};

}  // namespace tetris
