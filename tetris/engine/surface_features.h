// The features of the surface: of the heights of the columns, and of the steps from each column
// to the next one. Their definitions are in tetris/game/features.py; see also
// feature_definitions.h.
#pragma once

#include "feature_definitions.h"
#include "step_tables.h"

namespace tetris {

// The number of different steps among the steps from -2 to 2. A set of steps is a word: bit s +
// 2 is the step s.
struct Diversity : FeatureBase {
  template <class L>
  struct Prepared {
    // For each slot, the set of the steps that begin at this slot or an earlier one, and the
    // set of the steps that begin at this slot or a later one.
    typename L::template Cached<uint8_t, typename L::ColumnBits> steps_up_to, steps_from;
  };
  // Returns, for each column, the step to the next column as a set.
  template <class L>
  TETRIS_FUNCTION static auto step_flags(const Board<L>& board) {
    auto steps = L::right(board.heights) - board.heights;
    return L::step_flag(steps + L::ints_everywhere(STEP)) & board.geometry.pairs;
  }
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    return popcount(L::or_columns(step_flags(board)));
  }
  template <class L>
  TETRIS_FUNCTION static Prepared<L> prepare(const Board<L>& board) {
    auto flags = step_flags(board);
    return {
        cache<uint8_t>(board, L::prefix_or(flags)), cache<uint8_t>(board, L::suffix_or(flags))};
  }
  // Returns the number of different steps after a drop that completes no row, for every
  // placement. The set of all steps is the union of three sets: the steps left and right of the
  // piece, which the drop does not change; the steps inside the piece, which depend only on its
  // shape; and the two steps at its sides.
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto after(const Prepared<L>& prepared, const Drop<L, WIDTH>& drop) {
    auto at_sides = L::step_flag(drop.left_step()) | L::step_flag(drop.right_step());
    auto left_of_piece = drop.at_offset(prepared.steps_up_to, -2);
    auto right_of_piece = drop.at_offset(prepared.steps_from, WIDTH);
    auto unchanged = left_of_piece | right_of_piece;
    auto all = unchanged | L::bits(drop.shape.inner_flags) | at_sides;
    return L::popcount_small(all);
  }
};

// The sum of the sizes of all steps.
struct Bumpiness : BitCount<Bumpiness> {
  // The rows in which one of two neighbouring columns is filled, and the other one is not.
  template <class L>
  TETRIS_FUNCTION static auto words(const Board<L>& board) {
    return (board.filled ^ L::right(board.filled)) & board.geometry.pairs;
  }
  template <class L>
  struct Prepared {
    typename L::Ints total;
    // For each column, the size of its step, and the sum of the sizes of its step and of the
    // next one.
    typename L::template Cached<uint8_t, typename L::ColumnInts> steps, pairs;
  };
  template <class L>
  TETRIS_FUNCTION static Prepared<L> prepare(const Board<L>& board) {
    auto steps = L::popcount(words(board));
    auto pairs = steps + L::right(steps);
    return {L::total(steps), cache<uint8_t>(board, steps), cache<uint8_t>(board, pairs)};
  }
  // Returns the sum of the sizes of all steps after a drop that completes no row, for every
  // placement. The WIDTH + 1 steps at offsets -1 to WIDTH - 1 from the piece's left edge
  // change: their new sizes are added, and their old sizes are subtracted.
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto after(const Prepared<L>& prepared, const Drop<L, WIDTH>& drop) {
    auto sum = prepared.total + L::ints(drop.shape.inner_sum);
    sum = sum + size<L>(drop.left_step()) + size<L>(drop.right_step());
    // Subtract the old sizes of two neighbouring steps at a time.
    TETRIS_UNROLL for (int k = -1; k < WIDTH - 1; k += 2) {
      sum = sum - drop.at_offset(prepared.pairs, k);
    }
    // If WIDTH is even, the number of steps, WIDTH + 1, is odd, and the last step remains.
    if constexpr (WIDTH % 2 == 0) sum = sum - drop.at_offset(prepared.steps, WIDTH - 1);
    return sum;
  }

 private:
  // Returns the size of a step to which STEP has been added. The size of a step to a side wall,
  // which is larger than all other steps, counts as 0.
  template <class L>
  TETRIS_FUNCTION static auto size(typename L::Ints step_plus_offset) {
    auto step = step_plus_offset - L::ints(STEP);
    auto size = L::maximum(step, -step);
    return L::ints_where(size < L::ints(WALL_HEIGHT / 2), size);
  }
};

