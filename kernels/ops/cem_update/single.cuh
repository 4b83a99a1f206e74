// A whole update in one kernel, for populations that a block holds in its registers: kItems candidates a
// thread.
//
// Grid: a problem has `blocks` blocks. Each finds the elites again, which costs less than a second kernel,
// then takes every `blocks`-th tile of `width` dimensions. Block `record_block`, which may have no tile,
// writes record and elites.
//
// It is bound by latency, of fetched instructions as much as of data: hardly a loop is unrolled. The chain:
// the fitness; a radix search for the key of the last elite; the elites' places in index order; their ranks,
// within bins of keys; their rows, a dimension a lane; one warp finishes the tile.
#pragma once

#include <algorithm>

#include "device.cuh"
#include "launcher.cuh"

namespace cem_tetris::update {

constexpr int kSinglePopulation = 16384, kSingleElites = 8192;
constexpr int kMaxBins = 1024;                // by key
constexpr int kKept = 256;                    // weights by rank that a block keeps
constexpr int kMinWidth = 8, kMaxWidth = 32;  // dimensions of a tile
constexpr int kSingleChunks = kSingleElites / kChunk;

constexpr int kFew = kResidues;        // elites of which each has a residue class of its own
constexpr int kQuads = kResidues / 4;  // the residue classes r, r + 8, r + 16 and r + 24

template <typename Key> constexpr int64_t kSingleRanked = 8192 / sizeof(Key);  // elites

// The dynamic shared memory: where its arrays begin, in bytes, and where they end. What is of elites is by
// place. It begins with the sums of residue classes, a row each, two moments; before, the ranking has its
// arrays there.
struct Layout {
  int entries;             // from one moment to the other
  int next, head, before;  // of bins: their elites as a list, and how many elites come before
  int chunk;               // sums of chunks, where there is more than one
  int weight;
  int kept, index, bytes;  // the first weights by rank
};

// The elites of a problem may make `chunks` chunks. `bins` is a power of two.
struct Grid {
  int tiles, log_width, blocks, record_block, chunks;
  int log_bins, bins;
  Layout layout;
};

// What else the threads of a block share.
template <typename Key, typename T> struct SingleShared {
  T old[kRows][kMaxWidth];  // the marginals of a tile, and its floors
  T floor[kMaxWidth];
  Key least[kMaxWarps], most[kMaxWarps];
  int count[kMaxWarps], before[kMaxWarps];
  int bin, below, within;  // of the search: the last elite's bin, and what it has below and within
  double total[kSingleChunks], squares[kSingleChunks];  // of weights
  double sum[kSingleChunks];                            // of the elites' fitness
  Weight weight;
  double extra_variance, newest;
  bool better;
  int best;
};

__device__ __forceinline__ int bit_length(uint32_t x) { return 32 - __clz(static_cast<int>(x)); }
__device__ __forceinline__ int bit_length(uint64_t x) {
  const uint32_t high = static_cast<uint32_t>(x >> 32);
  return high != 0 ? 32 + bit_length(high) : bit_length(static_cast<uint32_t>(x));
}

// Calls use(item, place) for the candidates that fulfil a predicate, with their places in index order.
template <int kItems, typename Predicate, typename Use> __device__ __forceinline__ void in_index_order(
    int (&before)[kMaxWarps], const Predicate& predicate, const Use& use) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  int place = 0;
#pragma unroll
  for (int item = 0; item < kItems; ++item) place += __popc(__ballot_sync(kAll, predicate(item)));
  if (lane == 0) before[warp] = place;
  __syncthreads();
  place = warp_sum(lane < warp ? before[lane] : 0);
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    const unsigned those = __ballot_sync(kAll, predicate(item));
    if (those >> lane & 1) use(item, place + __popc(those & ((1u << lane) - 1)));
    place += __popc(those);
  }
}

template <typename Key> __device__ __noinline__ double key_value(Number type, Key key, bool maximize) {
  return visit<Key>(type, [&](auto kind) { return kind.value(kind.of_key(key, maximize)); });
}

