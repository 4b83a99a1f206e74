// The features that belong to a single column: its height, or the size of the step to the next
// column. They are scored together.
//
// Their sum after a drop is the sum before it, plus the changes in the columns that the drop
// touches. Scores are integers, so they may be added in any order.
#pragma once

#include "board.h"

namespace tetris {

// The weights of each column's height, and of the size of the step to the column right of it.
template <class L>
struct ColumnWeights {
  typename L::ColumnInts height, step;  // the weight of a step to a side wall is 0

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

  // Returns `sums` plus the weighted sum of all column heights and step sizes after a drop that
  // completes no row, for every placement. `before` is the weighted sum before the drop.
  //
  // A step leads from a column to the next one; its size is the absolute difference of their
  // heights. For each height and each step size that the drop changes, the weight times the
  // growth is added: L::add_products(sums, L::weights(a, b), x, y) is sums + a * x + b * y.
  // drop.at_offset(x, k) is the value of x in the column that is k columns right of the piece's
  // left edge.
  template <int WIDTH>
  TETRIS_FUNCTION Scores after(Scores sums, const Drop<L, WIDTH>& drop) const {
    sums = sums + before;
    // In the column left of the piece the height does not change, but the step does.
    Ints left_growth = size(drop.left_step()) - drop.at_offset(step_sizes, -1);
    auto left_weights = L::weights(drop.at_offset(step_weights, -1), L::ints(0));
    sums = L::add_products(sums, left_weights, left_growth, L::ints(0));
    TETRIS_UNROLL for (int k = 0; k < WIDTH; ++k) {
      // A step between two columns of the piece depends only on its shape. The last step leads
      // to the column beside the piece, and depends on the row in which the piece rests.
      bool is_inside_piece = k + 1 < WIDTH;
      Ints new_size =
          is_inside_piece ? L::ints(drop.shape.inner_sizes[k]) : size(drop.right_step());
      Ints step_growth = new_size - drop.at_offset(step_sizes, k);
      // A column grows by the piece's cells and by the empty cells below them.
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
