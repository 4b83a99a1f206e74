// Sixteen placements at a time in 32-bit lanes with AVX2, in two registers of eight: for stacks that 16-bit lanes cannot
// hold. See lanes_scalar.h for what the names mean.
#pragma once

#if defined(__AVX2__)

#include <immintrin.h>

#include <cstring>

#include "lanes_vector.h"

namespace tetris {

struct Avx2TallLanes {
    struct Register {
        __m256i low, high;
    };
    using Word = uint32_t;
    static constexpr int LANES = 16;
    static constexpr int SLOTS = 16;
    static constexpr int TOP = 31;
    static constexpr int MAX_STACK = MAX_HEIGHT;
    static constexpr int MAX_GROUPS = 3;

    struct Mask {  // all ones or all zeros a lane
        Register r;
        TETRIS_FUNCTION friend Mask operator&(Mask a, Mask b) { return {bit_and(a.r, b.r)}; }
        TETRIS_FUNCTION friend Mask operator|(Mask a, Mask b) { return {bit_or(a.r, b.r)}; }
    };
    struct Bits {
        Register r;
        TETRIS_FUNCTION friend Bits operator&(Bits a, Bits b) { return {bit_and(a.r, b.r)}; }
        TETRIS_FUNCTION friend Bits operator|(Bits a, Bits b) { return {bit_or(a.r, b.r)}; }
        TETRIS_FUNCTION friend Bits operator^(Bits a, Bits b) { return {bit_xor(a.r, b.r)}; }
        TETRIS_FUNCTION friend Bits operator+(Bits a, Bits b) { return {add(a.r, b.r)}; }
        TETRIS_FUNCTION friend Bits operator-(Bits a, Bits b) { return {subtract(a.r, b.r)}; }
        TETRIS_FUNCTION friend Bits operator<<(Bits a, int n) {
            const __m128i count = _mm_cvtsi32_si128(n);
            return {{_mm256_sll_epi32(a.r.low, count), _mm256_sll_epi32(a.r.high, count)}};
        }
        TETRIS_FUNCTION friend Bits operator>>(Bits a, int n) {
            const __m128i count = _mm_cvtsi32_si128(n);
            return {{_mm256_srl_epi32(a.r.low, count), _mm256_srl_epi32(a.r.high, count)}};
        }
        TETRIS_FUNCTION friend Bits operator~(Bits a) { return {bit_xor(a.r, repeat(-1))}; }
        TETRIS_FUNCTION friend Bits operator-(Bits a) { return {subtract(repeat(0), a.r)}; }
        TETRIS_FUNCTION friend Mask operator==(Bits a, Bits b) { return {equal(a.r, b.r)}; }
    };
    struct Ints {
        Register r;
        TETRIS_FUNCTION friend Ints operator+(Ints a, Ints b) { return {add(a.r, b.r)}; }
        TETRIS_FUNCTION friend Ints operator-(Ints a, Ints b) { return {subtract(a.r, b.r)}; }
        TETRIS_FUNCTION friend Ints operator-(Ints a) { return {subtract(repeat(0), a.r)}; }
        TETRIS_FUNCTION friend Ints operator|(Ints a, Ints b) { return {bit_or(a.r, b.r)}; }
        TETRIS_FUNCTION friend Mask operator>(Ints a, Ints b) { return {greater(a.r, b.r)}; }
        TETRIS_FUNCTION friend Mask operator<(Ints a, Ints b) { return {greater(b.r, a.r)}; }
        TETRIS_FUNCTION friend Mask operator==(Ints a, Ints b) { return {equal(a.r, b.r)}; }
        TETRIS_FUNCTION int operator[](int lane) const { return reinterpret_cast<const Lane*>(&r)[lane]; }
    };
    struct Floats {
        __m256 low, high;
    };
    using Unit = Ints;  // how far a pattern is shifted
    using Weight = __m256;
    using ColumnBits = Bits;
    using ColumnInts = Ints;

    struct alignas(32) Constant {
        int32_t value[LANES] = {};
        constexpr void set(int lane, int v) { value[lane] = v; }
    };

    // See ScalarLanes.
    template <class T, class Columns>
    using Kept = Columns;
    using Keeper = ScalarLanes::Keeper;

