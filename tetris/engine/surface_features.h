// The features of the surface: of the heights of the columns, and of the steps from each to the next (definitions in
// tetris/game/features.py; see feature_definitions.h).
#pragma once

#include "feature_definitions.h"
#include "step_tables.h"

namespace tetris {

struct Diversity : FeatureBase {
  template <class L>
  struct Prepared {
    // The differences of each column and the next one.
    typename L::template Kept<uint8_t, typename L::ColumnBits> up_to, from;
  };
  template <class L>
  TETRIS_FUNCTION static auto flags(const Board<L>& board) {
    return L::step_flag(L::right(board.heights) - board.heights + L::ints_everywhere(STEP)) &
           board.geometry.pairs;
  }
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    return popcount(L::or_columns(flags(board)));
  }
  template <class L>
  TETRIS_FUNCTION static Prepared<L> prepare(const Board<L>& board) {
    const auto differences = flags(board);
    return {board.template keep<uint8_t>(L::or_up_to(differences)),
        board.template keep<uint8_t>(L::or_from(differences))};
  }
  // Differences inside the piece are the shape's; the two at its sides are new.
  template <class L, int WIDTH>
  TETRIS_FUNCTION static typename L::Ints after(
      const Prepared<L>& prepared, const Drop<L, WIDTH>& drop) {
    const auto sides = L::step_flag(drop.first_step()) | L::step_flag(drop.last_step());
    const auto outside = drop.at(prepared.up_to, -2) | drop.at(prepared.from, WIDTH);
    const auto all = outside | L::bits(drop.shape.inner_flags) | sides;
    return L::popcount_small(all);
  }
};

struct Bumpiness : BitCount<Bumpiness> {
  // The rows in which one column of a pair is filled and the other is not.
  template <class L>
  TETRIS_FUNCTION static auto words(const Board<L>& board) {
    return (board.filled ^ L::right(board.filled)) & board.geometry.pairs;
  }
  template <class L>
  struct Prepared {
    typename L::Ints total;
    // Of each column and the next one; of two such steps.
    typename L::template Kept<uint8_t, typename L::ColumnInts> steps, pairs;
  };
  template <class L>
  TETRIS_FUNCTION static Prepared<L> prepare(const Board<L>& board) {
    const auto steps = L::popcount(words(board));
    const auto pairs = steps + L::right(steps);
    return {L::total(steps), board.template keep<uint8_t>(steps),
        board.template keep<uint8_t>(pairs)};
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static typename L::Ints after(
      const Prepared<L>& prepared, const Drop<L, WIDTH>& drop) {
    typename L::Ints sum = prepared.total + L::ints(drop.shape.inner_sum);
    sum = sum + size<L>(drop.first_step()) + size<L>(drop.last_step());
    TETRIS_UNROLL for (int k = -1; k < WIDTH - 1; k += 2) sum =
        sum - drop.at(prepared.pairs, k);
    if constexpr (WIDTH % 2 == 0) sum = sum - drop.at(prepared.steps, WIDTH - 1);
    return sum;
  }

 private:
  // Of a step + STEP; a step to a side wall is none, and larger than any other.
  template <class L>
  TETRIS_FUNCTION static typename L::Ints size(typename L::Ints step) {
    const typename L::Ints difference = step - L::ints(STEP),
                           size = L::maximum(difference, -difference);
    return L::where(size < L::ints(WALL_HEIGHT / 2), size);
  }
};

// Two sets of columns (see ScalarLanes::negative), of those where the surface falls to the next one and of those where it
// rises: in the halves of a word, or in two words where they have 16 bits.
template <class L>
struct FallsAndRises {
  using Bits = typename L::Bits;
  using Word = typename L::Word;
  static constexpr int WORDS = sizeof(Word) > 2 ? 1 : 2;
  static constexpr uint32_t BOTH = WORDS == 1 ? 0x10001u : 1u;  // times a set: it for both
  Bits word[WORDS];

