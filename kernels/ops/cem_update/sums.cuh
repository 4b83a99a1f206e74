// The sums over a long list of elites, and the marginals and the record that follow from them.
//
// sums_kernel: a block has a chunk of elites and a tile of dimensions. A lane has a pack of
// kPack dimensions, and a warp some of the residue classes of the chunk. The last block of a
// chunk adds up the fitness and the weights instead. The bandwidth of the memory limits the
// speed of this kernel.
//
// finish_kernel: a block has 32 dimensions. Its threads add up the sums of the chunks; a warp
// has one residue class of chunks.
#pragma once

#include "search.cuh"

namespace cem_tetris::update {

constexpr int kSumThreads =
    256;  // four blocks fit on a multiprocessor, so some load while one computes
enum Scalar { kFitness, kWeight, kWeightSquared, kScalars };

// Adds up three scalars over a chunk of kChunk elites, and writes the sums to work.scalar. Warp
// 0 adds up the fitness, warp 1 the weights, and warp 2 the squared weights (enum Scalar). All
// threads of a block call the function; the other warps return at once.
//
// The fitness is added in the order of the list of elites; a place is a position in this list,
// and work.index holds the candidate at each place. The weights are added in the order of the
// ranks. Only the valid elites, those that did not fail, count. Without weights every weight is
// 1.
CEM_TETRIS_DEVICE_FUNCTION void sum_scalars(
    const Job& job, const Workspace& work, int64_t problem, int64_t chunk) {
  int scalar = threadIdx.x / kWarp;
  if (scalar >= kScalars) return;
  int64_t valid_elites = count_valid_elites(job, work.search[problem]);
  int64_t first_place = problem * job.settings.elites;  // where this problem's list begins
  int64_t begin = chunk * kChunk;
  int64_t end = min(valid_elites, (chunk + 1) * kChunk);
  // Returns the number that this warp adds up for place or rank p.
  auto number = [&](int64_t p) {
    if (scalar == kFitness) {
      int64_t candidate = work.index[first_place + p];
      return wide_fitness(job, problem * job.settings.population + candidate);
    }
    double w = job.weights ? job.weights[p] : 1.0;
    return scalar == kWeight ? w : w * w;
  };
  double sum = warp_folded(begin, end, number);  // lane 0 gets the sum
  if (threadIdx.x % kWarp == 0) {
    work.scalar[(problem * work.chunks + chunk) * kScalars + scalar] = sum;
  }
}

// Kernel: adds up w x and w x^2 over a chunk of elites. w is the weight of an elite, and x its
// coordinate minus the coordinate of the best elite. The number of dimensions is a multiple of
// kPack, and the rows are aligned to packs. A block has kSumThreads threads, or more if there
// are few blocks.
//
// If the block has eight warps, warp r has the residue classes r, r + 16, r + 8 and r + 24, one
// after the other. In this order a lane can add two sums of the tree r += r + 16, 8, 4, 2, 1 as
// soon as it has both. Sums that wait for their partner are in `part`:
//
//   part[moment and dimension of the pack][height in the tree * threads + thread]
template <typename T, int kPack>
__global__ void __launch_bounds__(kThreads)
    sums_kernel(Job job, Workspace work, int32_t tiles) {
  constexpr int kWidth = kPack * kWarp;        // dimensions of a tile
  constexpr int kAtOnce = kPack == 1 ? 8 : 4;  // packs in flight
  // Half of kThreads = 1024 threads, or two heights of kSumThreads = 256.
  constexpr int kParts = kThreads / 2;
  struct alignas(kPack * sizeof(T)) Pack {
    T value[kPack];
  };
  struct Sums {
    double value[2 * kPack];  // of w x, then of w x^2
  };
  __shared__ double part[2 * kPack][kParts];
  __shared__ double weight[kChunk];
  __shared__ uint32_t index[kChunk];
  const Settings& settings = job.settings;
  int thread = threadIdx.x;
  int threads = blockDim.x;
  int lane = thread % kWarp;
  int warp = thread / kWarp;
  int warps = threads / kWarp;
  int tile = blockIdx.x % unsigned(tiles + 1);
  int chunk_of_all = blockIdx.x / (tiles + 1);
  int chunk = chunk_of_all % work.chunks;
  int64_t problem = chunk_of_all / work.chunks;
  int64_t first = int64_t{chunk} * kChunk;
  const Search& search = work.search[problem];
  int64_t valid_elites = count_valid_elites(job, search);
  int64_t dimensions = settings.dimensions;
  if (first >= valid_elites) return;
  if (tile == tiles) return sum_scalars(job, work, problem, chunk);

  // Load the list of the chunk. Places after the last elite repeat the best candidate, whose x
  // is 0.
  uint32_t best = ~search.best_complement;
  int count = int(min(valid_elites - first, int64_t(kChunk)));
  int64_t list = problem * settings.elites + first;
  for (int p = thread; p < kChunk; p += threads) {
    index[p] = p < count ? uint32_t(work.index[list + p]) : best;
    weight[p] = p < count && work.weight ? work.weight[list + p] : 1.0;
  }
  __syncthreads();

  int64_t left = tile * kWidth + lane * kPack;
  int64_t column = min(left, dimensions - kPack);
  const T* rows = static_cast<const T*>(job.candidates) +
                  problem * settings.population * dimensions + column;
  auto load_pack = [&](uint32_t candidate) {
    return *reinterpret_cast<const Pack*>(rows + candidate * dimensions);
  };
  Pack best_pack = load_pack(best);
  double base[kPack];
  CEM_TETRIS_UNROLL
  for (int j = 0; j < kPack; ++j) base[j] = double(best_pack.value[j]);
  // put() stores a thread's sums in column `place` of `part`, and add() adds that column.
  auto put = [&](int place, const Sums& sums) {
    CEM_TETRIS_UNROLL
    for (int i = 0; i < 2 * kPack; ++i) part[i][place] = sums.value[i];
  };
  auto add = [&](Sums& sums, int place) {
    CEM_TETRIS_UNROLL
    for (int i = 0; i < 2 * kPack; ++i) sums.value[i] += part[i][place];
  };

  Sums sums;
  for (int turn = 0; turn * warps < kResidues; ++turn) {
    sums = {};
    int reversed = int(__brev(turn) >> 27);  // five bits: 0, 16, 8, 24, ...
    for (int p = warp + reversed; p < count; p += kAtOnce * kResidues) {
      Pack pack[kAtOnce];
      CEM_TETRIS_UNROLL
      for (int u = 0; u < kAtOnce; ++u) pack[u] = load_pack(index[p + u * kResidues]);
      CEM_TETRIS_UNROLL
      for (int u = 0; u < kAtOnce; ++u) {
        double w = weight[p + u * kResidues];
        CEM_TETRIS_UNROLL
        for (int j = 0; j < kPack; ++j) {
          double x = double(pack[u].value[j]) - base[j];
          double weighted = w * x;
          sums.value[j] += weighted;
          sums.value[kPack + j] += weighted * x;
        }
      }
    }
    // Bit h of `turn` is set if the sum of height h that this sum is added to is in `part`.
    int height = 0;
    for (; turn >> height & 1; ++height) add(sums, height * threads + thread);
    if ((turn + 1) * warps < kResidues) put(height * threads + thread, sums);
  }
  // The remaining steps of the tree add up the sums of the warps.
  for (int half = threads / 2; half >= kWarp; half /= 2) {
    __syncthreads();
    if (thread >= half && thread < 2 * half) put(thread - half, sums);
    __syncthreads();
    if (thread < half) add(sums, thread);
  }
  if (warp != 0 || left >= dimensions) return;
  CEM_TETRIS_UNROLL
  for (int i = 0; i < 2 * kPack; ++i) {
    int64_t row = (problem * work.chunks + chunk) * 2 + i / kPack;
    work.partial[row * dimensions + left + i % kPack] = sums.value[i];
  }
}

// Kernel: adds up the sums of all chunks, and writes the marginals of 32 dimensions per block.
// Every problem (batch entry) has `tiles` blocks; the first one also writes the problem's
// record. A block has kThreads threads, which are 32 warps.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    finish_kernel(Job job, Workspace work, int32_t tiles) {
  __shared__ double part[2][kResidues][kWarp + 1];
  __shared__ double total[kScalars];
  const Settings& settings = job.settings;
  int lane = threadIdx.x % kWarp;
  int warp = threadIdx.x / kWarp;
  int64_t problem = blockIdx.x / tiles;
  int64_t left = blockIdx.x % tiles * kWarp;
  int64_t dimensions = settings.dimensions;
  int64_t column = left + lane;
  const Search& search = work.search[problem];
  int64_t valid_elites = count_valid_elites(job, search);
  int64_t generation = *job.generation;
  int64_t chunks = (valid_elites + kChunk - 1) / kChunk;
  int64_t first = problem * settings.population;
  int64_t best = valid_elites > 0 ? int64_t(~search.best_complement) : 0;
  double top = valid_elites > 0 ? wide_fitness(job, first + best) : 0.0;
  const double* partial = work.partial + problem * work.chunks * 2 * dimensions;
  const double* scalars = work.scalar + problem * work.chunks * kScalars;

