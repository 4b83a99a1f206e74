// A stream of games on the CPU: decision after decision, until as many decisions or games as
// asked for.
#pragma once

#include <optional>

#include "decision.h"
#include "piece_stream.h"

namespace tetris {

struct Totals {
  int64_t lines = 0, games = 0;
};

// Where a stream stops: before decision `decision`, or when `games` games have ended.
struct Goal {
  uint64_t decision;
  int64_t games;
  TETRIS_FUNCTION bool reached(const PieceReader& pieces, const Totals& totals) const {
    return pieces.t == decision || totals.games == games;
  }
};

// A board of ScalarLanes' columns, without side walls: row r of a column is bit 31 - r.
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
  LaneRollout(const LaneRollout&) = delete;  // The chooser refers to the geometry.

  // Plays on `stored` until the goal is reached or the stack is no longer one for these lanes.
  // `limit` is the height up to which a stack is low. If `plays_high_stacks` is true, these are
  // the lanes for high stacks, and play stops when no column is higher than `limit`. If it is
  // false, play stops when a column is higher than `limit`, or lower than `least_height`. Lines
  // and games are added to `totals`.
  TETRIS_FUNCTION void play(StoredBoard& stored, PieceReader& pieces, const Goal& goal,
      int limit, bool plays_high_stacks, Totals& totals, int least_height = 0) const {
    Word rows_above_limit = limit >= ROWS ? Word(0) : Word((Word(1) << (ROWS - limit)) - 1);
    Word least_row = least_height == 0 ? Word(0) : Word(Word(1) << (ROWS - least_height));
    auto above_limit = L::bits_everywhere(rows_above_limit) & geometry_.inside;
    auto least_cells = L::bits_everywhere(least_row) & geometry_.inside;
    auto cells = add_walls(geometry_, [&](int c) { return stored.columns[c]; });
    // cells | -cells fills each column below its top; a cell of row least_height - 1 is missing
    // there if the column is too low.
    while (!goal.reached(pieces, totals) && L::any(cells & above_limit) == plays_high_stacks &&
           !L::any(L::without(least_cells, cells | -cells))) {
      int piece = pieces.next();
      if constexpr (LOOKAHEAD == Lookahead::preview) {
        cells = decide(cells, totals, piece, pieces.known);
      } else if constexpr (LOOKAHEAD == Lookahead::expectimax) {
        cells = decide(cells, totals, piece, pieces.source);
      } else {
        cells = decide(cells, totals, piece);
      }
      if (next_piece_ends_game(geometry_, cells, pieces.known)) {
        ++totals.games;
        cells = geometry_.walls;
      }
    }
    store(cells, stored);
  }

 private:
  // Makes one decision for `piece`, adds what it brings to `totals`, and returns the new columns,
  // which are empty if the game has ended. `next` is nothing, the next piece (preview), or the
  // source of all pieces that may come next (expectimax).
  template <class... Next>
  TETRIS_FUNCTION typename L::ColumnBits decide(const typename L::ColumnBits& cells,
      Totals& totals, int piece, const Next&... next) const {
    Board<L> board(geometry_, cells);
    Choice choice = chooser_.choose(board, piece, next...);
    Landing<L> landing(board, piece, choice.placement_to_play());
    totals.lines += landing.lines;
    totals.games += landing.over ? 1 : 0;
    return landing.over ? geometry_.walls : landing.cells;
  }

  TETRIS_FUNCTION void store(const typename L::ColumnBits& cells, StoredBoard& stored) const {
    Word slots[MOST_SLOTS];
    L::store(cells, slots);
    for (int c = 0; c < geometry_.width; ++c) {
      stored.columns[c] = uint32_t(slots[FIRST_COLUMN + c]) << (32 - ROWS);
    }
  }

  const Geometry<L> geometry_;
  const Chooser<L, List> chooser_;
};

// LaneRollout::play, which rollout_tall.cpp compiles for the tall lanes.
template <class Lanes>
void play_apart(const Lanes& lanes, StoredBoard& board, PieceReader& pieces, const Goal& goal,
    int limit, bool plays_high_stacks, Totals& totals) {
  lanes.play(board, pieces, goal, limit, plays_high_stacks, totals);
}

// A stream of games, played in lanes L while the stack fits them, and in lanes Tall while it is
// too high.
//
// A stack that is too high may fit lanes L without its buried rows. Every row below the top of
// the lowest column holds a hole, so that it is never completed while the columns stay as high.
// Let every column have a cell among those rows from row b + 3 on. Then no placement, whatever
// rows it completes, changes rows 0 to b + 3 or uncovers one of their holes, and their part of
// the features is the same for all placements. The choice remains the same if rows 0 to b are
// replaced by one row, with a cell in columns where all of them have one. Three rows above it
// suffice for the feature that looks furthest down: UpperHoleRows looks at four rows from a
// hole downwards.
template <class L, class Tall, class List, Lookahead LOOKAHEAD = Lookahead::none>
class StreamRollout {
 public:
  StreamRollout(const GameRules& rules, const int32_t* weights)
      : rules_(rules), weights_(weights) {}

