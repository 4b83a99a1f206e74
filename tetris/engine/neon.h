// The instructions of SSE4 that vectors.h uses, implemented with instructions of NEON under
// their SSE4 names.
#pragma once

#if defined(__aarch64__)

#include <arm_neon.h>

#include "host_device.h"

typedef long long __m128i __attribute__((vector_size(16)));

#define _mm_alignr_epi8(high, low, n) \
  ((__m128i)vextq_u8((uint8x16_t)(low), (uint8x16_t)(high), n))
TETRIS_FUNCTION __m128i _mm_setzero_si128() { return __m128i{}; }
TETRIS_FUNCTION __m128i _mm_set1_epi16(int16_t a) { return (__m128i)vdupq_n_s16(a); }
TETRIS_FUNCTION __m128i _mm_cvtsi32_si128(int32_t a) {
  return (__m128i)vsetq_lane_s32(a, vdupq_n_s32(0), 0);
}
TETRIS_FUNCTION __m128i _mm_loadl_epi64(const __m128i* p) {
  return (__m128i)vcombine_s16(vld1_s16((const int16_t*)p), vdup_n_s16(0));
}
TETRIS_FUNCTION __m128i _mm_andnot_si128(__m128i a, __m128i b) {
  return (__m128i)vbicq_s64((int64x2_t)b, (int64x2_t)a);
}
TETRIS_FUNCTION __m128i _mm_add_epi32(__m128i a, __m128i b) {
  return (__m128i)vaddq_s32((int32x4_t)a, (int32x4_t)b);
}
TETRIS_FUNCTION __m128i _mm_madd_epi16(__m128i a, __m128i b) {
  int32x4_t low = vmull_s16(vget_low_s16((int16x8_t)a), vget_low_s16((int16x8_t)b));
  return (__m128i)vpaddq_s32(low, vmull_high_s16((int16x8_t)a, (int16x8_t)b));
}
// Only the lower four bits of an index count; an index above 127 yields 0.
TETRIS_FUNCTION __m128i _mm_shuffle_epi8(__m128i table, __m128i index) {
  return (__m128i)vqtbl1q_u8((uint8x16_t)table, vandq_u8((uint8x16_t)index, vdupq_n_u8(0x8F)));
}
// The bytes of the second operand are 1 wherever vectors.h uses it, so the results are the sums
// of neighbouring bytes.
TETRIS_FUNCTION __m128i _mm_maddubs_epi16(__m128i a, __m128i) {
  return (__m128i)vpaddlq_u8((uint8x16_t)a);
}
// The second operand is 0 wherever vectors.h uses it, so the sums of absolute differences are
// the sums of eight bytes.
TETRIS_FUNCTION __m128i _mm_sad_epu8(__m128i a, __m128i) {
  return (__m128i)vpaddlq_u32(vpaddlq_u16(vpaddlq_u8((uint8x16_t)a)));
}
TETRIS_FUNCTION __m128i _mm_unpackhi_epi64(__m128i a, __m128i b) {
  return (__m128i)vzip2q_s64((int64x2_t)a, (int64x2_t)b);
}
TETRIS_FUNCTION __m128i _mm_unpacklo_epi16(__m128i a, __m128i b) {
  return (__m128i)vzip1q_s16((int16x8_t)a, (int16x8_t)b);
}
TETRIS_FUNCTION __m128i _mm_unpackhi_epi16(__m128i a, __m128i b) {
  return (__m128i)vzip2q_s16((int16x8_t)a, (int16x8_t)b);
}
TETRIS_FUNCTION __m128i _mm_packs_epi16(__m128i a, __m128i b) {
  return (__m128i)vcombine_s8(vqmovn_s16((int16x8_t)a), vqmovn_s16((int16x8_t)b));
}
TETRIS_FUNCTION __m128i _mm_packs_epi32(__m128i a, __m128i b) {
  return (__m128i)vcombine_s16(vqmovn_s32((int32x4_t)a), vqmovn_s32((int32x4_t)b));
}
TETRIS_FUNCTION __m128i _mm_cvtepi16_epi32(__m128i a) {
  return (__m128i)vmovl_s16(vget_low_s16((int16x8_t)a));
}
TETRIS_FUNCTION __m128i _mm_cvtepi8_epi32(__m128i a) {
  return (__m128i)vmovl_s16(vget_low_s16(vmovl_s8(vget_low_s8((int8x16_t)a))));
}
TETRIS_FUNCTION int _mm_testz_si128(__m128i a, __m128i b) {
  return vmaxvq_u32((uint32x4_t)(a & b)) == 0;
}
TETRIS_FUNCTION int _mm_movemask_epi8(__m128i a) {
  uint8x16_t place = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  uint8x16_t bits = vandq_u8((uint8x16_t)vshrq_n_s8((int8x16_t)a, 7), place);
  return vaddv_u8(vget_low_u8(bits)) | vaddv_u8(vget_high_u8(bits)) << 8;
}

// vectors.h uses instructions for registers of 32 and 64 bytes in branches that are not
// compiled for ARM. The compiler still parses these branches, so the names have to be declared.
typedef __m128i __m256, __m256i, __m512i;
#define TETRIS_ABSENT(name)    \
  template <class... Operands> \
  int name(Operands...);
TETRIS_ABSENT(_cvtmask16_u32)
TETRIS_ABSENT(_mm256_alignr_epi8)
TETRIS_ABSENT(_mm256_andnot_si256)
TETRIS_ABSENT(_mm256_broadcastd_epi32)
TETRIS_ABSENT(_mm256_broadcastw_epi16)
TETRIS_ABSENT(_mm256_extracti128_si256)
TETRIS_ABSENT(_mm256_madd_epi16)
TETRIS_ABSENT(_mm256_maddubs_epi16)
TETRIS_ABSENT(_mm256_movemask_ps)
TETRIS_ABSENT(_mm256_packs_epi32)
TETRIS_ABSENT(_mm256_permute2x128_si256)
TETRIS_ABSENT(_mm256_set1_epi16)
TETRIS_ABSENT(_mm256_shuffle_epi8)
TETRIS_ABSENT(_mm256_slli_si256)
TETRIS_ABSENT(_mm256_srli_si256)
TETRIS_ABSENT(_mm256_testz_si256)
TETRIS_ABSENT(_mm256_unpackhi_epi16)
TETRIS_ABSENT(_mm256_unpacklo_epi16)
TETRIS_ABSENT(_mm512_alignr_epi32)
TETRIS_ABSENT(_mm512_andnot_si512)
TETRIS_ABSENT(_mm512_broadcastd_epi32)
TETRIS_ABSENT(_mm512_extracti64x4_epi64)
TETRIS_ABSENT(_mm512_load_si512)
TETRIS_ABSENT(_mm512_madd_epi16)
TETRIS_ABSENT(_mm512_movepi32_mask)
TETRIS_ABSENT(_mm512_permutexvar_epi32)
TETRIS_ABSENT(_mm512_test_epi32_mask)
#undef TETRIS_ABSENT

#endif  // __aarch64__
