// One step of each environment, and what is observed of it, on any device: tetris/envs/tetris_env.py says what a step is. The
// operators' schemas, and their tensors, checked, as plain pointers.
#pragma once

#include "board.h"
#include "check_tensor.h"
#include "piece_stream.h"

namespace tetris {

// What is marked as written is the environments' state, up to `ended`, and what the caller gets.
#define TETRIS_STEP_SCHEMA                                                                  \
  "step(Tensor actions, Tensor seed, Tensor stream, Tensor(a!) columns, Tensor(b!) time, "  \
  "Tensor(c!) length, Tensor(d!) current, Tensor(e!) ended, Tensor(f!) board, Tensor(g!) "  \
  "piece, "                                                                                 \
  "Tensor(h!) mask, Tensor(i!) next, Tensor(j!) reward, Tensor(k!) terminated, Tensor(l!) " \
  "truncated, "                                                                             \
  "Tensor(m!) final_board, bool clear_on_overflow, int pieces, int piece_count, bool bag, " \
  "int autoreset, "                                                                         \
  "int limit, int reward_kind) -> ()"
#define TETRIS_OBSERVE_SCHEMA                                                              \
  "observe(Tensor seed, Tensor stream, Tensor columns, Tensor time, Tensor(a!) current, "  \
  "Tensor(b!) board, "                                                                     \
  "Tensor(c!) piece, Tensor(d!) mask, Tensor(e!) next, int pieces, int piece_count, bool " \
  "bag) -> ()"

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
      return lines == 4  ? 800.0f
             : lines > 0 ? 200.0f * static_cast<float>(lines) - 100.0f
                         : 0.0f;
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
    const PieceStream pieces{
        source, static_cast<uint64_t>(seed), static_cast<uint64_t>(stream)};
    return pieces.piece(static_cast<uint64_t>(time));
  }
};

// What both operators read or write, for `count` environments.
struct Environments {
  int64_t count;
  const int64_t *seed, *stream;
  uint32_t* columns;  // (width, count), as the engine has them: row r is bit 31 - r
  int64_t* time;
  uint8_t* current;  // piece to be placed
  int8_t* board;     // (count, height, width)
  int64_t* piece;
  int8_t* mask;   // (count, 4 * width)
  int64_t* next;  // (count, ahead): the pieces that follow
  int64_t ahead;

  TETRIS_FUNCTION void write_next(const Task& task, int64_t i) const {
    for (int64_t k = 0; k < ahead; ++k)
      next[i * ahead + k] = task.piece(seed[i], stream[i], time[i] + 1 + k);
  }
};

// What a step has besides.
struct StepTensors {
  const int64_t*
      actions;  // null where nothing is placed, and the environments are only observed
  int64_t* length;
  uint8_t* ended;
  float* reward;
  bool *terminated, *truncated;
  int8_t* final_board;  // as `board`, or null
};

// Of a piece: ORIENTATIONS, four bits each, for device code cannot look up a host's array.
TETRIS_FUNCTION int orientations_of(int piece) { return 0x4422412 >> (4 * piece) & 15; }

// The placement that an action stands for (tetris/envs/tetris_env.py), by its place in the order of the search. An
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
template <class L>
TETRIS_FUNCTION typename L::ColumnBits load_columns(
    const Geometry<L>& geometry, const uint32_t* columns, int64_t count) {
  typename L::ColumnBits cells = geometry.walls;
  TETRIS_UNROLL for (int c = 0; c < MAX_WIDTH; ++c) {
    if (c < geometry.width) cells.slot[FIRST_COLUMN + c] = columns[c * count];
  }
  return cells;
}

