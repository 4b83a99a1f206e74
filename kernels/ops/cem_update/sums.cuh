// The sums over a long list of elites, and the marginals and the record that they give.
//
// sums_kernel: a block has a chunk and a tile of dimensions, a pack a lane, or, as the last
// block of a chunk, the sums of fitness and weights. A warp has some residue classes. It is
// bound by the bandwidth of the memory. finish_kernel: a block has 32 dimensions; its threads
// add the chunks' sums, a residue class a warp.
#pragma once

#include "search.cuh"

namespace cem_tetris::update {

constexpr int kSumThreads =
    256;  // four blocks a multiprocessor: one computes while others load
constexpr int kScalars = 3;
enum Scalar { kFitness, kWeight, kWeightSquared };

// The sums of fitness, weight and its square over a chunk, a warp each.
__device__ __forceinline__ void scalar_sums(
    const Job& job, const Workspace& work, int64_t problem, int64_t chunk) {
  const int scalar = threadIdx.x / kWarp;
  if (scalar >= kScalars) return;
  const int64_t usable = usable_of(job, work.search[problem]),
                first = problem * job.settings.elites;
  const double sum =
      warp_folded(chunk * kChunk, min(usable, (chunk + 1) * kChunk), [&](int64_t p) {
        if (scalar == kFitness) {
          return wide_fitness(job, problem * job.settings.population + work.index[first + p]);
        }
        const double w = job.weights != nullptr ? job.weights[p] : 1.0;  // by rank
        return scalar == kWeight ? w : w * w;
      });
  if (threadIdx.x % kWarp == 0)
    work.scalar[(problem * work.chunks + chunk) * kScalars + scalar] = sum;
}

// The dimensions are a multiple of those of a pack, and the rows aligned to packs. A block has
// kSumThreads threads, several times as many where blocks are few. A warp of eight has the
// classes r, r + 16, r + 8 and r + 24, the order in which a lane can add two sums of the tree
// as soon as it has them.
template <typename T, int kPack> __global__ void __launch_bounds__(1024)
    sums_kernel(Job job, Workspace work, int32_t tiles) {
  constexpr int kWidth = kPack * kWarp, kAtOnce = kPack == 1 ? 8 : 4;  // packs in flight
  constexpr int kParts =
      kThreads / 2;  // sums that wait: of half the warps, or two heights of kSumThreads
  struct alignas(kPack * sizeof(T)) Pack {
    T value[kPack];
  };
  struct Sums {
    double value[2 * kPack];
  };
  __shared__ double part[2 * kPack][kParts];
  __shared__ double weight[kChunk];
  __shared__ uint32_t index[kChunk];
  const Settings& settings = job.settings;
  const int thread = threadIdx.x, threads = blockDim.x, lane = thread % kWarp,
            warp = thread / kWarp, warps = threads / kWarp;
  const int tile = blockIdx.x % static_cast<unsigned>(tiles + 1),
            rest = blockIdx.x / (tiles + 1), chunk = rest % work.chunks;
  const int64_t problem = rest / work.chunks, first = int64_t{chunk} * kChunk;
  const Search& search = work.search[problem];
  const int64_t wanted = settings.elites, usable = usable_of(job, search),
                dimensions = settings.dimensions;
  if (first >= usable) return;
  if (tile == tiles) return scalar_sums(job, work, problem, chunk);
  const int count = static_cast<int>(min(usable - first, static_cast<int64_t>(kChunk)));
  const int64_t from = problem * wanted + first;
  for (int p = thread; p < kChunk; p += threads) {
    index[p] =
        p < count ? static_cast<uint32_t>(work.index[from + p]) : ~search.best_complement;
    weight[p] = p < count && work.weight != nullptr ? work.weight[from + p] : 1.0;
  }
  __syncthreads();

  const int64_t left = tile * kWidth + lane * kPack, column = min(left, dimensions - kPack);
  const T* rows = static_cast<const T*>(job.candidates) +
                  problem * settings.population * dimensions + column;
  const auto row = [&](uint32_t i) {
    return *reinterpret_cast<const Pack*>(rows + i * dimensions);
  };
  const Pack best = row(~search.best_complement);
  double base[kPack];
#pragma unroll
  for (int j = 0; j < kPack; ++j) base[j] = static_cast<double>(best.value[j]);
  const auto put = [&](int place, const Sums& sums) {
#pragma unroll
    for (int i = 0; i < 2 * kPack; ++i) part[i][place] = sums.value[i];
  };
  const auto add = [&](Sums& sums, int place) {
#pragma unroll
    for (int i = 0; i < 2 * kPack; ++i) sums.value[i] += part[i][place];
  };

  Sums sums;
  for (int turn = 0; turn * warps < kResidues; ++turn) {
    sums = {};
    for (int p = warp + static_cast<int>(__brev(turn) >> 27); p < count;
        p += kAtOnce * kResidues) {
      Pack pack[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u)
        pack[u] = row(index[p + u * kResidues]);  // the best one adds 0
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const double w = weight[p + u * kResidues];
#pragma unroll
        for (int j = 0; j < kPack; ++j) {
          const double x = static_cast<double>(pack[u].value[j]) - base[j], weighted = w * x;
          sums.value[j] += weighted;
          sums.value[kPack + j] += weighted * x;
        }
      }
    }
    int height = 0;
    for (; turn >> height & 1; ++height) add(sums, height * threads + thread);
    if ((turn + 1) * warps < kResidues) put(height * threads + thread, sums);
  }
  for (int half = threads / 2; half >= kWarp; half /= 2) {
    __syncthreads();
    if (thread >= half && thread < 2 * half) put(thread - half, sums);
    __syncthreads();
    if (thread < half) add(sums, thread);
  }
  if (warp != 0 || left >= dimensions) return;
#pragma unroll
  for (int i = 0; i < 2 * kPack; ++i) {
    work.partial[((problem * work.chunks + chunk) * 2 + i / kPack) * dimensions + left +
                 i % kPack] = sums.value[i];
  }
}

