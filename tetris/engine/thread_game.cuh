// A game as a thread plays it.
#pragma once

#include "rollout_arguments.h"
#include "thread_lanes.h"

namespace tetris {

// What a game carries from one decision to the next. Its 64 bytes are read and written in four
// accesses of 16.
struct alignas(16) GameState {
  uint32_t columns[MAX_WIDTH];
  uint32_t made;  // decisions, in this launch
  uint32_t lines, games;
  // Only for expectimax: the piece that falls, and its two best placements (PoolRollout::pack),
  // 0 if not known.
  uint32_t piece, best_two;
  uint32_t unused;
};

// Returns the geometry of a board. If its width is a constant, the compiler drops the columns
// beside it.
template <int BOARD_WIDTH>
__device__ inline Geometry<ThreadLanes> geometry_of(const GameRules& rules) {
  GameRules own = rules;
  if (BOARD_WIDTH > 0) own.width = BOARD_WIDTH;
  return Geometry<ThreadLanes>(own);
}

// Returns a game's columns with side walls.
__device__ inline ThreadLanes::ColumnBits with_walls(
    const Geometry<ThreadLanes>& geometry, const uint32_t (&columns)[MAX_WIDTH]) {
  ThreadLanes::ColumnBits cells = geometry.walls;
  TETRIS_UNROLL for (int i = 0; i < MAX_WIDTH; ++i) cells.slot[FIRST_COLUMN + i] |= columns[i];
  return cells;
}

// Places a piece as `choice` says, and updates the game's lines, its number of ended games and
// its columns. Returns whether the placement ends the game; then the columns become empty.
__device__ inline bool land(
    const Board<ThreadLanes>& board, int piece, const Choice& choice, GameState& game) {
  Landing<ThreadLanes> landing(board, piece, choice.placement_to_play());
  game.lines += landing.lines;
  game.games += landing.over ? 1 : 0;
  TETRIS_UNROLL for (int i = 0; i < MAX_WIDTH; ++i) {
    uint32_t inside = board.geometry.inside.slot[FIRST_COLUMN + i];
    game.columns[i] = landing.over ? 0 : landing.cells.slot[FIRST_COLUMN + i] & inside;
  }
  return landing.over;
}

// Ends the game if its next piece cannot appear, which empties the board. Returns whether the
// game has ended so.
__device__ inline bool end_if_next_does_not_appear(
    const Geometry<ThreadLanes>& geometry, int next, GameState& game) {
  if (!next_piece_ends_game(geometry, with_walls(geometry, game.columns), next)) return false;
  ++game.games;
  TETRIS_UNROLL for (uint32_t& column : game.columns) column = 0;
  return true;
}

// Returns the state of game i when the launch begins. A column of `boards` has row r in bit r,
// and __brev turns it round.
__device__ inline GameState first_state(const RolloutArguments& job, uint32_t i) {
  int64_t first = int64_t(i) * job.rules.width;
  GameState game{};
  TETRIS_UNROLL for (int c = 0; c < MAX_WIDTH; ++c) {
    if (c < job.rules.width) game.columns[c] = __brev(job.boards[first + c]);
  }
  return game;
}

// Writes what became of game i.
__device__ inline void write_result(
    const RolloutArguments& job, uint32_t i, const GameState& game) {
  int64_t first = int64_t(i) * job.rules.width;
  TETRIS_UNROLL for (int c = 0; c < MAX_WIDTH; ++c) {
    if (c < job.rules.width) job.boards[first + c] = __brev(game.columns[c]);
  }
  job.lines[i] += game.lines;
  job.games[i] += game.games;
  job.made[i] += game.made;
}

}  // namespace tetris
