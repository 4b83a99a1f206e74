// A whole update in one kernel, for populations beyond those of small.cuh that a block holds in its registers.
//
// Grid: a problem has `blocks` blocks. Each of them selects the elites again, which costs less than a second
// kernel, then takes every `blocks`-th tile of `width` dimensions. Block `record_block`, which may have no
// tile, writes record and elites. It is bound by latency: loads of the fitness, ten to twenty barriers of the
// selection, loads of the elites' rows, a tree.
#pragma once

#include "device.cuh"

namespace cem_tetris::update {

constexpr int kSinglePopulation = 16384, kSingleElites = 8192, kSingleRanked = 512;
constexpr int kEntries = 1024;                // sums of residue classes that a block holds
constexpr int kMinWidth = 8, kMaxWidth = 32;  // dimensions of a tile
constexpr int kSingleChunks = kSingleElites / kChunk;

struct Grid {
  int tiles, width, blocks, record_block;
};

// Bytes of dynamic shared memory: the elites' indices, and where they are ranked the keys, ranks and weights.
template <typename Key>
constexpr int64_t single_bytes(int64_t elites, bool ranks) {
  return elites * 2 + (ranks ? elites * static_cast<int64_t>(sizeof(double) + sizeof(Key) + 4) : 0);
}

// What the threads of a block tell each other.
template <typename Key>
struct SingleShared {
  double part[2][kEntries + kEntries / kMinWidth];  // rows of `width` and one more, against bank conflicts
  double chunk[2][kSingleChunks * kMaxWidth];
  Key least[kMaxWarps], most[kMaxWarps];
  int count[2][kMaxWarps];
  double weight[2];
  int best, worst;
};

// Counts over a block, one barrier each: two buffers take turns, so that none is overwritten while it is
// read.
template <int kItems>
struct Counter {
  int (&buffer)[2][kMaxWarps];
  int turn = 0;

  template <typename Predicate>
  __device__ __forceinline__ int operator()(const Predicate& predicate) {
    int count = 0;
#pragma unroll
    for (int item = 0; item < kItems; ++item) count += predicate(item) ? 1 : 0;
    count = warp_sum(count);
    const int lane = threadIdx.x % kWarp, warps = blockDim.x / kWarp;
    turn ^= 1;
    if (lane == 0) buffer[turn][threadIdx.x / kWarp] = count;
    __syncthreads();
    return warp_sum(lane < warps ? buffer[turn][lane] : 0);
  }
};

template <typename Key, typename T, int kItems>
__global__ void __launch_bounds__(kThreads, 1) single_kernel(Job job, Grid grid) {
  constexpr Key kFailed = ~Key(0);
  const Settings& settings = job.settings;
  __shared__ SingleShared<Key> shared;
  __shared__ uint32_t placed[kItems * kMaxWarps];

  const int64_t problem = blockIdx.x / grid.blocks;
  const int block = blockIdx.x % grid.blocks;
  const int thread = threadIdx.x, threads = blockDim.x, lane = thread % kWarp, warp = thread / kWarp,
            warps = threads / kWarp;
  const int population = static_cast<int>(settings.population), wanted = static_cast<int>(settings.elites);
  const bool records = block == grid.record_block, weighted = job.weights != nullptr,
             ranks = weighted || (settings.ranked && records);
  double* weight = dynamic_shared();
  const int rankable = weighted || settings.ranked ? wanted : 0;
  Key* elite_key = reinterpret_cast<Key*>(weight + rankable);
  int* rank = reinterpret_cast<int*>(elite_key + rankable);
  uint16_t* index = reinterpret_cast<uint16_t*>(rank + rankable);

  // All that is read late is asked for now.
  const int64_t generation = *job.generation;
  const double extra_variance = extra_variance_of(job, generation);
  const double known = job.record[problem * kFigures + kBestFitness];

  Key key[kItems];
  Key least = kFailed, most = 0;
  int passed = 0;
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    const int i = thread + item * threads;
    key[item] = i < population ? key_at<Key>(job, problem * population + i) : kFailed;
    const bool usable = i < population && !(job.can_fail && key[item] == kFailed);
    least = min(least, key[item]);
    most = max(most, usable ? key[item] : Key(0));
    passed += usable ? 1 : 0;
  }
  least = warp_min(least);
  most = warp_max(most);
  passed = warp_sum(passed);
  if (lane == 0) {
    shared.least[warp] = least;
    shared.most[warp] = most;
    shared.count[0][warp] = passed;
  }
  if (thread == 0) {
    shared.best = population;
    shared.worst = 0;
  }
  if (ranks) {
    for (int p = thread; p < wanted; p += threads) rank[p] = 0;
  }
  __syncthreads();
  least = warp_min(lane < warps ? shared.least[lane] : kFailed);
  most = warp_max(lane < warps ? shared.most[lane] : Key(0));
  passed = warp_sum(lane < warps ? shared.count[0][lane] : 0);
  const int usable = min(passed, wanted);

