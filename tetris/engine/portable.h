// What host and device code need alike: function qualifiers, a population count, a multiply-add that rounds twice.
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
#else
    return __builtin_popcount(bits);
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

// sum + weight * value, product and sum rounded separately: a fused multiply-add would break ties differently on
// different machines. (Host code is compiled with -ffp-contract=off.)
TETRIS_FUNCTION float add_product(float sum, float weight, float value) {
#if defined(__CUDA_ARCH__)
    return __fadd_rn(sum, __fmul_rn(weight, value));
#else
    return sum + weight * value;
#endif
}

}  // namespace tetris
