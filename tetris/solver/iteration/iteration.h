// Value iteration over all boards, on any device: one board of a sweep, one board of the search
// for boards that can be reached, and one game.
//
// A board is a number: row r, column c is bit r * width + c. It has at most 32 cells, or 64
// with the rows above the top.
#pragma once

#include "board.h"
#include "piece_stream.h"

namespace tetris {

constexpr int MOST_CELLS = 32;
constexpr int MOST_COLUMNS = 8;
constexpr int MOST_PLACEMENTS = 128;
// A board has one value if only the falling piece is known. If the next one is known, too, it
// has a value for each next piece, and an unused one, so that they are 64 bytes.
constexpr int KNOWN_PIECES = 8;

struct SmallPlacement {
  static constexpr int NO_COLUMN = 3;  // in place of a bottom: the piece has no such column
  uint32_t cells;                      // the cells of the piece, with its bottom in row 0
  uint8_t number;                      // as in plan.h
  uint8_t height;
  uint8_t column;
  uint8_t bottoms;  // two bits per column of the piece

  TETRIS_FUNCTION int bottom(int k) const { return bottoms >> (2 * k) & 3; }
};

// What is the same for all boards. It is a parameter of kernels, which may have 4 KB.
struct Problem {
  GameRules rules;
  uint32_t pieces;  // the set of pieces that are drawn
  int count;        // how many these are
  int begin[PIECES +
            // placements begin[p] to begin[p + 1] - 1 are those of piece p; none if it is not
            // drawn
            1];
  uint8_t mirror[PIECES];  // the piece seen in a mirror
  bool symmetric;          // whether the set of pieces is the same in a mirror
  uint32_t first_column;   // the cells of column 0
  SmallPlacement placements[MOST_PLACEMENTS];

  // Lists the placements of all pieces that may fall, piece after piece, for boards of the
  // rules' size: placements begin[p] to begin[p + 1] - 1 are those of piece p. `drawn` is the
  // set of pieces that may fall; bit p is piece p.
  //
  // Also sets `count`, the number of pieces in the set, `symmetric`, whether the set contains
  // the mirror image of each of its pieces, and `first_column`, the bit mask of a board's
  // column 0. Cell (row r, column c) of a board is bit r * width + c.
  Problem(const GameRules& game, uint32_t drawn)
      : rules(game),
        pieces(drawn),
        count(0),
        begin{},
        mirror{0, 1, 2, 4, 3, 6, 5},  // Z and S, and J and L, are mirror images
        symmetric(true) {
    int listed = 0;  // the number of placements so far
    for (int piece = 0; piece < PIECES; ++piece) {
      begin[piece] = listed;
      symmetric = symmetric && draws(piece) == draws(mirror[piece]);
      if (!draws(piece)) continue;
      ++count;
      for (int orientation = 0; orientation < ORIENTATIONS[piece]; ++orientation) {
        const Shape& shape = SHAPES.shape[piece][orientation];
        for (int column = 0; column + shape.width <= rules.width; ++column) {
          placements[listed] = make_placement(shape, orientation, column);
          ++listed;
        }
      }
    }
    begin[PIECES] = listed;
    first_column = 0;
    for (int row = 0; row < rules.height; ++row) first_column |= 1u << (row * rules.width);
  }

  TETRIS_FUNCTION bool draws(int piece) const { return pieces >> piece & 1u; }

 private:
  // Returns the placement of a shape with its left edge over a column, as small bit fields:
  // `cells` are the cells that the piece takes if its bottom is in row 0, with cell (row r,
  // column c) in bit r * width + c, and `bottoms` holds for each column of the piece the row of
  // its lowest cell, two bits each; NO_COLUMN = 3 marks a column that the piece does not have.
  SmallPlacement make_placement(const Shape& shape, int orientation, int column) const {
    SmallPlacement result{};
    result.number = uint8_t(placement_number(orientation, column));
    result.height = uint8_t(shape.height);
    result.column = uint8_t(column);
    for (int k = 0; k < MAX_PIECE_SIZE; ++k) {
      bool exists = k < shape.width;
      int bottom = exists ? shape.bottom(k) : SmallPlacement::NO_COLUMN;
      result.bottoms |= uint8_t(bottom << (2 * k));
      if (!exists) continue;
      for (int row = bottom; row < shape.top(k); ++row) {
        result.cells |= 1u << (row * rules.width + column + k);
      }
    }
    return result;
  }
};

// Returns the heights of the columns of a board in one number, four bits each, column 0 lowest.
// First every cell is extended downwards to the floor, in steps of 1, 2, 4, ... rows; then the
// height of a column is the number of its cells.
TETRIS_FUNCTION uint64_t heights_of(const Problem& problem, uint32_t board) {
  int width = problem.rules.width;
  uint32_t filled = board;
  for (int rows = 1; rows < problem.rules.height; rows *= 2) filled |= filled >> (rows * width);
  uint64_t heights = 0;
  TETRIS_UNROLL for (int c = 0; c < MOST_COLUMNS; ++c) {
    int height = popcount(filled >> c & problem.first_column);
    if (c < width) heights |= uint64_t(height) << (4 * c);
  }
  return heights;
}

// Returns the mirror image of a board: column c becomes column width - 1 - c.
TETRIS_FUNCTION uint32_t mirrored(const Problem& problem, uint32_t board) {
  int width = problem.rules.width;
  uint32_t result = 0;
  TETRIS_UNROLL for (int c = 0; c < MOST_COLUMNS; ++c) {
    if (c < width) result |= (board >> c & problem.first_column) << (width - 1 - c);
  }
  return result;
}

// The result of a placement: the board without full rows. `heights` are those of the board
// before.
struct SmallLanding {
  uint32_t board;
  int lines;
  bool over;

