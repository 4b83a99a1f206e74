// The seven pieces and their orientations, in the order I O T Z S J L. They equal those of
// tetris/game/pieces.py; a test compares them. A piece is described by its columns, from left
// to right: column k has cells in rows bottom(k) to top(k) - 1 of its bounding box. For
// example, the T that points down is 3 columns wide and 2 rows high:
//
//     row 1   # # #     bottoms  1 0 1
//     row 0   . # .     tops     2 2 2
#pragma once

#include "host_device.h"

namespace tetris {

constexpr int PIECES = 7;
constexpr int MAX_ORIENTATIONS = 4;
constexpr int MAX_PIECE_SIZE = 4;
constexpr int NO_ROW = 127;  // above every height
// An offset that is added to steps between heights. The steps -2 to 2, which the feature
// `diversity` counts, become 1 to 5.
constexpr int STEP = 3;
// The tops of neighbouring columns of a shape differ by at most this number.
constexpr int INNER_STEPS = 2;

// Returns field n of a number that consists of four-bit fields. Unlike an array, such a number
// can be held in a register and read at a variable index.
TETRIS_FUNCTION constexpr int nth_field(uint32_t fields, int n) {
  return int(fields >> (4 * n)) & 15;
}

// Returns the pattern of the rows bottom to top - 1, where row j is bit 3 - j. The rows from
// `bottom` upwards are the number 2^(4 - bottom) - 1, and the rows from `top` upwards are 2^(4
// - top) - 1. The result is the difference between the two numbers.
constexpr uint32_t pattern_of_rows(int bottom, int top) {
  constexpr uint32_t ABOVE_ALL = 16;  // 2^4
  return (ABOVE_ALL >> bottom) - (ABOVE_ALL >> top);
}

struct Shape {
  int width, height;
  uint32_t bottoms, tops;  // field k belongs to column k
  uint32_t patterns;       // field k is the set of rows of column k: row j is bit 3 - j
  int8_t first_row[MAX_PIECE_SIZE];  // element k is bottom(k), or NO_ROW beyond the width

  TETRIS_FUNCTION constexpr int bottom(int k) const { return nth_field(bottoms, k); }
  TETRIS_FUNCTION constexpr int top(int k) const { return nth_field(tops, k); }
};

// Returns the shape of a piece in one orientation. `bottoms` and `tops` have one hexadecimal
// digit per column, from left to right: a column has cells in rows `bottom` to `top - 1`. For
// example, a T that points up is make_shape(3, 0x000, 0x121).
constexpr Shape make_shape(int width, uint32_t bottoms, uint32_t tops) {
  // Columns beyond the width keep NO_ROW, which is above every height.
  Shape shape{width, 0, 0, 0, 0, {NO_ROW, NO_ROW, NO_ROW, NO_ROW}};
  for (int k = 0; k < width; ++k) {
    int digit = width - 1 - k;  // the leftmost column is the most significant digit
    uint32_t bottom = nth_field(bottoms, digit);
    uint32_t top = nth_field(tops, digit);
    uint32_t row_mask = pattern_of_rows(bottom, top);
    // The fields of the shape have four bits per column, too, but column 0 is in the lowest.
    int first_bit = 4 * k;
    shape.bottoms |= bottom << first_bit;
    shape.tops |= top << first_bit;
    shape.patterns |= row_mask << first_bit;
    shape.first_row[k] = int8_t(bottom);
    if (int(top) > shape.height) shape.height = top;
  }
  return shape;
}

constexpr int ORIENTATIONS[PIECES] = {2, 1, 4, 2, 2, 4, 4};

struct ShapeTable {
  Shape shape[PIECES][MAX_ORIENTATIONS];
};

constexpr ShapeTable SHAPES = {{
    {make_shape(1, 0x0, 0x4), make_shape(4, 0x0000, 0x1111)},
    {make_shape(2, 0x00, 0x22)},
    {make_shape(2, 0x01, 0x32), make_shape(3, 0x000, 0x121), make_shape(2, 0x10, 0x23),
        make_shape(3, 0x101, 0x222)},
    {make_shape(2, 0x01, 0x23), make_shape(3, 0x100, 0x221)},
    {make_shape(2, 0x10, 0x32), make_shape(3, 0x001, 0x122)},
    {make_shape(3, 0x000, 0x211), make_shape(2, 0x00, 0x13), make_shape(3, 0x110, 0x222),
        make_shape(2, 0x02, 0x33)},
    {make_shape(3, 0x011, 0x222), make_shape(2, 0x00, 0x31), make_shape(3, 0x000, 0x112),
        make_shape(2, 0x20, 0x33)},
}};

#if defined(__CUDACC__)
// A copy, because device code cannot read a table of the host.
__device__ const ShapeTable DEVICE_SHAPES = SHAPES;
#endif

TETRIS_FUNCTION const Shape& shape_of(int piece, int orientation) {
#if defined(__CUDA_ARCH__)
  return DEVICE_SHAPES.shape[piece][orientation];
#else
  return SHAPES.shape[piece][orientation];
#endif
}

// Shapes that are WIDTH columns wide, as a search needs them, one shape per lane.
//
// A pattern is a number of four bits, a set of rows of the piece: bit 3 - j is row j.
// Multiplying it by 2^(TOP - 3 - row) moves it to a column of the board in which the bottom of
// the piece is in `row`.
template <class L, int WIDTH>
struct ShapeLanes {
  using Constant = typename L::Constant;
  Constant column;         // the board column of the piece's left edge
  Constant height;         // the height of the piece
  Constant bottom[WIDTH];  // the first row of column k
  Constant cells[WIDTH];   // the number of cells of column k
  Constant piece[WIDTH];   // pattern: the rows of column k
  Constant floor[WIDTH];   // pattern: the row below column k
  // pattern: the rows of column k - 1 that touch a side of the piece
  typename L::Constant contact[WIDTH + 2];
  Constant rows[WIDTH];             // pattern: the rows with k + 1 cells
  Constant has_single_cell[WIDTH];  // 1 if column k has one cell, else 0
  Constant left_top;                // top of the leftmost column + STEP
  Constant right_top;               // top of the rightmost column - STEP
  Constant inner_flags;             // step_flag of every step between the tops of its columns
  // size of the step from column k to the next; the last is 0
  typename L::Constant inner_sizes[WIDTH];
  Constant inner_sum;             // sum of these sizes
  Constant inner_classes[WIDTH];  // this step + STEP; the last is 0
  // For every n, the steps between the tops of columns that fall by more than n, and those that
  // rise by more than n. A set of steps is a word for `in_columns`: bit k is the step from
  // column k - 1 to column k. A word of 32 bits holds both sets, the rises in its upper half.
  // Otherwise there are two words of 16 bits.
  static constexpr int STEP_WORDS = sizeof(typename L::Word) > 2 ? 1 : 2;
  Constant inner_steps[INNER_STEPS][STEP_WORDS];

