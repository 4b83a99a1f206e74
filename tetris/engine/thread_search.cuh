// How the threads of a warp search: a board each, and the same piece falls on all of them.
#pragma once

#include "placements.cuh"
#include "thread_game.cuh"
#include "warp.cuh"

namespace tetris {

// What a warp has in shared memory.
struct alignas(16) WarpMemory {
  // What its lanes give each other to score.
  uint16_t task[WARP];  // lane and place
  int score[WARP];
  // What they keep of their boards follows.
  __device__ unsigned char* kept() { return reinterpret_cast<unsigned char*>(this + 1); }
};

// The bytes of it.
template <class List>
int warp_bytes() {
  const Geometry<ThreadLanes> geometry({MAX_WIDTH, MAX_HEIGHT, false});
  const Board<ThreadLanes> board(geometry, geometry.walls);
  const int32_t weights[List::ROW] = {};
  const Chooser<ThreadLanes, List> chooser(geometry, weights);
  const typename Chooser<ThreadLanes, List>::Search search(chooser, board);
  return static_cast<int>(sizeof(WarpMemory)) + board.keeper.used;
}

template <class List, int BOARD_WIDTH>
struct ThreadSearch {
  using L = ThreadLanes;
  using Decision = Chooser<L, List>;
  const GameRules& rules;
  WarpMemory& memory;
  const int lane = threadIdx.x % WARP;

  // The best placement on this thread's board. All threads of the warp take part, with the same piece.
  __device__ __forceinline__ Choice choose(
      const Decision& decision, const Board<L>& board, int piece) {
    typename Decision::Search search(decision, board);
    return best_two(decision, search, piece).first;
  }
  __device__ __forceinline__ BestTwo best_two(
      const Decision& decision, typename Decision::Search& search, int piece) {
    // The compiler does not know that it is the same, and would keep the constants of a shape for every thread.
    piece = static_cast<int>(union_of_warp(static_cast<unsigned>(piece)));
    search.best.clear();
    uint64_t rest = 0;
    for (int orientation = 0; orientation < WIDTHS.count[piece]; ++orientation) {
      switch (WIDTHS.width[piece][orientation]) {
        case 1: rest |= score<1>(decision, search, piece, orientation); break;
        case 2: rest |= score<2>(decision, search, piece, orientation); break;
        case 3: rest |= score<3>(decision, search, piece, orientation); break;
        default: rest |= score<4>(decision, search, piece, orientation); break;
      }
    }
    BestTwo best = search.best;
    score_rest(search.ground, decision.weights, rest, piece, best);
    return best;
  }

 private:
  // Scores the placements of one orientation; those that complete a row, a bit a place in the order.
  template <int WIDTH>
  __device__ __forceinline__ uint64_t score(
      const Decision& decision, typename Decision::Search& search, int piece, int orientation) {
    Group<L, WIDTH> group;
    group.shapes = SHAPE_CONSTANTS<L, WIDTH>.shape[piece][orientation];
    uint32_t rest = 0, bit = 1;
#pragma unroll 1  // written out for every column the code does not fit the instruction cache
    for (int x = 0; x <= (BOARD_WIDTH > 0 ? BOARD_WIDTH : MAX_WIDTH) - WIDTH; ++x, bit *= 2) {
      group.shapes.column.value = x;
      group.order[0] = orientation * ORDER_STRIDE + x;
      if (decision.score(search, group) != 0) rest |= bit;
    }
    return static_cast<uint64_t>(rest) << (orientation * ORDER_STRIDE);
  }

  // The placements that complete a row: those of all lanes, one a lane.
  __device__ __forceinline__ void score_rest(const Ground<L>& ground, const int32_t* weights,
      uint64_t rest, int piece, BestTwo& best) {
    const int count = __popcll(rest);
    int before = count;
    TETRIS_UNROLL for (int step = 1; step < WARP; step *= 2) {
      const int other = __shfl_up_sync(~0u, before, step);
      before += lane >= step ? other : 0;
    }
    const int total = __shfl_sync(~0u, before, WARP - 1);
    before -= count;
    for (int base = 0; base < total; base += WARP) {
      const uint64_t unscored = rest;
      int at = before;
      for (uint64_t mine = rest; mine != 0 && at < base + WARP; mine &= mine - 1, ++at) {
        memory.task[at - base] = static_cast<uint16_t>(lane << 8 | lowest_bit(mine));
      }
      __syncwarp();
      const bool busy = base + lane < total;
      const int task = busy ? memory.task[lane] : lane << 8;
      const int owner = task >> 8;
      const auto address =
          __shfl_sync(~0u, reinterpret_cast<unsigned long long>(weights), owner);
      if (busy) {
        const auto theirs = ground.cells.of_lane(owner - lane);
        typename L::ColumnBits cells;
        TETRIS_UNROLL for (int i = 0; i < L::SLOTS; ++i) cells.slot[i] = theirs[i];
        const auto geometry = geometry_of<BOARD_WIDTH>(rules);
        const Board<L> board(geometry, cells);
        const auto* own = reinterpret_cast<const int32_t*>(address);
        memory.score[lane] = whole_score<List>(board, own, piece, task & 255).score;
      }
      __syncwarp();
      at = before;
      for (rest = unscored; rest != 0 && at < base + WARP; rest &= rest - 1, ++at) {
        const int score = memory.score[at - base];
        if (score > NEVER) best.consider({score, lowest_bit(rest)});
      }
      before = at;
      __syncwarp();
    }
  }
};

}  // namespace tetris
