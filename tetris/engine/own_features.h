// Features of a user's header (tetris.feature_header), which TETRIS_FEATURE_HEADER names.
//
//     TETRIS_FEATURE(EmptyColumns) {
//         int count = 0;
//         for (int c = 0; c < board.width; ++c) count += board.column(c) == 0;
//         return count;
//     }
//
// A feature is called for the after-state of every placement that does not end the game. It has
// to return what the Python function `empty_columns` returns, an integer from -4095 to 4095. A
// struct as in feature_definitions.h is faster, because it can follow the columns that a drop
// touches.
#pragma once

#include "feature_definitions.h"

namespace tetris {

// Returns a word with its bits in the opposite order. Neighbouring bits change places, then
// neighbouring pairs of bits, groups of four, bytes and halves.
TETRIS_FUNCTION uint32_t reversed_bits(uint32_t bits) {
  TETRIS_UNROLL for (int size = 1; size < 32; size *= 2) {
    uint32_t lower = ~0u / ((1u << size) + 1);  // `size` ones, then `size` zeros, and so on
    bits = (bits >> size & lower) | (bits & lower) << size;
  }
  return bits;
}

// A board in plain numbers, full rows removed.
struct PlainBoard {
  int width, height;         // of the board, in cells
  int twice_landing_height;  // as `landing_height` in tetris/game/features.py, times two
  int eroded_cells;          // as `eroded_cells` there
  int lines;                 // the number of rows that the placement removed

  // Copies a board into plain numbers: bit r of columns_[c] becomes row r of column c, counted
  // from the bottom. In the engine's board row r is bit L::TOP - r of a column.
  template <class L>
  TETRIS_FUNCTION explicit PlainBoard(const Board<L>& board)
      : width(board.geometry.width),
        height(board.geometry.height),
        twice_landing_height(board.twice_landing_height),
        eroded_cells(board.eroded_cells),
        lines(board.lines) {
    using Word = typename L::Word;
    TETRIS_UNROLL for (int c = 0; c < MAX_WIDTH; ++c) {
      // The columns may lie in a vector register, which cannot be indexed. So all columns but c
      // are masked out, and the bitwise OR of all columns is column c.
      Word only_column_c[MOST_SLOTS] = {};
      only_column_c[FIRST_COLUMN + c] = Word(~Word(0));
      auto mask = board.geometry.inside & L::load(only_column_c);
      uint32_t column = L::or_columns(board.cells & mask);
      uint32_t row_0_highest = column << (31 - L::TOP);  // row r is bit 31 - r
      columns_[c] = reversed_bits(row_0_highest);
    }
  }

  // The cells of a column from the left: bit r is row r from the bottom.
  TETRIS_FUNCTION uint32_t column(int c) const { return columns_[c]; }
  TETRIS_FUNCTION bool cell(int row, int c) const { return columns_[c] >> row & 1; }
  // The row above the highest cell of a column.
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
