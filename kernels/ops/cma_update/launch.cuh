// The operators on CUDA: one block per problem, or per group of its samples.
//
// The update is bound by latency: of the ranks, each candidate's by comparison with all others;
// of triangular solves, a thread each, for the lengths of the candidates with negative weights;
// and of d pivots, one after the other.
#pragma once

#include "cem_update/launch.cuh"
#include "draw.h"

namespace cem_tetris::cma {

// The entries of a triangle that a thread of the elimination has at most; there are 65 * 32 at
// most.
constexpr int kFew = 1;
constexpr int kMany = 8;
constexpr int kFewThreads = 256;
constexpr int kManyThreads = 288;
constexpr int kDrawThreads = 160;
constexpr int kCounted =
    512;  // candidates whose ranks are counted; the ranks of more come from a sort

// A block of CUDA as a team, as OneThread in cpu.h is one; its groups are warps. kOwned: kFew
// or kMany, the most entries of a triangle that a thread owns.
template <int kOwned>
struct Block {
  static constexpr int lanes = update::kWarp;
  int thread = int(threadIdx.x);
  int threads = int(blockDim.x);
  int lane = thread % lanes;
  int group = thread / lanes;
  int groups = threads / lanes;

  CEM_TETRIS_DEVICE_FUNCTION void sync() const { __syncthreads(); }
  CEM_TETRIS_DEVICE_FUNCTION void sync_lanes() const { __syncwarp(); }
  CEM_TETRIS_DEVICE_FUNCTION bool all(bool good) const { return !__syncthreads_or(!good); }
  // Calls store(i, k, load(i, k)) for all i < rows and k < columns. A warp has a row, its lanes
  // neighbouring columns. Each lane has kAtOnce loads in flight before its first store; beyond
  // the last row they load that row again, so that no load waits for a comparison.
  template <int kAtOnce, typename Load, typename Store>
  CEM_TETRIS_DEVICE_FUNCTION void table(
      int rows, int columns, const Load& load, const Store& store) const {
#pragma unroll 1
    for (int k = lane; k < columns; k += lanes) {
#pragma unroll 1
      for (int first = group; first < rows; first += kAtOnce * groups) {
        decltype(load(0, 0)) x[kAtOnce];
        CEM_TETRIS_UNROLL
        for (int m = 0; m < kAtOnce; ++m) x[m] = load(min(first + m * groups, rows - 1), k);
        CEM_TETRIS_UNROLL
        for (int m = 0; m < kAtOnce; ++m) {
          if (first + m * groups < rows) store(first + m * groups, k, x[m]);
        }
      }
    }
  }
  // Factorises as OneThread::eliminate does, with the same rounding. Every thread keeps some
  // entries (column k, row i), k <= i < d, in registers; a step updates all of them, and stores
  // those of the next column, which is then complete.
  //
  // The entries of the triangle are numbered as those of a rectangle: column k and column d - 1
  // - k have d + 1 entries together, and make its row k: first the d - k of column k, then the
  // k + 1 of the other one. Thread t owns the entries t, t + threads, ... The middle column of
  // an odd d fills only a part of its row; what is left over there, and beyond the rectangle,
  // is entry (0, 0) again, which changes nothing.
  CEM_TETRIS_DEVICE_FUNCTION void eliminate(
      const Plan& plan, double* lower, double* products) const {
    int d = plan.dimensions;
    int stride = plan.stride;
    int entries = (d + 1) / 2 * (d + 1);
    double entry[kOwned];
    double product = 1.0;
    int own_k[kOwned];
    int own_i[kOwned];
    // Calls f(m) for the thread's entries. The first four are always updated, as (0, 0) where
    // there are fewer; the others are compared in pairs, which saves half of the comparisons.
    auto for_each_entry = [&](const auto& f) {
      CEM_TETRIS_UNROLL
      for (int m = 0; m < kOwned; ++m) {
        int pair = m & ~1;
        if (m < 4 || pair * threads < entries) f(m);
      }
    };
    for_each_entry([&](int m) {
      int number = thread + m * threads;
      int row = number / (d + 1);
      int across = number - row * (d + 1);
      bool is_first_column = across < d - row;
      own_k[m] = is_first_column ? row : d - 1 - row;
      own_i[m] = is_first_column ? row + across : across - 1;
      bool is_repeated = !is_first_column && own_k[m] == row;
      if (number >= entries || is_repeated) own_k[m] = own_i[m] = 0;
      entry[m] = lower[own_k[m] * stride + own_i[m]];
    });
    const double* column = lower;
#pragma unroll 1
    for (int j = 0; j < d; ++j, column += stride) {
      double row_k[kOwned];
      double row_i[kOwned];
      for_each_entry([&](int m) {
        row_k[m] = column[own_k[m]];
        row_i[m] = column[own_i[m]];
      });
      Pivot pivot(column[j]);
      if (thread == j) products[j] = product;
      product *= pivot.mantissa;
      for_each_entry([&](int m) {
        entry[m] = entry[m] * pivot.mantissa - row_i[m] * (row_k[m] * pivot.scale);
        if (own_k[m] == j + 1) lower[own_k[m] * stride + own_i[m]] = entry[m];
      });
      __syncthreads();
    }
  }
};

// Returns how many doubles the fitness and the order of the candidates take in shared memory: 8
// and 2 bytes per candidate, rounded up to 8 candidates.
CEM_TETRIS_FUNCTION int64_t list_doubles(int64_t population) {
  return (population + 7) / 8 * 10;
}

// Returns how many entries the sort of the candidates has: the next power of two.
CEM_TETRIS_FUNCTION int64_t sort_entries(int64_t population) {
  int64_t count = 2;
  while (count < population) count *= 2;
  return count;
}

// Writes the indices of a problem's candidates to `order` and their fitness to `value`, best
// first, and of equal ones the lower index first; returns how many did not fail. Few candidates
// are ranked by comparison with all others, many by a sort. Failed ones have the largest key,
// so they come last. memory: scratch of two doubles for each of sort_entries() entries. The
// threads of a block call it together.
CEM_TETRIS_DEVICE_FUNCTION int rank_candidates(
    const Job& job, int64_t problem, uint16_t* order, double* value, double* memory) {
  __shared__ int usable;
  int population = int(job.settings.population);
  int thread = int(threadIdx.x);
  int threads = int(blockDim.x);
  int64_t first = problem * population;
  auto write_rank = [&](int rank, int i, uint64_t key) {
    order[rank] = uint16_t(i);
    value[rank] = update::wide_fitness(job, first + i);
    if (!update::has_failed(job, key)) atomicMax(&usable, rank + 1);
  };
  if (thread == 0) usable = 0;
  if (population <= kCounted) {
    auto* keys = reinterpret_cast<uint64_t*>(memory);
    for (int i = thread; i < population; i += threads)
      keys[i] = update::wide_key(job, first + i);
    __syncthreads();
    for (int i = thread; i < population; i += threads) {
      uint64_t key = keys[i];
      int rank = 0;
      int j = 0;
#pragma unroll 8
      for (; j < i; ++j) rank += (keys[j] <= key);
#pragma unroll 8
      for (; j < population; ++j) rank += (keys[j] < key);
      write_rank(rank, i, key);
    }
  } else {
    auto* entry = reinterpret_cast<update::Entry<uint64_t>*>(memory);
    int count = int(sort_entries(population));
    for (int i = thread; i < count; i += threads) {
      uint64_t key = i < population ? update::wide_key(job, first + i) : ~0ull;
      entry[i] = {key, uint64_t(i)};
    }
    __syncthreads();
    update::sort(entry, count);
    __syncthreads();
    for (int i = thread; i < population; i += threads)
      write_rank(i, int(entry[i].place), entry[i].key);
  }
  __syncthreads();
  return usable;
}

// Updates one problem by one block: ranks its candidates, then adapts its distribution. kOwned:
// the most entries of the triangle that a thread owns. The dynamic shared memory holds the
// fitness and the order of the candidates, then adapt()'s scratch.
template <typename T, int kOwned>
__global__ void __launch_bounds__(kOwned == kFew ? kFewThreads : kManyThreads,
    kOwned == kFew ? 4 : 2) adapt_kernel(const __grid_constant__ Call call) {
  wait_for_kernel_before();
  let_kernel_after_begin();
  int64_t population = call.job.settings.population;
  double* value = update::dynamic_shared();
  auto* order = reinterpret_cast<uint16_t*>(value + population);
  double* memory = value + list_doubles(population);
  int usable = rank_candidates(call.job, blockIdx.x, order, value, memory);
  adapt<T>(Block<kOwned>(), call, blockIdx.x, order, value, usable, memory);
}

template <typename T>
__global__ void __launch_bounds__(kDrawThreads) draw_kernel(const __grid_constant__ Draw call) {
  wait_for_kernel_before();
  draw<T>(Block<kFew>(), call, blockIdx.x, update::dynamic_shared());
}

// Launches the update of all problems, one block each. A block loads as many candidates at once
// as fit into its shared memory. Without problems only the generation is counted.
template <typename Gpu>
void launch(const Gpu& device, Call call, Device) {
  int64_t problems = call.job.settings.problems;
  int64_t population = call.job.settings.population;
  if (problems == 0) return device.launch(update::count_kernel, 1, 1, 0, call.job);
  int d = call.plan.dimensions;
  bool few = (d + 1) / 2 * (d + 1) <= kFewThreads;  // one thread per entry of the triangle
  int threads = few ? kFewThreads : kManyThreads;
  auto* kernel = few ? adapt_kernel<double, kFew> : adapt_kernel<double, kMany>;
  if (call.job.type == update::Number::Float) {
    kernel = few ? adapt_kernel<float, kFew> : adapt_kernel<float, kMany>;
  }
  int64_t bytes = 0;
  for (int most = threads; most >= kMostSlices; most -= kMostSlices) {
    call.plan = Plan(d, population, most);
    int64_t scratch = std::max(call.plan.doubles(), 2 * sort_entries(population));
    bytes = (list_doubles(population) + scratch) * 8;
    if (bytes <= kPlainMemory || device.gives(kernel, bytes)) break;
  }
  device.launch_early(kernel, problems, threads, bytes, call);
}

// Launches a draw: one block per group of samples.
template <typename Gpu>
void launch(const Gpu& device, const Draw& call, Device) {
  auto* kernel = call.type == ScalarType::Float ? draw_kernel<float> : draw_kernel<double>;
  int64_t bytes = call.doubles() * 8;
  if (bytes > kPlainMemory) device.gives(kernel, bytes);
  device.launch_early(kernel, call.problems * call.groups, kDrawThreads, bytes, call);
}

}  // namespace cem_tetris::cma
