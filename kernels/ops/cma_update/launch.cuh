// The operators on CUDA: a block a problem, or a group of its samples.
//
// The update is bound by latency: of the ranks, each candidate's by comparison with all others;
// of triangular solves, a thread each, for the lengths of the candidates with negative weights;
// and of d pivots, one after the other.
#pragma once

#include "cem_update/launch.cuh"
#include "draw.h"

namespace cem_tetris::cma {

constexpr int kFewThreads = 256, kManyThreads = 288, kDrawThreads = 160;
constexpr int kFew = 1, kMany = 8;          // entries of a thread, of 65 * 32 at most
constexpr int kCounted = 512;               // candidates, of more a sort finds the ranks
constexpr int64_t kSharedBytes = 48 << 10;  // that a kernel need not ask for

// As One of cpu.h; groups are warps. kOwned: the entries of a triangle that a thread has at
// most.
template <int kOwned> struct Block {
  static constexpr int lanes = update::kWarp;
  int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  int lane = thread % lanes, group = thread / lanes, groups = threads / lanes;

  __device__ __forceinline__ void sync() const { __syncthreads(); }
  __device__ __forceinline__ void sync_lanes() const { __syncwarp(); }
  __device__ __forceinline__ bool all(bool good) const { return !__syncthreads_or(!good); }
  template <int kAtOnce, typename Load, typename Store> __device__ __forceinline__ void table(
      int rows, int columns, const Load& load, const Store& store) const {
#pragma unroll 1
    for (int k = lane; k < columns; k += lanes) {
#pragma unroll 1
      for (int first = group; first < rows; first += kAtOnce * groups) {
        decltype(load(0, 0)) x[kAtOnce];
#pragma unroll
        for (int m = 0; m < kAtOnce; ++m) x[m] = load(min(first + m * groups, rows - 1), k);
#pragma unroll
        for (int m = 0; m < kAtOnce; ++m) {
          if (first + m * groups < rows) store(first + m * groups, k, x[m]);
        }
      }
    }
  }
  // Every thread keeps its entries (k, i), k <= i < d, and stores those of the column that is
  // next. Column k and column d - 1 - k have d + 1 entries together.
  __device__ __forceinline__ void eliminate(
      const Plan& plan, double* lower, double* products) const {
    const int d = plan.dimensions, q = plan.stride, entries = (d + 1) / 2 * (d + 1);
    double entry[kOwned], product = 1.0;
    int own_k[kOwned], own_i[kOwned];
    const auto each = [&](const auto& f) {
#pragma unroll
      for (int m = 0; m < kOwned; ++m) {
        if (m < 4 || (m & ~1) * threads < entries) f(m);
      }
    };
    each([&](int m) {
      const int at = thread + m * threads, row = at / (d + 1), place = at - row * (d + 1);
      own_k[m] = place < d - row ? row : d - 1 - row;
      own_i[m] = place < d - row ? row + place : place - 1;
      if (at >= entries || (place >= d - row && own_k[m] == row)) own_k[m] = own_i[m] = 0;
      entry[m] = lower[own_k[m] * q + own_i[m]];
    });
    const double* column = lower;
#pragma unroll 1
    for (int j = 0; j < d; ++j, column += q) {
      double of_k[kOwned], of_i[kOwned];
      each([&](int m) { of_k[m] = column[own_k[m]], of_i[m] = column[own_i[m]]; });
      const Pivot pivot(column[j]);
      if (thread == j) products[j] = product;
      product *= pivot.mantissa;
      each([&](int m) {
        entry[m] = entry[m] * pivot.mantissa - of_i[m] * (of_k[m] * pivot.scale);
        if (own_k[m] == j + 1) lower[own_k[m] * q + own_i[m]] = entry[m];
      });
      __syncthreads();
    }
  }
};

// What order and fitness take of the shared memory, in doubles, and how many entries are sorted
// beside them.
CEM_TETRIS_FUNCTION int64_t listed(int64_t population) { return (population + 7) / 8 * 10; }
CEM_TETRIS_FUNCTION int64_t sorted(int64_t population) {
  int64_t count = 2;
  while (count < population) count *= 2;
  return count;
}

// Writes the candidates of a problem and their fitness, best first; returns how many of them
// did not fail.
__device__ __forceinline__ int ranked(
    const Job& job, int64_t problem, uint16_t* order, double* value, double* memory) {
  __shared__ int usable;
  const int population = static_cast<int>(job.settings.population);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int64_t first = problem * population;
  const auto put = [&](int rank, int i, uint64_t key) {
    order[rank] = static_cast<uint16_t>(i);
    value[rank] = update::wide_fitness(job, first + i);
    if (!update::has_failed(job, key)) atomicMax(&usable, rank + 1);
  };
  if (thread == 0) usable = 0;
  if (population <= kCounted) {
    auto* const keys = reinterpret_cast<uint64_t*>(memory);
    for (int i = thread; i < population; i += threads)
      keys[i] = update::wide_key(job, first + i);
    __syncthreads();
    for (int i = thread; i < population; i += threads) {
      const uint64_t key = keys[i];
      int rank = 0, j = 0;
#pragma unroll 8
      for (; j < i; ++j) rank += keys[j] <= key ? 1 : 0;
#pragma unroll 8
      for (; j < population; ++j) rank += keys[j] < key ? 1 : 0;
      put(rank, i, key);
    }
  } else {
    auto* const entry = reinterpret_cast<update::Entry<uint64_t>*>(memory);
    const int count = static_cast<int>(sorted(population));
    for (int i = thread; i < count; i += threads) {
      const uint64_t key = i < population ? update::wide_key(job, first + i) : ~0ull;
      entry[i] = {key, static_cast<uint64_t>(i)};
    }
    __syncthreads();
    update::sort(entry, count);
    __syncthreads();
    for (int i = thread; i < population; i += threads)
      put(i, static_cast<int>(entry[i].place), entry[i].key);
  }
  __syncthreads();
  return usable;
}

template <typename T, int kOwned> __global__ void __launch_bounds__(
    kOwned == kFew ? kFewThreads : kManyThreads, kOwned == kFew ? 4 : 2)
    adapt_kernel(const __grid_constant__ Call call) {
  wait_for_kernel_before();
  let_kernel_after_begin();
  const int64_t population = call.job.settings.population;
  double* const value = update::dynamic_shared();
  auto* const order = reinterpret_cast<uint16_t*>(value + population);
  double* const memory = value + listed(population);
  const int usable = ranked(call.job, blockIdx.x, order, value, memory);
  adapt<T>(Block<kOwned>(), call, blockIdx.x, order, value, usable, memory);
}

template <typename T> __global__ void __launch_bounds__(kDrawThreads)
    draw_kernel(const __grid_constant__ Draw call) {
  wait_for_kernel_before();
  draw<T>(Block<kFew>(), call, blockIdx.x, update::dynamic_shared());
}

template <typename Gpu> void launch(const Gpu& device, Call call, Device) {
  const int64_t problems = call.job.settings.problems,
                population = call.job.settings.population;
  if (problems == 0) return device.launch(update::count_kernel, 1, 1, 0, call.job);
  int64_t bytes = 0;
  const int d = call.plan.dimensions;
  const bool few = (d + 1) / 2 * (d + 1) <= kFewThreads;
  const int threads = few ? kFewThreads : kManyThreads;
  auto* const kernel = call.job.type == update::Number::Float
                           ? few ? adapt_kernel<float, kFew> : adapt_kernel<float, kMany>
                       : few ? adapt_kernel<double, kFew>
                             : adapt_kernel<double, kMany>;
  for (int most = threads; most >= 8;
      most -= 8) {  // as many candidates at once as there is memory for
    call.plan = Plan(d, population, most);
    bytes = (listed(population) + std::max(call.plan.doubles(), 2 * sorted(population))) * 8;
    if (bytes <= kSharedBytes || device.gives(kernel, bytes)) break;
  }
  device.launch_early(kernel, problems, threads, bytes, call);
}

template <typename Gpu> void launch(const Gpu& device, const Draw& call, Device) {
  auto* const kernel =
      call.type == ScalarType::Float ? draw_kernel<float> : draw_kernel<double>;
  const int64_t bytes = call.doubles() * 8;
  if (bytes > kSharedBytes) device.gives(kernel, bytes);
  device.launch_early(kernel, call.problems * call.groups, kDrawThreads, bytes, call);
}

}  // namespace cem_tetris::cma
