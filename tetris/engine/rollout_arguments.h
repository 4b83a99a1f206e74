// The arguments of the rollout operator, as the engines of all devices get them.
#pragma once

#include "board.h"
#include "piece_stream.h"

namespace tetris {

// A rollout, or a part of one: decisions `start` to `start + decisions` - 1 of every game,
// fewer if `last_game` games of its stream have ended. Game i belongs to candidate i / streams.
struct RolloutArguments {
  GameRules rules;
  PieceStream pieces;      // the pieces of stream 0
  const int32_t* weights;  // the weights of each candidate, laid out as FeatureList describes
  uint32_t* boards;        // (games, width) columns, row y is bit y; read and written
  // (games,): rows removed, games ended and decisions made, which are added to.
  int64_t* lines;
  int64_t* games;
  int64_t* made;
  int64_t total;    // games
  int64_t streams;  // games of a candidate
  uint64_t first_stream;
  uint64_t start;
  int64_t decisions;
  int64_t last_game;
  bool share_streams;  // all candidates play the same streams
  const int64_t*
      known_in;  // (games,): the candidate's stream whose piece falls first; null means its own

  // `Index` is a type of games' numbers. A GPU, which has fewer than 2^31 games, divides
  // numbers of 32 bits.
  template <class Index>
  TETRIS_FUNCTION Index candidate_of(Index game) const {
    return game / Index(streams);
  }
  template <class Index>
  TETRIS_FUNCTION PieceStream pieces_of(Index game) const {
    Index stream = share_streams ? game % Index(streams) : game;
    PieceStream own = pieces;
    own.stream = first_stream + uint64_t(stream);
    return own;
  }
  // Returns the weights of a game's candidate.
  template <class List, class Index>
  TETRIS_FUNCTION const int32_t* weights_of(Index game) const {
    return weights + int64_t(candidate_of(game)) * List::WEIGHTS_PER_CANDIDATE;
  }
  // Returns the piece that falls first.
  template <class Index>
  TETRIS_FUNCTION int first_piece(Index game) const {
    Index first_of_candidate = game - game % Index(streams);
    Index source = known_in == nullptr ? game : first_of_candidate + Index(known_in[game]);
    return pieces_of(source).piece(start);
  }
  // Returns how many games may still end on a stream; none if it has stopped.
  template <class Index>
  TETRIS_FUNCTION int64_t games_left(Index game) const {
    return last_game - games[game];
  }
};

}  // namespace tetris