  // Plays on `board` until the goal is reached. Each round goes on in the lanes that fit the stack:
  // the low lanes, the low lanes without buried rows, or the tall lanes. They return when the goal
  // is reached or when the stack no longer fits them.
  void play(StoredBoard& board, PieceReader& pieces, const Goal& goal, Totals& totals) {
    while (!goal.reached(pieces, totals)) {
      uint32_t rows_with_cells = 0;
      for (const uint32_t column : board.columns) rows_with_cells |= column;
      if constexpr (std::is_same_v<L, Tall>) {
        play_apart(get(tall_), board, pieces, goal, highest(), false, totals);
      } else if (rows_with_cells << highest() == 0) {
        get(low_[0]).play(board, pieces, goal, highest(), false, totals);
      } else if (!play_upper(board, pieces, goal, totals)) {
        play_apart(get(tall_), board, pieces, goal, highest(), true, totals);
      }
    }
  }

 private:
  // Plays in lanes L on the rows above the buried ones, as long as these stay buried, and puts the
  // buried rows back afterwards. Returns false, and plays nothing, if too few rows are buried for
  // the rest to fit the lanes. The comment above this class says which rows may be left out.
  bool play_upper(StoredBoard& board, PieceReader& pieces, const Goal& goal, Totals& totals) {
    constexpr int MOST_ROWS =
        L::MAX_STACK + 1;  // one more than usual: no column is empty, and no well has 16 rows
    constexpr uint32_t FLOOR = 1u << 31;  // row 0
#if defined(TETRIS_FEATURE_HEADER)
    return false;  // A feature of a header may look at any row.
#endif
    if constexpr (LOOKAHEAD != Lookahead::none) return false;
    uint32_t rows_with_cells = 0;
    uint32_t below_lowest_top = ~0u;  // the rows below the top of the lowest column
    for (int c = 0; c < rules_.width; ++c) {
      uint32_t filled = board.columns[c] | (0u - board.columns[c]);
      rows_with_cells |= board.columns[c];
      below_lowest_top &= filled;
    }
    int stack = 32 - lowest_bit(rows_with_cells);
    int removed = stack - MOST_ROWS;  // rows 0 to `removed` become one
    if (removed < 0) return false;
    StoredBoard upper{};
    for (int c = 0; c < rules_.width; ++c) {
      uint32_t column = board.columns[c];
      uint32_t from_third_row_above = ~0u >> (removed + 3);  // the rows from removed + 3 on
      bool stays_buried = (column & below_lowest_top & from_third_row_above) != 0;
      if (!stays_buried) return false;
      bool is_full = ~column >> (31 - removed) == 0;  // in rows 0 to `removed`
      upper.columns[c] = (column << removed & ~FLOOR) | (is_full ? FLOOR : 0);
    }

    int64_t games_before = totals.games;
    int least_height = popcount(below_lowest_top) - removed;
    get(low_[removed], removed)
        .play(upper, pieces, goal, MOST_ROWS, false, totals, least_height);
    // The rows come back unless the game has ended, and with it the board.
    uint32_t removed_rows = ~(~FLOOR >> removed);
    uint32_t restored = totals.games == games_before ? removed_rows : 0;
    for (int c = 0; c < rules_.width; ++c) {
      uint32_t above = (upper.columns[c] & ~FLOOR) >> removed;
      board.columns[c] = (board.columns[c] & restored) | above;
    }
    return true;
  }

  // Returns the height of the highest stack that lanes L can play. With a lookahead the next piece
  // falls on a stack that may have risen by a piece, so that less height is left, unless the whole
  // board fits the lanes.
  int highest() const {
    bool one_piece = LOOKAHEAD == Lookahead::none || rules_.height <= L::MAX_STACK;
    return one_piece ? L::MAX_STACK : L::MAX_STACK - MAX_PIECE_SIZE;
  }

  // Returns a rollout, which is made when first asked for: that takes as long as some
  // decisions, and few streams need all of them. Its board has `removed` rows less.
  template <class Lanes>
  const Lanes& get(std::optional<Lanes>& lanes, int removed = 0) {
    if (lanes) return *lanes;
    GameRules rules = rules_;
    rules.height -= removed;
    return lanes.emplace(rules, weights_);
  }

  const GameRules& rules_;
  const int32_t* weights_;
  std::optional<LaneRollout<L, List, LOOKAHEAD>>
      low_[MAX_HEIGHT];  // by the number of removed rows
  std::optional<LaneRollout<Tall, List, LOOKAHEAD>> tall_;
};

}  // namespace tetris