  // Drops a piece on the board `before` and removes full rows, topmost first. Sets `board`, the
  // board after it, `lines`, the number of removed rows, and `over`, whether the game has
  // ended.
  //
  // A board is a number in which cell (row r, column c) is bit r * width + c; 64 bits hold the
  // rows above the top as well. A piece that reaches above the top ends the game at once, and
  // `board` is then 0. Under the rule clear_on_overflow the game ends only if cells are above
  // the top after the removal. `heights` holds the heights of the columns of `before`, four
  // bits each.
  TETRIS_FUNCTION SmallLanding(const Problem& problem, uint32_t before, uint64_t heights,
      const SmallPlacement& placement)
      : board(0), lines(0) {
    int width = problem.rules.width;
    int height = problem.rules.height;
    int row = landing_row(heights >> (4 * placement.column), placement);
    bool exceeds = row + placement.height > height;
    over = exceeds;
    if (exceeds && !problem.rules.clear_on_overflow) return;
    uint64_t cells = before | uint64_t(placement.cells) << (row * width);
    uint64_t full_row = (uint64_t{1} << width) - 1;
    // Only the rows of the piece can have become full.
    for (int r = row + placement.height - 1; r >= row; --r) {
      int first_bit = r * width;
      if ((cells >> first_bit & full_row) != full_row) continue;
      uint64_t rows_below = (uint64_t{1} << first_bit) - 1;
      uint64_t moved_down = cells >> width & ~rows_below;
      cells = (cells & rows_below) | moved_down;
      ++lines;
    }
    board = uint32_t(cells);
    bool reaches_above_top = cells >> (width * height) != 0;
    over = exceeds && reaches_above_top;
  }

 private:
  // Returns the row of the piece's bottom, from the heights of the columns under it, four bits
  // each.
  TETRIS_FUNCTION static int landing_row(uint64_t heights, const SmallPlacement& placement) {
    int row = 0;
    TETRIS_UNROLL for (int k = 0; k < MAX_PIECE_SIZE; ++k) {
      int bottom = placement.bottom(k);
      int support = int(heights >> (4 * k) & 15u) - bottom;
      if (bottom != SmallPlacement::NO_COLUMN && support > row) row = support;
    }
    return row;
  }
};

// The functors below are what a sweep or a search does for board boards[i], or for game i.
// `known` is 1 if only the falling piece is known, 2 if the next one is known, too.

// Computes the new value of a board, the lines to come, before its piece is known; with known =
// 2, its values before its next piece is known, one for each falling piece. A board in the
// mirror has the same values, and they are written, too.
struct Sweep {
  Problem problem;
  int known;
  const uint32_t* boards;
  const double* values;
  double* to;

  // One step of value iteration: computes the new value of board i from the old values, and
  // writes it to the array `to` for the board and for its mirror image. The value of a board is
  // the expected number of lines that are still removed.
  //
  // With known = 1 only the falling piece is known when it is placed, and the value is the
  // mean, over all pieces, of the value of the best placement. With known = 2 the next piece is
  // known as well, and there is one value for each falling piece: the mean, over all next
  // pieces, of the value of the best placement. If the set of pieces is not symmetric, `mirror`
  // is the board itself.
  TETRIS_FUNCTION void operator()(int64_t i) const {
    uint32_t board = boards[i];
    uint64_t heights = heights_of(problem, board);
    uint32_t mirror = problem.symmetric ? mirrored(problem, board) : board;
    double sum = 0.0;
    for (int piece = 0; piece < PIECES; ++piece) {
      if (!problem.draws(piece)) continue;
      double best[KNOWN_PIECES] = {};
      find_best(board, heights, piece, best);
      if (known == 1) sum += best[0];
      else write_mean(board, mirror, piece, best);
    }
    if (known == 1) {
      double mean = sum / problem.count;
      to[mirror] = mean;
      to[board] = mean;
    }
  }

