// The placements of a piece, in the form in which the searches on a GPU visit them.
#pragma once

#include "decision.h"
#include "thread_lanes.h"
#include "warp.cuh"

namespace tetris {

// The shapes that are WIDTH columns wide, with their left edges over column 0.
template <class L, int WIDTH>
struct ShapeConstants {
  ShapeLanes<L, WIDTH> shape[PIECES][MAX_ORIENTATIONS];
  constexpr ShapeConstants() {
    for (int piece = 0; piece < PIECES; ++piece) {
      for (int i = 0; i < ORIENTATIONS[piece]; ++i) {
        const Shape& source = SHAPES.shape[piece][i];
        if (source.width == WIDTH) shape[piece][i].set(0, source, 0);
      }
    }
  }
};
template <class L, int WIDTH>
__constant__ const ShapeConstants<L, WIDTH> SHAPE_CONSTANTS = ShapeConstants<L, WIDTH>();

// The orientations of the pieces and their widths, in the GPU's constant memory.
struct Widths {
  int orientations[PIECES];             // how many orientations a piece has
  int width[PIECES][MAX_ORIENTATIONS];  // the width of each orientation, in columns
  constexpr Widths() : orientations(), width() {
    for (int piece = 0; piece < PIECES; ++piece) {
      orientations[piece] = ORIENTATIONS[piece];
      for (int i = 0; i < ORIENTATIONS[piece]; ++i) {
        width[piece][i] = SHAPES.shape[piece][i].width;
      }
    }
  }
};
__constant__ const Widths WIDTHS = Widths();

constexpr int NO_ORIENTATION = 15;

// Returns a list, for every piece, of the orientations that are WIDTH columns wide. Byte p
// belongs to piece p: its lower four bits are the first such orientation, and its upper four
// bits the second one. NO_ORIENTATION (15) means that there is none.
//
// The list is a single number, which is faster than a table in memory.
template <int WIDTH>
constexpr uint64_t packed_orientations() {
  uint64_t all_pieces = 0;
  for (int piece = 0; piece < PIECES; ++piece) {
    uint64_t piece_byte = 0xFF;  // NO_ORIENTATION twice
    // The loop goes backwards, so that the first orientation ends up in the lower bits.
    for (int i = ORIENTATIONS[piece] - 1; i >= 0; --i) {
      bool has_width = SHAPES.shape[piece][i].width == WIDTH;
      // Put the orientation before the ones that have been found so far.
      if (has_width) piece_byte = (piece_byte << 4 | i) & 0xFF;
    }
    all_pieces |= piece_byte << (8 * piece);
  }
  return all_pieces;
}
// Returns the first (nth = 0) or second (nth = 1) orientation of a piece that is WIDTH columns
// wide, or NO_ORIENTATION if there is none.
template <int WIDTH>
__device__ inline int nth_orientation(int piece, int nth) {
  constexpr uint64_t ALL = packed_orientations<WIDTH>();
  return int(ALL >> (8 * piece + 4 * nth)) & 15;
}
template <int WIDTH>
__device__ inline bool has_width(int piece) {
  return nth_orientation<WIDTH>(piece, 0) != NO_ORIENTATION;
}

// Returns the placement of `piece` that this thread of a warp has to score, as a group of one
// placement. The warp scores all placements of the orientations that are WIDTH columns wide.
//
// There are at most two such orientations. The first COLUMNS threads get the placements of the
// first one, column after column, and the next COLUMNS threads those of the second one. The
// other threads get a shape that is too high for any board.
template <class L, int WIDTH>
__device__ inline Group<L, WIDTH> group_of_thread(int piece) {
  constexpr int COLUMNS = MAX_WIDTH - WIDTH + 1;  // the number of placements per orientation
  int nth = L::lane() / COLUMNS;                  // this thread has the nth orientation
  int orientation = nth < 2 ? nth_orientation<WIDTH>(piece, nth) : NO_ORIENTATION;
  Group<L, WIDTH> group;  // its shape is too high until it is set
  if (orientation != NO_ORIENTATION) {
    group.shapes = SHAPE_CONSTANTS<L, WIDTH>.shape[piece][orientation];
    group.shapes.column.value = L::lane() % COLUMNS;
  }
  group.first_placement[0] = placement_number(orientation, group.shapes.column.value);
  return group;
}

// Returns the number of placements of a piece on a board that is `width` columns wide.
__device__ inline int count_placements(int piece, int width) {
  int count = 0;
  for (int i = 0; i < WIDTHS.orientations[piece]; ++i) {
    count += width + 1 - WIDTHS.width[piece][i];
  }
  return count;
}
// Returns the number of placement `nth` of a piece, counted from 0 over all orientations.
__device__ inline int nth_placement(int piece, int width, int nth) {
  int orientation = 0;
  // Skip the orientations whose placements all come before the wanted one.
  for (; nth > width - WIDTHS.width[piece][orientation]; ++orientation) {
    nth -= width + 1 - WIDTHS.width[piece][orientation];
  }
  return placement_number(orientation, nth);
}

// Returns the best of the choices of a warp's threads: the highest score, and of equal scores
// the first placement. All threads of the warp call the function, and get the same result.
__device__ inline Choice best_of_warp(const Choice& own) {
  // greatest_of_warp compares unsigned numbers. Flipping the sign bit turns signed scores into
  // unsigned numbers in the same order; NEVER, the lowest score, becomes 0.
  constexpr unsigned SIGN = 0x80000000u;
  unsigned score = unsigned(own.score) ^ SIGN;
  unsigned highest = greatest_of_warp(score);
  if (highest == 0) return NO_CHOICE;
  // The smallest placement number is the complement of the greatest complement.
  unsigned complement = score == highest ? ~unsigned(own.placement) : 0u;
  unsigned first = ~greatest_of_warp(complement);
  return {int(highest ^ SIGN), int(first)};
}

}  // namespace tetris
