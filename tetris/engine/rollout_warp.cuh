// Rollouts on a GPU, few games: a warp per game. Each thread has a placement, and a column of
// the board.
#pragma once

#include "placements.cuh"
#include "rollout_arguments.h"
#include "warp_lanes.h"

namespace tetris {

template <class List>
struct WarpRollout {
  using L = WarpLanes;
  using Decision = Chooser<L, List>;
  const RolloutArguments& job;
  int placement = 0;  // the one that this thread has scored last

  // Scores the placements of all orientations of one width that complete no row, one placement
  // per thread. Returns whether this thread's placement is left for score_after_states.
  template <int WIDTH>
  __device__ __forceinline__ bool score_own(
      const Decision& decision, typename Decision::Search& search, int piece) {
    auto group = group_of_thread<L, WIDTH>(piece);
    placement = group.first_placement[0];
    return decision.score_drops(search, group) != 0;
  }

  // Scores the placements of all threads whose `is_unscored` is true, and updates `choice` with
  // them in every thread. They are scored one after the other: all threads of the warp compute
  // the features of one after-state together.
  __device__ __forceinline__ void score_after_states(const Decision& decision,
      const Board<L>& board, bool is_unscored, int piece, Choice& choice) {
    unsigned threads = __ballot_sync(~0u, is_unscored);
    for (; threads != 0; threads &= threads - 1) {
      int thread = __ffs(threads) - 1;
      int unscored = __shfl_sync(~0u, placement, thread);
      choice.consider(after_state_score<List>(
          board, decision.weights, piece, unscored, decision.column_weights));
    }
  }

  template <int WIDTH>
  __device__ __forceinline__ void score_all(
      const Decision& decision, typename Decision::Search& search, int piece, Choice& choice) {
    if (!has_width<WIDTH>(piece)) return;
    bool is_unscored = score_own<WIDTH>(decision, search, piece);
    score_after_states(decision, search.board, is_unscored, piece, choice);
  }

  __device__ __forceinline__ Choice choose(
      const Decision& decision, const Board<L>& board, int piece) {
    typename Decision::Search search(decision, board);
    Choice choice = NO_CHOICE;
    score_all<1>(decision, search, piece, choice);
    score_all<2>(decision, search, piece, choice);
    score_all<3>(decision, search, piece, choice);
    score_all<4>(decision, search, piece, choice);
    choice.consider(best_of_warp(search.best.first));
    return choice;
  }

  // Plays game `index` by all threads of a warp, until it has made `decisions` decisions or as
  // many games have ended on its board as the job allows. When a game ends, the next one begins
  // on an empty board.
  //
  // The warp holds one board: thread FIRST_COLUMN + c has column c, and geometry.walls are the
  // columns of an empty board. Everything else is the same in all threads.
  __device__ void play(uint32_t index) {
    int64_t games_left = job.games_left(index);
    if (games_left <= 0) return;
    PieceStream stream = job.pieces_of(index);
    Geometry<L> geometry(job.rules);
    Decision decision(geometry, job.weights_of<List>(index));
    // Load this thread's column. In tensors row r is bit r; __brev reverses the bits.
    int column = L::lane() - FIRST_COLUMN;
    bool is_inside = column >= 0 && column < job.rules.width;
    uint32_t* stored = job.boards + int64_t(index) * job.rules.width + column;
    L::ColumnBits cells = geometry.walls;
    if (is_inside) cells.own = __brev(*stored);
    uint32_t made = 0, lines = 0, ended = 0;
    int pieces = 0;  // the pieces of 32 decisions, one in each thread
    for (; made < job.decisions && ended < games_left; ++made) {
      // Draw the pieces of the next 32 decisions.
      if (made % WARP == 0) {
        pieces = stream.piece(job.start + made + L::lane());
        if (made == 0 && L::lane() == 0) pieces = job.first_piece(index);
      }
      int piece = __shfl_sync(~0u, pieces, int(made % WARP));
      Board<L> board(geometry, cells);
      Choice choice = choose(decision, board, piece);
      Landing<L> landing(board, piece, choice.placement_to_play());
      lines += landing.lines;
      ended += landing.over ? 1 : 0;
      cells = landing.over ? geometry.walls : landing.cells;
      // Under the rule `original` a game also ends if its next piece finds no room to appear.
      if (geometry.original &&
          next_piece_ends_game(geometry, cells, stream.piece(job.start + made + 1))) {
        ++ended;
        cells = geometry.walls;
      }
    }
    if (is_inside) *stored = __brev(cells.own);
    if (L::lane() == 0) {
      job.lines[index] += lines;
      job.games[index] += ended;
      job.made[index] += made;
    }
  }
};

template <class List>
__global__ void __launch_bounds__(WARP)
    rollout_warp(const __grid_constant__ RolloutArguments job) {
  WarpRollout<List>{job}.play(blockIdx.x);
}

}  // namespace tetris
