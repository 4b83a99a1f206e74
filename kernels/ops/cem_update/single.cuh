// A whole update in one kernel, for populations that a block holds in its registers: kItems
// candidates a thread.
//
// Grid: every problem has `blocks` blocks. Each of them finds all elites, because that costs
// less than a second kernel. Then block b updates the tiles b, b + blocks, b + 2 blocks, ...,
// each of `width` dimensions. Block `record_block`, which may have no tile, also writes the
// record and the elites.
//
// The kernel is bound by latency, of fetched instructions as much as of data, so hardly any
// loop is unrolled. Its phases are the methods of SingleBlock, in the order of single_kernel at
// the end.
#pragma once

#include <algorithm>

#include "device.cuh"
#include "launcher.cuh"

namespace cem_tetris::update {

constexpr int kSinglePopulation = 16384;  // 1024 threads with 16 candidates each
constexpr int kSingleElites =
    8192;  // their 16-bit indices take a third of an H100's shared memory
constexpr int kSingleChunks = kSingleElites / kChunk;
template <typename Key>
constexpr int64_t kSingleRanked = 8192 / sizeof(Key);  // elites with ranks

constexpr int kMaxBins = 1024;      // of the radix search and of the ranking: one a thread
constexpr int kFirstWeights = 256;  // weights by rank that a block copies to shared memory
constexpr int kMinWidth = 8;        // dimensions of a narrow tile
constexpr int kMaxWidth = 32;       // dimensions of a wide tile
constexpr int kFew = kResidues;     // as many elites have a residue class each
constexpr int kQuads =
    kResidues / 4;  // quad r has the residue classes r, r + 8, r + 16 and r + 24

// Where the arrays of the dynamic shared memory begin, in bytes. K is the number of elites,
// rounded up to whole warps; arrays in brackets exist only where elites are ranked or weighted.
// The first part is used twice, because the ranking has ended before the sums of a tile begin:
//
//   ranking:  | [key: Key[K]] | [next: u32[K]] | [head: u32[bins]] | count: u32[bins] |
//   summing:  | part: double[2][moment_stride], `width` numbers for each residue class |
//
//   after it: | chunk_sum: double[2][chunks][width], for several chunks | [weight: double[K]]
//             | [first_weights: double[kFirstWeights]] | index: u16[K] |
struct Layout {
  int moment_stride;  // in doubles: from a sum of w x to that of w x^2
  int next, head, count;
  int chunk_sum;
  int weight;
  int first_weights;
  int index;
  int bytes;  // the size of all
};

// What the blocks of all problems share.
struct Grid {
  int tiles;      // of a problem
  int log_width;  // of a tile, in dimensions
  int blocks;     // of a problem
  int record_block;
  int chunks;  // of all elites, where none failed
  int log_bins, bins;
  Layout layout;
};

// The arrays of the dynamic shared memory. The elites are listed in index order; a place is a
// position in that list.
template <typename Key>
struct Arrays {
  const Layout& layout;
  double* part = dynamic_shared();                   // sums of a tile's residue classes
  Key* list_key = at<Key>(0);                        // by place
  uint32_t* next = at<uint32_t>(layout.next);        // by place: the next place of its bin
  uint32_t* head = at<uint32_t>(layout.head);        // by bin: the first place, or kNone
  uint32_t* count = at<uint32_t>(layout.count);      // by bin: keys, later elites in lower bins
  double* chunk_sum = at<double>(layout.chunk_sum);  // by moment, chunk and dimension
  double* weight = at<double>(layout.weight);        // by place
  double* first_weights = at<double>(layout.first_weights);  // by rank
  uint16_t* index = at<uint16_t>(layout.index);              // by place: the candidate

