// The resampling of importance splitting on a GPU (see resampling.h): a block of threads per
// candidate.
//
// Roofline: a block moves about 150 bytes per stream and has a dozen barriers. For 513
// candidates with 264 streams each, the bytes alone would take 5 us on an H200. The kernel
// takes 13 us, because latency limits its speed. The four decisions between two resamplings
// take 800 to 1,100 us. An earlier version with 70 launches of operations on tensors took 230
// us, and left the GPU idle for another 150 us.
#pragma once

#include "resampling.h"
#include "warp.cuh"

namespace tetris {

static_assert(LEVELS == WARP, "a thread of a warp has a level");
constexpr int MOST_RESAMPLING_WARPS = 16;

// One sum per level, in shared memory, of the numbers of at most 2^13 streams. The numbers are
// below 2^51. A sum is stored as three digits of 17 bits each. An atomic addition of 32 bits in
// shared memory is one operation. An addition of 64 bits would be repeated whenever another
// thread has changed the sum in the meantime. That would happen often, because neighbouring
// streams are on few levels.
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
  // The weight of every level: the sum of the whole parts of the weights, and the sum of their
  // fractional parts in units of 2^-40.
  LevelSums whole_weight, fraction;
  double level_weight[LEVELS];  // a stream's share of it determines its number of copies
  int next_position[LEVELS];    // the index in `order` of the next stream of every level
  int warp_position[MOST_RESAMPLING_WARPS][LEVELS];  // the same for the streams of each warp
  int64_t warp_sum[MOST_RESAMPLING_WARPS];           // for `sum` and `running_sum`
};

#if defined(__CUDACC__)
__device__ inline ResamplingMemory& resampling_memory() {
  __shared__ ResamplingMemory memory;
  return memory;
}
#endif

// The resampling of one candidate by a block of threads. All threads of the block call every
// function together.
struct ResamplingBlock {
  Resampling data;  // the streams of this candidate
  ResamplingMemory& memory;
  int thread, threads, lane, warp;

  __device__ ResamplingBlock(const Resampling& all, ResamplingMemory& block_memory)
      : data(all.of_candidate(blockIdx.x)),
        memory(block_memory),
        thread(int(threadIdx.x)),
        threads(int(blockDim.x)),
        lane(thread % WARP),
        warp(thread / WARP) {}

  // Returns the sum of the numbers of all threads of the block.
  __device__ int64_t sum(int64_t value) {
    for (int step = WARP / 2; step > 0; step /= 2) {
      value += __shfl_down_sync(~0u, value, step);
    }
    __syncthreads();  // All threads have read the sums of the previous call.
    if (lane == 0) memory.warp_sum[warp] = value;
    __syncthreads();
    int64_t result = 0;
    for (int w = 0; w < threads / WARP; ++w) result += memory.warp_sum[w];
    return result;
  }

  // Returns the sum of the numbers of all threads up to and including this one.
  __device__ int64_t running_sum(int64_t value) {
    value = inclusive_sum_of_warp(value);
    __syncthreads();
    if (lane == WARP - 1) memory.warp_sum[warp] = value;
    __syncthreads();
    for (int w = 0; w < warp; ++w) value += memory.warp_sum[w];
    return value;
  }

  // Computes the weight of every level, and the position of its first stream if all streams are
  // sorted by level. A stream of games has a weight, and is on one of LEVELS levels according
  // to the height of its stack.
  //
  // All threads of the block call this function. `memory` is the shared memory of the block.
  __device__ void weigh() {
    if (thread < LEVELS) {
      memory.whole_weight.clear(thread);
      memory.fraction.clear(thread);
      memory.next_position[thread] = 0;
    }
    __syncthreads();  // The sums are 0 before any thread adds to them.
    add_streams_to_levels();
    if (thread == 0) replace_counts_by_first_positions();
    // The weight of a level is the mean of its weight over all resamplings so far, or its
    // present weight if that is greater. Thread number `level` computes it.
    if (thread < LEVELS) {
      int level = thread;
      double present = join_weight(memory.whole_weight.of(level), memory.fraction.of(level));
      data.level_sums[level] += present;
      double mean = data.level_sums[level] / data.resamplings;
      memory.level_weight[level] = mean > present ? mean : present;
    }
    __syncthreads();  // All threads read the weights and the positions.
  }

