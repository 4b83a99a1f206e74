// The operators on CUDA.
//
// Categorical: a block adds up the weights of its problem in shared memory, and draws for some candidates; a
// thread draws one variable of two candidates at a time.
//
// Permutation: a warp a candidate, bound by latency, a step after the other. A lane has neighbouring items; a
// scan of the lanes' sums finds the lane of the next item. Up to 160 items the weights of all rows are in
// shared memory; beyond, each step makes them of its row.
#pragma once

#include <algorithm>

#include "arguments.h"
#include "cem_update/launch.cuh"

namespace cem_tetris::discrete {

using update::kWarp;

constexpr int kThreads = 256, kMostThreads = 1024;
constexpr int kVariables = 1024;  // of a group, with as many categories as one variable may have
constexpr int kMostEach = 5;      // items of a lane where the weights are in shared memory

// Variables that are drawn together.
struct Group {
  int64_t categories_before, categories_of_all;
  int first, variables, categories;
  int blocks, pairs;  // of a problem; of candidates, of a block
  uint16_t start[kVariables + 1];
};

// The sum of the numbers of a lane and all before it. From three lanes at once: a shorter chain than doubling.
__device__ __forceinline__ uint64_t sum_until(uint64_t x, int lane) {
#pragma unroll
  for (int step = 1; step < kWarp; step *= 4) {
    const uint64_t one = __shfl_up_sync(~0u, x, step), two = __shfl_up_sync(~0u, x, 2 * step),
                   three = __shfl_up_sync(~0u, x, 3 * step);
    x += (lane >= step ? one : 0) + (lane >= 2 * step ? two : 0) + (lane >= 3 * step ? three : 0);
  }
  return x;
}

// Sets before[i] to the sum of the weights before i, for i <= count.
__device__ __forceinline__ void add_up(const double* table, int count, uint64_t* before) {
  __shared__ uint64_t of_warp[kThreads / kWarp];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const int each = (count + kThreads - 1) / kThreads, first = min(thread * each, count),
            end = min(first + each, count);
  uint64_t sum = 0;
  for (int i = first; i < end; ++i) before[i + 1] = sum += weight(table[i]);
  uint64_t base = sum_until(sum, lane);
  if (lane == kWarp - 1) of_warp[warp] = base;
  base -= sum;
  __syncthreads();
  for (int w = 0; w < warp; ++w) base += of_warp[w];
  for (int i = first; i < end; ++i) before[i + 1] += base;
  if (thread == 0) before[0] = 0;
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads)
    categorical_kernel(const __grid_constant__ Call call, const __grid_constant__ Group group) {
  wait_for_kernel_before();
  let_kernel_after_begin();
  auto* const before = reinterpret_cast<uint64_t*>(update::dynamic_shared());
  const uint32_t blocks = static_cast<uint32_t>(group.blocks), problem = blockIdx.x / blocks;
  const uint32_t variables = static_cast<uint32_t>(group.variables);
  const int64_t first = int64_t{blockIdx.x % blocks} * group.pairs, all = (call.samples + 1) / 2;
  const Noise noise(call, problem, false);
  add_up(call.table + problem * group.categories_of_all + group.categories_before, group.categories, before);
  const uint32_t count = static_cast<uint32_t>(min(int64_t{group.pairs}, all - first)) * variables;
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
    const uint32_t row = i / variables, v = i - row * variables;
    const int64_t sample = 2 * (first + row);
    const Pair pair = noise.of(first + row, group.first + v);
    const int start = group.start[v], size = group.start[v + 1] - start;
    int64_t* const out = call.out + (problem * call.samples + sample) * call.width + group.first + v;
    out[0] = category(before + start, size, pair.word[0]);
    if (sample + 1 < call.samples) out[call.width] = category(before + start, size, pair.word[1]);
  }
}

