// Seven queues of games in shared memory, one for each piece that a game may be waiting to place.
//
// Warps of a block put games in and take them out without a lock. A warp takes games of one piece only, so that all its
// threads do the same: no lane waits while its neighbour tries the placements of a piece that has more of them.
#pragma once

#include "pieces.h"
#include "warp.cuh"

namespace tetris {

// CAPACITY: a power of two, at least the number of games in all queues and hands together.
template <int CAPACITY>
struct PieceQueues {
    static constexpr uint32_t EMPTY = ~0u;
    uint32_t head[PIECES], tail[PIECES];  // places taken and put in so far, modulo 2^32
    uint32_t entry[PIECES][CAPACITY];
    uint32_t unfinished;  // games that still have decisions to make

    // By all threads of the block; a barrier has to follow.
    __device__ void clear(uint32_t games) {
        for (int i = threadIdx.x; i < PIECES * CAPACITY; i += blockDim.x) entry[i / CAPACITY][i % CAPACITY] = EMPTY;
        if (threadIdx.x < PIECES) head[threadIdx.x] = tail[threadIdx.x] = 0;
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
        uint32_t* place = &entry[piece][(first + __popc(same & ((1u << lane) - 1))) % CAPACITY];
        // Whoever took the last one is about to read it.
        while (atomicCAS(place, EMPTY, static_cast<uint32_t>(game)) != EMPTY) continue;
    }

    // By a whole warp: up to 32 games that wait for the same piece, the longest queue's. The number of games, of which lane
    // i has the i-th; 0 when all games are finished.
    __device__ int take(int& game, int& piece) {
        const int lane = threadIdx.x % 32;
        for (;;) {
            const uint32_t first = lane < PIECES ? atomicAdd(&head[lane], 0) : 0;
            const uint32_t length = lane < PIECES ? atomicAdd(&tail[lane], 0) - first : 0;
            const uint32_t longest = greatest_of_warp(lane < PIECES ? length << 3 | lane : 0);
            piece = static_cast<int>(longest & 7);
            const uint32_t count = min(longest >> 3, 32u);
            if (count == 0) {
                if (__shfl_sync(~0u, lane == 0 ? atomicAdd(&unfinished, 0) : 0, 0) == 0) return 0;
                __nanosleep(100);
                continue;
            }
            bool taken = false;
            if (lane == piece) taken = atomicCAS(&head[piece], first, first + count) == first;
            if (!__shfl_sync(~0u, taken, piece)) continue;
            const uint32_t place = (__shfl_sync(~0u, first, piece) + lane) % CAPACITY;
            game = 0;
            if (lane < static_cast<int>(count)) {
                // Whoever put it in is about to write it.
                uint32_t found;
                while ((found = atomicExch(&entry[piece][place], EMPTY)) == EMPTY) continue;
                game = static_cast<int>(found);
            }
            __syncwarp();
            __threadfence_block();
            return static_cast<int>(count);
        }
    }

    __device__ void finish(int games) {
        if (games > 0 && threadIdx.x % 32 == 0) atomicSub(&unfinished, static_cast<uint32_t>(games));
    }
};

}  // namespace tetris
