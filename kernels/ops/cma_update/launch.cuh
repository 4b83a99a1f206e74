// The operators on CUDA: a block a problem, or a group of its samples.
//
// The update is bound by latency: of d pivots, one after the other, and before them of triangular solves: of
// the candidates with negative weights, a thread each, and of the step. All that does not depend on the new
// mean, which the kernel before computes, is launched early and comes ahead of wait().
#pragma once

#include "cem_update/launch.cuh"
#include "draw.h"

namespace cem_tetris::cma {

constexpr int kFewThreads = 160, kManyThreads = 288;
constexpr int kOwned = 8;                   // entries of a thread, of 65 * 32 at most
constexpr int64_t kSharedBytes = 48 << 10;  // that a kernel need not ask for

// As One of op.cpp. The threads of the last warp lead.
struct Block {
  int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  static constexpr int lanes = update::kWarp;
  int lane = thread % lanes;
  int slice = 0, tile = 0;  // whose sum it has; there are fewer of them than threads
  Place of_tile{0};
  double sum[kCells] = {};
  int own[kOwned];  // entries (k, i), k <= i < d, of a triangle

  Block() = default;
  __device__ __forceinline__ explicit Block(const Plan& plan)
      : slice(thread % plan.slices), tile(thread / plan.slices), of_tile(tile < plan.tiles ? tile : 0) {
    const int d = plan.dimensions;
    int k = 0, i = thread;
    for (int m = 0; m < kOwned; ++m, i += threads) {
      for (; i >= d && k < d; ++k) i -= d - k - 1;
      own[m] = k < d ? k << 8 | i : 0;
    }
  }

