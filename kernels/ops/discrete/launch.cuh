// The operators on CUDA: a draw is one kernel; an update one of ranks, then one a family.
#pragma once

#include <algorithm>

#include "cem_update/launch.cuh"
#include "discrete.h"

namespace cem_tetris::discrete {

using update::kAll;
using update::kWarp;

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

__device__ __forceinline__ uint32_t warp_of_grid() {
  return blockIdx.x * kWarps + threadIdx.x / kWarp;
}

// A warp draws a variable of 64 candidates, a block as many variables as it has warps. blocks:
// of a row of candidates; groups: of candidates, of a problem.
__global__ void __launch_bounds__(kThreads)
    categorical_kernel(const __grid_constant__ Call call, uint32_t blocks, uint32_t groups) {
  wait_for_kernel_before();
  let_kernel_after_begin();
  __shared__ int drawn[2 * kWarp][kWarps + 1];
  const uint32_t group = blockIdx.x / blocks, problem = group / groups;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp,
            lane = thread % kWarp;
  const int64_t variable = int64_t{blockIdx.x - group * blocks} * kWarps,
                sample = int64_t{group - problem * groups} * 2 * kWarp;
  const int64_t row = problem * call.rows + min(variable + warp, call.rows - 1);
  const Noise noise(call, problem);
  int found[2];
  draw_category<4>(
      call.table + row * call.values, static_cast<int>(call.values),
      [&](uint64_t* word) { noise.set(sample / 2 + lane, variable + warp, word); }, found);
  for (int h = 0; h < 2; ++h) drawn[2 * lane + h][warp] = found[h];
  __syncthreads();
#pragma unroll 1
  for (int i = thread; i < 2 * kThreads; i += kThreads) {
    const int64_t s = sample + i / kWarps, v = variable + i % kWarps;
    if (s < call.samples && v < call.rows) {
      call.put((problem * call.samples + s) * call.rows + v, drawn[i / kWarps][i % kWarps]);
    }
  }
}

// A warp draws a candidate, bound by latency, a step after the other. A lane has neighbouring
// items; a scan of the lanes' sums finds that of the next item.
__global__ void __launch_bounds__(kThreads)
    permutation_kernel(const __grid_constant__ Call call) {
  wait_for_kernel_before();
  let_kernel_after_begin();
  const int n = static_cast<int>(call.values), each = (n + kWarp - 1) / kWarp;
  const int lane = static_cast<int>(threadIdx.x % kWarp), first = min(lane * each, n),
            count = min(each, n - first);
  const int64_t i = warp_of_grid(), problem = i / call.samples,
                candidate = i - problem * call.samples;
  if (problem >= call.problems) return;
  auto* const left =
      reinterpret_cast<uint32_t*>(update::dynamic_shared()) + threadIdx.x;  // a bit an item
  for (int j = 0; j < each; j += 32) left[j / 32 * kThreads] = kAll;
  const double* const table = call.table + problem * call.rows * n + first;
  const double* row = table;
  const Noise noise(call, problem);
  uint64_t words[2];
  int item = 0, items = 0;
#pragma unroll 1
  for (int step = 0; step < n; ++step) {
    const int turn = step % kWarp;
    if (turn == 0) noise.set(candidate / 2, step + lane, words);
    const uint64_t word = __shfl_sync(kAll, candidate % 2 == 0 ? words[0] : words[1], turn);
    uint64_t sum, until, total = 0;
    bool even = true;
    const auto weight_of = [&](int j) {
      const uint64_t is_left = left[j / 32 * kThreads] >> j % 32 & 1;
      return even ? is_left : (0 - is_left) & weight(row[j]);
    };
    do {  // by the row, or where all is 0 evenly
      even = !even;
      sum = 0;
#pragma unroll 4
      for (int j = 0; j < count; ++j) sum += weight_of(j);
      until = update::warp_scan(sum, lane);
      total = __shfl_sync(kAll, until, kWarp - 1);
    } while (total == 0);
    const uint64_t below = multiply_high(word, total);
    const int winner = __popc(__ballot_sync(kAll, until <= below));
    if (lane == winner) {
      uint64_t prefix = until - sum;
      int place = 0;
#pragma unroll 4
      for (int j = 0; j < count; ++j) place += (prefix += weight_of(j)) <= below ? 1 : 0;
      left[place / 32 * kThreads] &= ~(1u << place % 32);
      item = first + place;
    }
    item = __shfl_sync(kAll, item, winner);
    row = table + int64_t{1 + item} * n;
    if (lane == turn) items = item;
    if ((turn == kWarp - 1 || step == n - 1) && lane <= turn)
      call.put(i * n + step - turn + lane, items);
  }
}

template <typename Gpu> void launch(const Gpu& device, const Call& call, Device) {
  STD_TORCH_CHECK(call.problems * call.samples < int64_t{1} << 31, "expected fewer candidates");
  if (call.is_permutation) {
    const int64_t words = divide_up(divide_up(call.values, kWarp), 32);
    return device.launch_early(permutation_kernel,
        divide_up(call.problems * call.samples, kWarps), kThreads, words * kThreads * 4, call);
  }
  const int64_t blocks = divide_up(call.rows, kWarps),
                groups = divide_up(call.samples, 2 * kWarp);
  device.launch_early(categorical_kernel, call.problems * groups * blocks, kThreads, 0, call,
      static_cast<uint32_t>(blocks), static_cast<uint32_t>(groups));
}

constexpr int kAtOnce = 4,
              kTile = kAtOnce * kThreads;  // keys that a thread, a block loads together

// A warp counts who is better than a candidate; blocks: of a problem.
template <typename Type> __global__ void __launch_bounds__(kThreads)
    rank_kernel(const __grid_constant__ Move call, uint32_t blocks) {
  wait_for_kernel_before();
  let_kernel_after_begin();
  __shared__ typename Type::Key keys[kTile];
  const int samples = static_cast<int>(call.settings.population);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
  const uint32_t problem = blockIdx.x / blocks, first = problem * samples;
  const int i = static_cast<int>(blockIdx.x - problem * blocks) * kWarps + thread / kWarp;
  const auto bits_of = [&](int k) {
    return update::load<Type>(call.fitness, first + min(k, samples - 1));
  };
  const auto bits = bits_of(i);
  const auto own = Type::key(bits, call.settings.maximize);
  int better = 0, equal = 0, before = 0;
#pragma unroll 1
  for (int tile = 0; tile < samples; tile += kTile) {
    typename Type::Bits loaded[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) loaded[u] = bits_of(tile + u * kThreads + thread);
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      keys[u * kThreads + thread] = Type::key(loaded[u], call.settings.maximize);
    }
    __syncthreads();
#pragma unroll 8
    for (int turn = 0; turn < kTile / kWarp; ++turn) {
      const auto key = keys[turn * kWarp + lane];
      const int k = tile + turn * kWarp + lane;
      better += k < samples && key < own ? 1 : 0;
      equal += k < samples && key == own ? 1 : 0;
      before += k < i && key == own ? 1 : 0;
    }
    __syncthreads();
  }
  better = update::warp_sum(better), equal = update::warp_sum(equal),
  before = update::warp_sum(before);
  if (lane != 0 || i >= samples) return;
  const int rank = better + before;
  const bool failed = Type::kCanFail && own == typename Type::Key(-1);
  call.weights[first + i] = weight_of(call, better, better + equal);
  call.values[first + i] = !failed && rank < call.settings.elites ? Type::value(bits) : kNaN;
  if (rank == 0) call.best[problem] = i;
}

