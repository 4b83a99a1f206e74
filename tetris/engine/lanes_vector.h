// Sixteen placements at a time in 16-bit lanes, written against a vector type `R` (see lanes_avx2.h, lanes_sse4.h). A
// column has 16 rows here, so the engine takes these lanes while no column is higher than 11 (a piece adds four rows at
// most, and a well of 16 rows would overflow `triangle`) and `TallLanes` (fastest_lanes.h) while the stack is higher.
// See lanes_scalar.h for what the names mean.
#pragma once

#include <immintrin.h>

#include <cstring>
#include <initializer_list>

#include "lanes_scalar.h"

namespace tetris {

// Vectors in memory. The repeated numbers and bytes are not const: the compiler would rebuild a constant at every use,
// by three instructions instead of an operand.
struct alignas(32) VectorConstants {
    static constexpr int COUNT = 32;
    int16_t number[COUNT][16];
    int8_t nibble[32], one[32];
    constexpr VectorConstants() : number(), nibble(), one() {
        for (int value = 0; value < COUNT; ++value) {
            for (int lane = 0; lane < 16; ++lane) number[value][lane] = static_cast<int16_t>(value);
        }
        for (int i = 0; i < 32; ++i) nibble[i] = 15, one[i] = 1;
    }
};
inline VectorConstants vector_constants;

// The float 2^23 / DENOMINATOR, and its upper half. Its last digit counts in units of 1 / DENOMINATOR.
template <int DENOMINATOR>
struct alignas(32) FloatBase {
    float value[8];
    int16_t upper[16];
    constexpr FloatBase() : value(), upper() {
        int exponent = 0x4B00;  // of 2^23
        for (int n = DENOMINATOR; n > 1; n /= 2) exponent -= 0x80;
        for (int i = 0; i < 8; ++i) value[i] = 8388608.0f / DENOMINATOR;
        for (int i = 0; i < 16; ++i) upper[i] = static_cast<int16_t>(exponent);
    }
};
template <int DENOMINATOR>
inline FloatBase<DENOMINATOR> float_base;

// For looking up bytes by their lower four bits (bytes above 127 give 0).
struct alignas(32) ByteTable {
    uint8_t byte[32];
    constexpr ByteTable(std::initializer_list<uint8_t> values) : byte() {
        int i = 0;
        for (const uint8_t value : values) byte[i] = byte[i + 16] = value, ++i;
    }
};
inline ByteTable BIT_COUNTS = {0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4};
inline ByteTable TRIANGLES = {0, 1, 3, 6, 10, 15, 21, 28, 36, 45, 55, 66, 78, 91, 105, 120};
inline ByteTable ROW_UNITS = {0, 0, 0, 0, 0, 128, 64, 32, 16, 8, 4, 2, 1, 0, 0, 0};
inline ByteTable SWAPPED_BYTES = {1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14};
inline ByteTable FIRST_LANE = {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1};
inline ByteTable LAST_LANE = {14, 15, 14, 15, 14, 15, 14, 15, 14, 15, 14, 15, 14, 15, 14, 15};
inline ByteTable STEP_FLAGS = {0, 1, 2, 4, 8, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};

template <class R>
struct VectorLanes {
    using Register = typename R::Register;
    using Word = uint16_t;
    static constexpr int LANES = 16;
    static constexpr int SLOTS = 16;
    static constexpr int TOP = 15;
    static constexpr int MAX_STACK = 11;
    static constexpr int MAX_GROUPS = 3;

