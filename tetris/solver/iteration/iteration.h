// Value iteration over all boards, on any device: one board of a sweep, of the search for what can be reached, and one game.
//
// A board is a number: row r, column c is bit r * width + c. It has at most 32 cells, 64 with the rows above the top.
#pragma once

#include "board.h"
#include "piece_stream.h"

namespace tetris {

constexpr int MOST_CELLS = 32, MOST_COLUMNS = 8, MOST_PLACEMENTS = 128;
constexpr int KNOWN_PIECES =
    8;  // values of a board where the piece is known: one each, and an unused one

struct SmallPlacement {
  uint32_t cells;  // with the bottom of the piece in row 0
  uint8_t place;   // number in the engine's order (plan.h)
  uint8_t height;
  uint8_t column;
  uint8_t
      bottoms;  // two bits per column of the piece; a column that is none has 3, which never decides
};

// What is the same for all boards. It is a parameter of kernels, which may have 4 KB.
struct Problem {
  GameRules rules;
  uint32_t pieces;         // a bit per piece that is drawn
  int count;               // of them
  int begin[PIECES + 1];   // of each piece's placements; a piece that is not drawn has none
  uint8_t mirror[PIECES];  // the piece seen in a mirror
  bool symmetric;          // whether the pieces are the same in a mirror
  uint32_t first_column;   // its cells
  SmallPlacement placements[MOST_PLACEMENTS];

  Problem(const GameRules& game, uint32_t drawn)
      : rules(game),
        pieces(drawn),
        count(0),
        begin{},
        mirror{0, 1, 2, 4, 3, 6, 5},
        symmetric(true) {
    int number = 0;
    for (int piece = 0; piece < PIECES; ++piece) {
      begin[piece] = number;
      const bool here = pieces >> piece & 1u;
      symmetric = symmetric && here == ((pieces >> mirror[piece] & 1u) != 0);
      if (!here) continue;
      ++count;
      for (int orientation = 0; orientation < ORIENTATIONS[piece]; ++orientation) {
        const Shape& shape = SHAPES.shape[piece][orientation];
        for (int column = 0; column + shape.width <= rules.width; ++column) {
          placements[number++] = placement(shape, orientation, column);
        }
      }
    }
    begin[PIECES] = number;
    first_column = 0;
    for (int row = 0; row < rules.height; ++row) first_column |= 1u << (row * rules.width);
  }

  TETRIS_FUNCTION bool draws(int piece) const { return pieces >> piece & 1u; }

 private:
  SmallPlacement placement(const Shape& shape, int orientation, int column) const {
    SmallPlacement result{0, static_cast<uint8_t>(orientation * ORDER_STRIDE + column),
        static_cast<uint8_t>(shape.height), static_cast<uint8_t>(column), 0};
    for (int k = 0; k < MAX_PIECE_SIZE; ++k) {
      const bool inside = k < shape.width;
      result.bottoms |= static_cast<uint8_t>((inside ? shape.bottom(k) : 3) << (2 * k));
      for (int row = shape.bottom(k); inside && row < shape.top(k); ++row) {
        result.cells |= 1u << (row * rules.width + column + k);
      }
    }
    return result;
  }
};

// The heights of the columns, four bits each.
TETRIS_FUNCTION uint64_t heights_of(const Problem& problem, uint32_t board) {
  const int width = problem.rules.width;
  uint32_t filled = board;  // and all below
  for (int rows = 1; rows < problem.rules.height; rows *= 2) filled |= filled >> (rows * width);
  uint64_t heights = 0;
  TETRIS_UNROLL for (int c = 0; c < MOST_COLUMNS; ++c) {
    if (c < width)
      heights |= static_cast<uint64_t>(popcount(filled >> c & problem.first_column)) << (4 * c);
  }
  return heights;
}

TETRIS_FUNCTION uint32_t mirrored(const Problem& problem, uint32_t board) {
  const int width = problem.rules.width;
  uint32_t result = 0;
  TETRIS_UNROLL for (int c = 0; c < MOST_COLUMNS; ++c) {
    if (c < width) result |= (board >> c & problem.first_column) << (width - 1 - c);
  }
  return result;
}

// What a placement leads to.
struct SmallLanding {
  uint32_t board;
  int lines;
  bool over;

