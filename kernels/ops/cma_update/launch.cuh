// The operators on CUDA: one block per problem, or per group of a problem's samples.
//
// The latency of three steps limits the speed of the update: ranking a candidate by comparing
// it with all others; the triangular solves, one per thread, for the lengths of the candidates
// with negative weights; and the d pivots, one after the other.
#pragma once

#include "cem_update/launch.cuh"
#include "draw.h"

namespace cem_tetris::cma {

// How many entries of the covariance's triangle a thread of the elimination owns at most: kFew
// for small matrices and kMany for others. A triangle has at most 65 * 32 entries, and 8 * 288
// are enough for it.
constexpr int kFew = 1;
constexpr int kMany = 8;
constexpr int kFewThreads = 256;
constexpr int kManyThreads = 288;
// How many blocks a multiprocessor must have room for, which limits the registers of a thread.
constexpr int kFewBlocks = 4;
constexpr int kManyBlocks = 2;
constexpr int kDrawThreads = 160;
// Up to this many candidates are ranked by counting the better ones. More are sorted.
constexpr int kCounted = 512;

// The row i and the column k of an entry of the lower triangle of a d x d matrix, i >= k. The
// entries are numbered so that threads can share them evenly. Two columns of the triangle, a
// long one and a short one, make up a line of d + 1 entries. Line l has column l, and right of
// it column d - 1 - l, both from the diagonal down. The entries (i, k) for d = 4 are:
//
//     line 0:  | (0, 0)  (1, 0)  (2, 0)  (3, 0) | (3, 3) |
//     line 1:  | (1, 1)  (2, 1)  (3, 1) | (2, 2)  (3, 2) |
//
// The numbers go along line 0, then along line 1, and so on. If d is odd, the middle line has
// the same column twice. is_repeated is true in its right half.
struct TriangleEntry {
  int i, k;
  bool is_repeated;
  static CEM_TETRIS_FUNCTION int numbers(int d) { return (d + 1) / 2 * (d + 1); }
  CEM_TETRIS_DEVICE_FUNCTION TriangleEntry(int number, int d) {
    int line = number / (d + 1);
    int place = number - line * (d + 1);
    // The left column has the places 0 to d - line - 1, and begins with row `line`. The right
    // one has the places from d - line on, and begins with row d - line - 1.
    bool is_left = place < d - line;
    k = is_left ? line : d - 1 - line;
    i = is_left ? line + place : place - 1;
    is_repeated = !is_left && k == line;
  }
};

// The threads of a CUDA block as a team, as adapt() and draw() expect it; its groups are warps.
// kOwned is kFew or kMany, the number of entries of a triangle that a thread owns at most.
template <int kOwned>
struct Block {
  static constexpr int lanes = kWarp;
  int thread = int(threadIdx.x);
  int threads = int(blockDim.x);
  int lane = thread % lanes;
  int group = thread / lanes;
  int groups = threads / lanes;