// kEach: items of a lane, whose weights are in shared memory; 0: any number, and they are not.
template <int kEach> __global__ void __launch_bounds__(kMostThreads)
    permutation_kernel(const __grid_constant__ Call call, uint32_t blocks) {
  wait_for_kernel_before();
  let_kernel_after_begin();
  constexpr bool kShared = kEach > 0;
  // Of a place in the lanes, to the next one's weights: 16 neighbouring items lie in banks of their own.
  constexpr int kStride = kShared ? kWarp + (15 + kEach) / (kShared ? kEach : 1) % 16 : 0;
  constexpr int kWords = kShared ? 1 : (kMostItems / kWarp + 1 + 31) / 32;  // of 32 items of a lane
  const int n = static_cast<int>(call.width), each = kShared ? kEach : (n + kWarp - 1) / kWarp;
  const int lane = static_cast<int>(threadIdx.x % kWarp), warps = static_cast<int>(blockDim.x / kWarp);
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  const int64_t problem = blockIdx.x / blocks, candidate = int64_t{blockIdx.x % blocks} * warps + warp;
  const double* const table = call.table + problem * (n + 1) * n;
  auto* const weights = reinterpret_cast<uint64_t*>(update::dynamic_shared());
  if constexpr (kShared) {
#pragma unroll 4
    for (int row = warp; row <= n; row += warps) {
#pragma unroll
      for (int item = lane; item < kEach * kWarp; item += kWarp) {
        const double p = table[row * n + min(item, n - 1)];
        weights[(row * kEach + item % kEach) * kStride + item / kEach] = weight(p);
      }
    }
    __syncthreads();
  }
  if (candidate >= call.samples) return;
  const Noise noise(call, problem, true);
  uint32_t left[kWords] = {};  // a bit an item
  for (int j = 0; j < each; ++j) left[kShared ? 0 : j / 32] |= lane * each + j < n ? 1u << j % 32 : 0u;
  int64_t* const out = call.out + (problem * call.samples + candidate) * n;
  int64_t row = 0;
  uint64_t words = 0;
  int items = 0;
#pragma unroll 1
  for (int step = 0; step < n; ++step) {
    const int turn = step % kWarp;
    if (turn == 0) words = noise.of(candidate / 2, step + lane).word[candidate % 2];
    const uint64_t word = __shfl_sync(~0u, words, turn);
    uint64_t own[kShared ? kEach : 1], sum = 0;
    const auto weight_of = [&](int j, bool even) {
      if ((left[kShared ? 0 : j / 32] >> j % 32 & 1) == 0) return uint64_t{0};
      if (even) return uint64_t{1};
      return kShared ? weights[(row * kEach + j) * kStride + lane] : weight(table[row * n + lane * each + j]);
    };
    const auto add = [&](bool even) {  // returns the sum up to this lane
      sum = 0;
#pragma unroll(kShared ? kEach : 8)
      for (int j = 0; j < each; ++j) sum += own[kShared ? j : 0] = weight_of(j, even);
      return sum_until(sum, lane);
    };
    uint64_t until = add(false), total = __shfl_sync(~0u, until, kWarp - 1);
    const bool even = total == 0;
    if (even) until = add(true), total = static_cast<uint64_t>(n - step);
    const uint64_t below = multiply_high(word, total);
    const int winner = __popc(__ballot_sync(~0u, until <= below));
    int place = 0;
    if (kShared || lane == winner) {
      uint64_t prefix = until - sum;
#pragma unroll(kShared ? kEach : 4)
      for (int j = 0; j < each; ++j) {
        prefix += kShared ? own[kShared ? j : 0] : weight_of(j, even);
        place += prefix <= below ? 1 : 0;
      }
    }
    place = __shfl_sync(~0u, place, winner);
    if (lane == winner) left[kShared ? 0 : place / 32] &= ~(1u << place % 32);
    const int item = winner * each + place;
    row = 1 + item;
    if (lane == turn) items = item;
    if ((turn == kWarp - 1 || step == n - 1) && lane <= turn) out[step - turn + lane] = items;
  }
}

// `Gpu` is that of cem_update/launch.cuh.
template <typename Gpu> void launch(const Gpu& device, const Call& call, const Starts& starts) {
  const int64_t all = divide_up(call.samples, 2), full = int64_t{8} * device.multiprocessors;
  Group group{};
  group.categories_of_all = starts.back();
  for (int64_t first = 0, end = 0; first < call.width; first = end) {
    for (; end < call.width && end - first < kVariables && starts[end + 1] - starts[first] <= kMostCategories;
        ++end) {
      group.start[end + 1 - first] = static_cast<uint16_t>(starts[end + 1] - starts[first]);
    }
    group.first = static_cast<int>(first);
    group.variables = static_cast<int>(end - first);
    group.categories_before = starts[first];
    group.categories = static_cast<int>(starts[end] - starts[first]);
    const int64_t rows = kThreads / std::min<int64_t>(end - first, kThreads);
    group.pairs = static_cast<int>(std::max(rows, divide_up(call.problems * all, full)));
    group.blocks = static_cast<int>(divide_up(all, group.pairs));
    device.launch_early(categorical_kernel, call.problems * group.blocks, kThreads,
        int64_t{8} * (group.categories + 1), call, group);
  }
}

template <typename Gpu> void launch(const Gpu& device, const Call& call) {
  constexpr void (*kernels[])(Call, uint32_t) = {permutation_kernel<0>, permutation_kernel<1>,
      permutation_kernel<2>, permutation_kernel<3>, permutation_kernel<4>, permutation_kernel<kMostEach>};
  int64_t warps = 8;  // that share the weights; more where the candidates are more than fill the device
  while (warps < 32 && call.problems * divide_up(call.samples, warps) > device.multiprocessors) warps *= 2;
  const int64_t blocks = divide_up(call.samples, warps), each = divide_up(call.width, kWarp);
  const int64_t bytes = 8 * (call.width + 1) * each * (kWarp + (15 + each) / each % 16);
  STD_TORCH_CHECK(call.problems * blocks < int64_t{1} << 31, "expected fewer candidates");
  const bool fits = each <= kMostEach && device.gives(kernels[each], bytes);
  device.launch_early(kernels[fits ? each : 0], call.problems * blocks, static_cast<int>(warps * kWarp),
      fits ? bytes : 0, call, static_cast<uint32_t>(blocks));
}

#if defined(__CUDACC__)
namespace {
void run(const Call& call, const Starts& starts, Device device) { launch(update::Gpu(device), call, starts); }
void run(const Call& call, Device device) { launch(update::Gpu(device), call); }
}  // namespace
#endif

}  // namespace cem_tetris::discrete
