// The operators on CUDA.
//
// Categorical: a thread draws one variable of two candidates at a time. Permutation: a warp a candidate, bound
// by latency, a step after the other. A lane has neighbouring items, an odd number of them, for the banks of
// shared memory; a scan of the lanes' sums finds that of the next item. Up to 160 items the weights are in
// shared memory; of more each step makes those of its row.
//
// How tables move on CUDA. Weights: a warp a candidate counts who is better. Variables: a block has a few
// columns of a problem; its threads have sums of their own. Transitions, and variables of very many values:
// the sums of all cells are in global memory, then a warp makes each row.
#pragma once

#include <algorithm>

#include "cem_update/launch.cuh"
#include "discrete.h"

namespace cem_tetris::discrete {

using update::kWarp;

constexpr int kThreads = 256, kMostThreads = 1024;
constexpr int kVariables = 512;  // of a group

// Variables that are drawn together, and where their categories begin.
struct Group {
  int64_t categories;     // of all variables
  uint32_t blocks, rows;  // of a problem; pairs of candidates, of a block
  uint32_t first, variables;
  bool staged;  // whether their weights fit into shared memory
  int start[kVariables + 1];
};

// Writes weights to shared memory.
template <int kAtOnce>
__device__ __forceinline__ void stage(const double* table, int count, uint64_t* weights) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int first = thread; first < count; first += kAtOnce * threads) {
    double p[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) p[i] = table[min(first + i * threads, count - 1)];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i * threads < count) weights[first + i * threads] = weight(p[i]);
    }
  }
  __syncthreads();
}

// The sum of the numbers of a lane and all before it. From three lanes at once: a shorter chain than doubling.
__device__ __forceinline__ uint64_t sum_until(uint64_t x, int lane) {
#pragma unroll
  for (int step = 1; step < kWarp; step *= 4) {
    const uint64_t own = x;
#pragma unroll
    for (int back = step; back < 4 * step && back < kWarp; back += step) {
      const uint64_t other = __shfl_up_sync(~0u, own, back);
      x += lane >= back ? other : 0;
    }
  }
  return x;
}

__global__ void __launch_bounds__(kThreads)
    categorical_kernel(const __grid_constant__ Call call, const __grid_constant__ Group group) {
  wait_for_kernel_before();
  let_kernel_after_begin();
  const int64_t problem = blockIdx.x / group.blocks, top = int64_t{blockIdx.x % group.blocks} * group.rows;
  const int64_t rows = min(int64_t{group.rows}, (call.samples + 1) / 2 - top);
  const Noise noise(call, problem, false);
  const double* const table = call.table + problem * group.categories;
  auto* const weights = reinterpret_cast<uint64_t*>(update::dynamic_shared());
  const int before = group.start[0];
  if (group.staged) stage<4>(table + before, group.start[group.variables] - before, weights);
  for (uint32_t i = threadIdx.x; i < rows * group.variables; i += kThreads) {
    const uint32_t row = i / group.variables, v = i - row * group.variables;
    const int64_t sample = 2 * (top + row), place = group.first + v;
    const auto set = [&](uint64_t* word) { noise.set(top + row, place, word); };
    int found[2];
    const auto draw = [&](const auto* p) {
      draw_category<4>(p + group.start[v], group.start[v + 1] - group.start[v], set, found);
    };
    group.staged ? draw(weights - before) : draw(table);
    const int64_t out = (problem * call.samples + sample) * call.width + place;
    call.put(out, found[0]);
    if (sample + 1 < call.samples) call.put(out + call.width, found[1]);
  }
}