// The sum of the heights of all columns.
struct TotalHeight : BitCount<TotalHeight> {
  template <class L>
  TETRIS_FUNCTION static auto words(const Board<L>& board) {
    return board.filled & board.geometry.inside;
  }
  // Returns the sum after drops that complete no row. Each column under the piece grows by the
  // piece's cells in it, and by the gap below them.
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto after(typename L::Ints total, const Drop<L, WIDTH>& drop) {
    constexpr int CELLS_OF_PIECE = 4;
    TETRIS_UNROLL for (int k = 0; k < WIDTH; ++k) total = total + drop.gap(k);
    return total + L::ints(CELLS_OF_PIECE);
  }
};

// Two sets of columns (see ScalarLanes::negative): the columns whose next column is lower
// (falls), and the columns whose next column is higher (rises).
//
//     words of 32 bits    word[0]: bits 0 .. 15 falls, bits 16 .. 31 rises
//     words of 16 bits    word[0]: falls; word[1]: rises
template <class L>
struct FallsAndRises {
  using Bits = typename L::Bits;
  using Word = typename L::Word;
  static constexpr int WORDS = sizeof(Word) > 2 ? 1 : 2;
  // A set times this number is the word of a pair of equal sets of falls and rises.
  static constexpr uint32_t IN_BOTH_HALVES = WORDS == 1 ? 0x10001u : 1u;
  Bits word[WORDS];

  TETRIS_FUNCTION static FallsAndRises make(uint32_t falls, uint32_t rises) {
    if constexpr (WORDS == 1) return {{L::bits(Word(falls | rises << 16))}};
    else return {{L::bits(Word(falls)), L::bits(Word(rises))}};
  }
  TETRIS_FUNCTION Bits falls() const {
    return WORDS == 1 ? word[0] & L::bits(Word(0xFFFFu)) : word[0];
  }
  TETRIS_FUNCTION Bits rises() const { return WORDS == 1 ? word[0] >> 16 : word[WORDS - 1]; }
  // Returns a word with one bit for every column of either set, at any position.
  TETRIS_FUNCTION Bits all() const { return WORDS == 1 ? word[0] : word[0] | word[WORDS - 1]; }
  // Returns the columns SET, both as falls and as rises. SET is a set for a piece over column
  // 0; it is moved to the column of each placement.
  template <uint32_t SET, class Shape>
  TETRIS_FUNCTION static FallsAndRises in_columns(const Shape& shape) {
    FallsAndRises result;
    TETRIS_UNROLL for (int i = 0; i < WORDS; ++i) {
      result.word[i] = L::template in_columns<SET * IN_BOTH_HALVES>(shape);
    }
    return result;
  }
  TETRIS_FUNCTION FallsAndRises without(const FallsAndRises& other) const {
    FallsAndRises result;
    TETRIS_UNROLL for (int i = 0; i < WORDS; ++i) {
      result.word[i] = L::without(word[i], other.word[i]);
    }
    return result;
  }
  // Adds the steps between the columns of a shape whose size is at least n + 1.
  template <class Shape>
  TETRIS_FUNCTION void add_inner_steps(const Shape& shape, int n) {
    TETRIS_UNROLL for (int i = 0; i < WORDS; ++i) {
      word[i] = word[i] | L::in_columns(shape.inner_steps[n][i], shape);
    }
  }
};

// The step at one side of the piece. COLUMN is a set with one column, the one at which the step
// begins if the piece is over column 0.
template <class L, uint32_t COLUMN, int WIDTH>
struct SideStep {
  using Sets = FallsAndRises<L>;
  typename L::Ints step, size;  // the step plus STEP, and its size
  // The bit of the step in a word of `Sets`. If one word holds both sets, the bit is in the
  // lower half for a step that falls, and in the upper half for a step that rises.
  typename L::Bits bit;