// Carries environment i on by one step, all but what is observed of it. Returns the piece to be placed next; `cells` become
// its columns, `shown` the board that the step led to, another one where the next episode has begun.
template <class L>
TETRIS_FUNCTION int step_one(const Environments& all, const StepTensors& tensors,
    const Task& task, const Geometry<L>& geometry, int64_t i, typename L::ColumnBits& cells,
    typename L::ColumnBits& shown) {
  int piece = all.current[i];
  int64_t time = all.time[i], length = tensors.length[i];
  const uint8_t before = tensors.ended[i];
  uint8_t ended = 0;
  float reward = 0.0f;
  cells = load_columns(geometry, all.columns + i, all.count);
  shown = cells;
  if (before != 0 && task.autoreset == Autoreset::DISABLED) {
    ended = before;
  } else if (before != 0) {
    cells = shown = geometry.walls;
    length = 0;
  } else {
    const Board<L> board(geometry, cells);
    const int place = place_of(tensors.actions[i], piece, geometry.width);
    const Landing<L> landing(board, piece, place);
    shown = landing.cells;
    if (landing.over && !task.rules.clear_on_overflow) {
      // A landing leaves out the piece that ended the game.
      shown =
          shown | L::piece_columns(piece, orientation_of(place), column_of(place), landing.row);
    }
    cells = shown;
    piece = task.piece(all.seed[i], all.stream[i], ++time);
    reward = reward_of(task.reward, landing.lines, landing.over);
    length += 1;
    const bool truncated = task.limit > 0 && length >= task.limit;
    ended = static_cast<uint8_t>((landing.over ? TERMINATED : 0) + (truncated ? TRUNCATED : 0));
    if (task.autoreset == Autoreset::SAME_STEP && ended != 0) {
      cells = geometry.walls;
      length = 0;
    }
  }
  TETRIS_UNROLL for (int c = 0; c < MAX_WIDTH; ++c) {
    if (c < geometry.width) all.columns[c * all.count + i] = cells.slot[FIRST_COLUMN + c];
  }
  all.time[i] = time;
  tensors.length[i] = length;
  tensors.ended[i] = task.autoreset == Autoreset::SAME_STEP ? 0 : ended;
  tensors.reward[i] = reward;
  tensors.terminated[i] = (ended & TERMINATED) != 0;
  tensors.truncated[i] = (ended & TRUNCATED) != 0;
  all.write_next(task, i);
  return piece;
}

// What is seen of environment i where nothing is placed: its piece, and `cells` become its columns.
template <class L>
TETRIS_FUNCTION int observe_one(const Environments& all, const Task& task,
    const Geometry<L>& geometry, int64_t i, typename L::ColumnBits& cells) {
  cells = load_columns(geometry, all.columns + i, all.count);
  all.write_next(task, i);
  return task.piece(all.seed[i], all.stream[i], all.time[i]);
}

// Checks tensors of a type and a number of elements each, on the device of `like`.
template <class... Tensors>
void check_tensors(
    const Tensor& like, ScalarType type, int64_t numbers, const Tensors&... tensors) {
  (check_tensor(tensors, type, numbers, like, "tensors"), ...);
}

inline Environments environments_of(const Tensor& seed, const Tensor& stream,
    const Tensor& columns, const Tensor& time, const Tensor& current, const Tensor& board,
    const Tensor& piece, const Tensor& mask, const Tensor& next) {
  STD_TORCH_CHECK(columns.dim() == 2 && board.dim() == 3 && next.dim() == 2,
      "expected columns (width, count), board (count, height, width) and next (count, pieces)");
  const int64_t width = columns.size(0), count = columns.size(1), height = board.size(1);
  STD_TORCH_CHECK(width >= 4 && width <= MAX_WIDTH && height >= 4 && height <= MAX_HEIGHT &&
                      board.size(2) == width,
      "expected a board of 4..10 x 4..24, got ", width, " x ", height);
  check_tensors(columns, ScalarType::Int, width * count, columns);
  check_tensors(columns, ScalarType::Long, count, seed, stream, time, piece);
  check_tensors(columns, ScalarType::Byte, count, current);
  check_tensors(columns, ScalarType::Char, count * height * width, board);
  check_tensors(columns, ScalarType::Char, count * MAX_ORIENTATIONS * width, mask);
  check_tensors(columns, ScalarType::Long, count * next.size(1), next);
  return {count, seed.const_data_ptr<int64_t>(), stream.const_data_ptr<int64_t>(),
      reinterpret_cast<uint32_t*>(columns.mutable_data_ptr<int32_t>()),
      time.mutable_data_ptr<int64_t>(), current.mutable_data_ptr<uint8_t>(),
      board.mutable_data_ptr<int8_t>(), piece.mutable_data_ptr<int64_t>(),
      mask.mutable_data_ptr<int8_t>(), next.mutable_data_ptr<int64_t>(), next.size(1)};
}

