// Sixteen placements at a time with SSE4.1, which all of Intel's x86-64 processors since 2008 and of AMD's since 2011
// have: what lanes_vector.h needs of a vector, in two registers.
#pragma once

#if defined(__SSE4_1__)

#include "lanes_vector.h"

namespace tetris {

// Sixteen 16-bit numbers in two registers, or eight floats.
struct Sse4Vector {
    struct Register {
        __m128i low, high;
    };
    struct Float {
        __m128 low, high;
    };

    TETRIS_FUNCTION static Register zero() { return twice(_mm_setzero_si128()); }
    TETRIS_FUNCTION static Register all_ones() { return twice(_mm_set1_epi16(-1)); }
    TETRIS_FUNCTION static Register repeat(int16_t value) { return twice(_mm_set1_epi16(value)); }
    TETRIS_FUNCTION static Register repeat_first(__m128i a) { return twice(_mm_shuffle_epi8(a, half(FIRST_LANE.byte))); }
    TETRIS_FUNCTION static Register load(const void* p) {
        const auto* halves = static_cast<const __m128i*>(p);
        return {_mm_load_si128(halves), _mm_load_si128(halves + 1)};
    }
    TETRIS_FUNCTION static Register load_repeated(const void* p) { return twice(half(p)); }
    TETRIS_FUNCTION static Register load_anywhere(const void* p) {
        const auto* halves = static_cast<const __m128i*>(p);
        return {_mm_loadu_si128(halves), _mm_loadu_si128(halves + 1)};
    }
    TETRIS_FUNCTION static void store_anywhere(Register a, void* p) {
        auto* halves = static_cast<__m128i*>(p);
        _mm_storeu_si128(halves, a.low);
        _mm_storeu_si128(halves + 1, a.high);
    }

    TETRIS_FUNCTION static Register bit_and(Register a, Register b) {
        return {_mm_and_si128(a.low, b.low), _mm_and_si128(a.high, b.high)};
    }
    TETRIS_FUNCTION static Register bit_or(Register a, Register b) {
        return {_mm_or_si128(a.low, b.low), _mm_or_si128(a.high, b.high)};
    }
    TETRIS_FUNCTION static Register bit_xor(Register a, Register b) {
        return {_mm_xor_si128(a.low, b.low), _mm_xor_si128(a.high, b.high)};
    }
    TETRIS_FUNCTION static Register and_not(Register a, Register b) {  // a & ~b
        return {_mm_andnot_si128(b.low, a.low), _mm_andnot_si128(b.high, a.high)};
    }
    TETRIS_FUNCTION static Register add(Register a, Register b) {
        return {_mm_add_epi16(a.low, b.low), _mm_add_epi16(a.high, b.high)};
    }
    TETRIS_FUNCTION static Register subtract(Register a, Register b) {
        return {_mm_sub_epi16(a.low, b.low), _mm_sub_epi16(a.high, b.high)};
    }
    TETRIS_FUNCTION static Register multiply(Register a, Register b) {
        return {_mm_mullo_epi16(a.low, b.low), _mm_mullo_epi16(a.high, b.high)};
    }
    TETRIS_FUNCTION static Register equal(Register a, Register b) {
        return {_mm_cmpeq_epi16(a.low, b.low), _mm_cmpeq_epi16(a.high, b.high)};
    }
    TETRIS_FUNCTION static Register greater(Register a, Register b) {
        return {_mm_cmpgt_epi16(a.low, b.low), _mm_cmpgt_epi16(a.high, b.high)};
    }
    TETRIS_FUNCTION static Register maximum(Register a, Register b) {
        return {_mm_max_epi16(a.low, b.low), _mm_max_epi16(a.high, b.high)};
    }
    TETRIS_FUNCTION static Register minimum_unsigned(Register a, Register b) {
        return {_mm_min_epu16(a.low, b.low), _mm_min_epu16(a.high, b.high)};
    }
    TETRIS_FUNCTION static Register shift_left(Register a, int n) {
        return {_mm_slli_epi16(a.low, n), _mm_slli_epi16(a.high, n)};
    }
    TETRIS_FUNCTION static Register shift_right(Register a, int n) {
        return {_mm_srli_epi16(a.low, n), _mm_srli_epi16(a.high, n)};
    }

