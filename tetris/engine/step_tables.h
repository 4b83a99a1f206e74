// Features of the steps between neighbouring columns. A feature of a single step is 1 if the
// step from a certain column to the next one has a certain class. A feature of a pair of steps
// is 1 if this step and the next one have certain classes. Otherwise the feature is 0.
//
// In a list of features, one feature represents all features of single steps, and another one
// all features of pairs of steps. Their weights are in tables, which follow the weights of the
// list (tetris/play/quantized_weights.py). The sum after a drop is the sum before it, plus the
// difference of two entries of a table for every step that the drop changes:
//
//     one step     table[slot * 8 + class]
//     two steps    table[slot * 64 + class * 8 + class of the next step]
#pragma once

#include "board.h"

namespace tetris {

constexpr int STEP_CLASSES = 2 * STEP + 1;  // class = step + STEP, limited to 0 .. 2 * STEP
constexpr int CLASS_BITS = 3;
constexpr int TABLE_SLOTS = 16;

// Returns the class of a step. `step` is the step plus STEP; the class is this number, limited
// to 0 .. STEP_CLASSES - 1.
template <class L>
TETRIS_FUNCTION typename L::Ints step_class(const typename L::Ints& step) {
  return L::minimum(L::maximum(step, L::ints(0)), L::ints(STEP_CLASSES - 1));
}

// The table of the features of STEPS consecutive steps, 1 or 2.
template <class L, int STEPS>
struct StepTable {
  static constexpr int BITS = STEPS * CLASS_BITS;  // a slot has 2^BITS entries
  static constexpr int SIZE = TABLE_SLOTS << BITS;
  // In an array of the steps around a piece, element ORIGIN + k is the step that begins k
  // columns right of the piece's left edge. The first one, k = -STEPS, is element 0.
  static constexpr int ORIGIN = STEPS;
  using Ints = typename L::Ints;
  using ColumnInts = typename L::ColumnInts;
  using Scores = typename L::Scores;

  const int32_t* table;
  Scores total;  // the sum over the board before the drop

  TETRIS_FUNCTION StepTable(const Board<L>& board, const int32_t* weights)
      : table(weights), total(total_of(board, weights)) {}

  // Returns `sums` plus the table's part of the score after a drop that completes no row, for
  // every placement. `total` is the table's part before the drop.
  //
  // A step leads from a column to the next one. Its class says how far it rises or falls. The
  // table has a weight for each column (slot) and each class of the step that begins there.
  // With STEPS = 2, it has a weight for each pair of classes: of this step and the next one.
  template <int WIDTH>
  TETRIS_FUNCTION Scores after(Scores sums, const Drop<L, WIDTH>& drop) const {
    // The classes of the steps around the piece, before and after the drop. Element ORIGIN + k
    // belongs to the step that begins k columns right of the piece's left edge.
    Ints before[WIDTH + 2 * STEPS], after[WIDTH + 2 * STEPS];
    compute_classes(drop, before, after);
    sums = sums + total;
    // For every step whose weight may have changed, add the new weight and subtract the old
    // one.
    TETRIS_UNROLL for (int k = -STEPS; k < WIDTH; ++k) {
      Ints slot = drop.column() + L::ints(k + FIRST_COLUMN);
      Ints new_index = index_of(slot, after, ORIGIN + k);
      Ints old_index = index_of(slot, before, ORIGIN + k);
      Ints new_weight = L::weights_at(table, new_index);
      Ints old_weight = L::weights_at(table, old_index);
      // This computes sums + new_weight * 1 + old_weight * -1.
      auto weights = L::weights(new_weight, old_weight);
      sums = L::add_products(sums, weights, L::ints(1), L::ints(-1));
    }
    return sums;
  }

  // Returns the sum over a board.
  TETRIS_FUNCTION static int of(const Board<L>& board, const int32_t* weights) {
    return L::first_lane(total_of(board, weights));
  }

 private:
  // Returns the index of the weight of the step that begins at the column in `slot`, for every
  // placement. classes[element] is the class of this step. With STEPS = 2, the weight also
  // depends on the class of the next step.
  template <int COUNT>
  TETRIS_FUNCTION static Ints index_of(
      const Ints& slot, const Ints (&classes)[COUNT], int element) {
    Ints index_in_slot = classes[element];
    if constexpr (STEPS == 2) {
      index_in_slot = (index_in_slot << CLASS_BITS) + classes[element + 1];
    }
    return (slot << BITS) + index_in_slot;
  }
  // Computes the classes of the steps around a piece, before the drop and after it. Element
  // ORIGIN + k belongs to the step that begins k columns right of the piece's left edge.
  template <int WIDTH, int COUNT>
  TETRIS_FUNCTION static void compute_classes(
      const Drop<L, WIDTH>& drop, Ints (&before)[COUNT], Ints (&after)[COUNT]) {
    TETRIS_UNROLL for (int k = -STEPS; k < WIDTH + STEPS - 1; ++k) {
      before[ORIGIN + k] = step_class<L>(drop.step_before(k));
      after[ORIGIN + k] = before[ORIGIN + k];
    }
    // The drop changes the step at the left side of the piece, the steps on top of the piece,
    // and the step at its right side.
    after[ORIGIN - 1] = step_class<L>(drop.left_step());
    TETRIS_UNROLL for (int k = 0; k + 1 < WIDTH; ++k) {
      after[ORIGIN + k] = L::ints(drop.shape.inner_classes[k]);
    }
    after[ORIGIN + WIDTH - 1] = step_class<L>(drop.right_step());
  }
  TETRIS_FUNCTION static Scores total_of(const Board<L>& board, const int32_t* weights) {
    ColumnInts step = L::right(board.heights) - board.heights + L::ints_everywhere(STEP);
    ColumnInts not_negative = L::maximum(step, L::ints_everywhere(0));
    ColumnInts classes = L::minimum(not_negative, L::ints_everywhere(STEP_CLASSES - 1));
    ColumnInts index_in_slot = classes;
    if constexpr (STEPS == 2) index_in_slot = (classes << CLASS_BITS) + L::right(classes);
    ColumnInts entries = L::weights_at(weights, first_indices() + index_in_slot);
    return L::sum_of_products(entries, L::ints_everywhere(1), entries, L::ints_everywhere(0));
  }
  // Returns for each slot the index of its first entry.
  TETRIS_FUNCTION static ColumnInts first_indices() {
    typename L::Word first[TABLE_SLOTS];
    TETRIS_UNROLL for (int slot = 0; slot < TABLE_SLOTS; ++slot) {
      first[slot] = typename L::Word(slot << BITS);
    }
    return L::as_ints(L::load(first));
  }
};

}  // namespace tetris
