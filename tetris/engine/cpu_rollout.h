// A stream of games on the CPU. A stream is a sequence of games on one board: when a game ends,
// the next one begins.
#pragma once

#include <optional>

#include "decision.h"
#include "piece_stream.h"

namespace tetris {

// The numbers of removed lines and of ended games.
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

// The columns of a board, without side walls: row r of a column is bit 31 - r.
struct StoredBoard {
  uint32_t columns[MAX_WIDTH];
};

// Plays a stream of games in lanes L.
template <class L, class List, Lookahead LOOKAHEAD>
class LaneRollout {
 public:
  using Word = typename L::Word;
  static constexpr int ROWS = L::TOP + 1;
  TETRIS_FUNCTION LaneRollout(const GameRules& rules, const int32_t* weights)
      : geometry_(rules), chooser_(geometry_, weights) {}
  LaneRollout(const LaneRollout&) = delete;  // The chooser refers to the geometry.

  // Plays on the board `stored`, one game after another. Adds the removed lines and the ended
  // games to `totals`. Stops before a decision if one of these conditions is true:
  //
  //   - The goal is reached.
  //   - plays_high_stacks is false and the stack is high, which means that one of its columns
  //     is higher than `limit`; or plays_high_stacks is true and the stack is not high.
  //   - A column is lower than `least_height`.
  TETRIS_FUNCTION void play(StoredBoard& stored, PieceReader& pieces, const Goal& goal,
      int limit, bool plays_high_stacks, Totals& totals, int least_height = 0) const {
    // A column is a word of ROWS bits. Row 0, on the floor, is the highest bit, and row r is
    // bit ROWS - 1 - r. So the rows from `limit` up are the lowest ROWS - limit bits.
    Word rows_above_limit = limit >= ROWS ? Word(0) : Word((Word(1) << (ROWS - limit)) - 1);
    // A column of at least this height reaches row least_height - 1, which is one bit.
    Word least_row = least_height == 0 ? Word(0) : Word(Word(1) << (ROWS - least_height));
    auto cells_above_limit = L::bits_everywhere(rows_above_limit) & geometry_.inside;
    auto cells_of_least_row = L::bits_everywhere(least_row) & geometry_.inside;
    auto cells = add_walls(geometry_, [&](int c) { return stored.columns[c]; });
    while (!goal.reached(pieces, totals)) {
      bool is_high = L::any(cells & cells_above_limit);
      if (is_high != plays_high_stacks) break;
      // x | -x sets all bits of x above its lowest one. The lowest bit of a column is its
      // topmost cell, so this fills each column from there down to the floor.
      auto filled = cells | -cells;
      bool is_too_low = L::any(L::without(cells_of_least_row, filled));
      if (is_too_low) break;
      cells = play_piece(cells, pieces, totals);
    }
    store(cells, stored);
  }

 private:
  // Plays the next piece of `pieces`, and updates `totals`. Returns the new columns, or those
  // of an empty board if the game has ended.
  TETRIS_FUNCTION auto play_piece(
      typename L::ColumnBits cells, PieceReader& pieces, Totals& totals) const {
    int piece = pieces.next();  // pieces.known is now the piece after it
    if constexpr (LOOKAHEAD == Lookahead::preview) {
      cells = decide(cells, totals, piece, pieces.known);
    } else if constexpr (LOOKAHEAD == Lookahead::expectimax) {
      cells = decide(cells, totals, piece, pieces.source);
    } else {
      cells = decide(cells, totals, piece);
    }
    if (!next_piece_ends_game(geometry_, cells, pieces.known)) return cells;
    ++totals.games;
    return geometry_.walls;  // an empty board
  }