// Hides a number from the compiler, which keeps in registers around a loop what follows from numbers it
// knows.
__device__ __forceinline__ int hidden(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// One residue class of a chunk's elites, the places from `first` on, in one dimension; rows are `stride`
// apart. Of few elites, four residue classes.
template <typename T> __device__ __forceinline__ Moments residue_moments(const T* rows, int stride, T best,
    int first, int end, bool few, const uint16_t* index, const double* weight) {
  constexpr int kAtOnce = kResidues / kQuads;  // loads in flight: none waits for a comparison
  const int step = few ? kQuads : kResidues;
  Moments sums{0.0, 0.0};
#pragma unroll 1
  for (; first < end; first += kAtOnce * step) {
    T value[kAtOnce];
    double weighted[kAtOnce], square[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      value[u] = rows[static_cast<int64_t>(index[min(first + u * step, end - 1)]) * stride];
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int place = first + u * step;
      const double x = place < end ? static_cast<double>(value[u]) - static_cast<double>(best) : 0.0;
      weighted[u] = weight != nullptr ? weight[min(place, end - 1)] * x : x;
      square[u] = weighted[u] * x;
    }
    if (few) {  // each of them a sum, which begins at 0; then r += r + 16, 8
      return {((0.0 + weighted[0]) + (0.0 + weighted[2])) + ((0.0 + weighted[1]) + (0.0 + weighted[3])),
          ((0.0 + square[0]) + (0.0 + square[2])) + ((0.0 + square[1]) + (0.0 + square[3]))};
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      sums.first += weighted[u];
      sums.second += square[u];
    }
  }
  return sums;
}

// The first steps of the tree over the residue classes of a chunk, r += r + 16, 8: of row r, which it
// changes.
__device__ __forceinline__ void add_quad(double* row, int stride, int r, int rows) {
  const auto at = [&](int i) { return r + i < rows ? row[i * stride] : 0.0; };
  row[0] = (at(0) + at(16)) + (at(8) + at(24));
}

// Its last steps: r += r + 4, 2, 1.
__device__ __forceinline__ double quads_sum(const double* row, int stride) {
  double sum[kQuads];
#pragma unroll
  for (int r = 0; r < kQuads; ++r) sum[r] = row[r * stride];
#pragma unroll
  for (int step = kQuads / 2; step > 0; step /= 2) {
#pragma unroll
    for (int r = 0; r < step; ++r) sum[r] += sum[r + step];
  }
  return sum[0];
}

template <typename Key, typename T, int kItems> __global__ void __launch_bounds__(kThreads, 1)
    single_kernel(const __grid_constant__ Job job, const __grid_constant__ Grid grid) {
  constexpr Key kFailed = ~Key(0);
  __shared__ SingleShared<Key, T> shared;
  wait_for_kernel_before();
  let_kernel_after_begin();
  const Settings& settings = job.settings;
  const int thread = threadIdx.x, threads = blockDim.x, lane = thread % kWarp, warp = thread / kWarp,
            warps = threads / kWarp;
  const int population = static_cast<int>(settings.population), wanted = static_cast<int>(settings.elites);
  int64_t problem = 0;
  int block = blockIdx.x;
  if (settings.problems > 1) {  // a division takes long
    problem = grid.blocks == 1 ? blockIdx.x : blockIdx.x / grid.blocks;
    block = static_cast<int>(blockIdx.x - problem * grid.blocks);
  }
  const int dimensions = static_cast<int>(settings.dimensions);
  const int64_t first = problem * population;
  const bool records = block == grid.record_block, weighted = job.weights != nullptr;
  const bool ranks = weighted || (settings.ranked && records);
  const int width = 1 << grid.log_width;
  const Layout& layout = grid.layout;
  char* const memory = reinterpret_cast<char*>(dynamic_shared());
  double* const part = dynamic_shared();
  double* const chunk_sum = reinterpret_cast<double*>(memory + layout.chunk);
  double* const weight = reinterpret_cast<double*>(memory + layout.weight);
  double* const kept_weight = reinterpret_cast<double*>(memory + layout.kept);
  Key* const list_key = reinterpret_cast<Key*>(memory);
  uint32_t* const next = reinterpret_cast<uint32_t*>(memory + layout.next);
  uint32_t* const head = reinterpret_cast<uint32_t*>(memory + layout.head);
  uint32_t* const before = reinterpret_cast<uint32_t*>(memory + layout.before);
  uint16_t* const index = reinterpret_cast<uint16_t*>(memory + layout.index);

  // A warp has candidates in a row. While the fitness is on its way, what depends on nothing else.
  const int origin = warp * kItems * kWarp + lane;
  Key key[kItems];
  visit<Key>(job.fitness_type, [&](auto type) {
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      const int i = origin + item * kWarp;
      key[item] =
          i < population
              ? static_cast<Key>(type.key(load<decltype(type)>(job.fitness, first + i), settings.maximize))
              : kFailed;
    }
  });
  const int64_t generation = *job.generation;
  const double known = job.record[problem * kFigures + kBestFitness];
  const int slot = thread >> grid.log_width, own = thread & (width - 1);  // row and dimension of a tile
  T old{}, floor{};
  const auto load_tile = [&](int tile) {
    const int column = tile * width + own;
    if (slot >= kRows || column >= dimensions) return;
    old = static_cast<const T*>(job.distribution)[(problem * kRows + slot) * dimensions + column];
    if (slot == 0 && job.floors != nullptr) {
      floor = static_cast<const T*>(job.floors)[problem * settings.floor_stride + column];
    }
  };
  const auto keep_tile = [&] {
    if (slot < kRows) shared.old[slot][own] = old;
    if (slot == 0) shared.floor[own] = floor;
  };
  load_tile(block);
  constexpr uint32_t kNone = ~0u;
  if (thread < grid.bins) {
    before[thread] = 0;
    if (ranks) head[thread] = kNone;
  }
  if (weighted && thread < min(wanted, kKept)) kept_weight[thread] = job.weights[thread];
  if (thread == 0) shared.best = population;

  Key least = kFailed, most = 0;
  int passed = 0;
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    const bool usable = origin + item * kWarp < population && !(job.can_fail() && key[item] == kFailed);
    least = min(least, key[item]);
    most = max(most, usable ? key[item] : Key(0));
    passed += usable ? 1 : 0;
  }
  least = warp_min(least);
  most = warp_max(most);
  passed = warp_sum(passed);
  keep_tile();
  double extra_variance = 0.0;  // asked for now; the last warp keeps it for all
  if (warp == warps - 1) extra_variance = extra_variance_of(job, generation);
  if (lane == 0) {
    shared.least[warp] = least;
    shared.most[warp] = most;
    shared.count[warp] = passed;
  }
  __syncthreads();
  least = warp_min(lane < warps ? shared.least[lane] : kFailed);
  most = warp_max(lane < warps ? shared.most[lane] : Key(0));
  passed = warp_sum(lane < warps ? shared.count[lane] : 0);
  const int usable = min(passed, wanted);

  // How many are in the bins below the thread's own, which it empties.
  const auto sum_bins = [&](int& own) {
    own = thread < grid.bins ? static_cast<int>(before[thread]) : 0;
    if (own != 0) before[thread] = 0;
    const int below = warp_scan(own, lane);
    if (lane == kWarp - 1) shared.before[warp] = below;
    __syncthreads();
    return below - own + warp_sum(lane < warp ? shared.before[lane] : 0);
  };

  // The elites: those with a key below the limit, and of those at it the ones with an index below `bound`. A
  // radix search: the keys of a range are counted in bins, and the bin of the last elite is the next range.
  Key limit = most;
  int bound = population;
  if (passed > wanted) {
    Key low = least;
    int needed = wanted, shift = 0;
    do {
      const Key range = limit - low;
      shift = max(0, bit_length(range) - grid.log_bins);
#pragma unroll
      for (int item = 0; item < kItems; ++item) {
        const Key above = key[item] - low;
        if (above <= range && origin + item * kWarp < population) atomicAdd(&before[above >> shift], 1u);
      }
      __syncthreads();
      int own = 0;
      const int below = sum_bins(own);
      if (below < needed && needed <= below + own) {
        shared.bin = thread;
        shared.below = below;
        shared.within = own;
      }
      __syncthreads();
      low += static_cast<Key>(shared.bin) << shift;
      limit = low + min(static_cast<Key>(limit - low), static_cast<Key>((Key(1) << shift) - 1));
      needed -= shared.below;
    } while (shared.within != needed && shift != 0);
    if (shared.within != needed) {
      in_index_order<kItems>(
          shared.before, [&](int item) { return origin + item * kWarp < population && key[item] == limit; },
          [&](int item, int place) {
            if (place == needed) shared.bin = origin + item * kWarp;
          });
      __syncthreads();
      bound = shared.bin;
    }
  }
  const auto is_elite = [&](int item) {
    const int i = origin + item * kWarp;
    return i < population && (key[item] < limit || (key[item] == limit && i < bound));
  };
  Key worst = 0;
  in_index_order<kItems>(shared.before, is_elite, [&](int item, int place) {
    const int i = origin + item * kWarp;
    index[place] = static_cast<uint16_t>(i);
    if (ranks) list_key[place] = key[item];
    worst = max(worst, key[item]);
    if (key[item] == least) atomicMin(&shared.best, i);
  });
  if (records) {
    worst = warp_max(worst);
    if (lane == 0) shared.most[warp] = worst;
  }
  __syncthreads();

  T best_value{};
  const auto load_best = [&](int tile) {
    const int64_t best = usable > 0 ? shared.best : 0;
    best_value = static_cast<const T*>(
        job.candidates)[(first + best) * dimensions + min(tile * width + own, dimensions - 1)];
  };
  if (block < grid.tiles) load_best(block);

  const auto put = [&](int rank, int place) {
    if (weighted) weight[place] = rank < kKept ? kept_weight[rank] : job.weights[rank];
    if (records && settings.ranked) job.elites[problem * wanted + rank] = index[place];
  };
  if (ranks) {
    // Bins of as many keys each; an elite's rank is the number of those in lower bins and of lower ones in
    // its own.
    const int shift = max(0, bit_length(static_cast<Key>(limit - least)) - grid.log_bins);
    const auto bin_of = [&](Key key) { return static_cast<int>((key - least) >> shift); };
#pragma unroll 1
    for (int p = thread; p < usable; p += threads) {
      const int bin = bin_of(list_key[p]);
      next[p] = atomicExch(&head[bin], static_cast<uint32_t>(p));
      atomicAdd(&before[bin], 1u);
    }
    __syncthreads();
    int own = 0;
    const int below = sum_bins(own);
    if (thread < grid.bins) before[thread] = static_cast<uint32_t>(below);
    __syncthreads();
#pragma unroll 1
    for (int p = thread; p < usable; p += threads) {
      const Key own_key = list_key[p];
      const int bin = bin_of(own_key);
      int rank = static_cast<int>(before[bin]);
#pragma unroll 1
      for (uint32_t q = head[bin]; q != kNone; q = next[q]) {
        rank += list_key[q] < own_key || (list_key[q] == own_key && q < p) ? 1 : 0;
      }
      put(rank, p);
    }
    __syncthreads();
  }

  const int chunks = (usable + kChunk - 1) / kChunk;
  if (records) {
    if (!settings.ranked) {
      for (int p = thread; p < usable; p += threads) job.elites[problem * wanted + p] = index[p];
    }
    if (usable < wanted) {  // then those that failed
      in_index_order<kItems>(
          shared.before, [&](int item) { return origin + item * kWarp < population && !is_elite(item); },
          [&](int item, int place) {
            if (usable + place < wanted)
              job.elites[problem * wanted + usable + place] = origin + item * kWarp;
          });
    }
    // Not by the warp that finishes the tiles.
    double sum = 0.0;
    for (int c = warp == 0 ? warps - 1 : warp - 1; c < chunks; c += warps) {
      const int end = min(usable, (c + 1) * kChunk);
      sum = 0.0;
#pragma unroll 1
      for (int p = c * kChunk + lane; p < end; p += kWarp) {
        sum += fitness_at<Key>(job, first + index[p]);
      }
      sum = warp_fold(sum);
      if (lane == 0) shared.sum[c] = sum;
    }
    if (chunks > 1) __syncthreads();
    if (warp == 1) {
      if (chunks > 1) sum = warp_fold(lane < chunks ? shared.sum[lane] : 0.0);
      const Key most = warp_max(lane < warps ? shared.most[lane] : Key(0));
      if (lane == 0) {
        const bool any = usable > 0;
        write_record(job, problem, usable, any ? key_value(job.fitness_type, least, settings.maximize) : 0.0,
            sum, any ? key_value(job.fitness_type, most, settings.maximize) : 0.0, generation);
      }
    }
  }
  if (block >= grid.tiles) return;

  // The sums of the weights, by rank, of which the last warp makes what the update needs.
  double total = static_cast<double>(usable), squares = total;
  if (weighted) {
    for (int c = warps - 1 - warp; c < chunks; c += warps) {
      const int end = min(usable, (c + 1) * kChunk);
      total = squares = 0.0;
#pragma unroll 1
      for (int p = c * kChunk + lane; p < end; p += kWarp) {
        const double w = job.weights[p];
        total += w;
        squares += w * w;
      }
      total = warp_fold(total);
      if (settings.variance == kNewMeanUnbiased) squares = warp_fold(squares);
      if (lane == 0) {
        shared.total[c] = total;
        shared.squares[c] = squares;
      }
    }
    if (chunks > 1) {
      __syncthreads();
      total = warp_fold(lane < chunks ? shared.total[lane] : 0.0);
      squares = warp_fold(lane < chunks ? shared.squares[lane] : 0.0);
    }
  }
  if (warp == warps - 1 && lane == 0) {
    shared.extra_variance = extra_variance;
    shared.weight = make_weight(settings, total, squares);
    shared.newest = newest_share(settings, generation);
  }
  if (warp == warps - 2 && lane == 0) {
    shared.better =
        is_better(key_value(job.fitness_type, least, settings.maximize), known, settings.maximize);
  }

  const int places = usable;