  TETRIS_FUNCTION SideStep(
      const typename L::Ints& step_plus_offset, const ShapeLanes<L, WIDTH>& shape)
      : step(step_plus_offset) {
    auto difference = step - L::ints(STEP);
    size = L::maximum(difference, -difference);
    bit = L::template in_columns<COLUMN>(shape);
    if constexpr (Sets::WORDS == 1) bit = L::select(step < L::ints(STEP), bit, bit << 16);
  }
  // Adds the step to `sets` if its size is at least n: to the set of falls or to the set of
  // rises. `step` is the step plus STEP, so it equals STEP for a step of size 0.
  TETRIS_FUNCTION void add(Sets& sets, int n) const {
    if constexpr (Sets::WORDS == 1) {
      auto is_large = size > L::ints(n - 1);
      sets.word[0] = sets.word[0] | L::bits_where(is_large, bit);
    } else {
      auto falls = step < L::ints(STEP + 1 - n);  // the step is at most -n
      auto rises = step > L::ints(STEP - 1 + n);  // the step is at least n
      sets.word[0] = sets.word[0] | L::bits_where(falls, bit);
      sets.word[1] = sets.word[1] | L::bits_where(rises, bit);
    }
  }
};

// The steps from each column to the next one, as sets of columns. A side wall is higher than
// any column.
template <class L>
struct Steps {
  static constexpr int SIZES = 3;
  using Bits = typename L::Bits;
  using Ints = typename L::Ints;
  FallsAndRises<L> at_least[SIZES];  // at_least[n]: the steps of size n + 1 or more
  Bits pairs;                        // the columns that have a right neighbour on the board

  TETRIS_FUNCTION Bits flat() const {
    return L::without(pairs, at_least[0].falls() | at_least[0].rises());
  }
  // Returns the steps of size n, which is 1 or 2. Steps to a wall are larger.
  TETRIS_FUNCTION FallsAndRises<L> of_size(int n) const {
    return at_least[n - 1].without(at_least[n]);
  }
  // Returns the columns of `first` whose right neighbour is in `second`.
  TETRIS_FUNCTION static Bits followed(Bits first, Bits second) {
    return first & (second >> 1);
  }
  TETRIS_FUNCTION Bits flat_pairs() const { return followed(flat(), flat()); }
  TETRIS_FUNCTION Bits rising_pairs() const { return followed(flat(), of_size(1).rises()); }
  TETRIS_FUNCTION Bits falling_pairs() const { return followed(of_size(1).falls(), flat()); }
  // Return the columns over which a piece can rest on every column below it, in some
  // orientation.
  TETRIS_FUNCTION Bits fits_o() const { return flat(); }
  TETRIS_FUNCTION Bits fits_t() const { return of_size(1).all() | flat_pairs(); }
  TETRIS_FUNCTION Bits fits_z() const { return of_size(1).rises() | falling_pairs(); }
  TETRIS_FUNCTION Bits fits_s() const { return of_size(1).falls() | rising_pairs(); }
  TETRIS_FUNCTION Bits fits_j() const { return flat() | of_size(2).rises(); }
  TETRIS_FUNCTION Bits fits_l() const { return flat() | of_size(2).falls(); }
  // Returns the columns whose right neighbour is a peak: it is higher than both columns beside
  // it. The right wall does not count as a peak.
  TETRIS_FUNCTION Bits peaks() const {
    return followed(at_least[0].rises(), at_least[0].falls() & pairs);
  }
  TETRIS_FUNCTION static Ints count(Bits set) { return L::popcount(set); }
  // Return 1 if a set is empty (none) or not empty (some), and 0 otherwise.
  TETRIS_FUNCTION static Ints none(Bits set) { return L::one_where(set == L::bits(0)); }
  TETRIS_FUNCTION static Ints some(Bits set) { return L::ints(1) - none(set); }
  // Returns 1 if a set has at most MOST columns, and 0 otherwise. MOST is 0 or 1. set & (set -
  // 1) is the set without its lowest bit, which is empty if the set has at most one column.
  template <int MOST>
  TETRIS_FUNCTION static Ints at_most(Bits set) {
    if constexpr (MOST == 1) return none(set & (set - L::bits(1)));
    else return none(set);
  }
  // Returns the number of pieces that can rest in more than MOST places, where MOST is 0 or 1.
  // The I piece is always one of them, because upright it can rest on any column.
  template <int MOST>
  TETRIS_FUNCTION Ints fitting() const {
    Ints unfitting = at_most<MOST>(fits_o()) + at_most<MOST>(fits_t()) +
                     at_most<MOST>(fits_z()) + at_most<MOST>(fits_s()) +
                     at_most<MOST>(fits_j()) + at_most<MOST>(fits_l());
    return L::ints(PIECES) - unfitting;
  }
};

