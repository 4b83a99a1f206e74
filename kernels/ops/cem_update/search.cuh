// The elites of a population that is too large for one block: a radix search for the key of the
// worst elite, then the list of all elites in index order, then, if they are needed, the ranks
// of the elites by a merge sort.
//
// Grid: every problem has `blocks` blocks, and a block has a slice of consecutive candidates.
// The limit is the key of the worst elite. One pass of the radix search looks at the keys that
// agree with the known digits of the limit, and counts their next digits. The block that
// finishes last adds the new digit to the limit. 32-bit keys take three passes, 64-bit keys
// six; every pass reads the fitness once, from the L2 cache.
//
// For the ranks, a block sorts a tile of the list, and every further pass merges kMerged tiles.
// The new position of an elite is its position in its own tile plus the number of elites before
// it in the other tiles. Binary searches find this number. Neighbouring threads have neighbouring
// keys, so the threads of a warp search along the same path.
#pragma once

#include "device.cuh"

namespace cem_tetris::update {

constexpr int kSearchThreads = 1024;
constexpr int kDigit = 11;  // bits of a digit
constexpr int kBins = 1 << kDigit;

using WideKey = unsigned long long;  // the 64-bit type of CUDA's atomic functions

// The state of the radix search for one problem. The memory is zero at first, so a minimum is
// stored as the maximum of the complements.
struct Search {
  WideKey least_complement;   // of all keys
  WideKey most;               // of the keys that did not fail
  WideKey limit;              // the digits so far of the last elite's key
  uint32_t valid_candidates;  // candidates that did not fail
  uint32_t before;            // candidates whose digits are below those of the limit
  uint32_t best_complement;   // of the index of the best elite
  uint32_t worst;             // the index of an elite as bad as the worst
  uint32_t done;              // blocks that finished the pass
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

// Returns whether the keys of a fitness have 64 bits.
CEM_TETRIS_FUNCTION bool is_wide(const Job& job) {
  return job.fitness_type == Number::Double || job.fitness_type == Number::Long;
}

// Returns the key of candidate i with 64 bits. A key of 32 bits becomes the upper half. The key
// of a failed candidate has all bits set in both cases.
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
CEM_TETRIS_DEVICE_FUNCTION int64_t count_valid_elites(const Job& job, const Search& search) {
  return min(int64_t(search.valid_candidates), job.settings.elites);
}

// A digit of the keys: `bits` bits of a key of 64 bits, from bit `shift` upwards.
struct Digit {
  int shift, bits;

