// Seven queues of streams in shared memory, one for every piece. A stream waits in the queue of
// the piece that it has to place. A stream is a sequence of games on one board: when a game
// ends, the next one begins.
//
// The warps of a block put streams into the queues and take them out without a lock. A warp
// takes streams that wait for the same piece, so that all its threads run the same code.
// Otherwise the threads whose piece has few placements would wait for the threads whose piece
// has many. The warps of a group also take streams that wait for the same piece. There is one
// exception: if the block has only one group, and too few streams wait for one piece, the warps
// of the group may take different pieces.
#pragma once

#include "pieces.h"
#include "warp.cuh"

namespace tetris {

constexpr int MAX_WARPS = 32;  // a block has at most this many warps
// A block has at most this many groups of warps. A multiprocessor has four schedulers, and
// scheduler w % 4 issues the instructions of warp w.
constexpr int MAX_WARP_GROUPS = 4;

// A group of warps of a block that run the same code at nearly the same time, so that each
// instruction is fetched once for all of them. Separate warps would spend most of their time
// waiting for instructions.
struct WarpGroup {
  int size;   // the number of warps of the group
  int index;  // the index of the group in the block
  int rank;   // the index of this warp in the group
  // Divides the warps of a block into `count` groups of equal size. Warp w is in group w %
  // count, so that the warps of a group are spread over few schedulers.
  __device__ explicit WarpGroup(int count)
      : size(int(blockDim.x / WARP) / count),
        index(int(threadIdx.x / WARP) % count),
        rank(int(threadIdx.x / WARP) / count) {}
  __device__ bool is_only_one() const { return size * WARP == int(blockDim.x); }
  __device__ void wait() const { barrier(1 + index, size * WARP); }
};

// The queues. Each queue is a ring buffer of `capacity` entries. The entries follow this struct
// in memory, queue after queue. An entry is the number of a stream, or EMPTY.
//
// A warp first reserves entries, by increasing `tail` (to put) or `head` (to take), and then
// writes or reads them. So a warp that takes may have to wait until its entry has been written,
// and a warp that puts until the entry's stream of the previous round has been taken.
struct alignas(16) PieceQueues {
  static constexpr uint16_t EMPTY = 0xFFFF;
  uint32_t capacity;  // a power of two below 2^16, at least the number of streams of the block
  // How many entries have been reserved for taking (head) and for putting (tail), modulo 2^32.
  uint32_t head[PIECES], tail[PIECES];
  uint32_t unfinished;  // the number of streams that still have decisions to make
  // The streams that one warp takes at a time. They are consecutive entries of one queue.
  struct Batch {
    uint32_t first;  // index of the first entry, modulo 2^32
    uint16_t count;  // the number of streams
    uint16_t piece;  // the piece that all of them wait for
  };
  // Every warp's present batch and its previous one, which a slow warp may still read.
  Batch batches[2][MAX_WARPS];
  uint32_t arrivals[MAX_WARP_GROUPS];  // how often warps of the group have called `take`

  // Returns the size of the queues with their entries, in bytes.
  static constexpr int bytes(int capacity) {
    return int(sizeof(PieceQueues)) + PIECES * capacity * int(sizeof(uint16_t));
  }

  // Empties the queues. All threads of the block call this function; a barrier has to follow.
  __device__ void clear(uint32_t entries_per_queue, uint32_t streams) {
    for (uint32_t i = threadIdx.x; i < PIECES * entries_per_queue; i += blockDim.x) {
      entries()[i] = EMPTY;
    }
    if (threadIdx.x == 0) capacity = entries_per_queue;
    if (threadIdx.x < PIECES) head[threadIdx.x] = tail[threadIdx.x] = 0;
    if (threadIdx.x < MAX_WARP_GROUPS) arrivals[threadIdx.x] = 0;
    if (threadIdx.x == 0) unfinished = streams;
  }

