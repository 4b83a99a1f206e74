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
  // `stream` to the queue of `piece`, the piece that the stream waits for. All 32 lanes of the
  // warp have to call this function.
  //
  // A queue is a ring buffer of entries in shared memory. tail[piece] counts the entries that
  // have been reserved so far, and entry(piece, n) is the address of entry n, modulo the size
  // of the ring. A lane may write its reserved entry as soon as the entry is EMPTY.
  __device__ void put(bool is_waiting, int stream, int piece) {
    // The fence makes this lane's changes to the stream visible before the stream is in the
    // queue, where another warp may take it.
    __threadfence_block();
    unsigned waiting = __ballot_sync(~0u, is_waiting);
    if (!is_waiting) return;
    // Lanes with the same piece form a set. The first lane of the set, the leader, reserves
    // consecutive entries for the set with one atomic addition. The others get the index of the
    // first entry from the leader.
    int lane = threadIdx.x % 32;
    unsigned same_piece = __match_any_sync(waiting, piece);
    int leader = __ffs(same_piece) - 1;
    uint32_t first_index = 0;
    if (lane == leader) first_index = atomicAdd(&tail[piece], __popc(same_piece));
    first_index = __shfl_sync(same_piece, first_index, leader);
    unsigned earlier_lanes = same_piece & ((1u << lane) - 1);
    uint16_t* reserved = entry(piece, first_index + __popc(earlier_lanes));
    // The entry may still hold a stream from the previous round of the ring. The warp that has
    // reserved this stream empties the entry at once, so the wait is short.
    while (atomicCAS(reserved, EMPTY, uint16_t(stream)) != EMPTY) continue;
  }

  // Takes streams out of the queues for this warp, and waits while all queues are empty. All
  // warps of a group have to call this function together. Returns false once all streams are
  // finished.
  //
  // Sets `piece` to the piece that all streams of this warp wait for, and `stream` to this
  // thread's stream, or to -1 if there is none for this thread. THREADS neighbouring threads
  // get the same stream.
  template <int THREADS>
  __device__ bool take(const WarpGroup& group, int& stream, int& piece) {
    const int lane = threadIdx.x % WARP;
    // Lane 0 counts the arrival of its warp. The last warp of the group to arrive reserves a
    // batch of streams for every warp of the group. If an earlier warp did so, it could reserve
    // an entry for a warp that is still in `put`. That warp might then wait in `put` until this
    // entry is empty, although it would empty the entry itself in its next `take`.
    uint32_t size = group.size;
    uint32_t arrival_of_lane_0 = lane == 0 ? atomicAdd(&arrivals[group.index], 1u) : 0u;
    uint32_t arrival = __shfl_sync(~0u, arrival_of_lane_0, 0);
    uint32_t round = arrival / size;
    // Two sets of batches alternate, because a slow warp may still read its batch of the
    // previous round.
    Batch* group_batches = batches[round % 2] + group.index * group.size;
    bool is_last = arrival % size == size - 1;
    if (is_last) reserve(group, group_batches, WARP / THREADS);
    group.wait();
    // The first batch.count lanes take one entry each. Then every stream is handed to THREADS
    // neighbouring lanes.
    Batch batch = group_batches[group.rank];
    piece = batch.piece;
    stream = -1;
    if (lane < batch.count) stream = take_entry(entry(piece, batch.first + uint32_t(lane)));
    if (THREADS > 1) stream = __shfl_sync(~0u, stream, lane / THREADS);
    // After the fence, every lane sees all changes that other warps have made to these streams.
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

  // Reserves a batch of streams for each warp of a group, and writes the batches to
  // `group_batches`. All lanes of one warp call this function together.
  //
  // A batch is at most `batch_capacity` consecutive entries of one queue. The batches come from
  // the longest of the seven queues. If this queue is too short for all warps, the remaining
  // warps get empty batches. But if the group is the only one of the block, they get batches
  // from the next longest queues. As long as all queues are empty, the function waits. When all
  // streams are finished, it writes empty batches.
  //
  // head[p] counts the entries of queue p that have been reserved for taking, and tail[p] those
  // that have been reserved for putting.
  __device__ void reserve(const WarpGroup& group, Batch* group_batches, int batch_capacity) {
    const int lane = threadIdx.x % WARP;
    int filled = 0;  // the number of warps that have a batch
    while (filled < group.size && (filled == 0 || group.is_only_one())) {
      // Find the longest queue: lane p < 7 computes 8 * length + p for queue p. The maximum
      // over the warp contains both the greatest length and the queue. An atomic addition of 0
      // reads the newest value.
      bool has_queue = lane < PIECES;
      uint32_t first = has_queue ? atomicAdd(&head[lane], 0) : 0;
      uint32_t length = has_queue ? atomicAdd(&tail[lane], 0) - first : 0;
      uint32_t length_and_queue = greatest_of_warp(has_queue ? length << 3 | lane : 0);
      int piece = int(length_and_queue & 7);
      uint32_t wanted = (group.size - filled) * batch_capacity;
      int count = int(min(length_and_queue >> 3, wanted));
      bool all_are_empty = count == 0;
      if (all_are_empty) {
        // Stop if some warps already have a batch, or if all streams are finished. Otherwise
        // wait for other warps to put streams back.
        if (filled > 0 || !__any_sync(~0u, atomicAdd(&unfinished, 0) > 0)) break;
        __nanosleep(100);
        continue;
      }
      // Lane `piece` reserves the entries of its queue. If another group has reserved some of
      // them in the meantime, this fails, and all lanes try again.
      bool has_reserved =
          lane == piece && atomicCAS(&head[piece], first, first + count) == first;
      if (!__any_sync(~0u, has_reserved)) continue;
      // Lane i writes the batch of the i-th warp that has none yet.
      uint32_t first_of_batch = __shfl_sync(~0u, first, piece) + lane * batch_capacity;
      int batch_size = min(count - lane * batch_capacity, batch_capacity);
      if (batch_size > 0) {
        group_batches[filled + lane] = {first_of_batch, uint16_t(batch_size), uint16_t(piece)};
      }
      filled += (count + batch_capacity - 1) / batch_capacity;
    }
    // The remaining warps get empty batches.
    if (filled + lane < group.size) group_batches[filled + lane] = {0, 0, 0};
  }
};

}  // namespace tetris