  // Makes one decision: places `piece`, and adds the removed lines and an ended game to
  // `totals`. Returns the new columns, or those of an empty board if the game has ended. `next`
  // is nothing, the next piece (preview), or the source of all pieces that may come next
  // (expectimax).
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

// Calls LaneRollout::play. It is a function of its own, so that rollout_tall.cpp can compile it
// for the tall lanes.
template <class Lanes>
void play_apart(const Lanes& lanes, StoredBoard& board, PieceReader& pieces, const Goal& goal,
    int limit, bool plays_high_stacks, Totals& totals) {
  lanes.play(board, pieces, goal, limit, plays_high_stacks, totals);
}

// Plays a stream of games: in lanes L while the stack fits them, and otherwise in lanes Tall.
//
// A stack that is too high for lanes L may fit them without its buried rows. Consider the rows
// below the top of the lowest column. Each of these rows has a hole, so it cannot be completed
// before the columns get lower. Suppose that every column has a cell in one of these rows at
// row b + 3 or higher. Then no placement, whatever rows it completes, changes rows 0 to b + 3
// or uncovers one of their holes. The part of the features that belongs to these rows is the
// same for all placements. So the choice remains the same if rows 0 to b are replaced by one
// row, which has a cell in the columns that have a cell in all rows 0 to b. Three rows above it
// suffice for the feature that looks furthest down, UpperHoleRows, which looks at four rows
// from a hole downwards.
template <class L, class Tall, class List, Lookahead LOOKAHEAD = Lookahead::none>
class StreamRollout {
 public:
  StreamRollout(const GameRules& rules, const int32_t* weights)
      : rules_(rules), weights_(weights) {}

  // Plays on `board` until the goal is reached, and adds the removed lines and the ended games
  // to `totals`.
  //
  // Fast lanes L of 16 bits can play only on low stacks, and the slower lanes Tall can play on
  // all. Each call returns when the goal is reached or the stack no longer suits its lanes.
  // low_[n] plays in lanes L without the lowest n rows of the board. get() makes the rollout of
  // some lanes on its first call.
  void play(StoredBoard& board, PieceReader& pieces, const Goal& goal, Totals& totals) {
    while (!goal.reached(pieces, totals)) {
      int limit = highest();  // the height up to which a stack is low
      // Row r is bit 31 - r, so the shift removes the lowest `limit` rows.
      bool is_low = rows_with_cells(board) << limit == 0;
      if constexpr (std::is_same_v<L, Tall>) {  // there are no fast lanes
        play_apart(get(tall_), board, pieces, goal, limit, /*plays_high_stacks=*/false, totals);
      } else if (is_low) {
        get(low_[0]).play(board, pieces, goal, limit, /*plays_high_stacks=*/false, totals);
      } else if (!play_upper(board, pieces, goal, totals)) {
        // Fast lanes cannot play, not even without the lowest rows of the stack.
        play_apart(get(tall_), board, pieces, goal, limit, /*plays_high_stacks=*/true, totals);
      }
    }
  }

 private:
  // Plays on a stack that is too high for the fast lanes L: replaces its lowest rows by a
  // single floor row, plays as long as these rows are out of reach, and then puts them back.
  // Returns false, and changes nothing, if this is not possible.
  //
  //     rows of `board`               rows of `upper`
  //     0 to top_buried               0, the floor row
  //     top_buried + 1 and higher     1 and higher
  //
  // The replaced rows have to be buried: so far below the top of the lowest column that neither
  // a piece nor a feature can reach them. Row r of a column is bit 31 - r.
  bool play_upper(StoredBoard& board, PieceReader& pieces, const Goal& goal, Totals& totals) {
    // Usually the lanes leave one row free, so that no well has 16 rows. Here no well can have
    // them, because every column has a cell.
    constexpr int MOST_ROWS = L::MAX_STACK + 1;
#if defined(TETRIS_FEATURE_HEADER)
    return false;  // A user's own feature may look at any row.
#endif
    // The parts of the features that are the same for all placements cancel in a weighted sum,
    // but not inside of a hidden unit.
    if constexpr (LOOKAHEAD != Lookahead::none || List::UNITS > 0) return false;
    int stack = 32 - lowest_bit(rows_with_cells(board));  // the height of the highest column
    int top_buried = stack - MOST_ROWS;                   // rows 0 to `top_buried` are replaced
    if (top_buried < 0) return false;
    uint32_t below_lowest_top = rows_below_lowest_top(board);
    StoredBoard upper{};
    if (!remove_buried_rows(board, top_buried, below_lowest_top, upper)) return false;
    // Play on `upper`. low_[n] is the rollout for boards without their lowest n rows. It stops
    // if a column becomes lower than the lowest one is now, because the buried rows may then
    // come within reach.
    int64_t games_before = totals.games;
    int least_height = popcount(below_lowest_top) - top_buried;
    get(low_[top_buried], top_buried)
        .play(
            upper, pieces, goal, MOST_ROWS, /*plays_high_stacks=*/false, totals, least_height);
    bool has_ended = totals.games != games_before;
    restore_buried_rows(upper, top_buried, has_ended, board);
    return true;
  }

