// One step of one environment, and what is observed of it, on any device: tetris/envs/tetris_env.py says what a step is.
#pragma once

#include "board.h"
#include "piece_stream.h"

namespace tetris {

// What becomes of an environment whose episode has ended (gymnasium.vector.AutoresetMode).
enum class Autoreset {
  NEXT_STEP,  // the next step begins an episode and places nothing
  SAME_STEP,  // the step that ends an episode begins the next one
  DISABLED,   // nothing, until it is reset
};

// How an environment's last step left its episode: the sum of what holds, 0 while it goes on.
enum Ended : uint8_t { TERMINATED = 1, TRUNCATED = 2 };

// What a placement is rewarded for (Rewards of TetrisEnv).
enum class Reward {
  LINES,     // lines it removes
  POINTS,    // the guideline's for them
  PIECES,    // 1, unless it ends the game
  SURVIVAL,  // 0, and -1 where it ends the game
};

TETRIS_FUNCTION float reward_of(Reward reward, int lines, bool over) {
  switch (reward) {
    case Reward::POINTS:
      return lines == 4 ? 800.0f : lines > 0 ? 200.0f * static_cast<float>(lines) - 100.0f : 0.0f;
    case Reward::PIECES: return over ? 0.0f : 1.0f;
    case Reward::SURVIVAL: return over ? -1.0f : 0.0f;
    case Reward::LINES: break;
  }
  return static_cast<float>(lines);
}

// What is the same for all environments.
struct Task {
  GameRules rules;
  PieceSource source;
  Autoreset autoreset;
  int64_t limit;  // placements after which an episode is truncated; 0: never
  Reward reward;

  TETRIS_FUNCTION int piece(int64_t seed, int64_t stream, int64_t time) const {
    const PieceStream pieces{source, static_cast<uint64_t>(seed), static_cast<uint64_t>(stream)};
    return pieces.piece(static_cast<uint64_t>(time));
  }
};

// What an environment remembers besides its columns, its seed and its stream.
struct Episode {
  int64_t time;    // number of the piece to be placed, in its stream
  int64_t length;  // placements so far
  uint8_t piece;   // to be placed
  uint8_t ended;   // sum of `Ended`
};

struct Outcome {
  float reward = 0.0f;
  bool terminated = false, truncated = false;
};

constexpr int MAX_ORIENTATIONS_PER_FIELD = 15;
constexpr uint32_t packed_orientations() {
  uint32_t fields = 0;
  for (int piece = 0; piece < PIECES; ++piece)
    fields |= static_cast<uint32_t>(ORIENTATIONS[piece]) << (4 * piece);
  return fields;
}
// Device code cannot look up a host's array.
TETRIS_FUNCTION constexpr int orientations_of(int piece) {
  constexpr uint32_t fields = packed_orientations();
  return static_cast<int>(fields >> (4 * piece)) & MAX_ORIENTATIONS_PER_FIELD;
}

// The placement that an action stands for (tetris/envs/placements.py), by its place in the order of the search. An
// action outside the action space stands for the nearest one in it.
TETRIS_FUNCTION int place_of(int64_t action, int piece, int width) {
  const int64_t last = MAX_ORIENTATIONS * width - 1;
  const int number = static_cast<int>(action < 0 ? 0 : action > last ? last : action);
  const int orientation = (number / width) % orientations_of(piece), column = number % width;
  const int most = width - shape_of(piece, orientation).width;
  return orientation * ORDER_STRIDE + (column < most ? column : most);
}

// A bit an action: whether it is a placement of its own.
TETRIS_FUNCTION uint64_t mask_bits(int piece, int width) {
  uint64_t bits = 0;
  for (int orientation = 0; orientation < orientations_of(piece); ++orientation) {
    const int placements = width - shape_of(piece, orientation).width + 1;
    bits |= ((uint64_t{1} << placements) - 1) << (orientation * width);
  }
  return bits;
}

// Carries one environment on by one step. `shown` becomes the board that the step led to: where the episode ended and
// the next one has begun, that is not the board in `cells`.
template <class L> TETRIS_FUNCTION Outcome step(const Task& task, const Geometry<L>& geometry, int64_t action,
    int64_t seed, int64_t stream, Episode& episode, typename L::ColumnBits& cells,
    typename L::ColumnBits& shown) {
  Outcome outcome;
  shown = cells;
  if (episode.ended != 0) {
    if (task.autoreset == Autoreset::DISABLED) {
      outcome.terminated = (episode.ended & TERMINATED) != 0;
      outcome.truncated = (episode.ended & TRUNCATED) != 0;
      return outcome;
    }
    cells = shown = geometry.walls;
    episode.ended = 0;
    episode.length = 0;
    return outcome;
  }
  const Board<L> board(geometry, cells);
  const int place = place_of(action, episode.piece, geometry.width);
  const Landing<L> landing(board, episode.piece, place);
  shown = landing.cells;
  if (landing.over && !task.rules.clear_on_overflow) {
    // A landing leaves out the piece that ended the game.
    shown = shown | L::piece_columns(episode.piece, orientation_of(place), column_of(place), landing.row);
  }
  cells = shown;
  episode.length += 1;
  episode.time += 1;
  episode.piece = static_cast<uint8_t>(task.piece(seed, stream, episode.time));
  outcome.reward = reward_of(task.reward, landing.lines, landing.over);
  outcome.terminated = landing.over;
  outcome.truncated = task.limit > 0 && episode.length >= task.limit;
  const int ended = (outcome.terminated ? TERMINATED : 0) + (outcome.truncated ? TRUNCATED : 0);
  if (task.autoreset != Autoreset::SAME_STEP) {
    episode.ended = static_cast<uint8_t>(ended);
  } else if (ended != 0) {
    cells = geometry.walls;
    episode.length = 0;
  }
  return outcome;
}

// The cells of a row, bit c for column c. Right of the board there are side walls, which are full.
template <class L>
TETRIS_FUNCTION uint32_t row_bits(const typename L::ColumnBits& cells, int row, int width) {
  uint32_t bits = 0;
  TETRIS_UNROLL for (int c = 0; c < MAX_WIDTH; ++c) bits |=
      (cells.slot[FIRST_COLUMN + c] >> (L::TOP - row) & 1u) << c;
  return bits & ((1u << width) - 1);
}

// Four bits become the lowest bits of four bytes; the first becomes the first in memory.
TETRIS_FUNCTION uint32_t bytes_of(uint32_t four_bits) {
  return (four_bits & 15u) * 0x00204081u & 0x01010101u;
}

// An environment's columns lie `count` numbers apart, so that neighbouring threads read neighbouring numbers.
template <class L> TETRIS_FUNCTION typename L::ColumnBits load_columns(
    const Geometry<L>& geometry, const uint32_t* columns, int64_t count) {
  typename L::ColumnBits cells = geometry.walls;
  TETRIS_UNROLL for (int c = 0; c < MAX_WIDTH; ++c) {
    if (c < geometry.width) cells.slot[FIRST_COLUMN + c] = columns[c * count];
  }
  return cells;
}

template <class L> TETRIS_FUNCTION void store_columns(
    const Geometry<L>& geometry, const typename L::ColumnBits& cells, uint32_t* columns, int64_t count) {
  TETRIS_UNROLL for (int c = 0; c < MAX_WIDTH; ++c) {
    if (c < geometry.width) columns[c * count] = cells.slot[FIRST_COLUMN + c];
  }
}

}  // namespace tetris