// The source of the features of steps.
struct StepSets {
  template <class L>
  TETRIS_FUNCTION static Steps<L> prepare(const Board<L>& board) {
    return make<L>(board);
  }
  // Returns the steps of the surface after a drop that completes no row, for every placement.
  //
  // A step leads from the top of a column to the top of the next one. at_least[n] has the
  // columns at which a step of size n + 1 or more begins: a set of the steps that fall, and a
  // set of those that rise. A set is a word with one bit per column.
  //
  // A drop replaces the steps that begin in the column left of the piece and in the columns
  // under it. So the new sets consist of three parts: the old sets without these columns, the
  // steps on top of the piece, and the steps at its two sides.
  template <class L, int WIDTH>
  TETRIS_FUNCTION static Steps<L> after(const Steps<L>& before, const Drop<L, WIDTH>& drop) {
    using Sets = FallsAndRises<L>;
    // If a piece is over column 0, bit 0 is the column left of it, and bits 1 to WIDTH are the
    // columns under it.
    constexpr uint32_t LEFT_OF_PIECE = 1u;
    constexpr uint32_t LAST_OF_PIECE = 1u << WIDTH;
    constexpr uint32_t REPLACED = 2 * LAST_OF_PIECE - 1;  // bits 0 to WIDTH
    Sets replaced = Sets::template in_columns<REPLACED>(drop.shape);
    SideStep<L, LEFT_OF_PIECE, WIDTH> left_side(drop.left_step(), drop.shape);
    SideStep<L, LAST_OF_PIECE, WIDTH> right_side(drop.right_step(), drop.shape);
    Steps<L> steps;
    TETRIS_UNROLL for (int n = 0; n < Steps<L>::SIZES; ++n) {
      Sets sets = before.at_least[n].without(replaced);
      // Add the new steps whose size is at least n + 1. Steps on top of a piece have at most
      // the size INNER_STEPS = 2.
      if (WIDTH > 1 && n < INNER_STEPS) sets.add_inner_steps(drop.shape, n);
      left_side.add(sets, n + 1);
      right_side.add(sets, n + 1);
      steps.at_least[n] = sets;
    }
    steps.pairs = before.pairs;
    return steps;
  }
  // Returns the steps of a board's surface as sets of columns, which are bit masks. A step is
  // the height of a column's right neighbour minus the column's own height.
  //
  // at_least[n] has the columns whose step falls by more than n, and those whose step rises by
  // more than n. `pairs` has the columns with a right neighbour on the board. The result is in
  // lanes `To`, which may differ from the lanes L of the board.
  template <class To, class L>
  TETRIS_FUNCTION static Steps<To> make(const Board<L>& board) {
    auto step = L::right(board.heights) - board.heights;
    Steps<To> steps;
    // L::negative returns the set of the columns whose number is negative.
    TETRIS_UNROLL for (int n = 0; n < Steps<To>::SIZES; ++n) {
      auto limit = L::ints_everywhere(n);
      uint32_t falls = L::negative(step + limit);  // step < -n
      uint32_t rises = L::negative(limit - step);  // step > n
      steps.at_least[n] = FallsAndRises<To>::make(falls, rises);
    }
    // A mask is all ones, which is the number -1, in the columns of the set.
    uint32_t pairs = L::negative(L::as_ints(board.geometry.pairs));
    steps.pairs = To::bits(typename To::Word(pairs));
    return steps;
  }
};

// A feature of steps: `Self::value(steps)`.
template <class Self>
struct StepFeature : FeatureBase {
  using Source = StepSets;
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    return Self::value(StepSets::make<ScalarLanes>(board));
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto after(const Steps<L>& before, const Drop<L, WIDTH>& drop) {
    return Self::value(StepSets::after(before, drop));
  }
};

// The number of columns that are lower than both neighbours by at least DEPTH.
template <int DEPTH>
struct DeepWells : StepFeature<DeepWells<DEPTH>> {
  template <class L>
  TETRIS_FUNCTION static auto value(const Steps<L>& steps) {
    const FallsAndRises<L>& sets = steps.at_least[DEPTH - 1];
    return L::popcount(Steps<L>::followed(sets.falls(), sets.rises()));
  }
};

template <int DEPTH>
struct SquaredDeepWells : StepFeature<SquaredDeepWells<DEPTH>> {
  template <class L>
  TETRIS_FUNCTION static auto value(const Steps<L>& steps) {
    auto wells = DeepWells<DEPTH>::value(steps);
    return wells * wells;
  }
};