  // Sorts the streams by level: writes their indices to `order`. Also writes `copies_up_to`,
  // the running sum of the streams' numbers of copies in this order.
  //
  // All threads of the block call this function. They handle the streams in rounds, one stream
  // per thread. append_to_order writes the number of copies of each stream to `copies_up_to`.
  __device__ void sort() {
    for (int first = 0; first < data.streams; first += threads) append_to_order(first);
    // Replace the numbers of copies by their running sum.
    int64_t copies_of_earlier_rounds = 0;
    for (int first = 0; first < data.streams; first += threads) {
      int k = first + thread;
      bool exists = k < data.streams;
      int64_t copies = exists ? data.copies_up_to[k] : 0;
      // running_sum returns the sum over the threads up to this one.
      int64_t copies_up_to_k = copies_of_earlier_rounds + running_sum(copies);
      if (exists) data.copies_up_to[k] = copies_up_to_k;
      // After the barrier every thread can read the last sum of this round.
      __syncthreads();
      int end = first + threads < data.streams ? first + threads : data.streams;
      copies_of_earlier_rounds = data.copies_up_to[end - 1];
    }
  }

  // Systematic resampling: chooses for every new stream the old stream that it continues (its
  // source), and writes the source, its board and the new weight. All threads of the block call
  // this function; sum(x) is the sum of x over all of them.
  //
  // Weights are multiples of `unit`, which is 1 until a weight is below 1, and 2^-40 from then
  // on. Their sum is about ALL_WEIGHT.
  __device__ void choose_sources() {
    double unit = *data.unit;
    int64_t weights_below_one = draw_sources();
    if (sum(weights_below_one) > 0) unit = 1 / FRACTION_SCALE;
    if (thread == 0) *data.unit = unit;
    // Round the new weights down to multiples of the unit.
    int64_t all_weight = 0;
    for (int i = thread; i < data.streams; i += threads) {
      data.new_weight[i] = floor(data.new_weight[i] / unit) * unit;
      all_weight += int64_t(data.new_weight[i]);
    }
    double scale = ALL_WEIGHT / double(sum(all_weight));
    copy_boards();
    // Scale the weights. A weight is at least one unit.
    for (int i = thread; i < data.streams; i += threads) {
      double weight = floor(data.new_weight[i] * scale / unit) * unit;
      data.weight[i] = weight > unit ? weight : unit;
    }
  }

  // Chooses the source of every new stream, and computes its weight, which is not scaled or
  // rounded yet. Returns how many of this thread's weights are below 1.
  //
  // Imagine the copies of all streams in a row. As many of them as there are streams are
  // chosen, at equal distances from a random first one. The weight of a stream is divided by
  // how often it is chosen on average.
  __device__ __forceinline__ int64_t draw_sources() {
    int64_t total_copies = data.copies_up_to[data.streams - 1];
    int64_t first_position = data.first_position(total_copies);
    int64_t weights_below_one = 0;
    for (int i = thread; i < data.streams; i += threads) {
      // Positions are multiplied by the number of streams, so that they are integers. k is the
      // index in `order` of the stream to which the copy at this position belongs.
      int k = stream_at(i * total_copies + first_position);
      int64_t source = data.order[k];
      int64_t copies_before = k > 0 ? data.copies_up_to[k - 1] : 0;
      int64_t copies = data.copies_up_to[k] - copies_before;
      double weight = divided_weight(data.weight[source], total_copies, copies, data.streams);
      data.source[i] = source;
      data.new_weight[i] = weight;
      weights_below_one += weight < 1 ? 1 : 0;
    }
    return weights_below_one;
  }

  // Copies the boards of the sources to the new streams, one column per thread. Other threads
  // have written the sources, and barriers have followed.
  __device__ __forceinline__ void copy_boards() {
    for (int k = thread; k < data.streams * data.width; k += threads) {
      int stream = k / data.width;
      int column = k % data.width;
      data.boards[k] = data.columns[data.source[stream] * data.width + column];
    }
  }

 private:
  // Computes the level of every stream, and adds its weight to the sum of this level in shared
  // memory. Also counts the streams of every level, in memory.next_position, from which the
  // positions are computed later. If data.measures_rate is true, adds to data.ended the weights
  // of all games that have ended since the previous resampling, divided by the weight of all
  // streams.
  //
  // The threads of the block share the streams. Whole parts and fractional parts of weights are
  // summed separately, as integers, so that the sums do not depend on the order of the threads.
  __device__ __forceinline__ void add_streams_to_levels() {
    int64_t all_whole = 0, ended_whole = 0, ended_fraction = 0;
    for (int i = thread; i < data.streams; i += threads) {
      int level = stack_level(data.columns + int64_t{i} * data.width, data.width);
      SplitWeight weight(data.weight[i]);
      int64_t ended_games = data.games[i] - data.games_before[i];
      data.level[i] = level;
      memory.whole_weight.add(level, weight.whole);
      if (weight.fraction != 0) memory.fraction.add(level, weight.fraction);
      atomicAdd(&memory.next_position[level], 1);
      all_whole += weight.whole;
      ended_whole += weight.whole * ended_games;
      ended_fraction += weight.fraction * ended_games;
      data.games_before[i] = data.games[i];
    }
    add_ended_share(all_whole, ended_whole, ended_fraction);
  }

