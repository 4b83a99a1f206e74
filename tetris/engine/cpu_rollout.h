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

  // Plays on the board `stored`, piece after piece, until the goal is reached or the stack
  // leaves the range of heights that these lanes are meant for. Adds removed lines and ended
  // games to `totals`.
  //
  // A lane type L is fast and holds only low stacks, or holds every stack. `limit` is the
  // height up to which a stack is low. If `plays_high_stacks` is true, these lanes play while
  // some column is higher than `limit`. If it is false, they play while no column is higher
  // than `limit` and none is lower than `least_height`.
  //
  // In `cells` a column is a word in which row r is bit TOP - r: the floor is the most
  // significant bit, and higher rows are lower bits.
  TETRIS_FUNCTION void play(StoredBoard& stored, PieceReader& pieces, const Goal& goal,
      int limit, bool plays_high_stacks, Totals& totals, int least_height = 0) const {
    Word rows_above_limit = limit >= ROWS ? Word(0) : Word((Word(1) << (ROWS - limit)) - 1);
    Word least_row = least_height == 0 ? Word(0) : Word(Word(1) << (ROWS - least_height));
    auto cells_above_limit = L::bits_everywhere(rows_above_limit) & geometry_.inside;
    auto cells_of_least_row = L::bits_everywhere(least_row) & geometry_.inside;
    auto cells = add_walls(geometry_, [&](int c) { return stored.columns[c]; });
    while (!goal.reached(pieces, totals)) {
      bool is_high = L::any(cells & cells_above_limit);
      if (is_high != plays_high_stacks) break;
      // Row least_height - 1 has to be below the top of every column.
      auto filled = cells | -cells;  // all rows from a column's topmost cell down
      bool is_too_low = L::any(L::without(cells_of_least_row, filled));
      if (is_too_low) break;

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
        cells = geometry_.walls;  // an empty board
      }
    }
    store(cells, stored);
  }

 private:
  // Makes one decision for `piece`, adds what it brings to `totals`, and returns the new
  // columns, which are empty if the game has ended. `next` is nothing, the next piece
  // (preview), or the source of all pieces that may come next (expectimax).
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

  // Plays on `board` until the goal is reached, and adds removed lines and ended games to
  // `totals`.
  //
  // There are up to three ways to play, and each of them returns when the goal is reached or
  // the stack no longer suits it: fast 16-bit lanes for low stacks; the same lanes on a higher
  // stack whose buried rows are left out (play_upper); and the slower lanes `Tall`, which hold
  // every stack. L and Tall are the same type if there are no fast lanes. In a column row r is
  // bit 31 - r.
  void play(StoredBoard& board, PieceReader& pieces, const Goal& goal, Totals& totals) {
    while (!goal.reached(pieces, totals)) {
      uint32_t rows_with_cells = 0;
      for (const uint32_t column : board.columns) rows_with_cells |= column;
      int limit = highest();  // the height up to which a stack is low
      bool is_low = rows_with_cells << limit == 0;
      if constexpr (std::is_same_v<L, Tall>) {
        play_apart(get(tall_), board, pieces, goal, limit, /*plays_high_stacks=*/false, totals);
      } else if (is_low) {
        get(low_[0]).play(board, pieces, goal, limit, /*plays_high_stacks=*/false, totals);
      } else if (!play_upper(board, pieces, goal, totals)) {
        play_apart(get(tall_), board, pieces, goal, limit, /*plays_high_stacks=*/true, totals);
      }
    }
  }

 private:
  // Plays a stack that is too high for the fast lanes L without its buried rows, as long as
  // they stay buried, and then puts them back. Returns true if it has played, and false if the
  // stack cannot be shortened enough.
  //
  // A row is buried if it is so far below the lowest column's top that neither a piece nor a
  // feature can reach it. Rows 0 to `removed` are replaced by one floor row, whose cell is full
  // in columns that are full in all of these rows. So a stack of `stack` rows becomes one of
  // `stack - removed` rows.
  //
  // A column is a word in which row r is bit 31 - r: the floor is the most significant bit, a
  // left shift removes rows at the bottom, and `column | -column` fills a column from its top
  // down.
  bool play_upper(StoredBoard& board, PieceReader& pieces, const Goal& goal, Totals& totals) {
    // The lanes hold one row more than usual: no column is empty here, and so no well has 16
    // rows.
    constexpr int MOST_ROWS = L::MAX_STACK + 1;
    constexpr uint32_t FLOOR = 1u << 31;  // row 0
#if defined(TETRIS_FEATURE_HEADER)
    return false;  // A user's own feature may look at any row.
#endif
    if constexpr (LOOKAHEAD != Lookahead::none) return false;
    uint32_t rows_with_cells = 0;
    uint32_t below_lowest_top = ~0u;  // the rows below the top of the lowest column
    for (int c = 0; c < rules_.width; ++c) {
      uint32_t filled = board.columns[c] | (0u - board.columns[c]);
      rows_with_cells |= board.columns[c];
      below_lowest_top &= filled;
    }
    int stack = 32 - lowest_bit(rows_with_cells);  // the height of the highest column
    int removed = stack - MOST_ROWS;
    if (removed < 0) return false;
    StoredBoard upper{};  // the board without the buried rows
    for (int c = 0; c < rules_.width; ++c) {
      uint32_t column = board.columns[c];
      // The rows below row removed + 3 are out of reach if every column has a cell above them
      // that itself lies below the lowest top.
      uint32_t rows_above_buried = ~0u >> (removed + 3);  // rows removed + 3 and higher
      bool stays_buried = (column & below_lowest_top & rows_above_buried) != 0;
      if (!stays_buried) return false;
      bool is_full_below = ~column >> (31 - removed) == 0;  // full in rows 0 to `removed`
      uint32_t floor_cell = is_full_below ? FLOOR : 0;
      upper.columns[c] = (column << removed & ~FLOOR) | floor_cell;
    }

    int64_t games_before = totals.games;
    int least_height = popcount(below_lowest_top) - removed;
    get(low_[removed], removed)
        .play(upper, pieces, goal, MOST_ROWS, false, totals, least_height);
    // Put the rows 0 to `removed` back. If a game has ended, they are gone with its board.
    uint32_t buried_rows = ~(~FLOOR >> removed);
    bool has_ended = totals.games != games_before;
    uint32_t restored_rows = has_ended ? 0 : buried_rows;
    for (int c = 0; c < rules_.width; ++c) {
      uint32_t rows_above = (upper.columns[c] & ~FLOOR) >> removed;
      board.columns[c] = (board.columns[c] & restored_rows) | rows_above;
    }
    return true;
  }

  // Returns the height of the highest stack that lanes L can play. With a lookahead the next
  // piece falls on a stack that may have risen by a piece, so that less height is left, unless
  // the whole board fits the lanes.
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
