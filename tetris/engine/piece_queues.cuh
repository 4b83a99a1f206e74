// Seven queues of games in shared memory, one for each piece that a game may be waiting to
// place.
//
// Warps of a block put games in and take them out without a lock. A warp takes games of one
// piece only, so that all its threads do the same: no lane waits while its neighbour tries the
// placements of a piece that has more of them. The warps of a group take the same piece, too,
// unless the group is the block's only one and too few games wait for it.
#pragma once

#include "pieces.h"
#include "warp.cuh"

namespace tetris {

constexpr int MAX_WARPS = 32;  // of a block
constexpr int MAX_WARP_GROUPS =
    4;  // of a block; warp w is issued by scheduler w % 4 of the multiprocessor

// Warps of a block that do the same at nearly the same time, so that an instruction is fetched
// once for all of them. On their own they would wait for instructions longer than for anything
// else.
struct WarpGroup {
  int size;    // warps of the group
  int number;  // of the group in the block
  int rank;    // of the warp in the group
  // A block of `count` groups of equal size. Warp w is in group w % count, so that a group uses
  // few schedulers.
  __device__ explicit WarpGroup(int count)
      : size(int(blockDim.x / WARP) / count),
        number(int(threadIdx.x / WARP) % count),
        rank(int(threadIdx.x / WARP) / count) {}
  __device__ bool is_only_one() const { return size * WARP == int(blockDim.x); }
  __device__ void wait() const { barrier(1 + number, size * WARP); }
};

// The queues. Each is a ring of `capacity` entries, which follow this struct in memory, queue
// after queue. An entry is the number of a game, or EMPTY.
//
// Putting and taking reserve entries by counting up `tail` and `head`, and only then write or
// read them. So a taker may have to wait until its entry is written, and a putter until the
// entry of the round before has been emptied.
struct alignas(16) PieceQueues {
  static constexpr uint16_t EMPTY = 0xFFFF;
  uint32_t capacity;  // a power of two below 2^16, not less than the games of the block
  uint32_t head[PIECES],
      tail[PIECES];     // entries reserved so far for taking and for putting, modulo 2^32
  uint32_t unfinished;  // games that still have decisions to make
  struct Batch {
    uint32_t first;  // index of the first entry, modulo 2^32
    uint16_t count;  // games for one warp
    uint16_t piece;
  } batches[2]
           // of every warp this one and the last one, which a slow warp may not have read yet
           [MAX_WARPS];
  uint32_t arrivals[MAX_WARP_GROUPS];  // how often warps of the group have come to take a batch

  // Returns the bytes of the queues with their entries.
  static constexpr int bytes(int capacity) {
    return int(sizeof(PieceQueues)) + PIECES * capacity * int(sizeof(uint16_t));
  }

  // Empties the queues, by all threads of the block; a barrier has to follow.
  __device__ void clear(uint32_t entries_per_queue, uint32_t games) {
    for (uint32_t i = threadIdx.x; i < PIECES * entries_per_queue; i += blockDim.x) {
      entries()[i] = EMPTY;
    }
    if (threadIdx.x == 0) capacity = entries_per_queue;
    if (threadIdx.x < PIECES) head[threadIdx.x] = tail[threadIdx.x] = 0;
    if (threadIdx.x < MAX_WARP_GROUPS) arrivals[threadIdx.x] = 0;
    if (threadIdx.x == 0) unfinished = games;
  }

  // Puts games into the queues: every lane of a warp whose `is_waiting` is true adds its `game`
  // to the queue of the `piece` that the game waits for. All lanes of the warp have to call it.
  //
  // A queue is a ring of entries in shared memory. tail[piece] counts the entries reserved so
  // far, and a reserved entry is written once it is EMPTY. The fence makes what a lane has
  // written of its game visible to the warp that takes the game later.
  __device__ void put(bool is_waiting, int game, int piece) {
    __threadfence_block();
    unsigned waiting = __ballot_sync(~0u, is_waiting);
    if (!is_waiting) return;
    // The first lane with a piece reserves consecutive entries for all lanes with the same
    // piece.
    int lane = threadIdx.x % 32;
    unsigned same_piece = __match_any_sync(waiting, piece);
    int leader = __ffs(same_piece) - 1;
    uint32_t first_index = 0;
    if (lane == leader) first_index = atomicAdd(&tail[piece], __popc(same_piece));
    first_index = __shfl_sync(same_piece, first_index, leader);
    unsigned earlier_lanes = same_piece & ((1u << lane) - 1);
    uint16_t* reserved = entry(piece, first_index + __popc(earlier_lanes));
    // The entry may still hold a game from the last round of the ring. Its taker has reserved
    // it and empties it at once, so the wait is short.
    while (atomicCAS(reserved, EMPTY, uint16_t(game)) != EMPTY) continue;
  }

