// Sixteen placements at a time, in the vectors of an x86-64 or ARM processor (vectors.h). Of 16 bits they hold columns of 16 rows: the
// engine takes them while no column is higher than 11 (a piece adds four rows at most, and a well of 16 rows would overflow
// `triangle`). Those of 32 bits hold every board. See lanes_scalar.h for what the names mean.
#pragma once

#if defined(__SSE4_1__) || defined(__aarch64__)

#include "lanes_scalar.h"
#include "vectors.h"

// The constraint of a vector in a register.
#if defined(__aarch64__)
#define TETRIS_IN_REGISTER "+w"
#else
#define TETRIS_IN_REGISTER "+x"
#endif

namespace tetris {

inline Bytes TRIANGLES = {0, 1, 3, 6, 10, 15, 21, 28, 36, 45, 55, 66, 78, 91, 105, 120};
inline Bytes ROW_UNITS = {0, 0, 0, 0, 0, 128, 64, 32, 16, 8, 4, 2, 1, 0, 0, 0};
inline Bytes STEP_FLAGS = {0, 1, 2, 4, 8, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
inline Bytes SWAPPED_BYTES = {1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14};
// Small numbers in every lane, and the sums 1 + 2 + ... + n.
struct alignas(64) SmallNumbers {
  int16_t number[32][16];
  int32_t triangle[32];
  constexpr SmallNumbers() : number(), triangle() {
    for (int n = 0; n < 32; ++n) {
      for (int16_t& each : number[n]) each = static_cast<int16_t>(n);
      triangle[n] = n * (n + 1) / 2;
    }
  }
};
inline SmallNumbers small_numbers;
// What 32-bit numbers alone need; the counts of a shift may be beyond the word, which gives 0.
#if defined(__AVX2__)
template <class V, class C>
TETRIS_FUNCTION V shift_left(V a, C n) {
  const auto shift = [](auto x, auto count) TETRIS_INLINE {
    using R = decltype(x);
    TETRIS_512(return (R)_mm512_sllv_epi32((__m512i)x, (__m512i)count);)
    return (R)_mm256_sllv_epi32((__m256i)x, (__m256i)count);
  };
  return map(shift, a, n);
}
template <class V>
TETRIS_FUNCTION V triangle_of(V n) {
  const auto triangle = [](auto x) TETRIS_INLINE {
    using R = decltype(x);
    TETRIS_512(const auto* table = small_numbers.triangle; return (R)_mm512_permutex2var_epi32(
        _mm512_load_si512(table), (__m512i)x, _mm512_load_si512(table + 16));)
    return (R)_mm256_madd_epi16((__m256i)x, (__m256i)(x + 1)) >>
           1;  // n (n + 1) / 2 of numbers that 16 bits hold
  };
  return map(triangle, n);
}
#endif

template <class Ints_, class Bits_, class Scores_>
struct VectorLanes {
  using Ints = Ints_;
  using Bits = Bits_;
  using Scores =
      Scores_;  // of 16-bit numbers those of lanes 0-3 and 8-11, and those of lanes 4-7 and 12-15
  using Mask = Ints;  // all ones or all zeros a lane
  using Unit = Bits;  // a power of two, or of 32 bits how far a pattern is shifted
  struct Both {
    Ints first, second;
  };
  using Weights = std::conditional_t<sizeof(NumberOf<Ints>) == 2, Scores, Both>;
  using ColumnBits = Bits;
  using ColumnInts = Ints;
  using Number = NumberOf<Ints>;
  using Word = NumberOf<Bits>;
  static constexpr bool SHORT = sizeof(Word) == 2;
  static constexpr int LANES = 16;
  static constexpr int SLOTS = 16;
  static constexpr int TOP = 8 * sizeof(Word) - 1;
  static constexpr int MAX_STACK = SHORT ? 11 : MAX_HEIGHT;
  static constexpr int MAX_GROUPS = 3;

  struct alignas(64) Constant {
    Number value[LANES] = {};
    constexpr void set(int lane, int v) { value[lane] = static_cast<Number>(v); }
  };

  // See ScalarLanes.
  template <class T, class Columns>
  using Kept = Columns;
  using Keeper = ScalarLanes::Keeper;

  TETRIS_FUNCTION static Ints ints(const Constant& c) { return tetris::load<Ints>(c.value); }
  TETRIS_FUNCTION static Bits bits(const Constant& c) { return as<Word>(ints(c)); }
  TETRIS_FUNCTION static Ints ints(int value) {
    if constexpr (SHORT) {
      if (__builtin_constant_p(value) && value > 0 && value < 32)
        return tetris::load<Ints>(small_numbers.number[value]);
    }
    return repeat<Ints>(static_cast<Number>(value));
  }
  TETRIS_FUNCTION static Bits bits(Word value) { return repeat<Bits>(value); }
  TETRIS_FUNCTION static ColumnBits bits_everywhere(Word value) { return bits(value); }
  TETRIS_FUNCTION static ColumnInts ints_everywhere(int value) { return ints(value); }
  TETRIS_FUNCTION static Scores scores(int value) { return repeat<Scores>(value); }
  TETRIS_FUNCTION static Ints as_ints(Bits value) { return as<Number>(value); }
  // In the halves of every number, or in the lower half of two; products with values of 15 bits then have no upper half.
  TETRIS_FUNCTION static Weights weights(int32_t first, int32_t second) {
    return weights(as_ints(bits(weight_word(first))), as_ints(bits(weight_word(second))));
  }
  TETRIS_FUNCTION static Weights weights(Ints first, Ints second) {
    if constexpr (SHORT) return interleaved(first, second);
    else return {first, second};
  }
  TETRIS_FUNCTION static Scores add_products(
      Scores sum, Weights weights, Ints first, Ints second) {
    const auto add = [](auto x, auto y, auto z) TETRIS_INLINE {
      auto result = x + multiply_add(y, z);
      if constexpr (SHORT)
        asm(""
            : TETRIS_IN_REGISTER(
                result));  // now, not when all values have been computed and wait in memory
      return result;
    };
    if constexpr (SHORT) return map(add, sum, interleaved(first, second), weights);
    else return map(add, map(add, sum, first, weights.first), second, weights.second);
  }
  TETRIS_FUNCTION static Word weight_word(int32_t weight) {
    return static_cast<Word>(weight & 0xFFFF);
  }
  TETRIS_FUNCTION static int first(Scores scores) { return scores[0]; }
  TETRIS_FUNCTION static Scores sum_of_products(
      ColumnInts weights, ColumnInts values, ColumnInts more_weights, ColumnInts more_values) {
    const Scores all = add_products(
        scores(0), VectorLanes::weights(weights, more_weights), values, more_values);
    return repeat<Scores>(reduced(all, ADD)[0]);
  }

  TETRIS_FUNCTION static Ints weights_at(const int32_t* table, Ints index) {
#if defined(__AVX512F__)
    if constexpr (sizeof(Ints) == 64 && !IS_PAIR<Ints>) {
      return (Ints)_mm512_i32gather_epi32((__m512i)index, table, sizeof(*table)) & ints(0xFFFF);
    }
#endif
    alignas(64) Number place[LANES], found[LANES];
    tetris::store(index, place);
    TETRIS_UNROLL for (int lane = 0; lane < LANES; ++lane) found[lane] =
        static_cast<Number>(weight_word(table[place[lane]]));
    return tetris::load<Ints>(found);
  }

  TETRIS_FUNCTION static Ints popcount(Bits value) { return count_bits_in({value}); }
  template <int COUNT>
  TETRIS_FUNCTION static Ints popcount_sum(const Bits (&words)[COUNT]) {
    return count_bits_in(words);
  }
  TETRIS_FUNCTION static Ints triangle(Ints n) {
    if constexpr (SHORT) return look_up(TRIANGLES, n);
    else return triangle_of(n);
  }
  // Turned by half a word, the bits of the second word fit beside those of the first.
  TETRIS_FUNCTION static Ints popcount_near(Bits first, Bits second) {
    if constexpr (SHORT) return popcount(first | look_up(second, SWAPPED_BYTES));
    else return popcount(first | (second << 16) | (second >> 16));
  }
  TETRIS_FUNCTION static Ints popcount_small(Bits value) {
    if constexpr (SHORT) return as_ints(look_up(BIT_COUNTS, value) + (value >> 4));
    else return popcount(value);
  }

  TETRIS_FUNCTION static Mask exceeds(Ints a, Ints b) { return a > b; }
  TETRIS_FUNCTION static Mask flag(Ints value) { return value; }
  template <class T>
  TETRIS_FUNCTION static T without(T a, T b) {
    return and_not(a, b);
  }
  TETRIS_FUNCTION static unsigned lanes(Mask condition) { return signs(condition); }
  TETRIS_FUNCTION static Ints maximum(Ints a, Ints b) { return greater_of(a, b); }
  template <class T>
  TETRIS_FUNCTION static T select(Mask condition, T a, T b) {
    return choose(condition, a, b);
  }
  TETRIS_FUNCTION static Ints where(Mask condition, Ints value) { return condition & value; }
  TETRIS_FUNCTION static Bits bits_where(Mask condition, Bits value) {
    return as<Word>(condition) & value;
  }
  TETRIS_FUNCTION static Ints count(Mask condition) { return -condition; }
  TETRIS_FUNCTION static bool any(Bits value) { return any_bit(value); }
  // Of 16 bits for rows 0 .. 12: the two bytes of the word, looked up by row and by row + 8 (the table wraps at 16).
  TETRIS_FUNCTION static Unit row_unit(Ints row) {
    if constexpr (SHORT) return as<Word>(look_up(ROW_UNITS, row + ((row + ints(8)) << 8)));
    else return as<Word>(ints(TOP - 3) - row);
  }
  TETRIS_FUNCTION static Bits rows(const Constant& pattern, Unit unit) {
    if constexpr (SHORT) return unit * bits(pattern);
    else return shift_left(bits(pattern), unit);
  }
  TETRIS_FUNCTION static Bits step_flag(Ints step) {
    if constexpr (SHORT) {
      const Bits index = as<Word>(step), most = as<Word>(ints(15));
      return look_up(STEP_FLAGS, choose(index > most, most, index));
    } else {
      return shift_left(bits(Word(1)), step - ints(1)) & bits(Word(31));
    }
  }
  TETRIS_FUNCTION static Ints nonzero(Bits columns) { return columns != bits(Word(0)); }

  TETRIS_FUNCTION static uint32_t negative(Ints columns) {
    return signs(columns) >> (FIRST_COLUMN - 1);
  }
  template <uint32_t PATTERN, int WIDTH>
  TETRIS_FUNCTION static Bits in_columns(const ShapeLanes<VectorLanes, WIDTH>&) {
    return tetris::load<Bits>(COLUMN_SETS<Word, PATTERN, WIDTH>.lane);
  }
  template <class Shapes>
  TETRIS_FUNCTION static Bits in_columns(const Constant& pattern, const Shapes&) {
    return bits(pattern);
  }

  // Three columns wide, two shapes share a vector: both halves see the same columns.
  template <int WIDTH, class T>
  TETRIS_FUNCTION static T at(T columns, const ShapeLanes<VectorLanes, WIDTH>&, int k) {
    switch (k + FIRST_COLUMN) {
      case 0: return from<WIDTH, 0>(columns);
      case 1: return from<WIDTH, 1>(columns);
      case 2: return from<WIDTH, 2>(columns);
      case 3: return from<WIDTH, 3>(columns);
      case 4: return from<WIDTH, 4>(columns);
      case 5: return from<WIDTH, 5>(columns);
      case 6: return from<WIDTH, 6>(columns);
      default: return from<WIDTH, 7>(columns);
    }
  }
  template <class T>
  TETRIS_FUNCTION static T left(T columns) {
    return window<SLOTS - 1>(T{}, columns);
  }
  template <class T>
  TETRIS_FUNCTION static T right(T columns) {
    return window<1>(columns, T{});
  }
  TETRIS_FUNCTION static int sum(Ints columns) { return reduced(columns, ADD)[0]; }
  TETRIS_FUNCTION static Ints total(Ints columns) {
    return repeat_first<Ints>(reduced(columns, ADD));
  }
  TETRIS_FUNCTION static int count_bits(Bits columns) { return count_all_bits(columns)[0]; }
  TETRIS_FUNCTION static Ints count_bits_everywhere(Bits columns) {
    return repeat_first<Ints>(count_all_bits(columns));
  }
  TETRIS_FUNCTION static Word or_columns(Bits columns) { return reduced(columns, JOIN)[0]; }
  TETRIS_FUNCTION static Bits or_all(Bits columns) {
    return repeat_first<Bits>(reduced(columns, JOIN));
  }
  TETRIS_FUNCTION static Bits or_up_to(Bits columns) { return united_up(columns); }
  TETRIS_FUNCTION static Bits or_from(Bits columns) { return united_down(columns); }
  TETRIS_FUNCTION static void count_rows(Bits columns, Bits (&digit)[ROW_DIGITS]) {
    digit[0] = columns;
    add_lanes(digit,
        [](auto step, Bits word) TETRIS_INLINE { return window<step.value>(word, word); });
  }
  TETRIS_FUNCTION static Bits load(const Word* slots) { return tetris::load<Bits>(slots); }
  TETRIS_FUNCTION static void store(Bits columns, Word* slots) {
    tetris::store(columns, slots);
  }

  TETRIS_FUNCTION static Bits piece_columns(int piece, int orientation, int column, int row) {
    const Word* slots =
        PIECE_COLUMNS<Word>.slots[piece][orientation] + PieceColumns<Word>::OFFSET;
    return load(slots - FIRST_COLUMN - column) >> row;
  }
  TETRIS_FUNCTION static int landing_row(const Ints& heights, const Shape& shape, int x) {
    const auto* near = reinterpret_cast<const Number*>(&heights) + FIRST_COLUMN + x;
    return reduced(four_of(near) - four_of(shape.first_row), MOST)[0];
  }

  // The scores of all groups of placements so far, NEVER for what is no candidate.
  struct Best {
    Scores score[MAX_GROUPS];
    const int* order[MAX_GROUPS];
    int groups = 0;
    TETRIS_FUNCTION Best() {}  // the scores stay unwritten
    TETRIS_FUNCTION void clear() { groups = 0; }
  };
  TETRIS_FUNCTION static bool worthwhile(Mask) { return true; }
  template <int WIDTH>
  TETRIS_FUNCTION static void consider(
      Best& best, Scores score, Mask candidate, const Group<VectorLanes, WIDTH>& group) {
    if constexpr (SHORT)
      score = choose(interleaved(candidate, candidate), score, scores(NEVER));
    else score = choose(candidate, score, scores(NEVER));
    best.score[best.groups] = score;
    best.order[best.groups] = group.order;
    ++best.groups;
  }
  TETRIS_FUNCTION static Choice first_best(const Best& best) {
    Scores most = scores(NEVER);
    for (int i = 0; i < best.groups; ++i) most = greater_of(best.score[i], most);
    const int score = reduced(most, MOST)[0];
    return score == NEVER ? NO_CHOICE : Choice{score, lowest_bit(at_least(best, score))};
  }
  // The placements of this score or a higher one, a bit a place in the order.
  TETRIS_FUNCTION static uint64_t at_least(const Best& best, int score) {
    uint64_t places = 0;
    for (int i = 0; i < best.groups; ++i) {
      const unsigned found = where_greater(best.score[i], scores(score - 1));
      places |= static_cast<uint64_t>(found & 0xFF) << best.order[i][0] |
                static_cast<uint64_t>(found >> 8) << best.order[i][1];
    }
    return places;
  }
  TETRIS_FUNCTION static int score_at(const Best& best, int place) {
    int half = 0;  // of the groups
    while (static_cast<unsigned>(place - best.order[half / 2][half % 2]) >= 8) ++half;
    const int lane = place - best.order[half / 2][half % 2] + 8 * (half % 2);
    const int at =
        SHORT && !IS_PAIR<Ints> ? (lane & 3) | (lane & 8) >> 1 | (lane & 4) << 1 : lane;
    return reinterpret_cast<const int*>(&best.score[half / 2])[at];
  }

 private:
  template <int WIDTH, int FIRST, class T>
  TETRIS_FUNCTION static T from(T columns) {
    if constexpr (WIDTH == 3) return twice<FIRST>(columns);
    else return window<FIRST>(columns, T{});
  }
  // A bit a lane.
  TETRIS_FUNCTION static unsigned where_greater(Scores a, Scores b) {
    if constexpr (SHORT) return signs(packed(a > b));
    else return signs(a > b);
  }
};

}  // namespace tetris

#endif  // SSE4 or NEON
