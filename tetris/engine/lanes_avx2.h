// Sixteen placements at a time with AVX2: what lanes_vector.h needs of a vector.
#pragma once

#if defined(__AVX2__)

#include "lanes_vector.h"

namespace tetris {

// Sixteen 16-bit numbers in one register, or eight floats.
struct Avx2Vector {
    using Register = __m256i;
    using Float = __m256;

    TETRIS_FUNCTION static Register zero() { return _mm256_setzero_si256(); }
    TETRIS_FUNCTION static Register all_ones() { return _mm256_set1_epi16(-1); }
    TETRIS_FUNCTION static Register repeat(int16_t value) { return _mm256_set1_epi16(value); }
    TETRIS_FUNCTION static Register repeat_first(__m128i value) { return _mm256_broadcastw_epi16(value); }
    TETRIS_FUNCTION static Register load(const void* p) { return _mm256_load_si256(static_cast<const __m256i*>(p)); }
    TETRIS_FUNCTION static Register load_repeated(const void* p) { return load(p); }
    TETRIS_FUNCTION static Register load_anywhere(const void* p) {
        return _mm256_loadu_si256(static_cast<const __m256i*>(p));
    }
    TETRIS_FUNCTION static void store_anywhere(Register a, void* p) {
        _mm256_storeu_si256(static_cast<__m256i*>(p), a);
    }

    TETRIS_FUNCTION static Register bit_and(Register a, Register b) { return _mm256_and_si256(a, b); }
    TETRIS_FUNCTION static Register bit_or(Register a, Register b) { return _mm256_or_si256(a, b); }
    TETRIS_FUNCTION static Register bit_xor(Register a, Register b) { return _mm256_xor_si256(a, b); }
    TETRIS_FUNCTION static Register and_not(Register a, Register b) { return _mm256_andnot_si256(b, a); }  // a & ~b
    TETRIS_FUNCTION static Register add(Register a, Register b) { return _mm256_add_epi16(a, b); }
    TETRIS_FUNCTION static Register subtract(Register a, Register b) { return _mm256_sub_epi16(a, b); }
    TETRIS_FUNCTION static Register multiply(Register a, Register b) { return _mm256_mullo_epi16(a, b); }
    TETRIS_FUNCTION static Register equal(Register a, Register b) { return _mm256_cmpeq_epi16(a, b); }
    TETRIS_FUNCTION static Register greater(Register a, Register b) { return _mm256_cmpgt_epi16(a, b); }
    TETRIS_FUNCTION static Register maximum(Register a, Register b) { return _mm256_max_epi16(a, b); }
    TETRIS_FUNCTION static Register minimum_unsigned(Register a, Register b) { return _mm256_min_epu16(a, b); }
    TETRIS_FUNCTION static Register shift_left(Register a, int n) {
        return __builtin_constant_p(n) ? _mm256_slli_epi16(a, n) : _mm256_sll_epi16(a, _mm_cvtsi32_si128(n));
    }
    TETRIS_FUNCTION static Register shift_right(Register a, int n) {
        return __builtin_constant_p(n) ? _mm256_srli_epi16(a, n) : _mm256_srl_epi16(a, _mm_cvtsi32_si128(n));
    }

    TETRIS_FUNCTION static Register look_up(const ByteTable& table, Register index) {
        return _mm256_shuffle_epi8(load(table.byte), index);
    }
    TETRIS_FUNCTION static Register look_up_in(Register bytes, const ByteTable& index) {  // in each half
        return _mm256_shuffle_epi8(bytes, load(index.byte));
    }
    TETRIS_FUNCTION static Register add_bytes(Register a, Register b) { return _mm256_add_epi8(a, b); }
    TETRIS_FUNCTION static Register add_byte_pairs(Register a) {
        return _mm256_maddubs_epi16(a, load(vector_constants.one));
    }

