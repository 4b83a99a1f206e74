// One placement at a time, in plain C++: the portable path of the CPU engine, and what a CUDA thread runs.
//
// The engine is written against a `Lanes` type (this one, or those of another lanes_*.h):
//   Bits, Ints, Scores      one value a lane; a lane is a placement, lane x the one whose left edge is column x
//   ColumnBits, ColumnInts  one value a board column, in the slots FIRST_COLUMN .. FIRST_COLUMN + width - 1; the slots
//                           beside them are the side walls
// A column is an unsigned word: row r is bit TOP - r. The floor is the most significant bit, so that an addition
// carries downwards and `c | -c` fills a column from its topmost cell to the floor.
#pragma once

#include <type_traits>

#include "plan.h"

namespace tetris {

constexpr int NEVER = -2147483647 - 1;  // no score is

// A placement, by its place in the order of the search, and its score.
struct Choice {
  static constexpr int NONE = -1;
  int score;
  int place;

  // The placement that is made: the first one where none goes on.
  TETRIS_FUNCTION int made() const { return place == NONE ? 0 : place; }
  // Of two candidates the higher score, and of equals the first in the order.
  TETRIS_FUNCTION bool exceeds(const Choice& other) const {
    return score > other.score ||
           (score == other.score && place < other.place && place != NONE);
  }
  TETRIS_FUNCTION void take(const Choice& other, bool better) {
    score = better ? other.score : score;
    place = better ? other.place : place;
  }
  TETRIS_FUNCTION void consider(const Choice& other) { take(other, other.exceeds(*this)); }
};

constexpr Choice NO_CHOICE = {NEVER, Choice::NONE};

// The two best placements. Where nobody asks for the second one it costs nothing.
struct BestTwo {
  Choice first = NO_CHOICE, second = NO_CHOICE;
  TETRIS_FUNCTION void clear() { first = second = NO_CHOICE; }
  TETRIS_FUNCTION void take(const Choice& other, bool best, bool better) {
    second.take(other, better);
    second.take(first, best);
    first.take(other, best);
  }
  TETRIS_FUNCTION void consider(const Choice& other) {
    take(other, other.exceeds(first), other.exceeds(second));
  }
};

constexpr int FIRST_COLUMN = 2;  // room for the left wall and for the column left of it
constexpr int MAX_HEIGHT = 24;
constexpr int WALL_HEIGHT =
    64;  // of the slots beside the board: far from the height of any column

template <class T>
struct ColumnArray {
  static constexpr int SLOTS = FIRST_COLUMN + MAX_WIDTH + 2;
  using Number = T;
  T slot[SLOTS];
  TETRIS_FUNCTION T operator[](int i) const { return slot[i]; }
};

// What a function makes of a number, or of every slot's.
template <class F, class T, class... More, class = std::enable_if_t<std::is_arithmetic_v<T>>>
TETRIS_FUNCTION auto mapped(const F& f, T a, More... more) {
  return f(a, more...);
}
template <class F, class T, class... More>
TETRIS_FUNCTION auto mapped(const F& f, const ColumnArray<T>& a, const More&... more) {
  ColumnArray<decltype(f(a.slot[0], more.slot[0]...))> result;
  TETRIS_UNROLL for (int i = 0; i < ColumnArray<T>::SLOTS; ++i) result.slot[i] =
      f(a.slot[i], more.slot[i]...);
  return result;
}

// Operators of what has a number a column (and names its type): of two of them, or of one and a number for every column.
#define TETRIS_COLUMN_OPERATOR(op)                                                 \
  template <class Columns, class T = typename Columns::Number>                     \
  TETRIS_FUNCTION Columns operator op(const Columns& a, const Columns& b) {        \
    return mapped([](T x, T y) { return static_cast<T>(x op y); }, a, b);          \
  }                                                                                \
  template <class Columns, class T = typename Columns::Number>                     \
  TETRIS_FUNCTION Columns operator op(const Columns& a, int b) {                   \
    return mapped([b](T x) { return static_cast<T>(x op static_cast<T>(b)); }, a); \
  }
TETRIS_COLUMN_OPERATOR(&)
TETRIS_COLUMN_OPERATOR(|)
TETRIS_COLUMN_OPERATOR(^)
TETRIS_COLUMN_OPERATOR(+)
TETRIS_COLUMN_OPERATOR(-)
TETRIS_COLUMN_OPERATOR(*)
TETRIS_COLUMN_OPERATOR(<<)
TETRIS_COLUMN_OPERATOR(>>)
#undef TETRIS_COLUMN_OPERATOR
template <class Columns, class T = typename Columns::Number>
TETRIS_FUNCTION Columns operator~(const Columns& a) {
  return mapped([](T x) { return static_cast<T>(~x); }, a);
}
template <class Columns, class T = typename Columns::Number>
TETRIS_FUNCTION Columns operator-(const Columns& a) {
  return mapped([](T x) { return T(0) - x; }, a);
}

// Numbers of up to MAX_WIDTH, one a row, written in binary: word i has the rows in whose number digit i is 1.
constexpr int ROW_DIGITS = 4;

// Adds numbers of COUNT digits to others. The sum has one digit more, unless there are no more.
template <int COUNT, class Words>
TETRIS_FUNCTION void add_digits(Words (&to)[ROW_DIGITS], const Words (&other)[COUNT]) {
  Words carry = to[0] & other[0];
  to[0] = to[0] ^ other[0];
  TETRIS_UNROLL for (int i = 1; i < COUNT; ++i) {
    const Words either = to[i] ^ other[i], next = (to[i] & other[i]) | (either & carry);
    to[i] = either ^ carry;
    carry = next;
  }
  if constexpr (COUNT < ROW_DIGITS) to[COUNT] = carry;
}

// Adds up the numbers of one digit that sixteen lanes have in `digit[0]`, in every lane: each adds those that are STEP lanes on,
// `turned(STEP, word)`, of which there are half as many every time.
template <int STEP = 8, int COUNT = 1, class Words, class Turned>
TETRIS_FUNCTION void add_lanes(Words (&digit)[ROW_DIGITS], const Turned& turned) {
  Words other[COUNT];
  TETRIS_UNROLL for (int i = 0; i < COUNT; ++i) other[i] =
      turned(std::integral_constant<int, STEP>(), digit[i]);
  add_digits<COUNT>(digit, other);
  if constexpr (STEP > 1) add_lanes<STEP / 2, COUNT + 1>(digit, turned);
}

struct ScalarLanes {
  using Word = uint32_t;
  using Bits = uint32_t;
  using Ints = int32_t;
  using Mask = bool;
  using Scores = int32_t;
  using Unit = uint32_t;
  struct Weights {
    int32_t first, second;
  };
  using ColumnBits = ColumnArray<uint32_t>;
  using ColumnInts = ColumnArray<int32_t>;
  static constexpr int LANES = 1;
  static constexpr int SLOTS = ColumnBits::SLOTS;
  static constexpr int TOP = 31;
  static constexpr int MAX_STACK = MAX_HEIGHT;

