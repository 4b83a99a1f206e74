// The features of rows: the rows that hold holes, and the empty cells of rows (definitions in
// tetris/game/features.py; see feature_definitions.h).
//
// A set of rows is a word as a column is: the highest row is the lowest bit, and a shift to the
// right moves up a row.
#pragma once

#include "feature_definitions.h"

namespace tetris {

// The source of features of the rows that hold a hole: their set.
struct HoleRows {
  template <class L>
  TETRIS_FUNCTION static auto prepare(const Board<L>& board) {
    return L::or_all(board.holes());
  }
  // Returns the rows that hold a hole after drops: those before, and in each column under the
  // piece the rows between the column's topmost cell and the piece. `floor` is the row just
  // below the piece, and `topmost - floor` sets the bits from the floor down to the row above
  // the topmost cell. If the piece rests on the column, the two are the same row and no bit is
  // set.
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

// A number of rows that `Self::select(rows)` selects, where `rows` are those that hold holes.
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

// The rows with holes among four rows: the highest one with a hole, and the three below it.
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

// The source of features of the empty cells of rows.
struct RowGaps {
  static constexpr int MOST_EXACT = MAX_PIECE_SIZE + 1;
  template <class L>
  struct Prepared {
    typename L::Bits
        exactly[MOST_EXACT + 1];  // exactly[n]: the rows with n empty cells, for n from 1
    typename L::Bits
        digit[ROW_DIGITS];  // the numbers of empty cells, in binary (see ROW_DIGITS)
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
  // prepared.digit holds the numbers of empty cells of all rows before the drop, bit-sliced:
  // bit r of digit[i] is binary digit i of the number of row r. The sum over the rows is
  // therefore the sum of 2^i popcount(digit[i] & rows), computed by Horner's scheme. The cells
  // that the piece has in these rows are subtracted.
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto count(
      const Prepared<L>& prepared, const Drop<L, WIDTH>& drop, typename L::Bits rows) {
    auto gaps = L::ints(0);
    TETRIS_UNROLL for (int i = ROW_DIGITS - 1; i >= 0; --i) {
      gaps = gaps + gaps + L::popcount(prepared.digit[i] & rows);
    }
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
  // Returns the rows whose number of empty cells is n, which is above 0. It takes the rows that
  // agree with n in each binary digit, and begins with a digit that is 1 in n.
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

// The number of empty cells in rows that `Self::select(rows)` selects, where `rows` are those
// that hold holes.
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

// In the rows above rows with holes that hold none themselves.
struct GapsOverHoles : GapsOverHoleRows<GapsOverHoles> {
  template <class Bits>
  TETRIS_FUNCTION static Bits select(Bits rows) {
    return (rows | (rows >> 1)) ^ rows;
  }
};

// In the row above the highest row with a hole.
struct GapsOverHighestHole : GapsOverHoleRows<GapsOverHighestHole> {
  template <class Bits>
  TETRIS_FUNCTION static Bits select(Bits rows) {
    return (rows & -rows) >> 1;
  }
};

// The number of rows with exactly one empty cell.
struct NearlyFullRows : FeatureBase {
  using Source = RowGaps;
  template <class L>
  // Returns the number of such rows: those with an empty cell, except those in which an empty
  // cell has another one to its left.
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    auto empty = L::without(board.geometry.inside, board.cells);
    auto empty_to_the_left = L::left(L::prefix_or(empty));
    auto with_several = L::or_columns(empty & empty_to_the_left);
    return popcount(L::or_columns(empty) & ~with_several);
  }
  // Returns the number of such rows after drops. A row that the piece does not reach must have
  // one empty cell, and a row to which the piece adds n cells must have n + 1 empty cells
  // before. The loop starts at n = WIDTH for the only piece that is four columns wide: it adds
  // four cells to one row, and fewer to none.
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