    TETRIS_FUNCTION static bool any(Register a) { return !_mm256_testz_si256(a, a); }
    TETRIS_FUNCTION static unsigned lanes(Register mask) {
        const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(mask), _mm256_extracti128_si256(mask, 1));
        return static_cast<unsigned>(_mm_movemask_epi8(bytes));
    }
    TETRIS_FUNCTION static int first(__m128i a) { return _mm_cvtsi128_si32(a); }
    // The union of all lanes, in the first one.
    TETRIS_FUNCTION static __m128i fold(Register a) {
        __m128i all = _mm_or_si128(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
        all = _mm_or_si128(all, _mm_unpackhi_epi64(all, all));
        all = _mm_or_si128(all, _mm_srli_epi64(all, 32));
        return _mm_or_si128(all, _mm_srli_epi32(all, 16));
    }
    // The sum of all lanes, in the first 32 bits.
    TETRIS_FUNCTION static __m128i sum(Register a) {
        const __m256i pairs = _mm256_madd_epi16(a, load(vector_constants.number[1]));
        const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
        const __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
        return _mm_add_epi32(two, _mm_srli_epi64(two, 32));
    }
    // The sum of all bytes, in the first 32 bits.
    TETRIS_FUNCTION static __m128i sum_bytes(Register a) {
        const __m256i quarters = _mm256_sad_epu8(a, zero());
        const __m128i halves = _mm_add_epi32(_mm256_castsi256_si128(quarters), _mm256_extracti128_si256(quarters, 1));
        return _mm_add_epi32(halves, _mm_unpackhi_epi64(halves, halves));
    }

    // The union of every lane and those before it (fold_up), after it (fold_down): in each half, then across.
    TETRIS_FUNCTION static Register fold_up(Register a) {
        a = bit_or(a, _mm256_slli_si256(a, 2));
        a = bit_or(a, _mm256_slli_si256(a, 4));
        a = bit_or(a, _mm256_slli_si256(a, 8));
        const __m256i last = look_up_in(a, LAST_LANE);
        return bit_or(a, _mm256_permute2x128_si256(last, last, 0x08));
    }
    TETRIS_FUNCTION static Register fold_down(Register a) {
        a = bit_or(a, _mm256_srli_si256(a, 2));
        a = bit_or(a, _mm256_srli_si256(a, 4));
        a = bit_or(a, _mm256_srli_si256(a, 8));
        const __m256i first = look_up_in(a, FIRST_LANE);
        return bit_or(a, _mm256_permute2x128_si256(first, first, 0x81));
    }

    // Lane i becomes lane i - 1; a zero comes in.
    TETRIS_FUNCTION static Register move_up(Register a) {
        return _mm256_alignr_epi8(a, _mm256_permute2x128_si256(a, a, 0x08), 14);
    }
    // Lane i becomes lane i + n; zeros come in.
    TETRIS_FUNCTION static Register move_down(Register a, int n) {
        return join(_mm256_permute2x128_si256(a, a, 0x81), a, n);  // (high half, 0)
    }
    // Lanes i and i + 8 become lane i + n.
    TETRIS_FUNCTION static Register move_down_twice(Register a, int n) {
        return join(_mm256_permute2x128_si256(a, a, 0x11), _mm256_permute2x128_si256(a, a, 0x00), n);
    }

    TETRIS_FUNCTION static Register interleave_low(Register a, Register b) { return _mm256_unpacklo_epi16(a, b); }
    TETRIS_FUNCTION static Register interleave_high(Register a, Register b) { return _mm256_unpackhi_epi16(a, b); }
    TETRIS_FUNCTION static Register narrow(Float low, Float high) {
        return _mm256_packs_epi32(_mm256_castps_si256(low), _mm256_castps_si256(high));
    }
    TETRIS_FUNCTION static Float as_floats(Register a) { return _mm256_castsi256_ps(a); }
    TETRIS_FUNCTION static Float load_floats(const float* p) { return _mm256_load_ps(p); }
    TETRIS_FUNCTION static Float floats(float value) { return _mm256_set1_ps(value); }
    TETRIS_FUNCTION static Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
    TETRIS_FUNCTION static Float subtract(Float a, Float b) { return _mm256_sub_ps(a, b); }
    TETRIS_FUNCTION static Float multiply(Float a, Float b) { return _mm256_mul_ps(a, b); }
    TETRIS_FUNCTION static Float maximum(Float a, Float b) { return _mm256_max_ps(a, b); }
    TETRIS_FUNCTION static Float either(Float a, Float b) { return _mm256_or_ps(a, b); }
    TETRIS_FUNCTION static Float equal(Float a, Float b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
    // The compiler may not put off the computation of `a`.
    TETRIS_FUNCTION static void keep_in_register(Float& a) { asm("" : "+x"(a)); }
    TETRIS_FUNCTION static float most(Float a) {
        __m128 most = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
        most = _mm_max_ps(most, _mm_movehl_ps(most, most));
        return _mm_cvtss_f32(_mm_max_ss(most, _mm_movehdup_ps(most)));
    }

   private:
    // Lanes n .. n + 7 of (low half, high half), in both halves.
    TETRIS_FUNCTION static Register join(Register high, Register low, int n) {
        switch (n) {
            case 0: return low;
            case 1: return _mm256_alignr_epi8(high, low, 2);
            case 2: return _mm256_alignr_epi8(high, low, 4);
            case 3: return _mm256_alignr_epi8(high, low, 6);
            case 4: return _mm256_alignr_epi8(high, low, 8);
            case 5: return _mm256_alignr_epi8(high, low, 10);
            case 6: return _mm256_alignr_epi8(high, low, 12);
            case 7: return _mm256_alignr_epi8(high, low, 14);
            default: return high;
        }
    }
};

using Avx2Lanes = VectorLanes<Avx2Vector>;

}  // namespace tetris

#endif  // __AVX2__
