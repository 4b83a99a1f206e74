// The vector lanes: they score sixteen placements at a time, in the vectors of an x86-64 or ARM
// processor (vectors.h). lanes_scalar.h explains the names.
//
// Lanes of 16 bits hold columns of 16 rows. The engine uses them while no column is higher than
// 11: a piece adds at most four rows, and a well of 16 rows would overflow `triangle`. Lanes of
// 32 bits hold every board.
#pragma once

#if defined(__SSE4_1__) || defined(__aarch64__)

#include "lanes_scalar.h"
#include "vectors.h"

// The constraint of inline assembly for a vector in a register.
#if defined(__aarch64__)
#define TETRIS_IN_REGISTER "+w"
#else
#define TETRIS_IN_REGISTER "+x"
#endif

namespace tetris {

// Tables with an entry for every n from 0 to 15. TRIANGLES: 1 + 2 + ... + n. ROW_UNITS: the low
// byte of row_unit(n), whose high byte is entry n + 8. STEP_FLAGS: step_flag(n). SWAPPED_BYTES
// is a list of indices, which swaps the bytes of every 16 bits.
inline Bytes TRIANGLES = {0, 1, 3, 6, 10, 15, 21, 28, 36, 45, 55, 66, 78, 91, 105, 120};
inline Bytes ROW_UNITS = {0, 0, 0, 0, 0, 128, 64, 32, 16, 8, 4, 2, 1, 0, 0, 0};
inline Bytes STEP_FLAGS = {0, 1, 2, 4, 8, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
inline Bytes SWAPPED_BYTES = {1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14};
// For every n below 32, a vector with n in every lane, and the sum 1 + 2 + ... + n.
struct alignas(64) SmallNumbers {
  int16_t number[32][16];
  int32_t triangle[32];
  constexpr SmallNumbers() : number(), triangle() {
    for (int n = 0; n < 32; ++n) {
      for (int16_t& lane : number[n]) lane = int16_t(n);
      triangle[n] = n * (n + 1) / 2;
    }
  }
};
inline SmallNumbers small_numbers;
#if defined(__AVX2__)
// Returns a << n, number by number, for 32-bit numbers. If n exceeds 31, the result is 0.
template <class V, class C>
TETRIS_FUNCTION V shift_left(V a, C n) {
  auto shift = [](auto x, auto count) TETRIS_INLINE {
    using R = decltype(x);
    if constexpr (sizeof(R) == 64) return (R)_mm512_sllv_epi32((__m512i)x, (__m512i)count);
    else return (R)_mm256_sllv_epi32((__m256i)x, (__m256i)count);
  };
  return map(shift, a, n);
}
// Returns the triangular number n (n + 1) / 2 of every number n of a vector. The numbers have
// 32 bits and are less than 32. `map` handles one register of the vector after another.
template <class V>
TETRIS_FUNCTION V triangle_of(V n) {
  auto triangle = [](auto x) TETRIS_INLINE {
    using R = decltype(x);
    if constexpr (sizeof(R) == 64) {
      // Look the results up in a table of 32 entries, which fills two registers.
      auto entries_0_to_15 = _mm512_load_si512(small_numbers.triangle);
      auto entries_16_to_31 = _mm512_load_si512(small_numbers.triangle + 16);
      return (R)_mm512_permutex2var_epi32(entries_0_to_15, (__m512i)x, entries_16_to_31);
    } else {
      // The numbers are small, so this multiplication of 16-bit numbers, which is faster, gives
      // x * (x + 1) as well.
      R product = (R)_mm256_madd_epi16((__m256i)x, (__m256i)(x + 1));
      return product >> 1;
    }
  };
  return map(triangle, n);
}
#endif

template <class Ints_, class Bits_, class Scores_>
struct VectorLanes {
  using Ints = Ints_;
  using Bits = Bits_;
  // Scores have 32 bits. The scores of 16-bit lanes are two vectors: of lanes 0-3 and 8-11, and
  // of lanes 4-7 and 12-15.
  using Scores = Scores_;
  using Mask = Ints;  // every lane is all ones or all zeros
  // A power of two for words of 16 bits, or the number of bits of a shift for words of 32 bits.
  using Unit = Bits;
  // The weights of two features. In 16-bit lanes they are the two halves of 32-bit numbers, in
  // the order of Scores.
  struct TwoWeights {
    Ints first, second;
  };
  using Weights = std::conditional_t<sizeof(NumberOf<Ints>) == 2, Scores, TwoWeights>;
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
    constexpr void set(int lane, int v) { value[lane] = Number(v); }
  };

  // See ScalarLanes.
  template <class T, class Columns>
  using Cached = Columns;
  using ColumnCache = ScalarLanes::ColumnCache;

  TETRIS_FUNCTION static Ints ints(const Constant& c) { return tetris::load<Ints>(c.value); }
  TETRIS_FUNCTION static Bits bits(const Constant& c) { return as<Word>(ints(c)); }
  TETRIS_FUNCTION static Ints ints(int value) {
    if constexpr (SHORT) {
      // A load from memory is cheaper than the instructions that spread a constant.
      if (__builtin_constant_p(value) && value > 0 && value < 32) {
        return tetris::load<Ints>(small_numbers.number[value]);
      }
    }
    return repeat<Ints>(Number(value));
  }
  TETRIS_FUNCTION static Bits bits(Word value) { return repeat<Bits>(value); }
  TETRIS_FUNCTION static ColumnBits bits_everywhere(Word value) { return bits(value); }
  TETRIS_FUNCTION static ColumnInts ints_everywhere(int value) { return ints(value); }
  TETRIS_FUNCTION static Scores scores(int value) { return repeat<Scores>(value); }
  TETRIS_FUNCTION static Ints as_ints(Bits value) { return as<Number>(value); }
  TETRIS_FUNCTION static Weights weights(int32_t first, int32_t second) {
    Ints all_first = as_ints(bits(weight_word(first)));
    Ints all_second = as_ints(bits(weight_word(second)));
    return weights(all_first, all_second);
  }
  // `interleave` puts the weight of the first feature into the lower half of a 32-bit number,
  // and the weight of the second feature into its upper half, as add_products needs them.
  TETRIS_FUNCTION static Weights weights(Ints first, Ints second) {
    if constexpr (SHORT) return interleave(first, second);
    else return {first, second};
  }
  // Returns sum + weights.first * first + weights.second * second, lane by lane.
  TETRIS_FUNCTION static Scores add_products(
      Scores sum, Weights weights, Ints first, Ints second) {
    auto add = [](auto partial_sum, auto values, auto factors) TETRIS_INLINE {
      auto result = partial_sum + multiply_add(values, factors);
      // Make the compiler add the products now. Otherwise it would first compute all values and
      // store them in memory.
      if constexpr (SHORT) asm("" : TETRIS_IN_REGISTER(result));
      return result;
    };
    if constexpr (SHORT) return map(add, sum, interleave(first, second), weights);
    else return map(add, map(add, sum, first, weights.first), second, weights.second);
  }
  // Returns a weight in the form that lanes need: its lower 16 bits, with zeros above them. In
  // 32-bit lanes multiply_add adds the products of both halves of a number; an upper half of 0
  // leaves only the product of the lower halves.
  static constexpr int WEIGHT_MASK = 0xFFFF;
  TETRIS_FUNCTION static Word weight_word(int32_t weight) { return Word(weight & WEIGHT_MASK); }
  template <int MOST>
  TETRIS_FUNCTION static Scores add_limited(Scores sum, int32_t weight, Scores value) {
    Scores most = scores(MOST);
    Scores not_negative = greater_of(value, scores(0));
    Scores limited = choose(not_negative < most, not_negative, most);
    auto add = [](auto partial_sum, auto values, auto factors)
                   TETRIS_INLINE { return partial_sum + multiply_add(values, factors); };
    return map(add, sum, limited, scores(weight & WEIGHT_MASK));
  }
  TETRIS_FUNCTION static int first_lane(Scores scores) { return scores[0]; }
  TETRIS_FUNCTION static Scores sum_of_products(
      ColumnInts weights, ColumnInts values, ColumnInts more_weights, ColumnInts more_values) {
    Scores all = add_products(
        scores(0), VectorLanes::weights(weights, more_weights), values, more_values);
    return repeat<Scores>(reduce(all, ADD)[0]);
  }

  // Returns the weight table[index] for each lane, reduced to its lower 16 bits. AVX-512 loads
  // all entries with one instruction; other processors load them one after another.
  TETRIS_FUNCTION static Ints weights_at(const int32_t* table, Ints index) {
#if defined(__AVX512F__)
    if constexpr (sizeof(Ints) == 64 && !IS_PAIR<Ints>) {
      auto entries = _mm512_i32gather_epi32((__m512i)index, table, sizeof(*table));
      return (Ints)entries & ints(WEIGHT_MASK);
    }
#endif
    alignas(64) Number indices[LANES], weights[LANES];
    tetris::store(index, indices);
    TETRIS_UNROLL for (int lane = 0; lane < LANES; ++lane) {
      weights[lane] = Number(weight_word(table[indices[lane]]));
    }
    return tetris::load<Ints>(weights);
  }

  TETRIS_FUNCTION static Ints popcount(Bits value) { return count_bits_in({value}); }
  template <int COUNT>
  TETRIS_FUNCTION static Ints popcount_sum(const Bits (&words)[COUNT]) {
    return count_bits_in(words);
  }
  // Returns 1 + 2 + ... + n.
  TETRIS_FUNCTION static Ints triangle(Ints n) {
    if constexpr (SHORT) return look_up(TRIANGLES, n);
    else return triangle_of(n);
  }
  // Returns the number of bits of two words together. The bits of both words lie in the same
  // four rows. Swapping the halves of the second word moves its bits away from those of the
  // first word, so the bits of both can be counted in one word.
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
  TETRIS_FUNCTION static Ints minimum(Ints a, Ints b) { return choose(a < b, a, b); }
  template <class T>
  TETRIS_FUNCTION static T select(Mask condition, T a, T b) {
    return choose(condition, a, b);
  }
  TETRIS_FUNCTION static Ints ints_where(Mask condition, Ints value) {
    return condition & value;
  }
  TETRIS_FUNCTION static Bits bits_where(Mask condition, Bits value) {
    return as<Word>(condition) & value;
  }
  TETRIS_FUNCTION static Ints one_where(Mask condition) { return -condition; }
  TETRIS_FUNCTION static bool any(Bits value) { return any_bit(value); }
  // Returns the number by which `rows` multiplies or shifts a pattern to move it to a row; see
  // ScalarLanes::row_unit. In words of 16 bits, rows are from 0 to 12. A look-up yields one
  // byte: the low byte of the word is entry `row` of the table, and the high byte is entry `row
  // + 8`.
  TETRIS_FUNCTION static Unit row_unit(Ints row) {
    if constexpr (SHORT) {
      Ints index = row + ((row + ints(8)) << 8);
      return as<Word>(look_up(ROW_UNITS, index));
    } else {
      return as<Word>(ints(TOP - 3) - row);
    }
  }
  TETRIS_FUNCTION static Bits rows(const Constant& pattern, Unit unit) {
    if constexpr (SHORT) return unit * bits(pattern);
    else return shift_left(bits(pattern), unit);
  }
  TETRIS_FUNCTION static Bits step_flag(Ints step) {
    if constexpr (SHORT) {
      Bits index = as<Word>(step);
      Bits last = as<Word>(ints(15));
      return look_up(STEP_FLAGS, choose(index > last, last, index));
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

  // Returns, for each lane, the value of the board column that is k columns right of the left
  // edge of the lane's placement. k is from -2 to 5.
  //
  // Lane x is the placement over board column x, and board column c is in slot c + FIRST_COLUMN
  // of `columns`. So the result is `columns`, moved down by k + FIRST_COLUMN slots.
  //
  // Vectors can only be moved by a compile-time constant, so every distance has a case. Where
  // this function is inlined, k is a constant, and one case remains.
  template <int WIDTH, class T>
  TETRIS_FUNCTION static T at_offset(T columns, const ShapeLanes<VectorLanes, WIDTH>&, int k) {
    const int first_slot = k + FIRST_COLUMN;  // the slot of lane 0
    switch (first_slot) {
      case 0: return slots_from<WIDTH, 0>(columns);
      case 1: return slots_from<WIDTH, 1>(columns);
      case 2: return slots_from<WIDTH, 2>(columns);
      case 3: return slots_from<WIDTH, 3>(columns);
      case 4: return slots_from<WIDTH, 4>(columns);
      case 5: return slots_from<WIDTH, 5>(columns);
      case 6: return slots_from<WIDTH, 6>(columns);
      default: return slots_from<WIDTH, 7>(columns);
    }
  }
  template <class T>
  TETRIS_FUNCTION static T left(T columns) {
    return move_up<1>(columns);
  }
  template <class T>
  TETRIS_FUNCTION static T right(T columns) {
    return window<1>(columns, T{});
  }
  TETRIS_FUNCTION static int sum(Ints columns) { return reduce(columns, ADD)[0]; }
  TETRIS_FUNCTION static Ints total(Ints columns) {
    return repeat_first<Ints>(reduce(columns, ADD));
  }
  TETRIS_FUNCTION static int count_bits(Bits columns) { return count_all_bits(columns)[0]; }
  TETRIS_FUNCTION static Ints count_bits_everywhere(Bits columns) {
    return repeat_first<Ints>(count_all_bits(columns));
  }
  TETRIS_FUNCTION static Word or_columns(Bits columns) {
    return reduce(columns, BITWISE_OR)[0];
  }
  TETRIS_FUNCTION static Bits or_all(Bits columns) {
    return repeat_first<Bits>(reduce(columns, BITWISE_OR));
  }
  TETRIS_FUNCTION static Bits prefix_or(Bits columns) { return prefix_union(columns); }
  TETRIS_FUNCTION static Bits suffix_or(Bits columns) { return suffix_union(columns); }
  TETRIS_FUNCTION static void count_rows(Bits columns, Bits (&digit)[ROW_DIGITS]) {
    digit[0] = columns;
    auto rotate = [](auto step, Bits word)
                      TETRIS_INLINE { return window<step.value>(word, word); };
    add_lanes(digit, rotate);
  }
  TETRIS_FUNCTION static Bits load(const Word* slots) { return tetris::load<Bits>(slots); }
  TETRIS_FUNCTION static void store(Bits columns, Word* slots) {
    tetris::store(columns, slots);
  }

  // Returns the cells of a piece whose bottom rests in `row` and whose left edge is over
  // `column`. PIECE_COLUMNS holds the piece at rest in row 0, with zeros before and after its
  // columns. A load that begins n words before the piece's first column puts this column into
  // slot n. A shift to the right moves the cells up to `row`.
  TETRIS_FUNCTION static Bits piece_columns(int piece, int orientation, int column, int row) {
    const Word* first_cells =
        PIECE_COLUMNS<Word>.slots[piece][orientation] + PieceColumns<Word>::OFFSET;
    const Word* slot_0 = first_cells - FIRST_COLUMN - column;
    return load(slot_0) >> row;
  }
  TETRIS_FUNCTION static int landing_row(const Ints& heights, const Shape& shape, int x) {
    const auto* height = reinterpret_cast<const Number*>(&heights) + FIRST_COLUMN + x;
    return reduce(load_four(height) - load_four(shape.first_row), MAXIMUM)[0];
  }

  // The recorded scores of all groups of placements. first_best finds the best one. Lanes that
  // are not candidates have the score NEVER. A group has two halves of eight lanes; group i has
  // the halves 2 * i and 2 * i + 1.
  struct Best {
    Scores score[MAX_GROUPS];
    const int* first_placement[MAX_GROUPS];  // the placement in lane 0 of each half
    int groups = 0;
    TETRIS_FUNCTION Best() {}  // does not set the scores
    TETRIS_FUNCTION void clear() { groups = 0; }
    TETRIS_FUNCTION int first_of_half(int half) const {
      return first_placement[half / 2][half % 2];
    }
  };
  TETRIS_FUNCTION static bool is_worth_scoring(Mask) { return true; }
  // Appends the scores of a group of placements, one per lane, to `best`. Lanes that are not
  // candidates get the score NEVER, the lowest one. choose(mask, a, b) selects a or b in every
  // lane.
  template <int WIDTH>
  TETRIS_FUNCTION static void record_scores(Best& best, Scores lane_scores, Mask is_candidate,
      const Group<VectorLanes, WIDTH>& group) {
    // scores(x) is a vector with the score x in all lanes.
    if constexpr (SHORT) {
      // A lane of the scores has 32 bits, but a lane of the mask has only 16. Interleaving the
      // mask with itself makes its lanes 32 bits wide, in the order of the scores.
      Scores wide_mask = interleave(is_candidate, is_candidate);
      lane_scores = choose(wide_mask, lane_scores, scores(NEVER));
    } else {
      lane_scores = choose(is_candidate, lane_scores, scores(NEVER));
    }
    best.score[best.groups] = lane_scores;
    best.first_placement[best.groups] = group.first_placement;
    ++best.groups;
  }
  // Returns the placement with the highest score; of equal scores, the one with the lowest
  // number. Returns NO_CHOICE if no lane was a candidate.
  TETRIS_FUNCTION static Choice first_best(const Best& best) {
    Scores most = scores(NEVER);
    for (int i = 0; i < best.groups; ++i) most = greater_of(best.score[i], most);
    int score = reduce(most, MAXIMUM)[0];  // the highest score of all lanes
    return score == NEVER ? NO_CHOICE : Choice{score, lowest_bit(at_least(best, score))};
  }
  // Returns the set of placements whose score is at least `score`, one bit per placement. The
  // placements of each half of a group have consecutive numbers, so a shift turns the set of
  // lanes of a half into a set of placements.
  TETRIS_FUNCTION static uint64_t at_least(const Best& best, int score) {
    uint64_t placements = 0;
    for (int i = 0; i < best.groups; ++i) {
      unsigned lanes = where_greater(best.score[i], scores(score - 1));
      uint64_t lower_half = lanes & 0xFF;
      uint64_t upper_half = lanes >> 8;
      placements |=
          lower_half << best.first_placement[i][0] | upper_half << best.first_placement[i][1];
    }
    return placements;
  }
  // Returns the recorded score of a placement, which must have been a candidate. The loop finds
  // the half of a group that contains the placement. A half has eight placements with
  // consecutive numbers, and first_of_half returns the first one. Half h belongs to group h /
  // 2.
  TETRIS_FUNCTION static int score_at(const Best& best, int placement) {
    int half = 0;
    // As an unsigned number, a negative difference is larger than 8.
    while (unsigned(placement - best.first_of_half(half)) >= 8) ++half;
    int lane_of_half = placement - best.first_of_half(half);
    int lane = lane_of_half + 8 * (half % 2);
    // If 16-bit lanes fill one register, `interleave` has stored their scores in the order of
    // lanes 0-3, 8-11, 4-7, 12-15. So the index is the lane with bits 2 and 3 swapped.
    bool is_interleaved = SHORT && !IS_PAIR<Ints>;
    int swapped = (lane & 3) | (lane & 8) >> 1 | (lane & 4) << 1;
    int index = is_interleaved ? swapped : lane;
    return reinterpret_cast<const int*>(&best.score[half / 2])[index];
  }

 private:
  // Returns, for each lane, the value of the slot that is FIRST slots ahead. For pieces that
  // are three columns wide, both halves of a group are placements over columns 0 to 7, so both
  // read the same slots.
  template <int WIDTH, int FIRST, class T>
  TETRIS_FUNCTION static T slots_from(T columns) {
    if constexpr (WIDTH == 3) return window_in_both_halves<FIRST>(columns);
    else return window<FIRST>(columns, T{});
  }
  // Returns the lanes in which a > b, one bit per lane.
  TETRIS_FUNCTION static unsigned where_greater(Scores a, Scores b) {
    if constexpr (SHORT) return signs(pack(a > b));
    else return signs(a > b);
  }
};

}  // namespace tetris

#endif  // SSE4 or NEON