  static constexpr uint32_t FLOOR = 1u << 31;  // row 0 of a column

  // Returns the rows in which some column has a cell: row r is bit 31 - r.
  static uint32_t rows_with_cells(const StoredBoard& board) {
    uint32_t rows = 0;
    for (const uint32_t column : board.columns) rows |= column;
    return rows;
  }

  // Returns the rows from the floor to the top of the lowest column.
  uint32_t rows_below_lowest_top(const StoredBoard& board) const {
    uint32_t rows = ~0u;
    for (int c = 0; c < rules_.width; ++c) {
      // This fills the column from its topmost cell down to the floor.
      rows &= board.columns[c] | (0u - board.columns[c]);
    }
    return rows;
  }

  // Sets `upper` to the board in which rows 0 to `top_buried` are replaced by one floor row.
  // The floor row has a cell in the columns in which all replaced rows have one.
  //
  // Returns false if the rows are not buried. They are buried if every column has a cell in one
  // of the rows from top_buried + 3 to the top of the lowest column. below_lowest_top is the
  // set of all rows up to this top. In a set and in a column, row r is bit 31 - r.
  bool remove_buried_rows(const StoredBoard& board, int top_buried, uint32_t below_lowest_top,
      StoredBoard& upper) const {
    for (int c = 0; c < rules_.width; ++c) {
      uint32_t column = board.columns[c];
      uint32_t rows_above_buried = ~0u >> (top_buried + 3);  // rows top_buried + 3 and higher
      bool stays_buried = (column & below_lowest_top & rows_above_buried) != 0;
      if (!stays_buried) return false;
      // Rows 0 to `top_buried` are the highest bits. The shift keeps only these.
      bool is_full_below = ~column >> (31 - top_buried) == 0;
      uint32_t floor_cell = is_full_below ? FLOOR : 0;
      // Move the column down, so that row `top_buried` becomes row 0, and replace this row.
      upper.columns[c] = (column << top_buried & ~FLOOR) | floor_cell;
    }
    return true;
  }

  // Sets the rows of `board` above row `top_buried` to the rows of `upper` above its floor row.
  // The buried rows, 0 to `top_buried`, stay as they are, unless the game has ended: the next
  // one has begun on an empty board. Row r of a column is bit 31 - r.
  void restore_buried_rows(
      const StoredBoard& upper, int top_buried, bool has_ended, StoredBoard& board) const {
    uint32_t buried_rows = ~(~FLOOR >> top_buried);  // the highest top_buried + 1 bits
    uint32_t kept_rows = has_ended ? 0 : buried_rows;
    for (int c = 0; c < rules_.width; ++c) {
      uint32_t rows_above = (upper.columns[c] & ~FLOOR) >> top_buried;
      board.columns[c] = (board.columns[c] & kept_rows) | rows_above;
    }
  }

  // Returns the height of the highest stack that lanes L can play. With a lookahead the next
  // piece falls on a stack that the first piece may have raised, so the limit is lower by the
  // height of a piece, unless the whole board fits the lanes.
  int highest() const {
    bool one_piece = LOOKAHEAD == Lookahead::none || rules_.height <= L::MAX_STACK;
    return one_piece ? L::MAX_STACK : L::MAX_STACK - MAX_PIECE_SIZE;
  }

  // Returns the rollout in `lanes`, for boards that are lower by `removed` rows. The first call
  // makes it, because this takes as long as some decisions, and few streams need all rollouts.
  template <class Lanes>
  const Lanes& get(std::optional<Lanes>& lanes, int removed = 0) {
    if (lanes) return *lanes;
    GameRules rules = rules_;
    rules.height -= removed;
    return lanes.emplace(rules, weights_);
  }

  const GameRules& rules_;
  const int32_t* weights_;
  // low_[n] is for boards without n buried rows.
  std::optional<LaneRollout<L, List, LOOKAHEAD>> low_[MAX_HEIGHT];
  std::optional<LaneRollout<Tall, List, LOOKAHEAD>> tall_;
};

}  // namespace tetris
