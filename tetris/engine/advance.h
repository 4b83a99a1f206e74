// The rollout operator on all devices: its schema, and its arguments, checked.
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

// Checks the tensors of a rollout, a batch of Tetris games, and lets `Device::play<List>` play
// them. Every candidate (agent) plays `streams` games on boards of `width` columns.
//
//     boards   (population, streams, width) int32: the columns, row r in bit r; updated
//     weights  (population, List::WEIGHTS_PER_CANDIDATE) int32
//     lines, games, made
//              (population, streams) int64: removed rows, ended games and
//              decisions, which are added to
//     known_in (population, streams) int64, or none: the stream whose piece falls first
//
// Every game makes the decisions `start` to `start + decisions - 1`, or fewer if its stream has
// reached `last_game` ended games. `rule` is 0, 1 or 2, an index of the rules by which a game
// ends. `pieces`, `piece_count` and `bag` say how pieces are drawn.
template <class List, class Device>
void advance(const Tensor& weights, Tensor boards, Tensor lines, Tensor games, Tensor made,
    std::optional<Tensor> known_in, int64_t height, int64_t rule, int64_t pieces,
    int64_t piece_count, bool bag, int64_t seed, int64_t first_stream, bool share_streams,
    int64_t start, int64_t decisions, int64_t last_game) {
  STD_TORCH_CHECK(boards.dim() == 3, "expected boards (population, streams, width)");
  int64_t population = boards.size(0);
  int64_t streams = boards.size(1);
  int64_t width = boards.size(2);
  int64_t total = population * streams;  // games
  int64_t all_weights = population * List::WEIGHTS_PER_CANDIDATE;
  check_tensor(boards, ScalarType::Int, boards.numel(), boards, "boards");
  check_tensor(weights, ScalarType::Int, all_weights, boards, "weights, and tables of them,");
  check_tensor(lines, ScalarType::Long, total, boards, "lines");
  check_tensor(games, ScalarType::Long, total, boards, "games");
  check_tensor(made, ScalarType::Long, total, boards, "made");
  if (known_in.has_value()) {
    check_tensor(*known_in, ScalarType::Long, total, boards, "known_in");
  }
  check_board(width, height);
  STD_TORCH_CHECK(rule >= 0 && rule <= 2 && decisions >= 0 && start >= 0 && last_game >= 1,
      "expected a rule from 0 to 2, no negative decisions and start, and last_game from 1");
  if (decisions == 0 || total == 0) return;

  const int64_t* known = known_in.has_value() ? known_in->const_data_ptr<int64_t>() : nullptr;
  RolloutArguments arguments{
      /*rules=*/GameRules::of(int(width), int(height), rule),
      /*pieces=*/{PieceSource::of(pieces, piece_count, bag), uint64_t(seed), 0},
      /*weights=*/weights.const_data_ptr<int32_t>(),
      /*boards=*/mutable_words_of(boards),
      /*lines=*/lines.mutable_data_ptr<int64_t>(),
      /*games=*/games.mutable_data_ptr<int64_t>(),
      /*made=*/made.mutable_data_ptr<int64_t>(),
      /*total=*/total,
      /*streams=*/streams,
      /*first_stream=*/uint64_t(first_stream),
      /*start=*/uint64_t(start),
      /*decisions=*/decisions,
      /*last_game=*/last_game,
      /*share_streams=*/share_streams,
      /*known_in=*/known,
  };
  Device::template play<List>(arguments, boards);
}

}  // namespace tetris