  // Adds the share of the weight that belongs to ended games to `ended`. The arguments are the
  // sums of this thread; `sum` adds up those of all threads of the block.
  __device__ __forceinline__ void add_ended_share(
      int64_t all_whole, int64_t ended_whole, int64_t ended_fraction) {
    all_whole = sum(all_whole);
    ended_whole = sum(ended_whole);
    ended_fraction = sum(ended_fraction);
    if (thread == 0 && data.measures_rate) {
      *data.ended += join_weight(ended_whole, ended_fraction) / double(all_whole);
    }
  }

  // One round of a stable counting sort of streams by level. Each thread of the block handles
  // one of the streams `first` to `first + threads - 1`: it writes the index of the stream to
  // its position in `order`, and the number of its copies to `copies_up_to`.
  //
  // The position of a stream is memory.next_position[level], plus the number of streams of this
  // level in earlier warps, plus their number in earlier lanes of its own warp.
  __device__ __forceinline__ void append_to_order(int first) {
    int i = first + thread;
    bool exists = i < data.streams;
    int level = exists ? int(data.level[i]) : LEVELS;  // LEVELS means that there is no stream
    int rank_in_warp = count_streams_of_warp(level, exists);
    if (thread < LEVELS) replace_counts_by_positions(thread);
    __syncthreads();
    if (exists) {
      int position = memory.warp_position[warp][level] + rank_in_warp;
      data.order[position] = i;
      int64_t copies = copies_of(data.weight[i], memory.level_weight[level]);
      data.copies_up_to[position] = copies;
    }
    __syncthreads();
  }

  // Counts the streams of each level in this warp, in warp_position. Returns how many earlier
  // lanes have a stream of the same level as this lane.
  __device__ __forceinline__ int count_streams_of_warp(int level, bool exists) {
    memory.warp_position[warp][lane] = 0;  // each lane clears the count of one level
    __syncthreads();
    unsigned same_level = __match_any_sync(~0u, level);  // the lanes on this lane's level
    unsigned earlier_lanes = (1u << lane) - 1u;
    int rank = __popc(same_level & earlier_lanes);
    // The first lane on a level writes the count.
    if (exists && rank == 0) memory.warp_position[warp][level] = __popc(same_level);
    __syncthreads();
    return rank;
  }

  // Replaces the number of streams of every level, in next_position, by the position of the
  // first of them.
  __device__ __forceinline__ void replace_counts_by_first_positions() {
    int position = 0;
    for (int level = 0; level < LEVELS; ++level) {
      int streams = memory.next_position[level];
      memory.next_position[level] = position;
      position += streams;
    }
  }

  // Replaces the number of each warp's streams of a level by the position of the first of these
  // streams. The streams of one warp follow those of the previous warp.
  __device__ __forceinline__ void replace_counts_by_positions(int level) {
    int position = memory.next_position[level];
    for (int w = 0; w < threads / WARP; ++w) {
      int streams = memory.warp_position[w][level];
      memory.warp_position[w][level] = position;
      position += streams;
    }
    memory.next_position[level] = position;
  }

  // Returns the index in `order` of the stream whose copies cover a position. This is the first
  // k with copies_up_to[k] * streams > position. The function searches by bisection.
  __device__ __forceinline__ int stream_at(int64_t position) const {
    int low = 0, high = data.streams - 1;
    while (low < high) {
      int middle = (low + high) / 2;
      if (data.copies_up_to[middle] * data.streams > position) high = middle;
      else low = middle + 1;
    }
    return low;
  }
};

// Kernel: resamples the streams of all candidates, with one block per candidate.
__global__ void __launch_bounds__(MOST_RESAMPLING_WARPS* WARP)
    resample_streams(const __grid_constant__ Resampling all) {
  ResamplingBlock block(all, resampling_memory());
  block.weigh();
  block.sort();
  block.choose_sources();
}

// Returns the number of threads of a block: one per stream, rounded up to whole warps, but at
// most MOST_RESAMPLING_WARPS warps.
inline int resampling_threads(int64_t streams) {
  int64_t warps = (streams + WARP - 1) / WARP;
  return int(warps < MOST_RESAMPLING_WARPS ? warps : MOST_RESAMPLING_WARPS) * WARP;
}

}  // namespace tetris