  constexpr ShapeLanes() = default;

  // Sets lane `lane` to the placement of `shape` with its left edge over column `left`.
  constexpr void set(int lane, const Shape& shape, int left) {
    column.set(lane, left);
    height.set(lane, shape.height);
    set_columns(lane, shape);
    set_rows(lane, shape);
    set_steps(lane, shape, left);
  }

 private:
  // Sets the fields that describe the single columns of the shape.
  constexpr void set_columns(int lane, const Shape& shape) {
    for (int k = 0; k < WIDTH; ++k) {
      int low = shape.bottom(k);
      int high = shape.top(k);
      bottom[k].set(lane, low);
      cells[k].set(lane, high - low);
      piece[k].set(lane, int(pattern_of_rows(low, high)));
      floor[k].set(lane, 16 >> low);  // row low - 1 is bit 4 - low
      has_single_cell[k].set(lane, high - low == 1 ? 1 : 0);
    }
  }

  // The cells of one row of a shape, which are consecutive columns.
  struct RowCells {
    int first = WIDTH, last = 0, count = 0;

    constexpr RowCells(const Shape& shape, int row) {
      for (int k = 0; k < WIDTH; ++k) {
        bool has_cell = row >= shape.bottom(k) && row < shape.top(k);
        if (!has_cell) continue;
        first = first < k ? first : k;
        last = k;
        ++count;
      }
    }
  };

  // Sets the tables `rows` and `contact` of lane `lane`, which describe the rows of a shape. A
  // set of rows is a bit mask in which row j is bit 3 - j.
  //
  //     rows[n]         the rows that have n + 1 cells
  //     contact[k + 1]  the rows that end beside column k, which is next to their first or
  //                     last cell
  constexpr void set_rows(int lane, const Shape& shape) {
    int ends_beside[WIDTH + 2] = {};  // element k + 1 is for column k, which may be -1 or WIDTH
    int with_cells[WIDTH + 1] = {};   // element n: the rows with n cells
    for (int row = 0; row < shape.height; ++row) {
      int row_bit = 8 >> row;  // 8 is bit 3, so this is bit 3 - row
      const RowCells cells(shape, row);
      int left_neighbour = cells.first - 1;
      int right_neighbour = cells.last + 1;
      ends_beside[left_neighbour + 1] |= row_bit;
      ends_beside[right_neighbour + 1] |= row_bit;
      with_cells[cells.count] |= row_bit;
    }
    for (int k = 0; k < WIDTH + 2; ++k) contact[k].set(lane, ends_beside[k]);
    for (int n = 0; n < WIDTH; ++n) rows[n].set(lane, with_cells[n + 1]);
  }