  TETRIS_FUNCTION static FallsAndRises make(uint32_t falls, uint32_t rises) {
    if constexpr (WORDS == 1) return {{L::bits(static_cast<Word>(falls | rises << 16))}};
    else return {{L::bits(static_cast<Word>(falls)), L::bits(static_cast<Word>(rises))}};
  }
  TETRIS_FUNCTION Bits falls() const {
    return WORDS == 1 ? word[0] & L::bits(static_cast<Word>(0xFFFFu)) : word[0];
  }
  TETRIS_FUNCTION Bits rises() const { return WORDS == 1 ? word[0] >> 16 : word[WORDS - 1]; }
  // Not 0 where there are any, and a bit for each.
  TETRIS_FUNCTION Bits all() const { return WORDS == 1 ? word[0] : word[0] | word[WORDS - 1]; }
  TETRIS_FUNCTION FallsAndRises without(const FallsAndRises& other) const {
    FallsAndRises result;
    TETRIS_UNROLL for (int i = 0; i < WORDS; ++i) result.word[i] =
        L::without(word[i], other.word[i]);
    return result;
  }
};

// The step at one side of the piece.
template <class L, uint32_t PLACE, int WIDTH>
struct SideStep {
  using Ways = FallsAndRises<L>;
  typename L::Ints step, size;  // step + STEP
  typename L::Bits falls, rises;

  TETRIS_FUNCTION SideStep(const typename L::Ints& s, const ShapeLanes<L, WIDTH>& shape)
      : step(s) {
    const typename L::Ints difference = step - L::ints(STEP);
    size = L::maximum(difference, -difference);
    falls = rises = L::template in_columns<PLACE>(shape);
    if constexpr (Ways::WORDS == 1) falls = L::select(step < L::ints(STEP), falls, falls << 16);
  }
  // Adds the step to `ways` where it is one by at least n.
  TETRIS_FUNCTION void add(Ways& ways, int n) const {
    if constexpr (Ways::WORDS == 1) {
      ways.word[0] = ways.word[0] | L::bits_where(size > L::ints(n - 1), falls);
    } else {
      ways.word[0] = ways.word[0] | L::bits_where(step < L::ints(STEP + 1 - n), falls);
      ways.word[1] = ways.word[1] | L::bits_where(step > L::ints(STEP - 1 + n), rises);
    }
  }
};

// The steps from each column to the next; a side wall is higher than any column.
template <class L>
struct Steps {
  static constexpr int SIZES = 3;
  using Bits = typename L::Bits;
  using Ints = typename L::Ints;
  FallsAndRises<L> at_least[SIZES];  // by at least 1, 2, 3
  Bits pairs;                        // the columns with a column of the board to their right

