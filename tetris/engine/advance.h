// The rollout operator on all devices: its schema, and what it asks of its arguments.
#pragma once

#include <optional>

#include "check_tensor.h"
#include "rollout_arguments.h"

namespace tetris {

#define TETRIS_ADVANCE_SCHEMA                                                                  \
  "advance(Tensor weights, Tensor(a!) boards, Tensor(b!) lines, Tensor(c!) games, Tensor(d!) " \
  "made, "                                                                                     \
  "Tensor? known_in, int height, int rule, int pieces, int piece_count, bool bag, int seed, "  \
  "int first_stream, bool share_streams, int start, int decisions, int last_game) -> ()"

// The operator, checked. `boards` (population, streams, width) int32; `lines`, `games`, `made` and `known_in`
// (population, streams) int64. `Device::play<List>(arguments, boards)` plays.
template <class List, class Device>
void advance(const Tensor& weights, Tensor boards, Tensor lines, Tensor games, Tensor made,
    std::optional<Tensor> known_in, int64_t height, int64_t rule, int64_t pieces,
    int64_t piece_count, bool bag, int64_t seed, int64_t first_stream, bool share_streams,
    int64_t start, int64_t decisions, int64_t last_game) {
  STD_TORCH_CHECK(boards.dim() == 3, "expected boards (population, streams, width)");
  const int64_t population = boards.size(0), streams = boards.size(1), width = boards.size(2);
  check_tensor(boards, ScalarType::Int, boards.numel(), boards, "boards");
  check_tensor(
      weights, ScalarType::Int, population * List::ROW, boards, "weights, and tables of them,");
  check_tensor(lines, ScalarType::Long, population * streams, boards, "lines");
  check_tensor(games, ScalarType::Long, population * streams, boards, "games");
  check_tensor(made, ScalarType::Long, population * streams, boards, "made");
  if (known_in.has_value())
    check_tensor(*known_in, ScalarType::Long, population * streams, boards, "known_in");
  STD_TORCH_CHECK(width >= 4 && width <= MAX_WIDTH && height >= 4 && height <= MAX_HEIGHT,
      "expected a board of 4..10 x 4..24, got ", width, " x ", height);
  STD_TORCH_CHECK(rule >= 0 && rule <= 2 && decisions >= 0 && start >= 0 && last_game >= 1,
      "expected a rule from 0 to 2, no negative decisions and start, and last_game from 1");
  if (decisions == 0 || population * streams == 0) return;
  Device::template play<List>(
      RolloutArguments{GameRules::of(static_cast<int>(width), static_cast<int>(height), rule),
          {PieceSource::of(pieces, piece_count, bag), static_cast<uint64_t>(seed), 0},
          weights.const_data_ptr<int32_t>(),
          reinterpret_cast<uint32_t*>(boards.mutable_data_ptr<int32_t>()),
          lines.mutable_data_ptr<int64_t>(), games.mutable_data_ptr<int64_t>(),
          made.mutable_data_ptr<int64_t>(), population * streams, streams,
          static_cast<uint64_t>(first_stream), static_cast<uint64_t>(start), decisions,
          last_game, share_streams,
          known_in.has_value() ? known_in->const_data_ptr<int64_t>() : nullptr},
      boards);
}

}  // namespace tetris
