// A whole update in one kernel, for populations of which every candidate has a thread.
//
// Grid: a problem has `blocks` blocks, and each of them finds the elites again, which costs less than a second
// kernel. Each takes every `blocks`-th tile of kWarp dimensions; block `record_block`, which may have no tile,
// writes record and elites.
//
// It is bound by latency, and this is the chain: the fitness is loaded; ranks by counting up to kCounted
// candidates, else a search for the limit by counts over the block; the elites' places in index order; a warp
// a dimension loads the elites' rows, a residue class a lane, and folds them; one warp finishes the tile. What
// does not depend on the elites is loaded and computed before they are known.
#pragma once

#include "device.cuh"

namespace cem_tetris::update {

constexpr int kSmallPopulation = 1024, kCounted = 256;
constexpr int kSmallChunks = kSmallPopulation / kChunk;
static_assert(kSmallChunks == 2, "expected at most two chunks, whose sums are one addition");

struct SmallGrid {
  int tiles, blocks, record_block;
};

// What the threads of a block tell each other.
template <typename Key>
struct SmallShared {
  alignas(16) Key key[kSmallPopulation];  // by candidate where all are ranked, else by place
  double weight[kSmallPopulation];        // by place
  double value[kSmallPopulation];         // the fitness, by place
  double moments[2][kWarp];
  Key least[kMaxWarps], most[kMaxWarps];
  int rank[kSmallPopulation], before[kMaxWarps];
  uint16_t index[kSmallPopulation];
  double top, threshold;
  unsigned long long worst;
  int best;
  Weight weight_sums;
};

// The number of keys of a row that are less than `mine`, and of those at places before `p` that equal it.
template <typename Key>
__device__ __forceinline__ int count_before(const Key* keys, int from, int to, int p, Key mine) {
  int count = 0;
#pragma unroll 4
  for (int q = from; q < min(to, p); ++q) count += keys[q] <= mine ? 1 : 0;
#pragma unroll 4
  for (int q = max(from, p); q < to; ++q) count += keys[q] < mine ? 1 : 0;
  return count;
}

// Adds to rank[i] the keys before key[i], of `count` keys; several threads share one of them.
template <typename Key>
__device__ __forceinline__ void add_ranks(const Key* keys, int count, int* rank) {
  const int rounded_up = (count + kWarp - 1) / kWarp * kWarp, threads = blockDim.x;
  const int parts = max(1, threads / rounded_up), step = (count + parts - 1) / parts;
  for (int task = threadIdx.x; task < rounded_up * parts; task += threads) {
    const int p = task % rounded_up, from = task / rounded_up * step;
    if (p >= count) continue;
    const int smaller = count_before(keys, from, min(count, from + step), p, keys[p]);
    if (parts == 1) {
      rank[p] = smaller;
    } else {
      atomicAdd(&rank[p], smaller);
    }
  }
}

// The fold of `count` numbers, at most two chunks, by one warp; lane 0 has it.
template <typename Number>
__device__ __forceinline__ double warp_sum_of(int count, const Number& number) {
  const double first = warp_folded(0, min(count, kChunk), number);
  return count <= kChunk ? first : first + warp_folded(kChunk, count, number);
}

template <typename Key, typename T>
__global__ void __launch_bounds__(1024) small_kernel(Job job, SmallGrid grid) {
  constexpr Key kFailed = ~Key(0);
  __shared__ SmallShared<Key> shared;
  const Settings& settings = job.settings;
  const int64_t problem = blockIdx.x / grid.blocks;
  const int block = blockIdx.x % grid.blocks;
  const int thread = threadIdx.x, lane = thread % kWarp, warp = thread / kWarp, warps = blockDim.x / kWarp;
  const int population = static_cast<int>(settings.population), wanted = static_cast<int>(settings.elites);
  const int64_t dimensions = settings.dimensions, first = problem * population;
  const bool records = block == grid.record_block, weighted = job.weights != nullptr, there = thread < population;
  const bool counts_all = population <= kCounted, ranks = weighted || (settings.ranked && records);

  // Loads that depend on nothing. The last warp adds up the weights while the others wait for the fitness.
  const int64_t generation = *job.generation;
  const double known = job.record[problem * kFigures + kBestFitness];
  const Key key = there ? key_at<Key>(job, first + thread) : kFailed;
  const double value = there ? fitness_at<Key>(job, first + thread) : 0.0;
  const double own_weight = weighted && thread < wanted ? job.weights[thread] : 0.0;  // by rank

  const bool usable_here = there && !(job.can_fail && key == kFailed);
  if (thread == 0) {
    shared.best = population;
    shared.worst = 0;
  }
  shared.rank[thread] = 0;
  bool elite = false;
  int usable = 0, rank = 0;
  if (counts_all) {
    shared.key[thread] = key;
    const int passed = __syncthreads_count(usable_here);
    usable = min(passed, wanted);
    add_ranks(shared.key, population, shared.rank);
    __syncthreads();
    rank = shared.rank[thread];
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
  if (weighted && thread < usable) shared.weight[thread] = own_weight;
  __syncthreads();
  const int place = warp_sum(lane < warp ? shared.before[lane] : 0) + __popc(chosen & ((1u << lane) - 1));
  if (weighted && warp == warps - 1) {  // of the weights by rank
    const double total = warp_sum_of(usable, [&](int64_t p) { return shared.weight[p]; });
    const double squares = warp_sum_of(usable, [&](int64_t p) { return shared.weight[p] * shared.weight[p]; });
    if (lane == 0) shared.weight_sums = make_weight(total, squares);
  }
  const double mine = weighted && elite && counts_all ? shared.weight[rank] : 0.0;
  if (elite) {
    shared.index[place] = static_cast<uint16_t>(thread);
    shared.value[place] = value;
    if (counts_all) {
      if (rank == 0) {
        shared.best = thread;
        shared.top = value;
      }
      if (rank == usable - 1) shared.threshold = value;
    } else {
      shared.key[place] = key;
    }
  }
  __syncthreads();
  if (counts_all) {
    if (weighted && elite) shared.weight[place] = mine;
    if (ranks && elite) shared.rank[place] = rank;  // every thread has read its own
    if (weighted || (records && settings.ranked)) __syncthreads();
  } else {
    Key least = kFailed, most = 0;
    if (ranks) {
      add_ranks(shared.key, usable, shared.rank);
      __syncthreads();
      double ordered = 0.0;
      if (thread < usable) {
        rank = shared.rank[thread];  // of the elite at place `thread`
        if (weighted) ordered = shared.weight[rank];
        if (rank == 0) {
          shared.best = shared.index[thread];
          shared.top = shared.value[thread];
        }
        if (rank == usable - 1) shared.threshold = shared.value[thread];
      }
      __syncthreads();
      if (weighted && thread < usable) shared.weight[thread] = ordered;
      __syncthreads();
    } else {
      least = warp_min(elite ? key : kFailed);
      most = warp_max(elite ? key : Key(0));
      if (lane == 0) {
        shared.least[warp] = least;
        shared.most[warp] = most;
      }
      __syncthreads();
      least = warp_min(lane < warps ? shared.least[lane] : kFailed);
      most = warp_max(lane < warps ? shared.most[lane] : Key(0));
      if (elite && key == least) atomicMin(&shared.best, thread);
      if (elite && key == most) shared.threshold = value;  // equals will do
      __syncthreads();
      if (thread == shared.best) shared.top = value;
      __syncthreads();
    }
  }

  if (records) {
    for (int p = thread; p < usable; p += blockDim.x) {
      job.elites[problem * wanted + (settings.ranked ? shared.rank[p] : p)] = shared.index[p];
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
    if (warp == 0) {
      const double sum = warp_sum_of(usable, [&](int64_t p) { return shared.value[p]; });
      if (lane == 0) {
        const bool any = usable > 0;
        write_record(job, problem, usable, any ? shared.top : 0.0, sum, any ? shared.threshold : 0.0, generation);
      }
    }
  }

  double extra_variance = 0.0, newest = 1.0;
  Weight weight_sums{};
  if (warp == 0) {  // which finishes the tiles: divisions take long
    extra_variance = extra_variance_of(job, generation);
    newest = newest_share(settings, generation);
    weight_sums = weighted ? shared.weight_sums
                           : make_weight(static_cast<double>(usable), static_cast<double>(usable));
  }
  const int best = usable > 0 ? shared.best : 0;
  const auto* rows = static_cast<const T*>(job.candidates) + first * dimensions;
  for (int64_t tile = block; tile < grid.tiles; tile += grid.blocks) {
    const int64_t left = tile * kWarp;
    const int width = static_cast<int>(min(dimensions - left, static_cast<int64_t>(kWarp)));
    const int64_t column = left + lane, at = problem * kRows * dimensions + column;
    T old[kRows] = {}, base = T(0);
    double floor = -HUGE_VAL;
    if (warp == 0 && lane < width) {  // this warp finishes the tile
#pragma unroll
      for (int row = 0; row < kRows; ++row) old[row] = static_cast<const T*>(job.distribution)[at + row * dimensions];
      if (job.floors != nullptr) {
        floor = static_cast<double>(static_cast<const T*>(job.floors)[problem * settings.floor_stride + column]);
      }
      base = rows[best * dimensions + column];
    }
    for (int j = warp; j < width; j += warps) {
      const T* from = rows + left + j;
      const T centre = from[best * dimensions];
      const auto index = [&](int p) { return shared.index[p]; };
      const auto weight = [&](int p) { return weighted ? shared.weight[p] : 1.0; };
      Moments sums = class_moments(from, dimensions, centre, lane, min(usable, kChunk), index, weight);
      sums = {warp_fold(sums.first), warp_fold(sums.second)};
      if (usable > kChunk) {
        const Moments more = class_moments(from, dimensions, centre, kChunk + lane, usable, index, weight);
        sums.first += warp_fold(more.first);
        sums.second += warp_fold(more.second);
      }
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
        write_marginal(job, at, weight_sums, Moments{shared.moments[0][lane], shared.moments[1][lane]}, base, better,
                       old, extra_variance, floor, newest);
      }
    }
    if (tile + grid.blocks < grid.tiles) __syncthreads();
  }
}

}  // namespace cem_tetris::update