template <typename T> __global__ void __launch_bounds__(1024)
    finish_kernel(Job job, Workspace work, int32_t tiles) {
  __shared__ double part[2][kResidues][kWarp + 1];
  __shared__ double total[kScalars];
  const Settings& settings = job.settings;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t problem = blockIdx.x / tiles, left = blockIdx.x % tiles * kWarp;
  const int64_t dimensions = settings.dimensions, column = left + lane;
  const Search& search = work.search[problem];
  const int64_t usable = usable_of(job, search), generation = *job.generation;
  const int64_t chunks = (usable + kChunk - 1) / kChunk, first = problem * settings.population;
  const int64_t best = usable > 0 ? static_cast<int64_t>(~search.best_complement) : 0;
  const double top = usable > 0 ? wide_fitness(job, first + best) : 0.0;
  const double* partial = work.partial + problem * work.chunks * 2 * dimensions;
  const double* scalars = work.scalar + problem * work.chunks * kScalars;

  double sum[2] = {0.0, 0.0};
  if (column < dimensions) {
#pragma unroll 4
    for (int64_t c = warp; c < chunks; c += kResidues) {
      sum[0] += partial[c * 2 * dimensions + column];
      sum[1] += partial[(c * 2 + 1) * dimensions + column];
    }
  }
  part[0][warp][lane] = sum[0];
  part[1][warp][lane] = sum[1];
  if (warp < kScalars) {
    const double folded =
        warp_folded(0, chunks, [&](int64_t c) { return scalars[c * kScalars + warp]; });
    if (lane == 0) total[warp] = folded;
  }
  __syncthreads();
  sum[0] = warp_fold(part[0][lane][warp]);  // a warp has a dimension now
  sum[1] = warp_fold(part[1][lane][warp]);
  __syncthreads();
  if (lane == 0) {
    part[0][0][warp] = sum[0];
    part[1][0][warp] = sum[1];
  }
  __syncthreads();
  if (warp != 0) return;
  if (column < dimensions) {
    const int64_t at = problem * kRows * dimensions + column;
    T old[kRows];
    for (int row = 0; row < kRows; ++row) {
      old[row] = static_cast<const T*>(job.distribution)[at + row * dimensions];
    }
    const auto* floors = static_cast<const T*>(job.floors);
    const double floor =
        floors != nullptr
            ? static_cast<double>(floors[problem * settings.floor_stride + column])
            : -HUGE_VAL;
    const bool better =
        is_better(top, job.record[problem * kFigures + kBestFitness], settings.maximize);
    write_marginal(job, at, usable > 0,
        make_weight(settings, total[kWeight], total[kWeightSquared]),
        Moments{part[0][0][lane], part[1][0][lane]},
        static_cast<const T*>(job.candidates)[(first + best) * dimensions + column], better,
        old, extra_variance_of(job, generation), floor, newest_share(settings, generation));
  }
  if (left == 0 && lane == 0) {
    write_record(job, problem, usable, top, total[kFitness],
        usable > 0 ? wide_fitness(job, first + search.worst) : 0.0, generation);
  }
}

}  // namespace cem_tetris::update
