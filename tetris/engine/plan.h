// In which lanes the placements of each piece are scored.
#pragma once

#include "pieces.h"

namespace tetris {

constexpr int MAX_WIDTH = 10;
constexpr int ORDER_STRIDE =
    16;  // a place in the order of the search: orientation * ORDER_STRIDE + column
TETRIS_FUNCTION constexpr int orientation_of(int place) {
  return static_cast<int>(static_cast<unsigned>(place) / ORDER_STRIDE);
}
TETRIS_FUNCTION constexpr int column_of(int place) {
  return static_cast<int>(static_cast<unsigned>(place) % ORDER_STRIDE);
}

// PATTERN moved to the column of every lane: lane x of a vector is column x, or three columns wide both halves are.
template <class Number, uint32_t PATTERN, int WIDTH>
struct alignas(64) ColumnSets {
  Number lane[16];
  constexpr ColumnSets() : lane() {
    for (int i = 0; i < 16; ++i)
      lane[i] = static_cast<Number>(PATTERN << (WIDTH == 3 ? i % 8 : i));
  }
};
template <class Number, uint32_t PATTERN, int WIDTH>
inline constexpr ColumnSets<Number, PATTERN, WIDTH> COLUMN_SETS{};

// Shapes of one width that are scored at once.
template <class L, int WIDTH>
struct Group {
  // Placements of one orientation, side by side: all there are, or half a vector of the eight that three columns allow.
  static constexpr int CHUNK = L::LANES > 8 && WIDTH == 3 ? 8 : L::LANES;
  static constexpr int HALF = L::LANES > 8 ? 8 : L::LANES;

  ShapeLanes<L, WIDTH> shapes;
  int order[2] = {0, 0};  // place in the order of the first lane, and of the lane in the middle

  // A bit a lane to a bit a place in the order.
  TETRIS_FUNCTION uint64_t in_order(unsigned lanes) const {
    if constexpr (L::LANES == 1) return static_cast<uint64_t>(lanes) << order[0];
    return static_cast<uint64_t>(lanes & ((1u << HALF) - 1)) << order[0] |
           static_cast<uint64_t>(lanes >> HALF) << order[1];
  }

  constexpr Group() {
    for (int lane = 0; lane < L::LANES; ++lane) shapes.height.set(lane, NO_ROW);
  }
};

template <class L, int WIDTH, int CAPACITY>
struct Groups {
  Group<L, WIDTH> group[CAPACITY];
  int count = 0;

  constexpr void add(const Shape& shape, int orientation) {
    using G = Group<L, WIDTH>;
    for (int first = 0; first <= MAX_WIDTH - WIDTH; first += G::CHUNK) {
      const bool joins = G::CHUNK < L::LANES && count > 0 && group[count - 1].order[1] == 0;
      const int lane = joins ? G::CHUNK : 0;
      if (!joins) ++count;
      G& target = group[count - 1];
      for (int x = first; x < first + G::CHUNK && x <= MAX_WIDTH - WIDTH; ++x) {
        target.shapes.set(lane + x - first, shape, x);
      }
      const int place = orientation * ORDER_STRIDE + first;
      target.order[joins ? 1 : 0] = place;
      if (G::CHUNK == L::LANES) target.order[1] = place + G::HALF;
    }
  }
};

// All groups of a piece, by width.
template <class L>
struct Plan {
  static constexpr int capacity(int width, int orientations) {
    return L::LANES == 1 ? orientations * (MAX_WIDTH - width + 1)
                         : (width == 3 ? 1 : orientations);
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
