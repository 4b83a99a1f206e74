// The operators on CUDA: a block a problem, or a group of its samples.
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

// A block as a team, see One in cpu.h; its groups are warps. kOwned: kFew or kMany.
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
  // Eliminates as One does. Every thread keeps some entries (k, i), k <= i < d, in registers,
  // and stores those of the column that is next.
  //
  // Column k and column d - 1 - k have d + 1 entries together, which make a row of a rectangle:
  // first the d - k of column k, then the k + 1 of the other one. Thread t has the places t, t
  // + threads, ... of the rectangle; the middle column of an odd d fills only a part of its
  // row.
  CEM_TETRIS_DEVICE_FUNCTION void eliminate(
      const Plan& plan, double* lower, double* products) const {
    int d = plan.dimensions;
    int stride = plan.stride;
    int places = (d + 1) / 2 * (d + 1);
    double entry[kOwned];
    double product = 1.0;
    int own_k[kOwned];
    int own_i[kOwned];
    // Calls f(m) for the thread's entries. The first four always exist, at worst as (0, 0);
    // further ones are asked about in pairs, which costs half of the comparisons.
    auto for_each_entry = [&](const auto& f) {
      CEM_TETRIS_UNROLL
      for (int m = 0; m < kOwned; ++m) {
        int pair = m & ~1;
        if (m < 4 || pair * threads < places) f(m);
      }
    };
    for_each_entry([&](int m) {
      int place = thread + m * threads;
      int row = place / (d + 1);
      int across = place - row * (d + 1);
      bool is_left = across < d - row;
      own_k[m] = is_left ? row : d - 1 - row;
      own_i[m] = is_left ? row + across : across - 1;
      bool is_double = !is_left && own_k[m] == row;
      if (place >= places || is_double) own_k[m] = own_i[m] = 0;
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

// Returns how many doubles fitness and order take of the shared memory: 8 bytes and 2 bytes for
// each candidate, rounded up to 8 candidates.
CEM_TETRIS_FUNCTION int64_t listed(int64_t population) { return (population + 7) / 8 * 10; }

// Returns how many entries a sort has: a power of two.
CEM_TETRIS_FUNCTION int64_t sorted(int64_t population) {
  int64_t count = 2;
  while (count < population) count *= 2;
  return count;
}

// Writes the candidates of a problem and their fitness, best first; returns how many of them
// did not fail. memory: two doubles for each of sorted() entries.
CEM_TETRIS_DEVICE_FUNCTION int rank_candidates(
    const Job& job, int64_t problem, uint16_t* order, double* value, double* memory) {
  __shared__ int usable;
  int population = int(job.settings.population);
  int thread = int(threadIdx.x);
  int threads = int(blockDim.x);
  int64_t first = problem * population;
  auto put = [&](int rank, int i, uint64_t key) {
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
      put(rank, i, key);
    }
  } else {
    auto* entry = reinterpret_cast<update::Entry<uint64_t>*>(memory);
    int count = int(sorted(population));
    for (int i = thread; i < count; i += threads) {
      uint64_t key = i < population ? update::wide_key(job, first + i) : ~0ull;
      entry[i] = {key, uint64_t(i)};
    }
    __syncthreads();
    update::sort(entry, count);
    __syncthreads();
    for (int i = thread; i < population; i += threads)
      put(i, int(entry[i].place), entry[i].key);
  }
  __syncthreads();
  return usable;
}

template <typename T, int kOwned>
__global__ void __launch_bounds__(kOwned == kFew ? kFewThreads : kManyThreads,
    kOwned == kFew ? 4 : 2) adapt_kernel(const __grid_constant__ Call call) {
  wait_for_kernel_before();
  let_kernel_after_begin();
  int64_t population = call.job.settings.population;
  double* value = update::dynamic_shared();
  auto* order = reinterpret_cast<uint16_t*>(value + population);
  double* memory = value + listed(population);
  int usable = rank_candidates(call.job, blockIdx.x, order, value, memory);
  adapt<T>(Block<kOwned>(), call, blockIdx.x, order, value, usable, memory);
}

template <typename T>
__global__ void __launch_bounds__(kDrawThreads) draw_kernel(const __grid_constant__ Draw call) {
  wait_for_kernel_before();
  draw<T>(Block<kFew>(), call, blockIdx.x, update::dynamic_shared());
}

// Launches an update, with as many candidates at once as there is memory for.
template <typename Gpu>
void launch(const Gpu& device, Call call, Device) {
  int64_t problems = call.job.settings.problems;
  int64_t population = call.job.settings.population;
  if (problems == 0) return device.launch(update::count_kernel, 1, 1, 0, call.job);
  int d = call.plan.dimensions;
  bool few = (d + 1) / 2 * (d + 1) <= kFewThreads;  // a thread for each entry of the triangle
  int threads = few ? kFewThreads : kManyThreads;
  auto* kernel = few ? adapt_kernel<double, kFew> : adapt_kernel<double, kMany>;
  if (call.job.type == update::Number::Float) {
    kernel = few ? adapt_kernel<float, kFew> : adapt_kernel<float, kMany>;
  }
  int64_t bytes = 0;
  for (int most = threads; most >= kMostSlices; most -= kMostSlices) {
    call.plan = Plan(d, population, most);
    int64_t work = std::max(call.plan.doubles(), 2 * sorted(population));
    bytes = (listed(population) + work) * 8;
    if (bytes <= kPlainMemory || device.gives(kernel, bytes)) break;
  }
  device.launch_early(kernel, problems, threads, bytes, call);
}

template <typename Gpu>
void launch(const Gpu& device, const Draw& call, Device) {
  auto* kernel = call.type == ScalarType::Float ? draw_kernel<float> : draw_kernel<double>;
  int64_t bytes = call.doubles() * 8;
  if (bytes > kPlainMemory) device.gives(kernel, bytes);
  device.launch_early(kernel, call.problems * call.groups, kDrawThreads, bytes, call);
}

}  // namespace cem_tetris::cma
