// The update as a single kernel, for populations that fit into the registers of one block: a
// thread holds the keys of kItems candidates.
//
// Grid: every problem has `blocks` blocks. Each of them finds all elites of the problem,
// because that costs less than a second kernel. Block b then updates the tiles b, b + blocks, b
// + 2 blocks, and so on; a tile is `width` dimensions. Block `record_block` also writes the
// record and the indices of the elites. It may be a block without a tile.
//
// Latency limits the speed of the kernel. Fetching instructions takes as much of the time as
// loading data, so hardly any loop is unrolled. The phases of the kernel are the methods of
// SingleBlock; single_kernel at the end of this file calls them in order.
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
constexpr int64_t kSingleRanked = 8192 / sizeof(Key);  // elites that can be ranked

constexpr int kMaxBins = 1024;      // bins of the search and of the ranking: one per thread
constexpr int kFirstWeights = 256;  // weights by rank that a block copies to shared memory
constexpr int kMinWidth = 8;        // dimensions of a narrow tile
constexpr int kMaxWidth = 32;       // dimensions of a wide tile
constexpr int kFew = kResidues;     // up to this many elites, a class has at most one elite
constexpr int kQuads =
    kResidues / 4;  // quad r has the residue classes r, r + 8, r + 16 and r + 24

// Where the arrays of the dynamic shared memory begin, in bytes. K is the number of elites,
// rounded up to a multiple of the warp size. Arrays in brackets exist only if the elites are
// ranked or has_weights. The first part of the memory is used twice, because the ranking ends
// before the sums of a tile begin:
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

// The parameters of a launch, which all blocks share.
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

