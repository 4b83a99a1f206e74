// The elites of a population that no block holds: a radix search for the key of the last elite,
// then the list of all elites in index order, then, where they are wanted, their ranks by a
// merge sort.
//
// Grid: `blocks` blocks a problem, each with a slice of the population in a row. A pass counts
// the next digit of the keys that agree with what is known of the limit; the block that
// finishes last adds one digit to it. 32-bit keys take three passes, 64-bit keys six; each
// reads the fitness once, which lies in the L2 cache.
//
// For the ranks a block sorts a tile of the list; a pass merges kMerged tiles. The place of an
// elite is that in its own tile plus the number of those before it in each other one, by a
// binary search; the threads of a warp have neighbours, so they search along the same path.
#pragma once

#include "device.cuh"

namespace cem_tetris::update {

constexpr int kSearchThreads = 1024;
constexpr int kDigit = 11, kBins = 1 << kDigit;

// What is known of a problem. It begins as zeros, so what is least is kept as the most of its
// complement.
struct Search {
  unsigned long long least_complement, most;  // keys: of all, of those that did not fail
  unsigned long long limit;                   // the digits so far of the last elite's key
  uint32_t passed;                            // candidates that did not fail
  uint32_t before;                  // candidates whose digits are below those of the limit
  uint32_t best_complement, worst;  // indices: the best elite, and one as bad as the worst
  uint32_t done;                    // blocks that finished the pass
  uint32_t bins[kBins];
};

// The workspace of a call; `counts` has a word a block, of all problems.
struct Workspace {
  Search* search;
  unsigned long long* counts;
  int64_t* index;   // K a problem: the elites in index order, then failed ones
  double* weight;   // K a problem, in the same order, or null
  double* partial;  // problem, chunk, moment, dimension
  double* scalar;   // problem, chunk, kScalars: sums of fitness, weight and its square
  int64_t slice;    // candidates a block
  int32_t blocks;   // a problem
  int32_t chunks;   // of K elites
};

// Whether the keys have 64 bits.
CEM_TETRIS_FUNCTION bool is_wide(const Job& job) {
  return job.fitness_type == Number::Double || job.fitness_type == Number::Long;
}

// Keys of 64 bits for any fitness: a narrower key has the upper ones.
__device__ __forceinline__ unsigned long long wide_key(const Job& job, int64_t i) {
  if (is_wide(job)) return key_at<uint64_t>(job, i);
  const uint32_t key = key_at<uint32_t>(job, i);
  return key == ~0u ? ~0ull : static_cast<unsigned long long>(key) << 32;
}

__device__ __forceinline__ double wide_fitness(const Job& job, int64_t i) {
  return is_wide(job) ? fitness_at<uint64_t>(job, i) : fitness_at<uint32_t>(job, i);
}

__device__ __forceinline__ bool has_failed(const Job& job, unsigned long long key) {
  return job.can_fail() && key == ~0ull;
}

__device__ __forceinline__ int64_t usable_of(const Job& job, const Search& search) {
  return min(static_cast<int64_t>(search.passed), job.settings.elites);
}

// The sum of one number a thread, for all threads of the block, which meets twice.
__device__ __forceinline__ int block_sum(int x, int (&sums)[kMaxWarps]) {
  const int lane = threadIdx.x % kWarp;
  x = warp_sum(x);
  __syncthreads();
  if (lane == 0) sums[threadIdx.x / kWarp] = x;
  __syncthreads();
  return warp_sum(lane < static_cast<int>(blockDim.x) / kWarp ? sums[lane] : 0);
}

// One pass: the digit of `bits` bits from bit `shift` up.
__global__ void __launch_bounds__(kSearchThreads)
    digit_kernel(Job job, Workspace work, int shift, int bits) {
  __shared__ uint32_t bins[kBins];
  __shared__ int sums[kMaxWarps];
  __shared__ bool last;
  const int thread = threadIdx.x, lane = thread % kWarp, warp = thread / kWarp;
  const int64_t problem = blockIdx.x / work.blocks, block = blockIdx.x % work.blocks;
  const int64_t population = job.settings.population, wanted = job.settings.elites;
  Search& search = work.search[problem];
  const bool first = shift + bits == 64;
  if (!first && search.passed <= wanted) return;  // all that are usable are elites

  for (int bin = thread; bin < kBins; bin += kSearchThreads) bins[bin] = 0;
  __syncthreads();
  const unsigned long long known = first ? 0 : search.limit >> (shift + bits);
  const uint32_t mask = (1u << bits) - 1;
  unsigned long long least_complement = 0, most = 0;
  int passed = 0;
  const int64_t end = min(population, (block + 1) * work.slice);
  for (int64_t i = block * work.slice + thread; i < end; i += kSearchThreads) {
    const unsigned long long key = wide_key(job, problem * population + i);
    if (first) {
      const bool usable = !has_failed(job, key);
      least_complement = max(least_complement, ~key);
      most = max(most, usable ? key : 0ull);
      passed += usable ? 1 : 0;
    }
    if (first || key >> (shift + bits) == known) atomicAdd(&bins[key >> shift & mask], 1u);
  }
  if (first) {
    least_complement = warp_max(static_cast<uint64_t>(least_complement));
    most = warp_max(static_cast<uint64_t>(most));
    passed = block_sum(passed, sums);
    if (lane == 0) {
      atomicMax(&search.least_complement, least_complement);
      atomicMax(&search.most, most);
    }
    if (thread == 0) atomicAdd(&search.passed, static_cast<uint32_t>(passed));
  }
  __syncthreads();
  for (int bin = thread; bin < kBins; bin += kSearchThreads) {
    if (bins[bin] != 0) atomicAdd(&search.bins[bin], bins[bin]);
  }
  __threadfence();
  __syncthreads();
  if (thread == 0) last = atomicAdd(&search.done, 1u) == static_cast<uint32_t>(work.blocks) - 1;
  __syncthreads();
  if (!last) return;

  // The block that is last: each thread has kBins / kSearchThreads digits in a row.
  __threadfence();
  constexpr int kEach = kBins / kSearchThreads;
  uint32_t mine[kEach], total = 0;
  for (int i = 0; i < kEach; ++i) {
    volatile uint32_t* bin = &search.bins[thread * kEach + i];
    total += mine[i] = *bin;
    *bin = 0;
  }
  uint32_t below = warp_scan(total, lane);
  if (lane == kWarp - 1) sums[warp] = static_cast<int>(below);
  __syncthreads();
  below +=
      static_cast<uint32_t>(warp_sum(lane < warp ? sums[lane] : 0)) + search.before - total;
  const unsigned long long digits = first ? 0 : search.limit;
  __syncthreads();  // all have read what one of them now writes
  for (int i = 0; i < kEach; ++i) {
    if (below < wanted && wanted <= below + static_cast<int64_t>(mine[i])) {
      search.limit = digits | static_cast<unsigned long long>(thread * kEach + i) << shift;
      search.before = below;
    }
    below += mine[i];
  }
  if (thread == 0) search.done = 0;
}

// The list of the elites. A block publishes how many elites it has, and waits for the counts of
// the earlier ones of its problem, which began before it.
__global__ void __launch_bounds__(kSearchThreads) list_kernel(Job job, Workspace work) {
  constexpr unsigned long long kPublished = 1ull << 63;
  __shared__ int sums[2][kMaxWarps];
  __shared__ uint32_t placed[2][kMaxWarps];
  const int thread = threadIdx.x, lane = thread % kWarp, warp = thread / kWarp;
  const int64_t problem = blockIdx.x / work.blocks, block = blockIdx.x % work.blocks;
  const int64_t population = job.settings.population, wanted = job.settings.elites;
  Search& search = work.search[problem];
  const bool all = search.passed <= wanted;
  const unsigned long long limit = all ? search.most : search.limit,
                           least = ~search.least_complement;
  const int64_t usable = usable_of(job, search),
                ties = all ? wanted - usable : wanted - search.before;
  // Elites for sure; the others of which the first are taken: those at the limit, or failed
  // ones.
  const auto is_sure = [&](unsigned long long key) {
    return all ? !has_failed(job, key) : key < limit;
  };
  const auto is_tie = [&](unsigned long long key) {
    return all ? has_failed(job, key) : key == limit;
  };

  const int64_t begin = block * work.slice, end = min(population, begin + work.slice);
  int sure = 0, tie = 0;
  for (int64_t i = begin + thread; i < end; i += kSearchThreads) {
    const unsigned long long key = wide_key(job, problem * population + i);
    sure += is_sure(key) ? 1 : 0;
    tie += is_tie(key) ? 1 : 0;
  }
  sure = block_sum(sure, sums[0]);
  tie = block_sum(tie, sums[1]);
  volatile unsigned long long* counts = work.counts + problem * work.blocks;
  if (thread == 0)
    counts[block] =
        kPublished | static_cast<unsigned long long>(tie) << 31 | static_cast<uint32_t>(sure);
  int sure_before = 0, tie_before = 0;  // each thread has some of the earlier blocks
  for (int64_t b = thread; b < block; b += kSearchThreads) {
    unsigned long long word;
    while (((word = counts[b]) & kPublished) == 0) {
    }
    sure_before += static_cast<int>(word & 0x7fffffff);
    tie_before += static_cast<int>(word >> 31 & 0x7fffffff);
  }
  sure_before = block_sum(sure_before, sums[0]);
  tie_before = block_sum(tie_before, sums[1]);

  int64_t* index = work.index + problem * wanted;
  const uint32_t below = (1u << lane) - 1;
  int turn = 0;
  for (int64_t from = begin; from < end; from += kSearchThreads, turn ^= 1) {
    const int64_t i = from + thread;
    const unsigned long long key = i < end ? wide_key(job, problem * population + i) : 0;
    const uint32_t sures = __ballot_sync(kAll, i < end && is_sure(key)),
                   others = __ballot_sync(kAll, i < end && is_tie(key));
    if (lane == 0) placed[turn][warp] = __popc(sures) | __popc(others) << 16;
    __syncthreads();
    const uint32_t own = placed[turn][lane],
                   here = warp_sum(static_cast<int>(lane < warp ? own : 0u)),
                   round = warp_sum(static_cast<int>(own));
    const int64_t sure_place =
                      sure_before + static_cast<int>(here & 0xffff) + __popc(sures & below),
                  tie_place =
                      tie_before + static_cast<int>(here >> 16) + __popc(others & below);
    const bool mine = sures >> lane & 1, other = (others >> lane & 1) && tie_place < ties;
    if (mine || other) {
      const int64_t place =
          all ? (mine ? sure_place : usable + tie_place) : sure_place + min(tie_place, ties);
      index[place] = i;
    }
    const bool elite = mine || (other && !all);
    const uint32_t best = __ballot_sync(kAll, elite && key == least),
                   worst = __ballot_sync(kAll, elite && key == limit);
    if (best != 0 && lane == __ffs(best) - 1)
      atomicMax(&search.best_complement, ~static_cast<uint32_t>(i));
    if (worst != 0 && lane == __ffs(worst) - 1)
      atomicMax(&search.worst, static_cast<uint32_t>(i));
    sure_before += static_cast<int>(round & 0xffff);
    tie_before += static_cast<int>(round >> 16);
  }
}

constexpr int kTile = 1024, kMerged = 16, kRankThreads = 256;

// Elites in the order of their slots: keys, and places in the list. Slots that are left over
// have the largest key and places behind the list.
template <typename Key> struct Slots {
  Key* key;
  int32_t *place, count;  // of a problem
};

// Grid: a block a tile. The list is in index order, as equal keys are to be.
template <typename Key> __global__ void __launch_bounds__(kTile)
    tile_kernel(Job job, const int64_t* index, Slots<Key> slots) {
  __shared__ Entry<Key> entry[kTile];
  const int64_t elites = job.settings.elites;
  const int thread = threadIdx.x, slot = blockIdx.x * kTile + thread;
  const int64_t problem = slot / slots.count, place = slot % slots.count;
  const int64_t candidate = place < elites ? index[problem * elites + place] : 0;
  entry[thread].key = place < elites
                          ? key_at<Key>(job, problem * job.settings.population + candidate)
                          : ~Key{0};
  entry[thread].place = static_cast<Key>(thread);
  __syncthreads();
  sort(entry, kTile);
  __syncthreads();
  slots.key[slot] = entry[thread].key;
  slots.place[slot] =
      static_cast<int32_t>(place) - thread + static_cast<int>(entry[thread].place);
}

// How many keys of the tiles from first to last are below a bound.
template <typename Key> __device__ __forceinline__ int count_below(
    const Key* keys, int size, int first, int last, Key bound) {
  constexpr int kAtOnce = 4;
  int sum = 0;
#pragma unroll 1
  for (int from = first; from < last; from += kAtOnce) {
    int at[kAtOnce];  // the last slot that is below, or the one before the tile
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) at[u] = min(from + u, last - 1) * size - 1;
    const auto pass = [&](int step) {
      Key theirs[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) theirs[u] = keys[at[u] + step];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) at[u] += theirs[u] < bound ? step : 0;
    };
#pragma unroll 1
    for (int step = size >> 1; step > 0; step >>= 1) pass(step);
    pass(1);  // so far at most all but one
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u)
      sum += from + u < last ? at[u] + 1 - (from + u) * size : 0;
  }
  return sum;
}

