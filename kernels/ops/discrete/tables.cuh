// How tables move on CUDA. Weights: a warp a candidate counts who is better. Variables: a block has a few
// columns of a problem; its threads have sums of their own. Transitions, and variables of very many values:
// the sums of all cells are in global memory, then a warp makes each row.
#pragma once

#include "cem_update/launch.cuh"
#include "tables.h"

namespace cem_tetris::discrete {

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

// `Gpu` is that of cem_update/launch.cuh.
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

}  // namespace cem_tetris::discrete
