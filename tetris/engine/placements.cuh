// The placements of a piece as the searches of the GPU go through them.
#pragma once

#include "decision.h"
#include "thread_lanes.h"
#include "warp.cuh"

namespace tetris {

// The shapes of WIDTH columns as the search wants them.
template <class L, int WIDTH>
struct ShapeConstants {
  ShapeLanes<L, WIDTH> shape[PIECES][MAX_ORIENTATIONS];
  constexpr ShapeConstants() {
    for (int piece = 0; piece < PIECES; ++piece) {
      for (int i = 0; i < ORIENTATIONS[piece]; ++i) {
        if (SHAPES.shape[piece][i].width == WIDTH)
          shape[piece][i].set(0, SHAPES.shape[piece][i], 0);
      }
    }
  }
};
template <class L, int WIDTH>
__constant__ const ShapeConstants<L, WIDTH> SHAPE_CONSTANTS = ShapeConstants<L, WIDTH>();

struct Widths {
  int count[PIECES];                    // orientations
  int width[PIECES][MAX_ORIENTATIONS];  // columns of each
  constexpr Widths() : count(), width() {
    for (int piece = 0; piece < PIECES; ++piece) {
      count[piece] = ORIENTATIONS[piece];
      for (int i = 0; i < ORIENTATIONS[piece]; ++i)
        width[piece][i] = SHAPES.shape[piece][i].width;
    }
  }
};
__constant__ const Widths WIDTHS = Widths();

// The orientations of a piece that are WIDTH columns wide: none, one or two, four bits each. Not a table, which a warp that is
// alone would wait for.
constexpr int NO_ORIENTATION = 15;
template <int WIDTH>
constexpr uint64_t packed_orientations() {
  uint64_t all = 0;
  for (int piece = 0; piece < PIECES; ++piece) {
    uint64_t found = 0xFF;
    for (int i = ORIENTATIONS[piece]; i-- > 0;) {
      if (SHAPES.shape[piece][i].width == WIDTH) found = (found << 4 | i) & 0xFF;
    }
    all |= found << (8 * piece);
  }
  return all;
}
template <int WIDTH>
__device__ inline int nth_orientation(int piece, int nth) {
  constexpr uint64_t ALL = packed_orientations<WIDTH>();
  return static_cast<int>(ALL >> (8 * piece + 4 * nth)) & 15;
}
template <int WIDTH>
__device__ inline bool has_width(int piece) {
  return nth_orientation<WIDTH>(piece, 0) != NO_ORIENTATION;
}

// Of the placements of all orientations of one width the one that falls to this thread of a warp. A thread without one has one
// that is too high, over the first column.
template <class L, int WIDTH>
__device__ inline Group<L, WIDTH> group_of_thread(int piece) {
  constexpr int PLACES = MAX_WIDTH - WIDTH + 1;
  const int nth = L::lane() / PLACES;
  const int orientation = nth < 2 ? nth_orientation<WIDTH>(piece, nth) : NO_ORIENTATION;
  Group<L, WIDTH> group;
  if (orientation != NO_ORIENTATION) {
    group.shapes = SHAPE_CONSTANTS<L, WIDTH>.shape[piece][orientation];
    group.shapes.column.value = L::lane() % PLACES;
  }
  group.order[0] = orientation * ORDER_STRIDE + group.shapes.column.value;
  return group;
}

// The placements of a piece on a board of a width that need not fit its height, and one of them by number.
__device__ inline int placements_of(int piece, int width) {
  int count = 0;
  for (int i = 0; i < WIDTHS.count[piece]; ++i) count += width + 1 - WIDTHS.width[piece][i];
  return count;
}
__device__ inline int nth_place(int piece, int width, int nth) {
  int orientation = 0;
  for (; nth > width - WIDTHS.width[piece][orientation]; ++orientation)
    nth -= width + 1 - WIDTHS.width[piece][orientation];
  return orientation * ORDER_STRIDE + nth;
}

// The best of what each thread of a warp found: the highest score, and of equals the first place.
__device__ inline Choice best_of_warp(const Choice& own) {
  const unsigned key =
      static_cast<unsigned>(own.score) ^ 0x80000000u;  // in the order of scores; 0 is NEVER's
  const unsigned highest = greatest_of_warp(key);
  if (highest == 0) return NO_CHOICE;
  const auto first = static_cast<int>(
      ~greatest_of_warp(key == highest ? ~static_cast<unsigned>(own.place) : 0u));
  return {static_cast<int>(highest ^ 0x80000000u), first};
}

}  // namespace tetris