// kEach: items of a lane, whose weights are in shared memory; 0: any number, and they are not.
template <int kEach> __global__ void __launch_bounds__(kMostThreads, 1)
    permutation_kernel(const __grid_constant__ Call call, uint32_t blocks) {
  wait_for_kernel_before();
  let_kernel_after_begin();
  constexpr bool kShared = kEach > 0;
  const int n = static_cast<int>(call.width), each = kShared ? kEach : (n + kWarp - 1) / kWarp | 1;
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int lane = thread % kWarp;
  const int64_t problem = blockIdx.x / blocks,
                candidate = (int64_t{blockIdx.x % blocks} * threads + thread) / kWarp;
  const double* const table = call.table + problem * (n + 1) * n;
  auto* const weights = reinterpret_cast<uint64_t*>(update::dynamic_shared());
  if constexpr (kShared) stage<16>(table, (n + 1) * n, weights);
  if (candidate >= call.samples) return;
  const Noise noise(call, problem, true);
  uint32_t left[kShared ? 1 : kMost / kWarp / 32 + 2] = {};  // a bit an item
  for (int j = 0; j < each; ++j) left[kShared ? 0 : j / 32] |= lane * each + j < n ? 1u << j % 32 : 0u;
  int64_t row = lane * each;  // where the items of this lane are
  uint64_t words[2] = {};
  int items = 0;
#pragma unroll 1
  for (int step = 0; step < n; ++step) {
    const int turn = step % kWarp;
    if (turn == 0) noise.set(candidate / 2, step + lane, words);
    const uint64_t word = __shfl_sync(~0u, candidate % 2 == 0 ? words[0] : words[1], turn);
    uint64_t own[kShared ? kEach : 1], sum = 0;
    const auto weight_of = [&](int j, bool even) {
      const uint64_t is_left = left[kShared ? 0 : j / 32] >> j % 32 & 1;
      if (even) return is_left;
      if constexpr (kShared) return (0 - is_left) & weights[row + j];
      return is_left != 0 ? weight(table[row + j]) : 0;
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
    row = int64_t{1 + item} * n + lane * each;
    if (lane == turn) items = item;
    if ((turn == kWarp - 1 || step == n - 1) && lane <= turn) {
      call.put((problem * call.samples + candidate) * n + step - turn + lane, items);
    }
  }
}

// `Gpu` is that of cem_update/launch.cuh.
template <typename Gpu> void launch_categorical(const Gpu& device, const Call& call) {
  const int64_t pairs = divide_up(call.samples, 2), full = int64_t{8} * device.multiprocessors;
  for (int64_t first = 0; first < call.width; first += kVariables) {
    const int64_t variables = std::min<int64_t>(kVariables, call.width - first);
    const int64_t rows = std::max({int64_t{1}, kThreads / variables, divide_up(call.problems * pairs, full)});
    const int64_t blocks = divide_up(pairs, rows),
                  bytes = 8 * (call.starts[first + variables] - call.starts[first]);
    Group group{call.starts[call.width], static_cast<uint32_t>(blocks), static_cast<uint32_t>(rows),
        static_cast<uint32_t>(first), static_cast<uint32_t>(variables),
        device.gives(categorical_kernel, bytes), {}};
    std::copy_n(call.starts + first, variables + 1, group.start);
    device.launch_early(
        categorical_kernel, call.problems * blocks, kThreads, group.staged ? bytes : 0, call, group);
  }
}

template <typename Gpu> void launch_permutation(const Gpu& device, const Call& call) {
  constexpr void (*kernels[])(Call, uint32_t) = {
      permutation_kernel<0>, permutation_kernel<1>, permutation_kernel<3>, permutation_kernel<5>};
  int64_t warps = 8;  // that share the weights; more where the candidates are more than fill the device
  while (warps < 32 && call.problems * divide_up(call.samples, warps) > device.multiprocessors) warps *= 2;
  const int64_t blocks = divide_up(call.samples, warps), each = divide_up(call.width, kWarp) | 1;
  const int64_t bytes = 8 * ((call.width + 1) * call.width + each * kWarp);  // the last lanes' items, too
  STD_TORCH_CHECK(call.problems * blocks < int64_t{1} << 31, "expected fewer candidates");
  const bool fits = each <= 5 && device.gives(kernels[each / 2 + 1], bytes);
  device.launch_early(kernels[fits ? each / 2 + 1 : 0], call.problems * blocks,
      static_cast<int>(warps * kWarp), fits ? bytes : 0, call, static_cast<uint32_t>(blocks));
}

template <typename Gpu> void launch(const Gpu& device, const Call& call, Device) {
  (call.starts != nullptr ? launch_categorical<Gpu> : launch_permutation<Gpu>)(device, call);
}

constexpr int kMoveThreads = 512, kColumns = 8, kParts = kMoveThreads / kColumns;
constexpr int kAtOnce = 16;  // candidates whose loads are in flight
constexpr int kWarps = 8, kRowThreads = kWarps * update::kWarp;

using Sum = unsigned long long;

__device__ __forceinline__ int64_t warp_of_grid() {
  return int64_t{blockIdx.x} * kWarps + threadIdx.x / update::kWarp;
}

template <typename Type> __global__ void __launch_bounds__(kRowThreads)
    rank_kernel(const __grid_constant__ Move call) {
  wait_for_kernel_before();
  let_kernel_after_begin();
  const int64_t i = warp_of_grid(), problem = i / call.samples;
  const int lane = static_cast<int>(threadIdx.x % update::kWarp);
  const int samples = static_cast<int>(call.samples), candidate = static_cast<int>(i - problem * samples);
  if (problem >= call.problems) return;
  const auto key = [&](int k) { return Type::key(bits_of<Type>(call, problem, k), call.maximize); };
  const auto own = key(candidate);
  int better = 0, equal = 0, before = 0;
#pragma unroll 8
  for (int k = lane; k < samples; k += update::kWarp) {
    const auto other = key(k);
    better += other < own ? 1 : 0;
    equal += other == own ? 1 : 0;
    before += other == own && k < candidate ? 1 : 0;
  }
  better = update::warp_sum(better), equal = update::warp_sum(equal), before = update::warp_sum(before);
  if (lane != 0) return;
  call.ranked_of(problem)[candidate] = weight_of(call, better, better + equal);
  if (better + before == 0) choose<Type>(call, problem, candidate);
}

template <typename T> __global__ void __launch_bounds__(kMoveThreads)
    variables_kernel(const __grid_constant__ Move call, const __grid_constant__ Family family, int groups) {
  wait_for_kernel_before();
  let_kernel_after_begin();
  auto* const sums = reinterpret_cast<int64_t*>(update::dynamic_shared());  // of a value, a thread each
  const int thread = static_cast<int>(threadIdx.x), values = static_cast<int>(family.values);
  const int64_t problem = blockIdx.x / groups, first = int64_t{blockIdx.x % groups} * kColumns;
  const int columns = static_cast<int>(min(int64_t{kColumns}, family.columns - first));
  for (int k = 0; k < values; ++k) sums[k * kMoveThreads + thread] = 0;
  if (thread % kColumns < columns) {
    const T* const x = call.columns_of<T>(family, problem, 0) + first + thread % kColumns;
    const int64_t* const weights = call.ranked_of(problem);
    for (int64_t begin = thread / kColumns; begin < call.samples; begin += kAtOnce * kParts) {
      T value[kAtOnce];
      int64_t weight[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const int64_t i = begin + u * kParts, near = min(i, call.samples - 1);
        const int64_t known = weights[near];
        value[u] = x[near * call.row_stride];
        weight[u] = i == near ? known : 0;
      }
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) sums[value_of(family, value[u]) * kMoveThreads + thread] += weight[u];
    }
  }
  __syncthreads();
  const int64_t place = problem * call.width + family.first_cell + first * values;
  for (int cell = thread; cell < values * kColumns; cell += kMoveThreads) {
    int64_t* const own = sums + cell / kColumns * kMoveThreads + cell % kColumns;
    int64_t sum = 0;
#pragma unroll 16
    for (int part = 0; part < kParts; ++part) sum += own[part * kColumns];
    if (cell % kColumns >= columns) continue;
    own[0] = bit_cast<int64_t>(
        raised(family, call.before[place + cell % kColumns * values + cell / kColumns], sum));
  }
  __syncthreads();
  for (int cell = thread; cell < values * columns; cell += kMoveThreads) {
    const int64_t* const row = sums + cell / values;
    double total = 0.0;
    for (int k = 0; k < values; ++k) total += bit_cast<double>(row[k * kMoveThreads]);
    call.after[place + cell] = share(bit_cast<double>(row[cell % values * kMoveThreads]), total);
  }
  if (thread < columns) keep_best<T>(call, family, problem, first + thread);
}

