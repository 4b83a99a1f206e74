// The board as columns, and a piece dropped on it. Bit TOP - r of a column is row r (see lanes_scalar.h).
#pragma once

#include "lanes_scalar.h"
#include "plan.h"

namespace tetris {

// The rules of a game, but for its pieces.
struct GameRules {
  int width, height;
  bool clear_on_overflow;
  bool original = false;  // after a landing the next piece has to appear

  // `rule`: its place in RULES of tetris/game/rules.py.
  static GameRules of(int width, int height, int64_t rule) {
    return {width, height, rule == 1, rule == 2};
  }
};

// The rules of a game, and what follows from the size of its board.
template <class L>
struct Geometry : GameRules {
  using Word = typename L::Word;
  typename L::ColumnBits inside;  // all ones in the board's columns
  typename L::ColumnBits
      pairs;  // all ones in the columns that have a board column to their right
  typename L::ColumnBits edges;  // as `pairs`, but side walls count as columns
  typename L::ColumnBits
      walls;  // the two side walls, full from below the floor to beyond the top
  typename L::ColumnInts far;  // WALL_HEIGHT beside the board, where no piece fits
  Word above;                  // the rows above the top

  TETRIS_FUNCTION explicit Geometry(const GameRules& rules) : GameRules(rules) {
    Word in[16] = {}, pair[16] = {}, edge[16] = {}, wall[16] = {}, beside[16] = {};
    const Word ones = static_cast<Word>(~Word(0));
    TETRIS_UNROLL for (int i = 0; i < L::SLOTS; ++i) {
      const int column = i - FIRST_COLUMN;
      in[i] = column >= 0 && column < width ? ones : Word(0);
      pair[i] = column >= 0 && column < width - 1 ? ones : Word(0);
      edge[i] = column >= -1 && column < width ? ones : Word(0);
      wall[i] = column == -1 || column == width ? ones : Word(0);
      beside[i] = static_cast<Word>(in[i] != 0 ? 0 : WALL_HEIGHT);
    }
    inside = L::load(in);
    pairs = L::load(pair);
    edges = L::load(edge);
    walls = L::load(wall);
    far = L::as_ints(L::load(beside));
    above = height > L::TOP ? Word(0) : static_cast<Word>((Word(2) << (L::TOP - height)) - 1);
  }
};

// The columns of a board with side walls, from words `column(c)` in which row r is bit 31 - r.
template <class L, class Column>
TETRIS_FUNCTION typename L::ColumnBits walled(
    const Geometry<L>& geometry, const Column& column) {
  typename L::Word slots[16] = {};
  for (int c = 0; c < geometry.width; ++c) {
    slots[FIRST_COLUMN + c] = static_cast<typename L::Word>(column(c) >> (31 - L::TOP));
  }
  return L::load(slots) | geometry.walls;
}

// A board, and the piece whose landing made it.
template <class L>
struct Board {
  const Geometry<L>& geometry;
  typename L::ColumnBits cells;    // side walls included
  typename L::ColumnBits filled;   // every row up to the topmost cell of the column
  typename L::ColumnInts heights;  // far from any height beside the board
  int twice_landing_height = 0;
  int eroded_cells = 0;
#if defined(TETRIS_FEATURE_HEADER)  // no other engine pays for what it does not read
  int lines = 0;                    // that the landing removed
#endif
  mutable typename L::Keeper keeper;

  TETRIS_FUNCTION Board(
      const Geometry<L>& g, typename L::ColumnBits c, typename L::Keeper k = {})
      : geometry(g),
        cells(c),
        filled(c | -c),
        heights(L::popcount(filled) | g.far),
        keeper(k) {}