// Merges tiles of `size` slots, a power of two, into those of kMerged times as many; where that
// is all of a problem, writes elites and weights by rank instead. `weight` may be null. Grid: a
// thread a slot.
template <typename Key> __global__ void __launch_bounds__(kRankThreads) merge_kernel(Job job,
    const int64_t* index, Slots<Key> from, Slots<Key> to, int32_t size, double* weight) {
  const int slot = blockIdx.x * kRankThreads + threadIdx.x, tile = slot / size;
  const int problem = slot / from.count, tiles = from.count / size, left = problem * tiles;
  const int first = tile - (tile - left) % kMerged, last = min(first + kMerged, left + tiles);
  const Key mine = from.key[slot];
  const int place = from.place[slot];
  const bool all = tiles <= kMerged;
  if (place >= job.settings.elites) {  // all those have come to their last slots
    if (!all) {
      to.key[slot] = mine;
      to.place[slot] = place;
    }
    return;
  }
  // Equal keys of the tiles before come first; all of them do where the key is the largest
  // there is.
  const int before = mine == ~Key{0} ? (tile - first) * size
                                     : count_below<Key>(from.key, size, first, tile, mine + 1);
  const int rank =
      before + slot % size + count_below<Key>(from.key, size, tile + 1, last, mine);
  if (!all) {
    to.key[first * size + rank] = mine;
    to.place[first * size + rank] = place;
    return;
  }
  const int64_t list = problem * job.settings.elites;
  if (job.settings.ranked) job.elites[list + rank] = index[list + place];
  if (weight != nullptr) weight[list + place] = job.weights[rank];
}

}  // namespace cem_tetris::update