    TETRIS_FUNCTION static Register look_up(const ByteTable& table, Register index) {
        const __m128i bytes = half(table.byte);
        return {_mm_shuffle_epi8(bytes, index.low), _mm_shuffle_epi8(bytes, index.high)};
    }
    TETRIS_FUNCTION static Register look_up_in(Register bytes, const ByteTable& index) {  // in each half
        const __m128i order = half(index.byte);
        return {_mm_shuffle_epi8(bytes.low, order), _mm_shuffle_epi8(bytes.high, order)};
    }
    TETRIS_FUNCTION static Register add_bytes(Register a, Register b) {
        return {_mm_add_epi8(a.low, b.low), _mm_add_epi8(a.high, b.high)};
    }
    TETRIS_FUNCTION static Register add_byte_pairs(Register a) {
        const __m128i one = half(vector_constants.one);
        return {_mm_maddubs_epi16(a.low, one), _mm_maddubs_epi16(a.high, one)};
    }

    TETRIS_FUNCTION static bool any(Register a) {
        const __m128i both = _mm_or_si128(a.low, a.high);
        return !_mm_testz_si128(both, both);
    }
    TETRIS_FUNCTION static unsigned lanes(Register mask) {
        return static_cast<unsigned>(_mm_movemask_epi8(_mm_packs_epi16(mask.low, mask.high)));
    }
    TETRIS_FUNCTION static int first(__m128i a) { return _mm_cvtsi128_si32(a); }
    // The union of all lanes, in the first one.
    TETRIS_FUNCTION static __m128i fold(Register a) {
        __m128i all = _mm_or_si128(a.low, a.high);
        all = _mm_or_si128(all, _mm_unpackhi_epi64(all, all));
        all = _mm_or_si128(all, _mm_srli_epi64(all, 32));
        return _mm_or_si128(all, _mm_srli_epi32(all, 16));
    }
    // The sum of all lanes, in the first 32 bits.
    TETRIS_FUNCTION static __m128i sum(Register a) {
        const __m128i one = half(vector_constants.number[1]);
        const __m128i four = _mm_madd_epi16(_mm_add_epi16(a.low, a.high), one);
        const __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
        return _mm_add_epi32(two, _mm_srli_epi64(two, 32));
    }
    // The sum of all bytes (none above 127), in the first 32 bits.
    TETRIS_FUNCTION static __m128i sum_bytes(Register a) {
        const __m128i halves = _mm_sad_epu8(_mm_add_epi8(a.low, a.high), _mm_setzero_si128());
        return _mm_add_epi32(halves, _mm_unpackhi_epi64(halves, halves));
    }

    // The union of every lane and those before it (fold_up), after it (fold_down).
    TETRIS_FUNCTION static Register fold_up(Register a) {
        const __m128i low = fold_half_up(a.low), high = fold_half_up(a.high);
        return {low, _mm_or_si128(high, _mm_shuffle_epi8(low, half(LAST_LANE.byte)))};
    }
    TETRIS_FUNCTION static Register fold_down(Register a) {
        const __m128i low = fold_half_down(a.low), high = fold_half_down(a.high);
        return {_mm_or_si128(low, _mm_shuffle_epi8(high, half(FIRST_LANE.byte))), high};
    }

    // Lane i becomes lane i - 1; a zero comes in.
    TETRIS_FUNCTION static Register move_up(Register a) {
        return {_mm_slli_si128(a.low, 2), _mm_alignr_epi8(a.high, a.low, 14)};
    }
    // Lane i becomes lane i + n; zeros come in.
    TETRIS_FUNCTION static Register move_down(Register a, int n) {
        return {join(a.high, a.low, n), join(_mm_setzero_si128(), a.high, n)};
    }
    // Lanes i and i + 8 become lane i + n.
    TETRIS_FUNCTION static Register move_down_twice(Register a, int n) { return twice(join(a.high, a.low, n)); }

