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
  // The weight of every level: the sum of whole parts, and that of fractions in units of 2^-40.
  LevelSums whole_weight, fraction;
  double level_weight[LEVELS];  // what a stream's weight is divided by for its share
  int next_position[LEVELS];    // the index in `order` of the next stream of every level
  int warp_position[MOST_RESAMPLING_WARPS][LEVELS];  // the same for the streams of each warp
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

  // Computes the weight of every level, and where its streams begin when streams are sorted by
  // level.
  //
  // Streams are parallel games. Every stream has a weight and is on one of LEVELS = 32 levels,
  // which says how high its stack is. A block resamples the streams of one candidate; `own` is
  // their data in global memory, and `memory` is the block's shared memory. All threads of the
  // block call this function.
  __device__ void weigh() {
    if (thread < LEVELS) {
      memory.whole_weight.clear(thread);
      memory.fraction.clear(thread);
      memory.next_position[thread] = 0;
    }
    __syncthreads();
    add_streams_to_levels();
    // next_position[level] now is the number of streams of the level. An exclusive prefix sum
    // turns it into the position of the level's first stream in `order`.
    if (thread == 0) {
      int position = 0;
      for (int level = 0; level < LEVELS; ++level) {
        int streams = memory.next_position[level];
        memory.next_position[level] = position;
        position += streams;
      }
    }
    // The weight of a level is its mean over all resamplings, or its present weight if that is
    // greater. Thread number `level` computes it.
    if (thread < LEVELS) {
      int level = thread;
      double present = join_weight(memory.whole_weight.of(level), memory.fraction.of(level));
      own.level_sums[level] += present;
      double mean = own.level_sums[level] / own.resamplings;
      memory.level_weight[level] = mean > present ? mean : present;
    }
    __syncthreads();
  }

  // Sorts the streams by level into `order`, and computes `copies_up_to`, the running sum of
  // their numbers of copies in this order. A stream has more copies the greater its share of
  // the weight of its level is.
  //
  // All threads of the block call this function. They take the streams in rounds of one stream
  // per thread. append_to_order first writes every stream's own number of copies to
  // `copies_up_to`.
  __device__ void sort() {
    for (int first = 0; first < own.streams; first += threads) append_to_order(first);
    // Turn the numbers of copies into their running sum, `threads` of them at a time.
    int64_t copies_of_earlier_rounds = 0;
    for (int first = 0; first < own.streams; first += threads) {
      int k = first + thread;
      bool exists = k < own.streams;
      int64_t copies = exists ? own.copies_up_to[k] : 0;
      int64_t copies_up_to_k = copies_of_earlier_rounds + running_sum(copies);
      if (exists) own.copies_up_to[k] = copies_up_to_k;
      __syncthreads();
      int end = first + threads < own.streams ? first + threads : own.streams;
      copies_of_earlier_rounds = own.copies_up_to[end - 1];
    }
  }

  // Systematic resampling: chooses the stream that every new stream continues, and writes this
  // `source`, its board and the new weight.
  //
  // Imagine the copies of all streams on a line, in the order of `copies_up_to`. As many copies
  // as there are streams are taken, at equal distances from a random first position. A stream
  // is thus taken `copies / total_copies * streams` times on average, and its
  // weight is divided by that number. The weights are then scaled so that their sum is about
  // ALL_WEIGHT. stream_at(position) returns the index in `order` of the stream whose copies
  // cover a position; positions are multiplied by the number of streams, so that they are
  // integers. All threads of the block call this function.
  __device__ void take() {
    // Choose the source of every new stream. k is the index of the source in `order`.
    int64_t total_copies = own.copies_up_to[own.streams - 1];
    int64_t first_position = own.first_position(total_copies);
    double unit = *own.unit;
    int64_t weights_below_one = 0;
    for (int i = thread; i < own.streams; i += threads) {
      int k = stream_at(i * total_copies + first_position);
      int64_t source = own.order[k];
      int64_t copies_before = k > 0 ? own.copies_up_to[k - 1] : 0;
      int64_t copies = own.copies_up_to[k] - copies_before;
      double weight = divided_weight(own.weight[source], total_copies, copies, own.streams);
      own.source[i] = source;
      own.new_weight[i] = weight;
      weights_below_one += weight < 1 ? 1 : 0;
    }
    // Weights are multiples of 1 until one of them is below 1, and of 2^-40 from then on.
    if (sum(weights_below_one) > 0) unit = 1 / FRACTION_SCALE;
    if (thread == 0) *own.unit = unit;
    int64_t all_weight = 0;
    for (int i = thread; i < own.streams; i += threads) {
      own.new_weight[i] = floor(own.new_weight[i] / unit) * unit;
      all_weight += int64_t(own.new_weight[i]);
    }
    // `sum` has barriers, after which the sources that all threads have written can be read.
    double scale = ALL_WEIGHT / double(sum(all_weight));
    for (int k = thread; k < own.streams * own.width; k += threads) {
      int stream = k / own.width;
      int column = k % own.width;
      own.boards[k] = own.columns[own.source[stream] * own.width + column];
    }
    // Scale the weights to the constant sum, rounded down to whole units, but at least one
    // unit.
    for (int i = thread; i < own.streams; i += threads) {
      double weight = floor(own.new_weight[i] * scale / unit) * unit;
      own.weight[i] = weight > unit ? weight : unit;
    }
  }

 private:
  // Computes the level of every stream, and adds the stream's weight and the number 1 to the
  // sums of its level in shared memory: `whole_weight`, `fraction` and `next_position`. Also
  // adds to `ended` the share of the candidate's weight that lies on games that have ended
  // since the last resampling.
  //
  // Weights are summed as integers, so that the sum does not depend on the order of the
  // threads: the whole parts, and the fractional parts in units of 2^-40. `sum` adds up a
  // number of every thread of the block.
  __device__ __forceinline__ void add_streams_to_levels() {
    int64_t all_whole = 0, ended_whole = 0, ended_fraction = 0;
    for (int i = thread; i < own.streams; i += threads) {
      int level = stack_level(own.columns + int64_t{i} * own.width, own.width);
      SplitWeight weight(own.weight[i]);
      int64_t ended_games = own.games[i] - own.games_before[i];
      own.level[i] = level;
      memory.whole_weight.add(level, weight.whole);
      if (weight.fraction != 0) memory.fraction.add(level, weight.fraction);
      atomicAdd(&memory.next_position[level], 1);
      all_whole += weight.whole;
      ended_whole += weight.whole * ended_games;
      ended_fraction += weight.fraction * ended_games;
      own.games_before[i] = own.games[i];
    }
    // From here on these are sums over the streams of all threads.
    all_whole = sum(all_whole);
    ended_whole = sum(ended_whole);
    ended_fraction = sum(ended_fraction);
    if (thread == 0 && own.measures_rate) {
      *own.ended += join_weight(ended_whole, ended_fraction) / double(all_whole);
    }
  }

  // One round of a stable counting sort of streams by level: writes the streams `first` to
  // `first + threads - 1`, one per thread, to their positions in `order`, and the number of
  // copies of each to the same position of `copies_up_to`.
  //
  // memory.next_position[level] is the position of the next stream of a level. A stream's
  // position is that number, plus the number of streams of its level in earlier warps, plus the
  // number in earlier lanes of its own warp.
  __device__ __forceinline__ void append_to_order(int first) {
    int i = first + thread;
    bool exists = i < own.streams;
    int level = exists ? int(own.level[i]) : LEVELS;
    memory.warp_position[warp][lane] = 0;  // a lane clears the count of one level
    __syncthreads();
    // Every warp counts its streams of each level. The first lane with a level writes the
    // count.
    unsigned same_level = __match_any_sync(~0u, level);
    unsigned earlier_lanes = (1u << lane) - 1u;
    int rank_in_warp = __popc(same_level & earlier_lanes);
    if (exists && rank_in_warp == 0) memory.warp_position[warp][level] = __popc(same_level);
    __syncthreads();
    // One thread per level turns the warps' counts into the positions of their first streams.
    if (thread < LEVELS) {
      int position = memory.next_position[thread];
      for (int w = 0; w < threads / WARP; ++w) {
        int streams = memory.warp_position[w][thread];
        memory.warp_position[w][thread] = position;
        position += streams;
      }
      memory.next_position[thread] = position;
    }
    __syncthreads();
    if (exists) {
      int position = memory.warp_position[warp][level] + rank_in_warp;
      own.order[position] = i;
      own.copies_up_to[position] = copies_of(own.weight[i], memory.level_weight[level]);
    }
    __syncthreads();
  }

  // Returns the index in `order` of the stream whose copies cover a position, by bisection: the
  // first k with copies_up_to[k] * streams > position.
  __device__ __forceinline__ int stream_at(int64_t position) const {
    int low = 0, high = own.streams - 1;
    while (low < high) {
      int middle = (low + high) / 2;
      if (own.copies_up_to[middle] * own.streams > position) high = middle;
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