constexpr int kMoveThreads = 512, kMoveWarps = kMoveThreads / kWarp;
constexpr int kColumns = 8, kParts = kMoveThreads / kColumns;
constexpr int kLoads = 16;  // of candidates, in flight

using Sum = unsigned long long;

constexpr int kPlaces = 2 * update::kChunk;  // of elites that finish() keeps

// Writes the record and the best candidate of a problem; the sum is in the order of update.h.
template <typename T>
__device__ __forceinline__ void finish(const Move& call, int64_t problem) {
  double* const kept = update::dynamic_shared();
  __shared__ int before[update::kMaxWarps];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
  const int samples = static_cast<int>(call.settings.population);
  const bool maximize = call.settings.maximize;
  const double* const values = call.values + problem * samples;
  const auto worse = [&](double a, double b) {
    return maximize ? fmin(a, b) : fmax(a, b);
  };  // NaN is none
  const int64_t best = call.best[problem], place = problem * call.width + call.cells;
  const double fittest = values[best],
               known = call.record[problem * update::kFigures + update::kBestFitness];
  double worst = kNaN, sum = 0.0;  // sum: of a chunk, a lane each
  int places = 0, chunk = 0;
#pragma unroll 1
  for (int first = 0; first < samples; first += kMoveThreads) {
    const double x = first + thread < samples ? values[first + thread] : kNaN;
    update::in_index_order<1>(
        before, [&](int) { return x == x; },
        [&](int, int place) { kept[(places + place) % kPlaces] = x; });
    places += __syncthreads_count(x == x);
    if (thread >= kWarp) continue;
    const bool last = first + kMoveThreads >= samples;
    for (; places - chunk * update::kChunk >= (last ? 1 : update::kChunk); ++chunk) {
      const int begin = chunk * update::kChunk, end = min(places, begin + update::kChunk);
      const double folded = update::warp_folded(begin, end, [&](int64_t p) {
        worst = worse(worst, kept[p % kPlaces]);
        return kept[p % kPlaces];
      });
      const double of_chunk = __shfl_sync(kAll, folded, 0);
      if (lane == chunk) sum += of_chunk;
    }
  }
  const double top = places > 0 ? fittest : 0.0;
  const bool better = places > 0 && update::is_better(top, known, maximize);
#pragma unroll 1
  for (int c = thread; c < call.width - call.cells; c += kMoveThreads) {
    call.after[place + c] = better
                                ? static_cast<double>(call.columns_of<T>(problem, best, c)[0])
                                : call.before[place + c];
  }
  if (thread >= kWarp) return;
  sum = update::warp_fold(sum);
#pragma unroll 1
  for (int step = kWarp / 2; step > 0; step /= 2)
    worst = worse(worst, __shfl_xor_sync(kAll, worst, step));
  if (lane == 0) update::write_record(call, problem, places, top, sum, worst, *call.generation);
}

