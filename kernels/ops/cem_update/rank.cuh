// The ranks of a list of elites for which a block is too small: a merge sort. A block sorts a tile; a pass
// merges kMerged tiles. The place of an elite is that in its own tile plus the number of those before it in
// each other one, by a binary search; the threads of a warp have neighbours, so they search along the same
// path.
#pragma once

#include "search.cuh"

namespace cem_tetris::update {

constexpr int kTile = 1024, kMerged = 16, kRankThreads = 256;

// Elites in the order of their slots: keys, and places in the list. Slots that are left over have the
// largest key and places behind the list.
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
  entry[thread].key =
      place < elites ? key_at<Key>(job, problem * job.settings.population + candidate) : ~Key{0};
  entry[thread].place = static_cast<Key>(thread);
  __syncthreads();
  sort(entry, kTile);
  __syncthreads();
  slots.key[slot] = entry[thread].key;
  slots.place[slot] = static_cast<int32_t>(place) - thread + static_cast<int>(entry[thread].place);
}

// How many keys of the tiles from first to last are below a bound.
template <typename Key>
__device__ __forceinline__ int count_below(const Key* keys, int size, int first, int last, Key bound) {
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
    for (int u = 0; u < kAtOnce; ++u) sum += from + u < last ? at[u] + 1 - (from + u) * size : 0;
  }
  return sum;
}

// Merges tiles of `size` slots, a power of two, into those of kMerged times as many; where that is all of a
// problem, writes elites and weights by rank instead. `weight` may be null. Grid: a thread a slot.
template <typename Key> __global__ void __launch_bounds__(kRankThreads) merge_kernel(
    Job job, const int64_t* index, Slots<Key> from, Slots<Key> to, int32_t size, double* weight) {
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
  // Equal keys of the tiles before come first; all of them do where the key is the largest there is.
  const int before =
      mine == ~Key{0} ? (tile - first) * size : count_below<Key>(from.key, size, first, tile, mine + 1);
  const int rank = before + slot % size + count_below<Key>(from.key, size, tile + 1, last, mine);
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
