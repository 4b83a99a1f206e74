// Features that are 1 where consecutive steps between columns are of given classes, or where a
// column has a given height and its step a given class, and 0 elsewhere.
//
// A list has one feature for all features of one kind. Their weights lie in a table behind those
// of the list (tetris/play/quantized_weights.py). The sum after a drop is that of the board
// before it, plus the difference of two entries for every place that the drop touches, however
// many features there are. An entry's index joins the slot of a column and what the kind looks
// at, each with a fixed number of bits:
//
//     OneStep          slot, class
//     TwoSteps         slot, class, class of the next step
//     ThreeSteps       slot of the middle step, its left neighbour's class, its own, the next
//     HeightAndStep    slot, height of the column, class
//
// The class of a step is the difference of two heights plus STEP, clamped to 0 .. 2 * STEP.
#pragma once

#include "board.h"

namespace tetris {

constexpr int STEP_CLASSES = 2 * STEP + 1;
constexpr int CLASS_BITS = 3;
constexpr int TABLE_SLOTS = 16;

// What the features of a kind look at: `steps` consecutive steps, of which the one at offset
// `middle` names the slot; and if there are `height_bits`, the height of the first column.
// Tables lie in the order of their numbers.
struct OneStep {
  static constexpr int number = 0, steps = 1, height_bits = 0;
};
struct TwoSteps {
  static constexpr int number = 1, steps = 2, height_bits = 0;
};
struct ThreeSteps {
  static constexpr int number = 2, steps = 3, height_bits = 0;
};
struct HeightAndStep {
  static constexpr int number = 3, steps = 1, height_bits = 5;
};

// Returns the class of a step to which STEP has been added: the number itself, clamped.
template <class L>
TETRIS_FUNCTION typename L::Ints step_class(const typename L::Ints& step) {
  typename L::Ints from_zero = L::maximum(step, L::ints(0));
  return -L::maximum(-from_zero, L::ints(1 - STEP_CLASSES));
}

// Returns the classes of the steps of a board, by the slot of the column left of the step.
template <class L>
TETRIS_FUNCTION typename L::ColumnInts step_classes(const Board<L>& board) {
  auto step = L::right(board.heights) - board.heights + L::ints_everywhere(STEP);
  auto from_zero = L::maximum(step, L::ints_everywhere(0));
  return -L::maximum(-from_zero, L::ints_everywhere(1 - STEP_CLASSES));
}

// Returns heights, of which those beyond the bits of an index are the walls'.
template <class L, class Numbers>
TETRIS_FUNCTION Numbers height_class(const Numbers& heights, const Numbers& negative_greatest) {
  return -L::maximum(-heights, negative_greatest);
}
constexpr int GREATEST_HEIGHT = (1 << HeightAndStep::height_bits) - 1;

// What placements need of the classes before a drop, if tables look at REACH steps beyond one:
// the class of each slot, and for two steps that of the slot left of it.
template <class L, int REACH>
struct ClassesBefore {
  using Columns = typename L::template Cached<uint8_t, typename L::ColumnInts>;
  Columns own, left;

  TETRIS_FUNCTION ClassesBefore(
      const Board<L>& board, const typename L::ColumnInts& classes)
      : own(cache<uint8_t>(board, classes)),
        left(REACH > 1 ? cache<uint8_t>(board, L::left(classes)) : own) {}
};
template <class L>
struct ClassesBefore<L, 0> {
  TETRIS_FUNCTION ClassesBefore(const Board<L>&, const typename L::ColumnInts&) {}
};

// The classes of the steps after a drop, at offsets from -1 - REACH to WIDTH - 1 + REACH from
// the piece's left edge.
template <class L, int WIDTH, int REACH>
struct ClassesAfter {
  using Ints = typename L::Ints;
  static constexpr int FIRST = -1 - REACH;
  Ints classes[WIDTH + 1 + 2 * REACH];

