// The resampling of importance splitting on a GPU (see resampling.h): a block of threads per
// candidate.
//
// Roofline: some 150 bytes a stream and a dozen barriers. On an H200 513 candidates with 264
// streams each would take 5 us by their bytes and take 13 us, bound by latency, beside 800 to
// 1,100 us for the four decisions between two resamplings. As 70 launches of operations on
// whole tensors it took 230 us, and the GPU idled for another 150 us.
#pragma once

#include "resampling.h"
#include "warp.cuh"

namespace tetris {

static_assert(LEVELS == WARP, "a thread of a warp has a level");
constexpr int MOST_RESAMPLING_WARPS = 16;

// Sums by level of numbers below 2^51, of at most 2^13 streams. A sum is kept in three digits
// of 17 bits, because shared memory adds numbers of 32 bits in one operation. One of 64 bits is
// tried again whenever another thread has changed the level, and neighbours are on few levels.
struct LevelSums {
  static constexpr int DIGITS = 3;
  static constexpr int BITS = 17;
  unsigned digits[DIGITS][LEVELS];
  __device__ void clear(int level) {
    for (auto& digit : digits) digit[level] = 0;
  }
  __device__ void add(int level, int64_t value) {
    for (int i = 0; i < DIGITS; ++i) {
      unsigned digit = unsigned(value >> i * BITS) & ((1u << BITS) - 1);
      atomicAdd(&digits[i][level], digit);
    }
  }
  __device__ int64_t of(int level) const {
    int64_t sum = 0;
    for (int i = 0; i < DIGITS; ++i) sum += int64_t(digits[i][level]) << i * BITS;
    return sum;
  }
};

// The shared memory of a block.
struct ResamplingMemory {
  LevelSums whole, parts;       // the weight of each level
  double level_weight[LEVELS];  // what a stream's weight is divided by for its share
  int place[LEVELS];            // in the order of the levels, of the next stream of each level
  int warp_place[MOST_RESAMPLING_WARPS][LEVELS];  // the same for the streams of each warp
  int64_t warp_sum[MOST_RESAMPLING_WARPS];
};

#if defined(__CUDACC__)
__device__ inline ResamplingMemory& resampling_memory() {
  __shared__ ResamplingMemory memory;
  return memory;
}
#endif

// One candidate's resampling. All threads of the block call each function.
struct ResamplingBlock {
  Resampling own;  // the streams of this candidate
  ResamplingMemory& memory;
  int thread, threads, lane, warp;

  __device__ ResamplingBlock(const Resampling& all, ResamplingMemory& block_memory)
      : own(all.of_candidate(blockIdx.x)),
        memory(block_memory),
        thread(int(threadIdx.x)),
        threads(int(blockDim.x)),
        lane(thread % WARP),
        warp(thread / WARP) {}

  // Returns the sum of the numbers of all threads.
  __device__ int64_t sum(int64_t value) {
    for (int step = WARP / 2; step > 0; step /= 2) {
      value += __shfl_down_sync(~0u, value, step);
    }
    __syncthreads();  // All have read the sums of the last call.
    if (lane == 0) memory.warp_sum[warp] = value;
    __syncthreads();
    int64_t result = 0;
    for (int w = 0; w < threads / WARP; ++w) result += memory.warp_sum[w];
    return result;
  }

  // Returns the sum of the numbers of all threads up to this one.
  __device__ int64_t running_sum(int64_t value) {
    value = inclusive_sum_of_warp(value);
    __syncthreads();
    if (lane == WARP - 1) memory.warp_sum[warp] = value;
    __syncthreads();
    for (int w = 0; w < warp; ++w) value += memory.warp_sum[w];
    return value;
  }

  // Computes the level of each stream; the weight of each level, and the place in `order` of its
  // first stream; and the weight of the games that have ended since the last resampling.
  __device__ void weigh() {
    if (thread < LEVELS) {
      memory.whole.clear(thread);
      memory.parts.clear(thread);
      memory.place[thread] = 0;
    }
    __syncthreads();
    weigh_streams();
    if (thread == 0) {
      // `place` has the number of streams of each level, and becomes the place of the first of
      // them.
      int below = 0;
      for (int level = 0; level < LEVELS; ++level) {
        int streams = memory.place[level];
        memory.place[level] = below;
        below += streams;
      }
    }
    if (thread < LEVELS) {
      double now = with_parts(memory.whole.of(thread), memory.parts.of(thread));
      own.held[thread] += now;
      double mean = own.held[thread] / own.count;
      memory.level_weight[thread] = mean > now ? mean : now;
    }
    __syncthreads();
  }

  // Writes the streams to `order`, sorted by their levels, and to `until` the running sum of their
  // copies in this order. The threads go over the streams in rounds of `threads` streams.
  // place_streams writes how many copies each stream has, and running_sum adds them up; `before`
  // is the number of copies in earlier rounds.
  __device__ void sort() {
    for (int first = 0; first < own.streams; first += threads) place_streams(first);
    int64_t before = 0;
    for (int first = 0; first < own.streams; first += threads) {
      int i = first + thread;
      bool exists = i < own.streams;
      int64_t until = before + running_sum(exists ? own.until[i] : 0);
      if (exists) own.until[i] = until;
      __syncthreads();
      int end = first + threads < own.streams ? first + threads : own.streams;
      before = own.until[end - 1];
    }
  }

