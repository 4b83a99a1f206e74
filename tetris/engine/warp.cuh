// What all threads of a warp, or of some warps, do together.
#pragma once

#include <cstdint>

namespace tetris {

constexpr int WARP = 32;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
__device__ inline int sum_of_warp(int value) { return __reduce_add_sync(~0u, value); }
__device__ inline unsigned union_of_warp(unsigned bits) { return __reduce_or_sync(~0u, bits); }
__device__ inline unsigned greatest_of_warp(unsigned value) {
  return __reduce_max_sync(~0u, value);
}
#else  // no instruction for it
template <class T, class Combine>
__device__ inline T combined(T value, Combine combine) {
#pragma unroll
  for (int step = WARP / 2; step > 0; step /= 2)
    value = combine(value, __shfl_xor_sync(~0u, value, step));
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

#if defined(__CUDACC__)
// What a launch asks for.
__device__ inline void* shared_memory() {
  extern __shared__ __align__(16) unsigned char bytes[];
  return bytes;
}

// Waits until as many threads of the block have come to the barrier of this number.
__device__ inline void barrier(int number, int threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
#endif

}  // namespace tetris