  // A value a lane, in memory.
  struct Constant {
    int32_t value = 0;
    constexpr void set(int, int v) { value = v; }
  };

  // Columns that are asked for while placements are scored; a lane may keep them elsewhere, as numbers of type T.
  template <class T, class Columns>
  using Kept = Columns;
  struct Keeper {
    template <class T, class Columns>
    TETRIS_FUNCTION const Columns& keep(const Columns& columns) {
      return columns;
    }
  };

  TETRIS_FUNCTION static Bits bits(Word value) { return value; }
  TETRIS_FUNCTION static Bits bits(const Constant& constant) {
    return static_cast<Bits>(constant.value);
  }
  TETRIS_FUNCTION static Ints ints(const Constant& constant) { return constant.value; }
  TETRIS_FUNCTION static Ints ints(int value) { return value; }
  TETRIS_FUNCTION static Scores scores(int value) { return value; }
  template <class Words>
  TETRIS_FUNCTION static auto as_ints(const Words& value) {
    return mapped([](uint32_t x) { return static_cast<int32_t>(x); }, value);
  }
  // Those of two features, as `add_products` wants them; also of a weight a lane, of columns whose slots `weight_word` made.
  TETRIS_FUNCTION static Weights weights(Ints first, Ints second) { return {first, second}; }
  TETRIS_FUNCTION static Scores add_products(
      Scores sum, Weights weights, Ints first, Ints second) {
    return sum + weights.first * first + weights.second * second;
  }
  TETRIS_FUNCTION static Word weight_word(int32_t weight) { return static_cast<Word>(weight); }
  TETRIS_FUNCTION static int first(Scores scores) { return scores; }
  // Over all columns, for every lane.
  TETRIS_FUNCTION static Scores sum_of_products(const ColumnInts& weights,
      const ColumnInts& values, const ColumnInts& more_weights, const ColumnInts& more_values) {
    return sum(weights * values + more_weights * more_values);
  }

