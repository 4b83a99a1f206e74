// The ranks of a list of elites, for which a block is too small: every elite is compared with all others.
#pragma once

#include "search.cuh"

namespace cem_tetris::update {

constexpr int kRankThreads = 256, kRankLanes = 8, kRankTile = 2048;
constexpr int kRankedByCounting = 8192;  // more are sorted

// Puts the elites into rank order, and the weights into that of the list; `weight` may be null.
__device__ __forceinline__ void write_ranked(const Job& job, const int64_t* index, double* weight,
                                             int64_t problem, int64_t place, int64_t rank) {
  const int64_t first = problem * job.settings.elites;
  if (job.settings.ranked) job.elites[first + rank] = index[first + place];
  if (weight != nullptr) weight[first + place] = job.weights[rank];
}

// Grid: blocks of kRankThreads / kRankLanes elites; kRankLanes lanes share the comparisons of one of them.
// The list is in index order with the failed ones, whose key is the greatest, behind.
__global__ void __launch_bounds__(kRankThreads)
    rank_kernel(Job job, const int64_t* index, double* weight, int32_t blocks) {
  __shared__ unsigned long long keys[kRankTile];
  const int64_t elites = job.settings.elites, problem = blockIdx.x / blocks;
  const int lane = threadIdx.x % kRankLanes;
  const int64_t place =
      static_cast<int64_t>(blockIdx.x % blocks) * (kRankThreads / kRankLanes) + threadIdx.x / kRankLanes;
  const int64_t* list = index + problem * elites;
  const auto key_of = [&](int64_t p) { return wide_key(job, problem * job.settings.population + list[p]); };
  const unsigned long long mine = place < elites ? key_of(place) : 0;
  int rank = 0;
  for (int64_t from = 0; from < elites; from += kRankTile) {
    const int count = static_cast<int>(min(elites - from, static_cast<int64_t>(kRankTile)));
    __syncthreads();
    for (int q = threadIdx.x; q < count; q += kRankThreads) keys[q] = key_of(from + q);
    __syncthreads();
#pragma unroll 4
    for (int q = lane; q < count; q += kRankLanes) {
      rank += keys[q] < mine || (keys[q] == mine && from + q < place) ? 1 : 0;
    }
  }
  for (int step = kRankLanes / 2; step > 0; step /= 2) rank += __shfl_xor_sync(kAll, rank, step);
  if (place < elites && lane == 0) write_ranked(job, index, weight, problem, place, rank);
}

// The keys of a list as signed integers in the same order, for a sort: the upper bits of a wide key, or all.
template <typename Sorted>
__global__ void __launch_bounds__(kRankThreads)
    key_kernel(Job job, const int64_t* index, Sorted* keys, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kRankThreads + threadIdx.x;
  if (i >= count) return;
  const int64_t problem = i / job.settings.elites;
  const unsigned long long key = wide_key(job, problem * job.settings.population + index[i]) ^ 1ull << 63;
  keys[i] = static_cast<Sorted>(static_cast<int64_t>(key) >> (64 - 8 * sizeof(Sorted)));
}

// place_of: the place in the list of each rank.
__global__ void __launch_bounds__(kRankThreads)
    scatter_kernel(Job job, const int64_t* index, double* weight, const int64_t* place_of, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kRankThreads + threadIdx.x;
  if (i >= count) return;
  const int64_t problem = i / job.settings.elites;
  write_ranked(job, index, weight, problem, place_of[i], i - problem * job.settings.elites);
}

}  // namespace cem_tetris::update
