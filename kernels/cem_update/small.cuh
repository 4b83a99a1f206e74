// A whole update in one kernel, for populations of which every candidate has a thread.
//
// Grid: a problem has `blocks` blocks, and each of them finds the elites again, which costs less than a second
// kernel. Each takes every `blocks`-th tile of kWarp dimensions; block `record_block`, which may have no tile,
// writes record and elites.
//
// It is bound by latency, of instructions that are fetched as much as of data: code that is used twice is a
// function that is called, and hardly a loop is unrolled. This is the chain: the fitness is loaded; ranks by counting up to kCounted
// candidates, else a search for the limit by counts over the block; the elites' places in index order; a warp
// a dimension loads the elites' rows, a residue class a lane, and folds them; one warp finishes the tile. What
// does not depend on the elites is loaded and computed before they are known.
#pragma once

#include "device.cuh"

namespace cem_tetris::update {

constexpr int kSmallPopulation = 1024, kCounted = 256;
constexpr int kSmallChunks = kSmallPopulation / kChunk;
static_assert(kSmallChunks == 2, "expected at most two chunks, whose sums are one addition");

// `blocks` a problem, of which `record_block` writes the record. Elites are ranked in `groups` of a warp each:
// `parts` warps share the comparisons of a group, `step` keys each; `reciprocal` is 2^16 / groups, rounded up.
struct SmallGrid {
  int tiles, blocks, record_block;
  int groups, parts, step, reciprocal;
};

// What the threads of a block tell each other; the arrays have the size that a launch needs, so that many small
// problems share a multiprocessor.
template <typename Key>
struct SmallShared {
  double moments[2][kWarp];
  Key least[kMaxWarps], most[kMaxWarps];
  int before[kMaxWarps];
  double top, threshold;
  int best;
  Weight weight_sums;
};

template <typename Key>
struct SmallArrays {
  Key* key;         // of what is ranked, all candidates or the elites by place, and kWarp greatest keys
  double* weight;   // by rank, then by place
  double* value;    // the fitness, by place
  int* rank;        // as `key`, without the last ones
  uint16_t* index;  // by place

