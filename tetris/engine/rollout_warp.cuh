// Rollouts on a GPU, few games: a warp a game, a thread a placement and a column.
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

  // Scores the placements of all orientations of one width, one a thread; whether this thread's completes a row.
  template <int WIDTH>
  __device__ __forceinline__ bool score(
      const Decision& decision, typename Decision::Search& search, int piece) {
    const auto group = group_of_thread<L, WIDTH>(piece);
    place = group.order[0];
    return decision.score(search, group) != 0;
  }

  // Of the threads' placements, those whose flag is set, one after the other: all threads work on one.
  __device__ __forceinline__ void score_rest(
      const Decision& decision, const Board<L>& board, bool flag, int piece, Choice& choice) {
    for (unsigned rest = __ballot_sync(~0u, flag); rest != 0; rest &= rest - 1) {
      const int each = __shfl_sync(~0u, place, __ffs(rest) - 1);
      choice.consider(
          whole_score<List>(board, decision.weights, piece, each, decision.column_weights));
    }
  }

  template <int WIDTH>
  __device__ __forceinline__ void score_all(
      const Decision& decision, typename Decision::Search& search, int piece, Choice& choice) {
    if (!has_width<WIDTH>(piece)) return;
    score_rest(decision, search.board, score<WIDTH>(decision, search, piece), piece, choice);
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

  __device__ void play(uint32_t index) {
    const int64_t games_left = job.games_left(index);
    if (games_left <= 0) return;
    const PieceStream stream = job.pieces_of(index);
    const Geometry<L> geometry(job.rules);
    const Decision decision(
        geometry, job.weights + int64_t(job.candidate_of(index)) * List::ROW);
    const int column = L::lane() - FIRST_COLUMN;
    const bool inside = column >= 0 && column < job.rules.width;
    uint32_t* stored = job.boards + int64_t(index) * job.rules.width + column;
    L::ColumnBits cells = geometry.walls;
    if (inside) cells.own = __brev(*stored);
    uint32_t made = 0, lines = 0, ended = 0;
    int pieces = 0;
    for (; made < job.decisions && ended < games_left; ++made) {
      // Each thread knows the piece of one of 32 decisions.
      if (made % WARP == 0) {
        pieces = stream.piece(job.start + made + L::lane());
        if (made == 0 && L::lane() == 0) pieces = job.first_piece(index);
      }
      const int piece = __shfl_sync(~0u, pieces, static_cast<int>(made % WARP));
      const Board<L> board(geometry, cells);
      const Choice choice = choose(decision, board, piece);
      const Landing<L> landing(board, piece, choice.made());
      lines += landing.lines;
      ended += landing.over ? 1 : 0;
      cells = landing.over ? geometry.walls : landing.cells;
      // The next piece is drawn only where it decides.
      if (geometry.original &&
          ends_by_next(geometry, cells, stream.piece(job.start + made + 1))) {
        ++ended;
        cells = geometry.walls;
      }
    }
    if (inside) *stored = __brev(cells.own);
    if (L::lane() == 0) {
      job.lines[index] += lines;
      job.games[index] += ended;
      job.made[index] += made;
    }
  }

  int place = 0;
};

template <class List>
__global__ void __launch_bounds__(WARP)
    rollout_warp(const __grid_constant__ RolloutArguments job) {
  WarpRollout<List>{job}.play(blockIdx.x);
}

}  // namespace tetris