  // Puts streams into the queues. Every lane of a warp whose `is_waiting` is true adds its
  // `stream` to the queue of `piece`. All 32 lanes of the warp have to call this function.
  //
  // A queue is a ring buffer in shared memory. A lane first reserves an entry by increasing
  // tail[piece], and may write it as soon as it is EMPTY.
  __device__ void put(bool is_waiting, int stream, int piece) {
    // Make this lane's changes to the stream visible before another warp can take the stream.
    __threadfence_block();
    unsigned waiting = __ballot_sync(~0u, is_waiting);
    if (!is_waiting) return;
    // The first of the lanes with the same piece, the leader, reserves consecutive entries for
    // all of them with one atomic addition.
    int lane = threadIdx.x % 32;
    unsigned same_piece = __match_any_sync(waiting, piece);
    int leader = __ffs(same_piece) - 1;
    uint32_t first_index = 0;
    if (lane == leader) first_index = atomicAdd(&tail[piece], __popc(same_piece));
    first_index = __shfl_sync(same_piece, first_index, leader);
    // Every lane gets one entry, in the order of the lanes.
    unsigned earlier_lanes = same_piece & ((1u << lane) - 1);
    uint16_t* reserved = entry(piece, first_index + __popc(earlier_lanes));
    // The entry may still hold an older stream, which another warp is just taking out. Wait
    // until it is EMPTY.
    while (atomicCAS(reserved, EMPTY, uint16_t(stream)) != EMPTY) continue;
  }

  // Takes streams that wait for the same piece out of the queues, and waits while all queues
  // are empty. The warps of a group call this function together, once per round. Returns false
  // once all streams are finished.
  //
  // Sets `piece` to the piece of this warp's streams, and `stream` to this thread's stream, or
  // to -1 if it gets none. THREADS neighbouring threads get the same stream.
  template <int THREADS>
  __device__ bool take(const WarpGroup& group, int& stream, int& piece) {
    const int lane = threadIdx.x % WARP;
    constexpr int STREAMS_PER_WARP = WARP / THREADS;
    uint32_t warps = group.size;
    uint32_t arrival = count_arrival(group);  // warps that arrived before, in all rounds
    uint32_t round = arrival / warps;
    bool is_last_of_round = arrival % warps == warps - 1;
    // A batch is the streams of one warp. Two sets of batches alternate, because a slow warp
    // may still read its batch of the previous round.
    Batch* group_batches = batches[round % 2] + group.index * group.size;
    // The last warp to arrive reserves a batch for every warp of the group. By then no warp of
    // the group is in `put` any more, where it might wait for an entry that it has to empty
    // itself.
    if (is_last_of_round) reserve(group, group_batches, STREAMS_PER_WARP);
    group.wait();
    // The first batch.count lanes take one stream each, and pass it to THREADS lanes.
    Batch batch = group_batches[group.rank];
    piece = batch.piece;
    stream = -1;
    if (lane < batch.count) stream = take_entry(entry(piece, batch.first + uint32_t(lane)));
    if (THREADS > 1) stream = __shfl_sync(~0u, stream, lane / THREADS);
    // The fence makes the changes of other warps to these streams visible.
    __syncwarp();
    __threadfence_block();
    // `reserve` fills the first batch of a group, except when all streams are finished.
    return group_batches[0].count > 0;
  }

  // Reduces the number of unfinished streams by `count`. All lanes of a warp call it with the
  // same count.
  __device__ void finish(int count) {
    if (count > 0 && threadIdx.x % 32 == 0) atomicSub(&unfinished, uint32_t(count));
  }

 private:
  // Counts the arrival of this warp in `take`. Returns how many warps of the group, in all
  // rounds, have arrived before it.
  __device__ uint32_t count_arrival(const WarpGroup& group) {
    const int lane = threadIdx.x % WARP;
    uint32_t arrival_of_lane_0 = lane == 0 ? atomicAdd(&arrivals[group.index], 1u) : 0u;
    return __shfl_sync(~0u, arrival_of_lane_0, 0);
  }