  // Takes a batch of games out of the queues for each warp of a group, and waits while there
  // are none. All warps of the group call it together. Returns false when all games are
  // finished.
  //
  // Sets `piece` to the piece that all games of this warp's batch wait for, and `game` to this
  // thread's game, or -1 if there is none for it. THREADS neighbouring threads share a game.
  template <int THREADS>
  __device__ bool take(const WarpGroup& warps, int& game, int& piece) {
    const int lane = threadIdx.x % WARP;
    // Lane 0 counts the arrivals of the group's warps. The last warp to arrive reserves batches
    // for all of them. By then every warp of the group has put its games back, so that the
    // group cannot wait for an entry that it has to empty itself.
    uint32_t size = warps.size;
    uint32_t arrival_of_lane_0 = lane == 0 ? atomicAdd(&arrivals[warps.number], 1u) : 0u;
    uint32_t arrival = __shfl_sync(~0u, arrival_of_lane_0, 0);
    uint32_t round = arrival / size;
    // There are two sets of batches: a slow warp may still read its batch of the last round.
    Batch* group_batches = batches[round % 2] + warps.number * warps.size;
    bool is_last = arrival % size == size - 1;
    if (is_last) reserve(warps, group_batches, WARP / THREADS);
    warps.wait();
    // The first lanes take one entry each, and THREADS lanes then share each game.
    Batch batch = group_batches[warps.rank];
    piece = batch.piece;
    game = -1;
    if (lane < batch.count) game = take_entry(entry(piece, batch.first + uint32_t(lane)));
    if (THREADS > 1) game = __shfl_sync(~0u, game, lane / THREADS);
    __syncwarp();
    __threadfence_block();
    return group_batches[0].count > 0;
  }

  // Counts games as finished, by a whole warp.
  __device__ void finish(int games) {
    if (games > 0 && threadIdx.x % 32 == 0) atomicSub(&unfinished, uint32_t(games));
  }

 private:
  __device__ uint16_t* entries() { return reinterpret_cast<uint16_t*>(this + 1); }
  __device__ uint16_t* entry(int piece, uint32_t index) {
    return entries() + piece * capacity + (index & (capacity - 1));
  }

  // Waits until a reserved entry is written, which happens at once; empties it and returns its
  // game.
  __device__ static int take_entry(uint16_t* reserved) {
    uint16_t game;
    do game = atomicCAS(reserved, EMPTY, EMPTY);
    while (game == EMPTY || atomicCAS(reserved, game, EMPTY) != game);
    return game;
  }

  // Reserves a batch of games, consecutive entries of one queue, for each warp of a group, and
  // writes the batches to `group_batches`. A batch has at most `most` games. All lanes of one
  // warp call it together.
  //
  // The games come from the longest of the seven queues. If it has too few games for all warps,
  // the remaining warps get empty batches, except if the group is the only one of the block:
  // they then get games of the next longest queues. While all queues are empty it waits, and
  // when all games are finished, all batches are empty. head[p] and tail[p] count the entries
  // of queue p reserved so far for taking and for putting.
  __device__ void reserve(const WarpGroup& warps, Batch* group_batches, int most) {
    const int lane = threadIdx.x % WARP;
    int filled = 0;  // the number of warps that have a batch
    while (filled < warps.size && (filled == 0 || warps.is_only_one())) {
      // Lane p < 7 looks at queue p. The maximum of 8 * length + p says which queue is longest.
      // An atomic addition of 0 reads the newest value.
      bool has_queue = lane < PIECES;
      uint32_t first = has_queue ? atomicAdd(&head[lane], 0) : 0;
      uint32_t length = has_queue ? atomicAdd(&tail[lane], 0) - first : 0;
      uint32_t longest = greatest_of_warp(has_queue ? length << 3 | lane : 0);
      int piece = int(longest & 7);
      uint32_t wanted = (warps.size - filled) * most;
      int count = int(min(longest >> 3, wanted));
      if (count == 0) {  // all queues are empty
        if (filled > 0 || !__any_sync(~0u, atomicAdd(&unfinished, 0) > 0)) break;
        __nanosleep(100);
        continue;
      }
      // Reserve the entries, unless another group has reserved some of this queue in the
      // meantime.
      bool has_reserved =
          lane == piece && atomicCAS(&head[piece], first, first + count) == first;
      if (!__any_sync(~0u, has_reserved)) continue;
      // Lane i writes the batch of the i-th warp that has none yet.
      uint32_t first_of_batch = __shfl_sync(~0u, first, piece) + lane * most;
      int batch_size = min(count - lane * most, most);
      if (batch_size > 0) {
        group_batches[filled + lane] = {first_of_batch, uint16_t(batch_size), uint16_t(piece)};
      }
      filled += (count + most - 1) / most;
    }
    if (filled + lane < warps.size) group_batches[filled + lane] = {0, 0, 0};
  }
};

}  // namespace tetris
