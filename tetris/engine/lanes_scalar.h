// The scalar lanes: they score one placement at a time, in plain C++. The portable version of
// the CPU engine and every CUDA thread use them.
//
// The engine is a template of its lanes, which are these or those of another lanes_*.h. The
// lanes define the types of values:
//   Bits, Ints, Scores      one value per lane. A lane is a placement; in a vector, lane x is
//                           the placement whose left edge is over column x.
//   ColumnBits, ColumnInts  one value per slot. A slot is a column of the board, or lies beside
//                           it.
//
//     slot     0      1         2       3          width + 1  width + 2    width + 3 ...
//     column   -    wall -1     0       1    ...   width - 1  wall width   -
//
// A column is an unsigned word: row r is bit TOP - r, so the floor is the most significant bit.
// An addition therefore carries downwards, and `c | -c` fills a column from its topmost cell
// down to the floor.
#pragma once

#include <type_traits>

#include "plan.h"

namespace tetris {

constexpr int NEVER = -2147483647 - 1;  // below every score

// A placement, numbered as in plan.h, and its score.
struct Choice {
  static constexpr int NONE = -1;
  int score;
  int placement;

  // Returns the placement to play. If every placement ends the game, it is the first one.
  TETRIS_FUNCTION int placement_to_play() const { return placement == NONE ? 0 : placement; }
  // Returns whether this choice is better. The higher score is better; of equal scores, the
  // placement that comes first in the search is better.
  TETRIS_FUNCTION bool exceeds(const Choice& other) const {
    bool comes_first = placement < other.placement && placement != NONE;
    return score > other.score || (score == other.score && comes_first);
  }
  TETRIS_FUNCTION void replace_if(bool condition, const Choice& other) {
    score = condition ? other.score : score;
    placement = condition ? other.placement : placement;
  }
  TETRIS_FUNCTION void consider(const Choice& other) {
    replace_if(other.exceeds(*this), other);
  }
};

constexpr Choice NO_CHOICE = {NEVER, Choice::NONE};

// The two best placements. The compiler removes the second one where it is not used.
struct BestTwo {
  Choice first = NO_CHOICE;
  Choice second = NO_CHOICE;
  TETRIS_FUNCTION void clear() { first = second = NO_CHOICE; }
  // Inserts a placement, unless both conditions are false. `is_best` says whether it exceeds
  // the first placement, and `is_better` whether it exceeds the second one. If it becomes the
  // first placement, the old first placement becomes the second one.
  TETRIS_FUNCTION void insert(const Choice& other, bool is_best, bool is_better) {
    second.replace_if(is_better, other);
    second.replace_if(is_best, first);
    first.replace_if(is_best, other);
  }
  TETRIS_FUNCTION void consider(const Choice& other) {
    insert(other, other.exceeds(first), other.exceeds(second));
  }
};

constexpr int FIRST_COLUMN = 2;  // the slot of column 0, after an unused slot and the left wall
constexpr int MAX_HEIGHT = 24;
// The height of slots outside the board, which is much greater than the height of any column.
constexpr int WALL_HEIGHT = 64;

template <class T>
struct ColumnArray {
  static constexpr int SLOTS = FIRST_COLUMN + MAX_WIDTH + 2;
  using Number = T;
  T slot[SLOTS];
  TETRIS_FUNCTION T operator[](int i) const { return slot[i]; }
};

// Applies a function to numbers, or slot by slot to arrays of columns.
template <class F, class T, class... More, class = std::enable_if_t<std::is_arithmetic_v<T>>>
TETRIS_FUNCTION auto map_slots(const F& f, T a, More... more) {
  return f(a, more...);
}
template <class F, class T, class... More>
TETRIS_FUNCTION auto map_slots(const F& f, const ColumnArray<T>& a, const More&... more) {
  ColumnArray<decltype(f(a.slot[0], more.slot[0]...))> result;
  TETRIS_UNROLL for (int i = 0; i < ColumnArray<T>::SLOTS; ++i) {
    result.slot[i] = f(a.slot[i], more.slot[i]...);
  }
  return result;
}

// Defines an operator slot by slot: of two arrays of columns, or of an array and one number.
#define TETRIS_COLUMN_OPERATOR(op)                                          \
  template <class Columns, class T = typename Columns::Number>              \
  TETRIS_FUNCTION Columns operator op(const Columns& a, const Columns& b) { \
    return map_slots([](T x, T y) { return T(x op y); }, a, b);             \
  }                                                                         \
  template <class Columns, class T = typename Columns::Number>              \
  TETRIS_FUNCTION Columns operator op(const Columns& a, int b) {            \
    return map_slots([b](T x) { return T(x op T(b)); }, a);                 \
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
  return map_slots([](T x) { return T(~x); }, a);
}
template <class Columns, class T = typename Columns::Number>
TETRIS_FUNCTION Columns operator-(const Columns& a) {
  return map_slots([](T x) { return T(0) - x; }, a);
}

// The number of binary digits of a count of columns per row. Such counts are bit-sliced: bit r
// of digit[i] is binary digit i of the count of row r, so one bitwise operation handles all
// rows. Four digits hold every count up to MAX_WIDTH.
constexpr int ROW_DIGITS = 4;

// Adds one number to another for each row of the board: the number in `other` to the number in
// `sum`. All rows are added at once by a ripple-carry adder.
//
// The numbers are bit-sliced: bit r of sum[i] is binary digit i of the number of row r. Both
// numbers have COUNT digits, and their sum has one digit more.
template <int COUNT, class Words>
TETRIS_FUNCTION void add_digits(Words (&sum)[ROW_DIGITS], const Words (&other)[COUNT]) {
  Words carry = sum[0] & other[0];
  sum[0] = sum[0] ^ other[0];
  TETRIS_UNROLL for (int i = 1; i < COUNT; ++i) {
    Words exactly_one = sum[i] ^ other[i];
    Words both = sum[i] & other[i];
    Words next_carry = both | (exactly_one & carry);
    sum[i] = exactly_one ^ carry;
    carry = next_carry;
  }
  if constexpr (COUNT < ROW_DIGITS) sum[COUNT] = carry;
}

// Adds up the counts of sixteen lanes, and stores the sum in every lane. On entry the count of
// a lane has one binary digit, digit[0]. There are four rounds, in which STEP is 8, 4, 2 and 1.
// In each round a lane adds the count of the lane that is STEP lanes ahead; rotate(STEP, word)
// gets one digit of that count. COUNT is the number of digits before the round. The function
// calls itself for the next round.
template <int STEP = 8, int COUNT = 1, class Words, class Rotate>
TETRIS_FUNCTION void add_lanes(Words (&digit)[ROW_DIGITS], const Rotate& rotate) {
  Words other[COUNT];
  TETRIS_UNROLL for (int i = 0; i < COUNT; ++i) {
    other[i] = rotate(std::integral_constant<int, STEP>(), digit[i]);
  }
  add_digits<COUNT>(digit, other);
  if constexpr (STEP > 1) add_lanes<STEP / 2, COUNT + 1>(digit, rotate);
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

  // One value per lane, in memory.
  struct Constant {
    int32_t value = 0;
    constexpr void set(int, int v) { value = v; }
  };

  // The type of columns that are read by an index while placements are scored. These lanes read
  // the columns themselves; other lanes copy them to numbers of type T elsewhere.
  template <class T, class Columns>
  using Cached = Columns;
  struct ColumnCache {
    template <class T, class Columns>
    TETRIS_FUNCTION const Columns& cache(const Columns& columns) {
      return columns;
    }
  };

  TETRIS_FUNCTION static Bits bits(Word value) { return value; }
  TETRIS_FUNCTION static Bits bits(const Constant& constant) { return Bits(constant.value); }
  TETRIS_FUNCTION static Ints ints(const Constant& constant) { return constant.value; }
  TETRIS_FUNCTION static Ints ints(int value) { return value; }
  TETRIS_FUNCTION static Scores scores(int value) { return value; }
  template <class Words>
  TETRIS_FUNCTION static auto as_ints(const Words& value) {
    return map_slots([](uint32_t x) { return int32_t(x); }, value);
  }
  // Returns the weights of two features, for `add_products`. weight_word makes a slot of an
  // array of weights.
  TETRIS_FUNCTION static Weights weights(Ints first, Ints second) { return {first, second}; }
  TETRIS_FUNCTION static Word weight_word(int32_t weight) { return Word(weight); }
  // Returns sum + weights.first * first + weights.second * second.
  TETRIS_FUNCTION static Scores add_products(
      Scores sum, Weights weights, Ints first, Ints second) {
    return sum + weights.first * first + weights.second * second;
  }
  // Returns sum + weight * value, where the value is first limited to 0 .. MOST.
  template <int MOST>
  TETRIS_FUNCTION static Scores add_limited(Scores sum, int32_t weight, Scores value) {
    return sum + weight * minimum(maximum(value, 0), MOST);
  }
  TETRIS_FUNCTION static int first_lane(Scores scores) { return scores; }
  // Returns the sum, over all columns, of weights * values + more_weights * more_values, in
  // every lane.
  TETRIS_FUNCTION static Scores sum_of_products(const ColumnInts& weights,
      const ColumnInts& values, const ColumnInts& more_weights, const ColumnInts& more_values) {
    return sum(weights * values + more_weights * more_values);
  }
  // Returns the weight table[index] for each index.
  template <class Numbers>
  TETRIS_FUNCTION static Numbers weights_at(const int32_t* table, const Numbers& index) {
    return map_slots([table](int32_t i) { return table[i]; }, index);
  }

  TETRIS_FUNCTION static ColumnBits bits_everywhere(Word value) { return repeat(value); }
  TETRIS_FUNCTION static ColumnInts ints_everywhere(int value) { return repeat(value); }

  template <class Words>
  TETRIS_FUNCTION static auto popcount(const Words& value) {
    return map_slots([](uint32_t x) { return tetris::popcount(x); }, value);
  }
  template <class Words, int COUNT>
  TETRIS_FUNCTION static auto popcount_sum(const Words (&words)[COUNT]) {
    auto total = popcount(words[0]);
    TETRIS_UNROLL for (int i = 1; i < COUNT; ++i) total = total + popcount(words[i]);
    return total;
  }
  // Returns 1 + 2 + ... + n.
  template <class Numbers>
  TETRIS_FUNCTION static Numbers triangle(const Numbers& n) {
    return n * (n + 1) >> 1;
  }
  // Returns the number of bits of two words together. The bits of both words lie in the same
  // four rows.
  TETRIS_FUNCTION static Ints popcount_near(Bits first, Bits second) {
    return popcount64(first | uint64_t(second) << 32);
  }
  // Returns the number of bits of a word below 32.
  TETRIS_FUNCTION static Ints popcount_small(Bits value) { return tetris::popcount(value); }

  // Returns whether a > b; a must not be less than b.
  TETRIS_FUNCTION static Mask exceeds(Ints a, Ints b) { return a > b; }
  // Turns a number that `nonzero` has returned into a mask.
  TETRIS_FUNCTION static Mask flag(Ints value) { return value != 0; }
  // Returns a & ~b: the elements of `a` that are not in `b`.
  TETRIS_FUNCTION static Mask without(Mask a, Mask b) { return a & !b; }
  template <class Words>
  TETRIS_FUNCTION static Words without(const Words& a, const Words& b) {
    return a & ~b;
  }
  // Returns a mask as an integer with one bit per lane.
  TETRIS_FUNCTION static unsigned lanes(bool condition) { return condition ? 1u : 0u; }
  template <class Numbers>
  TETRIS_FUNCTION static Numbers maximum(const Numbers& a, const Numbers& b) {
    return map_slots([](int32_t x, int32_t y) { return x > y ? x : y; }, a, b);
  }
  template <class Numbers>
  TETRIS_FUNCTION static Numbers minimum(const Numbers& a, const Numbers& b) {
    return map_slots([](int32_t x, int32_t y) { return x < y ? x : y; }, a, b);
  }
  template <class T>
  TETRIS_FUNCTION static T select(bool condition, T a, T b) {
    return condition ? a : b;
  }
  // Return the value (or 1) in lanes where the condition is true, and 0 in the other lanes.
  TETRIS_FUNCTION static Ints ints_where(bool condition, Ints value) {
    return condition ? value : 0;
  }
  TETRIS_FUNCTION static Bits bits_where(bool condition, Bits value) {
    return condition ? value : 0u;
  }
  TETRIS_FUNCTION static Ints one_where(bool condition) { return condition ? 1 : 0; }
  TETRIS_FUNCTION static bool any(Bits value) { return value != 0; }
  TETRIS_FUNCTION static bool any(const ColumnBits& value) { return or_all(value) != 0; }
  // Returns 2^(TOP - 3 - row). Multiplying a pattern of ShapeLanes by this number moves the
  // pattern to row `row`.
  TETRIS_FUNCTION static Unit row_unit(Ints row) { return 0x10000000u >> (row & 31); }
  TETRIS_FUNCTION static Bits rows(const Constant& pattern, Unit unit) {
    return unit * bits(pattern);
  }
  // Returns 1 << (step - 1) for steps from 1 to 5, and 0 for other steps.
  TETRIS_FUNCTION static Bits step_flag(Ints step) {
    uint32_t shift = uint32_t(step - 1);
#if defined(__CUDA_ARCH__)
    return __funnelshift_lc(0u, 1u, shift) & 31u;  // a shift by 32 or more gives 0
#else
    return shift <= 4u ? 1u << shift : 0u;
#endif
  }
  template <class Columns>
  TETRIS_FUNCTION static auto step_flag(const Columns& step) {
    return map_slots([](int32_t x) { return step_flag(x); }, step);
  }
  // Returns all ones for columns with a cell, and 0 for empty columns.
  TETRIS_FUNCTION static ColumnInts nonzero(const ColumnBits& columns) {
    return map_slots([](uint32_t x) { return x != 0 ? -1 : 0; }, columns);
  }

  // Returns the set of columns whose number is negative. A set of columns is a word: bit c + 1
  // is column c, and bit 0 is the left wall.
  TETRIS_FUNCTION static uint32_t negative(const ColumnInts& columns) {
    constexpr int LEFT_WALL = FIRST_COLUMN - 1;
    uint32_t set = 0;
    TETRIS_UNROLL for (int slot = LEFT_WALL; slot < SLOTS; ++slot) {
      set |= columns.slot[slot] < 0 ? 1u << (slot - LEFT_WALL) : 0u;
    }
    return set;
  }
  // Moves a set of columns to the column of each placement. PATTERN or `pattern` is the set for
  // a piece whose left edge is over column 0.
  template <uint32_t PATTERN, class Shapes>
  TETRIS_FUNCTION static Bits in_columns(const Shapes& shapes) {
    return PATTERN << shapes.column.value;
  }
  template <class Shapes>
  TETRIS_FUNCTION static Bits in_columns(const Constant& pattern, const Shapes& shapes) {
    return bits(pattern) << shapes.column.value;
  }

  // Returns, for each placement, the value of the column that is k columns right of its left
  // edge.
  template <int WIDTH, class T>
  TETRIS_FUNCTION static T at_offset(
      const ColumnArray<T>& columns, const ShapeLanes<ScalarLanes, WIDTH>& shape, int k) {
    return columns.slot[shape.column.value + k + FIRST_COLUMN];
  }

  // Return for each slot the value of the slot to its left, or to its right.
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
  // The functions below return the sum or the union of all slots. `sum`, `count_bits` and
  // `or_columns` return one number; `total`, `count_bits_everywhere` and `or_all` return it in
  // every lane.
  TETRIS_FUNCTION static int sum(const ColumnInts& columns) {
    int total = 0;
    TETRIS_UNROLL for (int i = 0; i < SLOTS; ++i) total += columns.slot[i];
    return total;
  }
  TETRIS_FUNCTION static Ints total(const ColumnInts& columns) { return sum(columns); }
  TETRIS_FUNCTION static int count_bits(const ColumnBits& columns) {
    int total = 0;
    TETRIS_UNROLL for (int i = 0; i < SLOTS; i += 2) {
      total += popcount64(uint64_t(columns.slot[i]) << 32 | columns.slot[i + 1]);
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
  // Return for each slot the bitwise OR of all slots from the first one up to it, or from it up
  // to the last one.
  TETRIS_FUNCTION static ColumnBits prefix_or(const ColumnBits& columns) {
    ColumnBits result = columns;
    TETRIS_UNROLL for (int i = 1; i < SLOTS; ++i) result.slot[i] |= result.slot[i - 1];
    return result;
  }
  TETRIS_FUNCTION static ColumnBits suffix_or(const ColumnBits& columns) {
    ColumnBits result = columns;
    TETRIS_UNROLL for (int i = SLOTS - 2; i >= 0; --i) result.slot[i] |= result.slot[i + 1];
    return result;
  }
  // Counts the cells of every row of the board. A column is a word with one bit per row.
  //
  // All rows are counted at once, so the counts are bit-sliced: bit r of digit[d] becomes
  // binary digit d of the count of row r. Two columns are added at a time.
  TETRIS_FUNCTION static void count_rows(const ColumnBits& columns, Bits (&digit)[ROW_DIGITS]) {
    TETRIS_UNROLL for (Bits& word : digit) word = 0;
    TETRIS_UNROLL for (int i = 0; i < SLOTS; i += 2) {
      // A full adder adds both columns to the lowest digit.
      Bits first = columns.slot[i];
      Bits second = columns.slot[i + 1];
      Bits exactly_one = first ^ second;
      Bits both = first & second;
      Bits carry = both | (exactly_one & digit[0]);
      digit[0] ^= exactly_one;
      // Add the carry to the higher digits.
      TETRIS_UNROLL for (int d = 1; d < ROW_DIGITS; ++d) {
        Bits next_carry = digit[d] & carry;
        digit[d] ^= carry;
        carry = next_carry;
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

  // Returns the cells of a piece whose bottom rests in `row` and whose left edge is over
  // board column `left`. The result has one word per slot, and one bit per row.
  TETRIS_FUNCTION static ColumnBits piece_columns(
      int piece, int orientation, int left, int row) {
    // A column of the piece has four bits, one for each of its rows. After the shift, bits 4 c
    // to 4 c + 3 belong to board column c.
    uint64_t patterns = uint64_t(shape_of(piece, orientation).patterns) << (4 * left);
    Unit unit = row_unit(row);  // 2^n: multiplying by it moves the bits up to `row`
    ColumnBits result;
    TETRIS_UNROLL for (int slot = 0; slot < SLOTS; ++slot) {
      int c = slot - FIRST_COLUMN;  // the board column in this slot
      bool is_on_board = c >= 0 && c < MAX_WIDTH;
      int first_bit = 4 * (c & 15);  // `& 15` keeps the shift valid beside the board
      uint32_t pattern = uint32_t(patterns >> first_bit) & 15u;
      result.slot[slot] = is_on_board ? unit * pattern : 0u;
    }
    return result;
  }

  // Returns the row in which the bottom of a shape comes to rest with its left edge over column
  // x.
  TETRIS_FUNCTION static int landing_row(const ColumnInts& heights, const Shape& shape, int x) {
    int row = 0;
    TETRIS_UNROLL for (int k = 0; k < MAX_PIECE_SIZE; ++k) {
      row = maximum(row, heights[FIRST_COLUMN + x + k] - shape.first_row[k]);
    }
    return row;
  }

  using Best = BestTwo;  // the best placements so far
  TETRIS_FUNCTION static bool is_worth_scoring(bool is_candidate) { return is_candidate; }
  // Records the score of the single placement of a group if the placement is a candidate. It
  // becomes one of the two best placements if it exceeds one of them.
  template <int WIDTH>
  TETRIS_FUNCTION static void record_scores(
      Best& best, Scores score, bool is_candidate, const Group<ScalarLanes, WIDTH>& group) {
    if (is_candidate) best.consider({score, group.first_placement[0]});
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