  TETRIS_FUNCTION SmallLanding(const Problem& problem, uint32_t before, uint64_t heights,
      const SmallPlacement& placement)
      : board(0), lines(0) {
    const int width = problem.rules.width, height = problem.rules.height;
    const uint64_t under = heights >> (4 * placement.column);
    int row = 0;
    TETRIS_UNROLL for (int k = 0; k < MAX_PIECE_SIZE; ++k) {
      const int bottom = placement.bottoms >> (2 * k) & 3,
                support = static_cast<int>(under >> (4 * k) & 15u) - bottom;
      if (bottom != 3 && support > row) row = support;
    }
    const bool exceeds = row + placement.height > height;
    over = exceeds;
    if (exceeds && !problem.rules.clear_on_overflow) return;
    uint64_t cells = before | static_cast<uint64_t>(placement.cells) << (row * width);
    const uint64_t full = (uint64_t{1} << width) - 1;
    for (int r = row + placement.height - 1; r >= row; --r) {
      if ((cells >> (r * width) & full) != full) continue;
      const uint64_t below = (uint64_t{1} << (r * width)) - 1;
      cells = (cells & below) | (cells >> width & ~below);
      ++lines;
    }
    board = static_cast<uint32_t>(cells);
    over = exceeds && cells >> (width * height) != 0;
  }
};

// What is done for board i, or game i, is a functor of what the kernels get.

// The value of a board before its piece is known, and before its next piece is known for each piece: the lines to come.
struct Sweep {
  Problem problem;
  int known;
  const uint32_t* boards;
  const double* values;
  double* to;

  TETRIS_FUNCTION void operator()(int64_t i) const {
    const uint32_t board = boards[i];
    const uint64_t heights = heights_of(problem, board);
    const uint32_t mirror = problem.symmetric ? mirrored(problem, board) : board;
    double sum = 0.0;
    for (int piece = 0; piece < PIECES; ++piece) {
      if (!problem.draws(piece)) continue;
      double best[KNOWN_PIECES] = {};
      for (int at = problem.begin[piece]; at < problem.begin[piece + 1]; ++at) {
        const SmallLanding landing(problem, board, heights, problem.placements[at]);
        const double lines = landing.lines;
        if (known == 1) {
          const double value = lines + (landing.over ? 0.0 : values[landing.board]);
          best[0] = value > best[0] ? value : best[0];
        } else {
          const double* after = values + static_cast<int64_t>(landing.board) * KNOWN_PIECES;
          TETRIS_UNROLL for (int next = 0; next < PIECES; ++next) {
            const double value = lines + (landing.over ? 0.0 : after[next]);
            best[next] = value > best[next] ? value : best[next];
          }
        }
      }
      if (known == 1) {
        sum += best[0];
        continue;
      }
      double all = 0.0;
      TETRIS_UNROLL for (int next = 0; next < PIECES; ++next) all +=
          problem.draws(next) ? best[next] : 0.0;
      const double mean = all / problem.count;
      to[static_cast<int64_t>(board) * KNOWN_PIECES + piece] = mean;
      const int seen = problem.symmetric ? problem.mirror[piece] : piece;
      to[static_cast<int64_t>(mirror) * KNOWN_PIECES + seen] = mean;
    }
    if (known == 1) to[board] = to[mirror] = sum / problem.count;
  }
};

// A mark of a board, which several threads may read and write; it does not matter in which order.
TETRIS_FUNCTION uint8_t read(const uint8_t* mark) {
#if defined(__CUDA_ARCH__)
  return *mark;
#else
  return __atomic_load_n(mark, __ATOMIC_RELAXED);
#endif
}
TETRIS_FUNCTION void write(uint8_t* mark, uint32_t value) {
#if defined(__CUDA_ARCH__)
  *mark = static_cast<uint8_t>(value);
#else
  __atomic_store_n(mark, static_cast<uint8_t>(value), __ATOMIC_RELAXED);
#endif
}

// Marks the boards that a board leads to and that nobody marked; of two that mirror each other the lesser number.
struct Expand {
  Problem problem;
  const uint32_t* boards;
  uint8_t* marks;

