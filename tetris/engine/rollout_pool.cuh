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

template <class List, int BOARD_WIDTH, Lookahead LOOKAHEAD>
struct PoolRollout {
  using L = ThreadLanes;
  using Decision = Chooser<L, List>;
  const PoolJob& job;
  PieceQueues& queues;
  const int lane = threadIdx.x % WARP;
  const WarpGroup warps{job.groups};
  // Of a game. Where all that may come next counts each has one of the two placements that are compared.
  static constexpr int THREADS = LOOKAHEAD == Lookahead::none ? 1 : 2;

  __device__ int piece_of(uint32_t game, uint32_t made) const {
    return job.pieces_of(game).piece(job.start + made);
  }

  // A block's queues come first in its memory; what each of its warps has there follows.
  __device__ WarpMemory& warp_memory() {
    unsigned char* first =
        reinterpret_cast<unsigned char*>(&queues) + PieceQueues::bytes(job.capacity);
    return *reinterpret_cast<WarpMemory*>(
        first + static_cast<int>(threadIdx.x / WARP) * job.warp_bytes);
  }

  // One decision; whether it ends the game. The search needs the registers that the game's state would take: it is read again.
  __device__ __forceinline__ bool decide(GameState& game, uint32_t index, int piece) {
    uint32_t two = 0;
    Choice choice;
    if constexpr (LOOKAHEAD == Lookahead::none) choice = choose(index, piece);
    else choice = choose_ahead(index, piece, two);
    game = job.states[index];
    const auto geometry = geometry_of<BOARD_WIDTH>(job.rules);
    const Board<L> board(geometry, with_walls(geometry, game.columns));
    ++game.made;
    game.two = two;
    return land(board, THREADS > 1 ? game.piece : piece, choice, game);
  }

  __device__ __forceinline__ const int32_t* weights_of(uint32_t index) const {
    return job.weights + int64_t(job.candidate_of(index)) * List::ROW;
  }

  __device__ __forceinline__ Choice choose(uint32_t index, int piece) {
    const auto geometry = geometry_of<BOARD_WIDTH>(job.rules);
    const Decision decision(geometry, weights_of(index));
    WarpMemory& memory = warp_memory();
    const GameState game = job.states[index];  // as a whole, in few reads
    const Board<L> board(geometry, with_walls(geometry, game.columns), {memory.kept(), lane});
    return ThreadSearch<List, BOARD_WIDTH>{job.rules, memory}.choose(decision, board, piece);
  }

  // As in decision.h: each of two threads searches behind one of the placements that are compared. The two best ones of the
  // piece that falls next are among what is found, and kept with the game as `two`. The next decision begins with them, and
  // `piece` counts only where they are not known.
  __device__ __forceinline__ Choice choose_ahead(uint32_t index, int piece, uint32_t& two) {
    const auto geometry = geometry_of<BOARD_WIDTH>(job.rules);
    ThreadSearch<List, BOARD_WIDTH> search{job.rules, warp_memory()};
    const int next = piece_of(index, job.states[index].made + 1);
    uint32_t best = job.states[index].two;
    Prospect found{0, 0};
    for (bool behind = !__any_sync(~0u, best == 0);; behind = true) {
      const Decision decision(geometry, weights_of(index));
      auto cells = with_walls(geometry, job.states[index].columns);
      uint32_t ends = 0;  // the game, a bit a piece
      int once = 0;       // the part of a pair's value that is the first placement's
      if (behind) {
        const Board<L> before(geometry, cells);
        const int place = Choice{0, place_of(best, lane % 2)}.made();
        const int own = job.states[index].piece;
        const Landing<L> landing(before, own, place);
        once = List::template placement_value<L>(
            decision.weights, AfterState<L>(before, landing, own, place));
        cells = landing.cells;
        for (int i = 0; geometry.original && i < PIECES; ++i) {
          ends |= (appears(geometry, cells, i) ? 0u : 1u) << i;
        }
      }
      const Board<L> board(geometry, cells, {search.memory.kept(), lane});
      typename Decision::Search on(decision, board);
      for (int k = 0; k < (behind ? job.pieces.source.count : 1); ++k) {
        const int falls = behind ? job.pieces.source.at(k) : piece;
        const BestTwo places = search.best_two(decision, on, falls);
        if (!behind && best == 0) best = packed(places);
        if (behind && falls == next) two = packed(places);
        if (behind && places.first.place != Choice::NONE && (ends >> falls & 1) == 0) {
          ++found.survived;
          found.sum += places.first.score + once;
        }
      }
      if (behind) break;
    }
    const Prospect other{
        __shfl_sync(~0u, found.survived, lane ^ 1), __shfl_sync(~0u, found.sum, lane ^ 1)};
    const bool second = lane % 2 == 1 ? found.exceeds(other) : other.exceeds(found);
    const int taken = second && place_of(best, 1) != Choice::NONE ? 1 : 0;
    two = __shfl_sync(~0u, two, (lane & ~1) + taken);
    return {0, place_of(best, taken)};
  }

