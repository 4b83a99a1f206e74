// Seven queues of games in shared memory, one for each piece that a game may be waiting to place.
//
// Warps of a block put games in and take them out without a lock. A warp takes games of one piece only, so that all its
// threads do the same: no lane waits while its neighbour tries the placements of a piece that has more of them. A warp group
// does so, too, unless the block has no other one and too few games wait for the piece.
#pragma once

#include "pieces.h"
#include "warp.cuh"

namespace tetris {

constexpr int MAX_WARPS = 32,
              MAX_WARP_GROUPS =
                  4;  // of a block; warp w is issued by the multiprocessor's scheduler w % 4

// Warps of a block that do the same at nearly the same time, so that an instruction is fetched once for all of them: on their
// own they would wait for instructions longer than for anything else.
struct WarpGroup {
  int size;    // warps
  int number;  // of the group
  int rank;    // of the warp in it
  // A block of `count` groups of equal size, each with the warps of as few schedulers as there can be.
  __device__ explicit WarpGroup(int count)
      : size(static_cast<int>(blockDim.x / WARP) / count),
        number(static_cast<int>(threadIdx.x / WARP) % count),
        rank(static_cast<int>(threadIdx.x / WARP) / count) {}
  __device__ bool alone() const { return size * WARP == static_cast<int>(blockDim.x); }
  __device__ void wait() const { barrier(1 + number, size * WARP); }
};

// Their entries follow them in memory.
struct alignas(16) PieceQueues {
  static constexpr uint16_t EMPTY = 0xFFFF;
  uint32_t
      capacity;  // a power of two below 2^16, at least the games in all queues and hands together
  uint32_t head[PIECES], tail[PIECES];  // places taken and put in so far, modulo 2^32
  uint32_t unfinished;                  // games that still have decisions to make
  struct Batch {
    uint32_t first;         // place in the queue
    uint16_t count, piece;  // games of a warp
  } batches
      [2]
      [MAX_WARPS];  // of each warp: this one, and the last one, which it may not have read yet
  uint32_t arrivals[MAX_WARP_GROUPS];  // of a group's warps, to take batches

  // The bytes of them and their entries.
  static constexpr int bytes(int capacity) {
    return static_cast<int>(sizeof(PieceQueues)) +
           PIECES * capacity * static_cast<int>(sizeof(uint16_t));
  }

  // By all threads of the block; a barrier has to follow.
  __device__ void clear(uint32_t room, uint32_t games) {
    for (uint32_t i = threadIdx.x; i < PIECES * room; i += blockDim.x) entries()[i] = EMPTY;
    if (threadIdx.x == 0) capacity = room;
    if (threadIdx.x < PIECES) head[threadIdx.x] = tail[threadIdx.x] = 0;
    if (threadIdx.x < MAX_WARP_GROUPS) arrivals[threadIdx.x] = 0;
    if (threadIdx.x == 0) unfinished = games;
  }

  // By a whole warp: lanes with `waiting` put their games in. What they wrote of a game is seen by the warp that takes it.
  __device__ void put(bool waiting, int game, int piece) {
    __threadfence_block();
    const unsigned lanes = __ballot_sync(~0u, waiting);
    if (!waiting) return;
    const unsigned same = __match_any_sync(lanes, piece);
    const int leader = __ffs(same) - 1, lane = threadIdx.x % 32;
    uint32_t first = 0;
    if (lane == leader) first = atomicAdd(&tail[piece], __popc(same));
    first = __shfl_sync(same, first, leader);
    uint16_t* place = entry(piece, first + __popc(same & ((1u << lane) - 1)));
    // The game that was in this place has been taken; its taker empties the place at once.
    while (atomicCAS(place, EMPTY, static_cast<uint16_t>(game)) != EMPTY) continue;
  }

  // By all warps of a group: games that wait for a piece, the same for a warp, up to one for so many threads. Whether there are
  // games left; `game` is below 0 where there is none for this thread.
  template <int THREADS>
  __device__ bool take(const WarpGroup& warps, int& game, int& piece) {
    const int lane = threadIdx.x % WARP;
    // The last warp to arrive chooses. Then no warp of the group still has games to put in, which could wait for a place
    // that the group itself has to empty.
    const auto size = static_cast<uint32_t>(warps.size);
    const uint32_t before =
        __shfl_sync(~0u, lane == 0 ? atomicAdd(&arrivals[warps.number], 1u) : 0u, 0);
    Batch* all = batches[before / size % 2] + warps.number * warps.size;
    if (before % size == size - 1) choose(warps, all, WARP / THREADS);
    warps.wait();
    const Batch batch = all[warps.rank];
    piece = batch.piece;
    game = -1;
    if (lane < batch.count) {
      // The place is reserved; its game is written at once.
      uint16_t* place = entry(piece, batch.first + static_cast<uint32_t>(lane));
      uint16_t found;
      do found = atomicCAS(place, EMPTY, EMPTY);
      while (found == EMPTY || atomicCAS(place, found, EMPTY) != found);
      game = found;
    }
    if (THREADS > 1) game = __shfl_sync(~0u, game, lane / THREADS);
    __syncwarp();
    __threadfence_block();
    return all[0].count > 0;
  }

  __device__ void finish(int games) {
    if (games > 0 && threadIdx.x % 32 == 0)
      atomicSub(&unfinished, static_cast<uint32_t>(games));
  }

 private:
  __device__ uint16_t* entries() { return reinterpret_cast<uint16_t*>(this + 1); }
  __device__ uint16_t* entry(int piece, uint32_t place) {
    return entries() + piece * capacity + (place & (capacity - 1));
  }

  // By a whole warp: takes places at the head of the longest queue for the warps of a group, `most` for each, for the rest of a
  // block's only group those of the next longest, and so on; none when all games are finished.
  __device__ void choose(const WarpGroup& warps, Batch* all, int most) {
    const int lane = threadIdx.x % WARP;
    int filled = 0;
    while (filled < warps.size && (filled == 0 || warps.alone())) {
      const uint32_t first = lane < PIECES ? atomicAdd(&head[lane], 0) : 0;
      const uint32_t length = lane < PIECES ? atomicAdd(&tail[lane], 0) - first : 0;
      const uint32_t longest = greatest_of_warp(lane < PIECES ? length << 3 | lane : 0);
      const int piece = static_cast<int>(longest & 7);
      const int count = static_cast<int>(
          min(longest >> 3, static_cast<uint32_t>((warps.size - filled) * most)));
      if (count == 0) {
        if (filled > 0 || !__any_sync(~0u, atomicAdd(&unfinished, 0) > 0)) break;
        __nanosleep(100);
        continue;
      }
      if (!__any_sync(
              ~0u, lane == piece && atomicCAS(&head[piece], first, first + count) == first))
        continue;
      const uint32_t begin = __shfl_sync(~0u, first, piece) + lane * most;
      const int mine = min(count - lane * most, most);
      if (mine > 0)
        all[filled + lane] = {begin, static_cast<uint16_t>(mine), static_cast<uint16_t>(piece)};
      filled += (count + most - 1) / most;
    }
    if (filled + lane < warps.size) all[filled + lane] = {0, 0, 0};
  }
};

}  // namespace tetris
