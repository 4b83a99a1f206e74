// One step of every environment, and its observation, on any device. tetris/envs/tetris_env.py
// defines a step. This file also has the schemas of the operators and the checks of their
// tensors.
#pragma once

#include "board.h"
#include "check_tensor.h"
#include "piece_stream.h"

namespace tetris {

// The tensors that are marked as written are the state of the environments (up to `ended`) and
// the results.
#define TETRIS_STEP_SCHEMA                                                                    \
  "step(Tensor actions, Tensor seed, Tensor stream, Tensor(a!) columns, Tensor(b!) time, "    \
  "Tensor(c!) length, Tensor(d!) current, Tensor(e!) ended, Tensor(f!) board, "               \
  "Tensor(g!) piece, Tensor(h!) mask, Tensor(i!) next, Tensor(j!) reward, "                   \
  "Tensor(k!) terminated, Tensor(l!) truncated, Tensor(m!) final_board, "                     \
  "bool clear_on_overflow, int pieces, int piece_count, bool bag, int autoreset, int limit, " \
  "int reward_kind) -> ()"
#define TETRIS_OBSERVE_SCHEMA                                                             \
  "observe(Tensor seed, Tensor stream, Tensor columns, Tensor time, Tensor(a!) current, " \
  "Tensor(b!) board, Tensor(c!) piece, Tensor(d!) mask, Tensor(e!) next, int pieces, "    \
  "int piece_count, bool bag) -> ()"

// When an environment is reset after its episode has ended (gymnasium.vector.AutoresetMode).
enum class Autoreset {
  NEXT_STEP,  // by the next step, which places no piece
  SAME_STEP,  // by the step that ends the episode
  DISABLED,   // not automatically
};

// How the last step of an environment ended its episode: a sum of flags, 0 if the episode goes
// on.
enum Ended : uint8_t { TERMINATED = 1, TRUNCATED = 2 };

// The reward of a placement (Rewards of TetrisEnv).
enum class Reward {
  LINES,     // the number of lines that it removes
  POINTS,    // the points of the guideline for these lines
  PIECES,    // 1, or 0 if it ends the game
  SURVIVAL,  // 0, or -1 if it ends the game
};

TETRIS_FUNCTION float points_of(int lines) {
  if (lines == 4) return 800.0f;
  return lines > 0 ? 200.0f * float(lines) - 100.0f : 0.0f;
}

TETRIS_FUNCTION float reward_of(Reward reward, int lines, bool over) {
  switch (reward) {
    case Reward::POINTS: return points_of(lines);
    case Reward::PIECES: return over ? 0.0f : 1.0f;
    case Reward::SURVIVAL: return over ? -1.0f : 0.0f;
    case Reward::LINES: break;
  }
  return float(lines);
}

// The settings that all environments share.
struct Task {
  GameRules rules;
  PieceSource source;
  Autoreset autoreset;
  int64_t limit;  // placements after which an episode is truncated; 0 means never
  Reward reward;

  TETRIS_FUNCTION int piece(int64_t seed, int64_t stream, int64_t time) const {
    PieceStream pieces{source, uint64_t(seed), uint64_t(stream)};
    return pieces.piece(uint64_t(time));
  }
};

// The data of the tensors of both operators, for `count` environments. Shapes are (count,)
// unless a comment says otherwise.
struct Environments {
  int64_t count;
  const int64_t* seed;
  const int64_t* stream;
  uint32_t* columns;  // (width, count), as in the engine: row r is bit 31 - r
  int64_t* time;
  uint8_t* current;  // the piece to place
  int8_t* board;     // (count, height, width)
  int64_t* piece;
  int8_t* mask;   // (count, 4 * width)
  int64_t* next;  // (count, ahead): the `ahead` pieces after the current one
  int64_t ahead;

