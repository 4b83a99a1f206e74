// The operator that computes the features of every placement of a piece, and whether a
// placement ends the game, on any device. The reference implementation is in
// tetris/envs/wrappers.py.
#pragma once

#include "decision.h"
#include "step.h"

namespace tetris {

#define TETRIS_PLACEMENTS_SCHEMA                                                 \
  "placements(Tensor columns, Tensor piece, Tensor ended, Tensor(a!) features, " \
  "Tensor(b!) ends_game, int height, bool clear_on_overflow) -> ()"

// The data of the operator's tensors, for `count` environments.
struct FeatureTensors {
  int64_t count;
  const uint32_t* columns;  // (width, count), as in the engine: row r is bit 31 - r
  const uint8_t* piece;     // (count,): the piece to place
  const uint8_t* ended;     // (count,): a sum of `Ended`; a game that is over has no features
  float* features;          // (count, 4 * width, features)
  int8_t* ends_game;        // (count, 4 * width)
  GameRules rules;

  TETRIS_FUNCTION bool is_over(int64_t i) const { return (ended[i] & TERMINATED) != 0; }
};

// Calls visit(numerators) with the numerators of the features of the board after a placement.
// Does nothing if the placement ends the game.
template <class List, class L, class Visit>
TETRIS_FUNCTION void visit_after_state(
    const Board<L>& board, int piece, int placement, const Visit& visit) {
  Landing<L> landing(board, piece, placement);
  if (landing.over) return;
  AfterState<L> after(board, landing, piece, placement);
  int numerators[List::COUNT];
  List::numerators(after, numerators);
  visit(numerators);
}

// The operator that computes the features of every placement of the current piece, and whether
// the placement ends the game, in a batch of `count` environments. It checks the tensors, and
// calls Device::write<List>(columns, tensors), which computes the results.
//
//     columns    (width, count) int32: the columns of the boards; bit 31 - r is row r
//     piece      (count,) uint8: the piece to place
//     ended      (count,) uint8: 0 as long as the episode goes on
//     features   (count, 4 * width, List::COUNT) float32, written; there are 4 * width actions
//     ends_game  (count, 4 * width) int8, written: 1 if the placement ends the game
template <class List, class Device>
void placements(const Tensor& columns, const Tensor& piece, const Tensor& ended,
    Tensor features, Tensor ends_game, int64_t height, bool clear_on_overflow) {
  STD_TORCH_CHECK(columns.dim() == 2, "expected columns (width, count)");
  int64_t width = columns.size(0);
  int64_t count = columns.size(1);
  check_board(width, height);
  int64_t actions = count * MAX_ORIENTATIONS * width;
  check_tensors(columns, ScalarType::Int, width * count, columns);
  check_tensors(columns, ScalarType::Byte, count, piece, ended);
  check_tensors(columns, ScalarType::Float, actions * List::COUNT, features);
  check_tensors(columns, ScalarType::Char, actions, ends_game);
  if (count == 0) return;
  FeatureTensors tensors{
      /*count=*/count,
      /*columns=*/words_of(columns),
      /*piece=*/piece.const_data_ptr<uint8_t>(),
      /*ended=*/ended.const_data_ptr<uint8_t>(),
      /*features=*/features.mutable_data_ptr<float>(),
      /*ends_game=*/ends_game.mutable_data_ptr<int8_t>(),
      /*rules=*/{int(width), int(height), clear_on_overflow},
  };
  Device::template write<List>(columns, tensors);
}

}  // namespace tetris