  __device__ __forceinline__ SmallArrays(double* memory, int threads, int elites) {
    key = reinterpret_cast<Key*>(memory);
    weight = reinterpret_cast<double*>(key + threads + kWarp);
    value = weight + elites;
    rank = reinterpret_cast<int*>(value + elites);
    index = reinterpret_cast<uint16_t*>(rank + threads);
  }
};

template <typename Key>
constexpr int64_t small_bytes(int64_t threads, int64_t elites) {
  return (threads + kWarp) * static_cast<int64_t>(sizeof(Key)) + elites * 18 + threads * 4;
}

// Adds to rank[p] the keys that come before key[p] among the first `count`, which greatest keys follow.
template <typename Key>
__device__ __noinline__ void add_ranks(const SmallGrid& grid, const Key* keys, int count, int* rank) {
  constexpr int kPack = 16 / sizeof(Key);
  struct alignas(16) Pack {
    Key key[kPack];
  };
  const int warp = threadIdx.x / kWarp, part = warp * grid.reciprocal >> 16;
  if (part >= grid.parts) return;
  const int p = (warp - part * grid.groups) * kWarp + threadIdx.x % kWarp;
  const int from = part * grid.step, to = min(from + grid.step, (count + kPack - 1) / kPack * kPack);
  if (p >= count) return;
  const Key mine = keys[p];
  int before = 0;
#pragma unroll 1
  for (int q = from; q < to; q += kPack) {
    const Pack pack = *reinterpret_cast<const Pack*>(keys + q);
#pragma unroll
    for (int u = 0; u < kPack; ++u) before += pack.key[u] < mine || (pack.key[u] == mine && q + u < p) ? 1 : 0;
  }
  if (grid.parts == 1) {
    rank[p] = before;
  } else {
    atomicAdd(&rank[p], before);
  }
}

// The fold of the first numbers of a row, or of their squares, at most two chunks, by one warp; lane 0 has it.
__device__ __noinline__ double warp_row_sum(const double* row, int count, bool squared) {
  double sum = 0.0;
#pragma unroll 1
  for (int chunk = 0; chunk < count; chunk += kChunk) {
    const int end = min(count, chunk + kChunk);
    double partial = 0.0;
#pragma unroll 1
    for (int p = chunk + threadIdx.x % kWarp; p < end; p += kWarp) {
      const double x = row[p];
      partial += squared ? x * x : x;
    }
    partial = warp_fold(partial);
    sum = chunk == 0 ? partial : sum + partial;
  }
  return sum;
}

__device__ __noinline__ double quotient(double a, double b) { return a / b; }

// make_weight and newest_share of update.h, with one division for all.
__device__ __forceinline__ Weight weight_of(const Settings& settings, double total, double squares) {
  Weight weight{quotient(1.0, total), 0.0};
  if (settings.variance == kNewMeanUnbiased) {
    const double scale = 1.0 - quotient(squares, total * total);
    weight.unbiased = scale > 0.0 ? quotient(1.0, scale) : 0.0;
  }
  return weight;
}
__device__ __forceinline__ double newest_of(const Settings& settings, int64_t generation) {
  return settings.mean_averaging == 0.0
             ? 1.0
             : quotient(1.0, 1.0 + settings.mean_averaging * static_cast<double>(generation));
}

struct KeyAndValue {
  uint64_t key;
  double value;
};

template <typename Key>
__device__ __noinline__ KeyAndValue fitness_of(ScalarType type, const void* fitness, int64_t i, bool maximize) {
  return visit<Key>(type, [&](auto kind) {
    const auto bits = load<decltype(kind)>(fitness, i);
    return KeyAndValue{kind.key(bits, maximize), kind.value(bits)};
  });
}

// The moments of one dimension, by one warp; lane 0 has them.
template <typename T>
__device__ __forceinline__ Moments warp_moments(const T* rows, int64_t dimensions, int best, int usable,
                                                const uint16_t* index, const double* weight) {
  constexpr int kAtOnce = 4;  // loads in flight
  const int lane = threadIdx.x % kWarp;
  const double base = static_cast<double>(rows[best * dimensions]);
  Moments sums{0.0, 0.0};
#pragma unroll 1
  for (int chunk = 0; chunk < usable; chunk += kChunk) {
    const int end = min(usable, chunk + kChunk);
    Moments partial{0.0, 0.0};
#pragma unroll 1
    for (int first = chunk + lane; first < end; first += kAtOnce * kResidues) {
      T value[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const int place = first + u * kResidues;
        if (place < end) value[u] = rows[index[place] * dimensions];
      }
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const int place = first + u * kResidues;
        if (place >= end) break;
        const double x = static_cast<double>(value[u]) - base;
        const double weighted = weight != nullptr ? weight[place] * x : x;
        partial.first += weighted;
        partial.second += weighted * x;
      }
    }
#pragma unroll
    for (int step = kResidues / 2; step > 0; step /= 2) {
      partial.first += __shfl_down_sync(kAll, partial.first, step);
      partial.second += __shfl_down_sync(kAll, partial.second, step);
    }
    sums.first = chunk == 0 ? partial.first : sums.first + partial.first;
    sums.second = chunk == 0 ? partial.second : sums.second + partial.second;
  }
  return sums;
}