  // A weight of a table for each index, as `weights` wants it.
  template <class Numbers>
  TETRIS_FUNCTION static Numbers weights_at(const int32_t* table, const Numbers& index) {
    return mapped([table](int32_t i) { return table[i]; }, index);
  }

  TETRIS_FUNCTION static ColumnBits bits_everywhere(Word value) { return repeat(value); }
  TETRIS_FUNCTION static ColumnInts ints_everywhere(int value) { return repeat(value); }

  template <class Words>
  TETRIS_FUNCTION static auto popcount(const Words& value) {
    return mapped([](uint32_t x) { return tetris::popcount(x); }, value);
  }
  template <class Words, int COUNT>
  TETRIS_FUNCTION static auto popcount_sum(const Words (&words)[COUNT]) {
    auto total = popcount(words[0]);
    TETRIS_UNROLL for (int i = 1; i < COUNT; ++i) total = total + popcount(words[i]);
    return total;
  }
  // 1 + 2 + ... + n.
  template <class Numbers>
  TETRIS_FUNCTION static Numbers triangle(const Numbers& n) {
    return n * (n + 1) >> 1;
  }
  // Of two words whose bits lie in the same four rows.
  TETRIS_FUNCTION static Ints popcount_near(Bits first, Bits second) {
    return popcount64(first | static_cast<uint64_t>(second) << 32);
  }
  // Of a word below 32.
  TETRIS_FUNCTION static Ints popcount_small(Bits value) { return tetris::popcount(value); }

  // Whether a number exceeds one that it is not below.
  TETRIS_FUNCTION static Mask exceeds(Ints a, Ints b) { return a > b; }
  // Of what `nonzero` made.
  TETRIS_FUNCTION static Mask flag(Ints value) { return value != 0; }
  TETRIS_FUNCTION static Mask without(Mask a, Mask b) { return a & !b; }
  template <class Words>
  TETRIS_FUNCTION static Words without(const Words& a, const Words& b) {
    return a & ~b;
  }
  TETRIS_FUNCTION static unsigned lanes(bool condition) { return condition ? 1u : 0u; }
  template <class Numbers>
  TETRIS_FUNCTION static Numbers maximum(const Numbers& a, const Numbers& b) {
    return mapped([](int32_t x, int32_t y) { return x > y ? x : y; }, a, b);
  }
  TETRIS_FUNCTION static Ints minimum(Ints a, Ints b) { return a < b ? a : b; }
  template <class T>
  TETRIS_FUNCTION static T select(bool condition, T a, T b) {
    return condition ? a : b;
  }
  TETRIS_FUNCTION static Ints where(bool condition, Ints value) {
    return condition ? value : 0;
  }
  TETRIS_FUNCTION static Bits bits_where(bool condition, Bits value) {
    return condition ? value : 0u;
  }
  TETRIS_FUNCTION static Ints count(bool condition) { return condition ? 1 : 0; }
  TETRIS_FUNCTION static bool any(Bits value) { return value != 0; }
  TETRIS_FUNCTION static bool any(const ColumnBits& value) { return or_all(value) != 0; }
  // What takes the patterns of a shape (see ShapeLanes) to a row: 2^(TOP - 3 - row).
  TETRIS_FUNCTION static Unit row_unit(Ints row) { return 0x10000000u >> (row & 31); }
  TETRIS_FUNCTION static Bits rows(const Constant& pattern, Unit unit) {
    return unit * bits(pattern);
  }
  // 1 << (step - 1) for steps 1 .. 5, else 0.
  TETRIS_FUNCTION static Bits step_flag(Ints step) {
    const uint32_t shift = static_cast<uint32_t>(step - 1);
#if defined(__CUDA_ARCH__)
    return __funnelshift_lc(0u, 1u, shift) & 31u;  // a shift by 32 or more gives 0
#else
    return shift <= 4u ? 1u << shift : 0u;
#endif
  }
  template <class Columns>
  TETRIS_FUNCTION static auto step_flag(const Columns& step) {
    return mapped([](int32_t x) { return step_flag(x); }, step);
  }
  // Where the column is not 0 all ones, else 0.
  TETRIS_FUNCTION static ColumnInts nonzero(const ColumnBits& columns) {
    return mapped([](uint32_t x) { return x != 0 ? -1 : 0; }, columns);
  }

