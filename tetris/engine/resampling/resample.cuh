// The resampling of importance splitting: `StreamWeights.resample` of tetris/play/splitting.py, a block of threads a candidate.
//
// Roofline: some 150 bytes a stream and a dozen barriers. On an H200 513 candidates with 264 streams each would take 5 us by
// their bytes and take 13 us, bound by latency, beside 800 to 1,100 us for the four decisions between two resamplings. As
// 70 launches of operations on whole tensors it took 230 us, and the GPU idled for another 150 us.
#pragma once

#include "resampling.h"
#include "warp.cuh"

namespace tetris {

static_assert(LEVELS == WARP, "a thread of a warp has a level");
constexpr int MOST_RESAMPLING_WARPS = 16;

// Sums by level of numbers below 2^51, of at most 2^13 streams, in three digits: what a GPU adds in shared memory has 32 bits.
// Of 64 bits it would try again whenever another thread has changed the level, and neighbours are on few levels.
struct LevelSums {
  static constexpr int DIGITS = 3, BITS = 17;
  unsigned digits[DIGITS][LEVELS];
  __device__ void clear(int level) {
    for (auto& digit : digits) digit[level] = 0;
  }
  __device__ void add(int level, int64_t value) {
    for (int i = 0; i < DIGITS; ++i)
      atomicAdd(
          &digits[i][level], static_cast<unsigned>(value >> i * BITS) & ((1u << BITS) - 1));
  }
  __device__ int64_t of(int level) const {
    int64_t sum = 0;
    for (int i = 0; i < DIGITS; ++i) sum += static_cast<int64_t>(digits[i][level]) << i * BITS;
    return sum;
  }
};

// What the threads of a block leave for each other.
struct ResamplingMemory {
  LevelSums whole, parts;  // weight of each level
  double most[LEVELS];     // the weight that a stream's is divided by for its share
  int place[LEVELS];       // of a level's next stream, in the order of the levels
  int warp_place[MOST_RESAMPLING_WARPS][LEVELS];
  int64_t warp_sum[MOST_RESAMPLING_WARPS];
};

#if defined(__CUDACC__)
__device__ inline ResamplingMemory& resampling_memory() {
  __shared__ ResamplingMemory memory;
  return memory;
}
#endif

// One candidate's resampling.
struct ResamplingBlock {
  Resampling own;  // pointers moved to the streams of this candidate
  ResamplingMemory& memory;
  int thread, threads, lane, warp;

  __device__ ResamplingBlock(const Resampling& all, ResamplingMemory& m)
      : own(all.of(blockIdx.x)),
        memory(m),
        thread(static_cast<int>(threadIdx.x)),
        threads(static_cast<int>(blockDim.x)),
        lane(thread % WARP),
        warp(thread / WARP) {}

  // The sum of a number of every thread, for all of them.
  __device__ int64_t sum(int64_t value) {
    for (int step = WARP / 2; step > 0; step /= 2) value += __shfl_down_sync(~0u, value, step);
    __syncthreads();  // the last one's sum is read
    if (lane == 0) memory.warp_sum[warp] = value;
    __syncthreads();
    int64_t result = 0;
    for (int w = 0; w < threads / WARP; ++w) result += memory.warp_sum[w];
    return result;
  }

  // The sum of the numbers of all threads up to this one.
  __device__ int64_t running_sum(int64_t value) {
    for (int step = 1; step < WARP; step *= 2) {
      const int64_t lower = __shfl_up_sync(~0u, value, step);
      if (lane >= step) value += lower;
    }
    __syncthreads();
    if (lane == WARP - 1) memory.warp_sum[warp] = value;
    __syncthreads();
    for (int w = 0; w < warp; ++w) value += memory.warp_sum[w];
    return value;
  }

  // Where the streams are, what the levels hold, and what has ended since the last resampling.
  __device__ void weigh() {
    if (thread < LEVELS) {
      memory.whole.clear(thread);
      memory.parts.clear(thread);
      memory.place[thread] = 0;
    }
    __syncthreads();
    int64_t all = 0, ended = 0, ended_parts = 0;
    for (int i = thread; i < own.streams; i += threads) {
      const int level = stack_level(own.columns + int64_t{i} * own.width, own.width);
      const auto whole = static_cast<int64_t>(own.weight[i]);
      const auto parts =
          static_cast<int64_t>((own.weight[i] - static_cast<double>(whole)) * PARTS);
      own.level[i] = level;
      memory.whole.add(level, whole);
      if (parts != 0) memory.parts.add(level, parts);
      atomicAdd(&memory.place[level], 1);
      all += whole;
      ended += whole * (own.games[i] - own.before[i]);
      ended_parts += parts * (own.games[i] - own.before[i]);
      own.before[i] = own.games[i];
    }
    all = sum(all);
    ended = sum(ended);
    ended_parts = sum(ended_parts);
    if (thread == 0) {
      if (own.counts) *own.ended += with_parts(ended, ended_parts) / static_cast<double>(all);
      int below = 0;
      for (int level = 0; level < LEVELS; ++level) {
        const int here = memory.place[level];
        memory.place[level] = below;
        below += here;
      }
    }
    if (thread < LEVELS) {
      const double now = with_parts(memory.whole.of(thread), memory.parts.of(thread));
      own.held[thread] += now;
      const double usual = own.held[thread] / own.count;
      memory.most[thread] = usual > now ? usual : now;
    }
    __syncthreads();
  }

