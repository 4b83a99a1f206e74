// Macros and bit operations for code that is compiled for CPUs and for GPUs.
#pragma once

#include <cstdint>

// TETRIS_FUNCTION marks a function for both that is always inlined. TETRIS_OUTLINE marks a
// function for both that is never inlined. TETRIS_UNROLL marks a loop that is unrolled, and
// TETRIS_UNROLL_4 a loop of which a GPU gets four rounds at a time.
#if defined(__CUDACC__)
#define TETRIS_FUNCTION __host__ __device__ __forceinline__
#define TETRIS_OUTLINE __host__ __device__ __noinline__
#define TETRIS_UNROLL _Pragma("unroll")
#define TETRIS_UNROLL_4 _Pragma("unroll 4")
#else
#define TETRIS_FUNCTION inline __attribute__((always_inline))
#define TETRIS_OUTLINE __attribute__((noinline))
#define TETRIS_UNROLL _Pragma("GCC unroll 16")
#define TETRIS_UNROLL_4
#endif

namespace tetris {

TETRIS_FUNCTION int popcount(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __popc(bits);
#else
  return __builtin_popcount(bits);
#endif
}

TETRIS_FUNCTION int popcount64(uint64_t bits) {
#if defined(__CUDA_ARCH__)
  return __popcll(bits);
#else
  return __builtin_popcountll(bits);
#endif
}

// Returns the index of the lowest set bit; `bits` must not be 0.
TETRIS_FUNCTION int lowest_bit(uint64_t bits) {
#if defined(__CUDA_ARCH__)
  return __ffsll(static_cast<long long>(bits)) - 1;
#else
  return __builtin_ctzll(bits);
#endif
}

// Returns `bits` with its lowest set bit cleared.
template <class Word>
TETRIS_FUNCTION Word without_lowest_bit(Word bits) {
  return bits & (bits - 1);
}

}  // namespace tetris