  // A set of columns has bit k + 1 for column k, so that bit 0 is the left wall. Those with a negative number:
  TETRIS_FUNCTION static uint32_t negative(const ColumnInts& columns) {
    uint32_t set = 0;
    TETRIS_UNROLL for (int i = FIRST_COLUMN - 1; i < SLOTS; ++i) {
      set |= columns.slot[i] < 0 ? 1u << (i - (FIRST_COLUMN - 1)) : 0u;
    }
    return set;
  }
  // A set that is written for a placement over column 0, at the columns of each placement.
  template <uint32_t PATTERN, class Shapes>
  TETRIS_FUNCTION static Bits in_columns(const Shapes& shapes) {
    return PATTERN << shapes.column.value;
  }
  template <class Shapes>
  TETRIS_FUNCTION static Bits in_columns(const Constant& pattern, const Shapes& shapes) {
    return bits(pattern) << shapes.column.value;
  }

  // The value of the column k columns right of each placement's left edge.
  template <int WIDTH, class T>
  TETRIS_FUNCTION static T at(
      const ColumnArray<T>& columns, const ShapeLanes<ScalarLanes, WIDTH>& shape, int k) {
    return columns.slot[shape.column.value + k + FIRST_COLUMN];
  }

  template <class T>
  TETRIS_FUNCTION static ColumnArray<T> left(const ColumnArray<T>& columns) {
    ColumnArray<T> result;
    result.slot[0] = 0;
    TETRIS_UNROLL for (int i = 1; i < SLOTS; ++i) result.slot[i] = columns.slot[i - 1];
    return result;
  }
  template <class T>
  TETRIS_FUNCTION static ColumnArray<T> right(const ColumnArray<T>& columns) {
    ColumnArray<T> result;
    result.slot[SLOTS - 1] = 0;
    TETRIS_UNROLL for (int i = 0; i + 1 < SLOTS; ++i) result.slot[i] = columns.slot[i + 1];
    return result;
  }
  TETRIS_FUNCTION static int sum(const ColumnInts& columns) {
    int total = 0;
    TETRIS_UNROLL for (int i = 0; i < SLOTS; ++i) total += columns.slot[i];
    return total;
  }
  TETRIS_FUNCTION static Ints total(const ColumnInts& columns) { return sum(columns); }
  TETRIS_FUNCTION static int count_bits(const ColumnBits& columns) {
    int total = 0;
    TETRIS_UNROLL for (int i = 0; i < SLOTS; i += 2) {
      total += popcount64(static_cast<uint64_t>(columns.slot[i]) << 32 | columns.slot[i + 1]);
    }
    return total;
  }
  TETRIS_FUNCTION static Ints count_bits_everywhere(const ColumnBits& columns) {
    return count_bits(columns);
  }
  TETRIS_FUNCTION static Bits or_all(const ColumnBits& columns) {
    Word all = 0;
    TETRIS_UNROLL for (int i = 0; i < SLOTS; ++i) all |= columns.slot[i];
    return all;
  }
  TETRIS_FUNCTION static Word or_columns(const ColumnBits& columns) { return or_all(columns); }
  // The union of each slot and all before it; and all after it.
  TETRIS_FUNCTION static ColumnBits or_up_to(const ColumnBits& columns) {
    ColumnBits result = columns;
    TETRIS_UNROLL for (int i = 1; i < SLOTS; ++i) result.slot[i] |= result.slot[i - 1];
    return result;
  }
  TETRIS_FUNCTION static ColumnBits or_from(const ColumnBits& columns) {
    ColumnBits result = columns;
    TETRIS_UNROLL for (int i = SLOTS - 2; i >= 0; --i) result.slot[i] |= result.slot[i + 1];
    return result;
  }
  // In how many columns each row is set.
  TETRIS_FUNCTION static void count_rows(const ColumnBits& columns, Bits (&digit)[ROW_DIGITS]) {
    TETRIS_UNROLL for (Bits& each : digit) each = 0;
    TETRIS_UNROLL for (int i = 0; i < SLOTS; i += 2) {
      const Bits either = columns.slot[i] ^ columns.slot[i + 1];
      Bits carry = (columns.slot[i] & columns.slot[i + 1]) | (either & digit[0]);
      digit[0] ^= either;
      TETRIS_UNROLL for (int d = 1; d < ROW_DIGITS; ++d) {
        const Bits next = digit[d] & carry;
        digit[d] ^= carry;
        carry = next;
      }
    }
  }
  TETRIS_FUNCTION static ColumnBits load(const Word* slots) {
    ColumnBits result;
    TETRIS_UNROLL for (int i = 0; i < SLOTS; ++i) result.slot[i] = slots[i];
    return result;
  }
  TETRIS_FUNCTION static void store(const ColumnBits& columns, Word* slots) {
    TETRIS_UNROLL for (int i = 0; i < SLOTS; ++i) slots[i] = columns.slot[i];
  }

