// The forward pass of a small cell on the CPU in one go. A BLAS would pack both operands first, and the cell
// be a second pass. The weights are read once, kWide states at a time, and multiplied with every batch row
// while they lie in the first-level cache. kGates x kRows sums fill the registers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cell.h"
#include "vector_math.h"

namespace cem_tetris::lltm {

template <typename A> struct SmallCell {
  static constexpr int kRows = 4;
  static constexpr int kWide = kLanes<A>;

  int64_t batch, columns, states;
  const A *joined, *weights, *bias, *old_cell;  // joined: a row of old_h, then one of input
  A *new_h, *new_cell, *gates;

  // Computes the blocks `first` to `last` of kWide states, in every batch row.
  void forward_blocks(int64_t first, int64_t last) const {
    for (int64_t block = first; block < last; ++block) {
      int64_t row = 0;
      for (; row + kRows <= batch; row += kRows) forward_tile<kRows>(block * kWide, row);
      for (; row < batch; ++row) forward_tile<1>(block * kWide, row);
    }
  }

 private:
  template <int kCount> void forward_tile(int64_t state, int64_t row) const {
    const int lanes = static_cast<int>(std::min<int64_t>(kWide, states - state));
    Vector<A> partial[kGates][kCount][kWide] = {};
    for (int lane = 0; lane < lanes; ++lane) products<kCount>(state + lane, row, lane, partial);
    for (int b = 0; b < kCount; ++b) {
      const int64_t at = (row + b) * states + state;
      Vector<A> gate[kGates];
      for (int g = 0; g < kGates; ++g) {
        gate[g] = lane_sums<A>(partial[g][b]) + load_lanes(bias + g * states + state, lanes);
        store_lanes(gate[g], gates + (row + b) * kGates * states + g * states + state, lanes);
      }
      const auto next = forward<VectorMath<A>>(
          gate[kInput], gate[kOutput], gate[kCandidate], load_lanes(old_cell + at, lanes));
      store_lanes(next.h, new_h + at, lanes);
      store_lanes(next.cell, new_cell + at, lanes);
    }
  }

  // The products of one state's three weight rows with kCount batch rows; their lanes are still to be summed.
  // Not inlined, so that nothing but the sums competes for the registers.
  template <int kCount> __attribute__((noinline)) void products(
      int64_t state, int64_t row, int lane, Vector<A> (&partial)[kGates][kCount][kWide]) const {
    const A* weight = weights + state * columns;
    const A* rows = joined + row * columns;
    const int64_t weight_step = states * columns;
    const int64_t whole = columns - columns % kWide;
    Vector<A> sums[kGates][kCount] = {};
    for (int64_t k = 0; k < whole; k += kWide) {
      Vector<A> w[kGates];
#pragma GCC unroll 4
      for (int g = 0; g < kGates; ++g) std::memcpy(&w[g], weight + g * weight_step + k, kVectorBytes);
#pragma GCC unroll 4
      for (int b = 0; b < kCount; ++b) {
        Vector<A> x;
        std::memcpy(&x, rows + b * columns + k, kVectorBytes);
#pragma GCC unroll 4
        for (int g = 0; g < kGates; ++g) sums[g][b] = multiply_add(w[g], x, sums[g][b]);
      }
    }
#pragma GCC unroll 4
    for (int g = 0; g < kGates; ++g) {
#pragma GCC unroll 4
      for (int b = 0; b < kCount; ++b) partial[g][b][lane] = sums[g][b];
    }
    for (int64_t k = whole; k < columns; ++k) {
      for (int g = 0; g < kGates; ++g) {
        for (int b = 0; b < kCount; ++b) {
          partial[g][b][lane][0] += weight[g * weight_step + k] * rows[b * columns + k];
        }
      }
    }
  }
};

}  // namespace cem_tetris::lltm
