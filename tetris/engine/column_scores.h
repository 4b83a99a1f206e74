// Features that belong to one column each, the height of it or the size of its step to the next one, scored together. Their
// sum follows from that of the board before the drop by what changes in the columns that the drop touches: scores are whole
// numbers, and may be added in any order.
#pragma once

#include "board.h"

namespace tetris {

// What a list of features weighs each column's height with, and the size of its step to the column right of it.
template <class L>
struct ColumnWeights {
  typename L::ColumnInts height, step;  // a step at a wall weighs nothing

  TETRIS_FUNCTION ColumnWeights(
      const int32_t (&heights)[MAX_WIDTH], const int32_t (&steps)[MAX_WIDTH])
      : height(columns(heights)), step(columns(steps)) {}

 private:
  TETRIS_FUNCTION static typename L::ColumnInts columns(const int32_t (&weights)[MAX_WIDTH]) {
    typename L::Word slots[16] = {};
    TETRIS_UNROLL for (int i = 0; i < MAX_WIDTH; ++i) slots[FIRST_COLUMN + i] =
        L::weight_word(weights[i]);
    return L::as_ints(L::load(slots));
  }
};

template <class L>
struct ColumnScores {
  using Ints = typename L::Ints;
  using Scores = typename L::Scores;
  using Weights = typename L::template Kept<int16_t, typename L::ColumnInts>;

  Weights height_weights, step_weights;
  typename L::template Kept<uint8_t, typename L::ColumnInts> steps;
  Scores before;  // the sum over the board before the drop

  TETRIS_FUNCTION ColumnScores(const Board<L>& board, const ColumnWeights<L>& weights)
      : ColumnScores(board, weights, sizes(board)) {}

  // The sum over a whole board.
  TETRIS_FUNCTION static int of(const Board<L>& board, const ColumnWeights<L>& weights) {
    return L::first(
        L::sum_of_products(weights.height, board.heights, weights.step, sizes(board)));
  }

  // The sums after a drop that completes no row, added to `sums`.
  template <int WIDTH>
  TETRIS_FUNCTION Scores after(Scores sums, const Drop<L, WIDTH>& drop) const {
    sums = sums + before;
    const Ints left = size(drop.first_step()) - drop.at(steps, -1);
    sums = L::add_products(
        sums, L::weights(drop.at(step_weights, -1), L::ints(0)), left, L::ints(0));
    TETRIS_UNROLL for (int k = 0; k < WIDTH; ++k) {
      const Ints step =
          k + 1 < WIDTH ? L::ints(drop.shape.inner_sizes[k]) : size(drop.last_step());
      sums = L::add_products(sums,
          L::weights(drop.at(height_weights, k), drop.at(step_weights, k)),
          drop.gap(k) + L::ints(drop.shape.cells[k]), step - drop.at(steps, k));
    }
    return sums;
  }

 private:
  TETRIS_FUNCTION ColumnScores(const Board<L>& board, const ColumnWeights<L>& weights,
      const typename L::ColumnInts& sizes)
      : height_weights(board.template keep<int16_t>(weights.height)),
        step_weights(board.template keep<int16_t>(weights.step)),
        steps(board.template keep<uint8_t>(sizes)),
        before(L::sum_of_products(weights.height, board.heights, weights.step, sizes)) {}

  TETRIS_FUNCTION static typename L::ColumnInts sizes(const Board<L>& board) {
    const auto step = L::right(board.heights) - board.heights;
    return L::maximum(step, -step);
  }
  // Of a step + STEP.
  TETRIS_FUNCTION static Ints size(const Ints& step) {
    const Ints difference = step - L::ints(STEP);
    return L::maximum(difference, -difference);
  }
};

}  // namespace tetris