  TETRIS_FUNCTION Bits flat() const {
    return L::without(pairs, at_least[0].falls() | at_least[0].rises());
  }
  // Between two columns of the board, too, for they are not by more.
  TETRIS_FUNCTION FallsAndRises<L> by(int n) const {
    return at_least[n - 1].without(at_least[n]);
  }
  // The columns with a step of one set to their right, and one of the other to the right of that.
  TETRIS_FUNCTION static Bits followed(Bits left, Bits right) { return left & (right >> 1); }
  TETRIS_FUNCTION Bits flat_pairs() const { return followed(flat(), flat()); }
  TETRIS_FUNCTION Bits rising_pairs() const { return followed(flat(), by(1).rises()); }
  TETRIS_FUNCTION Bits falling_pairs() const { return followed(by(1).falls(), flat()); }
  // Where pieces rest on every column below them, by the bottoms of their orientations.
  TETRIS_FUNCTION Bits fits_o() const { return flat(); }
  TETRIS_FUNCTION Bits fits_t() const { return by(1).all() | flat_pairs(); }
  TETRIS_FUNCTION Bits fits_z() const { return by(1).rises() | falling_pairs(); }
  TETRIS_FUNCTION Bits fits_s() const { return by(1).falls() | rising_pairs(); }
  TETRIS_FUNCTION Bits fits_j() const { return flat() | by(2).rises(); }
  TETRIS_FUNCTION Bits fits_l() const { return flat() | by(2).falls(); }
  // Columns with a higher one to their right, from which the surface falls again; it falls from the right wall, too.
  TETRIS_FUNCTION Bits peaks() const {
    return followed(at_least[0].rises(), at_least[0].falls() & pairs);
  }
  TETRIS_FUNCTION static Ints count(Bits set) { return L::popcount(set); }
  // 1 if there is none, or any, else 0.
  TETRIS_FUNCTION static Ints none(Bits set) { return L::count(set == L::bits(0)); }
  TETRIS_FUNCTION static Ints some(Bits set) { return L::ints(1) - none(set); }
  // 1 if a set has no more than MOST columns, 0 or 1, else 0.
  template <int MOST>
  TETRIS_FUNCTION static Ints few(Bits set) {
    if constexpr (MOST == 1) return none(set & (set - L::bits(1)));
    else return none(set);
  }
  // The pieces that fit in more than MOST places, 0 or 1; the upright I rests on any column.
  template <int MOST>
  TETRIS_FUNCTION Ints fitting() const {
    return L::ints(PIECES) -
           (few<MOST>(fits_o()) + few<MOST>(fits_t()) + few<MOST>(fits_z()) +
               few<MOST>(fits_s()) + few<MOST>(fits_j()) + few<MOST>(fits_l()));
  }
};

// What features of steps have in common.
struct StepSets {
  template <class L>
  TETRIS_FUNCTION static Steps<L> prepare(const Board<L>& board) {
    return make<L>(board);
  }
  // Steps inside the piece are the shape's; the two at its sides are new.
  template <class L, int WIDTH>
  TETRIS_FUNCTION static Steps<L> after(const Steps<L>& before, const Drop<L, WIDTH>& drop) {
    using Ways = FallsAndRises<L>;
    Ways touched;
    TETRIS_UNROLL for (int i = 0; i < Ways::WORDS; ++i) {
      touched.word[i] = L::template in_columns<((2u << WIDTH) - 1) * Ways::BOTH>(drop.shape);
    }
    const SideStep<L, 1u, WIDTH> first(drop.first_step(), drop.shape);
    const SideStep<L, 1u << WIDTH, WIDTH> last(drop.last_step(), drop.shape);
    Steps<L> steps;
    TETRIS_UNROLL for (int n = 0; n < Steps<L>::SIZES; ++n) {
      Ways ways = before.at_least[n].without(touched);
      if (WIDTH > 1 && n < INNER_STEPS) {
        TETRIS_UNROLL for (int i = 0; i < Ways::WORDS; ++i) {
          ways.word[i] = ways.word[i] | L::in_columns(drop.shape.inner_steps[n][i], drop.shape);
        }
      }
      first.add(ways, n + 1);
      last.add(ways, n + 1);
      steps.at_least[n] = ways;
    }
    steps.pairs = before.pairs;
    return steps;
  }
  // For lanes To the steps of a board in lanes L.
  template <class To, class L>
  TETRIS_FUNCTION static Steps<To> make(const Board<L>& board) {
    const auto step = L::right(board.heights) - board.heights;
    Steps<To> steps;
    TETRIS_UNROLL for (int n = 0; n < Steps<To>::SIZES; ++n) {
      const auto less = L::ints_everywhere(n);
      steps.at_least[n] =
          FallsAndRises<To>::make(L::negative(step + less), L::negative(less - step));
    }
    steps.pairs =
        To::bits(static_cast<typename To::Word>(L::negative(L::as_ints(board.geometry.pairs))));
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
  TETRIS_FUNCTION static typename L::Ints after(
      const Steps<L>& before, const Drop<L, WIDTH>& drop) {
    return Self::value(StepSets::after(before, drop));
  }
};

template <int DEPTH>
struct DeepWells : StepFeature<DeepWells<DEPTH>> {
  template <class L>
  TETRIS_FUNCTION static typename L::Ints value(const Steps<L>& steps) {
    const FallsAndRises<L>& ways = steps.at_least[DEPTH - 1];
    return L::popcount(Steps<L>::followed(ways.falls(), ways.rises()));
  }
};

template <int DEPTH>
struct SquaredDeepWells : StepFeature<SquaredDeepWells<DEPTH>> {
  template <class L>
  TETRIS_FUNCTION static typename L::Ints value(const Steps<L>& steps) {
    const auto wells = DeepWells<DEPTH>::value(steps);
    return wells * wells;
  }
};

// A feature by an expression of `steps`, which are of type S.
#define TETRIS_STEP_FEATURE(Name, ...)                  \
  struct Name : StepFeature<Name> {                     \
    template <class S>                                  \
    TETRIS_FUNCTION static auto value(const S& steps) { \
      return __VA_ARGS__;                               \
    }                                                   \
  };
TETRIS_STEP_FEATURE(Peaks, S::count(steps.peaks()))
TETRIS_STEP_FEATURE(FlatSteps, S::count(steps.flat()))
TETRIS_STEP_FEATURE(SingleSteps, S::count(steps.by(1).all()))
TETRIS_STEP_FEATURE(DoubleSteps, S::count(steps.by(2).all()))
TETRIS_STEP_FEATURE(FlatPairs, S::count(steps.flat_pairs()))
TETRIS_STEP_FEATURE(RisingPairs, S::count(steps.rising_pairs()))
TETRIS_STEP_FEATURE(FallingPairs, S::count(steps.falling_pairs()))
TETRIS_STEP_FEATURE(FittingPieces, steps.template fitting<0>())
TETRIS_STEP_FEATURE(
    SparePieces, steps.template fitting<1>())  // those that rest in at least two places
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
  TETRIS_FUNCTION static typename L::Ints after(int, const Drop<L, WIDTH>& drop) {
    return drop.column_height(COLUMN);
  }
};

template <int COLUMN>
struct HeightDifference : FeatureBase {
  static constexpr int column_step = COLUMN;
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    const int difference =
        board.heights[FIRST_COLUMN + COLUMN + 1] - board.heights[FIRST_COLUMN + COLUMN];
    return difference < 0 ? -difference : difference;
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static typename L::Ints after(int, const Drop<L, WIDTH>& drop) {
    const auto difference = drop.column_height(COLUMN + 1) - drop.column_height(COLUMN);
    return L::maximum(difference, -difference);
  }
};

template <int COLUMN, int CLASS>
struct Step : FeatureBase {
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    const int left = board.heights[FIRST_COLUMN + COLUMN],
              right = board.heights[FIRST_COLUMN + COLUMN + 1];
    return step_class<ScalarLanes>(right - left + STEP) == CLASS ? 1 : 0;
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto matches(const Drop<L, WIDTH>& drop) {
    const auto difference = drop.column_height(COLUMN + 1) - drop.column_height(COLUMN);
    return step_class<L>(difference + L::ints(STEP)) == L::ints(CLASS);
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static typename L::Ints after(int, const Drop<L, WIDTH>& drop) {
    return L::count(matches(drop));
  }
};

template <int COLUMN, int CLASS, int NEXT>
struct StepPair : FeatureBase {
  using First = Step<COLUMN, CLASS>;
  using Second = Step<COLUMN + 1, NEXT>;
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    return First::of(board) * Second::of(board);
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static typename L::Ints after(int, const Drop<L, WIDTH>& drop) {
    return L::count(First::matches(drop) & Second::matches(drop));
  }
};

// All features of a step, or of two, in a rollout: see step_tables.h.
template <int STEPS>
struct StepFeatures : FeatureBase {
  static constexpr int table_steps = STEPS;
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>&) {
    return 0;
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static typename L::Ints after(int, const Drop<L, WIDTH>&) {
    return L::ints(0);
  }
};

struct MaxHeight : FeatureBase {
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    return popcount(L::or_columns(board.filled & board.geometry.inside));
  }
  template <class L>
  TETRIS_FUNCTION static typename L::Ints prepare(const Board<L>& board) {
    return L::popcount(L::or_all(board.filled & board.geometry.inside));
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static typename L::Ints after(
      typename L::Ints before, const Drop<L, WIDTH>& drop) {
    return L::maximum(before, drop.end());
  }
};

}  // namespace tetris
