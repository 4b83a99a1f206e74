// The tensors of the step operators, checked, as plain pointers; and the schemas, the same on any device.
#pragma once

#include "check_tensor.h"
#include "step.h"

namespace tetris {

// What is marked as written is the environments' state, up to `ended`, and what the caller gets.
#define TETRIS_STEP_SCHEMA                                                                                 \
  "step(Tensor actions, Tensor seed, Tensor stream, Tensor(a!) columns, Tensor(b!) time, Tensor(c!) "      \
  "length, "                                                                                               \
  "Tensor(d!) current, Tensor(e!) ended, Tensor(f!) board, Tensor(g!) piece, Tensor(h!) mask, Tensor(i!) " \
  "next, "                                                                                                 \
  "Tensor(j!) reward, Tensor(k!) terminated, Tensor(l!) truncated, Tensor(m!) final_board, bool "          \
  "clear_on_overflow, "                                                                                    \
  "int pieces, int piece_count, bool bag, int autoreset, int limit, int reward_kind) -> ()"
#define TETRIS_OBSERVE_SCHEMA                                                                               \
  "observe(Tensor seed, Tensor stream, Tensor columns, Tensor time, Tensor(a!) current, Tensor(b!) board, " \
  "Tensor(c!) piece, Tensor(d!) mask, Tensor(e!) next, int pieces, int piece_count, bool bag) -> ()"

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
    for (int64_t k = 0; k < ahead; ++k) next[i * ahead + k] = task.piece(seed[i], stream[i], time[i] + 1 + k);
  }
};

// What a step has besides.
struct StepTensors {
  const int64_t* actions;
  int64_t* length;
  uint8_t* ended;
  float* reward;
  bool *terminated, *truncated;
  int8_t* final_board;  // as `board`, or null
};

// Carries environment i on by one step, all but what is observed of it. Returns the piece to be placed next; `cells` become
// its columns, `shown` the board that the step led to.
template <class L> TETRIS_FUNCTION int step_one(const Environments& all, const StepTensors& tensors,
    const Task& task, const Geometry<L>& geometry, int64_t i, typename L::ColumnBits& cells,
    typename L::ColumnBits& shown) {
  cells = load_columns(geometry, all.columns + i, all.count);
  Episode episode{all.time[i], tensors.length[i], all.current[i], tensors.ended[i]};
  const Outcome outcome =
      step<L>(task, geometry, tensors.actions[i], all.seed[i], all.stream[i], episode, cells, shown);
  store_columns(geometry, cells, all.columns + i, all.count);
  all.time[i] = episode.time;
  tensors.length[i] = episode.length;
  tensors.ended[i] = episode.ended;
  tensors.reward[i] = outcome.reward;
  tensors.terminated[i] = outcome.terminated;
  tensors.truncated[i] = outcome.truncated;
  all.write_next(task, i);
  return episode.piece;
}

inline Environments environments_of(const Tensor& seed, const Tensor& stream, const Tensor& columns,
    const Tensor& time, const Tensor& current, const Tensor& board, const Tensor& piece, const Tensor& mask,
    const Tensor& next) {
  STD_TORCH_CHECK(columns.dim() == 2 && board.dim() == 3,
      "expected columns (width, count) and board (count, height, width)");
  const int64_t width = columns.size(0), count = columns.size(1), height = board.size(1);
  STD_TORCH_CHECK(
      width >= 4 && width <= MAX_WIDTH && height >= 4 && height <= MAX_HEIGHT && board.size(2) == width,
      "expected a board of 4..10 x 4..24, got ", width, " x ", height);
  check_tensor(columns, ScalarType::Int, width * count, columns, "columns");
  check_tensor(seed, ScalarType::Long, count, columns, "seed");
  check_tensor(stream, ScalarType::Long, count, columns, "stream");
  check_tensor(time, ScalarType::Long, count, columns, "time");
  check_tensor(current, ScalarType::Byte, count, columns, "current");
  check_tensor(board, ScalarType::Char, count * height * width, columns, "board");
  check_tensor(piece, ScalarType::Long, count, columns, "piece");
  check_tensor(mask, ScalarType::Char, count * MAX_ORIENTATIONS * width, columns, "mask");
  STD_TORCH_CHECK(next.dim() == 2 && next.size(0) == count, "expected next (count, pieces)");
  check_tensor(next, ScalarType::Long, next.numel(), columns, "next");
  return {count, seed.const_data_ptr<int64_t>(), stream.const_data_ptr<int64_t>(),
      reinterpret_cast<uint32_t*>(columns.mutable_data_ptr<int32_t>()), time.mutable_data_ptr<int64_t>(),
      current.mutable_data_ptr<uint8_t>(), board.mutable_data_ptr<int8_t>(),
      piece.mutable_data_ptr<int64_t>(), mask.mutable_data_ptr<int8_t>(), next.mutable_data_ptr<int64_t>(),
      next.size(1)};
}