    TETRIS_FUNCTION static Bits bits(const Constant& c) { return {load_aligned(c.value)}; }
    TETRIS_FUNCTION static Ints ints(const Constant& c) { return {load_aligned(c.value)}; }
    TETRIS_FUNCTION static Bits bits(Word value) { return {repeat(static_cast<int>(value))}; }
    TETRIS_FUNCTION static Ints ints(int value) { return {repeat(value)}; }
    TETRIS_FUNCTION static ColumnBits bits_everywhere(Word value) { return bits(value); }
    TETRIS_FUNCTION static ColumnInts ints_everywhere(int value) { return ints(value); }
    TETRIS_FUNCTION static Ints as_ints(Bits value) { return {value.r}; }
    TETRIS_FUNCTION static Floats floats(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
    template <int DENOMINATOR>
    TETRIS_FUNCTION static Weight weight(float value) {
        return _mm256_set1_ps(value);
    }
    template <int DENOMINATOR>
    TETRIS_FUNCTION static Floats to_floats(Ints value) {
        const Floats whole = {_mm256_cvtepi32_ps(value.r.low), _mm256_cvtepi32_ps(value.r.high)};
        if constexpr (DENOMINATOR == 1) return whole;
        const __m256 part = _mm256_set1_ps(1.0f / DENOMINATOR);
        return {_mm256_mul_ps(whole.low, part), _mm256_mul_ps(whole.high, part)};
    }
    // sum + weight * (value / DENOMINATOR).
    template <int DENOMINATOR>
    TETRIS_FUNCTION static Floats add_product(Floats sum, const Weight& weight, Ints value) {
        return add_product(sum, weight, to_floats<DENOMINATOR>(value));
    }
    TETRIS_FUNCTION static Floats add_product(Floats sum, const Weight& weight, Floats value) {
        return {_mm256_add_ps(sum.low, _mm256_mul_ps(weight, value.low)),
                _mm256_add_ps(sum.high, _mm256_mul_ps(weight, value.high))};
    }

    TETRIS_FUNCTION static Ints popcount(Bits value) { return {add_bytes_of_a_lane(count_bytes(value))}; }
    template <int COUNT>
    TETRIS_FUNCTION static Ints popcount_sum(const Bits (&words)[COUNT]) {
        Register bytes = count_bytes(words[0]);
        TETRIS_UNROLL for (int i = 1; i < COUNT; ++i) {
            const Register more = count_bytes(words[i]);
            bytes = {_mm256_add_epi8(bytes.low, more.low), _mm256_add_epi8(bytes.high, more.high)};
        }
        return {add_bytes_of_a_lane(bytes)};
    }
    TETRIS_FUNCTION static Ints run_length(Bits value) { return popcount(value); }
    TETRIS_FUNCTION static Ints times(Ints a, Ints b) {
        return {{_mm256_mullo_epi32(a.r.low, b.r.low), _mm256_mullo_epi32(a.r.high, b.r.high)}};
    }
    TETRIS_FUNCTION static Ints triangle(Ints n) {  // n (n + 1) / 2 of numbers that 16 bits hold
        const Register next = add(n.r, repeat(1));
        return {{_mm256_srli_epi32(_mm256_madd_epi16(n.r.low, next.low), 1),
                 _mm256_srli_epi32(_mm256_madd_epi16(n.r.high, next.high), 1)}};
    }
    TETRIS_FUNCTION static Ints popcount_near(Bits first, Bits second) {
        return popcount(first | (second << 16) | (second >> 16));
    }
    TETRIS_FUNCTION static Ints popcount_small(Bits value) { return popcount(value); }

    TETRIS_FUNCTION static Mask exceeds(Ints a, Ints b) { return a > b; }
    TETRIS_FUNCTION static Mask flag(Ints value) { return {value.r}; }
    TETRIS_FUNCTION static Mask without(Mask a, Mask b) { return {and_not(a.r, b.r)}; }
    TETRIS_FUNCTION static Bits without(Bits a, Bits b) { return {and_not(a.r, b.r)}; }
    TETRIS_FUNCTION static unsigned lanes(Mask condition) { return signs(condition.r); }
    TETRIS_FUNCTION static Ints maximum(Ints a, Ints b) {
        return {{_mm256_max_epi32(a.r.low, b.r.low), _mm256_max_epi32(a.r.high, b.r.high)}};
    }
    TETRIS_FUNCTION static Ints select(Mask condition, Ints a, Ints b) { return {blend(condition.r, a.r, b.r)}; }
    TETRIS_FUNCTION static Bits select(Mask condition, Bits a, Bits b) { return {blend(condition.r, a.r, b.r)}; }
    TETRIS_FUNCTION static Ints where(Mask condition, Ints value) { return {bit_and(condition.r, value.r)}; }
    TETRIS_FUNCTION static Bits bits_where(Mask condition, Bits value) { return {bit_and(condition.r, value.r)}; }
    TETRIS_FUNCTION static Ints count(Mask condition) { return {subtract(repeat(0), condition.r)}; }
    TETRIS_FUNCTION static bool any(Bits value) {
        const __m256i both = _mm256_or_si256(value.r.low, value.r.high);
        return !_mm256_testz_si256(both, both);
    }
    TETRIS_FUNCTION static Unit row_unit(Ints row) { return ints(TOP - 3) - row; }
    TETRIS_FUNCTION static Bits rows(const Constant& pattern, Unit unit) {
        return {shift_left(load_aligned(pattern.value), unit.r)};
    }
    // Shifts beyond the word give 0.
    TETRIS_FUNCTION static Bits step_flag(Ints step) {
        return {bit_and(shift_left(repeat(1), (step - ints(1)).r), repeat(31))};
    }
    TETRIS_FUNCTION static Ints nonzero(Bits columns) { return {bit_xor(equal(columns.r, repeat(0)), repeat(-1))}; }

    TETRIS_FUNCTION static uint32_t negative(Ints columns) { return signs(columns.r) >> (FIRST_COLUMN - 1); }
    template <uint32_t PATTERN, int WIDTH>
    TETRIS_FUNCTION static Bits in_columns(const ShapeLanes<Avx2TallLanes, WIDTH>&) {
        return {load_aligned(COLUMN_SETS<int32_t, PATTERN, WIDTH>.lane)};
    }
    template <class Shapes>
    TETRIS_FUNCTION static Bits in_columns(const Constant& pattern, const Shapes&) {
        return bits(pattern);
    }

    // Three columns wide, two shapes share a vector: both halves see the same columns.
    template <int WIDTH, class T>
    TETRIS_FUNCTION static T at(T columns, const ShapeLanes<Avx2TallLanes, WIDTH>&, int k) {
        const Register moved = move_down(columns.r, k + FIRST_COLUMN);
        if constexpr (WIDTH != 3) return {moved};
        return {{moved.low, moved.low}};
    }
    template <class T>
    TETRIS_FUNCTION static T left(T columns) {
        return {move_up<1>(columns.r)};
    }
    template <class T>
    TETRIS_FUNCTION static T right(T columns) {
        return {move_down(columns.r, 1)};
    }
    TETRIS_FUNCTION static int sum(Ints columns) {
        const __m256i eight = _mm256_add_epi32(columns.r.low, columns.r.high);
        const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
        const __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
        return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_srli_epi64(two, 32)));
    }
    TETRIS_FUNCTION static Ints total(Ints columns) { return ints(sum(columns)); }
    TETRIS_FUNCTION static int count_bits(Bits columns) { return sum(popcount(columns)); }
    TETRIS_FUNCTION static Ints count_bits_everywhere(Bits columns) { return total(popcount(columns)); }
    TETRIS_FUNCTION static Word or_columns(Bits columns) {
        const __m256i eight = _mm256_or_si256(columns.r.low, columns.r.high);
        const __m128i four = _mm_or_si128(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
        const __m128i two = _mm_or_si128(four, _mm_unpackhi_epi64(four, four));
        return static_cast<Word>(_mm_cvtsi128_si32(_mm_or_si128(two, _mm_srli_epi64(two, 32))));
    }
    TETRIS_FUNCTION static Bits or_all(Bits columns) { return bits(or_columns(columns)); }
    TETRIS_FUNCTION static Bits or_up_to(Bits columns) {
        Register seen = columns.r;
        seen = bit_or(seen, move_up<1>(seen));
        seen = bit_or(seen, move_up<2>(seen));
        seen = bit_or(seen, move_up<4>(seen));
        return {bit_or(seen, move_up<8>(seen))};
    }
    TETRIS_FUNCTION static Bits or_from(Bits columns) {
        Register seen = columns.r;
        seen = bit_or(seen, move_down(seen, 1));
        seen = bit_or(seen, move_down(seen, 2));
        seen = bit_or(seen, move_down(seen, 4));
        return {bit_or(seen, move_down(seen, 8))};
    }
    TETRIS_FUNCTION static Bits load(const Word* slots) {
        const auto* halves = reinterpret_cast<const __m256i*>(slots);
        return {{_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)}};
    }
    TETRIS_FUNCTION static void store(Bits columns, Word* slots) {
        auto* halves = reinterpret_cast<__m256i*>(slots);
        _mm256_storeu_si256(halves, columns.r.low);
        _mm256_storeu_si256(halves + 1, columns.r.high);
    }