  CEM_TETRIS_DEVICE_FUNCTION bool is_highest() const { return shift + bits == 64; }
  // Returns the digits of a key above this one, as a number. The highest digit has none.
  CEM_TETRIS_DEVICE_FUNCTION WideKey above(WideKey key) const { return key >> (shift + bits); }
};

// Returns the sum of x over the threads of the block, to every thread. All threads call the
// function, which contains two barriers. `sums` is scratch memory.
CEM_TETRIS_DEVICE_FUNCTION int block_sum(int x, int (&sums)[kMaxWarps]) {
  int lane = threadIdx.x % kWarp;
  x = warp_sum(x);
  __syncthreads();  // An earlier call may still read `sums`.
  if (lane == 0) sums[threadIdx.x / kWarp] = x;
  __syncthreads();
  return warp_sum(lane < int(blockDim.x) / kWarp ? sums[lane] : 0);
}

// One step of the radix search for the key of the worst elite, which is candidate number
// `wanted` (counted from 1) in the order of the keys. The function finds the next lower digit
// of this key, and adds it to search.limit, which holds the higher digits.
//
// search.bins[d] is the number of candidates whose key has the digit d and agrees with
// search.limit in all higher digits. search.before is the number of candidates whose higher
// digits are smaller than those of search.limit. The bins are added to search.before, one after
// the other. The sum reaches `wanted` in one bin, and the number of this bin is the digit. Then
// search.before becomes the sum before this bin.
//
// All threads of one block call the function: the block that is the last one to finish a pass.
// A thread has kThreadBins neighbouring bins, and sets them to 0 for the next pass.
//
// Args:
//     digit: the position of the digit in the key. If it is the highest digit, search.limit is
//         not set yet.
//     sums: scratch memory, one number per warp.
CEM_TETRIS_DEVICE_FUNCTION void add_digit(
    Search& search, Digit digit, int64_t wanted, int (&sums)[kMaxWarps]) {
  constexpr int kThreadBins = kBins / kSearchThreads;  // bins of a thread
  int thread = threadIdx.x;
  int lane = thread % kWarp;
  int warp = thread / kWarp;
  uint32_t count[kThreadBins];
  uint32_t total = 0;
  for (int i = 0; i < kThreadBins; ++i) {
    // Other blocks have written the bins, so a cached value must not be used.
    volatile uint32_t* bin = &search.bins[thread * kThreadBins + i];
    count[i] = *bin;
    total += count[i];
    *bin = 0;
  }
  // A prefix sum over the threads of the block: first within every warp, then over the sums of
  // the warps. `below` becomes search.before plus the number of candidates in all bins before
  // this thread's first bin. The scan includes the thread's own bins, so `total` is subtracted.
  uint32_t up_to_thread = warp_scan(total, lane);
  if (lane == kWarp - 1) sums[warp] = int(up_to_thread);
  __syncthreads();
  uint32_t earlier_warps = uint32_t(warp_sum(lane < warp ? sums[lane] : 0));
  uint32_t below = up_to_thread + (earlier_warps + search.before - total);
  WideKey higher_digits = digit.is_highest() ? 0 : search.limit;
  __syncthreads();  // All threads have read search.before and search.limit; one now writes.
  for (int i = 0; i < kThreadBins; ++i) {
    // Exactly one thread has the bin of candidate number `wanted`.
    bool is_digit = below < wanted && wanted <= below + int64_t(count[i]);
    if (is_digit) {
      search.limit = higher_digits | WideKey(thread * kThreadBins + i) << digit.shift;
      search.before = below;
    }
    below += count[i];
  }
  if (thread == 0) search.done = 0;  // for the next pass
}

// What the first pass of the radix search finds out about the keys of a slice.
struct KeyRange {
  // The complement of the smallest key is the largest complement. It can be combined by
  // atomicMax, although Search begins as zeros.
  WideKey least_complement = 0;
  WideKey greatest = 0;  // of the valid candidates, those that did not fail
  int valid_candidates = 0;

  CEM_TETRIS_DEVICE_FUNCTION void add(const Job& job, WideKey key) {
    bool is_valid = !has_failed(job, key);
    least_complement = max(least_complement, ~key);
    greatest = max(greatest, is_valid ? key : 0ull);
    valid_candidates += is_valid;
  }