// Defines a feature by an expression of `steps`, whose type is S.
#define TETRIS_STEP_FEATURE(Name, ...)                  \
  struct Name : StepFeature<Name> {                     \
    template <class S>                                  \
    TETRIS_FUNCTION static auto value(const S& steps) { \
      return __VA_ARGS__;                               \
    }                                                   \
  };
TETRIS_STEP_FEATURE(Peaks, S::count(steps.peaks()))
TETRIS_STEP_FEATURE(FlatSteps, S::count(steps.flat()))
TETRIS_STEP_FEATURE(SingleSteps, S::count(steps.of_size(1).all()))
TETRIS_STEP_FEATURE(DoubleSteps, S::count(steps.of_size(2).all()))
TETRIS_STEP_FEATURE(FlatPairs, S::count(steps.flat_pairs()))
TETRIS_STEP_FEATURE(RisingPairs, S::count(steps.rising_pairs()))
TETRIS_STEP_FEATURE(FallingPairs, S::count(steps.falling_pairs()))
TETRIS_STEP_FEATURE(FittingPieces, steps.template fitting<0>())
TETRIS_STEP_FEATURE(
    SparePieces, steps.template fitting<1>())  // pieces that rest in at least two places
TETRIS_STEP_FEATURE(FitsS, S::some(steps.fits_s()))
TETRIS_STEP_FEATURE(FitsZ, S::some(steps.fits_z()))
#undef TETRIS_STEP_FEATURE

template <int COLUMN>
struct ColumnHeight : FeatureBase {
  static constexpr int column_height = COLUMN;
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    return board.heights[FIRST_COLUMN + COLUMN];
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto after(int, const Drop<L, WIDTH>& drop) {
    return drop.column_height(COLUMN);
  }
};

template <int COLUMN>
struct HeightDifference : FeatureBase {
  static constexpr int column_step = COLUMN;
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    int left = board.heights[FIRST_COLUMN + COLUMN];
    int right = board.heights[FIRST_COLUMN + COLUMN + 1];
    return right < left ? left - right : right - left;
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto after(int, const Drop<L, WIDTH>& drop) {
    auto difference = drop.column_height(COLUMN + 1) - drop.column_height(COLUMN);
    return L::maximum(difference, -difference);
  }
};

// 1 if the step from column COLUMN to the next one has the class CLASS, otherwise 0. The class
// is the step plus STEP, limited to 0 to 2 * STEP (step_tables.h).
template <int COLUMN, int CLASS>
struct Step : FeatureBase {
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    int left = board.heights[FIRST_COLUMN + COLUMN];
    int right = board.heights[FIRST_COLUMN + COLUMN + 1];
    return step_class<ScalarLanes>(right - left + STEP) == CLASS ? 1 : 0;
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto matches(const Drop<L, WIDTH>& drop) {
    auto difference = drop.column_height(COLUMN + 1) - drop.column_height(COLUMN);
    return step_class<L>(difference + L::ints(STEP)) == L::ints(CLASS);
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto after(int, const Drop<L, WIDTH>& drop) {
    return L::one_where(matches(drop));
  }
};

// 1 if the step from column COLUMN has the class CLASS and the next step has the class NEXT,
// otherwise 0. The class is the step plus STEP, limited to 0 to 2 * STEP.
template <int COLUMN, int CLASS, int NEXT>
struct StepPair : FeatureBase {
  using First = Step<COLUMN, CLASS>;
  using Second = Step<COLUMN + 1, NEXT>;
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    return First::of(board) * Second::of(board);
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto after(int, const Drop<L, WIDTH>& drop) {
    return L::one_where(First::matches(drop) & Second::matches(drop));
  }
};

// Represents all features of single steps, or of pairs of steps, in a rollout: see
// step_tables.h.
template <int STEPS>
struct StepFeatures : Representative {
  static constexpr int table_steps = STEPS;
};

struct MaxHeight : FeatureBase {
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    return popcount(L::or_columns(board.filled & board.geometry.inside));
  }
  template <class L>
  TETRIS_FUNCTION static auto prepare(const Board<L>& board) {
    return L::popcount(L::or_all(board.filled & board.geometry.inside));
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto after(typename L::Ints before, const Drop<L, WIDTH>& drop) {
    return L::maximum(before, drop.top());
  }
};

}  // namespace tetris
