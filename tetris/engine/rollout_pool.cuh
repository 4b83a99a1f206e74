// Rollouts on a GPU, many games: a thread a game, and 32 games that wait for the same piece to a warp.
#pragma once

#include <algorithm>

#include "piece_queues.cuh"
#include "thread_game.cuh"
#include "thread_search.cuh"

namespace tetris {

struct PoolJob : RolloutArguments {
  GameState* states;
  int warp_bytes;
  int groups;    // of a block's warps
  int capacity;  // games that a block has in hand at a time, a power of two
};

constexpr int LEAST_IN_HAND = 1024, MOST_IN_HAND = 4096;  // games that a block has room for

template <class List, int BOARD_WIDTH, Lookahead LOOKAHEAD> struct PoolRollout {
  using L = ThreadLanes;
  using Decision = Chooser<L, List>;
  const PoolJob& job;
  PieceQueues& queues;
  const int lane = threadIdx.x % WARP;
  const WarpGroup warps{job.groups};

  __device__ int piece_of(uint32_t game, uint32_t made) const {
    return job.pieces_of(game).piece(job.start + made);
  }

  // A block's queues come first in its memory; what each of its warps has there follows.
  __device__ WarpMemory& warp_memory() {
    unsigned char* first = reinterpret_cast<unsigned char*>(&queues) + PieceQueues::bytes(job.capacity);
    return *reinterpret_cast<WarpMemory*>(first + static_cast<int>(threadIdx.x / WARP) * job.warp_bytes);
  }

  // One decision; whether it ends the game. The search needs the registers that the game's state would take: it is read again.
  __device__ __forceinline__ bool decide(GameState& game, uint32_t index, int piece) {
    const Choice choice = choose(index, piece);
    game = job.states[index];
    const auto geometry = geometry_of<BOARD_WIDTH>(job.rules);
    const Board<L> board(geometry, with_walls(geometry, game.columns));
    ++game.made;
    return land(board, piece, choice, game);
  }

  __device__ __forceinline__ Choice choose(uint32_t index, int piece) {
    const int32_t* weights = job.weights + int64_t(job.candidate_of(index)) * List::ROW;
    const auto geometry = geometry_of<BOARD_WIDTH>(job.rules);
    const Decision decision(geometry, weights);
    WarpMemory& memory = warp_memory();
    const GameState game = job.states[index];  // as a whole, in few reads
    const Board<L> board(geometry, with_walls(geometry, game.columns), {memory.kept(), lane});
    ThreadSearch<List, BOARD_WIDTH> search{job.rules, memory};
    if constexpr (LOOKAHEAD == Lookahead::none) return search.choose(decision, board, piece);
    else
      return choose_by_prospects<List>(
          board, decision.weights, piece, job.pieces.source,
          [&](int place) { return whole_score<List>(board, decision.weights, piece, place); },
          [&](const Board<L>& on) { return typename Decision::Search(decision, on); },
          [&](typename Decision::Search& on, int falls) { return search.choose(decision, on, falls); });
  }

  // Plays games first .. first + count - 1.
  __device__ void play(uint32_t first, uint32_t count) {
    __syncthreads();
    queues.clear(job.capacity, count);
    __syncthreads();
    for (uint32_t base = 0; base < count; base += blockDim.x) {
      const uint32_t i = base + threadIdx.x;
      const bool exists = i < count;
      const bool stopped = exists && job.games_left(first + i) <= 0;
      const bool plays = exists && !stopped;
      if (plays) job.states[first + i] = first_state(job, first + i);
      queues.put(plays, static_cast<int>(i), plays ? job.first_piece(first + i) : 0);
      __syncwarp();
      queues.finish(__popc(__ballot_sync(~0u, stopped)));
    }
    const auto decisions = static_cast<uint32_t>(job.decisions);
    int slot, piece;
    while (queues.take(warps, slot, piece)) {
      const bool exists = slot >= 0;
      if (!__any_sync(~0u, exists)) continue;
      slot = __shfl_sync(~0u, slot, exists ? lane : 0);  // lanes without a game of their own play along
      const uint32_t index = first + slot;
      GameState game;
      bool over = decide(game, index, piece);
      const int next = piece_of(index, game.made);
      if (end_by_next(geometry_of<BOARD_WIDTH>(job.rules), next, game)) over = true;
      // The stream's games are looked up where one has ended, and not kept at hand during all decisions.
      const bool finished = game.made == decisions || (over && exists && game.games >= job.games_left(index));
      __syncwarp();  // lanes that play along have read it
      if (exists && !finished) job.states[index] = game;
      if (exists && finished) write_result(job, index, game);
      queues.put(exists && !finished, slot, next);
      __syncwarp();
      queues.finish(__popc(__ballot_sync(~0u, exists && finished)));
    }
  }
};

// Many features are much code. With fewer warps each has more registers, and all of them together are one group: then each
// instruction is fetched once. With few features waiting for each other costs more.
template <class List> constexpr bool LONG_CODE = List::APART > 16;
template <class List> constexpr int POOL_WARPS = LONG_CODE<List> ? 12 : 20;
// Warps of a block of up to `warps`, and groups of equal size that they form, for so many games a multiprocessor.
struct BlockWarps {
  int count, groups;
};
template <class List> BlockWarps block_warps(int warps, int64_t games) {
  if (games < 1536) warps = std::min(warps, 16);  // they are as fast as twenty, or faster
  const int groups = LONG_CODE<List> ? 1 : MAX_WARP_GROUPS;
  if (warps < groups) return {warps, warps};
  return {warps / groups * groups, groups};
}

template <class List, int BOARD_WIDTH, Lookahead LOOKAHEAD> __global__ void __launch_bounds__(
    POOL_WARPS<List>* WARP, 1) rollout_pool(const __grid_constant__ PoolJob job) {
  PoolRollout<List, BOARD_WIDTH, LOOKAHEAD> rollout{job, *static_cast<PieceQueues*>(shared_memory())};
  // Every block has as many games as the others, but for one, in as few and as equal batches as its memory allows.
  const uint32_t begin = uint64_t(job.total) * blockIdx.x / gridDim.x,
                 end = uint64_t(job.total) * (blockIdx.x + 1) / gridDim.x;
  const uint32_t batches = (end - begin + job.capacity - 1) / job.capacity;
  for (uint32_t i = 0; i < batches; ++i) {
    const uint32_t from = begin + uint64_t(end - begin) * i / batches,
                   to = begin + uint64_t(end - begin) * (i + 1) / batches;
    rollout.play(from, to - from);
  }
}

}  // namespace tetris
