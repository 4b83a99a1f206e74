// What the CUDA kernels of the update share: the job, keys of any fitness, a sort in shared
// memory, and sums of warps and blocks in the order of update.h.
#pragma once

#include "update.h"

namespace cem_tetris::update {

constexpr int kWarp = 32, kMaxWarps = 32, kThreads = 1024;  // of a block at most
constexpr unsigned kAll = 0xffffffffu;

// The shared memory whose size the launch gives.
#if defined(__CUDACC__)
__device__ __forceinline__ double* dynamic_shared() {
  extern __shared__ __align__(16) double dynamic_memory[];
  return dynamic_memory;
}
#else
double* dynamic_shared();  // a test that runs the kernels on a CPU has its own
#endif

template <typename Type> __device__ __forceinline__
    typename Type::Bits load(const void* data, int64_t i) {
  return static_cast<const typename Type::Bits*>(data)[i];
}

// Calls f(Type{}) with the type of a fitness whose keys are of the type Key.
template <typename Key, typename F>
__device__ __forceinline__ auto visit(Number type, const F& f) {
  if constexpr (sizeof(Key) == 4) {
    return f(Float{});
  } else {
    return type == Number::Double ? f(Double{}) : f(Long{});
  }
}

template <typename Key> __device__ __forceinline__ Key key_at(const Job& job, int64_t i) {
  return visit<Key>(job.fitness_type, [&](auto type) {
    return type.key(load<decltype(type)>(job.fitness, i), job.settings.maximize);
  });
}

template <typename Key>
__device__ __forceinline__ double fitness_at(const Job& job, int64_t i) {
  return visit<Key>(job.fitness_type,
      [&](auto type) { return type.value(load<decltype(type)>(job.fitness, i)); });
}

// Reductions of a warp, for all of its lanes.
__device__ __forceinline__ int warp_sum(int x) {
#if __CUDA_ARCH__ >= 800
  return __reduce_add_sync(kAll, x);
#else
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(kAll, x, step);
  return x;
#endif
}

__device__ __forceinline__ uint32_t warp_max(uint32_t x) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(kAll, x);
#else
  for (int step = kWarp / 2; step > 0; step /= 2) x = max(x, __shfl_xor_sync(kAll, x, step));
  return x;
#endif
}

__device__ __forceinline__ uint64_t warp_max(uint64_t x) {
  const uint32_t high = static_cast<uint32_t>(x >> 32), most = warp_max(high);
  return uint64_t{most} << 32 | warp_max(high == most ? static_cast<uint32_t>(x) : 0u);
}

// The sum over the lanes up to this one.
template <typename Number> __device__ __forceinline__ Number warp_scan(Number x, int lane) {
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const Number other = __shfl_up_sync(kAll, x, step);
    if (lane >= step) x += other;
  }
  return x;
}

template <typename Key> __device__ __forceinline__ Key warp_min(Key x) {
  return ~warp_max(static_cast<Key>(~x));
}

// An elite in the sort.
template <typename Key> struct alignas(2 * sizeof(Key)) Entry {
  Key key, place;
  __device__ __forceinline__ bool operator<(const Entry& other) const {
    return key < other.key || (key == other.key && place < other.place);
  }
};

// A bitonic sort of a power of two of entries. Those of a step up to a warp long belong to one
// warp.
template <typename Key> __device__ __forceinline__ void sort(Entry<Key>* entry, int count) {
#pragma unroll 1
  for (int size = 2; size <= count; size *= 2) {
#pragma unroll 1
    for (int step = size / 2; step > 0; step /= 2) {
#pragma unroll 1
      for (int pair = threadIdx.x; pair < count / 2; pair += blockDim.x) {
        const int low = 2 * pair - (pair & (step - 1)), high = low + step;
        const Entry<Key> a = entry[low], b = entry[high];
        if ((b < a) == ((low & size) == 0)) {
          entry[low] = b;
          entry[high] = a;
        }
      }
      if (step > kWarp || (step == 1 && size > kWarp)) {
        __syncthreads();
      } else {
        __syncwarp();
      }
    }
  }
}

// The residues of a fold, one a lane, added as a tree; lane 0 has the sum.
__device__ __forceinline__ double warp_fold(double x) {
#pragma unroll
  for (int step = kResidues / 2; step > 0; step /= 2) x += __shfl_down_sync(kAll, x, step);
  return x;
}

// The fold of the places first to last of a row of numbers, by one warp; lane 0 has it.
template <typename Number> __device__ __forceinline__ double warp_folded(
    int64_t first, int64_t last, const Number& number) {
  double sum = 0.0;
#pragma unroll 4
  for (int64_t p = first + threadIdx.x % kWarp; p < last; p += kWarp) sum += number(p);
  return warp_fold(sum);
}

}  // namespace cem_tetris::update