  TETRIS_FUNCTION typename L::ColumnBits holes() const { return filled ^ cells; }
  // Columns that are asked for while placements are scored; T holds their numbers.
  template <class T, class Columns>
  TETRIS_FUNCTION auto keep(const Columns& columns) const {
    return keeper.template keep<T>(columns);
  }
};

// What a piece falls on.
template <class L>
struct Ground {
  using Columns = typename L::template Kept<typename L::Word, typename L::ColumnBits>;
  Columns cells;
  typename L::template Kept<uint8_t, typename L::ColumnInts> heights;
  Columns gaps_up_to,
      gaps_from;  // the rows with an empty cell in a column up to each one, and from it on

  TETRIS_FUNCTION explicit Ground(const Board<L>& board)
      : Ground(board, L::without(board.geometry.inside, board.cells)) {}

 private:
  TETRIS_FUNCTION Ground(const Board<L>& board, const typename L::ColumnBits& empty)
      : cells(board.template keep<typename L::Word>(board.cells)),
        heights(board.template keep<uint8_t>(board.heights)),
        gaps_up_to(board.template keep<typename L::Word>(L::or_up_to(empty))),
        gaps_from(board.template keep<typename L::Word>(L::or_from(empty))) {}
};

// The rows in which every column has a cell.
template <class L>
TETRIS_FUNCTION typename L::Word full_rows(
    const Geometry<L>& geometry, const typename L::ColumnBits& cells) {
  return static_cast<typename L::Word>(~L::or_columns(L::without(geometry.inside, cells)));
}

// Removes the full rows, topmost first; what is above moves down.
template <class L>
TETRIS_FUNCTION typename L::ColumnBits remove_rows(
    const Geometry<L>& geometry, typename L::ColumnBits cells, typename L::Word full) {
  using Word = typename L::Word;
  while (full != 0) {
    const auto row = static_cast<Word>(full & (~full + 1));
    const auto above = static_cast<Word>(row - 1);
    // cells = below + row + above, and row is set in every column: below + 2 above.
    cells = (cells - L::bits_everywhere(row)) + (cells & L::bits_everywhere(above));
    full = static_cast<Word>(full & (full - 1));
  }
  return (cells & geometry.inside) | geometry.walls;
}

// A piece come to rest, and what became of the board.
template <class L>
struct Landing {
  typename L::ColumnBits cells;  // full rows removed
  int row;                       // of the piece's bottom, before removal
  int lines = 0;
  int eroded_cells = 0;  // lines x cells of the piece in them
  bool over = false;     // the game has ended

  TETRIS_FUNCTION Landing(const Board<L>& board, int piece, int place) : cells(board.cells) {
    using Word = typename L::Word;
    const int orientation = orientation_of(place), column = column_of(place);
    row = L::landing_row(board.heights, shape_of(piece, orientation), column);
    const Geometry<L>& geometry = board.geometry;
    const bool exceeds = row + shape_of(piece, orientation).height > geometry.height;
    over = exceeds;
    if (exceeds && !geometry.clear_on_overflow) return;
    const auto dropped = L::piece_columns(piece, orientation, column, row);
    cells = cells | dropped;
    const Word full = full_rows(geometry, cells);
    if (full != 0) {
      lines = popcount(full);
      eroded_cells = lines * L::count_bits(dropped & L::bits_everywhere(full));
      cells = remove_rows(geometry, cells, full);
    }
    if (exceeds) over = L::any(cells & geometry.inside & L::bits_everywhere(geometry.above));
  }
};

// Whether a piece appears inside the board (see `appears` of tetris/game/decisions.py): none of the cells that it takes is full.
template <class L>
TETRIS_FUNCTION bool appears(
    const Geometry<L>& geometry, const typename L::ColumnBits& cells, int piece) {
  const Shape& shape = shape_of(piece, 0);
  const int row = geometry.height - shape.height;
  if (row > L::TOP) return true;  // above all that these lanes hold
  return !L::any(cells & L::piece_columns(piece, 0, (geometry.width - shape.width) / 2, row));
}

// Whether a game ends because its next piece does not appear.
template <class L>
TETRIS_FUNCTION bool ends_by_next(
    const Geometry<L>& geometry, const typename L::ColumnBits& cells, int next) {
  return geometry.original && !appears(geometry, cells, next);
}

// A piece of WIDTH columns dropped on the board, one placement a lane. Nothing is removed yet.
template <class L, int WIDTH>
struct Drop {
  using Bits = typename L::Bits;
  using Ints = typename L::Ints;