  // Takes as many copies as there are streams, at equal distances among all copies, and writes the
  // streams that they belong to, their boards and their new weights. A weight is divided by how
  // often its stream is taken in the mean. The sum of the weights is then scaled to about
  // ALL_WEIGHT, and each weight is rounded down to whole units.
  __device__ void take() {
    int64_t total = own.until[own.streams - 1];
    int64_t first_position = own.first_position(total);
    double unit = *own.unit;
    int64_t below_one = 0;
    for (int i = thread; i < own.streams; i += threads) {
      int k = stream_at(i * total + first_position);
      int64_t source = own.order[k];
      int64_t copies = own.until[k] - (k > 0 ? own.until[k - 1] : 0);
      double weight = divided_weight(own.weight[source], total, copies, own.streams);
      own.source[i] = source;
      own.after[i] = weight;
      below_one += weight < 1 ? 1 : 0;
    }
    if (sum(below_one) > 0) unit = 1 / PARTS;
    if (thread == 0) *own.unit = unit;
    int64_t all = 0;
    for (int i = thread; i < own.streams; i += threads) {
      own.after[i] = floor(own.after[i] / unit) * unit;
      all += int64_t(own.after[i]);
    }
    // After the barriers of this sum all sources are written.
    double scale = ALL_WEIGHT / double(sum(all));
    for (int k = thread; k < own.streams * own.width; k += threads) {
      int stream = k / own.width;
      int column = k % own.width;
      own.boards[k] = own.columns[own.source[stream] * own.width + column];
    }
    for (int i = thread; i < own.streams; i += threads) {
      double weight = floor(own.after[i] * scale / unit) * unit;
      own.weight[i] = weight > unit ? weight : unit;
    }
  }

 private:
  // Adds the streams to their levels: their weights to `whole` and `parts`, their number to
  // `place`.
  __device__ __forceinline__ void weigh_streams() {
    int64_t all = 0, ended = 0, ended_parts = 0;
    for (int i = thread; i < own.streams; i += threads) {
      int level = stack_level(own.columns + int64_t{i} * own.width, own.width);
      SplitWeight weight(own.weight[i]);
      int64_t ended_games = own.games[i] - own.before[i];
      own.level[i] = level;
      memory.whole.add(level, weight.whole);
      if (weight.parts != 0) memory.parts.add(level, weight.parts);
      atomicAdd(&memory.place[level], 1);
      all += weight.whole;
      ended += weight.whole * ended_games;
      ended_parts += weight.parts * ended_games;
      own.before[i] = own.games[i];
    }
    all = sum(all);
    ended = sum(ended);
    ended_parts = sum(ended_parts);
    if (thread == 0 && own.counts) *own.ended += with_parts(ended, ended_parts) / double(all);
  }

  // Writes streams first to first + threads - 1, one per thread, to their places in `order`, and
  // their numbers of copies to `until`. Streams of the same level keep their order. The place of a
  // stream is therefore the sum of three numbers: the next free place of its level; how many
  // streams of this level are in earlier warps; and how many are in earlier lanes of its own warp.
  __device__ __forceinline__ void place_streams(int first) {
    int i = first + thread;
    bool exists = i < own.streams;
    int level = exists ? int(own.level[i]) : LEVELS;
    memory.warp_place[warp][lane] = 0;
    __syncthreads();
    unsigned same_level = __match_any_sync(~0u, level);
    unsigned earlier_lanes = (1u << lane) - 1u;
    int rank = __popc(same_level & earlier_lanes);
    if (exists && rank == 0) memory.warp_place[warp][level] = __popc(same_level);
    __syncthreads();
    if (thread < LEVELS) {
      int place = memory.place[thread];
      for (int w = 0; w < threads / WARP; ++w) {
        int streams = memory.warp_place[w][thread];
        memory.warp_place[w][thread] = place;
        place += streams;
      }
      memory.place[thread] = place;
    }
    __syncthreads();
    if (exists) {
      int place = memory.warp_place[warp][level] + rank;
      own.order[place] = i;
      own.until[place] = copies_of(own.weight[i], memory.level_weight[level]);
    }
    __syncthreads();
  }

  // Returns the index in `order` of the stream whose copies cover a position, by bisection: the
  // first k with until[k] * streams > position.
  __device__ __forceinline__ int stream_at(int64_t position) const {
    int low = 0, high = own.streams - 1;
    while (low < high) {
      int middle = (low + high) / 2;
      if (own.until[middle] * own.streams > position) high = middle;
      else low = middle + 1;
    }
    return low;
  }
};

// A block per candidate, of all threads of some warps.
__global__ void __launch_bounds__(MOST_RESAMPLING_WARPS* WARP)
    resample_streams(const __grid_constant__ Resampling all) {
  ResamplingBlock block(all, resampling_memory());
  block.weigh();
  block.sort();
  block.take();
}

// Returns the number of threads of a block: one per stream, up to the most.
inline int resampling_threads(int64_t streams) {
  int64_t warps = (streams + WARP - 1) / WARP;
  return int(warps < MOST_RESAMPLING_WARPS ? warps : MOST_RESAMPLING_WARPS) * WARP;
}

}  // namespace tetris