    struct Mask {  // all ones or all zeros a lane
        Register r;
        TETRIS_FUNCTION friend Mask operator&(Mask a, Mask b) { return {R::bit_and(a.r, b.r)}; }
        TETRIS_FUNCTION friend Mask operator|(Mask a, Mask b) { return {R::bit_or(a.r, b.r)}; }
    };
    struct Bits {
        Register r;
        TETRIS_FUNCTION friend Bits operator&(Bits a, Bits b) { return {R::bit_and(a.r, b.r)}; }
        TETRIS_FUNCTION friend Bits operator|(Bits a, Bits b) { return {R::bit_or(a.r, b.r)}; }
        TETRIS_FUNCTION friend Bits operator^(Bits a, Bits b) { return {R::bit_xor(a.r, b.r)}; }
        TETRIS_FUNCTION friend Bits operator+(Bits a, Bits b) { return {R::add(a.r, b.r)}; }
        TETRIS_FUNCTION friend Bits operator-(Bits a, Bits b) { return {R::subtract(a.r, b.r)}; }
        TETRIS_FUNCTION friend Bits operator<<(Bits a, int n) { return {R::shift_left(a.r, n)}; }
        TETRIS_FUNCTION friend Bits operator>>(Bits a, int n) { return {R::shift_right(a.r, n)}; }
        TETRIS_FUNCTION friend Bits operator~(Bits a) { return {R::bit_xor(a.r, R::all_ones())}; }
        TETRIS_FUNCTION friend Bits operator-(Bits a) { return {R::subtract(R::zero(), a.r)}; }
        TETRIS_FUNCTION friend Mask operator==(Bits a, Bits b) { return {R::equal(a.r, b.r)}; }
    };
    struct Ints {
        Register r;
        TETRIS_FUNCTION friend Ints operator+(Ints a, Ints b) { return {R::add(a.r, b.r)}; }
        TETRIS_FUNCTION friend Ints operator-(Ints a, Ints b) { return {R::subtract(a.r, b.r)}; }
        TETRIS_FUNCTION friend Ints operator-(Ints a) { return {R::subtract(R::zero(), a.r)}; }
        TETRIS_FUNCTION friend Ints operator|(Ints a, Ints b) { return {R::bit_or(a.r, b.r)}; }
        TETRIS_FUNCTION friend Mask operator>(Ints a, Ints b) { return {R::greater(a.r, b.r)}; }
        TETRIS_FUNCTION friend Mask operator<(Ints a, Ints b) { return {R::greater(b.r, a.r)}; }
        TETRIS_FUNCTION friend Mask operator==(Ints a, Ints b) { return {R::equal(a.r, b.r)}; }
        TETRIS_FUNCTION int operator[](int lane) const { return reinterpret_cast<const Lane*>(&r)[lane]; }
    };
    struct Floats {  // lanes 0-3 and 8-11, lanes 4-7 and 12-15
        typename R::Float low, high;
    };
    using Unit = Bits;
    using Weight = typename R::Float;
    using ColumnBits = Bits;
    using ColumnInts = Ints;

    struct alignas(32) Constant {
        int16_t value[LANES] = {};
        constexpr void set(int lane, int v) { value[lane] = static_cast<int16_t>(v); }
    };

    // See ScalarLanes.
    template <class T, class Columns>
    using Kept = Columns;
    using Keeper = ScalarLanes::Keeper;

    TETRIS_FUNCTION static Bits bits(const Constant& c) { return {R::load(c.value)}; }
    TETRIS_FUNCTION static Ints ints(const Constant& c) { return {R::load(c.value)}; }
    TETRIS_FUNCTION static Bits bits(Word value) { return {R::repeat(static_cast<int16_t>(value))}; }
    TETRIS_FUNCTION static Ints ints(int value) {
        if (__builtin_constant_p(value) && value > 0 && value < VectorConstants::COUNT) {
            return {R::load_repeated(vector_constants.number[value])};
        }
        return {R::repeat(static_cast<int16_t>(value))};
    }
    TETRIS_FUNCTION static ColumnBits bits_everywhere(Word value) { return bits(value); }
    TETRIS_FUNCTION static ColumnInts ints_everywhere(int value) { return ints(value); }
    TETRIS_FUNCTION static Floats floats(float value) { return {R::floats(value), R::floats(value)}; }
    TETRIS_FUNCTION static Ints as_ints(Bits value) { return {value.r}; }
    template <int DENOMINATOR>
    TETRIS_FUNCTION static Weight weight(float value) { return R::floats(value); }
    // A number becomes the lower half of a float of which the upper half is known.
    template <int DENOMINATOR>
    TETRIS_FUNCTION static Floats to_floats(Ints value) {
        const Register upper = R::load_repeated(float_base<DENOMINATOR>.upper);
        const Weight base = R::load_floats(float_base<DENOMINATOR>.value);
        return {R::subtract(R::as_floats(R::interleave_low(value.r, upper)), base),
                R::subtract(R::as_floats(R::interleave_high(value.r, upper)), base)};
    }
    // sum + weight * (value / DENOMINATOR).
    template <int DENOMINATOR>
    TETRIS_FUNCTION static Floats add_product(Floats sum, const Weight& weight, Ints value) {
        return add_product(sum, weight, to_floats<DENOMINATOR>(value));
    }
    TETRIS_FUNCTION static Floats add_product(Floats sum, const Weight& weight, Floats value) {
        Floats result = {R::add(sum.low, R::multiply(weight, value.low)), R::add(sum.high, R::multiply(weight, value.high))};
        // Now, not when all values have been computed and wait in memory.
        R::keep_in_register(result.low);
        R::keep_in_register(result.high);
        return result;
    }

