// What all threads of a warp find out together.
#pragma once

#include <cstdint>

namespace tetris {

constexpr int WARP = 32;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
__device__ inline int sum_of_warp(int value) { return __reduce_add_sync(~0u, value); }
__device__ inline unsigned union_of_warp(unsigned bits) { return __reduce_or_sync(~0u, bits); }
__device__ inline unsigned greatest_of_warp(unsigned value) { return __reduce_max_sync(~0u, value); }
#else  // no instruction for it
template <class T, class Combine>
__device__ inline T combined(T value, Combine combine) {
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2) value = combine(value, __shfl_xor_sync(~0u, value, step));
    return value;
}
__device__ inline int sum_of_warp(int value) {
    return combined(value, [](int a, int b) { return a + b; });
}
__device__ inline unsigned union_of_warp(unsigned bits) {
    return combined(bits, [](unsigned a, unsigned b) { return a | b; });
}
__device__ inline unsigned greatest_of_warp(unsigned value) {
    return combined(value, [](unsigned a, unsigned b) { return a > b ? a : b; });
}
#endif

}  // namespace tetris
