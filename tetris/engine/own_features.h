// Features of a header of one's own (tetris.feature_header), which TETRIS_FEATURE_HEADER names.
//
//     TETRIS_FEATURE(EmptyColumns) {
//         int count = 0;
//         for (int c = 0; c < board.width; ++c) count += board.column(c) == 0;
//         return count;
//     }
//
// It is called for the after-state of every placement that does not end the game, and has to give what the Python
// function `empty_columns` gives, a whole number from -4095 to 4095. A struct as in feature_definitions.h can do with what a drop touches, and is faster.
#pragma once

#include "feature_definitions.h"

namespace tetris {

TETRIS_FUNCTION uint32_t reversed_bits(uint32_t bits) {
  bits = (bits >> 1 & 0x55555555u) | (bits & 0x55555555u) << 1;
  bits = (bits >> 2 & 0x33333333u) | (bits & 0x33333333u) << 2;
  bits = (bits >> 4 & 0x0F0F0F0Fu) | (bits & 0x0F0F0F0Fu) << 4;
  bits = (bits >> 8 & 0x00FF00FFu) | (bits & 0x00FF00FFu) << 8;
  return bits >> 16 | bits << 16;
}

// A board in plain numbers, full rows removed.
struct PlainBoard {
  int width, height;         // of the board, in cells
  int twice_landing_height;  // as `landing_height` in tetris/game/features.py, times two
  int eroded_cells;          // as there
  int lines;                 // that the placement removed

  template <class L>
  TETRIS_FUNCTION explicit PlainBoard(const Board<L>& board)
      : width(board.geometry.width),
        height(board.geometry.height),
        twice_landing_height(board.twice_landing_height),
        eroded_cells(board.eroded_cells),
        lines(board.lines) {
    TETRIS_UNROLL for (int c = 0; c < MAX_WIDTH; ++c) {
      typename L::Word slots[16] = {};
      slots[FIRST_COLUMN + c] = static_cast<typename L::Word>(~typename L::Word(0));
      const auto only = board.geometry.inside & L::load(slots);
      columns_[c] = reversed_bits(
          static_cast<uint32_t>(L::or_columns(board.cells & only)) << (31 - L::TOP));
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