    TETRIS_FUNCTION static Ints popcount(Bits value) { return {R::add_byte_pairs(count_bytes(value))}; }
    template <int COUNT>
    TETRIS_FUNCTION static Ints popcount_sum(const Bits (&words)[COUNT]) {
        Register bytes = count_bytes(words[0]);
        TETRIS_UNROLL for (int i = 1; i < COUNT; ++i) bytes = R::add_bytes(bytes, count_bytes(words[i]));
        return {R::add_byte_pairs(bytes)};
    }
    TETRIS_FUNCTION static Ints run_length(Bits value) { return popcount(value); }
    TETRIS_FUNCTION static Ints times(Ints a, Ints b) { return {R::multiply(a.r, b.r)}; }
    TETRIS_FUNCTION static Ints triangle(Ints n) { return {R::look_up(TRIANGLES, n.r)}; }
    // The bits of the second word fit beside those of the first when it is turned by eight.
    TETRIS_FUNCTION static Ints popcount_near(Bits first, Bits second) {
        return popcount(Bits{R::bit_or(first.r, R::look_up_in(second.r, SWAPPED_BYTES))});
    }
    TETRIS_FUNCTION static Ints popcount_small(Bits value) {
        return {R::add(R::look_up(BIT_COUNTS, value.r), R::shift_right(value.r, 4))};
    }

    TETRIS_FUNCTION static Mask exceeds(Ints a, Ints b) { return a > b; }
    TETRIS_FUNCTION static Mask flag(Ints value) { return {value.r}; }
    TETRIS_FUNCTION static Mask without(Mask a, Mask b) { return {R::and_not(a.r, b.r)}; }
    TETRIS_FUNCTION static Bits without(Bits a, Bits b) { return {R::and_not(a.r, b.r)}; }
    TETRIS_FUNCTION static unsigned lanes(Mask condition) { return R::lanes(condition.r); }
    TETRIS_FUNCTION static Ints maximum(Ints a, Ints b) { return {R::maximum(a.r, b.r)}; }
    TETRIS_FUNCTION static Ints select(Mask condition, Ints a, Ints b) {
        return {R::bit_or(R::bit_and(condition.r, a.r), R::and_not(b.r, condition.r))};
    }
    TETRIS_FUNCTION static Ints where(Mask condition, Ints value) { return {R::bit_and(condition.r, value.r)}; }
    TETRIS_FUNCTION static Bits bits_where(Mask condition, Bits value) { return {R::bit_and(condition.r, value.r)}; }
    TETRIS_FUNCTION static Ints count(Mask condition) { return {R::subtract(R::zero(), condition.r)}; }
    TETRIS_FUNCTION static bool any(Bits value) { return R::any(value.r); }
    // For rows 0 .. 12: the two bytes of the word, looked up by row and by row + 8 (the table wraps at 16).
    TETRIS_FUNCTION static Unit row_unit(Ints row) {
        const Register both = R::add(row.r, R::shift_left(R::add(row.r, ints(8).r), 8));
        return {R::look_up(ROW_UNITS, both)};
    }
    TETRIS_FUNCTION static Bits rows(const Constant& pattern, Unit unit) {
        return {R::multiply(unit.r, R::load(pattern.value))};
    }
    TETRIS_FUNCTION static Bits step_flag(Ints step) {
        return {R::look_up(STEP_FLAGS, R::minimum_unsigned(step.r, ints(15).r))};
    }
    TETRIS_FUNCTION static Ints nonzero(Bits columns) {
        return {R::bit_xor(R::equal(columns.r, R::zero()), R::all_ones())};
    }

    TETRIS_FUNCTION static uint32_t negative(Ints columns) { return R::lanes(columns.r) >> (FIRST_COLUMN - 1); }
    template <uint32_t PATTERN, int WIDTH>
    TETRIS_FUNCTION static Bits in_columns(const ShapeLanes<VectorLanes, WIDTH>&) {
        return {R::load(COLUMN_SETS<int16_t, PATTERN, WIDTH>.lane)};
    }
    template <class Shapes>
    TETRIS_FUNCTION static Bits in_columns(const Constant& pattern, const Shapes&) {
        return bits(pattern);
    }

