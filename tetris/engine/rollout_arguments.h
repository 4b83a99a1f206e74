// The arguments of the rollout operator, in the form that the engines of all devices use.
#pragma once

#include "board.h"
#include "piece_stream.h"

namespace tetris {

// A rollout, or a part of one. A stream is a sequence of games on one board: when a game ends,
// the next one begins. The rollout makes decisions `start` to `start + decisions - 1` of every
// stream. It stops earlier in a stream of which `last_game` games have ended. Stream i belongs
// to candidate (agent) i / streams.
struct RolloutArguments {
  GameRules rules;
  PieceStream pieces;      // the pieces of stream 0
  const int32_t* weights;  // the weights of each candidate, laid out as FeatureList describes
  uint32_t* boards;        // (all_streams, width) columns, row y is bit y; read and written
  // (all_streams,): the rollout adds the removed rows, the ended games and the decisions made.
  int64_t* lines;
  int64_t* games;
  int64_t* decisions_made;
  int64_t all_streams;  // the number of streams of all candidates
  int64_t streams;      // the number of streams of one candidate
  uint64_t first_stream;
  uint64_t start;
  int64_t decisions;
  int64_t last_game;
  bool share_streams;  // whether all candidates get the same pieces
  // (all_streams,): which stream of the candidate provides the first piece, or null.
  const int64_t* first_piece_from;

  // `Index` is the type of a stream's number. The GPU engines use 32 bits, whose division is
  // faster; they play fewer than 2^31 streams.
  template <class Index>
  TETRIS_FUNCTION Index candidate_of(Index stream) const {
    return stream / Index(streams);
  }
  template <class Index>
  TETRIS_FUNCTION PieceStream pieces_of(Index stream) const {
    Index offset = share_streams ? stream % Index(streams) : stream;
    PieceStream result = pieces;
    result.stream = first_stream + uint64_t(offset);
    return result;
  }
  // Returns the weights of a stream's candidate.
  template <class List, class Index>
  TETRIS_FUNCTION const int32_t* weights_of(Index stream) const {
    return weights + int64_t(candidate_of(stream)) * List::WEIGHTS_PER_CANDIDATE;
  }
  // Returns the piece that falls first. It comes from the stream itself, or from the stream of
  // the same candidate that `first_piece_from` names.
  template <class Index>
  TETRIS_FUNCTION int first_piece(Index stream) const {
    Index first_of_candidate = stream - stream % Index(streams);
    Index source = first_piece_from == nullptr
                       ? stream
                       : first_of_candidate + Index(first_piece_from[stream]);
    return pieces_of(source).piece(start);
  }
  // Returns how many games may still end on a stream; 0 or less if the stream has stopped.
  template <class Index>
  TETRIS_FUNCTION int64_t games_left(Index stream) const {
    return last_game - games[stream];
  }
  // Adds what has been played of a stream to the tensors.
  template <class Index>
  TETRIS_FUNCTION void add_result(
      Index stream, int64_t new_lines, int64_t new_games, int64_t new_decisions) const {
    lines[stream] += new_lines;
    games[stream] += new_games;
    decisions_made[stream] += new_decisions;
  }
};

}  // namespace tetris