  TETRIS_FUNCTION ClassesAfter(
      const Drop<L, WIDTH>& drop, const ClassesBefore<L, REACH>& before) {
    // The drop replaces the step onto the piece, the steps within it, and the step off it.
    set(-1, step_class<L>(drop.first_step()));
    TETRIS_UNROLL for (int k = 0; k + 1 < WIDTH; ++k) {
      set(k, L::ints(drop.shape.inner_classes[k]));
    }
    set(WIDTH - 1, step_class<L>(drop.last_step()));
    if constexpr (REACH > 0) {
      set(-2, drop.at_offset(before.own, -2));
      // Offset -3 would lie outside the slots for a piece over column 0.
      if constexpr (REACH > 1) set(-3, drop.at_offset(before.left, -2));
      TETRIS_UNROLL for (int k = WIDTH; k < WIDTH + REACH; ++k) {
        set(k, drop.at_offset(before.own, k));
      }
    }
  }
  TETRIS_FUNCTION const Ints& operator[](int k) const { return classes[k - FIRST]; }

 private:
  TETRIS_FUNCTION void set(int k, const Ints& step_class) { classes[k - FIRST] = step_class; }
};

// The table of the features of a kind.
template <class L, class Kind>
struct StepTable {
  static constexpr int STEPS = Kind::steps;
  static constexpr int MIDDLE = (STEPS - 1) / 2;                           // offset of the slot
  static constexpr int BITS = STEPS * CLASS_BITS + Kind::height_bits;  // of an index in a slot
  static constexpr int SIZE = TABLE_SLOTS << BITS;
  using Ints = typename L::Ints;
  using ColumnInts = typename L::ColumnInts;
  using Scores = typename L::Scores;

  const int32_t* table;
  typename L::template Cached<int16_t, ColumnInts> entries;  // of the board before the drop
  Scores total;                                              // their sum

  TETRIS_FUNCTION StepTable(
      const Board<L>& board, const ColumnInts& classes, const int32_t* weights)
      : StepTable(board, weights, entries_of(board, classes, weights)) {}

  // Returns `sums` plus, for every placement, the table's part of its score after the drop of a
  // piece of WIDTH columns that completes no row.
  //
  // The drop changes the steps at offsets -1 to WIDTH - 1 from the piece's left edge, and the
  // heights at 0 to WIDTH - 1. So the entries that begin at -STEPS to WIDTH - 1 change: the old
  // ones are subtracted and the new ones added.
  template <int WIDTH, int REACH>
  TETRIS_FUNCTION Scores after(Scores sums, const Drop<L, WIDTH>& drop,
      const ClassesAfter<L, WIDTH, REACH>& classes) const {
    sums = sums + total;
    TETRIS_UNROLL for (int k = -STEPS; k < WIDTH; ++k) {
      Ints slot = drop.column() + L::ints(k + MIDDLE + FIRST_COLUMN);
      Ints index = slot;
      if constexpr (Kind::height_bits > 0) {
        Ints height = height_class<L>(height_after(drop, k), L::ints(-GREATEST_HEIGHT));
        index = (index << Kind::height_bits) + height;
      }
      TETRIS_UNROLL for (int step = 0; step < STEPS; ++step) {
        index = (index << CLASS_BITS) + classes[k + step];
      }
      Ints entry_before = drop.at_offset(entries, k + MIDDLE);
      auto both = L::weights(L::weights_at(table, index), entry_before);
      sums = L::add_products(sums, both, L::ints(1), L::ints(-1));
    }
    return sums;
  }

  // Returns the sum over a board.
  TETRIS_FUNCTION static int of(
      const Board<L>& board, const ColumnInts& classes, const int32_t* weights) {
    return L::first_lane(sum_of(entries_of(board, classes, weights)));
  }

 private:
  TETRIS_FUNCTION StepTable(
      const Board<L>& board, const int32_t* weights, const ColumnInts& entries_before)
      : table(weights),
        entries(cache<int16_t>(board, entries_before)),
        total(sum_of(entries_before)) {}