inline StepTensors step_tensors_of(const Tensor& actions, const Tensor& length, const Tensor& ended,
    const Tensor& reward, const Tensor& terminated, const Tensor& truncated, const Tensor& final_board,
    const Tensor& board, Autoreset autoreset) {
  const int64_t count = board.size(0);
  const bool finals = autoreset == Autoreset::SAME_STEP;
  check_tensor(actions, ScalarType::Long, count, board, "actions");
  check_tensor(length, ScalarType::Long, count, board, "length");
  check_tensor(ended, ScalarType::Byte, count, board, "ended");
  check_tensor(reward, ScalarType::Float, count, board, "reward");
  check_tensor(terminated, ScalarType::Bool, count, board, "terminated");
  check_tensor(truncated, ScalarType::Bool, count, board, "truncated");
  check_tensor(final_board, ScalarType::Char, finals ? board.numel() : 0, board, "final_board");
  return {actions.const_data_ptr<int64_t>(), length.mutable_data_ptr<int64_t>(),
      ended.mutable_data_ptr<uint8_t>(), reward.mutable_data_ptr<float>(),
      terminated.mutable_data_ptr<bool>(), truncated.mutable_data_ptr<bool>(),
      finals ? final_board.mutable_data_ptr<int8_t>() : nullptr};
}

inline Task task_of(const Tensor& board, bool clear_on_overflow, int64_t pieces, int64_t piece_count,
    bool bag, int64_t autoreset, int64_t limit, int64_t reward_kind) {
  STD_TORCH_CHECK(autoreset >= 0 && autoreset <= 2 && limit >= 0 && reward_kind >= 0 && reward_kind <= 3,
      "expected autoreset from 0 to 2, no negative limit and reward_kind from 0 to 3, got ", autoreset, ", ",
      limit, " and ", reward_kind);
  return {{static_cast<int>(board.size(2)), static_cast<int>(board.size(1)), clear_on_overflow},
      PieceSource::of(pieces, piece_count, bag), static_cast<Autoreset>(autoreset), limit,
      static_cast<Reward>(reward_kind)};
}

// Boards and masks are written four bytes at a time.
inline void check_aligned(const Tensor& tensor, const char* name) {
  STD_TORCH_CHECK(reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % sizeof(uint32_t) == 0, "expected ",
      name, " at an address that is a multiple of four");
}

// The operators of a device, which plays: `Device::step(board, environments, tensors, task)` and `observe`.
template <class Device> struct Operators {
  static void step(const Tensor& actions, const Tensor& seed, const Tensor& stream, Tensor columns,
      Tensor time, Tensor length, Tensor current, Tensor ended, Tensor board, Tensor piece, Tensor mask,
      Tensor next, Tensor reward, Tensor terminated, Tensor truncated, Tensor final_board,
      bool clear_on_overflow, int64_t pieces, int64_t piece_count, bool bag, int64_t autoreset, int64_t limit,
      int64_t reward_kind) {
    const Environments all = environments_of(seed, stream, columns, time, current, board, piece, mask, next);
    const Task task =
        task_of(board, clear_on_overflow, pieces, piece_count, bag, autoreset, limit, reward_kind);
    check_aligned(board, "board");
    check_aligned(mask, "mask");
    check_aligned(final_board, "final_board");
    const StepTensors tensors = step_tensors_of(
        actions, length, ended, reward, terminated, truncated, final_board, board, task.autoreset);
    if (all.count > 0) Device::step(board, all, tensors, task);
  }

  // Writes what there is to see of environments that were reset.
  static void observe(const Tensor& seed, const Tensor& stream, const Tensor& columns, const Tensor& time,
      Tensor current, Tensor board, Tensor piece, Tensor mask, Tensor next, int64_t pieces,
      int64_t piece_count, bool bag) {
    const Environments all = environments_of(seed, stream, columns, time, current, board, piece, mask, next);
    check_aligned(board, "board");
    check_aligned(mask, "mask");
    if (all.count > 0) Device::observe(board, all, task_of(board, false, pieces, piece_count, bag, 0, 0, 0));
  }
};

}  // namespace tetris