  // Writes the pieces that follow the current piece of environment i.
  TETRIS_FUNCTION void write_next(const Task& task, int64_t i) const {
    for (int64_t k = 0; k < ahead; ++k)
      next[i * ahead + k] = task.piece(seed[i], stream[i], time[i] + 1 + k);
  }
};

// The data of the other tensors of a step. Shapes are (count,) unless a comment says otherwise.
struct StepTensors {
  const int64_t* actions;  // null if no step is made, and only observations are written
  int64_t* length;
  uint8_t* ended;
  float* reward;
  bool* terminated;
  bool* truncated;
  int8_t* final_board;  // (count, height, width), or null
};

// Returns ORIENTATIONS[piece]. Device code cannot read an array of the host, so the numbers are
// packed into a constant, four bits per piece.
TETRIS_FUNCTION int orientations_of(int piece) { return nth_field(0x4422412, piece); }

// Returns the placement of an action (see tetris/envs/tetris_env.py). An action is the number
// orientation * width + column. Every action is valid. An action outside the action space means
// the nearest action inside it. An orientation is taken modulo the number of the piece's
// orientations. A column that is too far right means the last possible column.
TETRIS_FUNCTION int placement_of(int64_t action, int piece, int width) {
  int64_t last_action = MAX_ORIENTATIONS * width - 1;
  int number = int(action < 0 ? 0 : action > last_action ? last_action : action);
  int orientation = (number / width) % orientations_of(piece);
  int column = number % width;
  int last_column = width - shape_of(piece, orientation).width;
  return placement_number(orientation, column < last_column ? column : last_column);
}

// Returns the set of the actions that are placements, where bit a is action a. The other
// actions have an orientation that the piece does not have, or a column that is too far right.
// They repeat other placements.
TETRIS_FUNCTION uint64_t mask_bits(int piece, int width) {
  uint64_t bits = 0;
  for (int orientation = 0; orientation < orientations_of(piece); ++orientation) {
    int columns = width - shape_of(piece, orientation).width + 1;
    bits |= ((uint64_t{1} << columns) - 1) << (orientation * width);
  }
  return bits;
}

// Returns the cells of a row of the board, where bit c is column c. The loop also reads the
// slots right of the board, which hold a side wall. The mask at the end removes them.
template <class L>
TETRIS_FUNCTION uint32_t row_bits(const typename L::ColumnBits& cells, int row, int width) {
  uint32_t bits = 0;
  TETRIS_UNROLL for (int c = 0; c < MAX_WIDTH; ++c) {
    uint32_t cell = cells.slot[FIRST_COLUMN + c] >> (L::TOP - row) & 1u;
    bits |= cell << c;
  }
  return bits & ((1u << width) - 1);
}

// Spreads the lowest four bits of a number over four bytes: byte i of the result, in the order
// of memory, is bit i of `bits`, 0 or 1. Higher bits are ignored. The multiplication makes four
// copies of the bits, shifted by 0, 7, 14 and 21, which do not overlap. Bit i of copy i is then
// bit 8 * i, the lowest bit of byte i.
TETRIS_FUNCTION uint32_t bytes_of(uint32_t bits) {
  constexpr uint32_t SHIFTED_BY_0_7_14_21 = 0x00204081u;
  constexpr uint32_t LOWEST_BIT_OF_BYTES = 0x01010101u;
  return (bits & 15u) * SHIFTED_BY_0_7_14_21 & LOWEST_BIT_OF_BYTES;
}

// Returns the columns of an environment with side walls. `columns` is the address of its column
// 0, and column c is `c * count` numbers further. So neighbouring threads, which have
// neighbouring environments, read neighbouring numbers.
template <class L>
TETRIS_FUNCTION auto load_columns(
    const Geometry<L>& geometry, const uint32_t* columns, int64_t count) {
  typename L::ColumnBits cells = geometry.walls;
  TETRIS_UNROLL for (int c = 0; c < MAX_WIDTH; ++c) {
    if (c < geometry.width) cells.slot[FIRST_COLUMN + c] = columns[c * count];
  }
  return cells;
}

// The state of an environment that is observed. It has two boards: if a step ends an episode
// and begins the next one, `final_cells` is the last board of the old episode, and `cells` is
// the empty board of the new episode. Otherwise the two are equal.
template <class L>
struct Observed {
  typename L::ColumnBits cells;
  typename L::ColumnBits final_cells;
  int piece;  // the piece to place next
};

// Writes the columns of an environment to the place from which load_columns reads them.
template <class L>
TETRIS_FUNCTION void store_columns(const Geometry<L>& geometry, uint32_t* columns,
    int64_t count, const typename L::ColumnBits& cells) {
  TETRIS_UNROLL for (int c = 0; c < MAX_WIDTH; ++c) {
    if (c < geometry.width) columns[c * count] = cells.slot[FIRST_COLUMN + c];
  }
}

// Makes one step of environment i: writes its new state, its reward and its flags to the
// tensors, and returns the state to observe. There are three cases:
//
// - The episode has ended, and environments are not reset automatically. The board and the
//   flags do not change, and the reward is 0.
// - The episode has ended, and this step resets the environment. The board becomes empty, and
//   no piece is placed.
// - The episode goes on. The action places the current piece. If this ends the episode and
//   `autoreset` is SAME_STEP, the board becomes empty after that.
//
// `ended` is a sum of the flags TERMINATED and TRUNCATED, or 0 if the episode goes on.
// `geometry.walls` is an empty board. observed.final_cells is the board after the placement.
// observed.cells is the board with which the next step begins, so it is empty after a reset.
template <class L>
TETRIS_FUNCTION Observed<L> step_one(const Environments& all, const StepTensors& tensors,
    const Task& task, const Geometry<L>& geometry, int64_t i) {
  typename L::ColumnBits before = load_columns(geometry, all.columns + i, all.count);
  Observed<L> observed{before, before, all.current[i]};
  int64_t time = all.time[i];
  int64_t length = tensors.length[i];
  uint8_t ended_before = tensors.ended[i];
  uint8_t ended = 0;
  float reward = 0.0f;
  if (ended_before != 0 && task.autoreset == Autoreset::DISABLED) {
    ended = ended_before;
  } else if (ended_before != 0) {  // reset the environment
    observed.final_cells = geometry.walls;
    observed.cells = observed.final_cells;
    length = 0;
  } else {  // place the current piece
    int placement = placement_of(tensors.actions[i], observed.piece, geometry.width);
    Landing<L> landing(Board<L>(geometry, before), observed.piece, placement);
    observed.final_cells = landing.cells;
    if (landing.over && !task.rules.clear_on_overflow) {
      // landing.cells does not contain a piece that ends the game, but the observation does.
      auto dropped = L::piece_columns(
          observed.piece, orientation_of(placement), column_of(placement), landing.row);
      observed.final_cells = observed.final_cells | dropped;
    }
    observed.cells = observed.final_cells;
    ++time;
    observed.piece = task.piece(all.seed[i], all.stream[i], time);
    reward = reward_of(task.reward, landing.lines, landing.over);
    length += 1;
    bool truncated = task.limit > 0 && length >= task.limit;
    ended = uint8_t((landing.over ? TERMINATED : 0) + (truncated ? TRUNCATED : 0));
    if (task.autoreset == Autoreset::SAME_STEP && ended != 0) {
      observed.cells = geometry.walls;
      length = 0;
    }
  }
  store_columns(geometry, all.columns + i, all.count, observed.cells);
  all.time[i] = time;
  tensors.length[i] = length;
  tensors.ended[i] = task.autoreset == Autoreset::SAME_STEP ? 0 : ended;
  tensors.reward[i] = reward;
  tensors.terminated[i] = (ended & TERMINATED) != 0;
  tensors.truncated[i] = (ended & TRUNCATED) != 0;
  all.write_next(task, i);
  return observed;
}

// Returns the state of environment i to observe, without a step.
template <class L>
TETRIS_FUNCTION Observed<L> observe_one(
    const Environments& all, const Task& task, const Geometry<L>& geometry, int64_t i) {
  auto cells = load_columns(geometry, all.columns + i, all.count);
  all.write_next(task, i);
  return {cells, cells, task.piece(all.seed[i], all.stream[i], all.time[i])};
}

// Checks that all tensors have this type and number of elements, and are on the device of
// `like`.
template <class... Tensors>
void check_tensors(
    const Tensor& like, ScalarType type, int64_t numbers, const Tensors&... tensors) {
  (check_tensor(tensors, type, numbers, like, "tensors"), ...);
}

// Checks the tensors of a batch of `count` environments, and returns pointers to their data.
//
// The state of the environments:
//
//     columns       (width, count): the boards, one word of bits per column
//     seed, stream  (count,): they determine the pieces
//     time          (count,): the number of pieces that have been placed
//     current       (count,): the piece to place
//
// The observations:
//
//     board         (count, height, width): the cells, 0 or 1
//     piece         (count,): the piece to place
//     mask          (count, 4 * width): 1 for every action that is a placement
//     next          (count, ahead): the pieces after the current one
inline Environments environments_of(const Tensor& seed, const Tensor& stream,
    const Tensor& columns, const Tensor& time, const Tensor& current, const Tensor& board,
    const Tensor& piece, const Tensor& mask, const Tensor& next) {
  STD_TORCH_CHECK(columns.dim() == 2 && board.dim() == 3 && next.dim() == 2 &&
                      board.size(2) == columns.size(0),
      "expected columns (width, count), board (count, height, width) and next (count, pieces)");
  int64_t width = columns.size(0);
  int64_t count = columns.size(1);
  int64_t height = board.size(1);
  check_board(width, height);
  check_tensors(columns, ScalarType::Int, width * count, columns);
  check_tensors(columns, ScalarType::Long, count, seed, stream, time, piece);
  check_tensors(columns, ScalarType::Byte, count, current);
  check_tensors(columns, ScalarType::Char, count * height * width, board);
  check_tensors(columns, ScalarType::Char, count * MAX_ORIENTATIONS * width, mask);
  check_tensors(columns, ScalarType::Long, count * next.size(1), next);
  return {
      /*count=*/count,
      /*seed=*/seed.const_data_ptr<int64_t>(),
      /*stream=*/stream.const_data_ptr<int64_t>(),
      /*columns=*/mutable_words_of(columns),
      /*time=*/time.mutable_data_ptr<int64_t>(),
      /*current=*/current.mutable_data_ptr<uint8_t>(),
      /*board=*/board.mutable_data_ptr<int8_t>(),
      /*piece=*/piece.mutable_data_ptr<int64_t>(),
      /*mask=*/mask.mutable_data_ptr<int8_t>(),
      /*next=*/next.mutable_data_ptr<int64_t>(),
      /*ahead=*/next.size(1),
  };
}

// Checks the settings that all environments share, and returns them. `board` is used only for
// the size of the boards, which is part of its shape. `pieces`, `piece_count` and `bag`
// describe a PieceSource. `autoreset` and `reward_kind` are numbers of the enums Autoreset and
// Reward.
inline Task task_of(const Tensor& board, bool clear_on_overflow, int64_t pieces,
    int64_t piece_count, bool bag, int64_t autoreset, int64_t limit, int64_t reward_kind) {
  STD_TORCH_CHECK(
      autoreset >= 0 && autoreset <= 2 && limit >= 0 && reward_kind >= 0 && reward_kind <= 3,
      "expected autoreset from 0 to 2, no negative limit and reward_kind from 0 to 3, got ",
      autoreset, ", ", limit, " and ", reward_kind);
  GameRules rules{int(board.size(2)), int(board.size(1)), clear_on_overflow};
  return {rules, PieceSource::of(pieces, piece_count, bag), Autoreset(autoreset), limit,
      Reward(reward_kind)};
}

// The operators of a device. Device::step(board, environments, tensors, task) implements them.
template <class Device>
struct Operators {
  // The operator that makes one step of a batch of environments: checks its arguments, packs
  // them into structs, and calls Device::step.
  //
  // Each tensor that is checked here has one number per environment, except for `final_board`:
  // if a step that ends an episode also begins the next one (Autoreset::SAME_STEP), the last
  // board of the old episode is written there. Otherwise it has no elements.
  static void step(const Tensor& actions, const Tensor& seed, const Tensor& stream,
      Tensor columns, Tensor time, Tensor length, Tensor current, Tensor ended, Tensor board,
      Tensor piece, Tensor mask, Tensor next, Tensor reward, Tensor terminated,
      Tensor truncated, Tensor final_board, bool clear_on_overflow, int64_t pieces,
      int64_t piece_count, bool bag, int64_t autoreset, int64_t limit, int64_t reward_kind) {
    Environments all =
        environments_of(seed, stream, columns, time, current, board, piece, mask, next);
    Task task = task_of(
        board, clear_on_overflow, pieces, piece_count, bag, autoreset, limit, reward_kind);
    bool has_final_board = task.autoreset == Autoreset::SAME_STEP;
    check_tensors(board, ScalarType::Long, all.count, actions, length);
    check_tensors(board, ScalarType::Byte, all.count, ended);
    check_tensors(board, ScalarType::Float, all.count, reward);
    check_tensors(board, ScalarType::Bool, all.count, terminated, truncated);
    check_tensors(board, ScalarType::Char, has_final_board ? board.numel() : 0, final_board);
    StepTensors tensors{
        /*actions=*/actions.const_data_ptr<int64_t>(),
        /*length=*/length.mutable_data_ptr<int64_t>(),
        /*ended=*/ended.mutable_data_ptr<uint8_t>(),
        /*reward=*/reward.mutable_data_ptr<float>(),
        /*terminated=*/terminated.mutable_data_ptr<bool>(),
        /*truncated=*/truncated.mutable_data_ptr<bool>(),
        /*final_board=*/has_final_board ? final_board.mutable_data_ptr<int8_t>() : nullptr,
    };
    if (all.count > 0) Device::step(board, all, tensors, task);
  }

  // The operator that writes the observations of all environments without a step, after a
  // reset. The settings that only steps use are 0 here.
  static void observe(const Tensor& seed, const Tensor& stream, const Tensor& columns,
      const Tensor& time, Tensor current, Tensor board, Tensor piece, Tensor mask, Tensor next,
      int64_t pieces, int64_t piece_count, bool bag) {
    Environments all =
        environments_of(seed, stream, columns, time, current, board, piece, mask, next);
    Task task = task_of(board, /*clear_on_overflow=*/false, pieces, piece_count, bag,
        /*autoreset=*/0, /*limit=*/0, /*reward_kind=*/0);
    if (all.count > 0) Device::step(board, all, {}, task);
  }
};

}  // namespace tetris