    TETRIS_FUNCTION static Register interleave_low(Register a, Register b) {
        return {_mm_unpacklo_epi16(a.low, b.low), _mm_unpacklo_epi16(a.high, b.high)};
    }
    TETRIS_FUNCTION static Register interleave_high(Register a, Register b) {
        return {_mm_unpackhi_epi16(a.low, b.low), _mm_unpackhi_epi16(a.high, b.high)};
    }
    TETRIS_FUNCTION static Register narrow(Float low, Float high) {
        return {_mm_packs_epi32(_mm_castps_si128(low.low), _mm_castps_si128(high.low)),
                _mm_packs_epi32(_mm_castps_si128(low.high), _mm_castps_si128(high.high))};
    }
    TETRIS_FUNCTION static Float as_floats(Register a) { return {_mm_castsi128_ps(a.low), _mm_castsi128_ps(a.high)}; }
    TETRIS_FUNCTION static Float load_floats(const float* p) {
        const __m128 repeated = _mm_load_ps(p);
        return {repeated, repeated};
    }
    TETRIS_FUNCTION static Float floats(float value) { return {_mm_set1_ps(value), _mm_set1_ps(value)}; }
    TETRIS_FUNCTION static Float add(Float a, Float b) {
        return {_mm_add_ps(a.low, b.low), _mm_add_ps(a.high, b.high)};
    }
    TETRIS_FUNCTION static Float subtract(Float a, Float b) {
        return {_mm_sub_ps(a.low, b.low), _mm_sub_ps(a.high, b.high)};
    }
    TETRIS_FUNCTION static Float multiply(Float a, Float b) {
        return {_mm_mul_ps(a.low, b.low), _mm_mul_ps(a.high, b.high)};
    }
    TETRIS_FUNCTION static Float maximum(Float a, Float b) {
        return {_mm_max_ps(a.low, b.low), _mm_max_ps(a.high, b.high)};
    }
    TETRIS_FUNCTION static Float either(Float a, Float b) {
        return {_mm_or_ps(a.low, b.low), _mm_or_ps(a.high, b.high)};
    }
    TETRIS_FUNCTION static Float equal(Float a, Float b) {
        return {_mm_cmpeq_ps(a.low, b.low), _mm_cmpeq_ps(a.high, b.high)};
    }
    // The compiler may not put off the computation of `a`.
    TETRIS_FUNCTION static void keep_in_register(Float& a) { asm("" : "+x"(a.low), "+x"(a.high)); }
    TETRIS_FUNCTION static float most(Float a) {
        __m128 most = _mm_max_ps(a.low, a.high);
        most = _mm_max_ps(most, _mm_movehl_ps(most, most));
        return _mm_cvtss_f32(_mm_max_ss(most, _mm_movehdup_ps(most)));
    }

   private:
    TETRIS_FUNCTION static Register twice(__m128i a) { return {a, a}; }
    TETRIS_FUNCTION static __m128i half(const void* p) { return _mm_load_si128(static_cast<const __m128i*>(p)); }
    TETRIS_FUNCTION static __m128i fold_half_up(__m128i a) {
        a = _mm_or_si128(a, _mm_slli_si128(a, 2));
        a = _mm_or_si128(a, _mm_slli_si128(a, 4));
        return _mm_or_si128(a, _mm_slli_si128(a, 8));
    }
    TETRIS_FUNCTION static __m128i fold_half_down(__m128i a) {
        a = _mm_or_si128(a, _mm_srli_si128(a, 2));
        a = _mm_or_si128(a, _mm_srli_si128(a, 4));
        return _mm_or_si128(a, _mm_srli_si128(a, 8));
    }
    // Lanes n .. n + 7 of (low half, high half).
    TETRIS_FUNCTION static __m128i join(__m128i high, __m128i low, int n) {
        switch (n) {
            case 0: return low;
            case 1: return _mm_alignr_epi8(high, low, 2);
            case 2: return _mm_alignr_epi8(high, low, 4);
            case 3: return _mm_alignr_epi8(high, low, 6);
            case 4: return _mm_alignr_epi8(high, low, 8);
            case 5: return _mm_alignr_epi8(high, low, 10);
            case 6: return _mm_alignr_epi8(high, low, 12);
            case 7: return _mm_alignr_epi8(high, low, 14);
            default: return high;
        }
    }
};

using Sse4Lanes = VectorLanes<Sse4Vector>;

}  // namespace tetris

#endif  // __SSE4_1__