template <typename Key, typename T>
__global__ void __launch_bounds__(1024) small_kernel(const __grid_constant__ Job job, const SmallGrid grid) {
  constexpr Key kFailed = ~Key(0);
  __shared__ SmallShared<Key> shared;
  const Settings& settings = job.settings;
  const SmallArrays<Key> list(dynamic_shared(), blockDim.x, static_cast<int>(settings.elites));
  const int thread = threadIdx.x, lane = thread % kWarp, warp = thread / kWarp, warps = blockDim.x / kWarp;
  const int population = static_cast<int>(settings.population), wanted = static_cast<int>(settings.elites);
  int64_t problem = 0;
  int block = blockIdx.x;
  if (settings.problems > 1) {  // a division takes long
    problem = grid.blocks == 1 ? blockIdx.x : blockIdx.x / grid.blocks;
    block = static_cast<int>(blockIdx.x - problem * grid.blocks);
  }
  const int64_t dimensions = settings.dimensions, first = problem * population;
  const bool there = thread < population;

  // The fitness is loaded, and while it is on its way what depends on nothing else.
  KeyAndValue fitness{kFailed, 0.0};
  if (there) fitness = fitness_of<Key>(job.type, job.fitness, first + thread, settings.maximize);
  const bool records = block == grid.record_block, weighted = job.weights != nullptr;
  const bool counts_all = population <= kCounted, ranks = weighted || (settings.ranked && records);
  const int64_t generation = *job.generation;
  const double known = job.record[problem * kFigures + kBestFitness];
  const double own_weight = weighted && thread < wanted ? job.weights[thread] : 0.0;  // by rank
  double extra_variance = 0.0, newest = 1.0, floor = -HUGE_VAL;
  T old[kRows] = {};
  const int64_t own_column = int64_t{block} * kWarp + lane;  // of the first tile
  const auto load_old = [&](int64_t column) {
    if (column >= dimensions) return;
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      old[row] = static_cast<const T*>(job.distribution)[(problem * kRows + row) * dimensions + column];
    }
    if (job.floors != nullptr) {
      floor = static_cast<double>(static_cast<const T*>(job.floors)[problem * settings.floor_stride + column]);
    }
  };
  if (warp == 0) {  // finishes the tiles
    if (block < grid.tiles) load_old(own_column);
    extra_variance = extra_variance_of(job, generation);
    newest = newest_of(settings, generation);
  }
  double weight_total = static_cast<double>(wanted);
  if (weighted && warp == warps - 1) weight_total = warp_row_sum(job.weights, wanted, false);

  const Key key = static_cast<Key>(fitness.key);
  const bool usable_here = there && !(job.can_fail && key == kFailed);
  if (thread == 0) shared.best = population;
  list.rank[thread] = 0;
  list.key[thread] = counts_all ? key : kFailed;
  if (thread < kWarp) list.key[blockDim.x + thread] = kFailed;
  if (weighted && thread < wanted) list.weight[thread] = own_weight;
  bool elite = false;
  int usable = 0, rank = 0;
  if (counts_all) {
    usable = min(__syncthreads_count(usable_here), wanted);
    add_ranks(grid, list.key, population, list.rank);
    __syncthreads();
    rank = list.rank[thread];
    elite = there && rank < usable;
  } else {
    const Key low = warp_min(key), high = warp_max(usable_here ? key : Key(0));
    if (lane == 0) {
      shared.least[warp] = low;
      shared.most[warp] = high;
    }
    const int passed = __syncthreads_count(usable_here);
    usable = min(passed, wanted);
    if (passed <= wanted) {
      elite = usable_here;
    } else {
      // The limit: below it all are elites; of those at it the first ones.
      Key limit = warp_min(lane < warps ? shared.least[lane] : kFailed);
      Key most = warp_max(lane < warps ? shared.most[lane] : Key(0));
      bool exact = false;
#pragma unroll 1
      while (limit < most) {
        const Key middle = limit + (most - limit) / 2;
        const int within = __syncthreads_count(key <= middle && there);
        if (within == wanted) {
          limit = middle;
          exact = true;
          break;
        }
        if (within > wanted) {
          most = middle;
        } else {
          limit = middle + 1;
        }
      }
      elite = there && (key < limit || (exact && key == limit));
      if (!exact) {
        const int ties = wanted - __syncthreads_count(elite);
        const bool tied = there && key == limit;
        const unsigned those = __ballot_sync(kAll, tied);
        if (lane == 0) shared.before[warp] = __popc(those);
        __syncthreads();
        const int earlier = warp_sum(lane < warp ? shared.before[lane] : 0) + __popc(those & ((1u << lane) - 1));
        elite = elite || (tied && earlier < ties);
        __syncthreads();
      }
    }
  }

  // Places in index order.
  const unsigned chosen = __ballot_sync(kAll, elite);
  if (lane == 0) shared.before[warp] = __popc(chosen);
  const double ranked_weight = weighted && elite && counts_all ? list.weight[rank] : 0.0;
  if (warp == warps - 1) {
    if (usable < wanted) {
      weight_total = weighted ? warp_row_sum(job.weights, usable, false) : static_cast<double>(usable);
    }
    double squares = weight_total;
    if (weighted && settings.variance == kNewMeanUnbiased) squares = warp_row_sum(job.weights, usable, true);
    if (lane == 0) shared.weight_sums = weight_of(settings, weight_total, squares);
  }
  __syncthreads();
  const int place = warp_sum(lane < warp ? shared.before[lane] : 0) + __popc(chosen & ((1u << lane) - 1));
  if (elite) {
    list.index[place] = static_cast<uint16_t>(thread);
    list.value[place] = fitness.value;
    if (counts_all) {
      if (weighted) list.weight[place] = ranked_weight;
      if (ranks) list.rank[place] = rank;
      if (rank == 0) {
        shared.best = thread;
        shared.top = fitness.value;
      }
      if (rank == usable - 1) shared.threshold = fitness.value;
    } else {
      list.key[place] = key;
    }
  }
  __syncthreads();
  if (!counts_all) {
    if (ranks) {
      add_ranks(grid, list.key, usable, list.rank);
      __syncthreads();
      double ordered = 0.0;
      if (thread < usable) {
        rank = list.rank[thread];  // of the elite at place `thread`
        if (weighted) ordered = list.weight[rank];
        if (rank == 0) {
          shared.best = list.index[thread];
          shared.top = list.value[thread];
        }
        if (rank == usable - 1) shared.threshold = list.value[thread];
      }
      if (weighted) {
        __syncthreads();
        if (thread < usable) list.weight[thread] = ordered;
      }
      __syncthreads();
    } else {
      const Key low = warp_min(elite ? key : kFailed), high = warp_max(elite ? key : Key(0));
      if (lane == 0) {
        shared.least[warp] = low;
        shared.most[warp] = high;
      }
      __syncthreads();
      const Key least = warp_min(lane < warps ? shared.least[lane] : kFailed);
      const Key most = warp_max(lane < warps ? shared.most[lane] : Key(0));
      if (elite && key == least) {
        atomicMin(&shared.best, thread);
        shared.top = fitness.value;  // equals will do
      }
      if (elite && key == most) shared.threshold = fitness.value;
      __syncthreads();
    }
  }

  if (records) {
#pragma unroll 1
    for (int p = thread; p < usable; p += blockDim.x) {
      job.elites[problem * wanted + (settings.ranked ? list.rank[p] : p)] = list.index[p];
    }
    if (usable < wanted) {  // then those that failed, in index order
      const bool failed = there && !elite;
      const unsigned those = __ballot_sync(kAll, failed);
      __syncthreads();
      if (lane == 0) shared.before[warp] = __popc(those);
      __syncthreads();
      const int at = usable + warp_sum(lane < warp ? shared.before[lane] : 0) + __popc(those & ((1u << lane) - 1));
      if (failed && at < wanted) job.elites[problem * wanted + at] = thread;
    }
    if (warp == warps - 1) {
      const double sum = warp_row_sum(list.value, usable, false);
      if (lane == 0) {
        const bool any = usable > 0;
        write_record(job, problem, usable, any ? shared.top : 0.0, sum, any ? shared.threshold : 0.0, generation);
      }
    }
  }

  const int best = usable > 0 ? shared.best : 0;
  const auto* rows = static_cast<const T*>(job.candidates) + first * dimensions;
  const double* weight = weighted ? list.weight : nullptr;
  for (int64_t tile = block; tile < grid.tiles; tile += grid.blocks) {
    const int64_t left = tile * kWarp, column = left + lane, at = problem * kRows * dimensions + column;
    const int width = static_cast<int>(min(dimensions - left, static_cast<int64_t>(kWarp)));
    if (tile != block && warp == 0) load_old(column);
    const T base = warp == 0 && lane < width ? rows[best * dimensions + column] : T(0);
#pragma unroll 1
    for (int j = warp; j < width; j += warps) {
      const Moments sums = warp_moments(rows + left + j, dimensions, best, usable, list.index, weight);
      if (lane == 0) {
        shared.moments[0][j] = sums.first;
        shared.moments[1][j] = sums.second;
      }
    }
    __syncthreads();
    if (warp == 0 && lane < width) {
      if (usable == 0) {
        auto* next = static_cast<T*>(job.new_distribution) + at;
        for (int row = 0; row < kRows; ++row) next[row * dimensions] = old[row];
      } else {
        const bool better = is_better(shared.top, known, settings.maximize);
        write_marginal(job, at, shared.weight_sums, Moments{shared.moments[0][lane], shared.moments[1][lane]}, base, better,
                       old, extra_variance, floor, newest);
      }
    }
    if (tile + grid.blocks < grid.tiles) __syncthreads();
  }
}

}  // namespace cem_tetris::update