  // Sets the fields of a lane that describe the surface of the shape. A step is the top of a
  // column minus the top of the column to its left. Within a shape it is at least -INNER_STEPS,
  // so step + STEP is never negative; features use this sum as an index. `left` is the board
  // column of the shape's left edge.
  constexpr void set_steps(int lane, const Shape& shape, int left) {
    int sum_of_sizes = 0;
    uint32_t flags = 0;  // the steps from -2 to 2 that occur, as bits 0 to 4
    for (int k = 1; k < WIDTH; ++k) {
      int step = shape.top(k) - shape.top(k - 1);
      int size = step < 0 ? -step : step;
      if (size <= 2) flags |= 1u << (step + 2);
      sum_of_sizes += size;
      inner_sizes[k - 1].set(lane, size);
      inner_classes[k - 1].set(lane, step + STEP);
    }
    inner_flags.set(lane, int(flags));
    inner_sum.set(lane, sum_of_sizes);
    // The steps at the two sides of the piece also depend on the board, so Drop::left_step()
    // and Drop::right_step() compute them. The left step ends at the piece, so left_top is
    // added there; the right one begins at it, so right_top is subtracted. Either way the
    // result is the step plus STEP.
    left_top.set(lane, shape.top(0) + STEP);
    right_top.set(lane, shape.top(WIDTH - 1) - STEP);
    // inner_steps[n] has two sets of steps: those that fall by more than n, and those that rise
    // by more than n. No step of a shape is larger than INNER_STEPS. The step to column k of
    // the shape is bit first_column + k of a set. A lane of a vector has one placement, so its
    // sets begin at the column `left`. A scalar lane serves for the placements in all columns:
    // its sets begin at column 0, and L::in_columns moves them.
    int first_column = L::LANES > 1 ? left : 0;
    for (int n = 0; n < INNER_STEPS; ++n) set_inner_steps(lane, n, shape, first_column);
  }

  // Sets inner_steps[n] of a lane: the set of the steps that fall by more than n, and the set
  // of those that rise by more than n. The step to column k of the shape is bit first_column +
  // k of a set.
  constexpr void set_inner_steps(int lane, int n, const Shape& shape, int first_column) {
    uint32_t falls = 0, rises = 0;
    for (int k = 1; k < WIDTH; ++k) {
      int step = shape.top(k) - shape.top(k - 1);
      uint32_t bit = 1u << (first_column + k);
      if (step < -n) falls |= bit;
      if (step > n) rises |= bit;
    }
    if (STEP_WORDS == 1) {
      // A word of 32 bits holds both sets, the rises in the upper half.
      inner_steps[n][0].set(lane, int(falls | rises << 16));
    } else {
      inner_steps[n][0].set(lane, int(falls));
      inner_steps[n][STEP_WORDS - 1].set(lane, int(rises));
    }
  }
};

// The cells of every shape at rest in row 0. A column is a word whose most significant bit is
// row 0. The columns of a shape begin at index OFFSET of an array of zeros. An array that is
// read from index OFFSET - n on holds the piece n columns further right.
template <class Word>
struct PieceColumns {
  static constexpr int OFFSET = 16;
  Word slots[PIECES][MAX_ORIENTATIONS][2 * OFFSET];

  constexpr PieceColumns() : slots() {
    for (int piece = 0; piece < PIECES; ++piece) {
      for (int orientation = 0; orientation < ORIENTATIONS[piece]; ++orientation) {
        const Shape& shape = SHAPES.shape[piece][orientation];
        for (int k = 0; k < shape.width; ++k) {
          slots[piece][orientation][OFFSET + k] =
              column_of_cells(shape.bottom(k), shape.top(k));
        }
      }
    }
  }

 private:
  // Returns a column that has cells in rows bottom to top - 1.
  static constexpr Word column_of_cells(int bottom, int top) {
    constexpr int ROWS = 8 * sizeof(Word);
    uint64_t from_bottom = uint64_t(1) << (ROWS - bottom);
    uint64_t from_top = uint64_t(1) << (ROWS - top);
    return Word(from_bottom - from_top);
  }
};
template <class Word>
inline constexpr PieceColumns<Word> PIECE_COLUMNS{};

}  // namespace tetris
