// The seven pieces and their orientations (order I O T Z S J L; tetris/game/pieces.py is the source, a test compares them).
// A piece is described by its columns: column k holds the cells of rows bottom(k) .. top(k) - 1 of its bounding box.
#pragma once

#include "portable.h"

namespace tetris {

constexpr int PIECES = 7;
constexpr int MAX_ORIENTATIONS = 4;
constexpr int MAX_PIECE_SIZE = 4;
constexpr int NO_ROW = 127;  // above every height
constexpr int STEP =
    3;  // added to a difference of heights: 1 .. 5 are those that `diversity` tells apart
constexpr int INNER_STEPS = 2;  // no shape has neighbouring columns whose tops differ by more

// Of a number of four-bit fields, which the compiler folds where it is known, and a register holds where it is not.
TETRIS_FUNCTION constexpr int nth_field(uint32_t fields, int n) {
  return static_cast<int>(fields >> (4 * n)) & 15;
}

struct Shape {
  int width, height;
  uint32_t bottoms, tops;            // field k: column k
  uint32_t patterns;                 // field k: rows of column k, row j is bit 3 - j
  int8_t first_row[MAX_PIECE_SIZE];  // of each column; NO_ROW beyond the width

  TETRIS_FUNCTION constexpr int bottom(int k) const { return nth_field(bottoms, k); }
  TETRIS_FUNCTION constexpr int top(int k) const { return nth_field(tops, k); }
};

// `bottoms` and `tops` are written left to right, one hexadecimal digit a column.
constexpr Shape make_shape(int width, uint32_t bottoms, uint32_t tops) {
  Shape shape{width, 0, 0, 0, 0, {NO_ROW, NO_ROW, NO_ROW, NO_ROW}};
  for (int k = 0; k < width; ++k) {
    const int shift = 4 * (width - 1 - k);
    shape.bottoms |= ((bottoms >> shift) & 15u) << (4 * k);
    shape.tops |= ((tops >> shift) & 15u) << (4 * k);
    shape.patterns |= ((16u >> shape.bottom(k)) - (16u >> shape.top(k))) << (4 * k);
    shape.first_row[k] = static_cast<int8_t>(shape.bottom(k));
  }
  for (int k = 0; k < width; ++k)
    shape.height = shape.top(k) > shape.height ? shape.top(k) : shape.height;
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
__device__ const ShapeTable DEVICE_SHAPES =
    SHAPES;  // device code cannot look a host's table up
#endif

TETRIS_FUNCTION const Shape& shape_of(int piece, int orientation) {
#if defined(__CUDA_ARCH__)
  return DEVICE_SHAPES.shape[piece][orientation];
#else
  return SHAPES.shape[piece][orientation];
#endif
}

// What a search needs to know of the shapes of WIDTH columns, one shape a lane. A pattern is a number whose bit 3 - j
// stands for row j of the piece: times 2^(TOP - 3 - row) it is those rows of a column, with the piece's bottom at `row`.
template <class L, int WIDTH>
struct ShapeLanes {
  typename L::Constant column;              // left edge of the placement
  typename L::Constant height;              // of the piece
  typename L::Constant bottom[WIDTH];       // first row of each of its columns
  typename L::Constant cells[WIDTH];        // cells of each column
  typename L::Constant piece[WIDTH];        // pattern: rows of each column
  typename L::Constant floor[WIDTH];        // pattern: the row below each column
  typename L::Constant contact[WIDTH + 2];  // pattern: rows of column k - 1 beside the piece
  typename L::Constant rows[WIDTH];         // pattern: rows with n + 1 cells
  typename L::Constant lone[WIDTH];         // 1 for each column of one cell, else 0
  typename L::Constant first_step;          // height of the leftmost column + STEP
  typename L::Constant last_step;           // height of the rightmost column - STEP
  typename L::Constant inner_flags;  // step_flag of the differences between its columns' tops
  typename L::Constant
      inner_sizes[WIDTH];          // of the steps from each column to the next; the last is 0
  typename L::Constant inner_sum;  // of these sizes
  typename L::Constant inner_classes[WIDTH];  // these steps + STEP; the last is 0
  // Sets (see `in_columns`), bit k: column k - 1 is higher by at least 1, 2 than column k; and column k by so much than
  // column k - 1, in the upper half of a word that has room for both.
  static constexpr int STEP_WORDS = sizeof(typename L::Word) > 2 ? 1 : 2;
  typename L::Constant inner_steps[INNER_STEPS][STEP_WORDS];

  constexpr ShapeLanes() = default;

  // Lane `lane` becomes the placement of `shape` at `left`.
  constexpr void set(int lane, const Shape& shape, int left) {
    column.set(lane, left);
    height.set(lane, shape.height);
    uint32_t flags = 0, falls[INNER_STEPS] = {}, rises[INNER_STEPS] = {};
    int sum = 0;
    for (int k = 0; k < WIDTH; ++k) {
      const int low = shape.bottom(k), high = shape.top(k);
      bottom[k].set(lane, low);
      cells[k].set(lane, high - low);
      piece[k].set(lane, (16 >> low) - (16 >> high));
      floor[k].set(lane, 16 >> low);
      lone[k].set(lane, high - low == 1 ? 1 : 0);
      if (k > 0) {
        const int difference = high - shape.top(k - 1);
        if (difference >= -2 && difference <= 2) flags |= 1u << (difference + 2);
        inner_sizes[k - 1].set(lane, difference < 0 ? -difference : difference);
        inner_classes[k - 1].set(lane, difference + STEP);
        sum += difference < 0 ? -difference : difference;
        for (int n = 0; n < INNER_STEPS; ++n) {
          falls[n] |= (difference < -n ? 1u : 0u) << k;
          rises[n] |= (difference > n ? 1u : 0u) << k;
        }
      }
    }
    int beside[WIDTH + 2] = {}, of_count[WIDTH] = {};
    for (int j = 0; j < shape.height; ++j) {
      int first = WIDTH, last = 0, count = 0;
      for (int k = 0; k < WIDTH; ++k) {
        if (j < shape.bottom(k) || j >= shape.top(k)) continue;
        first = first < k ? first : k;
        last = k;
        ++count;
      }
      beside[first] |= 8 >> j;
      beside[last + 2] |= 8 >> j;
      of_count[count - 1] |= 8 >> j;
    }
    for (int k = 0; k < WIDTH + 2; ++k) contact[k].set(lane, beside[k]);
    for (int n = 0; n < WIDTH; ++n) rows[n].set(lane, of_count[n]);
    first_step.set(lane, shape.top(0) + STEP);
    last_step.set(lane, shape.top(WIDTH - 1) - STEP);
    inner_flags.set(lane, static_cast<int>(flags));
    inner_sum.set(lane, sum);
    // Where a lane is one placement of many it is that of its column; a lane on its own may be sent to any column.
    const int shift = L::LANES > 1 ? left : 0;
    for (int n = 0; n < INNER_STEPS; ++n) {
      const uint32_t upper = STEP_WORDS == 1 ? rises[n] << 16 : 0u;
      inner_steps[n][0].set(lane, static_cast<int>((falls[n] | upper) << shift));
      if (STEP_WORDS > 1)
        inner_steps[n][STEP_WORDS - 1].set(lane, static_cast<int>(rises[n] << shift));
    }
  }
};

// The columns of every shape at rest in row 0, in slots OFFSET onwards of a row of zeros, for words whose most significant
// bit is row 0.
template <class Word>
struct PieceColumns {
  static constexpr int OFFSET = 16;
  Word slots[PIECES][MAX_ORIENTATIONS][32];
  constexpr PieceColumns() : slots() {
    constexpr int ROWS = 8 * sizeof(Word);
    for (int piece = 0; piece < PIECES; ++piece) {
      for (int o = 0; o < ORIENTATIONS[piece]; ++o) {
        const Shape shape = SHAPES.shape[piece][o];
        for (int k = 0; k < shape.width; ++k) {
          slots[piece][o][OFFSET + k] =
              static_cast<Word>((uint64_t(1) << (ROWS - shape.bottom(k))) -
                                (uint64_t(1) << (ROWS - shape.top(k))));
        }
      }
    }
  }
};
template <class Word>
inline constexpr PieceColumns<Word> PIECE_COLUMNS{};

}  // namespace tetris