  // The limit: below it, or at it where it is exact, all are elites; of those at it the first `ties`.
  Counter<kItems> count{shared.count};
  const bool all = passed <= wanted;
  Key limit = least;
  bool exact = false;
  int ties = 0;
  if (!all) {
    Key high = most;
    while (limit < high) {
      const Key middle = limit + (high - limit) / 2;
      const int within = count([&](int item) { return key[item] <= middle; });
      if (within == wanted) {
        limit = middle;
        exact = true;
        break;
      }
      if (within > wanted) {
        high = middle;
      } else {
        limit = middle + 1;
      }
    }
    if (!exact) ties = wanted - count([&](int item) { return key[item] < limit; });
  }

  // Places in index order: i = item * threads + thread. Sure ones and ties are counted in the halves of a
  // word. Where all that are usable are elites, the ties are the failed ones, which come behind them.
  uint32_t sure[kItems], tie[kItems];
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    const int i = thread + item * threads;
    const bool there = i < population, failed = job.can_fail && key[item] == kFailed;
    sure[item] =
        __ballot_sync(kAll, there && (all ? !failed : key[item] < limit || (exact && key[item] == limit)));
    tie[item] = __ballot_sync(kAll, there && (all ? failed : !exact && key[item] == limit));
    if (lane == 0) placed[item * warps + warp] = __popc(sure[item]) | __popc(tie[item]) << 16;
  }
  __syncthreads();
  uint32_t before = 0;  // in all items so far
  const uint32_t below = (1u << lane) - 1;
  Key worst = 0;
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    const uint32_t counts = lane < warps ? placed[item * warps + lane] : 0;
    const uint32_t here = before + warp_sum(static_cast<int>(lane < warp ? counts : 0));
    before += warp_sum(static_cast<int>(counts));
    const int sure_before = (here & 0xffff) + __popc(sure[item] & below),
              ties_before = (here >> 16) + __popc(tie[item] & below);
    const bool is_sure = sure[item] >> lane & 1, is_tie = tie[item] >> lane & 1;
    const int place =
        all ? (is_sure ? sure_before : usable + ties_before) : sure_before + min(ties_before, ties);
    const bool chosen = is_sure || (is_tie && (all ? place < wanted : ties_before < ties));
    if (chosen) {
      index[place] = static_cast<uint16_t>(thread + item * threads);
      if (ranks) elite_key[place] = key[item];
    }
    const bool elite = chosen && (is_sure || !all);
    if (elite && key[item] == least) atomicMin(&shared.best, thread + item * threads);
    if (elite) worst = max(worst, key[item]);
  }
  if (records) {  // the whole block goes this way
    worst = warp_max(worst);
    if (lane == 0) shared.most[warp] = worst;
    __syncthreads();
    worst = warp_max(lane < warps ? shared.most[lane] : Key(0));
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      const int i = thread + item * threads;
      if (i < population && usable > 0 && key[item] == worst) atomicMax(&shared.worst, i);  // equals will do
    }
  }
  __syncthreads();

  if (ranks) {
    // A rank is the number of elites before it; several threads share the comparisons of one elite.
    const int rounded_up = max(kWarp, (usable + kWarp - 1) / kWarp * kWarp),
              parts = max(1, threads / rounded_up);
    const int step = (usable + parts - 1) / parts;
    for (int task = thread; task < rounded_up * parts; task += threads) {
      const int p = task % rounded_up, from = task / rounded_up * step;
      if (p >= usable) continue;
      const Key mine = elite_key[p];
      int smaller = 0;
      for (int q = from; q < min(usable, from + step); ++q) {
        smaller += elite_key[q] < mine || (elite_key[q] == mine && q < p) ? 1 : 0;
      }
      atomicAdd(&rank[p], smaller);
    }
    __syncthreads();
    if (weighted) {
      for (int p = thread; p < usable; p += threads) weight[p] = job.weights[rank[p]];
      __syncthreads();
      if (warp < 2) {  // no more elites are ranked than a chunk holds
        const double sum =
            warp_folded(0, usable, [&](int64_t p) { return warp == 0 ? job.weights[p] : job.weights[p] * job.weights[p]; });
        if (lane == 0) shared.weight[warp] = sum;
      }
      __syncthreads();
    }
  }

  const int chunks = (usable + kChunk - 1) / kChunk;
  const int64_t first = problem * population;
  if (records) {
    for (int p = thread; p < wanted; p += threads) {
      job.elites[problem * wanted + (settings.ranked && p < usable ? rank[p] : p)] = index[p];
    }
    for (int c = warp; c < chunks; c += warps) {
      const double sum = warp_folded(c * kChunk, min(usable, (c + 1) * kChunk),
                                     [&](int64_t p) { return fitness_at<Key>(job, first + index[p]); });
      if (lane == 0) shared.chunk[0][c] = sum;
    }
    __syncthreads();
    if (warp == 0) {
      const double sum = warp_fold(lane < chunks ? shared.chunk[0][lane] : 0.0);
      if (lane == 0) {
        const bool any = usable > 0;
        write_record(job, problem, usable, any ? fitness_at<Key>(job, first + shared.best) : 0.0, sum,
                     any ? fitness_at<Key>(job, first + shared.worst) : 0.0, generation);
      }
    }
    __syncthreads();
  }

  const int64_t dimensions = settings.dimensions;
  const int width = grid.width, stride = width + 1;    // of `part`
  const int at_once = kEntries / (kResidues * width);  // chunks
  const int best = usable > 0 ? shared.best : 0;
  const bool better = usable > 0 && is_better(fitness_at<Key>(job, first + best), known, settings.maximize);
  const Weight total = weighted ? make_weight(shared.weight[0], shared.weight[1])
                                : make_weight(static_cast<double>(usable), static_cast<double>(usable));
  const auto* candidates = static_cast<const T*>(job.candidates) + first * dimensions;
  const auto* old_rows = static_cast<const T*>(job.distribution) + problem * kRows * dimensions;
  const auto* floors = static_cast<const T*>(job.floors);
  for (int64_t tile = block; tile < grid.tiles; tile += grid.blocks) {
    const int64_t left = tile * width;
    const int64_t column = min(left + thread % width, dimensions - 1);  // the last tile may be narrower
    const T base = candidates[best * dimensions + column];
    T old[kRows];
    double floor = -HUGE_VAL;
    if (thread < width) {
#pragma unroll
      for (int row = 0; row < kRows; ++row) old[row] = old_rows[row * dimensions + column];
      if (floors != nullptr) floor = static_cast<double>(floors[problem * settings.floor_stride + column]);
    }
    for (int from = 0; from < chunks; from += at_once) {
      for (int entry = thread; entry < kEntries; entry += threads) {
        const int row = entry / width, chunk = from + row / kResidues;
        const Moments sums = class_moments(
            candidates + column, dimensions, base, chunk * kChunk + row % kResidues,
            min(usable, (chunk + 1) * kChunk), [&](int p) { return index[p]; },
            [&](int p) { return weighted ? weight[p] : 1.0; });
        shared.part[0][row * stride + thread % width] = sums.first;
        shared.part[1][row * stride + thread % width] = sums.second;
      }
      __syncthreads();
      for (int sum = warp; sum < at_once * width; sum += warps) {
        const int at = (sum / width * kResidues + lane) * stride + sum % width;
        const double one = warp_fold(shared.part[0][at]), two = warp_fold(shared.part[1][at]);
        if (lane == 0 && from + sum / width < chunks) {
          shared.chunk[0][from * width + sum] = one;
          shared.chunk[1][from * width + sum] = two;
        }
      }
      __syncthreads();
    }
    if (chunks > 1) {  // a lane a chunk, of which there are fewer than lanes
      for (int j = warp; j < width; j += warps) {
        const double one = warp_fold(lane < chunks ? shared.chunk[0][lane * width + j] : 0.0),
                     two = warp_fold(lane < chunks ? shared.chunk[1][lane * width + j] : 0.0);
        if (lane == 0) {
          shared.chunk[0][j] = one;
          shared.chunk[1][j] = two;
        }
      }
      __syncthreads();
    }
    if (thread < width && left + thread < dimensions) {
      const int64_t at = problem * kRows * dimensions + left + thread;
      if (usable == 0) {
        auto* next = static_cast<T*>(job.new_distribution) + at;
        for (int row = 0; row < kRows; ++row) next[row * dimensions] = old[row];
      } else {
        const Moments sums{shared.chunk[0][thread], shared.chunk[1][thread]};
        write_marginal(job, at, total, sums, base, better, old, extra_variance, floor,
                       newest_share(settings, generation));
      }
    }
    __syncthreads();
  }
}

}  // namespace cem_tetris::update