    TETRIS_FUNCTION static Bits piece_columns(int piece, int orientation, int column, int row) {
        const Word* slots = PIECE_COLUMNS<Word>.slots[piece][orientation] + PieceColumns<Word>::OFFSET;
        return load(slots - FIRST_COLUMN - column) >> row;
    }
    TETRIS_FUNCTION static int landing_row(const Ints& heights, const Shape& shape, int x) {
        const auto* columns = reinterpret_cast<const Lane*>(&heights.r) + FIRST_COLUMN + x;
        int32_t rows;
        std::memcpy(&rows, shape.first_row, sizeof(rows));
        const __m128i height = _mm_loadu_si128(reinterpret_cast<const __m128i*>(columns));
        __m128i row = _mm_sub_epi32(height, _mm_cvtepi8_epi32(_mm_cvtsi32_si128(rows)));
        row = _mm_max_epi32(row, _mm_unpackhi_epi64(row, row));
        row = _mm_max_epi32(row, _mm_srli_epi64(row, 32));
        return _mm_cvtsi128_si32(row);
    }

    // The scores of all groups of placements so far, NaN for what is no candidate.
    struct Best {
        Floats score[MAX_GROUPS];
        const int* order[MAX_GROUPS];
        int groups = 0;
        __m256 most = _mm256_set1_ps(NEVER);
        TETRIS_FUNCTION Best() {}  // the scores stay unwritten
    };
    TETRIS_FUNCTION static bool worthwhile(Mask) { return true; }
    template <int WIDTH>
    TETRIS_FUNCTION static void consider(Best& best, Floats score, Mask candidate,
                                         const Group<Avx2TallLanes, WIDTH>& group) {
        const Register other = bit_xor(candidate.r, repeat(-1));
        score = {_mm256_or_ps(score.low, _mm256_castsi256_ps(other.low)),
                 _mm256_or_ps(score.high, _mm256_castsi256_ps(other.high))};
        best.most = _mm256_max_ps(score.low, best.most);  // of NaN and a number the second operand
        best.most = _mm256_max_ps(score.high, best.most);
        best.score[best.groups] = score;
        best.order[best.groups] = group.order;
        ++best.groups;
    }
    TETRIS_FUNCTION static Choice first_best(const Best& best) {
        __m128 most = _mm_max_ps(_mm256_castps256_ps128(best.most), _mm256_extractf128_ps(best.most, 1));
        most = _mm_max_ps(most, _mm_movehl_ps(most, most));
        const float score = _mm_cvtss_f32(_mm_max_ss(most, _mm_movehdup_ps(most)));
        if (score == NEVER) return NO_CHOICE;
        const __m256 all = _mm256_set1_ps(score);
        uint64_t equal = 0;
        for (int i = 0; i < best.groups; ++i) {
            const auto found = [&](__m256 scores) {
                return static_cast<uint64_t>(_mm256_movemask_ps(_mm256_cmp_ps(scores, all, _CMP_EQ_OQ)));
            };
            equal |= found(best.score[i].low) << best.order[i][0] | found(best.score[i].high) << best.order[i][1];
        }
        return {score, lowest_bit(equal)};
    }

