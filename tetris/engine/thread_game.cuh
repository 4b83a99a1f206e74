// A game as a thread plays it.
#pragma once

#include "rollout_arguments.h"
#include "thread_lanes.h"

namespace tetris {

// What a game carries from one decision to the next: four accesses of 16 bytes.
struct alignas(16) GameState {
  uint32_t columns[MAX_WIDTH];
  uint32_t made;  // decisions, in this launch
  uint32_t lines, games;
  // Where all that may come next counts: the piece that falls, and its two best placements, packed; 0 where they are not known.
  uint32_t piece, two;
  uint32_t unused;
};

// Where the width is known when it is compiled, nothing is spent on the columns beside the board.
template <int BOARD_WIDTH>
__device__ inline Geometry<ThreadLanes> geometry_of(const GameRules& rules) {
  GameRules own = rules;
  if (BOARD_WIDTH > 0) own.width = BOARD_WIDTH;
  return Geometry<ThreadLanes>(own);
}

// A board's columns with side walls, from those of a game.
__device__ inline ThreadLanes::ColumnBits with_walls(
    const Geometry<ThreadLanes>& geometry, const uint32_t (&columns)[MAX_WIDTH]) {
  ThreadLanes::ColumnBits cells = geometry.walls;
  TETRIS_UNROLL for (int i = 0; i < MAX_WIDTH; ++i) cells.slot[FIRST_COLUMN + i] |= columns[i];
  return cells;
}

// The landing of the choice; whether it ends the game.
__device__ inline bool land(
    const Board<ThreadLanes>& board, int piece, const Choice& choice, GameState& game) {
  const Landing<ThreadLanes> landing(board, piece, choice.made());
  game.lines += landing.lines;
  game.games += landing.over ? 1 : 0;
  TETRIS_UNROLL for (int i = 0; i < MAX_WIDTH; ++i) {
    const uint32_t inside = board.geometry.inside.slot[FIRST_COLUMN + i];
    game.columns[i] = landing.over ? 0 : landing.cells.slot[FIRST_COLUMN + i] & inside;
  }
  return landing.over;
}

// Ends the game where its next piece does; whether it did.
__device__ inline bool end_by_next(
    const Geometry<ThreadLanes>& geometry, int next, GameState& game) {
  if (!ends_by_next(geometry, with_walls(geometry, game.columns), next)) return false;
  ++game.games;
  TETRIS_UNROLL for (uint32_t& column : game.columns) column = 0;
  return true;
}

__device__ inline GameState first_state(const RolloutArguments& job, uint32_t i) {
  GameState game{};
  TETRIS_UNROLL for (int c = 0; c < MAX_WIDTH; ++c) {
    if (c < job.rules.width)
      game.columns[c] = __brev(job.boards[int64_t(i) * job.rules.width + c]);
  }
  return game;
}

__device__ inline void write_result(
    const RolloutArguments& job, uint32_t i, const GameState& game) {
  TETRIS_UNROLL for (int c = 0; c < MAX_WIDTH; ++c) {
    if (c < job.rules.width)
      job.boards[int64_t(i) * job.rules.width + c] = __brev(game.columns[c]);
  }
  job.lines[i] += game.lines;
  job.games[i] += game.games;
  job.made[i] += game.made;
}

}  // namespace tetris