// The other shared memory of a block.
template <typename Key, typename T>
struct SingleShared {
  T old[kRows][kMaxWidth];  // the marginals of a tile
  T floor[kMaxWidth];
  // One number for each warp, before the block combines them.
  Key least[kMaxWarps], greatest[kMaxWarps];
  int valid_candidates[kMaxWarps], warp_counts[kMaxWarps];
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

// Calls use(item, ordinal) for every candidate of the block that matches, which means that
// predicate(item) is true. `ordinal` numbers the matching candidates of the block from 0, in
// the order of their indices.
//
// A thread has kItems candidates, its items. The candidates of a warp are consecutive: item k
// of lane l is number 32 k + l of the warp. So the ordinal of a candidate is the sum of three
// counts: the matching candidates in earlier warps, in earlier items of the same warp, and in
// the same item of lower lanes.
//
// The function contains a barrier, so all threads of the block have to call it. `warp_counts`
// is scratch memory.
template <int kItems, typename Predicate, typename Use>
CEM_TETRIS_DEVICE_FUNCTION void visit_in_index_order(
    int (&warp_counts)[kMaxWarps], const Predicate& predicate, const Use& use) {
  int lane = threadIdx.x % kWarp;
  int warp = threadIdx.x / kWarp;
  // Count the matching candidates of every warp.
  int count = 0;
  CEM_TETRIS_UNROLL
  for (int item = 0; item < kItems; ++item)
    count += __popc(__ballot_sync(kAll, predicate(item)));
  if (lane == 0) warp_counts[warp] = count;
  __syncthreads();
  // The first ordinal of this warp is the number of matching candidates in earlier warps.
  int ordinal = warp_sum(lane < warp ? warp_counts[lane] : 0);
  CEM_TETRIS_UNROLL
  for (int item = 0; item < kItems; ++item) {
    unsigned matching_lanes = __ballot_sync(kAll, predicate(item));  // bit l is lane l
    if (matching_lanes >> lane & 1) {
      unsigned lower_lanes = matching_lanes & ((1u << lane) - 1);
      use(item, ordinal + __popc(lower_lanes));
    }
    ordinal += __popc(matching_lanes);
  }
}

// Returns the fitness that belongs to a key. The function is called twice, away from the
// critical path. It is not inlined, so that its code exists only once.
template <typename Key>
__device__ __noinline__ double key_value(Number type, Key key, bool maximize) {
  return visit<Key>(type, [&](auto kind) { return kind.value(kind.of_key(key, maximize)); });
}

// Returns x, but hides its origin from the compiler. Otherwise the compiler would compute
// values that depend on x ahead of a loop, and keep them in registers that the loop needs.
CEM_TETRIS_DEVICE_FUNCTION int hidden(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// Returns the sum of the four numbers of a quad. x[u] is the number of residue class r + 8 u.
// They are added in the order of the tree: r += r + 16, then r += r + 8. The sum of a class
// with several elites begins at 0, which turns -0 into +0. Therefore 0.0 is added here, too.
CEM_TETRIS_DEVICE_FUNCTION double quad_sum(const double (&x)[kResidues / kQuads]) {
  return ((0.0 + x[0]) + (0.0 + x[2])) + ((0.0 + x[1]) + (0.0 + x[3]));
}

// Returns the sums of w x and w x^2 over every 32nd elite (kResidues = 32) of a list, in one
// dimension: the elites at the places `first`, `first` + 32, and so on, up to `end` - 1. w is
// the weight of an elite, and x its coordinate minus `best`, the best candidate's coordinate.
//
// Args:
//     rows: the coordinate of candidate i in this dimension is rows[i * stride].
//     by_quads: sums up the places `first`, `first` + 8, `first` + 16 and `first` + 24 instead,
//         in the order of quad_sum(). The list must have at most 32 places.
//     index: the candidate at each place.
//     weight: the weight at each place; null means that all weights are 1.
template <typename T>
CEM_TETRIS_DEVICE_FUNCTION Moments residue_moments(const T* rows, int stride, T best, int first,
    int end, bool by_quads, const uint16_t* index, const double* weight) {
  constexpr int kAtOnce = kResidues / kQuads;  // elites that are loaded at the same time
  int step = by_quads ? kQuads : kResidues;
  Moments sums{0.0, 0.0};
#pragma unroll 1
  for (int begin = first; begin < end; begin += kAtOnce * step) {
    T value[kAtOnce];
    double weighted[kAtOnce];  // w x
    double square[kAtOnce];    // w x^2
    // Issue all loads before the first value is used. A place after the end is replaced by the
    // last one here, and counts 0 below.
    CEM_TETRIS_UNROLL
    for (int u = 0; u < kAtOnce; ++u) {
      int place = min(begin + u * step, end - 1);
      value[u] = rows[int64_t(index[place]) * stride];
    }
    CEM_TETRIS_UNROLL
    for (int u = 0; u < kAtOnce; ++u) {
      int place = begin + u * step;
      double x = place < end ? double(value[u]) - double(best) : 0.0;
      weighted[u] = weight ? weight[min(place, end - 1)] * x : x;
      square[u] = weighted[u] * x;
    }
    // A quad has only these four places.
    if (by_quads) return {quad_sum(weighted), quad_sum(square)};
    CEM_TETRIS_UNROLL
    for (int u = 0; u < kAtOnce; ++u) {
      sums.first += weighted[u];
      sums.second += square[u];
    }
  }
  return sums;
}

// Replaces the sum of residue class r < 8 by the sum of its quad: the classes r, r + 8, r + 16
// and r + 24. These are the first two steps of the tree over the 32 classes of a chunk. `sum`
// points to class r, and the sums of neighbouring classes are `stride` numbers apart. Only the
// classes below `rows` have elites. The sums of the others are not set, so 0 is added instead.
CEM_TETRIS_DEVICE_FUNCTION void add_quad(double* sum, int stride, int r, int rows) {
  auto row = [&](int offset) { return r + offset < rows ? sum[offset * stride] : 0.0; };
  sum[0] = (row(0) + row(16)) + (row(8) + row(24));
}

// Returns the sum of a chunk in one dimension: adds up its eight quads by the last three steps
// of the tree (r += r + 4, then 2, then 1). The sums of neighbouring quads are `stride` numbers
// apart.
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

// One thread of a block. Its methods are the phases of the kernel, and its fields are the
// values that one phase passes to the next.
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
  int block = blockIdx.x;   // the number of this block among those of the problem
  int64_t first_candidate;  // the problem's first candidate among those of all problems
  bool has_weights = job.weights;
  bool writes_record;  // whether this block writes the record and the indices of the elites
  bool needs_ranks;    // whether this block needs the ranks of the elites
  int64_t generation;
  double best_known;  // the best fitness of earlier generations

  // The candidates of a warp are consecutive. A lane has every 32nd of them, from `origin` on.
  int origin = warp * kItems * kWarp + lane;
  // The keys lie outside of this struct. Otherwise the compiler would keep the struct in memory
  // until it has unrolled the loops over the keys.
  Key (&key)[kItems];
  Key least = kFailed;  // of all keys
  Key limit = 0;  // the key of the worst elite; before find_limit(), the largest valid key
  int valid_candidates = 0;  // candidates that did not fail
  int valid_elites;          // elites that did not fail
  int bound;                 // candidates with the key `limit` and an index below it are elites

  // A tile is `width` dimensions. The threads of the block form rows as wide as a tile. A
  // thread holds one number of the tile's old marginals: row thread_row of the distribution, in
  // column tile_column of the tile.
  int width = 1 << grid.log_width;
  int thread_row = thread >> grid.log_width;
  int tile_column = thread & (width - 1);
  T old{};
  T floor{};
  T best_value{};  // of the generation's best candidate in that dimension
  double extra_variance = 0.0;
  // The sums of the elites' weights and of their squares; only lane 0 of the last warp has
  // them.
  double total, squares;

  CEM_TETRIS_DEVICE_FUNCTION SingleBlock(
      const Job& job, const Grid& grid, SingleShared<Key, T>& shared, Key (&key)[kItems])
      : job(job), grid(grid), shared(shared), key(key), arrays{grid.layout} {
    if (settings.problems > 1) {  // the condition saves the slow division
      problem = grid.blocks == 1 ? blockIdx.x : blockIdx.x / grid.blocks;
      block = int(blockIdx.x - problem * grid.blocks);
    }
    first_candidate = problem * population;
    writes_record = block == grid.record_block;
    needs_ranks = has_weights || (settings.ranked && writes_record);
  }

  CEM_TETRIS_DEVICE_FUNCTION int candidate(int item) const { return origin + item * kWarp; }
  CEM_TETRIS_DEVICE_FUNCTION bool exists(int item) const {
    return candidate(item) < population;
  }

  // Whether a candidate is an elite. find_limit() must have set `limit` and `bound`.
  CEM_TETRIS_DEVICE_FUNCTION bool is_elite(int item) const {
    int i = candidate(item);
    return i < population && (key[item] < limit || (key[item] == limit && i < bound));
  }

  // Loads the fitness of this thread's kItems candidates, its items, and converts it to keys. A
  // key is an unsigned integer that ranks a fitness; the best candidate has the smallest key.
  // Items beyond the population get kFailed, the key of a candidate that failed. visit() calls
  // the lambda with an object whose class describes the type of the fitness.
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

  // Loads the thread's number of a tile's old marginals. A thread of row 0 also loads the floor
  // of its dimension, the lowest standard deviation.
  CEM_TETRIS_DEVICE_FUNCTION void load_marginals(int tile) {
    int dimension = tile * width + tile_column;
    if (thread_row >= kRows || dimension >= dimensions) return;
    int64_t row = problem * kRows + thread_row;
    old = static_cast<const T*>(job.distribution)[row * dimensions + dimension];
    if (thread_row == 0 && job.floors) {
      floor = static_cast<const T*>(job.floors)[problem * settings.floor_stride + dimension];
    }
  }

  // Writes what load_marginals() has loaded to shared memory.
  CEM_TETRIS_DEVICE_FUNCTION void share_marginals() {
    if (thread_row < kRows) shared.old[thread_row][tile_column] = old;
    if (thread_row == 0) shared.floor[tile_column] = floor;
  }

  // Loads the values that do not depend on the fitness, while the loads of load_keys() are in
  // flight: the number of the generation, the best fitness of earlier generations, the old
  // mean, standard deviation and so on in the dimensions of this block's first tile, and the
  // first weights. Also clears the bins of find_limit() and rank_elites(). A bin has a count
  // and the head of a linked list; kNone means that the list is empty.
  CEM_TETRIS_DEVICE_FUNCTION void prepare() {
    generation = *job.generation;
    best_known = job.record[problem * kFigures + kBestFitness];
    load_marginals(block);
    if (thread < grid.bins) {
      arrays.count[thread] = 0;
      if (needs_ranks) arrays.head[thread] = kNone;
    }
    if (has_weights && thread < min(wanted, kFirstWeights)) {
      arrays.first_weights[thread] = job.weights[thread];
    }
    // list_elites() takes the minimum of this number and the indices of the best candidates.
    if (thread == 0) shared.best = population;
  }

  // Sets four values for all candidates of the problem, in every thread of the block:
  //
  // - least: the smallest key;
  // - limit: the largest key of a valid candidate, which is one that did not fail;
  // - valid_candidates: how many candidates did not fail;
  // - valid_elites: how many elites did not fail.
  //
  // A key ranks a candidate's fitness, the best one first; a candidate that failed has the
  // largest key, kFailed. A thread reduces its own kItems keys, and a warp the results of its
  // threads. After a barrier every warp reduces the results of all warps, one in each lane.
  //
  // Two other tasks are done here only because the threads would otherwise wait: all threads
  // store the old marginals in shared memory, and the last warp loads the extra variance.
  CEM_TETRIS_DEVICE_FUNCTION void find_range() {
    CEM_TETRIS_UNROLL
    for (int item = 0; item < kItems; ++item) {
      bool is_valid = exists(item) && !(job.can_fail() && key[item] == kFailed);
      least = min(least, key[item]);
      limit = max(limit, is_valid ? key[item] : Key(0));
      valid_candidates += is_valid;
    }
    least = warp_min(least);
    limit = warp_max(limit);
    valid_candidates = warp_sum(valid_candidates);
    share_marginals();
    // Only the last warp needs the extra variance, and shares it in share_scalars().
    if (warp == warps - 1) extra_variance = extra_variance_of(job, generation);
    if (lane == 0) {
      shared.least[warp] = least;
      shared.greatest[warp] = limit;
      shared.valid_candidates[warp] = valid_candidates;
    }
    __syncthreads();
    least = warp_min(lane < warps ? shared.least[lane] : kFailed);
    limit = warp_max(lane < warps ? shared.greatest[lane] : Key(0));
    valid_candidates = warp_sum(lane < warps ? shared.valid_candidates[lane] : 0);
    valid_elites = min(valid_candidates, wanted);
  }

  // Returns the number of keys in all bins below this thread's bin, an exclusive prefix sum.
  // Sets `within` to the number of keys in the thread's own bin, and resets arrays.count to 0.
  // Thread t has bin t. Threads without a bin call the function, too, because it contains a
  // barrier.
  CEM_TETRIS_DEVICE_FUNCTION int count_lower_bins(int& within) {
    within = thread < grid.bins ? int(arrays.count[thread]) : 0;
    if (within != 0) arrays.count[thread] = 0;
    int up_to = warp_scan(within, lane);
    if (lane == kWarp - 1) shared.warp_counts[warp] = up_to;
    __syncthreads();
    return up_to - within + warp_sum(lane < warp ? shared.warp_counts[lane] : 0);
  }

  // Determines the elites, the `wanted` candidates with the smallest keys. Sets `limit` to a
  // key, and `bound` to an index. A candidate is an elite if its key is smaller than `limit`,
  // or if its key equals `limit` and its index is smaller than `bound`.
  //
  // This is a radix search in the range of keys from `low` to `limit`, which at first holds all
  // valid keys. A step divides the range into bins of equal width, a power of two, and counts
  // the keys in every bin. The bin that holds the worst elite becomes the next range. The
  // search ends when all candidates of the range are elites, or when the range is a single key.
  //
  // All threads of the block call this function together. A thread has kItems keys, and thread
  // t also has bin t.
  CEM_TETRIS_DEVICE_FUNCTION void find_limit() {
    bound = population;
    // If all valid candidates are elites, find_range() has already set the limit.
    if (valid_candidates <= wanted) return;
    Key low = least;
    int needed = wanted;  // how many candidates of the range are elites
    int shift = 0;        // a bin is 2^shift keys wide
    do {
      Key range = limit - low;
      // The bins are as narrow as possible, so that 2^log_bins of them cover the range.
      shift = max(0, bit_length(range) - grid.log_bins);
      count_keys(low, range, shift);
      __syncthreads();  // All threads have counted their keys.
      // This thread's bin holds `within` candidates, and the lower bins hold `below`. Exactly
      // one thread has the bin of the worst elite, and shares its numbers with the others.
      int within = 0;
      int below = count_lower_bins(within);
      if (below < needed && needed <= below + within) {
        shared.bin = thread;
        shared.below = below;
        shared.within = within;
      }
      __syncthreads();  // All threads read the numbers of this bin.
      // The bin becomes the range. The last bin may reach beyond the old range.
      low += Key(shared.bin) << shift;
      Key bin_range = (Key(1) << shift) - 1;
      limit = low + min(Key(limit - low), bin_range);
      needed -= shared.below;
    } while (shared.within != needed && shift != 0);
    bool has_ties = shared.within != needed;
    if (has_ties) find_bound(needed);
  }

  // Counts this thread's keys in the range from `low` to `low` + `range` in the bins of
  // find_limit(), each of which is 2^shift keys wide.
  CEM_TETRIS_DEVICE_FUNCTION void count_keys(Key low, Key range, int shift) {
    CEM_TETRIS_UNROLL
    for (int item = 0; item < kItems; ++item) {
      Key above_low = key[item] - low;  // a key below `low` wraps around to a large number
      bool is_in_range = above_low <= range && exists(item);
      if (is_in_range) atomicAdd(&arrays.count[above_low >> shift], 1u);
    }
  }

  // Sets `bound`, the index of the first candidate that has the key `limit` but is not an
  // elite. More than `needed` candidates have this key (ties), and the first `needed` of them
  // are elites. visit_in_index_order() numbers the ties from 0, so the bound is the index of
  // tie number `needed`. One thread has this tie, and shares its index in shared.bin.
  CEM_TETRIS_DEVICE_FUNCTION void find_bound(int needed) {
    auto is_tie = [&](int item) { return exists(item) && key[item] == limit; };
    auto share_bound = [&](int item, int ordinal) {
      if (ordinal == needed) shared.bin = candidate(item);
    };
    visit_in_index_order<kItems>(shared.warp_counts, is_tie, share_bound);
    __syncthreads();
    bound = shared.bin;
  }

  // Writes the list of the valid elites, those that did not fail, to shared memory, in the
  // order of their indices; a place is a position in the list. arrays.index[place] is the index
  // of the candidate, and arrays.list_key[place] its key, if ranks are needed.
  //
  // Also finds shared.best, the index of the best candidate; of equal candidates the first one
  // is the best. In the block that writes the record, shared.greatest[w] becomes the worst key
  // among the elites of warp w. All threads of the block call the function. A thread has kItems
  // candidates.
  CEM_TETRIS_DEVICE_FUNCTION void list_elites() {
    Key worst = 0;
    auto list_elite = [&](int item, int place) {
      int i = candidate(item);
      arrays.index[place] = uint16_t(i);
      if (needs_ranks) arrays.list_key[place] = key[item];
      worst = max(worst, key[item]);
      if (key[item] == least) atomicMin(&shared.best, i);
    };
    visit_in_index_order<kItems>(
        shared.warp_counts, [&](int item) { return is_elite(item); }, list_elite);
    if (writes_record) {
      worst = warp_max(worst);
      if (lane == 0) shared.greatest[warp] = worst;
    }
    __syncthreads();  // All threads read the list and shared.best.
  }

  // Loads the best candidate's coordinate in the thread's dimension of a tile.
  CEM_TETRIS_DEVICE_FUNCTION void load_best(int tile) {
    int64_t best = valid_elites > 0 ? shared.best : 0;
    int dimension = min(tile * width + tile_column, dimensions - 1);
    best_value = static_cast<const T*>(
        job.candidates)[(first_candidate + best) * dimensions + dimension];
  }

  // Determines the rank of every elite. Elites are ranked by key, the best one first, and
  // elites with equal keys by their place in the list of elites. Then writes the weight of
  // every place to shared memory, and the indices of the elites by rank to job.elites.
  //
  // The range of keys is divided into bins of equal width. A bin has a linked list of its
  // elites: arrays.head[bin] is its first place, and arrays.next[place] the place after
  // `place`. The rank of an elite is the number of elites in lower bins, plus the number of
  // elites in its own bin that come before it (rank_of()).
  //
  // All threads of the block call the function and share the elites. Thread t also has bin t.
  CEM_TETRIS_DEVICE_FUNCTION void rank_elites() {
    int shift = max(0, bit_length(Key(limit - least)) - grid.log_bins);
    auto bin_of = [&](Key key) { return int((key - least) >> shift); };
    // Insert every elite at the front of its bin's list.
#pragma unroll 1
    for (int place = thread; place < valid_elites; place += threads) {
      int bin = bin_of(arrays.list_key[place]);
      arrays.next[place] = atomicExch(&arrays.head[bin], uint32_t(place));
      atomicAdd(&arrays.count[bin], 1u);
    }
    __syncthreads();  // All elites are in their bins.
    // arrays.count[bin] becomes the number of elites in lower bins.
    int within = 0;  // the number in the bin itself, which is not needed here
    int below = count_lower_bins(within);
    if (thread < grid.bins) arrays.count[thread] = uint32_t(below);
    __syncthreads();  // rank_of() reads the counts of all bins.
#pragma unroll 1
    for (int place = thread; place < valid_elites; place += threads) {
      Key own_key = arrays.list_key[place];
      int rank = rank_of(place, own_key, bin_of(own_key));
      if (has_weights) {
        arrays.weight[place] =
            rank < kFirstWeights ? arrays.first_weights[rank] : job.weights[rank];
      }
      if (writes_record && settings.ranked)
        job.elites[problem * wanted + rank] = arrays.index[place];
    }
    __syncthreads();  // The sums of the tiles will overwrite the bins and the lists.
  }

  // Returns the rank of the elite at a place of the list, whose key is in `bin`. The elites in
  // lower bins come before it; arrays.count[bin] is their number. The linked list of its own
  // bin is in no particular order, so the loop counts the elites in it that come before.
  CEM_TETRIS_DEVICE_FUNCTION int rank_of(int place, Key own_key, int bin) const {
    int rank = int(arrays.count[bin]);
#pragma unroll 1
    for (uint32_t other = arrays.head[bin]; other != kNone; other = arrays.next[other]) {
      bool comes_before = arrays.list_key[other] < own_key ||
                          (arrays.list_key[other] == own_key && other < place);
      rank += comes_before ? 1 : 0;
    }
    return rank;
  }

  // Writes the indices of the elites to job.elites in ascending order. If settings.ranked is
  // true, rank_elites() has already written them by rank instead.
  //
  // If fewer than `wanted` candidates are valid, all of these are elites, and the first
  // candidates that failed fill the rest of job.elites. All threads of the block call the
  // function. A thread has kItems candidates.
  CEM_TETRIS_DEVICE_FUNCTION void write_elites() {
    if (!settings.ranked) {
      for (int place = thread; place < valid_elites; place += threads)
        job.elites[problem * wanted + place] = arrays.index[place];
    }
    if (valid_elites < wanted) {
      // Every valid candidate is an elite here, so the other candidates have failed.
      auto is_failure = [&](int item) { return exists(item) && !is_elite(item); };
      auto write_failure = [&](int item, int ordinal) {
        bool has_room = valid_elites + ordinal < wanted;
        if (has_room) job.elites[problem * wanted + valid_elites + ordinal] = candidate(item);
      };
      visit_in_index_order<kItems>(shared.warp_counts, is_failure, write_failure);
    }
  }

  // Adds up the fitness of the elites, and writes the problem's record: the best, the mean and
  // the worst fitness of the generation's elites. All threads of the block call the function;
  // lane 0 of warp 1 writes the record.
  //
  // The list of elites is split into `chunks` chunks of kChunk places. One warp adds up a
  // chunk, and its lane 0 gets the result. Warp 1 has chunk 0, warp 2 chunk 1, and so on; warp
  // 0 comes last, because it also writes the marginals. Warp 1 then needs the sums of all
  // chunks. If there is only one chunk, it already has the sum, and no barrier is needed.
  CEM_TETRIS_DEVICE_FUNCTION void write_record_of_problem(int chunks) {
    double sum = 0.0;
    int first_chunk = warp == 0 ? warps - 1 : warp - 1;
    for (int chunk = first_chunk; chunk < chunks; chunk += warps) {
      sum = fitness_sum(chunk);
      if (lane == 0) shared.fitness[chunk] = sum;
    }
    if (chunks > 1) __syncthreads();
    if (warp != 1) return;
    if (chunks > 1) sum = warp_fold(lane < chunks ? shared.fitness[lane] : 0.0);
    // list_elites() has stored the worst key of the elites of each warp.
    Key worst = warp_max(lane < warps ? shared.greatest[lane] : Key(0));
    if (lane == 0) {
      double best_fitness = 0.0;
      double worst_fitness = 0.0;
      if (valid_elites > 0) {
        best_fitness = key_value(job.fitness_type, least, settings.maximize);
        worst_fitness = key_value(job.fitness_type, worst, settings.maximize);
      }
      write_record(job, problem, valid_elites, best_fitness, sum, worst_fitness, generation);
    }
  }

  // Returns the sum of the fitness of the elites of a chunk in lane 0 of this warp. A lane adds
  // the places of one residue mod 32, and warp_fold() adds the 32 sums as a binary tree.
  CEM_TETRIS_DEVICE_FUNCTION double fitness_sum(int chunk) const {
    int end = min(valid_elites, (chunk + 1) * kChunk);
    double sum = 0.0;
#pragma unroll 1
    for (int place = chunk * kChunk + lane; place < end; place += kWarp) {
      sum += fitness_at<Key>(job, first_candidate + arrays.index[place]);
    }
    return warp_fold(sum);
  }

  // Computes `total`, the sum of the elites' weights, and `squares`, the sum of the squared
  // weights, which only the variance kNewMeanUnbiased needs. Only lane 0 of the last warp gets
  // valid results. Without weights every weight is 1, and both sums are the number of elites.
  // All threads of the block call the function. There are at most kSingleChunks chunks.
  //
  // Weights are added in the order of the ranks, which are split into chunks of kChunk. One
  // warp adds up a chunk: a lane adds the weights of every 32nd rank, and warp_fold() adds the
  // sums of the 32 lanes as a binary tree. After a barrier every warp adds up the sums of the
  // chunks. The last warp has chunk 0, the last but one chunk 1, and so on. So if there is only
  // one chunk, the last warp already has the result, and no barrier is needed.
  CEM_TETRIS_DEVICE_FUNCTION void sum_weights(int chunks) {
    total = double(valid_elites);
    squares = total;
    if (!has_weights) return;
    for (int chunk = warps - 1 - warp; chunk < chunks; chunk += warps) {
      int end = min(valid_elites, (chunk + 1) * kChunk);
      double lane_total = 0.0;
      double lane_squares = 0.0;
#pragma unroll 1
      for (int rank = chunk * kChunk + lane; rank < end; rank += kWarp) {
        double w = job.weights[rank];
        lane_total += w;
        lane_squares += w * w;
      }
      total = warp_fold(lane_total);
      bool needs_squares = settings.variance == kNewMeanUnbiased;
      squares = needs_squares ? warp_fold(lane_squares) : lane_squares;
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

  // Writes to shared memory the values that the marginals of all dimensions need. Lane 0 of the
  // last warp computes some of them, and lane 0 of the last warp but one the others.
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

  // Updates the distribution in one tile of `width` dimensions: adds up the moments of the
  // elites chunk by chunk, then the sums of all chunks, and writes the new marginals. A
  // marginal is the distribution of one dimension: mean, standard deviation and so on. All
  // threads of the block call the function, after share_scalars().
  //
  // The first tile of a block has the block's own number. For this tile, prepare() has already
  // loaded the old marginals, and single_kernel has loaded the best candidate.
  CEM_TETRIS_DEVICE_FUNCTION void update_tile(int tile) {
    const TileThread mine{*this, tile};
    if (tile != block) {
      load_marginals(tile);
      share_marginals();
      load_best(tile);
    }
    // write_marginals() reads old marginals that other threads have written, so that a barrier
    // has to come in between. sum_chunks() has barriers, but is not called if there are no
    // elites.
    if (valid_elites == 0) __syncthreads();
#pragma unroll 1
    for (int chunk = 0; chunk < mine.chunks; chunk += mine.chunks_at_once)
      sum_chunks(mine, chunk);
    if (mine.chunks > 1) fold_chunks(mine);
    write_marginals(mine);
    // The next tile overwrites the shared memory that this one reads.
    bool is_last_tile = tile + grid.blocks >= grid.tiles;
    if (!is_last_tile) __syncthreads();
  }

 private:
  // The part of one thread in the update of a tile. Some values are hidden from the compiler,
  // which would otherwise keep so many values in registers that too few are left for the loads.
  struct TileThread {
    const SingleBlock& block;
    int tile;
    const Grid& grid = block.grid;
    int thread = hidden(threadIdx.x);
    int lane = thread % kWarp;
    int warp = thread / kWarp;
    int valid_elites = hidden(block.valid_elites);
    int chunks = (valid_elites + kChunk - 1) / kChunk;
    int dimensions = hidden(int(block.settings.dimensions));
    int thread_rows = block.threads >> grid.log_width;  // rows of threads
    int thread_row = thread >> grid.log_width;          // the thread's row
    int tile_column = thread & (block.width - 1);       // the thread's column in the tile
    // Whether a row of threads adds up a quad; if not, it adds up a residue class.
    bool by_quads = block.settings.elites <= kFew;
    int log_rows = by_quads ? 3 : 5;  // a chunk has 8 quads or 32 residue classes
    int chunks_at_once = max(1, thread_rows >> log_rows);  // chunks that the block adds up
    int64_t problem =
        grid.blocks == 1 ? hidden(blockIdx.x) : hidden(int(blockIdx.x) / grid.blocks);
    const T* candidates =
        static_cast<const T*>(block.job.candidates) + problem * block.population * dimensions;
    int left = tile * block.width;  // the tile's first dimension
    // The dimension in the thread's column. Columns beyond the last dimension repeat it.
    int dimension = min(left + tile_column, dimensions - 1);
  };

  // Adds up w x and w x^2 over mine.chunks_at_once chunks of elites, from chunk `first_chunk`
  // on, in all dimensions of a tile. w is the weight of an elite, and x its coordinate minus
  // the coordinate of the best candidate. `mine` is this thread's part of the tile. All threads
  // of the block call the function.
  //
  // A chunk is kChunk elites, and residue r of it every 32nd elite, from elite r on. The
  // threads of the block form rows, with one thread for each dimension of the tile. First a row
  // of threads adds up one residue. If there are at most 32 elites, it adds up one quad
  // instead: the residues r, r + 8, r + 16 and r + 24. Then the 32 sums of a chunk are added as
  // a binary tree: the four residues of a quad, then the eight quads.
  //
  // The sums lie in arrays.part, `width` numbers for each residue; the sums of w x^2 begin
  // moment_stride numbers after those of w x. If there are several chunks, their sums are
  // stored in arrays.chunk_sum. If there is only one, the sums of its quads remain in
  // arrays.part, and write_marginals() adds them.
  CEM_TETRIS_DEVICE_FUNCTION void sum_chunks(const TileThread& mine, int first_chunk) {
    add_elites(mine, first_chunk);
    __syncthreads();  // Each of the next steps reads sums that other threads have written.
    if (!mine.by_quads) {
      add_residues(mine, first_chunk);
      __syncthreads();
    }
    if (mine.chunks > 1) {
      store_chunk_sums(mine, first_chunk);
      __syncthreads();
    }
  }

  // Adds up the elites of every residue of mine.chunks_at_once chunks, from chunk `first_chunk`
  // on, in all dimensions of a tile. A chunk is kChunk elites, and residue r of it every 32nd
  // elite, from elite r on. If there are at most 32 elites, the function adds up quads instead
  // (mine.by_quads).
  //
  // The sums are written to arrays.part, which has a row of `width` numbers for each residue:
  // first the sums of w x and, moment_stride numbers later, the sums of w x^2. w is the weight
  // of an elite, and x its coordinate minus the best candidate's.
  //
  // All threads of the block call the function. They form rows, too: a row of threads computes
  // one row of sums at a time, and `mine` says which row and column a thread has.
  CEM_TETRIS_DEVICE_FUNCTION void add_elites(const TileThread& mine, int first_chunk) {
    double* second_moments = arrays.part + grid.layout.moment_stride;
    // A chunk has a row of sums for each of its residues or quads.
    int chunk_rows = 1 << mine.log_rows;  // a power of two
    int rows = mine.chunks_at_once << mine.log_rows;
#pragma unroll 1
    for (int row = mine.thread_row; row < rows; row += mine.thread_rows) {
      int chunk = first_chunk + (row >> mine.log_rows);
      int residue = row & (chunk_rows - 1);  // row % chunk_rows
      int begin = chunk * kChunk;
      int place = begin + residue;
      // A residue without elites has no sum, and add_quad() does not read it.
      if (place >= mine.valid_elites && !mine.by_quads) continue;
      int end = min(mine.valid_elites, begin + kChunk);
      const double* weight = has_weights ? arrays.weight : nullptr;
      Moments sums = residue_moments(mine.candidates + mine.dimension, mine.dimensions,
          best_value, place, end, mine.by_quads, arrays.index, weight);
      arrays.part[row * width + mine.tile_column] = sums.first;
      second_moments[row * width + mine.tile_column] = sums.second;
    }
  }

  // Adds the sums of the four residues of every quad of mine.chunks_at_once chunks, in place in
  // arrays.part. Quad r of a chunk consists of the residues r, r + 8, r + 16 and r + 24; the
  // result replaces the sum of residue r. `mine` is this thread's part of the tile. All threads
  // of the block call the function. A row of threads has one quad at a time, and each of its
  // threads one dimension.
  CEM_TETRIS_DEVICE_FUNCTION void add_residues(const TileThread& mine, int first_chunk) {
#pragma unroll 1
    for (int quad = mine.thread_row; quad < mine.chunks_at_once * kQuads;
        quad += mine.thread_rows) {
      int chunk_index = quad / kQuads;
      int r = quad % kQuads;
      // The chunk has elites in its first `rows` residues; 32 or more means in all residues.
      int rows = mine.valid_elites - (first_chunk + chunk_index) * kChunk;
      double* sum = arrays.part + (chunk_index * kResidues + r) * width + mine.tile_column;
      add_quad(sum, width, r, rows);
      add_quad(sum + grid.layout.moment_stride, width, r, rows);
    }
  }

  // Adds the quads of every chunk, and writes the sums of the chunks to arrays.chunk_sum; row i
  // of the threads has chunk first_chunk + i.
  CEM_TETRIS_DEVICE_FUNCTION void store_chunk_sums(const TileThread& mine, int first_chunk) {
    int chunk = first_chunk + mine.thread_row;
    if (mine.thread_row >= mine.chunks_at_once || chunk >= mine.chunks) return;
    const double* quads = arrays.part + mine.thread_row * kResidues * width + mine.tile_column;
    double* to = arrays.chunk_sum + chunk * width + mine.tile_column;
    to[0] = quads_sum(quads, width);
    to[grid.chunks * width] = quads_sum(quads + grid.layout.moment_stride, width);
  }

  // Adds up the sums of all chunks, and writes the totals in place of the sums of chunk 0. A
  // warp has one moment (w x or w x^2) of one dimension at a time, and each of its lanes has
  // one chunk.
  CEM_TETRIS_DEVICE_FUNCTION void fold_chunks(const TileThread& mine) {
    for (int j = mine.warp; j < 2 * width; j += warps) {
      // The sums of w x of all chunks come first, then those of w x^2.
      double* sums = arrays.chunk_sum + (j < width ? j : j - width + grid.chunks * width);
      double sum = warp_fold(mine.lane < mine.chunks ? sums[mine.lane * width] : 0.0);
      if (mine.lane == 0) *sums = sum;
    }
    __syncthreads();
  }

  // Writes the new distribution in the dimensions of a tile, one thread per dimension.
  // write_marginal() computes mean, standard deviation and so on from the sums of w x and w x^2
  // over the elites, where w is the weight of an elite, and x its coordinate minus the best
  // candidate's.
  //
  // If the elites fill several chunks, fold_chunks() has written these sums to
  // arrays.chunk_sum. If they fill one chunk, arrays.part has the sums of its eight quads,
  // which this function adds up. In both arrays all numbers for w x come before those for w
  // x^2. shared.old holds the rows of the old distribution.
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
    write_marginal(job, offset, mine.valid_elites > 0, shared.weight, sums, best_value,
        shared.is_new_best, old, shared.extra_variance, least_std, shared.mean_share);
  }
};

// Kernel: updates the distributions of a batch of problems. grid.blocks blocks share a problem.
// Each of them finds all elites of the problem, because that is faster than a second kernel,
// and then updates its tiles, which are ranges of dimensions. One of the blocks also writes the
// indices of the elites and the record of the problem; it may be a block without a tile.
//
// wait_for_previous_kernel() and allow_next_kernel() let successive kernels of a stream
// overlap: a kernel is set up while the previous one still runs. By the launch bounds a thread
// may use as many registers as if its block had a multiprocessor for itself.
template <typename Key, typename T, int kItems>
__global__ void __launch_bounds__(kThreads, 1)
    single_kernel(const __grid_constant__ Job job, const __grid_constant__ Grid grid) {
  __shared__ SingleShared<Key, T> shared;
  wait_for_previous_kernel();
  allow_next_kernel();
  Key key[kItems];
  SingleBlock<Key, T, kItems> block(job, grid, shared, key);
  block.load_keys();
  block.prepare();
  block.find_range();
  block.find_limit();
  block.list_elites();
  bool has_tile = block.block < grid.tiles;
  if (has_tile) block.load_best(block.block);
  if (block.needs_ranks) block.rank_elites();
  int chunks = (block.valid_elites + kChunk - 1) / kChunk;
  if (block.writes_record) {
    block.write_elites();
    block.write_record_of_problem(chunks);
  }
  if (!has_tile) return;
  block.sum_weights(chunks);
  block.share_scalars();
#pragma unroll 1
  for (int tile = block.block; tile < grid.tiles; tile += grid.blocks) block.update_tile(tile);
}

// Sets grid.layout: where every array begins in the dynamic shared memory of a block, and the
// size of the memory, in bytes. The other fields of `grid` must have been set. `threads` is the
// number of threads of a block, and `key_bytes` the size of a key.
inline void set_layout(
    Grid& grid, int64_t elites, int64_t threads, bool needs_ranks, int64_t key_bytes) {
  int64_t width = int64_t{1} << grid.log_width;
  int64_t padded_elites = divide_up(elites, kWarp) * kWarp;
  Layout& layout = grid.layout;
  int end = 0;  // the end of the arrays so far, in bytes
  // Appends an array, and returns where it begins.
  auto append = [&](int64_t elements, int64_t element_bytes) {
    int begin = end;
    end += int(elements * element_bytes);
    return begin;
  };
  // The search and the ranking use these arrays.
  if (needs_ranks) append(padded_elites, key_bytes);  // the keys begin at 0
  layout.next = append(needs_ranks ? padded_elites : 0, sizeof(uint32_t));
  layout.head = append(needs_ranks ? grid.bins : 0, sizeof(uint32_t));
  layout.count = append(grid.bins, sizeof(uint32_t));
  // After the ranking, the sums of a tile use the same memory. They are two moments,
  // each with a sum per dimension and residue class. Few elites are added up by quads, which
  // are four residue classes.
  int64_t classes = elites <= kFew ? kQuads : kResidues;
  layout.moment_stride = int(std::max(threads, classes * width));
  end = std::max(end, 2 * layout.moment_stride * int(sizeof(double)));
  // All sizes so far are multiples of 8, as the doubles require.
  layout.chunk_sum = append(grid.chunks > 1 ? 2 * grid.chunks * width : 0, sizeof(double));
  layout.weight = append(needs_ranks ? padded_elites : 0, sizeof(double));
  layout.first_weights = append(needs_ranks ? kFirstWeights : 0, sizeof(double));
  layout.index = append(padded_elites, sizeof(uint16_t));
  layout.bytes = end;
}

// Returns the grid of single_kernel, without its bins and its layout. `full` is the number of
// blocks that fill the device.
//
// Every block finds all elites of its problem, so a problem gets few blocks: one for each tile
// as long as the device is not full, and one more for the record if there is room, because it
// then costs no time. A tile is 32 dimensions (kMaxWidth). If there are many elites, it is only
// 8 dimensions (kMinWidth), so that more blocks share the work of adding them up.
inline Grid make_grid(const Settings& settings, int64_t full) {
  int64_t problems = settings.problems;
  int64_t chunks = divide_up(settings.elites, kChunk);
  int64_t narrow_tiles = divide_up(settings.dimensions, kMinWidth);
  bool is_narrow = chunks > 1 && problems * narrow_tiles <= full;
  int64_t tiles = is_narrow ? narrow_tiles : divide_up(settings.dimensions, kMaxWidth);
  int64_t tile_blocks = std::max<int64_t>(1, std::min(tiles, full / problems));
  bool has_record_block = problems * (tile_blocks + 1) <= full;
  Grid grid{};
  grid.tiles = int(tiles);
  grid.log_width = is_narrow ? 3 : 5;  // the binary logarithms of kMinWidth and kMaxWidth
  grid.blocks = int(tile_blocks + (has_record_block ? 1 : 0));
  grid.record_block = int(has_record_block ? tile_blocks : 0);
  grid.chunks = int(chunks);
  return grid;
}

// Chooses the grid, the number of threads and the version of single_kernel, and launches it.
// There are versions with 1, 4 and 16 candidates per thread (items).
template <typename Key, typename T, typename Launcher>
void launch_single(const Launcher& gpu, const Job& job) {
  const Settings& settings = job.settings;
  STD_TORCH_CHECK(
      settings.dimensions < int64_t{1} << 30, "cem_update: expected fewer dimensions");
  int64_t full = 2 * gpu.multiprocessors;  // blocks that fill the device
  Grid grid = make_grid(settings, full);
  int64_t blocks = settings.problems * grid.blocks;

  auto* kernel = single_kernel<Key, T, 16>;
  int64_t threads = kThreads;
  int64_t population = settings.population;
  if (population <= 4 * kThreads) {
    int items = population <= kThreads ? 1 : 4;
    kernel = items == 1 ? single_kernel<Key, T, 1> : single_kernel<Key, T, 4>;
    // If there are more blocks than fill the device, a block may have fewer threads.
    int64_t least = blocks <= full ? 256 : 128;
    threads = std::max(least, divide_up(population, items * kWarp) * kWarp);
  }

  // There are as many bins as threads, rounded down to a power of two, but at most kMaxBins.
  grid.log_bins = 5;
  while (2 << grid.log_bins <= std::min<int64_t>(threads, kMaxBins)) ++grid.log_bins;
  grid.bins = 1 << grid.log_bins;
  bool needs_ranks = settings.ranked || job.weights;
  set_layout(grid, settings.elites, threads, needs_ranks, sizeof(Key));
  gpu.launch_early(kernel, blocks, int(threads), grid.layout.bytes, job, grid);
}

}  // namespace cem_tetris::update
