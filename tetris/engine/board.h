// The board as columns, and a piece dropped on it.
//
// A column is an unsigned word: row r is bit L::TOP - r, so that the floor is the most
// significant bit. An array of columns has slots, which lanes_scalar.h shows: a side wall, the
// board's columns, a side wall.
#pragma once

#include "lanes_scalar.h"
#include "plan.h"

namespace tetris {

constexpr int MOST_SLOTS = 16;  // no lanes have more slots in an array of columns

// The rules of a game, except for its pieces.
struct GameRules {
  int width, height;
  bool clear_on_overflow;
  bool original = false;  // a game ends if its next piece cannot appear after a landing

  // `rule` is the index of the rule in RULES of tetris/game/rules.py.
  static GameRules of(int width, int height, int64_t rule) {
    return {width, height, rule == 1, rule == 2};
  }
};

// The rules of a game, and masks that follow from the size of its board.
template <class L>
struct Geometry : GameRules {
  using Word = typename L::Word;
  typename L::ColumnBits inside;  // all ones in the columns of the board
  // All ones in the columns with a column of the board to their right.
  typename L::ColumnBits pairs;
  typename L::ColumnBits edges;  // as `pairs`, but a side wall counts as a column
  typename L::ColumnBits walls;  // the two side walls, which are full from bottom to top
  // WALL_HEIGHT outside the board, where no piece fits, and 0 in the columns of the board.
  typename L::ColumnInts outside_heights;
  Word rows_above_top;

  // Makes the masks of a board of `width` x `height` cells. A mask is an array with one word per
  // column, which is all ones in the columns of a set and 0 in the others.
  //
  // The side walls are the columns -1 and `width`. Slot FIRST_COLUMN + c of an array is column
  // c, and slots beside the walls are not used. L::load packs the slots into the type of the
  // lanes.
  TETRIS_FUNCTION explicit Geometry(const GameRules& rules) : GameRules(rules) {
    Word inside_slots[MOST_SLOTS] = {}, pair_slots[MOST_SLOTS] = {};
    Word edge_slots[MOST_SLOTS] = {}, wall_slots[MOST_SLOTS] = {};
    Word outside_slots[MOST_SLOTS] = {};
    Word ones = Word(~Word(0));
    TETRIS_UNROLL for (int slot = 0; slot < L::SLOTS; ++slot) {
      int column = slot - FIRST_COLUMN;
      bool is_inside = column >= 0 && column < width;
      inside_slots[slot] = is_inside ? ones : Word(0);
      // The columns that have another column of the board to their right.
      pair_slots[slot] = column >= 0 && column < width - 1 ? ones : Word(0);
      // The same, but a side wall counts as a column.
      edge_slots[slot] = column >= -1 && column < width ? ones : Word(0);
      wall_slots[slot] = column == -1 || column == width ? ones : Word(0);
      outside_slots[slot] = Word(is_inside ? 0 : WALL_HEIGHT);
    }
    inside = L::load(inside_slots);
    pairs = L::load(pair_slots);
    edges = L::load(edge_slots);
    walls = L::load(wall_slots);
    outside_heights = L::as_ints(L::load(outside_slots));
    // Row r is bit L::TOP - r, so the rows from `height` up are bit L::TOP - height and all
    // lower bits.
    rows_above_top = height > L::TOP ? Word(0) : Word((Word(2) << (L::TOP - height)) - 1);
  }
};

// Returns the columns of a board in lanes L, with side walls. The function `column(c)` returns
// column c as 32 bits, where row r is bit 31 - r. In lanes L row r is bit L::TOP - r, so a
// column is shifted by the difference. Lanes of 16 bits lose the rows that they cannot hold.
template <class L, class Column>
TETRIS_FUNCTION auto add_walls(const Geometry<L>& geometry, const Column& column) {
  constexpr int DROPPED_ROWS = 31 - L::TOP;
  typename L::Word slots[MOST_SLOTS] = {};
  for (int c = 0; c < geometry.width; ++c) {
    slots[FIRST_COLUMN + c] = typename L::Word(column(c) >> DROPPED_ROWS);
  }
  return L::load(slots) | geometry.walls;
}

// A board, and the facts about the last landing that features use.
template <class L>
struct Board {
  const Geometry<L>& geometry;
  typename L::ColumnBits cells;    // side walls included
  typename L::ColumnBits filled;   // in each column every row up to its topmost cell
  typename L::ColumnInts heights;  // at least WALL_HEIGHT outside the board
  int twice_landing_height = 0;
  int eroded_cells = 0;
  int lines = 0;  // the number of rows that the landing removed
  mutable typename L::ColumnCache column_cache;

  TETRIS_FUNCTION Board(const Geometry<L>& board_geometry, typename L::ColumnBits board_cells,
      typename L::ColumnCache cache = {})
      : geometry(board_geometry),
        cells(board_cells),
        filled(board_cells | -board_cells),
        heights(L::popcount(filled) | board_geometry.outside_heights),
        column_cache(cache) {}

