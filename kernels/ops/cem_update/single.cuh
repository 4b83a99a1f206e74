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
// `place` numbers these candidates from 0 in the order of their indices.
//
// A thread has kItems candidates, and predicate(item) says whether one of them qualifies. A
// warp has 32 * kItems consecutive candidates, a lane every 32nd of them. So a place is the
// number of such candidates in earlier warps, plus those in earlier items of this warp, plus
// those in earlier lanes of the same item. All threads of the block have to call it, because it
// has a barrier. `warp_counts` is scratch.
template <int kItems, typename Predicate, typename Use>
CEM_TETRIS_DEVICE_FUNCTION void in_index_order(
    int (&warp_counts)[kMaxWarps], const Predicate& predicate, const Use& use) {
  int lane = threadIdx.x % kWarp;
  int warp = threadIdx.x / kWarp;
  // Count the candidates of every warp.
  int count = 0;
  CEM_TETRIS_UNROLL
  for (int item = 0; item < kItems; ++item)
    count += __popc(__ballot_sync(kAll, predicate(item)));
  if (lane == 0) warp_counts[warp] = count;
  __syncthreads();
  // The warp's first place is the sum of the counts of the warps before it.
  int place = warp_sum(lane < warp ? warp_counts[lane] : 0);
  CEM_TETRIS_UNROLL
  for (int item = 0; item < kItems; ++item) {
    unsigned fulfilling = __ballot_sync(kAll, predicate(item));
    if (fulfilling >> lane & 1) {
      unsigned in_earlier_lanes = fulfilling & ((1u << lane) - 1);
      use(item, place + __popc(in_earlier_lanes));
    }
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

// Returns the sums of w x and w x^2 over every kResidues-th elite, from place `first` to `end`
// - 1 of the list of elites, in one dimension. x is a candidate's coordinate minus `best`, the
// best candidate's.
//
//     rows    the coordinate of candidate 0; that of candidate i is rows[i * stride]
//     index   the candidate at each place of the list of elites
//     weight  the weight w at each place; null means that all are 1
//     few     the list has at most kResidues places, so there is one elite per residue; the
//             thread then adds up the places first, first + 8, first + 16 and first + 24
//
// All devices add up the elites in the same order: a sum for each residue mod kResidues = 32,
// then a binary tree over these sums, r += r + 16, then r += r + 8, and so on. Four elites are
// loaded at a time; places behind the end load the last elite and add 0.
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
    // Four sums of one elite each, then the steps r += r + 16 and r += r + 8 of the tree. Sums
    // begin at 0, which turns -0 into +0.
    if (few) {
      double first_moment = ((0.0 + weighted[0]) + (0.0 + weighted[2])) +
                            ((0.0 + weighted[1]) + (0.0 + weighted[3]));
      double second_moment =
          ((0.0 + square[0]) + (0.0 + square[2])) + ((0.0 + square[1]) + (0.0 + square[3]));
      return {first_moment, second_moment};
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

  // Loads the fitness of this thread's kItems candidates and converts it to keys, unsigned
  // integers that rank it, best first. Beyond the population the key is that of a candidate
  // that failed. `visit` calls the lambda with the type of the fitness.
  CEM_TETRIS_DEVICE_FUNCTION void load_keys() {
    visit<Key>(job.fitness_type, [&](auto type) {
      CEM_TETRIS_UNROLL
      for (int item = 0; item < kItems; ++item) {
        int i = candidate(item);
        key[item] = kFailed;
        if (i < population) {
          auto fitness = load<decltype(type)>(job.fitness, first_candidate + i);
          key[item] = Key(type.key(fitness, settings.maximize));
        }
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

  // Loads what does not depend on the fitness, which is on its way from memory in the meantime:
  // the number of the generation, the best fitness of earlier generations, the old marginals of
  // this block's first tile of dimensions, and the first weights. Also clears the bins (count
  // and linked list) that find_limit and rank_elites use.
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

  // Finds over all candidates of the problem the smallest key, `least`, the largest key of a
  // candidate that did not fail, `limit`, and the number of those that did not fail, `passed`.
  // `usable` becomes the number of elites that did not fail.
  //
  // A key ranks a candidate's fitness, smallest first, and the largest key marks one that
  // failed. A thread reduces its own kItems keys, then the warp's, and after a barrier those of
  // all warps. While the data are on their way, it also does two unrelated tasks: it stores the
  // old marginals in shared memory, and the last warp loads the extra variance.
  CEM_TETRIS_DEVICE_FUNCTION void find_range() {
    CEM_TETRIS_UNROLL
    for (int item = 0; item < kItems; ++item) {
      bool has_passed = exists(item) && !(job.can_fail() && key[item] == kFailed);
      least = min(least, key[item]);
      limit = max(limit, has_passed ? key[item] : Key(0));
      passed += has_passed;
    }
    least = warp_min(least);
    limit = warp_max(limit);
    passed = warp_sum(passed);
    keep_marginals();
    // The last warp writes it to shared memory in share_scalars().
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

  // Finds which candidates are elites, the `wanted` ones with the smallest keys: sets `limit`,
  // the key of the worst elite, and `bound`. A candidate is an elite if its key is below
  // `limit`, or equal to it with an index below `bound`.
  //
  // It is a radix search. On entry all keys that did not fail lie between `least` and `limit`.
  // The keys of a range [low, limit] are counted in bins of equal width, a power of two, one
  // bin per thread. The bin in which the running sum of the counts reaches the number of elites
  // that are needed becomes the next range. The search ends when that bin holds exactly as many
  // candidates as are needed, or a single key. All threads of the block call this function;
  // each has kItems keys.
  CEM_TETRIS_DEVICE_FUNCTION void find_limit() {
    bound = population;
    if (passed <= wanted) return;
    Key low = least;
    int needed = wanted;  // how many candidates of the range are elites
    int shift = 0;        // a bin has 2^shift keys
    do {
      Key range = limit - low;
      shift = max(0, bit_length(range) - grid.log_bins);
      CEM_TETRIS_UNROLL
      for (int item = 0; item < kItems; ++item) {
        Key above_low = key[item] - low;  // a key below `low` wraps around to a large number
        bool is_in_range = above_low <= range && exists(item);
        if (is_in_range) atomicAdd(&arrays.count[above_low >> shift], 1u);
      }
      __syncthreads();
      // This thread's bin has `within` candidates, and the bins below it have `below`.
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
    // More candidates than are needed have the key `limit`. Those with the smallest indices are
    // elites, and the first one that is not needed is the bound.
    in_index_order<kItems>(
        shared.warp_counts, [&](int item) { return exists(item) && key[item] == limit; },
        [&](int item, int place) {
          if (place == needed) shared.bin = candidate(item);
        });
    __syncthreads();
    bound = shared.bin;
  }

  // Writes the list of the elites that did not fail to shared memory, in the order of their
  // indices: the candidate and, if ranks are needed, the key at each place of the list. Also
  // finds `shared.best`, the best candidate (the first one with the smallest key), and, in the
  // block that writes the record, the worst key among the elites of each warp. All threads of
  // the block call it. A thread has kItems candidates, and is_elite(item) says which are
  // elites.
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

  // Determines the rank of every elite, best first: by key, and for equal keys by place in the
  // list of elites, which is in index order.
  //
  // The range of keys is divided into bins of equal width. Each bin has a linked list of its
  // elites (`head` of a bin, `next` of a place) and a count. A prefix sum turns the counts into
  // the numbers of elites in lower bins. An elite's rank is that number, plus the number of
  // elites of its own bin that come before it. Finally it writes the weight of each place, and
  // job.elites by rank. All threads of the block call it.
  CEM_TETRIS_DEVICE_FUNCTION void rank_elites() {
    int shift = max(0, bit_length(Key(limit - least)) - grid.log_bins);
    auto bin_of = [&](Key key) { return int((key - least) >> shift); };
    // Put every elite at the front of its bin's list.
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
        bool comes_before = arrays.list_key[other] < own_key ||
                            (arrays.list_key[other] == own_key && other < place);
        rank += comes_before ? 1 : 0;
      }
      if (weighted) {
        arrays.weight[place] =
            rank < kFirstWeights ? arrays.first_weights[rank] : job.weights[rank];
      }
      if (records && settings.ranked) job.elites[problem * wanted + rank] = arrays.index[place];
    }
    __syncthreads();
  }

  // Writes the indices of the elites to job.elites in index order, unless rank_elites() has
  // written them by rank. If too few candidates did not fail, the first ones that failed
  // follow. All threads of the block call it; a thread has kItems candidates.
  CEM_TETRIS_DEVICE_FUNCTION void write_elites() {
    if (!settings.ranked) {
      for (int place = thread; place < usable; place += threads)
        job.elites[problem * wanted + place] = arrays.index[place];
    }
    if (usable < wanted) {
      in_index_order<kItems>(
          shared.warp_counts, [&](int item) { return exists(item) && !is_elite(item); },
          [&](int item, int number) {
            bool has_room = usable + number < wanted;
            if (has_room) job.elites[problem * wanted + usable + number] = candidate(item);
          });
    }
  }

  // Adds up the fitness of the elites and writes the problem's record: best, mean and worst
  // fitness of the generation. All threads of the block call it; lane 0 of warp 1 writes.
  //
  // The list of elites is split into `chunks` chunks of kChunk. One warp adds up a chunk, one
  // residue mod 32 per lane, and warp_fold adds the 32 sums as a binary tree. Chunk 0 belongs
  // to warp 1, so that it has the result even if there is only one chunk. Warp 0 is the last to
  // get a chunk, because it has the marginals to write.
  CEM_TETRIS_DEVICE_FUNCTION void write_record_of_problem(int chunks) {
    double sum = 0.0;
    int first_chunk = warp == 0 ? warps - 1 : warp - 1;
    for (int chunk = first_chunk; chunk < chunks; chunk += warps) {
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
      double best_fitness = 0.0;
      double worst_fitness = 0.0;
      if (usable > 0) {
        best_fitness = key_value(job.fitness_type, least, settings.maximize);
        worst_fitness = key_value(job.fitness_type, worst, settings.maximize);
      }
      write_record(job, problem, usable, best_fitness, sum, worst_fitness, generation);
    }
  }

  // Computes `total` and `squares`, the sums of the elites' weights and of their squares, in
  // the order of the ranks. The results are valid in lane 0 of the last warp.
  //
  // The ranks are split into `chunks` chunks of kChunk. One warp adds up a chunk, one residue
  // mod 32 per lane, and warp_fold adds the 32 sums as a binary tree. Then, after a barrier,
  // every warp adds the sums of the chunks. The last warp has chunk 0, so it has the result
  // even if there is only one chunk. Without weights all are 1.
  CEM_TETRIS_DEVICE_FUNCTION void sum_weights(int chunks) {
    total = double(usable);
    squares = total;
    if (!weighted) return;
    for (int chunk = warps - 1 - warp; chunk < chunks; chunk += warps) {
      int end = min(usable, (chunk + 1) * kChunk);
      total = 0.0;
      squares = 0.0;
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

  // Updates the distribution in one tile, which is `width` dimensions. All threads of the block
  // call it, after share_scalars().
  //
  // It adds up the moments of the elites, chunk by chunk, combines the chunks, and writes the
  // new marginals. `prepare` has already loaded the old marginals of the block's first tile,
  // whose number is `block`.
  CEM_TETRIS_DEVICE_FUNCTION void update_tile(int tile) {
    const TileThread mine{*this, tile};
    if (tile != block) {
      load_marginals(tile);
      keep_marginals();
      load_best(tile);
    }
    // Without elites no barrier of the sums comes before the old marginals are read.
    if (usable == 0) __syncthreads();
#pragma unroll 1
    for (int chunk = 0; chunk < mine.chunks; chunk += mine.chunks_at_once)
      sum_chunks(mine, chunk);
    if (mine.chunks > 1) fold_chunks(mine);
    write_marginals(mine);
    bool is_last_tile = tile + grid.blocks >= grid.tiles;
    if (!is_last_tile) __syncthreads();
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

  // Adds up w x and w x^2 over mine.chunks_at_once chunks of elites, from chunk `first_chunk`
  // on, in all dimensions of a tile. x is a candidate's coordinate minus the best candidate's.
  //
  // The threads of the block form rows, with one thread per dimension of the tile. First a row
  // of threads adds up one residue: every 32nd elite of a chunk (or, if there are few elites,
  // one quad, the residues r, r + 8, r + 16 and r + 24). Then the 32 sums of a chunk are added
  // as a binary tree: the four of a quad, then the eight quads.
  //
  // The sums lie in arrays.part, `width` numbers per residue, and those of w x^2 begin
  // moment_stride later. If there are several chunks, their sums go to arrays.chunk_sum. If
  // there is one, the sums of its quads stay in arrays.part, and write_marginals() adds them.
  CEM_TETRIS_DEVICE_FUNCTION void sum_chunks(const TileThread& mine, int first_chunk) {
    double* second_moments = arrays.part + grid.layout.moment_stride;
#pragma unroll 1
    for (int row = mine.thread_row; row < mine.chunks_at_once << mine.log_rows;
        row += mine.thread_rows) {
      // A chunk has 2^log_rows rows: residues or quads.
      int chunk = first_chunk + (row >> mine.log_rows);
      int residue = row & ((1 << mine.log_rows) - 1);
      int begin = chunk * kChunk;
      int place = begin + residue;
      if (place >= mine.usable && !mine.few) continue;
      int end = min(mine.usable, begin + kChunk);
      const double* weight = weighted ? arrays.weight : nullptr;
      Moments sums = residue_moments(mine.candidates + mine.column, mine.dimensions, best_value,
          place, end, mine.few, arrays.index, weight);
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
        int rows = mine.usable - (first_chunk + chunk_index) * kChunk;  // residues with elites
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

  // Writes the new distribution in the dimensions of a tile, one thread per dimension: computes
  // mean, standard deviation and so on from the sums of w x and w x^2 over the elites.
  //
  // If the elites fill several chunks, fold_chunks() has left these sums in arrays.chunk_sum.
  // If they fill one, the sums are those of the eight quads in arrays.part, added by quads_sum.
  // In both arrays all numbers for w x come before those for w x^2. The rows of the old
  // distribution are in shared.old.
  CEM_TETRIS_DEVICE_FUNCTION void write_marginals(const TileThread& mine) {
    int thread = mine.thread;
    if (thread >= width || mine.left + thread >= mine.dimensions) return;
    int64_t offset = mine.problem * kRows * mine.dimensions + mine.left + thread;
    T old[kRows];
    CEM_TETRIS_UNROLL
    for (int row = 0; row < kRows; ++row) old[row] = shared.old[row][thread];
    Moments sums;
    if (mine.chunks > 1) {
      const double* totals = arrays.chunk_sum + thread;
      sums = {totals[0], totals[grid.chunks * width]};
    } else {
      const double* quads = arrays.part + thread;
      sums = {quads_sum(quads, width), quads_sum(quads + grid.layout.moment_stride, width)};
    }
    double least_std = job.floors ? double(shared.floor[thread]) : -HUGE_VAL;
    write_marginal(job, offset, mine.usable > 0, shared.weight, sums, best_value,
        shared.is_new_best, old, shared.extra_variance, least_std, shared.mean_share);
  }
};

// Kernel: updates the distributions of a batch of problems. grid.blocks blocks share a problem.
// Each of them finds all elites of the problem, because that is faster than a second kernel,
// and then updates its tiles of dimensions. One of them also writes the elites and the record.
// The first two calls let this kernel start while the one before it on the stream still runs.
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
