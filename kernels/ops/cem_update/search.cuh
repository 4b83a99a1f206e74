// The elites of a population that no block holds: a radix search for the key of the last elite,
// then the list of all elites in index order, then, where they are wanted, their ranks by a
// merge sort.
//
// Grid: `blocks` blocks for each problem, each with a slice of the population in a row. A pass
// counts the next digit of the keys that agree with the known digits of the limit; the block
// that finishes last adds one digit to the limit. 32-bit keys take three passes, 64-bit keys
// six; each reads the fitness once, from the L2 cache.
//
// For the ranks, a block sorts a tile of the list, and each further pass merges kMerged tiles.
// The new slot of an elite is that in its own tile plus the number of those before it in each
// other one, by a binary search; neighbouring threads have neighbouring keys, so the threads of
// a warp search along the same path.
#pragma once

#include "device.cuh"

namespace cem_tetris::update {

constexpr int kSearchThreads = 1024;
constexpr int kDigit = 11;  // bits of a digit
constexpr int kBins = 1 << kDigit;

using WideKey = unsigned long long;  // as atomics take it

// What is known of a problem. It begins as zeros, so a minimum is stored as the maximum of
// complements.
struct Search {
  WideKey least_complement;  // of all keys
  WideKey most;              // of the keys that did not fail
  WideKey limit;             // the digits so far of the last elite's key
  uint32_t passed;           // candidates that did not fail
  uint32_t before;           // candidates whose digits are below those of the limit
  uint32_t best_complement;  // of the index of the best elite
  uint32_t worst;            // the index of an elite as bad as the worst
  uint32_t done;             // blocks that finished the pass
  uint32_t bins[kBins];
};

// The workspace of a call, with K elites of each problem.
struct Workspace {
  Search* search;   // by problem
  WideKey* counts;  // by problem and block
  int64_t* index;   // by problem and place: the elites in index order, then failed ones
  double* weight;   // by problem and place, or null
  double* partial;  // by problem, chunk, moment and dimension
  double* scalar;   // by problem, chunk and Scalar
  int64_t slice;    // candidates of a block
  int32_t blocks;   // of a problem
  int32_t chunks;   // of K elites
};

// Whether the keys of a fitness have 64 bits.
CEM_TETRIS_FUNCTION bool is_wide(const Job& job) {
  return job.fitness_type == Number::Double || job.fitness_type == Number::Long;
}

// Returns a key of 64 bits for any fitness: a narrower key has the upper ones.
CEM_TETRIS_DEVICE_FUNCTION WideKey wide_key(const Job& job, int64_t i) {
  if (is_wide(job)) return key_at<uint64_t>(job, i);
  uint32_t key = key_at<uint32_t>(job, i);
  return key == ~0u ? ~0ull : WideKey(key) << 32;
}

CEM_TETRIS_DEVICE_FUNCTION double wide_fitness(const Job& job, int64_t i) {
  return is_wide(job) ? fitness_at<uint64_t>(job, i) : fitness_at<uint32_t>(job, i);
}

CEM_TETRIS_DEVICE_FUNCTION bool has_failed(const Job& job, WideKey key) {
  return job.can_fail() && key == ~0ull;
}

// Returns how many elites did not fail.
CEM_TETRIS_DEVICE_FUNCTION int64_t usable_of(const Job& job, const Search& search) {
  return min(int64_t(search.passed), job.settings.elites);
}

// Returns the sum of one number of each thread to all threads of the block; it has two
// barriers.
CEM_TETRIS_DEVICE_FUNCTION int block_sum(int x, int (&sums)[kMaxWarps]) {
  int lane = threadIdx.x % kWarp;
  x = warp_sum(x);
  __syncthreads();
  if (lane == 0) sums[threadIdx.x / kWarp] = x;
  __syncthreads();
  return warp_sum(lane < int(blockDim.x) / kWarp ? sums[lane] : 0);
}

// One step of a radix search for the key of the worst elite, the candidate number `wanted` in
// the order of the keys: determines the next digit of this key and adds it to search.limit.
//
// search.bins[d] is the number of candidates whose key has digit d and agrees with search.limit
// in the higher digits. search.before is the number of candidates with smaller higher digits.
// The digit is the bin in which the running sum of the counts reaches `wanted`. All threads of
// the block that finishes a pass last call this function. Each of them has kOwn neighbouring
// bins, and empties them for the next pass.
//
//     is_first  whether this is the highest digit
//     shift     the lowest bit of the digit in the key
//     sums      scratch, one number per warp
CEM_TETRIS_DEVICE_FUNCTION void add_digit(
    Search& search, bool is_first, int shift, int64_t wanted, int (&sums)[kMaxWarps]) {
  constexpr int kOwn = kBins / kSearchThreads;  // bins of a thread
  int thread = threadIdx.x;
  int lane = thread % kWarp;
  int warp = thread / kWarp;
  uint32_t count[kOwn];
  uint32_t total = 0;
  for (int i = 0; i < kOwn; ++i) {
    volatile uint32_t* bin = &search.bins[thread * kOwn + i];
    count[i] = *bin;
    total += count[i];
    *bin = 0;
  }
  // A prefix sum over the threads of the block. `below` becomes the number of candidates that
  // are certainly smaller than those in this thread's first bin.
  uint32_t below = warp_scan(total, lane);
  if (lane == kWarp - 1) sums[warp] = int(below);
  __syncthreads();
  below += uint32_t(warp_sum(lane < warp ? sums[lane] : 0)) + search.before - total;
  WideKey higher_digits = is_first ? 0 : search.limit;
  __syncthreads();  // All threads have read what one of them now writes.
  for (int i = 0; i < kOwn; ++i) {
    bool is_digit = below < wanted && wanted <= below + int64_t(count[i]);
    if (is_digit) {
      search.limit = higher_digits | WideKey(thread * kOwn + i) << shift;
      search.before = below;
    }
    below += count[i];
  }
  if (thread == 0) search.done = 0;
}

// One pass: the digit of `bits` bits from bit `shift` up. The first pass also finds the range
// of the keys, and how many candidates did not fail.
__global__ void __launch_bounds__(kSearchThreads)
    digit_kernel(Job job, Workspace work, int shift, int bits) {
  __shared__ uint32_t bins[kBins];
  __shared__ int sums[kMaxWarps];
  __shared__ bool is_last;
  int thread = threadIdx.x;
  int lane = thread % kWarp;
  int64_t problem = blockIdx.x / work.blocks;
  int64_t block = blockIdx.x % work.blocks;
  int64_t population = job.settings.population;
  int64_t wanted = job.settings.elites;
  Search& search = work.search[problem];
  bool is_first = shift + bits == 64;
  if (!is_first && search.passed <= wanted) return;  // all that did not fail are elites

  for (int bin = thread; bin < kBins; bin += kSearchThreads) bins[bin] = 0;
  __syncthreads();
  WideKey known = is_first ? 0 : search.limit >> (shift + bits);
  uint32_t mask = (1u << bits) - 1;
  WideKey least_complement = 0;
  WideKey most = 0;
  int passed = 0;
  int64_t end = min(population, (block + 1) * work.slice);
  for (int64_t i = block * work.slice + thread; i < end; i += kSearchThreads) {
    WideKey key = wide_key(job, problem * population + i);
    if (is_first) {
      bool good = !has_failed(job, key);
      least_complement = max(least_complement, ~key);
      most = max(most, good ? key : 0ull);
      passed += good;
    }
    if (is_first || key >> (shift + bits) == known) atomicAdd(&bins[key >> shift & mask], 1u);
  }
  if (is_first) {
    least_complement = warp_max(uint64_t(least_complement));
    most = warp_max(uint64_t(most));
    passed = block_sum(passed, sums);
    if (lane == 0) {
      atomicMax(&search.least_complement, least_complement);
      atomicMax(&search.most, most);
    }
    if (thread == 0) atomicAdd(&search.passed, uint32_t(passed));
  }
  __syncthreads();
  for (int bin = thread; bin < kBins; bin += kSearchThreads) {
    if (bins[bin] != 0) atomicAdd(&search.bins[bin], bins[bin]);
  }
  __threadfence();
  __syncthreads();
  if (thread == 0) is_last = atomicAdd(&search.done, 1u) == uint32_t(work.blocks) - 1;
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  add_digit(search, is_first, shift, wanted, sums);
}

// Which candidates are elites for sure, and which ties are elites as long as there is room:
// candidates at the limit, or, where too few did not fail, failed ones.
struct EliteRule {
  const Job& job;
  bool all;       // that did not fail are elites
  WideKey limit;  // of a key