  CEM_TETRIS_DEVICE_FUNCTION void sync() const { __syncthreads(); }
  CEM_TETRIS_DEVICE_FUNCTION void sync_lanes() const { __syncwarp(); }
  CEM_TETRIS_DEVICE_FUNCTION bool all(bool good) const { return !__syncthreads_or(!good); }
  // Calls store(row, column, load(row, column)) for all entries of a matrix. All threads of the
  // block call the function and share the entries.
  //
  // The lanes of a warp work on neighbouring columns, and the warps on different rows. To hide
  // the latency of memory, a lane issues kAtOnce loads before it stores the first value. It
  // loads them from one column, in rows that are `groups` (the number of warps) apart. Instead
  // of a row beyond the end, the lane loads the last row again and does not store it, so that
  // no load waits for a comparison.
  template <int kAtOnce, typename Load, typename Store>
  CEM_TETRIS_DEVICE_FUNCTION void copy_matrix(
      int rows, int columns, const Load& load, const Store& store) const {
#pragma unroll 1
    for (int column = lane; column < columns; column += lanes) {
#pragma unroll 1
      for (int first_row = group; first_row < rows; first_row += kAtOnce * groups) {
        decltype(load(0, 0)) loaded[kAtOnce];
        CEM_TETRIS_UNROLL
        for (int m = 0; m < kAtOnce; ++m) {
          int row = first_row + m * groups;
          loaded[m] = load(min(row, rows - 1), column);
        }
        CEM_TETRIS_UNROLL
        for (int m = 0; m < kAtOnce; ++m) {
          int row = first_row + m * groups;
          if (row < rows) store(row, column, loaded[m]);
        }
      }
    }
  }
  // Factorises a symmetric d x d matrix a as L D L^T in place, by Gaussian elimination without
  // divisions. Entry a(i, k) is lower[k * stride + i]; only the entries with i >= k, on and
  // below the diagonal, are used. L has ones on its diagonal.
  //
  // Step j of the usual elimination updates every later column k > j:
  //
  //     a(i, k) = a(i, k) - a(i, j) a(k, j) / pivot, where pivot = a(j, j).
  //
  // The pivot is mantissa / scale, where scale is a power of two. To avoid the division, this
  // function computes the right-hand side times the mantissa:
  //
  //     a(i, k) = a(i, k) mantissa - a(i, j) a(k, j) scale.
  //
  // The usual elimination leaves column j of L D in column j. Here the result is greater by the
  // factor products[j], the product of the mantissas of all earlier pivots.
  //
  // All threads of the block call the function. A thread keeps the entries that it owns in
  // registers, and a step updates all of them. The threads that own entries of the next column
  // write these to memory, where all threads read them in the next step.
  CEM_TETRIS_DEVICE_FUNCTION void eliminate(
      const Plan& plan, double* lower, double* products) const {
    int d = plan.dimensions;
    int stride = plan.stride;
    int entries = TriangleEntry::numbers(d);
    OwnEntries own;
    load_entries(plan, entries, lower, own);
    double product = 1.0;          // of the mantissas of the earlier pivots
    const double* column = lower;  // column j of the matrix
#pragma unroll 1
    for (int j = 0; j < d; ++j, column += stride) {
      // The factors a(i, j) and a(k, j) of the thread's entries (i, k).
      double factor_k[kOwned];
      double factor_i[kOwned];
      for_each_own_entry(entries, [&](int m) {
        factor_k[m] = column[own.k[m]];
        factor_i[m] = column[own.i[m]];
      });
      Pivot pivot(column[j]);
      if (thread == j) products[j] = product;
      product *= pivot.mantissa;
      for_each_own_entry(entries, [&](int m) {
        double& entry = own.value[m];
        entry = entry * pivot.mantissa - factor_i[m] * (factor_k[m] * pivot.scale);
        bool is_in_next_column = own.k[m] == j + 1;
        if (is_in_next_column) *own.address[m] = entry;
      });
      // The next step reads column j + 1, which several threads have written.
      __syncthreads();
    }
  }

 private:
  // The entries (i, k) of a matrix that a thread owns: row i, column k, address and value of at
  // most kOwned of them. The address is computed once, before the elimination. Without this
  // array, ptxas would compute it from the indices in every step, which is slow.
  struct OwnEntries {
    int i[kOwned];
    int k[kOwned];
    double value[kOwned];
    double* address[kOwned];
  };

  // Calls f(m) for every entry that the thread owns; m numbers the thread's entries. The
  // triangle has `entries` entries. The first four of a thread always count; if it has fewer,
  // the others are entry (0, 0). Whether it has later ones is decided for two at a time, which
  // saves half of the comparisons.
  template <typename F>
  CEM_TETRIS_DEVICE_FUNCTION void for_each_own_entry(int entries, const F& f) const {
    CEM_TETRIS_UNROLL
    for (int m = 0; m < kOwned; ++m) {
      int pair = m & ~1;  // the first entry of the pair: 4, 4, 6, 6 for m = 4 to 7
      if (m < 4 || pair * threads < entries) f(m);
    }
  }