  const Ground<L>& ground;
  const ShapeLanes<L, WIDTH>& shape;
  Ints support
      [WIDTH];  // the row in which the piece's bottom would rest if there were only this column
  Ints row;     // of the piece's bottom
  typename L::Unit unit;  // takes the patterns of the shape to this row

  TETRIS_FUNCTION Drop(const Ground<L>& g, const ShapeLanes<L, WIDTH>& s)
      : ground(g), shape(s) {
    TETRIS_UNROLL for (int k = 0; k < WIDTH; ++k) support[k] =
        height_before(k) - L::ints(shape.bottom[k]);
    // A piece has a cell in its lowest row, so that the row can't be negative.
    row = support[0];
    TETRIS_UNROLL for (int k = 1; k < WIDTH; ++k) row = L::maximum(row, support[k]);
    unit = L::row_unit(row);
  }

  TETRIS_FUNCTION Ints column() const { return L::ints(shape.column); }
  // The height of the piece's uppermost cells.
  TETRIS_FUNCTION Ints end() const { return row + L::ints(shape.height); }
  // The value at the piece's column k (its left edge is column 0; others are the board's).
  template <class Columns>
  TETRIS_FUNCTION auto at(const Columns& columns, int k) const {
    return L::template at<WIDTH>(columns, shape, k);
  }
  TETRIS_FUNCTION Bits before(int k) const { return at(ground.cells, k); }
  TETRIS_FUNCTION Ints height_before(int k) const { return at(ground.heights, k); }
  TETRIS_FUNCTION Bits rows(const typename L::Constant& pattern) const {
    return L::rows(pattern, unit);
  }
  TETRIS_FUNCTION Bits after(int k) const {
    return k >= 0 && k < WIDTH ? before(k) | rows(shape.piece[k]) : before(k);
  }
  // The number of empty cells that column k of the piece covers, and whether there are any.
  TETRIS_FUNCTION Ints gap(int k) const { return row - support[k]; }
  TETRIS_FUNCTION auto covers(int k) const { return L::exceeds(row, support[k]); }
  // The rows that the piece completes: no column has an empty cell there.
  TETRIS_FUNCTION Bits completed() const {
    const Bits gap = at(ground.gaps_up_to, -1) | at(ground.gaps_from, WIDTH);
    Bits full = after(0);
    TETRIS_UNROLL for (int k = 1; k < WIDTH; ++k) full = full & after(k);
    return L::without(full, gap);
  }
  // The steps at the piece's sides, + STEP.
  TETRIS_FUNCTION Ints first_step() const {
    return row + L::ints(shape.first_step) - height_before(-1);
  }
  TETRIS_FUNCTION Ints last_step() const {
    return height_before(WIDTH) - (row + L::ints(shape.last_step));
  }
  // The step from column k to the next one before the drop, + STEP.
  TETRIS_FUNCTION Ints step_before(int k) const {
    return height_before(k + 1) - height_before(k) + L::ints(STEP);
  }
  // The height of board column i.
  TETRIS_FUNCTION Ints column_height(int i) const {
    Ints result = L::ints(static_cast<int>(ground.heights[FIRST_COLUMN + i]));
    TETRIS_UNROLL for (int k = 0; k < WIDTH; ++k) {
      const Ints height = row + L::ints(shape.bottom[k]) + L::ints(shape.cells[k]);
      result = L::select(column() == L::ints(i - k), height, result);
    }
    return result;
  }
};

}  // namespace tetris
