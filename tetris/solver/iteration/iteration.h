// Value iteration over all boards, on any device. The functors below handle one board of a
// sweep, one board of the search for reachable boards, or one game.
//
// A board is a number in which cell (row r, column c) is bit r * width + c. It has at most 32
// cells, or 64 with the rows above the top.
#pragma once

#include "board.h"
#include "piece_stream.h"

namespace tetris {

constexpr int MOST_CELLS = 32;
constexpr int MOST_COLUMNS = 8;
constexpr int MOST_PLACEMENTS = 128;
// The number of values of a board if the next piece is known: one value per falling piece, and
// an unused one, which together are 64 bytes. If only the falling piece is known, a board has
// one value.
constexpr int KNOWN_PIECES = 8;

struct SmallPlacement {
  static constexpr int NO_COLUMN = 3;  // a bottom that means that the piece has no such column
  uint32_t cells;                      // the cells of the piece if its bottom is in row 0
  uint8_t number;                      // the number of the placement, as in plan.h
  uint8_t height;                      // the height of the piece
  uint8_t column;                      // the board column of its left edge
  uint8_t bottoms;                     // its lowest row in each column, two bits per column

  TETRIS_FUNCTION int bottom(int k) const { return bottoms >> (2 * k) & 3; }
};

// The data that all boards share. It is a parameter of the kernels, which may have at most 4
// KB.
struct Problem {
  GameRules rules;
  uint32_t pieces;  // the set of pieces that are drawn
  int count;        // the number of these pieces
  // Piece p has the placements begin[p] to begin[p + 1] - 1. If it is not drawn, it has none.
  int begin[PIECES + 1];
  uint8_t mirror[PIECES];  // the mirror image of each piece
  bool symmetric;          // whether the set of pieces contains the mirror image of each piece
  uint32_t first_column;   // the cells of column 0, as a board
  SmallPlacement placements[MOST_PLACEMENTS];

  // Lists the placements of all pieces on boards of game.width x game.height cells: piece p has
  // the placements begin[p] to begin[p + 1] - 1. `drawn` is the set of the pieces that may
  // fall, with bit p for piece p. `symmetric` becomes whether the mirror images of these pieces
  // may fall, too.
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
    // The cells of column 0: cell (row r, column c) of a board is bit r * width + c.
    first_column = 0;
    for (int row = 0; row < rules.height; ++row) first_column |= 1u << (row * rules.width);
  }

  TETRIS_FUNCTION bool draws(int piece) const { return pieces >> piece & 1u; }

 private:
  // Returns the placement of a shape with its left edge over a board column. `bottoms` has the
  // lowest row of each column of the piece, two bits per column. `cells` has the cells of the
  // piece at the bottom of the board, where cell (row r, column c) is bit r * width + c.
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

// Returns the heights of the columns of a board in one number. Bits 4 * c to 4 * c + 3 are the
// height of column c. First the loop extends every cell downwards to the floor, by 1, 2, 4, ...
// rows. The height of a column is then the number of its cells.
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

// The result of a placement: the board after full rows have been removed.
struct SmallLanding {
  uint32_t board;
  int lines;
  bool over;

  // Drops a piece on the board `before` and removes full rows. Sets `board` to the board after
  // the placement, `lines` to the number of removed rows, and `over` to whether the game has
  // ended. A piece that reaches above the top ends the game, and `board` is then 0. Under the
  // rule clear_on_overflow, full rows are removed first, and the game ends only if a cell
  // remains above the top.
  //
  // Cell (row r, column c) of a board is bit r * width + c. `heights` has the heights of the
  // columns of `before`, four bits per column.
  TETRIS_FUNCTION SmallLanding(const Problem& problem, uint32_t before, uint64_t heights,
      const SmallPlacement& placement)
      : board(0), lines(0) {
    int width = problem.rules.width;
    int height = problem.rules.height;
    int row = landing_row(heights >> (4 * placement.column), placement);
    bool exceeds = row + placement.height > height;
    over = exceeds;
    if (exceeds && !problem.rules.clear_on_overflow) return;
    // Place the piece. 64 bits have room for the rows above the top, too.
    uint64_t cells = before | uint64_t(placement.cells) << (row * width);
    uint64_t full_row = (uint64_t{1} << width) - 1;
    // Only the rows of the piece can be full now. Remove the topmost one first, so that the
    // rows below keep their numbers.
    for (int r = row + placement.height - 1; r >= row; --r) {
      int first_bit = r * width;
      bool is_full = (cells >> first_bit & full_row) == full_row;
      if (!is_full) continue;
      uint64_t rows_below = (uint64_t{1} << first_bit) - 1;
      uint64_t rows_above_moved_down = (cells >> width) & ~rows_below;
      cells = (cells & rows_below) | rows_above_moved_down;
      ++lines;
    }
    board = uint32_t(cells);
    bool reaches_above_top = cells >> (width * height) != 0;
    over = exceeds && reaches_above_top;
  }