    // Three columns wide, two shapes share a vector: both halves see the same columns.
    template <int WIDTH, class T>
    TETRIS_FUNCTION static T at(T columns, const ShapeLanes<VectorLanes, WIDTH>&, int k) {
        return {WIDTH == 3 ? R::move_down_twice(columns.r, k + FIRST_COLUMN)
                           : R::move_down(columns.r, k + FIRST_COLUMN)};
    }
    template <class T>
    TETRIS_FUNCTION static T left(T columns) {
        return {R::move_up(columns.r)};
    }
    template <class T>
    TETRIS_FUNCTION static T right(T columns) {
        return {R::move_down(columns.r, 1)};
    }
    TETRIS_FUNCTION static int sum(Ints columns) { return R::first(R::sum(columns.r)); }
    TETRIS_FUNCTION static Ints total(Ints columns) { return {R::repeat_first(R::sum(columns.r))}; }
    TETRIS_FUNCTION static int count_bits(Bits columns) { return R::first(R::sum_bytes(count_bytes(columns))); }
    TETRIS_FUNCTION static Ints count_bits_everywhere(Bits columns) {
        return {R::repeat_first(R::sum_bytes(count_bytes(columns)))};
    }
    TETRIS_FUNCTION static Bits or_all(Bits columns) { return {R::repeat_first(R::fold(columns.r))}; }
    TETRIS_FUNCTION static Word or_columns(Bits columns) { return static_cast<Word>(R::first(R::fold(columns.r))); }
    TETRIS_FUNCTION static Bits or_up_to(Bits columns) { return {R::fold_up(columns.r)}; }
    TETRIS_FUNCTION static Bits or_from(Bits columns) { return {R::fold_down(columns.r)}; }
    TETRIS_FUNCTION static Bits load(const Word* slots) { return {R::load_anywhere(slots)}; }
    TETRIS_FUNCTION static void store(Bits columns, Word* slots) { R::store_anywhere(columns.r, slots); }

    TETRIS_FUNCTION static Bits piece_columns(int piece, int orientation, int column, int row) {
        const Word* slots = PIECE_COLUMNS<Word>.slots[piece][orientation] + PieceColumns<Word>::OFFSET - FIRST_COLUMN - column;
        return {R::shift_right(R::load_anywhere(slots), row)};
    }
    // The least of BASE - (height - first row): of four columns, and of BASE itself in the four lanes beyond.
    TETRIS_FUNCTION static int landing_row(const Ints& heights, const Shape& shape, int x) {
        constexpr int BASE = 64;
        const auto* columns = reinterpret_cast<const Lane*>(&heights.r) + FIRST_COLUMN + x;
        int32_t rows;
        std::memcpy(&rows, shape.first_row, sizeof(rows));
        const __m128i first_row = _mm_add_epi16(_mm_cvtepi8_epi16(_mm_cvtsi32_si128(rows)), _mm_set1_epi16(BASE));
        const __m128i height = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(columns));
        const __m128i least = _mm_minpos_epu16(_mm_sub_epi16(first_row, height));
        return BASE - (_mm_cvtsi128_si32(least) & 0xFFFF);
    }

    // The scores of all groups of placements so far, NaN for what is no candidate.
    struct Best {
        Floats score[MAX_GROUPS];
        const int* order[MAX_GROUPS];
        int groups = 0;
        typename R::Float most = R::floats(NEVER);
        TETRIS_FUNCTION Best() {}  // the scores stay unwritten
    };
    TETRIS_FUNCTION static bool worthwhile(Mask) { return true; }
    template <int WIDTH>
    TETRIS_FUNCTION static void consider(Best& best, Floats score, Mask candidate, const Group<VectorLanes, WIDTH>& group) {
        const Register other = R::bit_xor(candidate.r, R::all_ones());
        score = {R::either(score.low, R::as_floats(R::interleave_low(other, other))),
                 R::either(score.high, R::as_floats(R::interleave_high(other, other)))};
        best.most = R::maximum(score.low, best.most);  // of NaN and a number the second operand
        best.most = R::maximum(score.high, best.most);
        best.score[best.groups] = score;
        best.order[best.groups] = group.order;
        ++best.groups;
    }
    TETRIS_FUNCTION static Choice first_best(const Best& best) {
        const float score = R::most(best.most);
        if (score == NEVER) return NO_CHOICE;
        const auto all = R::floats(score);
        uint64_t equal = 0;
        for (int i = 0; i < best.groups; ++i) {
            const Floats& scores = best.score[i];
            const unsigned found = R::lanes(R::narrow(R::equal(scores.low, all), R::equal(scores.high, all)));
            equal |= static_cast<uint64_t>(found & 0xFF) << best.order[i][0] |
                     static_cast<uint64_t>(found >> 8) << best.order[i][1];
        }
        return {score, lowest_bit(equal)};
    }

   private:
    typedef int16_t Lane __attribute__((may_alias));
    // The number of bits in each byte.
    TETRIS_FUNCTION static Register count_bytes(Bits words) {
        const Register nibble = R::load_repeated(vector_constants.nibble);
        const Register low = R::look_up(BIT_COUNTS, R::bit_and(words.r, nibble));
        const Register high = R::look_up(BIT_COUNTS, R::bit_and(R::shift_right(words.r, 4), nibble));
        return R::add_bytes(low, high);
    }
};

}  // namespace tetris
