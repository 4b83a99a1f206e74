// The state of a stream of games, as one thread plays it.
#pragma once

#include "rollout_arguments.h"
#include "thread_lanes.h"

namespace tetris {

// The state of a stream between two decisions. A stream is a sequence of games on one board.
// The 64 bytes of the struct are read and written in four accesses of 16 bytes.
struct alignas(16) StreamState {
  uint32_t columns[MAX_WIDTH];  // row r is bit 31 - r
  // The decisions, the removed lines and the ended games since the launch began.
  uint32_t decisions, lines, ended_games;
  // Only for expectimax: the piece that falls, and its two best placements, packed by
  // PoolRollout::pack. `best_two` is 0 if they are not known.
  uint32_t piece, best_two;
  uint32_t unused;
};

// Returns the geometry of a board. If its width is a template argument, the compiler removes
// the computations for columns that the board does not have. BOARD_WIDTH = 0 means any width.
template <int BOARD_WIDTH>
__device__ inline Geometry<ThreadLanes> geometry_of(const GameRules& rules) {
  GameRules own = rules;
  if (BOARD_WIDTH > 0) own.width = BOARD_WIDTH;
  return Geometry<ThreadLanes>(own);
}

// Returns the columns of a stream's board with side walls.
__device__ inline ThreadLanes::ColumnBits with_walls(
    const Geometry<ThreadLanes>& geometry, const uint32_t (&columns)[MAX_WIDTH]) {
  ThreadLanes::ColumnBits cells = geometry.walls;
  TETRIS_UNROLL for (int i = 0; i < MAX_WIDTH; ++i) cells.slot[FIRST_COLUMN + i] |= columns[i];
  return cells;
}

// Places a piece as `choice` says, and updates the stream's board, its lines and its number of
// ended games. Returns whether the placement ends the game. If it does, the board becomes
// empty, and the next game begins on it.
__device__ inline bool land(
    const Board<ThreadLanes>& board, int piece, const Choice& choice, StreamState& state) {
  Landing<ThreadLanes> landing(board, piece, choice.placement_to_play());
  state.lines += landing.lines;
  state.ended_games += landing.over ? 1 : 0;
  TETRIS_UNROLL for (int i = 0; i < MAX_WIDTH; ++i) {
    uint32_t inside = board.geometry.inside.slot[FIRST_COLUMN + i];
    state.columns[i] = landing.over ? 0 : landing.cells.slot[FIRST_COLUMN + i] & inside;
  }
  return landing.over;
}

// Ends the game if its next piece cannot appear, which can only happen under the rule
// `original`. The board then becomes empty. Returns whether the game has ended.
__device__ inline bool end_game_if_blocked(
    const Geometry<ThreadLanes>& geometry, int next, StreamState& state) {
  if (!next_piece_ends_game(geometry, with_walls(geometry, state.columns), next)) return false;
  ++state.ended_games;
  TETRIS_UNROLL for (uint32_t& column : state.columns) column = 0;
  return true;
}

// Returns the state of stream i at the beginning of the launch. In `boards` row r of a column
// is bit r, and in the state it is bit 31 - r; __brev reverses the bits.
__device__ inline StreamState initial_state(const RolloutArguments& job, uint32_t i) {
  int64_t first = int64_t(i) * job.rules.width;
  StreamState state{};
  TETRIS_UNROLL for (int c = 0; c < MAX_WIDTH; ++c) {
    if (c < job.rules.width) state.columns[c] = __brev(job.boards[first + c]);
  }
  return state;
}

// Writes the board of stream i to the tensors, and adds its lines, ended games and decisions to
// them.
__device__ inline void write_result(
    const RolloutArguments& job, uint32_t i, const StreamState& state) {
  int64_t first = int64_t(i) * job.rules.width;
  TETRIS_UNROLL for (int c = 0; c < MAX_WIDTH; ++c) {
    if (c < job.rules.width) job.boards[first + c] = __brev(state.columns[c]);
  }
  job.add_result(i, state.lines, state.ended_games, state.decisions);
}

}  // namespace tetris
