// Rollouts on a GPU where the next piece is known, with a warp per stream of games. Each thread
// takes one placement of the falling piece, and scores all placements of the next piece on the
// board after it.
#pragma once

#include "thread_game.cuh"
#include "thread_search.cuh"

namespace tetris {

constexpr int MAX_PAIRS_WARPS = 16;  // a block has at most this many warps

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

  // Plays stream `index` with the threads of one warp. A stream is a sequence of games on one
  // board: when a game ends, the next one begins on the empty board. The loop ends when the
  // stream has made job.decisions decisions or has reached its limit of ended games.
  //
  // The next piece is known before each decision. All threads of the warp hold the same state
  // of the stream. They differ only in the placements that they score.
  __device__ void play(uint32_t index) {
    int64_t games_left = job.games_left(index);
    if (games_left <= 0) return;
    PieceStream pieces = job.pieces_of(index);
    auto geometry = geometry_of<BOARD_WIDTH>(job.rules);
    Decision decision(geometry, job.weights_of<List>(index));
    StreamState state = initial_state(job, index);
    int piece = job.first_piece(index);
    while (state.decisions < job.decisions && state.ended_games < games_left) {
      int next = pieces.piece(job.start + state.decisions + 1);
      Board<L> board(geometry, with_walls(geometry, state.columns), column_cache());
      Choice choice = best_pair(decision, board, piece, next);
      // If every pair of placements ends the game, the best placement of `piece` alone is
      // played.
      if (choice.placement == Choice::NONE) choice = search.choose(decision, board, piece);
      ++state.decisions;
      land(board, piece, choice, state);  // empties the board if the game ends
      end_game_if_blocked(geometry, next, state);
      piece = next;
    }
    if (lane == 0) write_result(job, index, state);
  }

 private:
  // Returns the shared memory in which a board keeps columns that are read at a variable index.
  __device__ typename L::ColumnCache column_cache() const {
    return {search.memory.cached_columns(), lane};
  }

  // Returns the placement of `piece` that begins the best pair of placements of `piece` and
  // `next`, or NO_CHOICE if every pair ends the game. All threads of a warp call this function
  // together and get the same result.
  //
  // Each thread takes every 32nd placement of `piece`, and searches the board after it for the
  // best placement of `next`.
  __device__ Choice best_pair(
      const Decision& decision, const Board<L>& board, int piece, int next) {
    const Geometry<L>& geometry = board.geometry;
    int count = count_placements(piece, geometry.width);
    Choice best = NO_CHOICE;
    for (int base = 0; base < count; base += WARP) {
      // All threads have to call search.choose together, because it contains warp barriers. A
      // thread for which no placement is left repeats the first one and ignores the result.
      bool exists = base + lane < count;
      int number = exists ? base + lane : base;
      int placement = nth_placement(piece, geometry.width, number);
      Landing<L> landing(board, piece, placement);
      AfterState<L> after(board, landing, piece, placement, column_cache());
      Choice second = search.choose(decision, after, next);
      bool survives = !landing.over && !next_piece_ends_game(geometry, landing.cells, next);
      if (exists && survives && second.placement != Choice::NONE) {
        // second.score does not include the features that describe the first placement.
        int first_value = List::placement_value(decision.weights, after);
        best.consider({second.score + first_value, placement});
      }
    }
    return best_of_warp(best);
  }
};

// Kernel: plays all streams of a job, with one warp per stream. By its launch bounds a
// multiprocessor has one block, whose threads may therefore use all registers.
template <class List, int BOARD_WIDTH>
__global__ void __launch_bounds__(MAX_PAIRS_WARPS* WARP, 1)
    rollout_pairs(const __grid_constant__ PairsJob job) {
  uint32_t warp = threadIdx.x / WARP;
  uint32_t warps = blockDim.x / WARP;
  uint32_t index = blockIdx.x * warps + warp;
  if (index >= job.all_streams) return;
  unsigned char* memory = static_cast<unsigned char*>(shared_memory()) + warp * job.warp_bytes;
  WarpMemory& warp_memory = *reinterpret_cast<WarpMemory*>(memory);
  PairsRollout<List, BOARD_WIDTH>{job, {job.rules, warp_memory}}.play(index);
}

}  // namespace tetris