  // First, a warp adds up one residue class of chunks, and each of its lanes one dimension.
  double sum[2] = {0.0, 0.0};
  if (column < dimensions) {
#pragma unroll 4
    for (int64_t chunk = warp; chunk < chunks; chunk += kResidues) {
      sum[0] += partial[chunk * 2 * dimensions + column];
      sum[1] += partial[(chunk * 2 + 1) * dimensions + column];
    }
  }
  part[0][warp][lane] = sum[0];
  part[1][warp][lane] = sum[1];
  if (warp < kScalars) {
    double folded =
        warp_folded(0, chunks, [&](int64_t chunk) { return scalars[chunk * kScalars + warp]; });
    if (lane == 0) total[warp] = folded;
  }
  __syncthreads();
  // Then, a warp adds the residue classes of one dimension; each of its lanes has one class.
  sum[0] = warp_fold(part[0][lane][warp]);
  sum[1] = warp_fold(part[1][lane][warp]);
  __syncthreads();
  if (lane == 0) {
    part[0][0][warp] = sum[0];
    part[1][0][warp] = sum[1];
  }
  __syncthreads();
  // Finally, each lane of warp 0 writes the marginal of one dimension.
  if (warp != 0) return;
  if (column < dimensions) {
    int64_t offset = problem * kRows * dimensions + column;
    T old[kRows];
    for (int row = 0; row < kRows; ++row) {
      old[row] = static_cast<const T*>(job.distribution)[offset + row * dimensions];
    }
    const auto* floors = static_cast<const T*>(job.floors);
    double floor =
        floors ? double(floors[problem * settings.floor_stride + column]) : -HUGE_VAL;
    double known = job.record[problem * kFigures + kBestFitness];
    bool is_new_best = is_better(top, known, settings.maximize);
    write_marginal(job, offset, valid_elites > 0,
        make_weight(settings, total[kWeight], total[kWeightSquared]),
        Moments{part[0][0][lane], part[1][0][lane]},
        static_cast<const T*>(job.candidates)[(first + best) * dimensions + column],
        is_new_best, old, extra_variance_of(job, generation), floor,
        newest_share(settings, generation));
  }
  if (left == 0 && lane == 0) {
    double worst = valid_elites > 0 ? wide_fitness(job, first + search.worst) : 0.0;
    write_record(job, problem, valid_elites, top, total[kFitness], worst, generation);
  }
}

}  // namespace cem_tetris::update
