// Rollouts on a GPU of few streams of games, with a warp per stream. Each thread holds one
// placement and one column of the board.
#pragma once

#include "placements.cuh"
#include "rollout_arguments.h"
#include "warp_lanes.h"

namespace tetris {

// The column of a stream's board that this thread of the warp holds: thread FIRST_COLUMN + c
// holds column c. Row r is bit r in tensors, and bit 31 - r in the engine; __brev reverses the
// bits.
struct ThreadColumn {
  bool exists;     // whether the board has a column for this thread
  uint32_t* word;  // the column in the tensor of boards

  __device__ ThreadColumn(const RolloutArguments& job, uint32_t index) {
    int column = WarpLanes::lane() - FIRST_COLUMN;
    exists = column >= 0 && column < job.rules.width;
    word = job.boards + int64_t(index) * job.rules.width + column;
  }
  // Returns the columns of the board; `walls` is an empty board.
  __device__ WarpLanes::ColumnBits load(WarpLanes::ColumnBits walls) const {
    if (exists) walls.value = __brev(*word);
    return walls;
  }
  __device__ void store(const WarpLanes::ColumnBits& cells) const {
    if (exists) *word = __brev(cells.value);
  }
};

template <class List>
struct WarpRollout {
  using L = WarpLanes;
  using Decision = Chooser<L, List>;
  const RolloutArguments& job;
  int placement = 0;  // this thread's placement in the last call of score_own

  // Scores the placements of all orientations that are WIDTH columns wide, one placement per
  // thread. Placements that complete a row are not scored. Returns whether this thread's
  // placement is left for score_after_states.
  template <int WIDTH>
  __device__ __forceinline__ bool score_own(
      const Decision& decision, typename Decision::Search& search, int piece) {
    auto group = group_of_thread<L, WIDTH>(piece);
    placement = group.first_placement[0];
    return decision.score_drops(search, group) != 0;
  }

  // Scores the placements that score_own has left unscored, one after the other, and updates
  // `choice` in every thread. `is_unscored` says whether this thread's placement is one of
  // them. All threads of the warp call the function, and compute the features of one board
  // together.
  __device__ __forceinline__ void score_after_states(const Decision& decision,
      const Board<L>& board, bool is_unscored, int piece, Choice& choice) {
    // The set of threads with an unscored placement, one bit per thread.
    unsigned threads = __ballot_sync(~0u, is_unscored);
    for (; threads != 0; threads = without_lowest_bit(threads)) {
      int thread = __ffs(threads) - 1;
      int unscored = __shfl_sync(~0u, placement, thread);
      choice.consider(after_state_score<List>(
          board, decision.weights, piece, unscored, decision.column_weights));
    }
  }

  // Scores all placements of the orientations that are WIDTH columns wide.
  template <int WIDTH>
  __device__ __forceinline__ void score_all(
      const Decision& decision, typename Decision::Search& search, int piece, Choice& choice) {
    if (!has_width<WIDTH>(piece)) return;
    bool is_unscored = score_own<WIDTH>(decision, search, piece);
    score_after_states(decision, search.board, is_unscored, piece, choice);
  }

  // Returns the best placement of a piece in every thread of the warp.
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

  // Draws the pieces of the next 32 decisions of stream `index`: returns the piece of decision
  // number `decisions` + i in thread i of the warp. The first piece of all may come from
  // another stream.
  __device__ __forceinline__ int draw_piece(
      const PieceStream& pieces, uint32_t index, uint32_t decisions) const {
    int piece = pieces.piece(job.start + decisions + L::lane());
    bool is_first = decisions == 0 && L::lane() == 0;
    return is_first ? job.first_piece(index) : piece;
  }

  // Plays stream `index` with the threads of one warp, until it has made job.decisions
  // decisions or has reached its limit of ended games. A stream is a sequence of games on one
  // board. geometry.walls is an empty board.
  __device__ void play(uint32_t index) {
    int64_t games_left = job.games_left(index);
    if (games_left <= 0) return;
    PieceStream pieces = job.pieces_of(index);
    Geometry<L> geometry(job.rules);
    Decision decision(geometry, job.weights_of<List>(index));
    const ThreadColumn column(job, index);
    L::ColumnBits cells = column.load(geometry.walls);
    uint32_t decisions = 0, lines = 0, ended_games = 0;
    int drawn_piece = 0;  // thread i holds the piece of the i-th of 32 decisions
    for (; decisions < job.decisions && ended_games < games_left; ++decisions) {
      if (decisions % WARP == 0) drawn_piece = draw_piece(pieces, index, decisions);
      int piece = __shfl_sync(~0u, drawn_piece, int(decisions % WARP));
      Board<L> board(geometry, cells);
      Choice choice = choose(decision, board, piece);
      Landing<L> landing(board, piece, choice.placement_to_play());
      lines += landing.lines;
      ended_games += landing.over ? 1 : 0;
      cells = landing.over ? geometry.walls : landing.cells;
      if (geometry.original) {  // then a game also ends if its next piece cannot appear
        int next = pieces.piece(job.start + decisions + 1);
        if (next_piece_ends_game(geometry, cells, next)) {
          ++ended_games;
          cells = geometry.walls;
        }
      }
    }
    column.store(cells);
    if (L::lane() == 0) job.add_result(index, lines, ended_games, decisions);
  }
};

// Kernel: plays all streams of a job, with one block per stream, which consists of one warp.
template <class List>
__global__ void __launch_bounds__(WARP)
    rollout_warp(const __grid_constant__ RolloutArguments job) {
  WarpRollout<List>{job}.play(blockIdx.x);
}

}  // namespace tetris