// Adds up the weights of all cells of a family, a warp a candidate's; of transitions a column's
// row is by the value before. sums: zeros.
template <typename T> __global__ void __launch_bounds__(kThreads) count_kernel(
    const __grid_constant__ Move call, const __grid_constant__ Family family, Sum* sums) {
  const int64_t i = warp_of_grid(), problem = i / call.settings.population;
  if (problem >= call.settings.problems) return;
  const T* const x =
      call.columns_of<T>(problem, i - problem * call.settings.population, family.first_column);
  const Sum weight = static_cast<Sum>(call.weights[i]);
#pragma unroll 4
  for (int64_t c = threadIdx.x % kWarp; c < family.columns; c += kWarp) {
    const int64_t after = c == 0 ? 0 : 1 + value_of(family, x[c - 1]);
    const int64_t row = problem * family.rows + (family.has_transitions() ? after : c);
    atomicAdd(sums + row * family.values + value_of(family, x[c]), weight);
  }
}

// Moves a table. A block has a few rows. It adds up the weights of their values in shared
// memory, where each thread has a column and sums of its own; or they are counted before. One
// more block of a problem finishes it.
template <typename T> __global__ void __launch_bounds__(kMoveThreads)
    move_kernel(const __grid_constant__ Move call, const __grid_constant__ Family family,
        uint32_t blocks, Sum* counted) {
  const uint32_t problem = blockIdx.x / blocks;
  const int first = static_cast<int>(blockIdx.x - problem * blocks) * kColumns;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
  const int values = static_cast<int>(family.values),
            rows = min(kColumns, static_cast<int>(family.rows) - first);
  const bool counts = counted == nullptr;
  Sum* const sums = counts ? reinterpret_cast<Sum*>(update::dynamic_shared())
                           : counted + (problem * family.rows + first) * values;
  const int of_value = counts ? kMoveThreads : 1, of_row = counts ? 1 : values;
  const auto sum_of = [&](int row, int value) {
    return sums + value * of_value + row * of_row;
  };
#pragma unroll 1
  for (int k = 0; counts && k < values; ++k) sums[k * kMoveThreads + thread] = 0;
  wait_for_kernel_before();
  let_kernel_after_begin();
  if (rows <= 0) return finish<T>(call, problem);
  if (counts) {
    const int samples = static_cast<int>(call.settings.population), part = thread / kColumns;
    const int64_t stride = call.width - call.cells;
    const T* x = call.columns_of<T>(
        problem, part, family.first_column + first + min(lane % kColumns, rows - 1));
    const int64_t* const weights = call.weights + int64_t{problem} * samples;
#pragma unroll 1
    for (int begin = part; begin < samples; begin += kLoads * kParts) {
      T number[kLoads];
      int64_t weight[kLoads];
#pragma unroll
      for (int u = 0; u < kLoads; ++u, x += kParts * stride) {
        const int i = begin + u * kParts;
        number[u] = i < samples ? *x : T(0);
        weight[u] = i < samples ? weights[i] : 0;
      }
#pragma unroll
      for (int u = 0; u < kLoads; ++u) {
        sums[value_of(family, number[u]) * kMoveThreads + thread] += weight[u];
      }
    }
  }
  __syncthreads();
  const int64_t place = problem * call.width + family.first_cell + int64_t{first} * values;
#pragma unroll 1
  for (int cell = thread; cell < values * kColumns; cell += kMoveThreads) {
    const int value = cell / kColumns, row = cell % kColumns;
    if (row >= rows) continue;
    const double p = call.before[place + row * values + value];
    Sum* const own = sum_of(row, value);
    Sum sum = own[0];
    if (counts) {
#pragma unroll 9
      for (int i = 1; i < kParts; ++i) sum += own[i * kColumns];
    }
    own[0] = bit_cast<Sum>(raised(family, p, static_cast<int64_t>(sum)));
  }
  __syncthreads();
#pragma unroll 1
  for (int row = thread / kWarp; row < rows; row += kMoveWarps) {
    double total = 0.0;
#pragma unroll 1
    for (int k = lane; k < values; k += kWarp) total += bit_cast<double>(*sum_of(row, k));
#pragma unroll
    for (int step = kWarp / 2; step > 0; step /= 2) total += __shfl_xor_sync(kAll, total, step);
#pragma unroll 1
    for (int k = lane; k < values; k += kWarp) {
      call.after[place + row * values + k] = share(bit_cast<double>(*sum_of(row, k)), total);
    }
  }
}