  // Loads the entries that this thread owns from `lower`, where entry (i, k) is
  // lower[k * stride + i]. The entries on and below the diagonal are numbered, see
  // TriangleEntry, and thread t owns the numbers t, t + threads, t + 2 threads, and so on.
  //
  // A number beyond the last entry, or with an entry that another number has, stands for entry
  // (0, 0): several threads then compute this entry, with the same result.
  CEM_TETRIS_DEVICE_FUNCTION void load_entries(
      const Plan& plan, int entries, double* lower, OwnEntries& own) const {
    int d = plan.dimensions;
    for_each_own_entry(entries, [&](int m) {
      int number = thread + m * threads;
      TriangleEntry entry(number, d);
      own.i[m] = entry.i;
      own.k[m] = entry.k;
      if (number >= entries || entry.is_repeated) own.i[m] = own.k[m] = 0;
      own.address[m] = &lower[own.k[m] * plan.stride + own.i[m]];
      own.value[m] = *own.address[m];
    });
  }
};

// Returns how many doubles of shared memory the fitness and the order of the candidates take: 8
// and 2 bytes per candidate, for a multiple of 8 candidates.
CEM_TETRIS_FUNCTION int64_t list_doubles(int64_t population) {
  return (population + 7) / 8 * 10;
}

// Returns how many entries the sort of the candidates has: a power of two that is at least the
// population.
CEM_TETRIS_FUNCTION int64_t sort_entries(int64_t population) {
  int64_t count = 2;
  while (count < population) count *= 2;
  return count;
}

// Returns the rank of candidate i: how many candidates are better. Their keys are smaller, or
// equal with a lower index.
CEM_TETRIS_DEVICE_FUNCTION int count_better(const uint64_t* keys, int population, int i) {
  uint64_t key = keys[i];
  int rank = 0;
  int j = 0;
#pragma unroll 8
  for (; j < i; ++j) rank += (keys[j] <= key);
#pragma unroll 8
  for (; j < population; ++j) rank += (keys[j] < key);
  return rank;
}

// Ranks the candidates of one problem (batch entry) by fitness. order[r] becomes the index of
// the candidate of rank r, and value[r] its fitness; rank 0 is the best candidate. Of
// candidates with equal fitness, the one with the lower index comes first. Returns how many
// candidates did not fail. A candidate fails if its fitness is NaN or the infinity on the bad
// side. Failed candidates come last.
//
// A key is an unsigned integer that orders the candidates, the best one first. Up to kCounted
// candidates are ranked by a comparison of every key with all others. More candidates are
// sorted.
//
// All threads of a block call the function together. `memory` is scratch memory of two doubles
// for each of sort_entries(population) entries.
CEM_TETRIS_DEVICE_FUNCTION int rank_candidates(
    const Job& job, int64_t problem, uint16_t* order, double* value, double* memory) {
  __shared__ int valid_candidates;
  int population = int(job.settings.population);
  int thread = int(threadIdx.x);
  int threads = int(blockDim.x);
  int64_t first = problem * population;
  // Writes the candidate with index i to its rank. Valid candidates come first, so the greatest
  // rank of one, plus 1, is their number.
  auto write_rank = [&](int rank, int i, uint64_t key) {
    order[rank] = uint16_t(i);
    value[rank] = wide_fitness(job, first + i);
    if (!has_failed(job, key)) atomicMax(&valid_candidates, rank + 1);
  };
  if (thread == 0) valid_candidates = 0;
  if (population <= kCounted) {
    auto* keys = reinterpret_cast<uint64_t*>(memory);
    for (int i = thread; i < population; i += threads) keys[i] = wide_key(job, first + i);
    __syncthreads();  // Every thread reads all keys.
    for (int i = thread; i < population; i += threads) {
      int rank = count_better(keys, population, i);
      write_rank(rank, i, keys[i]);
    }
  } else {
    // An entry is a key and the index of its candidate. Entries beyond the population have the
    // largest key, and so are sorted to the end.
    auto* entry = reinterpret_cast<Entry<uint64_t>*>(memory);
    int count = int(sort_entries(population));
    for (int i = thread; i < count; i += threads) {
      uint64_t key = i < population ? wide_key(job, first + i) : ~0ull;
      entry[i] = {key, /*place=*/uint64_t(i)};
    }
    __syncthreads();
    sort(entry, count);
    __syncthreads();
    for (int rank = thread; rank < population; rank += threads)
      write_rank(rank, int(entry[rank].place), entry[rank].key);
  }
  __syncthreads();  // The ranks of all candidates have been written.
  return valid_candidates;
}

// Kernel: updates the distribution of one problem (batch entry) per block. It ranks the
// candidates by fitness, then adapts mean, covariance and evolution paths. A thread owns at
// most kOwned entries of the covariance's triangle. The launch bounds are the threads of a
// block, and the blocks that a multiprocessor must have room for. The first two calls let the
// kernels of a stream overlap: a kernel is set up while the previous one still runs.
//
// The dynamic shared memory has three parts: the fitness of the candidates from best to worst
// (doubles), their indices (uint16_t), and scratch memory for both steps.
template <typename T, int kOwned>
__global__ void __launch_bounds__(kOwned == kFew ? kFewThreads : kManyThreads,
    kOwned == kFew ? kFewBlocks : kManyBlocks) adapt_kernel(const __grid_constant__ Call call) {
  wait_for_previous_kernel();
  allow_next_kernel();
  int64_t population = call.job.settings.population;
  double* value = dynamic_shared();
  auto* order = reinterpret_cast<uint16_t*>(value + population);
  double* memory = value + list_doubles(population);
  int valid_candidates = rank_candidates(call.job, blockIdx.x, order, value, memory);
  adapt<T>(Block<kOwned>(), call, blockIdx.x, order, value, valid_candidates, memory);
}

// Kernel: draws one group of samples of one problem per block.
template <typename T>
__global__ void __launch_bounds__(kDrawThreads) draw_kernel(const __grid_constant__ Draw call) {
  wait_for_previous_kernel();
  draw<T>(Block<kFew>(), call, blockIdx.x, dynamic_shared());
}

// Chooses call.plan, the sizes of the arrays in a block's shared memory, and allows the kernel
// to have this memory. Returns its size in bytes.
//
// A block works on a chunk of the candidates at a time. The chunk should have as many
// candidates as the block has threads. While the shared memory cannot hold that many, the chunk
// gets 8 candidates (kMostSlices) fewer.
template <typename Gpu, typename Kernel>
int64_t plan_memory(const Gpu& gpu, Kernel* kernel, int threads, Call& call) {
  int64_t population = call.job.settings.population;
  // Both steps of the kernel, the sort of the candidates and the update, use the same scratch
  // memory, one after the other. An entry of the sort takes two doubles.
  int64_t sort_doubles = 2 * sort_entries(population);
  int64_t bytes = 0;
  for (int chunk = threads; chunk >= kMostSlices; chunk -= kMostSlices) {
    call.plan = Plan(call.plan.dimensions, population, /*most_candidates=*/chunk);
    int64_t scratch_doubles = std::max(call.plan.doubles(), sort_doubles);
    bytes = (list_doubles(population) + scratch_doubles) * sizeof(double);
    bool fits = bytes <= kPlainMemory || gpu.try_dynamic_memory(kernel, bytes);
    if (fits) break;
  }
  return bytes;
}

// Launches the update of all problems (batch entries), with one block per problem. If there are
// no problems, only the generation advances. The last parameter, the device for scratch
// tensors, has no name, because the kernel needs none.
//
// The entries of the covariance's lower triangle are shared by the threads of a block. There
// are four kernels, for two types and two sizes: a thread owns kFew = 1 entry if there are at
// most kFewThreads entries, and up to kMany = 8 otherwise.
template <typename Gpu>
void launch(const Gpu& gpu, Call call, Device) {
  int64_t problems = call.job.settings.problems;
  if (problems == 0)
    return gpu.launch(advance_kernel, /*blocks=*/1, /*threads=*/1, /*bytes=*/0, call.job);
  bool is_small = TriangleEntry::numbers(call.plan.dimensions) <= kFewThreads;
  int threads = is_small ? kFewThreads : kManyThreads;
  auto* kernel = is_small ? adapt_kernel<double, kFew> : adapt_kernel<double, kMany>;
  if (call.job.type == Number::Float) {
    kernel = is_small ? adapt_kernel<float, kFew> : adapt_kernel<float, kMany>;
  }
  int64_t bytes = plan_memory(gpu, kernel, threads, call);
  gpu.launch_early(kernel, problems, threads, bytes, call);
}

// Launches the kernel that draws the samples of all problems, with one block per group of
// samples. It needs no scratch tensors, so the device for them has no name.
template <typename Gpu>
void launch(const Gpu& gpu, const Draw& call, Device) {
  auto* kernel = call.type == ScalarType::Float ? draw_kernel<float> : draw_kernel<double>;
  int64_t bytes = call.doubles() * sizeof(double);
  gpu.launch_early(kernel, call.problems * call.groups, kDrawThreads, bytes, call);
}

}  // namespace cem_tetris::cma