 private:
  // Returns the row in which the bottom of the piece comes to rest. Bits 4 * k to 4 * k + 3 of
  // `heights` are the height of the board column under column k of the piece.
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

// The functors below handle board boards[i] of a sweep or a search, or game i. `known` is 1 if
// only the falling piece is known when it is placed, and 2 if the next piece is known as well.

// One step of value iteration. It computes the new value of a board, which is the expected
// number of further lines. With known = 2, a board has one value for each falling piece. The
// mirror image of a board has the same values, which are also written.
struct Sweep {
  Problem problem;
  int known;
  const uint32_t* boards;
  const double* values;
  double* to;

  // One step of value iteration: computes the new value of board i from the old values, and
  // writes it to the array `to`. The value of a board is the expected number of lines that are
  // removed from now on.
  //
  // With known = 1, only the falling piece is known when it is placed. The value of a board is
  // the mean, over all falling pieces, of the value of the best placement.
  //
  // With known = 2, the next piece is known as well, and the best placement depends on both
  // pieces. A board then has one value for each falling piece: the mean, over all next pieces,
  // of the value of the best placement.
  TETRIS_FUNCTION void operator()(int64_t i) const {
    uint32_t board = boards[i];
    uint64_t heights = heights_of(problem, board);
    // The mirror image of the board has the same value if the set of pieces is symmetric.
    uint32_t mirror = problem.symmetric ? mirrored(problem, board) : board;
    double sum = 0.0;
    for (int piece = 0; piece < PIECES; ++piece) {
      if (!problem.draws(piece)) continue;
      // The value of the best placement for each next piece. If only the falling piece is
      // known, the value is best[0].
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
  // Computes the value of the best placement of `piece`: the number of lines that it removes
  // plus the value of the board after it, which is 0 if the game has ended.
  //
  // If only the falling piece is known (known = 1), best[0] becomes this value. If the next
  // piece is known, too (known = 2), best[next] becomes the value for each next piece. All
  // elements of `best` have to be 0 on entry. `heights` has the heights of the board's columns,
  // four bits per column.
  TETRIS_FUNCTION void find_best(
      uint32_t board, uint64_t heights, int piece, double (&best)[KNOWN_PIECES]) const {
    for (int p = problem.begin[piece]; p < problem.begin[piece + 1]; ++p) {
      SmallLanding landing(problem, board, heights, problem.placements[p]);
      double lines = landing.lines;
      if (known == 1) {
        double further_lines = landing.over ? 0.0 : values[landing.board];
        double value = lines + further_lines;
        best[0] = value > best[0] ? value : best[0];
      } else {
        // A board has one value for each piece that may fall on it.
        const double* values_after = values + int64_t(landing.board) * KNOWN_PIECES;
        TETRIS_UNROLL for (int next = 0; next < PIECES; ++next) {
          double further_lines = landing.over ? 0.0 : values_after[next];
          double value = lines + further_lines;
          best[next] = value > best[next] ? value : best[next];
        }
      }
    }
  }

  // Writes the value of a board for a falling piece: the mean of best[next] over all next
  // pieces. The mirror image of the board has the same value for the mirror image of the piece.
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

// Read and write the mark of a board. Several threads may do this at the same time; their order
// does not matter.
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

// Marks the boards that can be reached from a board. Of a board and its mirror image, only the
// one with the smaller number is marked.
struct Expand {
  Problem problem;
  const uint32_t* boards;
  uint8_t* marks;

  // Marks the boards that can be reached from board i by one placement of any piece. A board
  // and its mirror image share one mark, at the smaller of the two numbers. Other threads may
  // write marks at the same time; `read` and `write` access a mark safely.
  TETRIS_FUNCTION void operator()(int64_t i) const {
    uint32_t board = boards[i];
    uint64_t heights = heights_of(problem, board);
    for (int p = 0; p < problem.begin[PIECES]; ++p) {
      SmallLanding landing(problem, board, heights, problem.placements[p]);
      if (landing.over) continue;
      uint32_t mirror = problem.symmetric ? mirrored(problem, landing.board) : landing.board;
      uint32_t smaller = mirror < landing.board ? mirror : landing.board;
      if (read(marks + smaller) == 0) write(marks + smaller, 1);
    }
  }
};

// Computes with which falling pieces the player can survive forever, whatever pieces follow.
// The mark of a board is a set of falling pieces, and contains all pieces at first. One call
// removes from one mark the pieces with which the player cannot survive according to the
// present marks. Callers repeat this for all boards until no mark changes.
struct Survive {
  Problem problem;
  int known;
  const uint32_t* boards;
  uint8_t* marks;
  uint8_t* changed;

  // Updates the mark of board i: the set of the falling pieces with which the player can
  // survive, according to the marks of other boards. A piece is one bit. A mark can only lose
  // pieces, and *changed becomes 1 if this one does.
  TETRIS_FUNCTION void operator()(int64_t i) const {
    uint32_t board = boards[i];
    uint32_t before = read(marks + board);
    if (before == 0) return;  // the mark cannot lose any more pieces
    uint64_t heights = heights_of(problem, board);
    uint32_t safe = 0, safe_in_mirror = 0;  // the new marks of the board and its mirror image
    for (int piece = 0; piece < PIECES; ++piece) {
      if (!problem.draws(piece) || !is_safe(board, heights, piece)) continue;
      safe |= 1u << piece;
      safe_in_mirror |= 1u << problem.mirror[piece];
    }
    if (safe == before) return;
    write(marks + board, safe);
    if (problem.symmetric) write(marks + mirrored(problem, board), safe_in_mirror);
    write(changed, 1);
  }

 private:
  // Returns whether the player can survive on a board on which `piece` falls, according to the
  // marks of the boards after its placements. `heights` has the heights of the board's columns,
  // four bits per column, and problem.pieces is the set of all pieces that may fall.
  //
  // With known = 1, one placement has to lead to a board whose mark has all pieces. With known =
  // 2, the next piece is known before the placement. So for every next piece, some placement has
  // to lead to a board whose mark has this next piece.
  TETRIS_FUNCTION bool is_safe(uint32_t board, uint64_t heights, int piece) const {
    uint32_t safe_next = 0;         // the next pieces for which some placement is safe
    bool has_safe_for_all = false;  // whether one placement is safe for all next pieces
    for (int p = problem.begin[piece]; p < problem.begin[piece + 1]; ++p) {
      SmallLanding landing(problem, board, heights, problem.placements[p]);
      uint32_t mark = landing.over ? 0u : read(marks + landing.board);
      safe_next |= mark;
      has_safe_for_all = has_safe_for_all || mark == problem.pieces;
    }
    return known == 1 ? has_safe_for_all : safe_next == problem.pieces;
  }
};

// Plays a game by the rules of the engine, choosing the best placements according to `values`,
// and writes the number of removed lines.
struct Play {
  Problem problem;
  int known;
  PieceSource source;
  int64_t seed;
  const double* values;
  int64_t* lines;

  // Plays game i to its end with the pieces of stream i, and writes the number of removed lines
  // to lines[i]. Every placement is the best one according to `values`, the expected numbers of
  // further lines. With known = 2, the next piece is known before the placement.
  TETRIS_FUNCTION void operator()(int64_t i) const {
    using L = ScalarLanes;
    PieceStream pieces{source, uint64_t(seed), uint64_t(i)};
    Geometry<L> geometry(problem.rules);
    typename L::ColumnBits cells = geometry.walls;
    int64_t removed = 0;
    for (uint64_t t = 0;; ++t) {
      uint32_t board = board_of(cells);  // the index of the board in `values`
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
  // Returns the number of a board from its columns: cell (row, c) is bit row * width + c. In a
  // column of the engine, row r is bit L::TOP - r.
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

  // Returns the number of the best placement of `piece`, or 0 if all placements end the game
  // without a line. The value of a placement is the number of lines that it removes plus the
  // expected number of further lines, which is 0 if the game has ended.
  TETRIS_FUNCTION int choose(uint32_t board, int piece, int next) const {
    uint64_t heights = heights_of(problem, board);
    double best = -1.0;
    int chosen = 0;
    for (int p = problem.begin[piece]; p < problem.begin[piece + 1]; ++p) {
      const SmallPlacement& placement = problem.placements[p];
      SmallLanding landing(problem, board, heights, placement);
      if (landing.over && landing.lines == 0) continue;
      // With known = 2, a board has KNOWN_PIECES values, one for each piece that falls next.
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