  // Returns whether all streams are finished. All lanes of a warp get the same answer.
  __device__ bool all_finished() { return !__any_sync(~0u, atomicAdd(&unfinished, 0) > 0); }

  __device__ uint16_t* entries() { return reinterpret_cast<uint16_t*>(this + 1); }
  __device__ uint16_t* entry(int piece, uint32_t index) {
    return entries() + piece * capacity + (index & (capacity - 1));
  }

  // Takes the stream out of a reserved entry and leaves the entry EMPTY. If the entry has not
  // been written yet, waits for that; another warp is about to write it.
  __device__ static int take_entry(uint16_t* reserved) {
    uint16_t stream;
    do stream = atomicCAS(reserved, EMPTY, EMPTY);
    while (stream == EMPTY || atomicCAS(reserved, stream, EMPTY) != stream);
    return stream;
  }

  // A queue at some time: the piece for which its streams wait, the index of its first entry,
  // and the number of its entries.
  struct QueueState {
    int piece;
    uint32_t first, length;
  };
  // Returns the longest queue. All lanes of a warp call the function, and get the same result.
  //
  // Queue p holds the entries from head[p] to tail[p]; an atomic addition of 0 reads the newest
  // value. Lane p < 7 computes 8 * length + p, so the maximum over the warp contains both the
  // length and the piece of the longest queue.
  __device__ QueueState find_longest_queue() {
    const int lane = threadIdx.x % WARP;
    bool has_queue = lane < PIECES;
    uint32_t first = has_queue ? atomicAdd(&head[lane], 0) : 0;
    uint32_t length = has_queue ? atomicAdd(&tail[lane], 0) - first : 0;
    uint32_t length_and_piece = greatest_of_warp(has_queue ? length << 3 | lane : 0);
    int piece = int(length_and_piece & 7);
    return {piece, __shfl_sync(~0u, first, piece), length_and_piece >> 3};
  }

  // Reserves a batch of streams for each warp of a group, and writes the batches to
  // `group_batches`. All lanes of one warp call this function together.
  //
  // A batch is at most `batch_capacity` consecutive entries of one queue. All batches come from
  // the longest of the seven queues, and warps for which it is too short get empty batches.
  // Only if the block has no other group do these warps get batches from other queues. If all
  // queues are empty, the function waits until streams are put back. Once all streams are
  // finished, all batches are empty.
  __device__ void reserve(const WarpGroup& group, Batch* group_batches, int batch_capacity) {
    const int lane = threadIdx.x % WARP;
    int filled = 0;  // the number of warps that have a batch
    while (filled < group.size && (filled == 0 || group.is_only_one())) {
      QueueState queue = find_longest_queue();
      uint32_t wanted = (group.size - filled) * batch_capacity;
      int count = int(min(queue.length, wanted));
      if (count == 0) {
        // All queues are empty. Wait for other warps to put streams back, unless some warps
        // already have a batch or all streams are finished.
        if (filled > 0 || all_finished()) break;
        __nanosleep(100);
        continue;
      }
      // Lane 0 reserves the entries by increasing the head of the queue. If another group has
      // changed it in the meantime, all lanes try again.
      bool has_reserved = lane == 0 && atomicCAS(&head[queue.piece], queue.first,
                                           queue.first + count) == queue.first;
      if (!__any_sync(~0u, has_reserved)) continue;
      // Divide the entries among the warps without a batch: lane i writes the i-th batch.
      int offset = lane * batch_capacity;
      int batch_size = min(count - offset, batch_capacity);
      if (batch_size > 0) {
        group_batches[filled + lane] = {
            queue.first + offset, uint16_t(batch_size), uint16_t(queue.piece)};
      }
      filled += (count + batch_capacity - 1) / batch_capacity;
    }
    // The remaining warps get empty batches.
    if (filled + lane < group.size) group_batches[filled + lane] = {0, 0, 0};
  }
};

}  // namespace tetris