  template <typename Number>
  CEM_TETRIS_DEVICE_FUNCTION Number* at(int begin) const {
    return reinterpret_cast<Number*>(reinterpret_cast<char*>(part) + begin);
  }
};

// What else the threads of a block share.
template <typename Key, typename T>
struct SingleShared {
  T old[kRows][kMaxWidth];  // the marginals of a tile
  T floor[kMaxWidth];
  // One number for each warp, before the block combines them.
  Key least[kMaxWarps], greatest[kMaxWarps];
  int passed[kMaxWarps], warp_counts[kMaxWarps];
  // The bin of the last elite, the candidates below the bin, and those within it.
  int bin, below, within;
  // One number for each chunk of elites.
  double total[kSingleChunks];    // of weights
  double squares[kSingleChunks];  // of squared weights
  double fitness[kSingleChunks];
  // What the marginals of all dimensions need.
  Weight weight;
  double extra_variance;
  double mean_share;  // of the new mean in the averaged one
  bool is_new_best;   // whether the generation's best is better than the best so far
  int best;           // the candidate with the least key, the first one of equals
};

CEM_TETRIS_DEVICE_FUNCTION int bit_length(uint32_t x) { return 32 - __clz(int(x)); }
CEM_TETRIS_DEVICE_FUNCTION int bit_length(uint64_t x) {
  uint32_t high = uint32_t(x >> 32);
  return high != 0 ? 32 + bit_length(high) : bit_length(uint32_t(x));
}

// Calls use(item, place) for every candidate of the block that fulfils a predicate, where
// `place` numbers these candidates in index order, from 0 on. A thread has kItems candidates,
// and asks predicate(item) for each; a warp has kItems * 32 candidates in a row, so a warp's
// first place is the count of the warps before it. warp_counts: scratch, one number per warp.
// All threads of the block call it, because it has a barrier.
template <int kItems, typename Predicate, typename Use>
CEM_TETRIS_DEVICE_FUNCTION void in_index_order(
    int (&warp_counts)[kMaxWarps], const Predicate& predicate, const Use& use) {
  int lane = threadIdx.x % kWarp;
  int warp = threadIdx.x / kWarp;
  int place = 0;
  CEM_TETRIS_UNROLL
  for (int item = 0; item < kItems; ++item)
    place += __popc(__ballot_sync(kAll, predicate(item)));
  if (lane == 0) warp_counts[warp] = place;
  __syncthreads();
  place = warp_sum(lane < warp ? warp_counts[lane] : 0);
  CEM_TETRIS_UNROLL
  for (int item = 0; item < kItems; ++item) {
    unsigned fulfilling = __ballot_sync(kAll, predicate(item));
    if (fulfilling >> lane & 1) use(item, place + __popc(fulfilling & ((1u << lane) - 1)));
    place += __popc(fulfilling);
  }
}

// Returns the fitness that a key stands for. Not inlined, because it is called twice, away from
// the critical path.
template <typename Key>
__device__ __noinline__ double key_value(Number type, Key key, bool maximize) {
  return visit<Key>(type, [&](auto kind) { return kind.value(kind.of_key(key, maximize)); });
}

// Returns x, but hides from the compiler where it comes from. Otherwise the compiler would
// compute what follows from x ahead of a loop, and keep the results in registers that the loop
// needs.
CEM_TETRIS_DEVICE_FUNCTION int hidden(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// Returns the sums of w x and w x^2 over one residue class of a chunk of elites, in one
// dimension; x is a candidate's coordinate minus the best candidate's. A residue class has
// every kResidues-th place of the list of elites, from `first` on and below `end` (see
// update.h).
//
// rows: the coordinate of candidate 0; those of the others follow at distances of `stride`.
// index: the candidate at each place. weight: the weight at each place, or null if all are 1.
// few: the list is so short that each class has one elite at most; then the thread adds up a
// quad, the four classes first, first + 8, first + 16 and first + 24, in the order of the tree.
template <typename T>
CEM_TETRIS_DEVICE_FUNCTION Moments residue_moments(const T* rows, int stride, T best, int first,
    int end, bool few, const uint16_t* index, const double* weight) {
  constexpr int kAtOnce = kResidues / kQuads;  // loads in flight, all unconditional
  int step = few ? kQuads : kResidues;
  Moments sums{0.0, 0.0};
#pragma unroll 1
  for (; first < end; first += kAtOnce * step) {
    T value[kAtOnce];
    double weighted[kAtOnce];
    double square[kAtOnce];
    CEM_TETRIS_UNROLL
    for (int u = 0; u < kAtOnce; ++u) {
      int place = min(first + u * step, end - 1);
      value[u] = rows[int64_t(index[place]) * stride];
    }
    CEM_TETRIS_UNROLL
    for (int u = 0; u < kAtOnce; ++u) {
      int place = first + u * step;
      double x = place < end ? double(value[u]) - double(best) : 0.0;
      weighted[u] = weight ? weight[min(place, end - 1)] * x : x;
      square[u] = weighted[u] * x;
    }
    // Four sums, each of which begins at 0, then the tree's steps r += r + 16 and r += r + 8.
    if (few) {
      return {((0.0 + weighted[0]) + (0.0 + weighted[2])) +
                  ((0.0 + weighted[1]) + (0.0 + weighted[3])),
          ((0.0 + square[0]) + (0.0 + square[2])) + ((0.0 + square[1]) + (0.0 + square[3]))};
    }
    CEM_TETRIS_UNROLL
    for (int u = 0; u < kAtOnce; ++u) {
      sums.first += weighted[u];
      sums.second += square[u];
    }
  }
  return sums;
}

// Replaces the sum of residue class r < 8 by that of the quad r, r + 8, r + 16 and r + 24, the
// first two steps of the tree over a chunk's classes. sum: points to class r; the sums of the
// classes are `stride` apart, and `rows` classes have elites.
CEM_TETRIS_DEVICE_FUNCTION void add_quad(double* sum, int stride, int r, int rows) {
  auto row = [&](int offset) { return r + offset < rows ? sum[offset * stride] : 0.0; };
  sum[0] = (row(0) + row(16)) + (row(8) + row(24));
}

// Returns the sum of a chunk in one dimension: adds the sums of the eight quads, which are
// `stride` apart, by the last steps of the tree (r += r + 4, 2, 1).
CEM_TETRIS_DEVICE_FUNCTION double quads_sum(const double* quads, int stride) {
  double sum[kQuads];
  CEM_TETRIS_UNROLL
  for (int r = 0; r < kQuads; ++r) sum[r] = quads[r * stride];
  CEM_TETRIS_UNROLL
  for (int step = kQuads / 2; step > 0; step /= 2) {
    CEM_TETRIS_UNROLL
    for (int r = 0; r < step; ++r) sum[r] += sum[r + step];
  }
  return sum[0];
}

// One thread of a block, with what its phases pass on.
template <typename Key, typename T, int kItems>
struct SingleBlock {
  static constexpr Key kFailed = ~Key(0);
  static constexpr uint32_t kNone = ~0u;  // ends the list of a bin

  const Job& job;
  const Grid& grid;
  SingleShared<Key, T>& shared;
  const Arrays<Key> arrays;
  const Settings& settings = job.settings;

  int thread = threadIdx.x;
  int threads = blockDim.x;
  int lane = thread % kWarp;
  int warp = thread / kWarp;
  int warps = threads / kWarp;

  int population = int(settings.population);
  int wanted = int(settings.elites);
  int dimensions = int(settings.dimensions);
  int64_t problem = 0;
  int block = blockIdx.x;   // of the problem's
  int64_t first_candidate;  // of the problem
  bool weighted = job.weights;
  bool records;  // whether this block writes the record and the elites
  bool ranks;    // whether this block needs the elites' ranks
  int64_t generation;
  double best_known;  // the best fitness of earlier generations

  // A warp has candidates in a row, a lane every 32nd of them, from `origin` on.
  int origin = warp * kItems * kWarp + lane;
  // Outside of this struct: otherwise all of it is in memory until the loops over the keys are
  // unrolled.
  Key (&key)[kItems];
  Key least = kFailed;  // of all keys
  Key limit = 0;        // the key of the last elite; before, the greatest one that did not fail
  int passed = 0;       // candidates that did not fail
  int usable;           // elites that did not fail
  int bound;            // candidates with the key `limit` and an index below it are elites

  // A tile is `width` dimensions. The threads form rows as wide as a tile. A thread has one
  // number of the tile's old marginals: row thread_row of the distribution, dimension
  // own_column.
  int width = 1 << grid.log_width;
  int thread_row = thread >> grid.log_width;
  int own_column = thread & (width - 1);
  T old{};
  T floor{};
  T best_value{};  // of the generation's best candidate in that dimension
  double extra_variance = 0.0;
  double total,
      squares;  // of the elites' weights, and of their squares; lane 0 of the last warp's count

  CEM_TETRIS_DEVICE_FUNCTION SingleBlock(
      const Job& job, const Grid& grid, SingleShared<Key, T>& shared, Key (&key)[kItems])
      : job(job), grid(grid), shared(shared), key(key), arrays{grid.layout} {
    if (settings.problems > 1) {  // a division takes long
      problem = grid.blocks == 1 ? blockIdx.x : blockIdx.x / grid.blocks;
      block = int(blockIdx.x - problem * grid.blocks);
    }
    first_candidate = problem * population;
    records = block == grid.record_block;
    ranks = weighted || (settings.ranked && records);
  }

  CEM_TETRIS_DEVICE_FUNCTION int candidate(int item) const { return origin + item * kWarp; }
  CEM_TETRIS_DEVICE_FUNCTION bool exists(int item) const {
    return candidate(item) < population;
  }

  // Whether a candidate is an elite, once the limit is known.
  CEM_TETRIS_DEVICE_FUNCTION bool is_elite(int item) const {
    int i = candidate(item);
    return i < population && (key[item] < limit || (key[item] == limit && i < bound));
  }

  // Loads the keys of the thread's candidates; behind the population there are keys of failed
  // ones.
  CEM_TETRIS_DEVICE_FUNCTION void load_keys() {
    visit<Key>(job.fitness_type, [&](auto type) {
      CEM_TETRIS_UNROLL
      for (int item = 0; item < kItems; ++item) {
        int i = candidate(item);
        key[item] = i < population
                        ? Key(type.key(load<decltype(type)>(job.fitness, first_candidate + i),
                              settings.maximize))
                        : kFailed;
      }
    });
  }

  // Loads the thread's number of a tile's old marginals, and in row 0 also the dimension's
  // floor.
  CEM_TETRIS_DEVICE_FUNCTION void load_marginals(int tile) {
    int column = tile * width + own_column;
    if (thread_row >= kRows || column >= dimensions) return;
    int64_t row = problem * kRows + thread_row;
    old = static_cast<const T*>(job.distribution)[row * dimensions + column];
    if (thread_row == 0 && job.floors) {
      floor = static_cast<const T*>(job.floors)[problem * settings.floor_stride + column];
    }
  }

  CEM_TETRIS_DEVICE_FUNCTION void keep_marginals() {
    if (thread_row < kRows) shared.old[thread_row][own_column] = old;
    if (thread_row == 0) shared.floor[own_column] = floor;
  }

  // Loads what does not depend on the fitness, while the fitness is on its way from memory, and
  // clears the bins.
  CEM_TETRIS_DEVICE_FUNCTION void prepare() {
    generation = *job.generation;
    best_known = job.record[problem * kFigures + kBestFitness];
    load_marginals(block);
    if (thread < grid.bins) {
      arrays.count[thread] = 0;
      if (ranks) arrays.head[thread] = kNone;
    }
    if (weighted && thread < min(wanted, kFirstWeights)) {
      arrays.first_weights[thread] = job.weights[thread];
    }
    if (thread == 0) shared.best = population;
  }

  // Finds, over all candidates of the problem, the least key (`least`), the greatest key that
  // did not fail (`limit`), and how many candidates did not fail (`passed`): first in each
  // warp, then across the warps. Also shares the old marginals.
  CEM_TETRIS_DEVICE_FUNCTION void find_range() {
    CEM_TETRIS_UNROLL
    for (int item = 0; item < kItems; ++item) {
      bool good = exists(item) && !(job.can_fail() && key[item] == kFailed);
      least = min(least, key[item]);
      limit = max(limit, good ? key[item] : Key(0));
      passed += good;
    }
    least = warp_min(least);
    limit = warp_max(limit);
    passed = warp_sum(passed);
    keep_marginals();
    // Loaded here, because there is time; the last warp keeps it until share_scalars().
    if (warp == warps - 1) extra_variance = extra_variance_of(job, generation);
    if (lane == 0) {
      shared.least[warp] = least;
      shared.greatest[warp] = limit;
      shared.passed[warp] = passed;
    }
    __syncthreads();
    least = warp_min(lane < warps ? shared.least[lane] : kFailed);
    limit = warp_max(lane < warps ? shared.greatest[lane] : Key(0));
    passed = warp_sum(lane < warps ? shared.passed[lane] : 0);
    usable = min(passed, wanted);
  }

  // Returns how many keys are in the bins below the thread's bin, a prefix sum over the counts
  // of all bins. Sets `within` to the count of its own bin, and empties it. A thread beyond the
  // bins has none.
  CEM_TETRIS_DEVICE_FUNCTION int take_bin(int& within) {
    within = thread < grid.bins ? int(arrays.count[thread]) : 0;
    if (within != 0) arrays.count[thread] = 0;
    int up_to = warp_scan(within, lane);
    if (lane == kWarp - 1) shared.warp_counts[warp] = up_to;
    __syncthreads();
    return up_to - within + warp_sum(lane < warp ? shared.warp_counts[lane] : 0);
  }

  // Finds the key of the last elite (`limit`) and, among candidates with that very key, the
  // bound below which an index must be (`bound`). It is a radix search: the keys of a range are
  // counted in bins of equal width, and the bin that holds the last elite becomes the next
  // range, until it holds exactly as many candidates as are needed, or one key.
  CEM_TETRIS_DEVICE_FUNCTION void find_limit() {
    bound = population;
    if (passed <= wanted) return;
    Key low = least;
    int needed = wanted;  // elites in the range
    int shift = 0;
    do {
      Key range = limit - low;
      shift = max(0, bit_length(range) - grid.log_bins);
      CEM_TETRIS_UNROLL
      for (int item = 0; item < kItems; ++item) {
        Key above = key[item] - low;
        if (above <= range && exists(item)) atomicAdd(&arrays.count[above >> shift], 1u);
      }
      __syncthreads();
      int within = 0;
      int below = take_bin(within);
      if (below < needed && needed <= below + within) {
        shared.bin = thread;
        shared.below = below;
        shared.within = within;
      }
      __syncthreads();
      low += Key(shared.bin) << shift;
      Key bin_range = (Key(1) << shift) - 1;
      limit = low + min(Key(limit - low), bin_range);
      needed -= shared.below;
    } while (shared.within != needed && shift != 0);
    if (shared.within == needed) return;
    // More candidates than are needed have the key `limit`: those with the lowest indices are
    // elites.
    in_index_order<kItems>(
        shared.warp_counts, [&](int item) { return exists(item) && key[item] == limit; },
        [&](int item, int place) {
          if (place == needed) shared.bin = candidate(item);
        });
    __syncthreads();
    bound = shared.bin;
  }

  // Lists the elites that did not fail in index order, and finds the best candidate and, for
  // the record, each warp's worst key.
  CEM_TETRIS_DEVICE_FUNCTION void list_elites() {
    Key worst = 0;
    in_index_order<kItems>(
        shared.warp_counts, [&](int item) { return is_elite(item); },
        [&](int item, int place) {
          int i = candidate(item);
          arrays.index[place] = uint16_t(i);
          if (ranks) arrays.list_key[place] = key[item];
          worst = max(worst, key[item]);
          if (key[item] == least) atomicMin(&shared.best, i);
        });
    if (records) {
      worst = warp_max(worst);
      if (lane == 0) shared.greatest[warp] = worst;
    }
    __syncthreads();
  }

  // Loads the best candidate's coordinate in the thread's dimension of a tile.
  CEM_TETRIS_DEVICE_FUNCTION void load_best(int tile) {
    int64_t best = usable > 0 ? shared.best : 0;
    int column = min(tile * width + own_column, dimensions - 1);
    best_value =
        static_cast<const T*>(job.candidates)[(first_candidate + best) * dimensions + column];
  }

  // Finds the rank of each elite, by key and then by place. The range of keys is cut into bins,
  // each with a linked list of its elites; a rank is the number of elites in lower bins, plus
  // those in the same bin that come before. Then writes the weights by place, and the elites by
  // rank.
  CEM_TETRIS_DEVICE_FUNCTION void rank_elites() {
    int shift = max(0, bit_length(Key(limit - least)) - grid.log_bins);
    auto bin_of = [&](Key key) { return int((key - least) >> shift); };
#pragma unroll 1
    for (int place = thread; place < usable; place += threads) {
      int bin = bin_of(arrays.list_key[place]);
      arrays.next[place] = atomicExch(&arrays.head[bin], uint32_t(place));
      atomicAdd(&arrays.count[bin], 1u);
    }
    __syncthreads();
    int within = 0;
    int below = take_bin(within);
    if (thread < grid.bins) arrays.count[thread] = uint32_t(below);
    __syncthreads();
#pragma unroll 1
    for (int place = thread; place < usable; place += threads) {
      Key own_key = arrays.list_key[place];
      int bin = bin_of(own_key);
      int rank = int(arrays.count[bin]);
#pragma unroll 1
      for (uint32_t other = arrays.head[bin]; other != kNone; other = arrays.next[other]) {
        rank += arrays.list_key[other] < own_key ||
                        (arrays.list_key[other] == own_key && other < place)
                    ? 1
                    : 0;
      }
      if (weighted) {
        arrays.weight[place] =
            rank < kFirstWeights ? arrays.first_weights[rank] : job.weights[rank];
      }
      if (records && settings.ranked) job.elites[problem * wanted + rank] = arrays.index[place];
    }
    __syncthreads();
  }

  // Writes the elites that have no ranks, and behind all elites the first candidates that
  // failed.
  CEM_TETRIS_DEVICE_FUNCTION void write_elites() {
    if (!settings.ranked) {
      for (int place = thread; place < usable; place += threads)
        job.elites[problem * wanted + place] = arrays.index[place];
    }
    if (usable < wanted) {
      in_index_order<kItems>(
          shared.warp_counts, [&](int item) { return exists(item) && !is_elite(item); },
          [&](int item, int place) {
            if (usable + place < wanted)
              job.elites[problem * wanted + usable + place] = candidate(item);
          });
    }
  }

  // Adds up the fitness of the elites, one warp per chunk, and writes the problem's record.
  // Warp 0 is the last to get a chunk, because it has the marginals to write. chunks: of kChunk
  // elites.
  CEM_TETRIS_DEVICE_FUNCTION void write_record_of_problem(int chunks) {
    double sum = 0.0;
    for (int chunk = warp == 0 ? warps - 1 : warp - 1; chunk < chunks; chunk += warps) {
      int end = min(usable, (chunk + 1) * kChunk);
      sum = 0.0;
#pragma unroll 1
      for (int place = chunk * kChunk + lane; place < end; place += kWarp) {
        sum += fitness_at<Key>(job, first_candidate + arrays.index[place]);
      }
      sum = warp_fold(sum);
      if (lane == 0) shared.fitness[chunk] = sum;
    }
    if (chunks > 1) __syncthreads();
    if (warp != 1) return;
    if (chunks > 1) sum = warp_fold(lane < chunks ? shared.fitness[lane] : 0.0);
    Key worst = warp_max(lane < warps ? shared.greatest[lane] : Key(0));
    if (lane == 0) {
      bool any = usable > 0;
      write_record(job, problem, usable,
          any ? key_value(job.fitness_type, least, settings.maximize) : 0.0, sum,
          any ? key_value(job.fitness_type, worst, settings.maximize) : 0.0, generation);
    }
  }

  // Adds up the weights of the elites (`total`) and their squares (`squares`) in the order of
  // ranks: first one warp per chunk, then every warp adds the chunks' sums. Lane 0 of the last
  // warp ends up with both in any case, because the last warp has chunk 0. chunks: of kChunk
  // elites.
  CEM_TETRIS_DEVICE_FUNCTION void sum_weights(int chunks) {
    total = squares = double(usable);
    if (!weighted) return;
    for (int chunk = warps - 1 - warp; chunk < chunks; chunk += warps) {
      int end = min(usable, (chunk + 1) * kChunk);
      total = squares = 0.0;
#pragma unroll 1
      for (int rank = chunk * kChunk + lane; rank < end; rank += kWarp) {
        double w = job.weights[rank];
        total += w;
        squares += w * w;
      }
      total = warp_fold(total);
      if (settings.variance == kNewMeanUnbiased) squares = warp_fold(squares);
      if (lane == 0) {
        shared.total[chunk] = total;
        shared.squares[chunk] = squares;
      }
    }
    if (chunks > 1) {
      __syncthreads();
      total = warp_fold(lane < chunks ? shared.total[lane] : 0.0);
      squares = warp_fold(lane < chunks ? shared.squares[lane] : 0.0);
    }
  }

  // Writes to shared memory what the marginals of all dimensions need. One thread of each of
  // the last two warps does it, side by side.
  CEM_TETRIS_DEVICE_FUNCTION void share_scalars() {
    if (warp == warps - 1 && lane == 0) {
      shared.extra_variance = extra_variance;
      shared.weight = make_weight(settings, total, squares);
      shared.mean_share = newest_share(settings, generation);
    }
    if (warp == warps - 2 && lane == 0) {
      double best_fitness = key_value(job.fitness_type, least, settings.maximize);
      shared.is_new_best = is_better(best_fitness, best_known, settings.maximize);
    }
  }

  // Updates the marginals of a tile, `width` dimensions. All threads of the block call it,
  // after share_scalars().
  CEM_TETRIS_DEVICE_FUNCTION void update_tile(int tile) {
    const TileThread mine{*this, tile};
    if (tile != block) {
      load_marginals(tile);
      keep_marginals();
      load_best(tile);
    }
    if (usable == 0)
      __syncthreads();  // otherwise a barrier of the sums comes before the marginals are read
#pragma unroll 1
    for (int chunk = 0; chunk < mine.chunks; chunk += mine.chunks_at_once)
      sum_chunks(mine, chunk);
    if (mine.chunks > 1) fold_chunks(mine);
    write_marginals(mine);
    if (tile + grid.blocks < grid.tiles) __syncthreads();
  }

 private:
  // What a thread knows of a tile. Some values are hidden from the compiler, which would
  // otherwise keep so much in registers that too few are left for the loads.
  struct TileThread {
    const SingleBlock& block;
    int tile;
    const Grid& grid = block.grid;
    int thread = hidden(threadIdx.x);
    int lane = thread % kWarp;
    int warp = thread / kWarp;
    int usable = hidden(block.usable);
    int chunks = (usable + kChunk - 1) / kChunk;
    int dimensions = hidden(int(block.settings.dimensions));
    int thread_rows = block.threads >> grid.log_width;  // rows of threads
    int thread_row = thread >> grid.log_width;          // the thread's row
    int own_column = thread & (block.width - 1);        // the thread's dimension
    bool few =
        block.settings.elites <= kFew;  // then a row is a quad, otherwise a residue class
    int log_rows = few ? 3 : 5;         // of a chunk: 8 quads or 32 residue classes
    int chunks_at_once = max(1, thread_rows >> log_rows);  // chunks at once
    int64_t problem =
        grid.blocks == 1 ? hidden(blockIdx.x) : hidden(int(blockIdx.x) / grid.blocks);
    const T* candidates =
        static_cast<const T*>(block.job.candidates) + problem * block.population * dimensions;
    int left = tile * block.width;  // the tile's first dimension
    int column =
        min(left + own_column, dimensions - 1);  // the thread's dimension, or the last one
  };

  // Adds up w x and w x^2 over mine.chunks_at_once chunks from `first_chunk` on: first each
  // residue class (or, of few elites, each quad of classes) by one thread per dimension, then
  // the classes as a tree. If the elites fill several chunks, the sums of a chunk go to
  // arrays.chunk_sum; if they fill one, the sums of its eight quads stay in arrays.part for
  // write_marginals().
  CEM_TETRIS_DEVICE_FUNCTION void sum_chunks(const TileThread& mine, int first_chunk) {
    double* second_moments = arrays.part + grid.layout.moment_stride;
#pragma unroll 1
    for (int row = mine.thread_row; row < mine.chunks_at_once << mine.log_rows;
        row += mine.thread_rows) {
      int begin = (first_chunk + (row >> mine.log_rows)) * kChunk;
      int place = begin + (row & ((1 << mine.log_rows) - 1));
      if (place >= mine.usable && !mine.few) continue;
      Moments sums = residue_moments(mine.candidates + mine.column, mine.dimensions, best_value,
          place, min(mine.usable, begin + kChunk), mine.few, arrays.index,
          weighted ? arrays.weight : nullptr);
      arrays.part[row * width + mine.own_column] = sums.first;
      second_moments[row * width + mine.own_column] = sums.second;
    }
    __syncthreads();
    if (!mine.few) {
#pragma unroll 1
      for (int quad = mine.thread_row; quad < mine.chunks_at_once * kQuads;
          quad += mine.thread_rows) {
        int chunk_index = quad / kQuads;
        int r = quad % kQuads;
        int rows = mine.usable - (first_chunk + chunk_index) * kChunk;
        double* sum = arrays.part + (chunk_index * kResidues + r) * width + mine.own_column;
        add_quad(sum, width, r, rows);
        add_quad(sum + grid.layout.moment_stride, width, r, rows);
      }
      __syncthreads();
    }
    if (mine.chunks > 1) {
      int chunk = first_chunk + mine.thread_row;
      if (mine.thread_row < mine.chunks_at_once && chunk < mine.chunks) {
        const double* quads =
            arrays.part + mine.thread_row * kResidues * width + mine.own_column;
        double* to = arrays.chunk_sum + chunk * width + mine.own_column;
        to[0] = quads_sum(quads, width);
        to[grid.chunks * width] = quads_sum(quads + grid.layout.moment_stride, width);
      }
      __syncthreads();
    }
  }

  // Adds up the sums of all chunks; the totals replace the sums of chunk 0. A warp has one
  // moment (w x or w x^2) of one dimension at a time, and each of its lanes one chunk.
  CEM_TETRIS_DEVICE_FUNCTION void fold_chunks(const TileThread& mine) {
    for (int j = mine.warp; j < 2 * width; j += warps) {
      double* sums = arrays.chunk_sum + (j < width ? j : j - width + grid.chunks * width);
      double sum = warp_fold(mine.lane < mine.chunks ? sums[mine.lane * width] : 0.0);
      if (mine.lane == 0) *sums = sum;
    }
    __syncthreads();
  }

  // Writes the new marginals of a tile, one thread per dimension. The sums are those that
  // fold_chunks() left in place of chunk 0, or, of a single chunk, follow from its quads. In
  // both arrays all numbers of the first moment (w x) come before those of the second (w x^2).
  CEM_TETRIS_DEVICE_FUNCTION void write_marginals(const TileThread& mine) {
    int thread = mine.thread;
    if (thread >= width || mine.left + thread >= mine.dimensions) return;
    int64_t offset = mine.problem * kRows * mine.dimensions + mine.left + thread;
    T old[kRows];
    CEM_TETRIS_UNROLL
    for (int row = 0; row < kRows; ++row) old[row] = shared.old[row][thread];
    const double* quads = arrays.part + thread;
    const double* totals = arrays.chunk_sum + thread;
    Moments sums = mine.chunks > 1 ? Moments{totals[0], totals[grid.chunks * width]}
                                   : Moments{quads_sum(quads, width),
                                         quads_sum(quads + grid.layout.moment_stride, width)};
    double least_std = job.floors ? double(shared.floor[thread]) : -HUGE_VAL;
    write_marginal(job, offset, mine.usable > 0, shared.weight, sums, best_value,
        shared.is_new_best, old, shared.extra_variance, least_std, shared.mean_share);
  }
};

// Updates a problem, an entry of the batch, by grid.blocks blocks. Every block finds all elites
// of the problem; then it updates its tiles of dimensions, and one block writes record and
// elites.
template <typename Key, typename T, int kItems>
__global__ void __launch_bounds__(kThreads, 1)
    single_kernel(const __grid_constant__ Job job, const __grid_constant__ Grid grid) {
  __shared__ SingleShared<Key, T> shared;
  wait_for_kernel_before();
  let_kernel_after_begin();
  Key key[kItems];
  SingleBlock<Key, T, kItems> block(job, grid, shared, key);
  block.load_keys();
  block.prepare();
  block.find_range();
  block.find_limit();
  block.list_elites();
  bool has_tile = block.block < grid.tiles;
  if (has_tile) block.load_best(block.block);
  if (block.ranks) block.rank_elites();
  int chunks = (block.usable + kChunk - 1) / kChunk;
  if (block.records) {
    block.write_elites();
    block.write_record_of_problem(chunks);
  }
  if (!has_tile) return;
  block.sum_weights(chunks);
  block.share_scalars();
#pragma unroll 1
  for (int tile = block.block; tile < grid.tiles; tile += grid.blocks) block.update_tile(tile);
}

// Chooses the grid and the layout of the shared memory, and launches single_kernel. Every block
// finds all elites of its problem, so a problem gets few blocks: one for each tile as long as
// the device is not full, and one more for the record if there is room. Narrow tiles spread the
// rows of many elites over more blocks.
template <typename Key, typename T, typename Launcher>
void launch_single(const Launcher& device, const Job& job) {
  const Settings& settings = job.settings;
  int64_t problems = settings.problems;
  int64_t population = settings.population;
  int64_t elites = settings.elites;
  int64_t dimensions = settings.dimensions;
  STD_TORCH_CHECK(dimensions < int64_t{1} << 30, "cem_update: expected fewer dimensions");

  int64_t full = 2 * device.multiprocessors;  // blocks that fill the device
  bool is_narrow = elites > kChunk && problems * divide_up(dimensions, kMinWidth) <= full;
  int64_t tiles = divide_up(dimensions, is_narrow ? kMinWidth : kMaxWidth);
  int64_t tile_blocks = std::max<int64_t>(1, std::min(tiles, full / problems));
  bool separate = problems * (tile_blocks + 1) <= full;  // the record then costs no time
  bool ranks = settings.ranked || job.weights;

  auto* kernel = single_kernel<Key, T, 16>;
  int64_t threads = kThreads;
  if (population <= 4 * kThreads) {
    int items = population <= kThreads ? 1 : 4;
    kernel = items == 1 ? single_kernel<Key, T, 1> : single_kernel<Key, T, 4>;
    int64_t least = problems * tile_blocks <= full ? 256 : 128;
    threads = std::max(least, divide_up(population, items * kWarp) * kWarp);
  }

  Grid grid{};
  grid.tiles = int(tiles);
  grid.log_width = is_narrow ? 3 : 5;
  grid.blocks = int(tile_blocks + (separate ? 1 : 0));
  grid.record_block = int(separate ? tile_blocks : 0);
  grid.chunks = int(divide_up(elites, kChunk));
  grid.log_bins = 5;
  while (2 << grid.log_bins <= std::min<int64_t>(threads, kMaxBins)) ++grid.log_bins;
  grid.bins = 1 << grid.log_bins;

  int64_t width = int64_t{1} << grid.log_width;
  int64_t listed = divide_up(elites, kWarp) * kWarp;  // places that the arrays have
  int64_t rows = elites <= kFew ? kQuads : kResidues;
  Layout& layout = grid.layout;
  auto append = [&](int& begin, int64_t bytes) {  // an array to the layout
    begin = layout.bytes;
    layout.bytes += int(bytes);
  };
  layout.moment_stride = int(std::max(threads, rows * width));
  layout.bytes = ranks ? int(listed * sizeof(Key)) : 0;
  append(layout.next, ranks ? listed * 4 : 0);
  append(layout.head, ranks ? grid.bins * 4 : 0);
  append(layout.count, grid.bins * 4);
  layout.bytes = std::max(layout.bytes, 2 * layout.moment_stride * 8);
  append(layout.chunk_sum, grid.chunks > 1 ? 2 * grid.chunks * width * 8 : 0);
  append(layout.weight, ranks ? listed * 8 : 0);
  append(layout.first_weights, ranks ? kFirstWeights * 8 : 0);
  append(layout.index, listed * 2);
  device.launch_early(kernel, problems * grid.blocks, int(threads), layout.bytes, job, grid);
}

}  // namespace cem_tetris::update