  CEM_TETRIS_DEVICE_FUNCTION bool is_sure(WideKey key) const {
    return all ? !has_failed(job, key) : key < limit;
  }
  CEM_TETRIS_DEVICE_FUNCTION bool is_tie(WideKey key) const {
    return all ? has_failed(job, key) : key == limit;
  }
};

// Exclusive prefix sum over the blocks of a problem, of two counts per block: replaces `sure`
// and `ties` by their sums over all earlier blocks. `sure` counts candidates that are elites
// for sure, and `ties` those at the limit, of which the first ones are elites.
//
// A block publishes its counts in counts[block], then waits for those of the earlier blocks,
// which have begun before it. All threads of the block call this function, and each of them
// reads some of the earlier blocks. A word of `counts`, 0 at first, consists of a bit that
// marks it as published, 31 bits of ties, and 32 bits of sure candidates. `sums` is scratch for
// two block_sum().
CEM_TETRIS_DEVICE_FUNCTION void share_counts(
    volatile WideKey* counts, int64_t block, int& sure, int& ties, int (&sums)[2][kMaxWarps]) {
  constexpr WideKey kPublished = 1ull << 63;
  constexpr int kTieShift = 31;
  constexpr WideKey kMask = 0x7fffffff;
  if (threadIdx.x == 0)
    counts[block] = kPublished | WideKey(ties) << kTieShift | uint32_t(sure);
  sure = 0;
  ties = 0;
  for (int64_t earlier = threadIdx.x; earlier < block; earlier += kSearchThreads) {
    WideKey word;
    do {
      word = counts[earlier];
    } while ((word & kPublished) == 0);
    sure += int(word & kMask);
    ties += int(word >> kTieShift & kMask);
  }
  sure = block_sum(sure, sums[0]);
  ties = block_sum(ties, sums[1]);
}

// Writes the list of the elites in index order, and finds the best and a worst one.
__global__ void __launch_bounds__(kSearchThreads) list_kernel(Job job, Workspace work) {
  __shared__ int sums[2][kMaxWarps];
  __shared__ uint32_t
      warp_counts[2][kMaxWarps];  // of a warp: sure candidates, and ties in the upper half
  int thread = threadIdx.x;
  int lane = thread % kWarp;
  int warp = thread / kWarp;
  int64_t problem = blockIdx.x / work.blocks;
  int64_t block = blockIdx.x % work.blocks;
  int64_t population = job.settings.population;
  int64_t wanted = job.settings.elites;
  Search& search = work.search[problem];
  bool all = search.passed <= wanted;
  WideKey limit = all ? search.most : search.limit;
  WideKey least = ~search.least_complement;
  const EliteRule rule{job, all, limit};
  int64_t usable = usable_of(job, search);
  int64_t room = all ? wanted - usable : wanted - search.before;  // for ties

  int64_t begin = block * work.slice;
  int64_t end = min(population, begin + work.slice);
  int sure = 0;
  int ties = 0;
  for (int64_t i = begin + thread; i < end; i += kSearchThreads) {
    WideKey key = wide_key(job, problem * population + i);
    sure += rule.is_sure(key);
    ties += rule.is_tie(key);
  }
  sure = block_sum(sure, sums[0]);
  ties = block_sum(ties, sums[1]);
  share_counts(work.counts + problem * work.blocks, block, sure, ties, sums);

  int64_t* index = work.index + problem * wanted;
  uint32_t lower_lanes = (1u << lane) - 1;
  int turn = 0;  // two arrays of counts in turn: one barrier for each round is enough
  for (int64_t from = begin; from < end; from += kSearchThreads, turn ^= 1) {
    int64_t i = from + thread;
    WideKey key = i < end ? wide_key(job, problem * population + i) : 0;
    uint32_t sure_lanes = __ballot_sync(kAll, i < end && rule.is_sure(key));
    uint32_t tie_lanes = __ballot_sync(kAll, i < end && rule.is_tie(key));
    if (lane == 0) warp_counts[turn][warp] = __popc(sure_lanes) | __popc(tie_lanes) << 16;
    __syncthreads();
    uint32_t count = warp_counts[turn][lane];
    uint32_t before = warp_sum(int(lane < warp ? count : 0u));  // in the warps before
    uint32_t of_round = warp_sum(int(count));
    int64_t sure_place = sure + int(before & 0xffff) + __popc(sure_lanes & lower_lanes);
    int64_t tie_place = ties + int(before >> 16) + __popc(tie_lanes & lower_lanes);
    bool is_sure = sure_lanes >> lane & 1;
    bool has_room = (tie_lanes >> lane & 1) && tie_place < room;
    if (is_sure || has_room) {
      int64_t failed_last = is_sure ? sure_place : usable + tie_place;
      index[all ? failed_last : sure_place + min(tie_place, room)] = i;
    }
    bool is_elite = is_sure || (has_room && !all);
    uint32_t best = __ballot_sync(kAll, is_elite && key == least);
    uint32_t worst = __ballot_sync(kAll, is_elite && key == limit);
    if (best != 0 && lane == __ffs(best) - 1) atomicMax(&search.best_complement, ~uint32_t(i));
    if (worst != 0 && lane == __ffs(worst) - 1) atomicMax(&search.worst, uint32_t(i));
    sure += int(of_round & 0xffff);
    ties += int(of_round >> 16);
  }
}

constexpr int kTile = 1024;  // elites of a sort
constexpr int kMerged = 16;  // tiles of a merge
constexpr int kRankThreads = 256;

// Elites in the order of their slots: keys, and places in the list. Slots that are left over
// have the largest key and places behind the list.
template <typename Key>
struct Slots {
  Key* key;
  int32_t* place;
  int32_t count;  // of a problem
};

// Kernel: sorts tiles of kTile elites by key, one block per tile, as the first step of a merge
// sort of every problem's elites. A key is an unsigned integer that ranks a fitness, best
// first.
//
// index[problem * elites + place] is the candidate at a place of the list of elites, which is
// in index order. Entries are sorted by key and then by place, so that equal keys keep their
// order. Slots behind the end of a list get the largest key.
template <typename Key>
__global__ void __launch_bounds__(kTile)
    tile_kernel(Job job, const int64_t* index, Slots<Key> slots) {
  __shared__ Entry<Key> entry[kTile];
  int64_t elites = job.settings.elites;
  int thread = threadIdx.x;
  int slot = blockIdx.x * kTile + thread;
  int64_t problem = slot / slots.count;
  int64_t place = slot % slots.count;
  bool has_elite = place < elites;
  int64_t candidate = has_elite ? index[problem * elites + place] : 0;
  int64_t i = problem * job.settings.population + candidate;
  entry[thread].key = has_elite ? key_at<Key>(job, i) : ~Key{0};
  entry[thread].place = Key(thread);
  __syncthreads();
  sort(entry, kTile);
  __syncthreads();
  slots.key[slot] = entry[thread].key;
  int32_t first_place = int32_t(place) - thread;  // the place of the tile's first slot
  slots.place[slot] = first_place + int(entry[thread].place);
}

// Returns how many keys in the sorted tiles `first` to `last - 1` are smaller than `bound`, by
// a binary search in each tile. The tiles lie one after the other in `keys`, and have `size`
// keys each, a power of two.
//
// kAtOnce tiles are searched in lockstep, so that their loads from memory are in flight
// together. If fewer are left, the last tile is searched several times, and counted once.
template <typename Key>
CEM_TETRIS_DEVICE_FUNCTION int count_below(
    const Key* keys, int size, int first, int last, Key bound) {
  constexpr int kAtOnce = 4;  // searches whose loads are in flight together
  int sum = 0;
#pragma unroll 1
  for (int from = first; from < last; from += kAtOnce) {
    // The last slot of each tile that is known to be below the bound, at first the one before
    // the tile.
    int slot[kAtOnce];
    CEM_TETRIS_UNROLL
    for (int u = 0; u < kAtOnce; ++u) slot[u] = min(from + u, last - 1) * size - 1;
    // Moves each slot on by `step` if the key there is below the bound as well.
    auto advance = [&](int step) {
      Key key[kAtOnce];
      CEM_TETRIS_UNROLL
      for (int u = 0; u < kAtOnce; ++u) key[u] = keys[slot[u] + step];
      CEM_TETRIS_UNROLL
      for (int u = 0; u < kAtOnce; ++u) slot[u] += key[u] < bound ? step : 0;
    };
#pragma unroll 1
    for (int step = size >> 1; step > 0; step >>= 1) advance(step);
    advance(1);  // The steps so far add up to size - 1.
    CEM_TETRIS_UNROLL
    for (int u = 0; u < kAtOnce; ++u) {
      int first_slot = (from + u) * size;
      sum += from + u < last ? slot[u] + 1 - first_slot : 0;
    }
  }
  return sum;
}

// Kernel of a merge sort: merges every kMerged sorted tiles of `size` slots, a power of two,
// into one tile, one thread per slot. A slot holds the key of an elite, and its place in the
// list of elites, which is in index order.
//
// The new position of a slot is its position in its own tile plus the number of smaller keys in
// the other tiles, found by binary search. Of equal keys, those of earlier tiles come first. If
// this merge joins all tiles of a problem, the position is the elite's rank. The kernel then
// writes the elites by rank and, if `weight` is not null, their weights by place, instead of
// slots.
template <typename Key>
__global__ void __launch_bounds__(kRankThreads) merge_kernel(Job job, const int64_t* index,
    Slots<Key> from, Slots<Key> to, int32_t size, double* weight) {
  int slot = blockIdx.x * kRankThreads + threadIdx.x;
  int tile = slot / size;
  int problem = slot / from.count;
  int tiles = from.count / size;  // of a problem
  int first_of_problem = problem * tiles;
  // The tiles first to last - 1 are merged.
  int first = tile - (tile - first_of_problem) % kMerged;
  int last = min(first + kMerged, first_of_problem + tiles);
  Key key = from.key[slot];
  int place = from.place[slot];
  bool is_final = tiles <= kMerged;
  if (place >= job.settings.elites) {  // a slot without an elite is in its position already
    if (!is_final) {
      to.key[slot] = key;
      to.place[slot] = place;
    }
    return;
  }
  // In earlier tiles, keys that are equal or smaller come first: those below key + 1. If that
  // overflows, all keys do.
  bool is_largest = key == ~Key{0};
  int before = is_largest ? (tile - first) * size
                          : count_below<Key>(from.key, size, first, tile, key + 1);
  int after = count_below<Key>(from.key, size, tile + 1, last, key);
  int rank = before + slot % size + after;
  if (!is_final) {
    to.key[first * size + rank] = key;
    to.place[first * size + rank] = place;
    return;
  }
  int64_t list = problem * job.settings.elites;
  if (job.settings.ranked) job.elites[list + rank] = index[list + place];
  if (weight) weight[list + place] = job.weights[rank];
}

}  // namespace cem_tetris::update
