// What the engines get of the rollout operator's arguments, on all devices.
#pragma once

#include "board.h"
#include "piece_stream.h"

namespace tetris {

// A rollout, or a part of one: decisions `start` to `start + decisions` - 1 of every game, fewer where a stream has had its
// `last_game`. Game i is of candidate i / streams.
struct RolloutArguments {
  GameRules rules;
  PieceStream pieces;  // of stream 0
  const int32_t*
      weights;  // of each candidate, whole (tetris/play/quantized_weights.py), and tables of them
  uint32_t* boards;               // (games, width) columns, bit y is row y; carried on
  int64_t *lines, *games, *made;  // (games,): lines removed, games ended, decisions; added to
  int64_t total, streams;         // games, and those of a candidate
  uint64_t first_stream, start;
  int64_t decisions, last_game;
  bool share_streams;
  const int64_t*
      known_in;  // (games,): the stream of a candidate whose piece falls first; null: its own

  // A GPU has fewer games than 2^31, and divides numbers of 32 bits.
  template <class Index>
  TETRIS_FUNCTION Index candidate_of(Index game) const {
    return game / static_cast<Index>(streams);
  }
  template <class Index>
  TETRIS_FUNCTION PieceStream pieces_of(Index game) const {
    PieceStream own = pieces;
    own.stream = first_stream + static_cast<uint64_t>(
                                    share_streams ? game % static_cast<Index>(streams) : game);
    return own;
  }
  // The piece that falls first.
  template <class Index>
  TETRIS_FUNCTION int first_piece(Index game) const {
    const Index first = game - game % static_cast<Index>(streams);
    return pieces_of(known_in == nullptr ? game : first + static_cast<Index>(known_in[game]))
        .piece(start);
  }
  // How many games may end on a stream from here on; none if it has stopped.
  template <class Index>
  TETRIS_FUNCTION int64_t games_left(Index game) const {
    return last_game - games[game];
  }
};

}  // namespace tetris