  TETRIS_FUNCTION static Scores sum_of(const ColumnInts& entries) {
    ColumnInts zero = L::ints_everywhere(0);
    return L::sum_of_products(entries, L::ints_everywhere(1), zero, zero);
  }
  // Returns the height of the column at offset k, from -1 to WIDTH - 1, after a drop.
  template <int WIDTH>
  TETRIS_FUNCTION static Ints height_after(const Drop<L, WIDTH>& drop, int k) {
    return k < 0 ? drop.height_before(k) : drop.piece_top(k);
  }
  // Returns the entry of each slot.
  TETRIS_FUNCTION static ColumnInts entries_of(
      const Board<L>& board, const ColumnInts& classes, const int32_t* weights) {
    typename L::Word numbers[TABLE_SLOTS];
    TETRIS_UNROLL for (int slot = 0; slot < TABLE_SLOTS; ++slot) {
      numbers[slot] = typename L::Word(slot);
    }
    ColumnInts index = L::as_ints(L::load(numbers));
    if constexpr (Kind::height_bits > 0) {
      ColumnInts negative_greatest = L::ints_everywhere(-GREATEST_HEIGHT);
      index = (index << Kind::height_bits) + height_class<L>(board.heights, negative_greatest);
    }
    if constexpr (STEPS > 2) index = (index << CLASS_BITS) + L::left(classes);
    index = (index << CLASS_BITS) + classes;
    if constexpr (STEPS > 1) index = (index << CLASS_BITS) + L::right(classes);
    return L::weights_at(weights, index);
  }
};

// Takes the place of the table of a kind without a feature in a list.
template <class Kind>
struct NoStepTable {
  template <class... Any>
  TETRIS_FUNCTION explicit NoStepTable(const Any&...) {}
};

// The tables of a list of features, one for each of `Kinds` that the list has, as placements on
// a board need them.
template <class L, class List, class... Kinds>
class StepTables {
 public:
  TETRIS_FUNCTION StepTables(const Board<L>& board, const int32_t* weights)
      : StepTables(board, step_classes(board), weights) {}

  // Returns `sums` plus, for every placement, the tables' part of its score after the drop.
  template <int WIDTH>
  TETRIS_FUNCTION typename L::Scores after(
      typename L::Scores sums, const Drop<L, WIDTH>& drop) const {
    ClassesAfter<L, WIDTH, REACH> classes(drop, classes_);
    (add<Kinds>(sums, drop, classes), ...);
    return sums;
  }

  // Returns the tables' sum over a board.
  TETRIS_FUNCTION static int of(const Board<L>& board, const int32_t* weights) {
    auto classes = step_classes(board);
    int sum = 0;
    (add_of_board<Kinds>(sum, board, classes, weights), ...);
    return sum;
  }

 private:
  template <class Kind>
  static constexpr bool HAS = List::template has_table<Kind>;
  template <class Kind>
  using Table = std::conditional_t<HAS<Kind>, StepTable<L, Kind>, NoStepTable<Kind>>;
  static constexpr int REACH = HAS<ThreeSteps> ? 2 : (HAS<TwoSteps> ? 1 : 0);

  struct All : Table<Kinds>... {
    TETRIS_FUNCTION All(const Board<L>& board, const typename L::ColumnInts& classes,
        const int32_t* weights)
        : Table<Kinds>(board, classes, List::template table<Kinds>(weights))... {}
  };
  const ClassesBefore<L, REACH> classes_;
  const All tables_;

  TETRIS_FUNCTION StepTables(const Board<L>& board, const typename L::ColumnInts& classes,
      const int32_t* weights)
      : classes_(board, classes), tables_(board, classes, weights) {}

  template <class Kind, int WIDTH, class Classes>
  TETRIS_FUNCTION void add(
      typename L::Scores& sums, const Drop<L, WIDTH>& drop, const Classes& classes) const {
    if constexpr (HAS<Kind>) {
      const StepTable<L, Kind>& table = tables_;
      sums = table.after(sums, drop, classes);
    }
  }
  template <class Kind>
  TETRIS_FUNCTION static void add_of_board(int& sum, const Board<L>& board,
      const typename L::ColumnInts& classes, const int32_t* weights) {
    if constexpr (HAS<Kind>) {
      sum += StepTable<L, Kind>::of(board, classes, List::template table<Kind>(weights));
    }
  }
};

}  // namespace tetris
