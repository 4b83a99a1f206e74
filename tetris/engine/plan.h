// The placements of each piece, and the lanes in which they are scored.
//
// The number of a placement is orientation * ORIENTATION_STRIDE + column, where `column` is the
// board column of the piece's left edge. The search visits placements in the order of their
// numbers. Numbers are less than 64, so a set of placements is a word of 64 bits.
#pragma once

#include "pieces.h"

namespace tetris {

constexpr int MAX_WIDTH = 10;
constexpr int ORIENTATION_STRIDE = 16;  // a power of two that exceeds MAX_WIDTH
TETRIS_FUNCTION constexpr int placement_number(int orientation, int column) {
  return orientation * ORIENTATION_STRIDE + column;
}
TETRIS_FUNCTION constexpr int orientation_of(int placement) {
  return int(unsigned(placement) / ORIENTATION_STRIDE);
}
TETRIS_FUNCTION constexpr int column_of(int placement) {
  return int(unsigned(placement) % ORIENTATION_STRIDE);
}

// A set of columns in every lane. PATTERN is the set for a piece over column 0; it is moved to
// the column of each lane (see Group).
template <class Number, uint32_t PATTERN, int WIDTH>
struct alignas(64) ColumnSets {
  Number lane[16];
  constexpr ColumnSets() : lane() {
    for (int i = 0; i < 16; ++i) lane[i] = Number(PATTERN << (WIDTH == 3 ? i % 8 : i));
  }
};
template <class Number, uint32_t PATTERN, int WIDTH>
inline constexpr ColumnSets<Number, PATTERN, WIDTH> COLUMN_SETS{};

// Placements that are scored at once, one per lane. All shapes of a group are WIDTH columns
// wide. In a vector of sixteen lanes, the lane says the column of the piece's left edge:
//
//     WIDTH 1, 2, 4    lanes 0 .. 15: one orientation over columns 0 .. 15
//     WIDTH 3          lanes 0 .. 7: one orientation over columns 0 .. 7
//                      lanes 8 .. 15: another one over the same columns
//
// A lane whose piece would reach beyond the board has no placement, and a shape of height
// NO_ROW.
template <class L, int WIDTH>
struct Group {
  static constexpr int HALF = L::LANES > 8 ? 8 : L::LANES;
  // How many lanes one orientation gets.
  static constexpr int CHUNK = WIDTH == 3 ? HALF : L::LANES;

  ShapeLanes<L, WIDTH> shapes;
  // The placement in the first lane of each half. A half's placements have consecutive numbers.
  int first_placement[2] = {0, 0};

  // Returns the set of the placements in a set of lanes.
  TETRIS_FUNCTION uint64_t placements_of_lanes(unsigned lanes) const {
    if constexpr (L::LANES == 1) return uint64_t(lanes) << first_placement[0];
    unsigned lower_half = lanes & ((1u << HALF) - 1);
    unsigned upper_half = lanes >> HALF;
    return uint64_t(lower_half) << first_placement[0] | uint64_t(upper_half)
                                                            << first_placement[1];
  }

  constexpr Group() {
    for (int lane = 0; lane < L::LANES; ++lane) shapes.height.set(lane, NO_ROW);
  }

  // Sets CHUNK lanes, from the beginning of a half on, to the placements of a shape, from
  // number `placement` on. Lanes beyond the last column of the board stay empty.
  constexpr void set_chunk(int half, const Shape& shape, int placement) {
    int first_column = column_of(placement);
    for (int i = 0; i < CHUNK && first_column + i <= MAX_WIDTH - WIDTH; ++i) {
      shapes.set(half * CHUNK + i, shape, first_column + i);
    }
    first_placement[half] = placement;
    // If the chunk is a whole group, its upper half continues the orientation.
    if (CHUNK == L::LANES) first_placement[1] = placement + HALF;
  }
};

// The groups for the orientations of a piece that are WIDTH columns wide.
template <class L, int WIDTH, int CAPACITY>
struct Groups {
  Group<L, WIDTH> group[CAPACITY];
  int count = 0;

  // Adds all placements of one orientation of a piece to the groups. The orientation is WIDTH
  // columns wide. A group is a set of placements that are scored at once, one per lane.
  //
  // An orientation takes CHUNK lanes of a group. If this is only half of the lanes, two
  // orientations share a group: the second one takes the upper half, which is free as long as
  // first_placement[1] is 0. first_placement[h] is the number of the first placement in half h.
  constexpr void add(const Shape& shape, int orientation) {
    constexpr int CHUNK = Group<L, WIDTH>::CHUNK;
    constexpr bool SHARES_GROUPS = CHUNK < L::LANES;
    for (int first_column = 0; first_column <= MAX_WIDTH - WIDTH; first_column += CHUNK) {
      bool joins_last_group =
          SHARES_GROUPS && count > 0 && group[count - 1].first_placement[1] == 0;
      if (!joins_last_group) ++count;  // begin a new group
      int half = joins_last_group ? 1 : 0;
      group[count - 1].set_chunk(half, shape, placement_number(orientation, first_column));
    }
  }
};

// All groups of a piece, by width.
template <class L>
struct Plan {
  // Returns how many groups a width needs. With one lane every placement is a group. With
  // vectors every orientation is a group, but two orientations that are three columns wide
  // share a group.
  static constexpr int capacity(int width, int orientations) {
    if (L::LANES == 1) return orientations * (MAX_WIDTH - width + 1);
    return width == 3 ? 1 : orientations;
  }
  Groups<L, 1, capacity(1, 1)> ones;
  Groups<L, 2, capacity(2, 2)> twos;
  Groups<L, 3, capacity(3, 2)> threes;
  Groups<L, 4, capacity(4, 1)> fours;

  constexpr explicit Plan(int piece) {
    for (int orientation = 0; orientation < ORIENTATIONS[piece]; ++orientation) {
      const Shape& shape = SHAPES.shape[piece][orientation];
      if (shape.width == 1) ones.add(shape, orientation);
      if (shape.width == 2) twos.add(shape, orientation);
      if (shape.width == 3) threes.add(shape, orientation);
      if (shape.width == 4) fours.add(shape, orientation);
    }
  }
};

template <class L>
inline constexpr Plan<L> PLANS[PIECES] = {
    Plan<L>(0), Plan<L>(1), Plan<L>(2), Plan<L>(3), Plan<L>(4), Plan<L>(5), Plan<L>(6)};

}  // namespace tetris
