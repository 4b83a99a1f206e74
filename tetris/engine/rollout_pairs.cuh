// Rollouts on a GPU where the next piece is known: a warp a game. A thread has a placement of the piece that falls, and scores
// all placements of the next piece on the board that it leads to.
#pragma once

#include "thread_game.cuh"
#include "thread_search.cuh"

namespace tetris {

constexpr int MAX_PAIRS_WARPS = 16;  // of a block

struct PairsJob : RolloutArguments {
  int warp_bytes;
};

template <class List, int BOARD_WIDTH>
struct PairsRollout {
  using L = ThreadLanes;
  using Decision = Chooser<L, List>;
  const PairsJob& job;
  ThreadSearch<List, BOARD_WIDTH> search;
  const int lane = threadIdx.x % WARP;

  __device__ void play(uint32_t index) {
    const int64_t games_left = job.games_left(index);
    if (games_left <= 0) return;
    const PieceStream stream = job.pieces_of(index);
    const auto geometry = geometry_of<BOARD_WIDTH>(job.rules);
    const Decision decision(
        geometry, job.weights + int64_t(job.candidate_of(index)) * List::ROW);
    GameState game = first_state(job, index);
    int piece = job.first_piece(index);
    while (game.made < job.decisions && game.games < games_left) {
      const int next = stream.piece(job.start + game.made + 1);
      const Board<L> board(geometry, with_walls(geometry, game.columns), keeper());
      Choice choice = best_pair(decision, board, piece, next);
      if (choice.place == Choice::NONE) choice = search.choose(decision, board, piece);
      ++game.made;
      land(board, piece, choice, game);
      end_by_next(geometry, next, game);
      piece = next;
    }
    if (lane == 0) write_result(job, index, game);
  }

 private:
  __device__ typename L::Keeper keeper() const { return {search.memory.kept(), lane}; }

  // See choose_by_pairs; NO_CHOICE where every pair ends the game.
  __device__ Choice best_pair(
      const Decision& decision, const Board<L>& board, int piece, int next) {
    Choice best = NO_CHOICE;
    const int count = placements_of(piece, board.geometry.width);
    for (int base = 0; base < count; base += WARP) {
      const bool exists = base + lane < count;
      const int place = nth_place(piece, board.geometry.width, exists ? base + lane : base);
      const Landing<L> landing(board, piece, place);
      const AfterState<L> after(board, landing, piece, place, keeper());
      const Choice second = search.choose(
          decision, after, next);  // threads without a board of their own search along
      const bool survives = !landing.over && !ends_by_next(board.geometry, landing.cells, next);
      if (exists && survives && second.place != Choice::NONE) {
        best.consider(
            {second.score + List::template placement_value<L>(decision.weights, after), place});
      }
    }
    return best_of_warp(best);
  }
};

template <class List, int BOARD_WIDTH>
__global__ void __launch_bounds__(MAX_PAIRS_WARPS* WARP, 1)
    rollout_pairs(const __grid_constant__ PairsJob job) {
  const uint32_t warp = threadIdx.x / WARP, index = blockIdx.x * (blockDim.x / WARP) + warp;
  if (index >= job.total) return;
  unsigned char* memory = static_cast<unsigned char*>(shared_memory()) + warp * job.warp_bytes;
  PairsRollout<List, BOARD_WIDTH>{job, {job.rules, *reinterpret_cast<WarpMemory*>(memory)}}
      .play(index);
}

}  // namespace tetris
