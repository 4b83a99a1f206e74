// A stream of games on the CPU: decision after decision, until as many decisions or games as asked for.
#pragma once

#include <optional>

#include "decision.h"
#include "piece_stream.h"

namespace tetris {

struct Totals {
  int64_t lines = 0, games = 0;
};

// Where a stream stops: before a decision, or when so many games have ended.
struct Goal {
  uint64_t decision;
  int64_t games;
  TETRIS_FUNCTION bool reached(const PieceReader& pieces, const Totals& totals) const {
    return pieces.t == decision || totals.games == games;
  }
};

// A board of ScalarLanes' columns, without side walls.
struct StoredBoard {
  uint32_t columns[MAX_WIDTH];
};

// A stream of games: its board, its pieces, and the weights of its candidate.
struct Stream {
  int64_t index;
  const int32_t* weights;
  StoredBoard board;
  PieceReader pieces;
  Goal goal;
  Totals totals;
  TETRIS_FUNCTION bool reached() const { return goal.reached(pieces, totals); }
};

// A game that restarts when it ends, played in lanes L.
template <class L, class List, Lookahead LOOKAHEAD> class LaneRollout {
 public:
  using Word = typename L::Word;
  static constexpr int ROWS = L::TOP + 1;
  TETRIS_FUNCTION LaneRollout(const GameRules& rules, const int32_t* weights)
      : geometry_(rules), chooser_(geometry_, weights) {}
  LaneRollout(const LaneRollout&) = delete;  // the chooser refers to the geometry
  LaneRollout& operator=(const LaneRollout&) = delete;

  // Plays until the goal is reached, while a column is higher than `limit` if `above`, and otherwise while none is.
  TETRIS_FUNCTION void play(StoredBoard& stored, PieceReader& pieces, const Goal& goal, int limit, bool above,
      Totals& totals) const {
    const Word high = limit >= ROWS ? Word(0) : static_cast<Word>((Word(1) << (ROWS - limit)) - 1);
    const typename L::ColumnBits higher = L::bits_everywhere(high) & geometry_.inside;
    typename L::ColumnBits cells = walled(geometry_, [&](int c) { return stored.columns[c]; });
    while (!goal.reached(pieces, totals) && L::any(cells & higher) == above) {
      const int piece = pieces.next();
      if constexpr (LOOKAHEAD == Lookahead::preview) cells = decide(cells, totals, piece, pieces.known);
      else if constexpr (LOOKAHEAD == Lookahead::expectimax)
        cells = decide(cells, totals, piece, pieces.source);
      else cells = decide(cells, totals, piece);
      if (ends_by_next(geometry_, cells, pieces.known)) {
        ++totals.games;
        cells = geometry_.walls;
      }
    }
    store(cells, stored);
  }

 private:
  // One decision; the new columns. `next`: the next piece, or the source of it.
  template <class... Next> TETRIS_FUNCTION typename L::ColumnBits decide(
      const typename L::ColumnBits& cells, Totals& totals, int piece, const Next&... next) const {
    const Board<L> board(geometry_, cells);
    const Choice choice = chooser_.choose(board, piece, next...);
    const Landing<L> landing(board, piece, choice.made());
    totals.lines += landing.lines;
    totals.games += landing.over ? 1 : 0;
    return landing.over ? geometry_.walls : landing.cells;
  }

  TETRIS_FUNCTION void store(const typename L::ColumnBits& cells, StoredBoard& stored) const {
    Word slots[16];
    L::store(cells, slots);
    for (int i = 0; i < geometry_.width; ++i) {
      stored.columns[i] = static_cast<uint32_t>(slots[FIRST_COLUMN + i]) << (32 - ROWS);
    }
  }

  const Geometry<L> geometry_;
  const Chooser<L, List> chooser_;
};

// A stream in lanes L, and in lanes Tall while the stack is too high for those.
template <class L, class Tall, class List, Lookahead LOOKAHEAD = Lookahead::none> class StreamRollout {
 public:
  StreamRollout(const GameRules& rules, const int32_t* weights) : rules_(rules), weights_(weights) {}

  // Plays until the goal is reached.
  void play(StoredBoard& board, PieceReader& pieces, const Goal& goal, Totals& totals) {
    if constexpr (L::MAX_STACK >= MAX_HEIGHT) {
      made(low_).play(board, pieces, goal, MAX_HEIGHT + MAX_PIECE_SIZE, false, totals);
    } else {
      while (!goal.reached(pieces, totals)) {
        if (!play_down(board, pieces, goal, highest(), totals))
          made(low_).play(board, pieces, goal, highest(), false, totals);
      }
    }
  }

  // Plays while a column is higher than `limit`; whether one was.
  bool play_down(StoredBoard& board, PieceReader& pieces, const Goal& goal, int limit, Totals& totals) {
    uint32_t any = 0;
    for (const uint32_t column : board.columns) any |= column;
    if ((any & ((1u << (32 - limit)) - 1)) == 0) return false;
    made(tall_).play(board, pieces, goal, limit, true, totals);
    return true;
  }

 private:
  // The highest stack that lanes L are for. The next piece, where it counts, falls on a stack that may have risen by a piece,
  // but is no higher than the board.
  int highest() const {
    const bool one_piece = LOOKAHEAD == Lookahead::none || rules_.height <= L::MAX_STACK;
    return one_piece ? L::MAX_STACK : L::MAX_STACK - MAX_PIECE_SIZE;
  }

  // Construction takes as long as some decisions, and few streams need both.
  template <class Lanes> const Lanes& made(std::optional<Lanes>& lanes) {
    return lanes ? *lanes : lanes.emplace(rules_, weights_);
  }

  const GameRules& rules_;
  const int32_t* weights_;
  std::optional<LaneRollout<L, List, LOOKAHEAD>> low_;
  std::optional<LaneRollout<Tall, List, LOOKAHEAD>> tall_;
};

}  // namespace tetris