  // Two placements as a number that is not 0, and one of them.
  __device__ static uint32_t packed(const BestTwo& best) {
    return 1u << 16 | (best.first.place + 1) << 8 | (best.second.place + 1);
  }
  __device__ static int place_of(uint32_t two, int which) {
    return static_cast<int>(two >> (which == 0 ? 8 : 0) & 255) - 1;
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
      const int piece = plays ? job.first_piece(first + i) : 0;
      if (plays) {
        job.states[first + i] = first_state(job, first + i);
        if (THREADS > 1) job.states[first + i].piece = piece;
      }
      queues.put(plays, static_cast<int>(i), piece);
      __syncwarp();
      queues.finish(__popc(__ballot_sync(~0u, stopped)));
    }
    const auto decisions = static_cast<uint32_t>(job.decisions);
    int slot, piece;
    while (queues.template take<THREADS>(warps, slot, piece)) {
      const bool exists = slot >= 0;
      if (!__any_sync(~0u, exists)) continue;
      // Lanes without a game of their own play along.
      slot = __shfl_sync(~0u, slot, exists ? lane : lane % THREADS);
      const uint32_t index = first + slot;
      GameState game;
      bool over = decide(game, index, piece);
      const int next = piece_of(index, game.made);
      if (end_by_next(geometry_of<BOARD_WIDTH>(job.rules), next, game)) over = true;
      if (over) game.two = 0;
      // The stream's games are looked up where one has ended, and not kept at hand during all decisions.
      const bool finished =
          game.made == decisions || (over && exists && game.games >= job.games_left(index));
      __syncwarp();  // lanes that play along have read it
      const bool keeps = exists && lane % THREADS == 0;
      game.piece = next;
      if (keeps && !finished) job.states[index] = game;
      if (keeps && finished) write_result(job, index, game);
      queues.put(keeps && !finished, slot, game.two != 0 ? 0 : next);
      __syncwarp();
      queues.finish(__popc(__ballot_sync(~0u, keeps && finished)));
    }
  }
};

// Many features are much code. With fewer warps each has more registers, and all of them together are one group: then each
// instruction is fetched once. With few features waiting for each other costs more.
template <class List>
constexpr bool LONG_CODE = List::APART > 16;
template <class List, Lookahead LOOKAHEAD>
constexpr int POOL_WARPS = LONG_CODE<List> ? 12 : (LOOKAHEAD == Lookahead::none ? 20 : 16);
// Warps of a block of up to `warps`, and groups of equal size that they form, for so many games a multiprocessor.
struct BlockWarps {
  int count, groups;
};
template <class List>
BlockWarps block_warps(int warps, int64_t games) {
  if (games < 1536) warps = std::min(warps, 16);  // they are as fast as twenty, or faster
  const int groups = LONG_CODE<List> ? 1 : MAX_WARP_GROUPS;
  if (warps < groups) return {warps, warps};
  return {warps / groups * groups, groups};
}

template <class List, int BOARD_WIDTH, Lookahead LOOKAHEAD>
__global__ void __launch_bounds__(POOL_WARPS<List, LOOKAHEAD>* WARP, 1)
    rollout_pool(const __grid_constant__ PoolJob job) {
  PoolRollout<List, BOARD_WIDTH, LOOKAHEAD> rollout{
      job, *static_cast<PieceQueues*>(shared_memory())};
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
