// Features that a user defines in a header (tetris.feature_header). TETRIS_FEATURE_HEADER is
// the name of the header.
//
//     TETRIS_FEATURE(EmptyColumns) {
//         int count = 0;
//         for (int c = 0; c < board.width; ++c) count += board.column(c) == 0;
//         return count;
//     }
//
// The engine calls a feature for the board after every placement that does not end the game.
// The feature has to return the same number as the Python function `empty_columns`, an integer
// from -4095 to 4095. A struct as in feature_definitions.h is faster, because it can be
// computed from the columns that a drop touches.
#pragma once

#include "feature_definitions.h"

namespace tetris {

// Returns a word with its bits in the opposite order. The loop swaps neighbouring bits, then
// neighbouring pairs of bits, groups of four, bytes and halves.
TETRIS_FUNCTION uint32_t reversed_bits(uint32_t bits) {
  TETRIS_UNROLL for (int size = 1; size < 32; size *= 2) {
    uint32_t lower = ~0u / ((1u << size) + 1);  // `size` ones, then `size` zeros, and so on
    bits = (bits >> size & lower) | (bits & lower) << size;
  }
  return bits;
}

// A board in plain numbers, after full rows have been removed.
struct PlainBoard {
  int width, height;         // the size of the board, in cells
  int twice_landing_height;  // as `landing_height` in tetris/game/features.py, times two
  int eroded_cells;          // as `eroded_cells` there
  int lines;                 // the number of rows that the placement removed

  // Copies a board of the engine into plain numbers. Bit r of columns_[c] is row r of column c;
  // rows are counted from the bottom.
  template <class L>
  TETRIS_FUNCTION explicit PlainBoard(const Board<L>& board)
      : width(board.geometry.width),
        height(board.geometry.height),
        twice_landing_height(board.twice_landing_height),
        eroded_cells(board.eroded_cells),
        lines(board.lines) {
    using Word = typename L::Word;
    TETRIS_UNROLL for (int c = 0; c < MAX_WIDTH; ++c) {
      // The columns may be in a vector register, which cannot be indexed. To get column c, set
      // all other columns and the side walls to 0; the bitwise OR of all columns is then column
      // c. The side walls are outside `inside`.
      Word only_column_c[MOST_SLOTS] = {};
      only_column_c[FIRST_COLUMN + c] = Word(~Word(0));
      auto mask = board.geometry.inside & L::load(only_column_c);
      uint32_t column = L::or_columns(board.cells & mask);
      // Row r is bit L::TOP - r in the engine. It becomes bit 31 - r by a shift, and then bit r
      // by the reversal of all 32 bits.
      uint32_t floor_in_bit_31 = column << (31 - L::TOP);
      columns_[c] = reversed_bits(floor_in_bit_31);
    }
  }

  // The cells of column c, counted from the left. Bit r is row r, counted from the bottom.
  TETRIS_FUNCTION uint32_t column(int c) const { return columns_[c]; }
  TETRIS_FUNCTION bool cell(int row, int c) const { return columns_[c] >> row & 1; }
  // The height of a column: the row above its highest cell.
  TETRIS_FUNCTION int column_height(int c) const {
    int rows = 0;
    for (uint32_t left = columns_[c]; left != 0; left >>= 1) ++rows;
    return rows;
  }
  // The sum of the columns' heights.
  TETRIS_FUNCTION int total_height() const {
    int sum = 0;
    for (int c = 0; c < width; ++c) sum += column_height(c);
    return sum;
  }

 private:
  uint32_t columns_[MAX_WIDTH];
};

}  // namespace tetris

#define TETRIS_FEATURE(Name)                                           \
  struct Name : tetris::FeatureBase {                                  \
    static constexpr bool whole_board_only = true;                     \
    template <class L>                                                 \
    TETRIS_FUNCTION static int of(const tetris::Board<L>& board) {     \
      return value(tetris::PlainBoard(board));                         \
    }                                                                  \
    TETRIS_FUNCTION static int value(const tetris::PlainBoard& board); \
  };                                                                   \
  TETRIS_FUNCTION int Name::value(const tetris::PlainBoard& board)

#if defined(TETRIS_FEATURE_HEADER)
#include TETRIS_FEATURE_HEADER
#endif