inline Task task_of(const Tensor& board, bool clear_on_overflow, int64_t pieces,
    int64_t piece_count, bool bag, int64_t autoreset, int64_t limit, int64_t reward_kind) {
  STD_TORCH_CHECK(
      autoreset >= 0 && autoreset <= 2 && limit >= 0 && reward_kind >= 0 && reward_kind <= 3,
      "expected autoreset from 0 to 2, no negative limit and reward_kind from 0 to 3, got ",
      autoreset, ", ", limit, " and ", reward_kind);
  return {{static_cast<int>(board.size(2)), static_cast<int>(board.size(1)), clear_on_overflow},
      PieceSource::of(pieces, piece_count, bag), static_cast<Autoreset>(autoreset), limit,
      static_cast<Reward>(reward_kind)};
}

// The operators of a device, which plays: `Device::step(board, environments, tensors, task)`.
template <class Device>
struct Operators {
  static void step(const Tensor& actions, const Tensor& seed, const Tensor& stream,
      Tensor columns, Tensor time, Tensor length, Tensor current, Tensor ended, Tensor board,
      Tensor piece, Tensor mask, Tensor next, Tensor reward, Tensor terminated,
      Tensor truncated, Tensor final_board, bool clear_on_overflow, int64_t pieces,
      int64_t piece_count, bool bag, int64_t autoreset, int64_t limit, int64_t reward_kind) {
    const Environments all =
        environments_of(seed, stream, columns, time, current, board, piece, mask, next);
    const Task task = task_of(
        board, clear_on_overflow, pieces, piece_count, bag, autoreset, limit, reward_kind);
    const bool finals = task.autoreset == Autoreset::SAME_STEP;
    check_tensors(board, ScalarType::Long, all.count, actions, length);
    check_tensors(board, ScalarType::Byte, all.count, ended);
    check_tensors(board, ScalarType::Float, all.count, reward);
    check_tensors(board, ScalarType::Bool, all.count, terminated, truncated);
    check_tensors(board, ScalarType::Char, finals ? board.numel() : 0, final_board);
    const StepTensors tensors{actions.const_data_ptr<int64_t>(),
        length.mutable_data_ptr<int64_t>(), ended.mutable_data_ptr<uint8_t>(),
        reward.mutable_data_ptr<float>(), terminated.mutable_data_ptr<bool>(),
        truncated.mutable_data_ptr<bool>(),
        finals ? final_board.mutable_data_ptr<int8_t>() : nullptr};
    if (all.count > 0) Device::step(board, all, tensors, task);
  }

  // Writes what there is to see of environments that were reset.
  static void observe(const Tensor& seed, const Tensor& stream, const Tensor& columns,
      const Tensor& time, Tensor current, Tensor board, Tensor piece, Tensor mask, Tensor next,
      int64_t pieces, int64_t piece_count, bool bag) {
    const Environments all =
        environments_of(seed, stream, columns, time, current, board, piece, mask, next);
    if (all.count > 0)
      Device::step(board, all, {}, task_of(board, false, pieces, piece_count, bag, 0, 0, 0));
  }
};

}  // namespace tetris
