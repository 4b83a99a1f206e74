// The rollout operator on all devices: its schema, and the checks of its arguments.
#pragma once

#include <optional>

#include "check_tensor.h"
#include "rollout_arguments.h"

namespace tetris {

#define TETRIS_ADVANCE_SCHEMA                                                               \
  "advance(Tensor weights, Tensor(a!) boards, Tensor(b!) lines, Tensor(c!) games, "         \
  "Tensor(d!) decisions_made, Tensor? first_piece_from, int height, int rule, int pieces, " \
  "int piece_count, bool bag, int seed, int first_stream, bool share_streams, int start, "  \
  "int decisions, int last_game) -> ()"

// The rollout operator: checks its arguments, packs them into RolloutArguments, and passes
// these to `Device::play<List>`, which plays the games. `List` is the list of features.
//
// Each of `population` candidates (agents) plays a number of streams. A stream is a sequence of
// games on one board. The rollout makes decisions `start` to `start + decisions - 1` of every
// stream, or stops when `last_game` games of the stream have ended.
//
//     weights   (population, List::WEIGHTS_PER_CANDIDATE) int32: the weights of the features
//     boards    (population, streams, width) int32, read and written: the columns of the
//               boards; bit r of a column is row r
//     lines, games, decisions_made
//               (population, streams) int64: the removed rows, the ended games and the
//               decisions made. The rollout adds to them.
//     first_piece_from
//               (population, streams) int64, or none: the index of the candidate's stream that
//               provides the first piece of this stream; none means the stream itself
//     rule      how a game ends: an index of RULES in tetris/game/rules.py, from 0 to 2
//     pieces, piece_count, bag
//               how pieces are drawn, see PieceSource
//     first_stream
//               stream i gets the random pieces of stream first_stream + i of `seed`
//     share_streams
//               whether all candidates get the same pieces
template <class List, class Device>
void advance(const Tensor& weights, Tensor boards, Tensor lines, Tensor games,
    Tensor decisions_made, std::optional<Tensor> first_piece_from, int64_t height, int64_t rule,
    int64_t pieces, int64_t piece_count, bool bag, int64_t seed, int64_t first_stream,
    bool share_streams, int64_t start, int64_t decisions, int64_t last_game) {
  STD_TORCH_CHECK(boards.dim() == 3, "expected boards (population, streams, width)");
  int64_t population = boards.size(0);
  int64_t streams = boards.size(1);
  int64_t width = boards.size(2);
  int64_t all_streams = population * streams;
  int64_t all_weights = population * List::WEIGHTS_PER_CANDIDATE;
  // check_tensor() checks the type and the number of elements of a tensor, and that it is on
  // the device of `boards`.
  check_tensor(boards, ScalarType::Int, boards.numel(), boards, "boards");
  check_tensor(weights, ScalarType::Int, all_weights, boards, "weights, and tables of them,");
  check_tensor(lines, ScalarType::Long, all_streams, boards, "lines");
  check_tensor(games, ScalarType::Long, all_streams, boards, "games");
  check_tensor(decisions_made, ScalarType::Long, all_streams, boards, "decisions_made");
  if (first_piece_from.has_value()) {
    check_tensor(*first_piece_from, ScalarType::Long, all_streams, boards, "first_piece_from");
  }
  check_board(width, height);
  STD_TORCH_CHECK(rule >= 0 && rule <= 2 && decisions >= 0 && start >= 0 && last_game >= 1,
      "expected a rule from 0 to 2, decisions and start from 0 on, and last_game from 1 on");
  if (decisions == 0 || all_streams == 0) return;

  const int64_t* first_piece_from_data =
      first_piece_from.has_value() ? first_piece_from->const_data_ptr<int64_t>() : nullptr;
  RolloutArguments arguments{
      /*rules=*/GameRules::of(int(width), int(height), rule),
      /*pieces=*/{PieceSource::of(pieces, piece_count, bag), uint64_t(seed), /*stream=*/0},
      /*weights=*/weights.const_data_ptr<int32_t>(),
      /*boards=*/mutable_words_of(boards),
      /*lines=*/lines.mutable_data_ptr<int64_t>(),
      /*games=*/games.mutable_data_ptr<int64_t>(),
      /*decisions_made=*/decisions_made.mutable_data_ptr<int64_t>(),
      /*all_streams=*/all_streams,
      /*streams=*/streams,
      /*first_stream=*/uint64_t(first_stream),
      /*start=*/uint64_t(start),
      /*decisions=*/decisions,
      /*last_game=*/last_game,
      /*share_streams=*/share_streams,
      /*first_piece_from=*/first_piece_from_data,
  };
  Device::template play<List>(arguments, boards);  // on the device of `boards`
}

}  // namespace tetris
