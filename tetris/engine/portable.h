// What host and device code need alike: function qualifiers and operations on bits.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define TETRIS_FUNCTION __host__ __device__ __forceinline__
#define TETRIS_OUTLINE __host__ __device__ __noinline__
#define TETRIS_UNROLL _Pragma("unroll")
#else
#define TETRIS_FUNCTION inline __attribute__((always_inline))
#define TETRIS_OUTLINE __attribute__((noinline))
#define TETRIS_UNROLL _Pragma("GCC unroll 16")
#endif

namespace tetris {

TETRIS_FUNCTION int popcount(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __popc(bits);
#elif defined(__x86_64__) && !defined(__POPCNT__)
  // The compiler would call a library function.
  bits -= bits >> 1 & 0x55555555u;
  bits = (bits & 0x33333333u) + (bits >> 2 & 0x33333333u);
  return static_cast<int>(((bits + (bits >> 4)) & 0x0F0F0F0Fu) * 0x01010101u >> 24);
#else
  return __builtin_popcount(bits);
#endif
}

TETRIS_FUNCTION int popcount64(uint64_t bits) {
#if defined(__CUDA_ARCH__)
  return __popcll(bits);
#elif defined(__x86_64__) && !defined(__POPCNT__)
  bits -= bits >> 1 & 0x5555555555555555u;
  bits = (bits & 0x3333333333333333u) + (bits >> 2 & 0x3333333333333333u);
  return static_cast<int>(((bits + (bits >> 4)) & 0x0F0F0F0F0F0F0F0Fu) * 0x0101010101010101u >> 56);
#else
  return __builtin_popcountll(bits);
#endif
}

// The number of bits of a word whose set bits are neighbours.
TETRIS_FUNCTION int run_length(uint32_t bits) {
#if !defined(__CUDA_ARCH__) && defined(__x86_64__) && !defined(__POPCNT__)
  return bits != 0 ? 32 - __builtin_clz(bits) - __builtin_ctz(bits) : 0;
#else
  return popcount(bits);
#endif
}

// The highest set bit and all below it.
TETRIS_FUNCTION uint32_t from_highest_bit(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __funnelshift_rc(~0u, 0u, __clz(bits));  // 32 where no bit is set, and the shift clamps
#else
  bits |= bits >> 1;
  bits |= bits >> 2;
  bits |= bits >> 4;
  bits |= bits >> 8;
  return bits | bits >> 16;
#endif
}

// The index of the lowest set bit; bits is not 0.
TETRIS_FUNCTION int lowest_bit(uint64_t bits) {
#if defined(__CUDA_ARCH__)
  return __ffsll(static_cast<long long>(bits)) - 1;
#else
  return __builtin_ctzll(bits);
#endif
}

}  // namespace tetris
