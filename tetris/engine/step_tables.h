// Features that are 1 where the step from a column to the next one is of a class, or where this step and the one after it are of
// two classes, and else 0. The list has one feature for all that share a table, and their weights lie in tables behind those of
// the list (tetris/play/quantized_weights.py). The sum over them follows from that of the board before the drop by what changes: a look into
// the table for each step that a drop touches, however many of the features there are.
#pragma once

#include "board.h"

namespace tetris {

constexpr int STEP_CLASSES = 2 * STEP + 1;  // the step + STEP; one beyond counts as the last
constexpr int CLASS_BITS = 3;
constexpr int TABLE_SLOTS = 16;  // of columns, the board's from FIRST_COLUMN on

// Of a step + STEP.
template <class L>
TETRIS_FUNCTION typename L::Ints step_class(const typename L::Ints& step) {
  return -L::maximum(-L::maximum(step, L::ints(0)), L::ints(1 - STEP_CLASSES));
}

// STEPS: those that a class is looked up for, 1 or 2.
template <class L, int STEPS>
struct StepTable {
  static constexpr int BITS = STEPS * CLASS_BITS, SIZE = TABLE_SLOTS << BITS;
  using Ints = typename L::Ints;
  using ColumnInts = typename L::ColumnInts;
  using Scores = typename L::Scores;

  const int32_t* table;
  Scores total;  // over the board before the drop

  TETRIS_FUNCTION StepTable(const Board<L>& board, const int32_t* weights)
      : table(weights), total(total_of(board, weights)) {}

  // The sums after a drop that completes no row, added to `sums`.
  template <int WIDTH>
  TETRIS_FUNCTION Scores after(Scores sums, const Drop<L, WIDTH>& drop) const {
    Ints before[WIDTH + 2 * STEPS], after[WIDTH + 2 * STEPS];  // classes, of column k - STEPS
    TETRIS_UNROLL for (int k = -STEPS; k < WIDTH + STEPS - 1; ++k) {
      before[k + STEPS] = after[k + STEPS] = step_class<L>(drop.step_before(k));
    }
    after[STEPS - 1] = step_class<L>(drop.first_step());
    TETRIS_UNROLL for (int k = 0; k + 1 < WIDTH; ++k) after[k + STEPS] =
        L::ints(drop.shape.inner_classes[k]);
    after[WIDTH - 1 + STEPS] = step_class<L>(drop.last_step());
    sums = sums + total;
    TETRIS_UNROLL for (int k = -STEPS; k < WIDTH; ++k) {
      const Ints first = (drop.column() + L::ints(k + FIRST_COLUMN)) << BITS;
      const int next = STEPS == 2 ? k + STEPS + 1 : 0;
      const Ints now = L::weights_at(table, first + joined(after[k + STEPS], after[next]));
      const Ints then = L::weights_at(table, first + joined(before[k + STEPS], before[next]));
      sums = L::add_products(sums, L::weights(now, then), L::ints(1), L::ints(-1));
    }
    return sums;
  }

  // The sum over a whole board.
  TETRIS_FUNCTION static int of(const Board<L>& board, const int32_t* weights) {
    return L::first(total_of(board, weights));
  }

 private:
  TETRIS_FUNCTION static Scores total_of(const Board<L>& board, const int32_t* weights) {
    const ColumnInts step = L::right(board.heights) - board.heights + L::ints_everywhere(STEP);
    const ColumnInts positive = L::maximum(step, L::ints_everywhere(0));
    const ColumnInts classes = -L::maximum(-positive, L::ints_everywhere(1 - STEP_CLASSES));
    const ColumnInts found =
        L::weights_at(weights, slots() + joined(classes, L::right(classes)));
    return L::sum_of_products(found, L::ints_everywhere(1), found, L::ints_everywhere(0));
  }
  // Of one step, or of two.
  template <class Number>
  TETRIS_FUNCTION static Number joined(const Number& step, const Number& next) {
    if constexpr (STEPS == 1) return step;
    else return (step << CLASS_BITS) + next;
  }
  TETRIS_FUNCTION static ColumnInts slots() {
    typename L::Word first[TABLE_SLOTS];
    TETRIS_UNROLL for (int slot = 0; slot < TABLE_SLOTS; ++slot) first[slot] =
        static_cast<typename L::Word>(slot << BITS);
    return L::as_ints(L::load(first));
  }
};

}  // namespace tetris