  TETRIS_FUNCTION void operator()(int64_t i) const {
    const uint32_t board = boards[i];
    const uint64_t heights = heights_of(problem, board);
    for (int at = 0; at < problem.begin[PIECES]; ++at) {
      const SmallLanding landing(problem, board, heights, problem.placements[at]);
      if (landing.over) continue;
      const uint32_t mirror =
          problem.symmetric ? mirrored(problem, landing.board) : landing.board;
      uint8_t* mark = marks + (mirror < landing.board ? mirror : landing.board);
      if (read(mark) == 0) write(mark, 1);
    }
  }
};

// Takes from a board's marks, a bit per piece, those of pieces with which a player can be made to lose, if he can be wherever a
// mark is gone. All marks are there at first; done again until nothing changes, it leaves those with which he need never lose.
struct Survive {
  Problem problem;
  int known;
  const uint32_t* boards;
  uint8_t *marks, *changed;

  TETRIS_FUNCTION void operator()(int64_t i) const {
    const uint32_t board = boards[i], before = read(marks + board);
    if (before == 0) return;
    const uint64_t heights = heights_of(problem, board);
    uint32_t left = 0, left_in_mirror = 0;
    for (int piece = 0; piece < PIECES; ++piece) {
      if (!problem.draws(piece)) continue;
      uint32_t next = 0;  // the pieces that may come next
      bool any = false;   // whether they may all, after one placement
      for (int at = problem.begin[piece]; at < problem.begin[piece + 1]; ++at) {
        const SmallLanding landing(problem, board, heights, problem.placements[at]);
        const uint32_t mark = landing.over ? 0u : read(marks + landing.board);
        next |= mark;
        any = any || mark == problem.pieces;
      }
      if (known == 1 ? !any : next != problem.pieces) continue;
      left |= 1u << piece;
      left_in_mirror |= 1u << problem.mirror[piece];
    }
    if (left == before) return;
    write(marks + board, left);
    if (problem.symmetric) write(marks + mirrored(problem, board), left_in_mirror);
    write(changed, 1);
  }
};

// Plays a game by the rules of the engines and writes its lines.
struct Play {
  Problem problem;
  int known;
  PieceSource source;
  int64_t seed;
  const double* values;
  int64_t* lines;

  TETRIS_FUNCTION void operator()(int64_t i) const {
    using L = ScalarLanes;
    const PieceStream pieces{source, static_cast<uint64_t>(seed), static_cast<uint64_t>(i)};
    const Geometry<L> geometry(problem.rules);
    typename L::ColumnBits cells = geometry.walls;
    int64_t removed = 0;
    for (uint64_t t = 0;; ++t) {
      uint32_t board = 0;
      for (int c = 0; c < problem.rules.width; ++c) {
        for (int row = 0; row < problem.rules.height; ++row) {
          board |= (cells.slot[FIRST_COLUMN + c] >> (L::TOP - row) & 1u)
                   << (row * problem.rules.width + c);
        }
      }
      const int piece = pieces.piece(t), next = known == 1 ? 0 : pieces.piece(t + 1);
      const Landing<L> landing(Board<L>(geometry, cells), piece, choose(board, piece, next));
      removed += landing.lines;
      if (landing.over) break;
      cells = landing.cells;
    }
    lines[i] = removed;
  }

 private:
  // The best placement by the values, the first of several: its place in the engine's order. 0 if all end the game.
  TETRIS_FUNCTION int choose(uint32_t board, int piece, int next) const {
    const uint64_t heights = heights_of(problem, board);
    double best = -1.0;
    int place = 0;
    for (int i = problem.begin[piece]; i < problem.begin[piece + 1]; ++i) {
      const SmallLanding landing(problem, board, heights, problem.placements[i]);
      const int64_t at = known == 1 ? landing.board
                                    : static_cast<int64_t>(landing.board) * KNOWN_PIECES + next;
      if (landing.over && landing.lines == 0) continue;
      const double value = landing.lines + (landing.over ? 0.0 : values[at]);
      if (value > best) {
        best = value;
        place = problem.placements[i].place;
      }
    }
    return place;
  }
};

}  // namespace tetris
