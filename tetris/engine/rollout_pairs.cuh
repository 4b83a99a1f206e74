// Rollouts on a GPU where the next piece is known: a warp per game. Each thread has a placement
// of the piece that falls, and scores all placements of the next piece on the board that it
// leads to.
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

  // Plays game `index` by all threads of a warp, with the next piece known, until the game has
  // made `decisions` decisions or as many games have ended on its board as the job allows. When
  // a game ends, the next one begins on an empty board.
  //
  // All threads hold the same state of the game; they differ only in the placements that they
  // score. `made` counts decisions.
  __device__ void play(uint32_t index) {
    int64_t games_left = job.games_left(index);
    if (games_left <= 0) return;
    PieceStream stream = job.pieces_of(index);
    auto geometry = geometry_of<BOARD_WIDTH>(job.rules);
    Decision decision(geometry, job.weights_of<List>(index));
    GameState game = first_state(job, index);
    int piece = job.first_piece(index);
    while (game.made < job.decisions && game.games < games_left) {
      int next = stream.piece(job.start + game.made + 1);
      Board<L> board(geometry, with_walls(geometry, game.columns), column_cache());
      Choice choice = best_pair(decision, board, piece, next);
      if (choice.placement == Choice::NONE) choice = search.choose(decision, board, piece);
      ++game.made;
      land(board, piece, choice, game);
      end_if_next_does_not_appear(geometry, next, game);
      piece = next;
    }
    if (lane == 0) write_result(job, index, game);
  }

 private:
  __device__ typename L::ColumnCache column_cache() const {
    return {search.memory.cached_columns(), lane};
  }

  // Returns the placement of `piece` that begins the best pair of placements of `piece` and
  // `next`, or NO_CHOICE if every pair ends the game. All threads of a warp call it and get the
  // same result.
  //
  // Each thread takes one placement of `piece` at a time, and searches the board after it for
  // the best placement of `next`. The score of a pair is that of the second placement plus the
  // features that describe the first placement.
  __device__ Choice best_pair(
      const Decision& decision, const Board<L>& board, int piece, int next) {
    const Geometry<L>& geometry = board.geometry;
    int count = count_placements(piece, geometry.width);
    Choice best = NO_CHOICE;
    for (int base = 0; base < count; base += WARP) {
      // search.choose has to be called by the whole warp. A thread without a placement searches
      // behind that of the first thread, and ignores the result.
      bool exists = base + lane < count;
      int number = exists ? base + lane : base;
      int placement = nth_placement(piece, geometry.width, number);
      Landing<L> landing(board, piece, placement);
      AfterState<L> after(board, landing, piece, placement, column_cache());
      Choice second = search.choose(decision, after, next);
      bool survives = !landing.over && !next_piece_ends_game(geometry, landing.cells, next);
      if (exists && survives && second.placement != Choice::NONE) {
        // second.score lacks the features that describe the first placement.
        int first_value = List::placement_value(decision.weights, after);
        best.consider({second.score + first_value, placement});
      }
    }
    return best_of_warp(best);
  }
};

template <class List, int BOARD_WIDTH>
__global__ void __launch_bounds__(MAX_PAIRS_WARPS* WARP, 1)
    rollout_pairs(const __grid_constant__ PairsJob job) {
  uint32_t warp = threadIdx.x / WARP;
  uint32_t warps = blockDim.x / WARP;
  uint32_t index = blockIdx.x * warps + warp;
  if (index >= job.total) return;
  unsigned char* memory = static_cast<unsigned char*>(shared_memory()) + warp * job.warp_bytes;
  WarpMemory& warp_memory = *reinterpret_cast<WarpMemory*>(memory);
  PairsRollout<List, BOARD_WIDTH>{job, {job.rules, warp_memory}}.play(index);
}

}  // namespace tetris