  // Puts the streams in the order of their levels, and sums up how many copies are asked for until each of them.
  __device__ void sort() {
    for (int first = 0; first < own.streams; first += threads) {
      const int i = first + thread;
      const bool there = i < own.streams;
      const int level = there ? static_cast<int>(own.level[i]) : LEVELS;
      memory.warp_place[warp][lane] = 0;
      __syncthreads();
      const unsigned alike = __match_any_sync(~0u, level);
      const int rank = __popc(alike & ((1u << lane) - 1u));
      if (there && rank == 0) memory.warp_place[warp][level] = __popc(alike);
      __syncthreads();
      if (thread < LEVELS) {
        int place = memory.place[thread];
        for (int w = 0; w < threads / WARP; ++w) {
          const int here = memory.warp_place[w][thread];
          memory.warp_place[w][thread] = place;
          place += here;
        }
        memory.place[thread] = place;
      }
      __syncthreads();
      if (there) {
        const int place = memory.warp_place[warp][level] + rank;
        const auto copies = static_cast<int64_t>(own.weight[i] / memory.most[level] * COPIES);
        own.order[place] = i;
        own.until[place] = copies > 1 ? copies : 1;
      }
      __syncthreads();
    }
    int64_t before = 0;
    for (int first = 0; first < own.streams; first += threads) {
      const int i = first + thread;
      const bool there = i < own.streams;
      const int64_t until = before + running_sum(there ? own.until[i] : 0);
      if (there) own.until[i] = until;
      __syncthreads();
      before = own.until[(first + threads < own.streams ? first + threads : own.streams) - 1];
    }
  }

  // Takes as many streams as there are, in proportion to their copies, and divides their weights.
  __device__ void take() {
    const int64_t total = own.until[own.streams - 1];
    const int64_t begin = total * (own.bits & ((1 << RANDOM_BITS) - 1)) >> RANDOM_BITS;
    double unit = *own.unit;
    int64_t small = 0, all = 0;
    for (int i = thread; i < own.streams; i += threads) {
      const int64_t wanted = i * total + begin;
      int low = 0, high = own.streams - 1;
      while (low < high) {
        const int middle = (low + high) / 2;
        if (own.until[middle] * own.streams > wanted) high = middle;
        else low = middle + 1;
      }
      const int64_t source = own.order[low],
                    copies = own.until[low] - (low > 0 ? own.until[low - 1] : 0);
      // In the mean it is taken copies / total x streams times, and its weight is divided by that.
      const double weight = own.weight[source] * static_cast<double>(total) /
                            static_cast<double>(copies * own.streams);
      own.source[i] = source;
      own.after[i] = weight;
      small += weight < 1 ? 1 : 0;
    }
    if (sum(small) > 0) unit = 1 / PARTS;
    if (thread == 0) *own.unit = unit;
    for (int i = thread; i < own.streams; i += threads) {
      own.after[i] = floor(own.after[i] / unit) * unit;
      all += static_cast<int64_t>(own.after[i]);
    }
    const double scale =
        ALL_WEIGHT / static_cast<double>(sum(all));  // all sources have been written by then
    for (int k = thread; k < own.streams * own.width; k += threads)
      own.boards[k] = own.columns[own.source[k / own.width] * own.width + k % own.width];
    for (int i = thread; i < own.streams; i += threads) {
      const double weight = floor(own.after[i] * scale / unit) * unit;
      own.weight[i] = weight > unit ? weight : unit;
    }
  }
};

// A block a candidate, of whole warps.
__global__ void __launch_bounds__(MOST_RESAMPLING_WARPS* WARP)
    resample_streams(const __grid_constant__ Resampling all) {
  ResamplingBlock block(all, resampling_memory());
  block.weigh();
  block.sort();
  block.take();
}

// The threads of a block: one a stream, as far as there are so many.
inline int resampling_threads(int64_t streams) {
  const int64_t warps = (streams + WARP - 1) / WARP;
  return static_cast<int>(warps < MOST_RESAMPLING_WARPS ? warps : MOST_RESAMPLING_WARPS) * WARP;
}

}  // namespace tetris