  // Combines the ranges of the block's threads, and adds the result to those of the other
  // blocks. All threads of the block call the function. `sums` is scratch memory.
  CEM_TETRIS_DEVICE_FUNCTION void share(Search& search, int (&sums)[kMaxWarps]) {
    int thread = threadIdx.x;
    least_complement = warp_max(uint64_t(least_complement));
    greatest = warp_max(uint64_t(greatest));
    valid_candidates = block_sum(valid_candidates, sums);
    if (thread % kWarp == 0) {
      atomicMax(&search.least_complement, least_complement);
      atomicMax(&search.most, greatest);
    }
    if (thread == 0) atomicAdd(&search.valid_candidates, uint32_t(valid_candidates));
  }
};

// Counts the digits of the keys in this block's slice of the candidates: bins[d] becomes the
// number of keys that have the digit d and agree with search.limit in all higher digits. The
// first pass, which counts the highest digit, also finds the range of the keys. All threads of
// the block call the function. `sums` is scratch memory.
CEM_TETRIS_DEVICE_FUNCTION void count_digits(const Job& job, const Workspace& work,
    Search& search, int64_t problem, Digit digit, uint32_t (&bins)[kBins],
    int (&sums)[kMaxWarps]) {
  int thread = threadIdx.x;
  int64_t block = blockIdx.x % work.blocks;
  int64_t population = job.settings.population;
  bool is_first = digit.is_highest();
  for (int bin = thread; bin < kBins; bin += kSearchThreads) bins[bin] = 0;
  __syncthreads();
  WideKey higher_digits = is_first ? 0 : digit.above(search.limit);
  uint32_t mask = (1u << digit.bits) - 1;
  KeyRange range;
  int64_t end = min(population, (block + 1) * work.slice);
  for (int64_t i = block * work.slice + thread; i < end; i += kSearchThreads) {
    WideKey key = wide_key(job, problem * population + i);
    if (is_first) range.add(job, key);
    bool agrees = is_first || digit.above(key) == higher_digits;
    WideKey value = key >> digit.shift & mask;
    if (agrees) atomicAdd(&bins[value], 1u);
  }
  if (is_first) range.share(search, sums);
}

// Reports that this block has added its counts to those of the problem. Returns whether it is
// the last block of the problem to do so, to every thread. `is_last` is scratch memory.
//
// The last block must see the counts of all blocks. So a fence makes the counts of this block
// visible before `done` increases, and the caller needs another one before it reads the counts.
CEM_TETRIS_DEVICE_FUNCTION bool is_last_block(
    const Workspace& work, Search& search, bool& is_last) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicAdd(&search.done, 1u) == uint32_t(work.blocks) - 1;
  __syncthreads();
  return is_last;
}

// Kernel: one pass of the radix search for the key of the worst elite. It counts the digits of
// the keys; a digit consists of `bits` bits from bit `shift` upwards. The last block that
// finishes chooses the digit (add_digit()). The first pass also determines the smallest and the
// largest valid key, and the number of valid candidates, those that did not fail.
__global__ void __launch_bounds__(kSearchThreads)
    digit_kernel(Job job, Workspace work, int shift, int bits) {
  __shared__ uint32_t bins[kBins];
  __shared__ int sums[kMaxWarps];  // scratch memory
  __shared__ bool is_last;
  const Digit digit{shift, bits};
  int thread = threadIdx.x;
  int64_t problem = blockIdx.x / work.blocks;
  int64_t wanted = job.settings.elites;
  Search& search = work.search[problem];
  // If all valid candidates are elites, there is nothing to search for.
  if (!digit.is_highest() && search.valid_candidates <= wanted) return;
  count_digits(job, work, search, problem, digit, bins, sums);
  __syncthreads();
  // Add the counts of this block to those of the problem.
  for (int bin = thread; bin < kBins; bin += kSearchThreads) {
    if (bins[bin] != 0) atomicAdd(&search.bins[bin], bins[bin]);
  }
  if (!is_last_block(work, search, is_last)) return;
  __threadfence();
  add_digit(search, digit, wanted, sums);
}

// Divides the candidates of a problem by their keys into sure elites, ties, and others. Ties
// are on the list of elites only as long as there is room. If all valid candidates are elites
// (all_valid), the ties are the candidates that failed. Otherwise they are the candidates whose
// key is the limit.
struct EliteRule {
  const Job& job;
  bool all_valid;        // whether all valid candidates are elites
  WideKey limit;         // the key of the worst elite
  int64_t valid_elites;  // how many elites did not fail
  int64_t room;          // how many ties are on the list

  CEM_TETRIS_DEVICE_FUNCTION EliteRule(const Job& job, const Search& search)
      : job(job),
        all_valid(search.valid_candidates <= job.settings.elites),
        limit(all_valid ? search.most : search.limit),
        valid_elites(count_valid_elites(job, search)),
        room(job.settings.elites - (all_valid ? valid_elites : search.before)) {}