  TETRIS_FUNCTION auto holes() const { return filled ^ cells; }
};

// Returns an array of columns in a form that can be indexed cheaply while placements are
// scored. T is a type that can hold its numbers.
template <class T, class L, class Columns>
TETRIS_FUNCTION auto cache(const Board<L>& board, const Columns& columns) {
  return board.column_cache.template cache<T>(columns);
}

// The columns of a board in the form that Drop reads: their cells, their heights, and the gaps
// in the rows to the left and to the right of a piece.
template <class L>
struct Ground {
  using Columns = typename L::template Cached<typename L::Word, typename L::ColumnBits>;
  Columns cells;
  typename L::template Cached<uint8_t, typename L::ColumnInts> heights;
  Columns gaps_up_to;  // slot i: the rows that have an empty cell in slots 0 to i
  Columns gaps_from;   // slot i: the rows that have an empty cell in slot i or a later slot

  TETRIS_FUNCTION explicit Ground(const Board<L>& board)
      : Ground(board, L::without(board.geometry.inside, board.cells)) {}

 private:
  TETRIS_FUNCTION Ground(const Board<L>& board, const typename L::ColumnBits& empty)
      : cells(cache<typename L::Word>(board, board.cells)),
        heights(cache<uint8_t>(board, board.heights)),
        gaps_up_to(cache<typename L::Word>(board, L::prefix_or(empty))),
        gaps_from(cache<typename L::Word>(board, L::suffix_or(empty))) {}
};

// Returns the rows in which every column of the board has a cell.
template <class L>
TETRIS_FUNCTION auto full_rows(
    const Geometry<L>& geometry, const typename L::ColumnBits& cells) {
  auto empty = L::without(geometry.inside, cells);
  return typename L::Word(~L::or_columns(empty));
}

// Removes full rows from a board, and returns its new columns. The cells above a removed row
// move down by one row. `full` is the set of full rows, one bit per row.
//
// A column is a word with one bit per row, and higher rows are lower bits.
// L::bits_everywhere(w) is an array with the word w in every column.
template <class L>
TETRIS_FUNCTION auto remove_rows(
    const Geometry<L>& geometry, typename L::ColumnBits cells, typename L::Word full) {
  using Word = typename L::Word;
  while (full != 0) {
    Word row = Word(full & (~full + 1));  // the lowest bit, which is the topmost full row
    Word rows_above = Word(row - 1);
    auto without_row = cells - L::bits_everywhere(row);
    auto above = cells & L::bits_everywhere(rows_above);
    // `without_row` contains the cells above the row once. Adding them again doubles their
    // bits, which moves these cells down by one row.
    cells = without_row + above;
    full = without_lowest_bit(full);
  }
  // The side walls have lost rows, too, and are restored.
  return (cells & geometry.inside) | geometry.walls;
}

// The result of a placement: the piece has come to rest, and full rows are removed.
template <class L>
struct Landing {
  typename L::ColumnBits cells;  // the columns after the removal
  int row;                       // the row of the piece's bottom, before the removal
  int lines = 0;                 // how many rows were removed
  int eroded_cells = 0;  // `lines` times the number of the piece's cells in the removed rows
  bool over = false;     // whether the game has ended

  // Drops a piece straight down on a board and removes full rows. `placement` encodes the
  // piece's orientation and the column of its left edge.
  //
  // If the piece reaches above the top of the board, the game ends, and `cells` stays the board
  // without the piece. Under the rule clear_on_overflow, full rows are removed first, and the
  // game ends only if a cell is left above the top.
  TETRIS_FUNCTION Landing(const Board<L>& board, int piece, int placement)
      : cells(board.cells) {
    const Geometry<L>& geometry = board.geometry;
    int orientation = orientation_of(placement);
    int column = column_of(placement);
    row = L::landing_row(board.heights, shape_of(piece, orientation), column);
    bool overflows = row + shape_of(piece, orientation).height > geometry.height;
    over = overflows;
    if (overflows && !geometry.clear_on_overflow) return;

    auto dropped = L::piece_columns(piece, orientation, column, row);  // the piece's cells
    cells = cells | dropped;
    const typename L::Word full = full_rows(geometry, cells);  // one bit per row
    if (full != 0) {
      int piece_cells_removed = L::count_bits(dropped & L::bits_everywhere(full));
      lines = popcount(full);
      eroded_cells = lines * piece_cells_removed;
      cells = remove_rows(geometry, cells, full);
    }
    if (overflows) {
      auto cells_above_top =
          cells & geometry.inside & L::bits_everywhere(geometry.rows_above_top);
      over = L::any(cells_above_top);
    }
  }
};

// Returns whether a piece can appear on the board, like `appears` of tetris/game/decisions.py.
// A piece appears in the middle of the top rows, in its first orientation. All of its cells
// must be empty.
template <class L>
TETRIS_FUNCTION bool appears(
    const Geometry<L>& geometry, const typename L::ColumnBits& cells, int piece) {
  const Shape& shape = shape_of(piece, 0);
  int row = geometry.height - shape.height;
  if (row > L::TOP) return true;  // these rows are above all cells that the lanes hold
  int column = (geometry.width - shape.width) / 2;
  return !L::any(cells & L::piece_columns(piece, 0, column, row));
}

// Returns whether a game ends because its next piece cannot appear. This happens only under the
// rule `original`.
template <class L>
TETRIS_FUNCTION bool next_piece_ends_game(
    const Geometry<L>& geometry, const typename L::ColumnBits& cells, int next) {
  return geometry.original && !appears(geometry, cells, next);
}

// A piece of WIDTH columns at rest on the board, before full rows are removed. Every lane holds
// one placement.
//
// Offset k means the board column that is k columns right of the piece's left edge. Offsets 0
// to WIDTH - 1 are the columns under the piece, and offsets -1 and WIDTH the columns beside it.
template <class L, int WIDTH>
struct Drop {
  using Bits = typename L::Bits;
  using Ints = typename L::Ints;

