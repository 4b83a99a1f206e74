// Features that belong to one column each, its height or the size of its step to the next one,
// scored together.
//
// Their sum after a drop is that of the board before it, plus what changes in the columns that
// the drop touches. Scores are integers, which may be added in any order.
#pragma once

#include "board.h"

namespace tetris {

// The weights of each column's height, and of the size of the step to the column right of it.
template <class L>
struct ColumnWeights {
  typename L::ColumnInts height, step;  // a step to a wall has the weight 0

  TETRIS_FUNCTION ColumnWeights(
      const int32_t (&heights)[MAX_WIDTH], const int32_t (&steps)[MAX_WIDTH])
      : height(load(heights)), step(load(steps)) {}

 private:
  TETRIS_FUNCTION static typename L::ColumnInts load(const int32_t (&weights)[MAX_WIDTH]) {
    typename L::Word slots[MOST_SLOTS] = {};
    TETRIS_UNROLL for (int i = 0; i < MAX_WIDTH; ++i) {
      slots[FIRST_COLUMN + i] = L::weight_word(weights[i]);
    }
    return L::as_ints(L::load(slots));
  }
};

template <class L>
struct ColumnScores {
  using Ints = typename L::Ints;
  using Scores = typename L::Scores;
  using Weights = typename L::template Cached<int16_t, typename L::ColumnInts>;

  Weights height_weights, step_weights;
  typename L::template Cached<uint8_t, typename L::ColumnInts> step_sizes;
  Scores before;  // the sum over the board before the drop

  TETRIS_FUNCTION ColumnScores(const Board<L>& board, const ColumnWeights<L>& weights)
      : ColumnScores(board, weights, sizes_of(board)) {}

  // Returns the sum over a board.
  TETRIS_FUNCTION static int of(const Board<L>& board, const ColumnWeights<L>& weights) {
    return L::first_lane(
        L::sum_of_products(weights.height, board.heights, weights.step, sizes_of(board)));
  }

  // Returns `sums` plus the sums of the features of columns after drops that complete no row: the
  // sum before the drop, plus weight times growth for each height and each step size that the
  // drop changes.
  template <int WIDTH>
  TETRIS_FUNCTION Scores after(Scores sums, const Drop<L, WIDTH>& drop) const {
    sums = sums + before;
    // The step from the column left of the piece changes; that column's height does not.
    Ints left_growth = size(drop.first_step()) - drop.at_offset(step_sizes, -1);
    auto left_weights = L::weights(drop.at_offset(step_weights, -1), L::ints(0));
    sums = L::add_products(sums, left_weights, left_growth, L::ints(0));
    TETRIS_UNROLL for (int k = 0; k < WIDTH; ++k) {
      bool is_inner = k + 1 < WIDTH;
      Ints step = is_inner ? L::ints(drop.shape.inner_sizes[k]) : size(drop.last_step());
      Ints step_growth = step - drop.at_offset(step_sizes, k);
      Ints height_growth = drop.gap(k) + L::ints(drop.shape.cells[k]);
      auto weights =
          L::weights(drop.at_offset(height_weights, k), drop.at_offset(step_weights, k));
      sums = L::add_products(sums, weights, height_growth, step_growth);
    }
    return sums;
  }

 private:
  TETRIS_FUNCTION ColumnScores(const Board<L>& board, const ColumnWeights<L>& weights,
      const typename L::ColumnInts& sizes)
      : height_weights(cache<int16_t>(board, weights.height)),
        step_weights(cache<int16_t>(board, weights.step)),
        step_sizes(cache<uint8_t>(board, sizes)),
        before(L::sum_of_products(weights.height, board.heights, weights.step, sizes)) {}

  // Returns the size of the step from each column to the next one.
  TETRIS_FUNCTION static typename L::ColumnInts sizes_of(const Board<L>& board) {
    auto step = L::right(board.heights) - board.heights;
    return L::maximum(step, -step);
  }
  // Returns the size of a step to which STEP has been added.
  TETRIS_FUNCTION static Ints size(const Ints& step_plus_offset) {
    Ints step = step_plus_offset - L::ints(STEP);
    return L::maximum(step, -step);
  }
};

}  // namespace tetris