#pragma unroll 1
  for (int tile = block; tile < grid.tiles; tile += grid.blocks) {
    // hidden(): else too few registers are left for the loads.
    const int thread = hidden(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
    const int usable = hidden(places), chunks = (usable + kChunk - 1) / kChunk;
    const int dimensions = hidden(static_cast<int>(settings.dimensions));
    const int slots = threads >> grid.log_width, slot = thread >> grid.log_width, own = thread & (width - 1);
    const bool few = settings.elites <= kFew;
    const int log_classes = few ? 3 : 5, units = max(1, slots >> log_classes);  // chunks at once
    const int64_t problem =
        grid.blocks == 1 ? hidden(blockIdx.x) : hidden(static_cast<int>(blockIdx.x) / grid.blocks);
    const auto* rows = static_cast<const T*>(job.candidates) + problem * population * dimensions;
    const int left = tile * width, column = min(left + own, dimensions - 1);
    if (tile != block) {
      load_tile(tile);
      keep_tile();
      load_best(tile);
    }
    if (usable == 0) __syncthreads();  // else those of the sums stand before the marginals are read
#pragma unroll 1
    for (int from = 0; from < chunks; from += units) {
#pragma unroll 1
      for (int s = slot; s < units << log_classes; s += slots) {
        const int begin = (from + (s >> log_classes)) * kChunk,
                  place = begin + (s & ((1 << log_classes) - 1));
        if (place >= usable && !few) continue;
        const Moments sums = residue_moments(rows + column, dimensions, best_value, place,
            min(usable, begin + kChunk), few, index, weighted ? weight : nullptr);
        part[s * width + own] = sums.first;
        part[layout.entries + s * width + own] = sums.second;
      }
      __syncthreads();
      if (!few) {
#pragma unroll 1
        for (int s = slot; s < units * kQuads; s += slots) {
          const int count = usable - (from + s / kQuads) * kChunk, r = s % kQuads;
          double* row = part + (s / kQuads * kResidues + r) * width + own;
          add_quad(row, width, r, count);
          add_quad(row + layout.entries, width, r, count);
        }
        __syncthreads();
      }
      if (chunks > 1) {
        if (slot < units && from + slot < chunks) {
          const double* quads = part + slot * kResidues * width + own;
          double* to = chunk_sum + (from + slot) * width + own;
          to[0] = quads_sum(quads, width);
          to[grid.chunks * width] = quads_sum(quads + layout.entries, width);
        }
        __syncthreads();
      }
    }
    if (chunks > 1) {  // a lane a chunk
      for (int j = warp; j < 2 * width; j += warps) {
        double* at = chunk_sum + (j < width ? j : j - width + grid.chunks * width);
        const double sum = warp_fold(lane < chunks ? at[lane * width] : 0.0);
        if (lane == 0) *at = sum;
      }
      __syncthreads();
    }
    if (thread < width && left + thread < dimensions) {
      const int64_t at = problem * kRows * dimensions + left + thread;
      T old[kRows];
#pragma unroll
      for (int row = 0; row < kRows; ++row) old[row] = shared.old[row][thread];
      const Moments sums = chunks > 1 ? Moments{chunk_sum[thread], chunk_sum[grid.chunks * width + thread]}
                                      : Moments{quads_sum(part + thread, width),
                                            quads_sum(part + layout.entries + thread, width)};
      const double least_std = job.floors != nullptr ? static_cast<double>(shared.floor[thread]) : -HUGE_VAL;
      write_marginal(job, at, usable > 0, shared.weight, sums, best_value, shared.better, old,
          shared.extra_variance, least_std, shared.newest);
    }
    if (tile + grid.blocks < grid.tiles) __syncthreads();
  }
}