template <typename T, typename Gpu>
void move(const Gpu& device, const Move& call, const Family& family, Device where) {
  const int64_t problems = call.settings.problems,
                cells = problems * family.rows * family.values,
                blocks = divide_up(family.rows, kColumns) + (family.first_column == 0 ? 1 : 0);
  int64_t bytes = 8 * std::max<int64_t>(kPlaces, kMoveThreads * family.values);
  std::optional<Tensor> zeros;
  Sum* counted = nullptr;
  if (family.has_transitions() || !device.gives(move_kernel<T>, bytes)) {
    zeros = empty(where, ScalarType::Long, {cells});
    counted = mutable_data<Sum>(*zeros);
    device.zero(counted, 8 * cells);
    device.launch(count_kernel<T>, divide_up(problems * call.settings.population, kWarps),
        kThreads, 0, call, family, counted);
    bytes = 8 * kPlaces;
  }
  device.launch_early(move_kernel<T>, problems * blocks, kMoveThreads, bytes, call, family,
      static_cast<uint32_t>(blocks), counted);
}

template <typename Gpu> void launch(const Gpu& device, const Move& call, Device where) {
  const int64_t problems = call.settings.problems;
  if (problems == 0) return device.launch(update::count_kernel, 1, 1, 0, call);
  const int64_t blocks = divide_up(call.settings.population, kWarps);
  update::visit_fitness(call.fitness_type, [&](auto kind) {
    device.launch_early(rank_kernel<decltype(kind)>, problems * blocks, kThreads, 0, call,
        static_cast<uint32_t>(blocks));
  });
  for (const Family& family : *call.families) {
    (call.type == update::Number::Double ? move<double, Gpu> : move<float, Gpu>)(device, call,
        family, where);
  }
}

}  // namespace cem_tetris::discrete