    typedef int32_t Lane __attribute__((may_alias));

    // What the operators above are made of.
    TETRIS_FUNCTION static Register repeat(int value) { return {_mm256_set1_epi32(value), _mm256_set1_epi32(value)}; }
    TETRIS_FUNCTION static Register load_aligned(const int32_t* p) {
        const auto* halves = reinterpret_cast<const __m256i*>(p);
        return {_mm256_load_si256(halves), _mm256_load_si256(halves + 1)};
    }
    TETRIS_FUNCTION static Register bit_and(Register a, Register b) {
        return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
    }
    TETRIS_FUNCTION static Register bit_or(Register a, Register b) {
        return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
    }
    TETRIS_FUNCTION static Register bit_xor(Register a, Register b) {
        return {_mm256_xor_si256(a.low, b.low), _mm256_xor_si256(a.high, b.high)};
    }
    TETRIS_FUNCTION static Register and_not(Register a, Register b) {  // a & ~b
        return {_mm256_andnot_si256(b.low, a.low), _mm256_andnot_si256(b.high, a.high)};
    }
    TETRIS_FUNCTION static Register add(Register a, Register b) {
        return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
    }
    TETRIS_FUNCTION static Register subtract(Register a, Register b) {
        return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
    }
    TETRIS_FUNCTION static Register equal(Register a, Register b) {
        return {_mm256_cmpeq_epi32(a.low, b.low), _mm256_cmpeq_epi32(a.high, b.high)};
    }
    TETRIS_FUNCTION static Register greater(Register a, Register b) {
        return {_mm256_cmpgt_epi32(a.low, b.low), _mm256_cmpgt_epi32(a.high, b.high)};
    }
    TETRIS_FUNCTION static Register shift_left(Register a, Register n) {
        return {_mm256_sllv_epi32(a.low, n.low), _mm256_sllv_epi32(a.high, n.high)};
    }
    TETRIS_FUNCTION static Register blend(Register condition, Register a, Register b) {
        return {_mm256_blendv_epi8(b.low, a.low, condition.low), _mm256_blendv_epi8(b.high, a.high, condition.high)};
    }
    // A bit a lane: whether it is negative.
    TETRIS_FUNCTION static unsigned signs(Register a) {
        return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(a.low)) |
                                     _mm256_movemask_ps(_mm256_castsi256_ps(a.high)) << 8);
    }

    // The number of bits in each byte, and the sum of the bytes of a lane.
    TETRIS_FUNCTION static __m256i count_bytes(__m256i words) {
        const __m256i nibble = load_bytes(vector_constants.nibble), counts = load_bytes(BIT_COUNTS.byte);
        const __m256i low = _mm256_shuffle_epi8(counts, _mm256_and_si256(words, nibble));
        const __m256i high = _mm256_shuffle_epi8(counts, _mm256_and_si256(_mm256_srli_epi16(words, 4), nibble));
        return _mm256_add_epi8(low, high);
    }
    TETRIS_FUNCTION static Register count_bytes(Bits words) { return {count_bytes(words.r.low), count_bytes(words.r.high)}; }
    TETRIS_FUNCTION static __m256i add_bytes_of_a_lane(__m256i bytes) {
        const __m256i pairs = _mm256_maddubs_epi16(bytes, load_bytes(vector_constants.one));
        return _mm256_madd_epi16(pairs, load_bytes(vector_constants.number[1]));
    }
    TETRIS_FUNCTION static Register add_bytes_of_a_lane(Register bytes) {
        return {add_bytes_of_a_lane(bytes.low), add_bytes_of_a_lane(bytes.high)};
    }
    TETRIS_FUNCTION static __m256i load_bytes(const void* p) { return _mm256_load_si256(static_cast<const __m256i*>(p)); }

    // Lane i becomes lane i - N (move_up) or i + n (move_down); zeros come in.
    template <int N>
    TETRIS_FUNCTION static Register move_up(Register a) {
        if constexpr (N == 8) return {_mm256_setzero_si256(), a.low};
        const __m256i low = _mm256_permute2x128_si256(a.low, a.low, 0x08);
        const __m256i high = _mm256_permute2x128_si256(a.low, a.high, 0x21);
        if constexpr (N == 4) return {low, high};
        return {_mm256_alignr_epi8(a.low, low, 16 - 4 * (N % 4)), _mm256_alignr_epi8(a.high, high, 16 - 4 * (N % 4))};
    }
    TETRIS_FUNCTION static Register move_down(Register a, int n) {
        const Register four = {_mm256_permute2x128_si256(a.low, a.high, 0x21),
                               _mm256_permute2x128_si256(a.high, a.high, 0x81)};
        const Register eight = {a.high, _mm256_setzero_si256()};
        switch (n) {
            case 0: return a;
            case 1: return join<1>(four, a);
            case 2: return join<2>(four, a);
            case 3: return join<3>(four, a);
            case 4: return four;
            case 5: return join<1>(eight, four);
            case 6: return join<2>(eight, four);
            case 7: return join<3>(eight, four);
            default: return eight;
        }
    }
    template <int N>
    TETRIS_FUNCTION static Register join(Register next, Register a) {
        return {_mm256_alignr_epi8(next.low, a.low, 4 * N), _mm256_alignr_epi8(next.high, a.high, 4 * N)};
    }
};

}  // namespace tetris

#endif  // __AVX2__
