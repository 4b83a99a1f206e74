// Operations that all threads of a warp, or of several warps, carry out together.
#pragma once

#include <cstdint>

namespace tetris {

constexpr int WARP = 32;

// Combine the numbers of all threads of a warp, and return the result in every thread: the sum,
// the bitwise OR, or the greatest number.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
__device__ inline int sum_of_warp(int value) { return __reduce_add_sync(~0u, value); }
__device__ inline unsigned union_of_warp(unsigned bits) { return __reduce_or_sync(~0u, bits); }
__device__ inline unsigned greatest_of_warp(unsigned value) {
  return __reduce_max_sync(~0u, value);
}
#else  // These GPUs have no instruction for such a reduction.
template <class T, class Combine>
__device__ inline T combine_warp(T value, Combine combine) {
#pragma unroll
  for (int step = WARP / 2; step > 0; step /= 2) {
    value = combine(value, __shfl_xor_sync(~0u, value, step));
  }
  return value;
}
__device__ inline int sum_of_warp(int value) {
  return combine_warp(value, [](int a, int b) { return a + b; });
}
__device__ inline unsigned union_of_warp(unsigned bits) {
  return combine_warp(bits, [](unsigned a, unsigned b) { return a | b; });
}
__device__ inline unsigned greatest_of_warp(unsigned value) {
  return combine_warp(value, [](unsigned a, unsigned b) { return a > b ? a : b; });
}
#endif

// Returns the sum of the numbers of all lanes up to and including this one.
template <class T>
__device__ __forceinline__ T inclusive_sum_of_warp(T value) {
  int lane = int(threadIdx.x % WARP);
#pragma unroll
  for (int step = 1; step < WARP; step *= 2) {
    T lower = __shfl_up_sync(~0u, value, step);
    if (lane >= step) value += lower;
  }
  return value;
}

#if defined(__CUDACC__)
// Returns the dynamic shared memory of the block.
__device__ inline void* shared_memory() {
  extern __shared__ __align__(16) unsigned char bytes[];
  return bytes;
}

// Waits until `threads` threads of the block have arrived at barrier `number`, 0 to 15.
__device__ inline void barrier(int number, int threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
#endif

}  // namespace tetris
