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

// A game that restarts when it ends, played in lanes L.
template <class L, class List, Lookahead LOOKAHEAD>
class LaneRollout {
 public:
  using Word = typename L::Word;
  static constexpr int ROWS = L::TOP + 1;
  TETRIS_FUNCTION LaneRollout(const GameRules& rules, const int32_t* weights)
      : geometry_(rules), chooser_(geometry_, weights) {}
  LaneRollout(const LaneRollout&) = delete;  // the chooser refers to the geometry
  LaneRollout& operator=(const LaneRollout&) = delete;

  // Plays until the goal is reached, while a column is higher than `limit` if `above`, and otherwise while none is, and none
  // is lower than `least`.
  TETRIS_FUNCTION void play(StoredBoard& stored, PieceReader& pieces, const Goal& goal,
      int limit, bool above, Totals& totals, int least = 0) const {
    const Word high =
        limit >= ROWS ? Word(0) : static_cast<Word>((Word(1) << (ROWS - limit)) - 1);
    const typename L::ColumnBits higher = L::bits_everywhere(high) & geometry_.inside;
    const Word low = least == 0 ? Word(0) : static_cast<Word>(Word(1) << (ROWS - least));
    const typename L::ColumnBits covered = L::bits_everywhere(low) & geometry_.inside;
    typename L::ColumnBits cells = walled(geometry_, [&](int c) { return stored.columns[c]; });
    while (!goal.reached(pieces, totals) && L::any(cells & higher) == above &&
           !L::any(L::without(covered, cells | -cells))) {
      const int piece = pieces.next();
      if constexpr (LOOKAHEAD == Lookahead::preview)
        cells = decide(cells, totals, piece, pieces.known);
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
  template <class... Next>
  TETRIS_FUNCTION typename L::ColumnBits decide(const typename L::ColumnBits& cells,
      Totals& totals, int piece, const Next&... next) const {
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

// LaneRollout::play, in a source of its own.
template <class Lanes>
void play_apart(const Lanes& lanes, StoredBoard& board, PieceReader& pieces, const Goal& goal,
    int limit, bool above, Totals& totals) {
  lanes.play(board, pieces, goal, limit, above, totals);
}

// A stream in lanes L, and in lanes Tall while the stack, but for its buried rows, is too high for those.
//
// All rows below the lowest column's top hold a hole: none is completed. Let every column have a cell in those from row b + 3
// on. Then a placement, whatever it completes, changes nothing in rows 0 to b + 3 and uncovers none of them, and their part
// of its features is that of any other placement; so it is if row b alone is left of rows 0 to b, empty where one of them is.
// Of four rows from a hole downwards (`UpperHoleRows`) none is missing.
template <class L, class Tall, class List, Lookahead LOOKAHEAD = Lookahead::none>
class StreamRollout {
 public:
  StreamRollout(const GameRules& rules, const int32_t* weights)
      : rules_(rules), weights_(weights) {}

  // Plays until the goal is reached.
  void play(StoredBoard& board, PieceReader& pieces, const Goal& goal, Totals& totals) {
    while (!goal.reached(pieces, totals)) {
      uint32_t any = 0;
      for (const uint32_t column : board.columns) any |= column;
      if constexpr (std::is_same_v<L, Tall>)
        play_apart(made(tall_), board, pieces, goal, highest(), false, totals);
      else if (any << highest() == 0)
        made(low_[0]).play(board, pieces, goal, highest(), false, totals);
      else if (!play_upper(board, pieces, goal, totals))
        play_apart(made(tall_), board, pieces, goal, highest(), true, totals);
    }
  }

 private:
  // Plays without the rows that are buried as long as they are; false where there are none.
  bool play_upper(StoredBoard& board, PieceReader& pieces, const Goal& goal, Totals& totals) {
    constexpr int MOST =
        L::MAX_STACK + 1;  // a column that is not empty leaves no well of 16 rows
    constexpr uint32_t FLOOR = 1u << 31;
#if defined(TETRIS_FEATURE_HEADER)
    return false;  // a feature of one's own may be another one
#endif
    if constexpr (LOOKAHEAD != Lookahead::none) return false;
    uint32_t any = 0, below = ~0u;  // the lowest column's top
    for (int c = 0; c < rules_.width; ++c) {
      any |= board.columns[c];
      below &= board.columns[c] | (0u - board.columns[c]);
    }
    const int rows = 32 - lowest_bit(any) - MOST;
    if (rows < 0) return false;
    StoredBoard upper{};
    for (int c = 0; c < rules_.width; ++c) {
      const uint32_t column = board.columns[c];
      if ((column & below & ~0u >> (rows + 3)) == 0) return false;
      upper.columns[c] = (column << rows & ~FLOOR) | (~column >> (31 - rows) == 0 ? FLOOR : 0);
    }
    const int64_t games = totals.games;
    made(low_[rows], rows)
        .play(upper, pieces, goal, MOST, false, totals, popcount(below) - rows);
    const uint32_t kept = totals.games == games ? ~(~FLOOR >> rows) : 0;
    for (int c = 0; c < rules_.width; ++c)
      board.columns[c] = (board.columns[c] & kept) | (upper.columns[c] & ~FLOOR) >> rows;
    return true;
  }

  // The highest stack that lanes L are for. The next piece, where it counts, falls on a stack that may have risen by a piece,
  // but is no higher than the board.
  int highest() const {
    const bool one_piece = LOOKAHEAD == Lookahead::none || rules_.height <= L::MAX_STACK;
    return one_piece ? L::MAX_STACK : L::MAX_STACK - MAX_PIECE_SIZE;
  }

  // Construction takes as long as some decisions, and few streams need all. `rows` are taken away from the board.
  template <class Lanes>
  const Lanes& made(std::optional<Lanes>& lanes, int rows = 0) {
    if (lanes) return *lanes;
    GameRules rules = rules_;
    rules.height -= rows;
    return lanes.emplace(rules, weights_);
  }

  const GameRules& rules_;
  const int32_t* weights_;
  std::optional<LaneRollout<L, List, LOOKAHEAD>> low_[MAX_HEIGHT];  // by the rows taken away
  std::optional<LaneRollout<Tall, List, LOOKAHEAD>> tall_;
};

}  // namespace tetris