 private:
  // Computes the value of the best placement of `piece`: the maximum, over its placements, of
  // the lines that a placement removes plus the value of the board after it. The value of a
  // board is the expected number of further lines, 0 if the game has ended.
  //
  // With known = 1 the maximum is written to best[0]. With known = 2 boards have one value per
  // next piece, and best[next] becomes the maximum if `next` comes next. `best` has to be 0 on
  // entry. `heights` holds the heights of the board's columns, four bits each.
  TETRIS_FUNCTION void find_best(
      uint32_t board, uint64_t heights, int piece, double (&best)[KNOWN_PIECES]) const {
    for (int p = problem.begin[piece]; p < problem.begin[piece + 1]; ++p) {
      SmallLanding landing(problem, board, heights, problem.placements[p]);
      double lines = landing.lines;
      if (known == 1) {
        double value = lines + (landing.over ? 0.0 : values[landing.board]);
        best[0] = value > best[0] ? value : best[0];
      } else {
        const double* values_after = values + int64_t(landing.board) * KNOWN_PIECES;
        TETRIS_UNROLL for (int next = 0; next < PIECES; ++next) {
          double value = lines + (landing.over ? 0.0 : values_after[next]);
          best[next] = value > best[next] ? value : best[next];
        }
      }
    }
  }

  // Writes the value of a board with a falling piece: the mean of best[next] over all next
  // pieces. The mirror image of the board with the mirror image of the piece gets the same
  // value.
  TETRIS_FUNCTION void write_mean(
      uint32_t board, uint32_t mirror, int piece, const double (&best)[KNOWN_PIECES]) const {
    double sum = 0.0;
    TETRIS_UNROLL for (int next = 0; next < PIECES; ++next) {
      sum += problem.draws(next) ? best[next] : 0.0;
    }
    double mean = sum / problem.count;
    int mirror_piece = problem.symmetric ? problem.mirror[piece] : piece;
    to[int64_t(board) * KNOWN_PIECES + piece] = mean;
    to[int64_t(mirror) * KNOWN_PIECES + mirror_piece] = mean;
  }
};

// Read and write a board's mark. Several threads may do so at once; the order does not matter.
TETRIS_FUNCTION uint8_t read(const uint8_t* mark) {
#if defined(__CUDA_ARCH__)
  return *mark;
#else
  return __atomic_load_n(mark, __ATOMIC_RELAXED);
#endif
}
TETRIS_FUNCTION void write(uint8_t* mark, uint32_t value) {
#if defined(__CUDA_ARCH__)
  *mark = uint8_t(value);
#else
  __atomic_store_n(mark, uint8_t(value), __ATOMIC_RELAXED);
#endif
}

// Marks the boards that a board leads to, unless they are marked. Of two boards that are mirror
// images the one with the lesser number is marked.
struct Expand {
  Problem problem;
  const uint32_t* boards;
  uint8_t* marks;

  // Marks the boards that one placement of any piece on board i leads to. A board and its
  // mirror image share one mark, that of the lesser number.
  TETRIS_FUNCTION void operator()(int64_t i) const {
    uint32_t board = boards[i];
    uint64_t heights = heights_of(problem, board);
    for (int p = 0; p < problem.begin[PIECES]; ++p) {
      SmallLanding landing(problem, board, heights, problem.placements[p]);
      if (landing.over) continue;
      uint32_t mirror = problem.symmetric ? mirrored(problem, landing.board) : landing.board;
      uint32_t lesser = mirror < landing.board ? mirror : landing.board;
      if (read(marks + lesser) == 0) write(marks + lesser, 1);
    }
  }
};

// Removes pieces from a board's mark with which the player can be made to lose. A mark is the
// set of falling pieces with which a board is thought to be safe, at first all. Done for all
// boards until nothing changes, this leaves the pieces with which the player need never lose.
struct Survive {
  Problem problem;
  int known;
  const uint32_t* boards;
  uint8_t* marks;
  uint8_t* changed;