  const Ground<L>& ground;
  const ShapeLanes<L, WIDTH>& shape;
  Ints support[WIDTH];    // the row of the piece's bottom if it rested on column k alone
  Ints row;               // the row of the piece's bottom
  typename L::Unit unit;  // moves the patterns of the shape to this row

  // Computes the row in which the piece comes to rest: the highest row in which one of the
  // columns below supports it.
  TETRIS_FUNCTION Drop(const Ground<L>& board_ground, const ShapeLanes<L, WIDTH>& shapes)
      : ground(board_ground), shape(shapes) {
    TETRIS_UNROLL for (int k = 0; k < WIDTH; ++k) {
      support[k] = height_before(k) - L::ints(shape.bottom[k]);
    }
    // A piece has a cell in its lowest row, so the row is never negative.
    row = support[0];
    TETRIS_UNROLL for (int k = 1; k < WIDTH; ++k) row = L::maximum(row, support[k]);
    unit = L::row_unit(row);
  }

  TETRIS_FUNCTION Ints column() const { return L::ints(shape.column); }
  // Returns the row above the piece's uppermost cells.
  TETRIS_FUNCTION Ints top() const { return row + L::ints(shape.height); }
  template <class Columns>
  TETRIS_FUNCTION auto at_offset(const Columns& columns, int k) const {
    return L::template at_offset<WIDTH>(columns, shape, k);
  }
  TETRIS_FUNCTION Bits cells_before(int k) const { return at_offset(ground.cells, k); }
  TETRIS_FUNCTION Bits cells_after(int k) const {
    return k >= 0 && k < WIDTH ? cells_before(k) | piece_rows(shape.piece[k]) : cells_before(k);
  }
  TETRIS_FUNCTION Ints height_before(int k) const { return at_offset(ground.heights, k); }
  // Returns a pattern of the shape, moved to the row in which the piece rests.
  TETRIS_FUNCTION Bits piece_rows(const typename L::Constant& pattern) const {
    return L::rows(pattern, unit);
  }
  // Return the number of empty cells between column k and the piece, and whether there are any.
  TETRIS_FUNCTION Ints gap(int k) const { return row - support[k]; }
  TETRIS_FUNCTION auto covers_gap(int k) const { return L::exceeds(row, support[k]); }
  // Returns the rows that the piece completes, one bit per row. In such a row, all columns
  // under the piece are filled after the drop, and there is no gap to the left or to the right
  // of the piece.
  TETRIS_FUNCTION Bits completed() const {
    Bits gaps_left = at_offset(ground.gaps_up_to, -1);
    Bits gaps_right = at_offset(ground.gaps_from, WIDTH);
    Bits full = cells_after(0);
    TETRIS_UNROLL for (int k = 1; k < WIDTH; ++k) full = full & cells_after(k);
    return L::without(full, gaps_left | gaps_right);
  }
  // Return the steps of the surface at the left side of the piece and at its right side. STEP
  // is added to both, so that they can index a table.
  TETRIS_FUNCTION Ints left_step() const {
    return row + L::ints(shape.left_top) - height_before(-1);
  }
  TETRIS_FUNCTION Ints right_step() const {
    return height_before(WIDTH) - (row + L::ints(shape.right_top));
  }
  // Returns the step from the column at offset k to the next one before the drop, plus STEP.
  TETRIS_FUNCTION Ints step_before(int k) const {
    return height_before(k + 1) - height_before(k) + L::ints(STEP);
  }
  // Returns the height of column `board_column` of the board after the drop. If the piece's
  // column k lies over it, this is the top of the cells in that column. Otherwise the height
  // does not change.
  TETRIS_FUNCTION Ints column_height(int board_column) const {
    int before = ground.heights[FIRST_COLUMN + board_column];
    Ints result = L::ints(before);
    TETRIS_UNROLL for (int k = 0; k < WIDTH; ++k) {
      Ints piece_top = row + L::ints(shape.bottom[k]) + L::ints(shape.cells[k]);
      auto is_column_k = column() == L::ints(board_column - k);
      result = L::select(is_column_k, piece_top, result);
    }
    return result;
  }
};

}  // namespace tetris