  CEM_TETRIS_DEVICE_FUNCTION bool is_sure(WideKey key) const {
    return all_valid ? !has_failed(job, key) : key < limit;
  }
  CEM_TETRIS_DEVICE_FUNCTION bool is_tie(WideKey key) const {
    return all_valid ? has_failed(job, key) : key == limit;
  }
  // Returns the place of a candidate on the list. Before it there are `sure` sure elites and
  // `ties` ties in index order.
  CEM_TETRIS_DEVICE_FUNCTION int64_t place(bool is_sure, int64_t sure, int64_t ties) const {
    // Ties that failed follow all elites. Other ties are in index order among the elites.
    int64_t failed_last = is_sure ? sure : valid_elites + ties;
    return all_valid ? failed_last : sure + min(ties, room);
  }
};

// The counts of a block's sure elites and ties in one word, which other blocks read at once. It
// is 0 until it is published. Bit 63 marks it as published, bits 31 to 61 are the number
// of ties, and bits 0 to 30 the number of sure elites.
struct PublishedCounts {
  static constexpr WideKey kPublished = 1ull << 63;
  static constexpr int kTieShift = 31;
  static constexpr WideKey kMask = 0x7fffffff;

  WideKey word;

  static CEM_TETRIS_DEVICE_FUNCTION WideKey pack(int sure, int ties) {
    return kPublished | WideKey(ties) << kTieShift | uint32_t(sure);
  }
  CEM_TETRIS_DEVICE_FUNCTION bool exist() const { return (word & kPublished) != 0; }
  CEM_TETRIS_DEVICE_FUNCTION int sure() const { return int(word & kMask); }
  CEM_TETRIS_DEVICE_FUNCTION int ties() const { return int(word >> kTieShift & kMask); }
};

// Replaces two counts of a block by their sums over all earlier blocks of the same problem (two
// exclusive prefix sums). `sure` counts the block's sure elites. `ties` counts its candidates
// that are elites only as long as there is room.
//
// A block publishes its two counts in counts[block]. Then it waits until the earlier blocks,
// which have all started before it, have published theirs.
//
// All threads of the block call the function, and share the earlier blocks. `sums` is scratch
// memory for two calls of block_sum().
CEM_TETRIS_DEVICE_FUNCTION void share_counts(
    volatile WideKey* counts, int64_t block, int& sure, int& ties, int (&sums)[2][kMaxWarps]) {
  if (threadIdx.x == 0) counts[block] = PublishedCounts::pack(sure, ties);
  sure = 0;
  ties = 0;
  for (int64_t earlier = threadIdx.x; earlier < block; earlier += kSearchThreads) {
    PublishedCounts published;
    do {
      published.word = counts[earlier];
    } while (!published.exist());
    sure += published.sure();
    ties += published.ties();
  }
  sure = block_sum(sure, sums[0]);
  ties = block_sum(ties, sums[1]);
}

// Kernel: writes the list of the elites in index order, and finds the best elite and one of the
// worst ones. A block goes through its slice of the candidates twice. First it counts its
// elites. share_counts() then gives the places of the first ones, and the block writes them.
__global__ void __launch_bounds__(kSearchThreads) list_kernel(Job job, Workspace work) {
  __shared__ int sums[2][kMaxWarps];
  // For every warp, the lower half is the number of sure elites, and the upper half the number
  // of ties. Rounds use the two arrays alternately, so that one barrier per round is enough.
  __shared__ uint32_t warp_counts[2][kMaxWarps];
  int thread = threadIdx.x;
  int lane = thread % kWarp;
  int warp = thread / kWarp;
  int64_t problem = blockIdx.x / work.blocks;
  int64_t block = blockIdx.x % work.blocks;
  int64_t population = job.settings.population;
  Search& search = work.search[problem];
  WideKey least = ~search.least_complement;
  const EliteRule rule(job, search);

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

  // `sure` and `ties` now count the earlier blocks, and then also the earlier rounds. A round
  // handles one candidate per thread.
  int64_t* index = work.index + problem * job.settings.elites;
  uint32_t lower_lanes = (1u << lane) - 1;
  int turn = 0;  // the array of counts that this round uses
  for (int64_t from = begin; from < end; from += kSearchThreads, turn ^= 1) {
    int64_t i = from + thread;
    WideKey key = i < end ? wide_key(job, problem * population + i) : 0;
    uint32_t sure_lanes = __ballot_sync(kAll, i < end && rule.is_sure(key));
    uint32_t tie_lanes = __ballot_sync(kAll, i < end && rule.is_tie(key));
    if (lane == 0) warp_counts[turn][warp] = __popc(sure_lanes) | __popc(tie_lanes) << 16;
    __syncthreads();
    uint32_t count = warp_counts[turn][lane];
    uint32_t before = warp_sum(int(lane < warp ? count : 0u));  // in the lower warps
    uint32_t round_count = warp_sum(int(count));
    int64_t sure_place = sure + int(before & 0xffff) + __popc(sure_lanes & lower_lanes);
    int64_t tie_place = ties + int(before >> 16) + __popc(tie_lanes & lower_lanes);
    bool is_sure = sure_lanes >> lane & 1;
    bool has_room = (tie_lanes >> lane & 1) && tie_place < rule.room;
    if (is_sure || has_room) index[rule.place(is_sure, sure_place, tie_place)] = i;
    bool is_elite = is_sure || (has_room && !rule.all_valid);
    uint32_t best = __ballot_sync(kAll, is_elite && key == least);
    uint32_t worst = __ballot_sync(kAll, is_elite && key == rule.limit);
    if (best != 0 && lane == __ffs(best) - 1) atomicMax(&search.best_complement, ~uint32_t(i));
    if (worst != 0 && lane == __ffs(worst) - 1) atomicMax(&search.worst, uint32_t(i));
    sure += int(round_count & 0xffff);
    ties += int(round_count >> 16);
  }
}

constexpr int kTile = 1024;  // a block of tile_kernel sorts this many elites
constexpr int kMerged = 16;  // a merge joins this many tiles
constexpr int kRankThreads = 256;

// The entries that the merge sort moves. An entry is the key of an elite and its place, the
// position in the problem's list of elites. Padding at the end of a problem has the largest key
// and places after the end of the list.
template <typename Key>
struct Entries {
  Key* key;             // (problems, per_problem)
  int32_t* place;       // (problems, per_problem)
  int32_t per_problem;  // with padding
};

// Kernel: sorts tiles of kTile elites by key, one block per tile and one thread per entry. This
// is the first step of a merge sort of every problem's elites. A key is an unsigned integer
// that ranks a fitness, the best one first.
//
// `list` has the candidate indices of the elites in ascending order, (problems, elites). A place
// is a position in the list of a problem. Of equal keys the lower place comes first. The
// entries after the end of the list are padding, with the largest key.
template <typename Key>
__global__ void __launch_bounds__(kTile)
    tile_kernel(Job job, const int64_t* list, Entries<Key> entries) {
  __shared__ Entry<Key> tile[kTile];
  int64_t elites = job.settings.elites;
  int thread = threadIdx.x;
  int i = blockIdx.x * kTile + thread;  // the entry of this thread
  int64_t problem = i / entries.per_problem;
  int64_t place = i % entries.per_problem;  // before sorting
  bool has_elite = place < elites;
  int64_t candidate = has_elite ? list[problem * elites + place] : 0;
  int64_t fitness_index = problem * job.settings.population + candidate;
  tile[thread].key = has_elite ? key_at<Key>(job, fitness_index) : ~Key{0};
  tile[thread].place = Key(thread);  // counted from the first place of the tile
  __syncthreads();
  sort(tile, kTile);
  __syncthreads();  // Other warps may have written this thread's entry.
  entries.key[i] = tile[thread].key;
  int32_t first_place = int32_t(place) - thread;  // the first place of the tile
  entries.place[i] = first_place + int(tile[thread].place);
}

// Returns how many keys in the sorted tiles `begin` to `end` - 1 are smaller than `bound`. The
// tiles lie one after the other in `keys`. A tile has `size` keys, a power of two.
//
// One thread searches all of these tiles with a binary search per tile. It searches kAtOnce
// tiles at the same time, so that their loads are in flight together. If fewer tiles are left,
// it searches tile `end` - 1 several times, but counts it only once.
template <typename Key>
CEM_TETRIS_DEVICE_FUNCTION int count_below(
    const Key* keys, int size, int begin, int end, Key bound) {
  constexpr int kAtOnce = 4;  // tiles that are searched at the same time
  int sum = 0;
#pragma unroll 1
  for (int from = begin; from < end; from += kAtOnce) {
    // last[u] is the index of the last key of a tile that is known to be below the bound. At
    // first it is the index before the tile.
    int last[kAtOnce];
    CEM_TETRIS_UNROLL
    for (int u = 0; u < kAtOnce; ++u) last[u] = min(from + u, end - 1) * size - 1;
    // Increases every index by `step` if the key there is also below the bound.
    auto advance = [&](int step) {
      Key key[kAtOnce];
      CEM_TETRIS_UNROLL
      for (int u = 0; u < kAtOnce; ++u) key[u] = keys[last[u] + step];
      CEM_TETRIS_UNROLL
      for (int u = 0; u < kAtOnce; ++u) last[u] += key[u] < bound ? step : 0;
    };
#pragma unroll 1
    for (int step = size >> 1; step > 0; step >>= 1) advance(step);
    advance(1);  // The steps above add up to size - 1, so the last key is still left.
    CEM_TETRIS_UNROLL
    for (int u = 0; u < kAtOnce; ++u) {
      bool is_repeated = from + u >= end;
      int first_key = (from + u) * size;
      sum += is_repeated ? 0 : last[u] + 1 - first_key;
    }
  }
  return sum;
}

// Returns how many entries of other tiles come before an entry of tile `tile` with this key.
// The sorted tiles `begin` to `end` - 1 of `size` keys are merged. Of equal keys, those of
// earlier tiles come first.
template <typename Key>
CEM_TETRIS_DEVICE_FUNCTION int count_before(
    const Key* keys, int size, int begin, int end, int tile, Key key) {
  // In earlier tiles, smaller and equal keys come before this one. These are the keys below key
  // + 1. If key + 1 would overflow, they are all keys of these tiles.
  bool is_largest = key == ~Key{0};
  int earlier =
      is_largest ? (tile - begin) * size : count_below<Key>(keys, size, begin, tile, key + 1);
  // In later tiles, only smaller keys come before this one.
  int later = count_below<Key>(keys, size, tile + 1, end, key);
  return earlier + later;
}

// Kernel of a merge sort: merges up to kMerged sorted tiles of `size` entries, a power of two,
// into one. There is one thread per entry: the key of an elite and its place, the position in
// the problem's `list` of elites.
//
// The new position of an entry is its position in its own tile, plus the number of keys in the
// other tiles that come before it. Of equal keys, those of earlier tiles come first.
//
// In the final merge of a problem, the new position is the elite's rank. This merge writes the
// results instead of entries: job.elites by rank, if job.settings.ranked is true, and `weight`
// by place, if it is not null.
template <typename Key>
__global__ void __launch_bounds__(kRankThreads) merge_kernel(Job job, const int64_t* list,
    Entries<Key> from, Entries<Key> to, int32_t size, double* weight) {
  int i = blockIdx.x * kRankThreads + threadIdx.x;  // the entry of this thread
  int tile = i / size;
  int problem = i / from.per_problem;
  int tiles = from.per_problem / size;  // tiles of a problem, before this merge
  int first_of_problem = problem * tiles;
  // The tiles `begin` to `end` - 1 are merged into one; this tile is among them.
  int begin = tile - (tile - first_of_problem) % kMerged;
  int end = min(begin + kMerged, first_of_problem + tiles);
  Key key = from.key[i];
  int place = from.place[i];
  bool is_final = tiles <= kMerged;
  // Padding comes last before and after the merge, so it keeps its position.
  if (place >= job.settings.elites) {
    if (!is_final) {
      to.key[i] = key;
      to.place[i] = place;
    }
    return;
  }
  int others = count_before<Key>(from.key, size, begin, end, tile, key);
  int position = others + i % size;  // in the merged tile
  if (!is_final) {
    to.key[begin * size + position] = key;
    to.place[begin * size + position] = place;
    return;
  }
  // The merged tile is the whole problem, so the position is the elite's rank.
  int64_t first = problem * job.settings.elites;  // the problem's first element of the arrays
  if (job.settings.ranked) job.elites[first + position] = list[first + place];
  if (weight) weight[first + place] = job.weights[position];
}

}  // namespace cem_tetris::update