  // Updates the mark of board i: the set of falling pieces, one bit each, with which the player
  // can survive on this board as far as is known. Marks only shrink; *changed becomes 1 if this
  // one does.
  //
  // With known = 1 a falling piece is safe if one placement leads to a board that is safe with
  // all pieces. With known = 2 the next piece is known before the placement, so a falling piece
  // is safe if for every next piece some placement leads to a board that is safe with it.
  // `read` and `write` access a mark that other threads may write at the same time.
  TETRIS_FUNCTION void operator()(int64_t i) const {
    uint32_t board = boards[i];
    uint32_t before = read(marks + board);
    if (before == 0) return;
    uint64_t heights = heights_of(problem, board);
    uint32_t safe = 0, safe_in_mirror = 0;
    for (int piece = 0; piece < PIECES; ++piece) {
      if (!problem.draws(piece)) continue;
      uint32_t safe_next = 0;         // the next pieces for which some placement is safe
      bool has_safe_for_all = false;  // whether one placement is safe for all next pieces
      for (int p = problem.begin[piece]; p < problem.begin[piece + 1]; ++p) {
        SmallLanding landing(problem, board, heights, problem.placements[p]);
        uint32_t mark = landing.over ? 0u : read(marks + landing.board);
        safe_next |= mark;
        has_safe_for_all = has_safe_for_all || mark == problem.pieces;
      }
      bool is_safe = known == 1 ? has_safe_for_all : safe_next == problem.pieces;
      if (!is_safe) continue;
      safe |= 1u << piece;
      safe_in_mirror |= 1u << problem.mirror[piece];
    }
    if (safe == before) return;
    write(marks + board, safe);
    if (problem.symmetric) write(marks + mirrored(problem, board), safe_in_mirror);
    write(changed, 1);
  }
};

// Plays a game by the rules of the engines, with the best placements by `values`, and writes
// its lines.
struct Play {
  Problem problem;
  int known;
  PieceSource source;
  int64_t seed;
  const double* values;
  int64_t* lines;

  // Plays game i to its end with the best placements by `values`, and writes the number of
  // removed lines to lines[i]. The pieces are those of stream i.
  //
  // The game is played by the rules of the engine, on columns of bits. board_of returns the
  // same board as one number, by which `choose` finds its values. With known = 2 the next piece
  // is known before the placement.
  TETRIS_FUNCTION void operator()(int64_t i) const {
    using L = ScalarLanes;
    PieceStream pieces{source, uint64_t(seed), uint64_t(i)};
    Geometry<L> geometry(problem.rules);
    typename L::ColumnBits cells = geometry.walls;
    int64_t removed = 0;
    for (uint64_t t = 0;; ++t) {
      uint32_t board = board_of(cells);
      int piece = pieces.piece(t);
      int next = known == 1 ? 0 : pieces.piece(t + 1);
      int placement = choose(board, piece, next);
      Landing<L> landing(Board<L>(geometry, cells), piece, placement);
      removed += landing.lines;
      if (landing.over) break;
      cells = landing.cells;
    }
    lines[i] = removed;
  }

 private:
  // Returns the number of a board that is held as columns of the engines: cell (row, c) is bit
  // row * width + c.
  TETRIS_FUNCTION uint32_t board_of(const ScalarLanes::ColumnBits& cells) const {
    uint32_t board = 0;
    for (int c = 0; c < problem.rules.width; ++c) {
      uint32_t column = cells.slot[FIRST_COLUMN + c];
      for (int row = 0; row < problem.rules.height; ++row) {
        uint32_t cell = column >> (ScalarLanes::TOP - row) & 1u;
        board |= cell << (row * problem.rules.width + c);
      }
    }
    return board;
  }

  // Returns the number of the best placement of `piece`: the one with the greatest sum of the
  // lines that it removes and the value of the board after it. Of equal sums the first
  // placement wins. Returns 0 if all placements end the game without a line.
  //
  // `values` are the expected numbers of further lines. With known = 1 there is one per board.
  // With known = 2 the next piece, `next`, is known, and values[8 * board + next] is used.
  TETRIS_FUNCTION int choose(uint32_t board, int piece, int next) const {
    uint64_t heights = heights_of(problem, board);
    double best = -1.0;
    int chosen = 0;
    for (int p = problem.begin[piece]; p < problem.begin[piece + 1]; ++p) {
      const SmallPlacement& placement = problem.placements[p];
      SmallLanding landing(problem, board, heights, placement);
      if (landing.over && landing.lines == 0) continue;
      int64_t index = known == 1 ? landing.board : int64_t(landing.board) * KNOWN_PIECES + next;
      double further_lines = landing.over ? 0.0 : values[index];
      double value = landing.lines + further_lines;
      if (value > best) {
        best = value;
        chosen = placement.number;
      }
    }
    return chosen;
  }
};

}  // namespace tetris