  // The columns of a piece at rest, and nothing else.
  TETRIS_FUNCTION static ColumnBits piece_columns(
      int piece, int orientation, int column, int row) {
    // A nibble a board column.
    const uint64_t patterns = static_cast<uint64_t>(shape_of(piece, orientation).patterns)
                              << (4 * column);
    const Unit unit = row_unit(row);
    ColumnBits result;
    TETRIS_UNROLL for (int i = 0; i < SLOTS; ++i) {
      const int k = i - FIRST_COLUMN;
      result.slot[i] = k >= 0 && k < MAX_WIDTH
                           ? unit * (static_cast<uint32_t>(patterns >> (4 * (k & 15))) & 15u)
                           : 0u;
    }
    return result;
  }

  // The row in which the bottom of a shape comes to rest with its left edge over column x.
  TETRIS_FUNCTION static int landing_row(const ColumnInts& heights, const Shape& shape, int x) {
    int row = 0;
    TETRIS_UNROLL for (int k = 0; k < MAX_PIECE_SIZE; ++k) {
      row = maximum(row, heights[FIRST_COLUMN + x + k] - shape.first_row[k]);
    }
    return row;
  }

  using Best = BestTwo;  // of the placements seen, by orientation and column
  TETRIS_FUNCTION static bool worthwhile(bool candidate) { return candidate; }
  template <int WIDTH>
  TETRIS_FUNCTION static void consider(
      Best& best, Scores score, bool candidate, const Group<ScalarLanes, WIDTH>& group) {
    if (candidate) best.consider({score, group.order[0]});
  }
  TETRIS_FUNCTION static Choice first_best(const Best& best) { return best.first; }

 private:
  template <class T>
  TETRIS_FUNCTION static ColumnArray<T> repeat(T value) {
    ColumnArray<T> result;
    TETRIS_UNROLL for (int i = 0; i < SLOTS; ++i) result.slot[i] = value;
    return result;
  }
};

}  // namespace tetris