  __device__ __forceinline__ void sync() const { __syncthreads(); }
  __device__ __forceinline__ bool all(bool good) const { return !__syncthreads_or(!good); }
  __device__ __forceinline__ void sync_lanes() const { __syncwarp(); }
  __device__ __forceinline__ void wait() const { wait_for_kernel_before(); }
  template <int kAtOnce, typename Load, typename Store>
  __device__ __forceinline__ void table(int rows, int columns, const Load& load, const Store& store) const {
    const int warps = threads / lanes;
#pragma unroll 1
    for (int k = lane; k < columns; k += lanes) {
#pragma unroll 1
      for (int first = thread / lanes; first < rows; first += kAtOnce * warps) {
        decltype(load(0, 0)) x[kAtOnce];
#pragma unroll
        for (int m = 0; m < kAtOnce; ++m) x[m] = load(min(first + m * warps, rows - 1), k);
#pragma unroll
        for (int m = 0; m < kAtOnce; ++m) {
          if (first + m * warps < rows) store(first + m * warps, k, x[m]);
        }
      }
    }
  }
  template <typename F> __device__ __forceinline__ void tiles(const Plan& plan, double*, const F& f) {
    if (tile < plan.tiles) f(slice, of_tile, sum);
  }
  __device__ __forceinline__ void publish(const Plan& plan, double* sums) const {
    if (tile >= plan.tiles) return;
#pragma unroll
    for (int c = 0; c < kCells; ++c) sums[place(plan, slice, tile, c)] = sum[c];
  }
  __device__ __forceinline__ int place(const Plan& plan, int part, int of, int cell) const {
    return (cell * plan.slices + part) * plan.tiles + of;
  }
  // A lane has two of the numbers; from them it subtracts what belongs to each that is found, its own last.
  __device__ __forceinline__ void solve(
      const Plan& plan, const double* lower, const double* reciprocal, const double* y, double* white) const {
    double rest = lane < plan.padded ? y[lane] : 0.0,
           late = lane + lanes < plan.padded ? y[lane + lanes] : 0.0;
#pragma unroll 4
    for (int j = 0; j < plan.dimensions; ++j) {
      const double x = __shfl_sync(update::kAll, j < lanes ? rest : late, j % lanes) * reciprocal[j];
      rest -= x * lower[j * plan.stride + lane];  // behind the last column there are rows
      if (plan.dimensions > lanes) late -= x * lower[j * plan.stride + lane + lanes];
      white[j] = x;
    }
    __syncwarp();
  }
  // Every thread keeps its entries, and stores those of the column that is next.
  __device__ __forceinline__ void eliminate(const Plan& plan, double* lower) const {
    const int d = plan.dimensions, q = plan.stride;
    double entry[kOwned], of_k[kOwned], of_i[kOwned];
    const auto each = [&](const auto& f) {
#pragma unroll
      for (int m = 0; m < kOwned; ++m) {
        if (m < 2 || (m & ~1) * threads < d * (d + 1) / 2) f(m, own[m] >> 8, own[m] & 255);
      }
    };
    each([&](int m, int k, int i) { entry[m] = lower[k * q + i]; });
    const double* column = lower;
#pragma unroll 1
    for (int j = 0; j < d; ++j, column += q) {
      each([&](int m, int k, int i) { of_k[m] = column[k], of_i[m] = column[i]; });
      const double inverse = 1.0 / column[j];
      each([&](int m, int k, int i) {
        entry[m] -= of_i[m] * (of_k[m] * inverse);
        if (k == j + 1) lower[k * q + i] = entry[m];
      });
      __syncthreads();
    }
  }
};

// What the order takes of the shared memory, in doubles, and how many entries are sorted beside it.
CEM_TETRIS_FUNCTION int64_t listed(int64_t population) { return (population + 7) / 8 * 2; }
CEM_TETRIS_FUNCTION int64_t sorted(int64_t population) {
  int64_t count = 2;
  while (count < population) count *= 2;
  return count;
}

// Writes the candidates of a problem that did not fail, best first; returns how many they are.
__device__ __forceinline__ int ranked(const Job& job, int64_t problem, uint16_t* order, double* memory) {
  using Entry = update::Entry<uint64_t>;
  __shared__ int usable;
  const int population = static_cast<int>(job.settings.population);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  auto* const entry = reinterpret_cast<Entry*>(memory);
  const int count = static_cast<int>(sorted(population));
  if (thread == 0) usable = 0;
  for (int i = thread; i < count; i += threads) {
    const uint64_t key = i < population ? update::wide_key(job, problem * population + i) : ~0ull;
    entry[i] = {key, static_cast<uint64_t>(i)};
  }
  __syncthreads();
  update::sort(entry, count);
  __syncthreads();
  for (int i = thread; i < population; i += threads) {
    if (update::has_failed(job, entry[i].key)) continue;
    order[i] = static_cast<uint16_t>(entry[i].place);
    atomicAdd(&usable, 1);
  }
  __syncthreads();
  return usable;
}

template <typename T> __global__ void __launch_bounds__(kManyThreads, 2)
    adapt_kernel(const __grid_constant__ Call call) {
  let_kernel_after_begin();
  auto* const order = reinterpret_cast<uint16_t*>(update::dynamic_shared());
  double* const memory = update::dynamic_shared() + listed(call.job.settings.population);
  const int usable = ranked(call.job, blockIdx.x, order, memory);
  adapt<T>(Block(call.plan), call, blockIdx.x, order, usable, memory);
}

template <typename T> __global__ void __launch_bounds__(kFewThreads)
    draw_kernel(const __grid_constant__ Draw call) {
  wait_for_kernel_before();
  draw<T>(Block(), call, blockIdx.x, update::dynamic_shared());
}

// `Gpu` is that of cem_update/launch.cuh, and gives kernels more shared memory.
template <typename Gpu> void launch(const Gpu& device, Call call, ScalarType type, Device where) {
  update::launch(device, call.job, type, where);
  const int64_t problems = call.job.settings.problems, population = call.job.settings.population;
  if (problems == 0) return;
  const int threads = call.plan.padded > 40 || population > 256 ? kManyThreads : kFewThreads;
  int64_t bytes = 0;
  auto* const kernel = type == ScalarType::Float ? adapt_kernel<float> : adapt_kernel<double>;
  for (int most = threads; most >= 8; most -= 8) {  // as many candidates at once as there is memory for
    call.plan = Plan(call.plan.dimensions, population, most);
    bytes = listed(population) * 8 + std::max(call.plan.doubles() * 8, sorted(population) * 16);
    if (bytes <= kSharedBytes || device.gives(kernel, bytes)) break;
  }
  device.launch_early(kernel, problems, threads, bytes, call);
}

template <typename Gpu> void launch(const Gpu& device, const Draw& call, ScalarType type) {
  auto* const kernel = type == ScalarType::Float ? draw_kernel<float> : draw_kernel<double>;
  const int64_t bytes = call.doubles() * 8;
  if (bytes > kSharedBytes) device.gives(kernel, bytes);
  device.launch_early(kernel, call.problems * call.groups, kFewThreads, bytes, call);
}

}  // namespace cem_tetris::cma
