// What the CUDA kernels of the update share: keys of any fitness, a sort in shared memory, and
// sums of warps and blocks in the order of update.h.
#pragma once

#include "update.h"

namespace cem_tetris::update {

constexpr int kWarp = 32;
constexpr int kMaxWarps = 32;           // a block has at most this many warps
constexpr int kThreads = 1024;          // a block has at most this many threads
constexpr unsigned kAll = 0xffffffffu;  // the mask of all lanes of a warp

// Returns the dynamic shared memory, whose size the launch sets.
#if defined(__CUDACC__)
CEM_TETRIS_DEVICE_FUNCTION double* dynamic_shared() {
  extern __shared__ __align__(16) double dynamic_memory[];
  return dynamic_memory;
}
#else
double* dynamic_shared();  // A test that runs the kernels on a CPU defines it.
#endif

template <typename Type>
CEM_TETRIS_DEVICE_FUNCTION typename Type::Bits load(const void* data, int64_t i) {
  return static_cast<const typename Type::Bits*>(data)[i];
}

// Calls f(Type{}) with the type of the fitness, Float, Double or Long of update.h, and returns
// its result. The keys of that type have the type Key.
template <typename Key, typename F>
CEM_TETRIS_DEVICE_FUNCTION auto visit(Number type, const F& f) {
  if constexpr (sizeof(Key) == 4) {
    return f(Float{});
  } else {
    return type == Number::Double ? f(Double{}) : f(Long{});
  }
}

template <typename Key>
CEM_TETRIS_DEVICE_FUNCTION Key key_at(const Job& job, int64_t i) {
  return visit<Key>(job.fitness_type, [&](auto type) {
    return type.key(load<decltype(type)>(job.fitness, i), job.settings.maximize);
  });
}

template <typename Key>
CEM_TETRIS_DEVICE_FUNCTION double fitness_at(const Job& job, int64_t i) {
  return visit<Key>(job.fitness_type,
      [&](auto type) { return type.value(load<decltype(type)>(job.fitness, i)); });
}

// Reductions over a warp. All lanes of the warp call them together, and get the same result.
CEM_TETRIS_DEVICE_FUNCTION int warp_sum(int x) {
#if __CUDA_ARCH__ >= 800
  return __reduce_add_sync(kAll, x);
#else
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(kAll, x, step);
  return x;
#endif
}

CEM_TETRIS_DEVICE_FUNCTION uint32_t warp_max(uint32_t x) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(kAll, x);
#else
  for (int step = kWarp / 2; step > 0; step /= 2) x = max(x, __shfl_xor_sync(kAll, x, step));
  return x;
#endif
}

CEM_TETRIS_DEVICE_FUNCTION uint64_t warp_max(uint64_t x) {
  uint32_t high = uint32_t(x >> 32);
  uint32_t most = warp_max(high);
  uint32_t low = warp_max(high == most ? uint32_t(x) : 0u);
  return uint64_t{most} << 32 | low;
}

// Returns the sum of x over the lanes of the warp up to this one (an inclusive prefix sum).
template <typename Number>
CEM_TETRIS_DEVICE_FUNCTION Number warp_scan(Number x, int lane) {
  CEM_TETRIS_UNROLL
  for (int step = 1; step < kWarp; step *= 2) {
    Number other = __shfl_up_sync(kAll, x, step);
    if (lane >= step) x += other;
  }
  return x;
}

template <typename Key>
CEM_TETRIS_DEVICE_FUNCTION Key warp_min(Key x) {
  return ~warp_max(Key(~x));
}

// An elite in the sort: its key, and its place in the list of elites.
template <typename Key>
struct alignas(2 * sizeof(Key)) Entry {
  Key key, place;
  CEM_TETRIS_DEVICE_FUNCTION bool operator<(const Entry& other) const {
    return key < other.key || (key == other.key && place < other.place);
  }
};

// Sorts entries in shared memory by key with a bitonic sort; of equal keys the lower place
// comes first. `count` is the number of entries, a power of two. All threads of the block call
// the function together, and need a barrier before they read the entries of other warps.
//
// A round merges sorted sequences of size / 2 entries into sorted sequences of `size` entries.
// The first of these sequences ascends, the second one descends, and so on. A round consists of
// steps. A step compares every pair of entries that are `step` apart, and swaps them if their
// order is wrong.
//
// A warp works on 32 consecutive pairs. If step <= 32, these pairs lie in 64 consecutive
// entries, which no other warp touches. If this is true of a step and of the next one, a
// barrier of the warp between them is enough.
template <typename Key>
CEM_TETRIS_DEVICE_FUNCTION void sort(Entry<Key>* entry, int count) {
#pragma unroll 1
  for (int size = 2; size <= count; size *= 2) {
#pragma unroll 1
    for (int step = size / 2; step > 0; step /= 2) {
#pragma unroll 1
      for (int pair = threadIdx.x; pair < count / 2; pair += blockDim.x) {
        // The index of a pair's first entry is a number in which the bit of `step` is 0. So
        // `low` is `pair` with a bit of 0 inserted there.
        int low = 2 * pair - (pair & (step - 1));
        int high = low + step;
        Entry<Key> a = entry[low];
        Entry<Key> b = entry[high];
        bool ascends = (low & size) == 0;  // whether the pair's sequence ascends
        bool is_wrong_order = (b < a) == ascends;
        if (is_wrong_order) {
          entry[low] = b;
          entry[high] = a;
        }
      }
      // The next step is smaller. But the last step of a round is 1, and the next one, which
      // begins a round, is `size`.
      bool crosses_warps = step > kWarp;
      bool next_round_crosses_warps = step == 1 && size > kWarp;
      if (crosses_warps || next_round_crosses_warps) {
        __syncthreads();
      } else {
        __syncwarp();
      }
    }
  }
}

// Returns the sum of x over the lanes of the warp, to lane 0 only; the other lanes get
// meaningless values. Lane r holds the sum of residue class r of a fold. The 32 sums are added
// as the binary tree of update.h.
CEM_TETRIS_DEVICE_FUNCTION double warp_fold(double x) {
  CEM_TETRIS_UNROLL
  for (int step = kResidues / 2; step > 0; step /= 2) x += __shfl_down_sync(kAll, x, step);
  return x;
}

// Returns the sum of number(p) over the places `first` to `last` - 1, to lane 0 only. The
// numbers are added in the order of a fold (see update.h). All lanes of a warp call the
// function, and each of them adds up one residue class.
template <typename Number>
CEM_TETRIS_DEVICE_FUNCTION double warp_folded(
    int64_t first, int64_t last, const Number& number) {
  double sum = 0.0;
#pragma unroll 4
  for (int64_t p = first + threadIdx.x % kWarp; p < last; p += kWarp) sum += number(p);
  return warp_fold(sum);
}

}  // namespace cem_tetris::update