// Adds up the weights of all cells of a family. sums: zeros.
template <typename T> __global__ void __launch_bounds__(kRowThreads)
    count_kernel(const __grid_constant__ Move call, const __grid_constant__ Family family, Sum* sums) {
  const int64_t i = warp_of_grid(), problem = i / call.samples;
  if (problem >= call.problems) return;
  const T* const x = call.columns_of<T>(family, problem, i % call.samples);
  const Sum weight = static_cast<Sum>(call.ranked_of(problem)[i % call.samples]);
  sums += problem * family.rows * family.values;
  for (int64_t c = threadIdx.x % update::kWarp; c < family.columns; c += update::kWarp) {
    atomicAdd(sums + row_of(family, x, c) * family.values + value_of(family, x[c]), weight);
  }
}

template <typename T> __global__ void __launch_bounds__(kRowThreads)
    rows_kernel(const __grid_constant__ Move call, const __grid_constant__ Family family, const Sum* sums) {
  wait_for_kernel_before();
  let_kernel_after_begin();
  const int64_t i = warp_of_grid(), problem = i / family.rows, row = i % family.rows;
  const int lane = static_cast<int>(threadIdx.x % update::kWarp);
  if (problem >= call.problems) return;
  const int64_t place = problem * call.width + family.first_cell + row * family.values;
  const auto moved = [&](int64_t k) {
    return raised(family, call.before[place + k], static_cast<int64_t>(sums[i * family.values + k]));
  };
  double total = 0.0;
  for (int64_t k = lane; k < family.values; k += update::kWarp) total += moved(k);
#pragma unroll
  for (int step = update::kWarp / 2; step > 0; step /= 2) total += __shfl_xor_sync(update::kAll, total, step);
  for (int64_t k = lane; k < family.values; k += update::kWarp) {
    call.after[place + k] = share(moved(k), total);
  }
  if (lane == 0 && row < family.columns) keep_best<T>(call, family, problem, row);
}

