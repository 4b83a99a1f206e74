// The features of every placement, and which ones end the game: what tetris/envs/wrappers.py says, on any device.
#pragma once

#include "decision.h"
#include "step.h"

namespace tetris {

#define TETRIS_PLACEMENTS_SCHEMA                                                            \
  "placements(Tensor columns, Tensor piece, Tensor ended, Tensor(a!) features, Tensor(b!) " \
  "ends_game, "                                                                             \
  "int height, bool clear_on_overflow) -> ()"

// What the operator reads and writes, for `count` environments.
struct FeatureTensors {
  int64_t count;
  const uint32_t* columns;  // (width, count), as the engine has them: row r is bit 31 - r
  const uint8_t* piece;     // to be placed
  const uint8_t* ended;     // sum of `Ended`; games that are over have no features
  float* features;          // (count, 4 * width, features)
  int8_t* ends_game;        // (count, 4 * width)
  GameRules rules;

  TETRIS_FUNCTION bool is_over(int64_t i) const { return (ended[i] & TERMINATED) != 0; }
};

// Calls `visit(numerators)` with the features of a placement's whole after-state, if the game goes on.
template <class List, class L, class Visit>
TETRIS_FUNCTION void visit_whole(
    const Board<L>& board, int piece, int place, const Visit& visit) {
  const Landing<L> landing(board, piece, place);
  if (landing.over) return;
  int numerators[List::COUNT];
  List::template numerators<L>(AfterState<L>(board, landing, piece, place), numerators);
  visit(numerators);
}

// Checks the tensors; `Device::write<List>(columns, tensors)` does the work.
template <class List, class Device>
void placements(const Tensor& columns, const Tensor& piece, const Tensor& ended,
    Tensor features, Tensor ends_game, int64_t height, bool clear_on_overflow) {
  STD_TORCH_CHECK(columns.dim() == 2 && columns.size(0) >= 4 && columns.size(0) <= MAX_WIDTH &&
                      height >= 4 && height <= MAX_HEIGHT,
      "expected columns (4..10, count) and a height of 4..24");
  const int64_t width = columns.size(0), count = columns.size(1),
                actions = MAX_ORIENTATIONS * width;
  check_tensors(columns, ScalarType::Int, width * count, columns);
  check_tensors(columns, ScalarType::Byte, count, piece, ended);
  check_tensors(columns, ScalarType::Float, count * actions * List::COUNT, features);
  check_tensors(columns, ScalarType::Char, count * actions, ends_game);
  if (count == 0) return;
  Device::template write<List>(
      columns, {count, reinterpret_cast<const uint32_t*>(columns.const_data_ptr<int32_t>()),
                   piece.const_data_ptr<uint8_t>(), ended.const_data_ptr<uint8_t>(),
                   features.mutable_data_ptr<float>(), ends_game.mutable_data_ptr<int8_t>(),
                   {static_cast<int>(width), static_cast<int>(height), clear_on_overflow}});
}

}  // namespace tetris