// Every block finds all elites, so a problem has few: a tile each as long as that fills the device, and one
// for the record where there is room. Narrow tiles spread the rows of many elites over the device.
template <typename Key, typename T, typename Launcher>
void launch_single(const Launcher& device, const Job& job) {
  const Settings& settings = job.settings;
  const int64_t problems = settings.problems, population = settings.population, elites = settings.elites,
                dimensions = settings.dimensions, full = 2 * device.multiprocessors;
  const bool narrow = elites > kChunk && problems * divide_up(dimensions, kMinWidth) <= full;
  const int64_t tiles = divide_up(dimensions, narrow ? kMinWidth : kMaxWidth);
  STD_TORCH_CHECK(dimensions < int64_t{1} << 30, "cem_update: expected fewer dimensions");
  const int64_t blocks = std::max<int64_t>(1, std::min(tiles, full / problems));
  const bool separate = problems * (blocks + 1) <= full;  // the record then costs no time
  const bool ranks = settings.ranked || job.weights != nullptr;

  auto* kernel = single_kernel<Key, T, 16>;
  int64_t threads = kThreads;
  if (population <= 4 * kThreads) {
    const int items = population <= kThreads ? 1 : 4;
    kernel = items == 1 ? single_kernel<Key, T, 1> : single_kernel<Key, T, 4>;
    const int64_t least = problems * blocks <= full ? 256 : 128;
    threads = std::max(least, divide_up(population, items * kWarp) * kWarp);
  }
  int log_bins = 5;
  while (2 << log_bins <= std::min<int64_t>(threads, kMaxBins)) ++log_bins;

  Grid grid{static_cast<int>(tiles), narrow ? 3 : 5, static_cast<int>(blocks + (separate ? 1 : 0)),
      static_cast<int>(separate ? blocks : 0), static_cast<int>(divide_up(elites, kChunk)), log_bins,
      1 << log_bins, {}};
  const int64_t width = int64_t{1} << grid.log_width, listed = divide_up(elites, kWarp) * kWarp;
  Layout& layout = grid.layout;
  const auto give = [&](int& place, int64_t bytes) {
    place = layout.bytes;
    layout.bytes += static_cast<int>(bytes);
  };
  layout.entries = static_cast<int>(std::max(threads, (elites <= kFew ? kQuads : kResidues) * width));
  layout.bytes = ranks ? static_cast<int>(listed * sizeof(Key)) : 0;
  give(layout.next, ranks ? listed * 4 : 0);
  give(layout.head, ranks ? grid.bins * 4 : 0);
  give(layout.before, grid.bins * 4);
  layout.bytes = std::max(layout.bytes, 2 * layout.entries * 8);
  give(layout.chunk, grid.chunks > 1 ? 2 * grid.chunks * width * 8 : 0);
  give(layout.weight, ranks ? listed * 8 : 0);
  give(layout.kept, ranks ? kKept * 8 : 0);
  give(layout.index, listed * 2);
  device.launch_early(kernel, problems * grid.blocks, static_cast<int>(threads), layout.bytes, job, grid);
}

}  // namespace cem_tetris::update