template <typename T, typename Gpu>
void move(const Gpu& device, const Move& call, const Family& family, Device where) {
  const int64_t groups = divide_up(family.columns, kColumns), bytes = 8 * kMoveThreads * family.values;
  if (!family.has_transitions() && device.gives(variables_kernel<T>, bytes)) {
    const auto blocks = call.problems * groups;
    return device.launch_early(
        variables_kernel<T>, blocks, kMoveThreads, bytes, call, family, static_cast<int>(groups));
  }
  const int64_t rows = call.problems * family.rows, candidates = call.problems * call.samples;
  STD_TORCH_CHECK(rows < int64_t{1} << 31, "expected fewer rows");
  const Tensor sums = empty(where, ScalarType::Long, {rows * family.values});
  auto* const of_cells = static_cast<Sum*>(sums.mutable_data_ptr());
  device.zero(of_cells, 8 * rows * family.values);
  device.launch(count_kernel<T>, divide_up(candidates, kWarps), kRowThreads, 0, call, family, of_cells);
  device.launch_early(rows_kernel<T>, divide_up(rows, kWarps), kRowThreads, 0, call, family, of_cells);
}

template <typename Gpu> void launch(const Gpu& device, const Move& call, Device where) {
  STD_TORCH_CHECK(call.problems * call.samples < int64_t{1} << 31, "expected fewer candidates");
  update::visit_fitness(call.fitness_type, [&](auto kind) {
    device.launch_early(
        rank_kernel<decltype(kind)>, divide_up(call.problems * call.samples, kWarps), kRowThreads, 0, call);
  });
  for (const Family& family : *call.families) {
    (call.type == ScalarType::Double ? move<double, Gpu> : move<float, Gpu>)(device, call, family, where);
  }
}

#if defined(__CUDACC__)
using update::run;
#endif

}  // namespace cem_tetris::discrete
