// A small cell on the CPU: its forward pass, and the products of its backward pass. A BLAS
// would first pack both operands, and wake its threads.
#pragma once

#include "cell.h"
#include "vector_math.h"

namespace cem_tetris::lltm {

// The forward pass of a small cell. It reads the weights once, kWide states at a time. While
// they are in the first-level cache, it multiplies them with every batch row. kGates x kRows
// sums fill the registers.
template <typename A>
struct SmallCell {
  static constexpr int kRows = 4;
  static constexpr int kWide = kLanes<A>;

  int64_t batch, columns, states;
  const A* joined;  // [old_h, input]
  const A* weights;
  const A* bias;
  const A* old_cell;
  A* new_h;
  A* new_cell;
  A* gates;

  // Computes the blocks `first` to `last` - 1 of kWide states, in every batch row.
  void forward_blocks(int64_t first, int64_t last) const {
    for (int64_t block = first; block < last; ++block) {
      int64_t row = 0;
      for (; row + kRows <= batch; row += kRows) forward_tile<kRows>(block * kWide, row);
      for (; row < batch; ++row) forward_tile<1>(block * kWide, row);
    }
  }

 private:
  // Computes the forward pass for a tile: a block of kWide neighbouring states, from `state`
  // on, in kCount batch rows, from `first_row` on. The last block may have fewer states.
  //
  // A batch row has kGates * states gates: number g * states + s is gate g of state s. With X =
  // [old_h, input], batch x columns, the sum that enters gate j of batch row r is
  //
  //     gates[r][j] = bias[j] + the sum over k of weights[j][k] * X[r][k].
  //
  // The other matrices, old_cell, new_h and new_cell, are batch x states.
  template <int kCount>
  void forward_tile(int64_t state, int64_t first_row) const {
    int block_states = int(std::min<int64_t>(kWide, states - state));
    // The numbers of the vector partial[g][b][i] are parts of one sum over k: that of gate g of
    // state `state` + i in row first_row + b.
    Vector<A> partial[kGates][kCount][kWide] = {};
    for (int i = 0; i < block_states; ++i)
      add_products<kCount>(state + i, first_row, i, partial);
    for (int b = 0; b < kCount; ++b) {
      int64_t row = first_row + b;
      A* row_gates = gates + row * kGates * states;
      // From here on, lane i of a vector belongs to state `state` + i.
      Vector<A> gate[kGates];
      for (int g = 0; g < kGates; ++g) {
        int64_t column = g * states + state;
        // Lane i of lane_sums() is the sum of the numbers of partial[g][b][i].
        gate[g] = lane_sums<A>(partial[g][b]) + load_lanes(bias + column, block_states);
        store_lanes(gate[g], row_gates + column, block_states);
      }
      int64_t element = row * states + state;
      const auto next = forward<VectorMath<A>>(gate[kInput], gate[kOutput], gate[kCandidate],
          load_lanes(old_cell + element, block_states));
      store_lanes(next.h, new_h + element, block_states);
      store_lanes(next.cell, new_cell + element, block_states);
    }
  }

  // Multiplies the weights of one state with kCount rows of X = [old_h, input] (`joined`),
  // which has `columns` columns. The first row is `row`. A state has kGates = 3 rows of the
  // weights, one for each gate, which are states * columns numbers apart.
  //
  // The product of gate g and row `row` + b is a sum over the columns. It is stored as the
  // vector of partial sums partial[g][b][i], where i is the position of the state in its block.
  // Number l of the vector is the sum over the columns l, l + kWide, l + 2 kWide, and so on.
  //
  // The function is not inlined, so that only the sums compete for the registers.
  template <int kCount>
  __attribute__((noinline)) void add_products(
      int64_t state, int64_t row, int i, Vector<A> (&partial)[kGates][kCount][kWide]) const {
    const A* weight = weights + state * columns;
    const A* rows = joined + row * columns;
    int64_t gate_stride = states * columns;
    int64_t vector_end = columns - columns % kWide;
    Vector<A> sums[kGates][kCount] = {};
    for (int64_t k = 0; k < vector_end; k += kWide) {
      Vector<A> w[kGates];
#pragma GCC unroll 4
      for (int g = 0; g < kGates; ++g) w[g] = load_lanes(weight + g * gate_stride + k, kWide);
#pragma GCC unroll 4
      for (int b = 0; b < kCount; ++b) {
        Vector<A> x = load_lanes(rows + b * columns + k, kWide);
#pragma GCC unroll 4
        for (int g = 0; g < kGates; ++g) sums[g][b] = multiply_add(w[g], x, sums[g][b]);
      }
    }
#pragma GCC unroll 4
    for (int g = 0; g < kGates; ++g) {
#pragma GCC unroll 4
      for (int b = 0; b < kCount; ++b) partial[g][b][i] = sums[g][b];
    }
    // The last columns do not fill a vector. Their products are added to number 0.
    for (int64_t k = vector_end; k < columns; ++k) {
      for (int g = 0; g < kGates; ++g) {
        for (int b = 0; b < kCount; ++b) {
          partial[g][b][i][0] += weight[g * gate_stride + k] * rows[b * columns + k];
        }
      }
    }
  }
};

// The matrix product result = left * right: result[i][j] is the sum over k of left[i][k] *
// right[k][j]. The rows of `right` and `result` are contiguous.
//
// A tile of kRows rows by kVectors vectors of the result stays in registers while k runs over
// the depth. One step loads kVectors vectors and kRows numbers for kRows * kVectors products.
template <typename A>
struct Product {
  static constexpr int kRows = 4;
  static constexpr int kVectors = 3;
  static constexpr int kWide = kLanes<A>;

  int64_t rows, columns, depth;
  const A* left;
  int64_t left_row_stride, left_depth_stride;  // the strides of i and k in `left`
  const A* right;
  int64_t right_row_stride;
  A* result;
  int64_t result_row_stride;

  // Computes the rows `first` to `last` - 1 of the result.
  void compute_rows(int64_t first, int64_t last) const {
    int64_t row = first;
    for (; row + kRows <= last; row += kRows) compute_columns<kRows>(row);
    for (; row < last; ++row) compute_columns<1>(row);
  }

 private:
  // Computes all columns of kCount rows from `row` on: first in tiles, then in single vectors,
  // then number by number.
  template <int kCount>
  void compute_columns(int64_t row) const {
    int64_t column = 0;
    for (; column + kVectors * kWide <= columns; column += kVectors * kWide) {
      compute_tile<kCount, kVectors>(row, column);
    }
    for (; column + kWide <= columns; column += kWide) compute_tile<kCount, 1>(row, column);
    for (; column < columns; ++column) {
      for (int i = 0; i < kCount; ++i) compute_number(row + i, column);
    }
  }

  // Computes a tile of the matrix product result[i][j] = the sum over k of left[i][k] *
  // right[k][j]. The tile has kCount rows, from row `row` on, and kAcross vectors of kWide
  // columns each, from column `column` on. Its sums stay in registers while k goes from 0 to
  // `depth` - 1.
  //
  // `left` may have any strides. The rows of `right` and `result` are contiguous; a row stride
  // is the distance from one row to the next.
  template <int kCount, int kAcross>
  void compute_tile(int64_t row, int64_t column) const {
    Vector<A> sums[kCount][kAcross] = {};
    for (int64_t k = 0; k < depth; ++k) {
      Vector<A> across[kAcross];
#pragma GCC unroll 4
      for (int v = 0; v < kAcross; ++v)
        across[v] = load_lanes(right + k * right_row_stride + column + v * kWide, kWide);
#pragma GCC unroll 4
      for (int i = 0; i < kCount; ++i) {
        // A vector whose lanes all have the number left[row + i][k].
        Vector<A> factor =
            Vector<A>{} + left[(row + i) * left_row_stride + k * left_depth_stride];
#pragma GCC unroll 4
        for (int v = 0; v < kAcross; ++v)
          sums[i][v] = multiply_add(factor, across[v], sums[i][v]);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kCount; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kAcross; ++v) {
        store_lanes(
            sums[i][v], result + (row + i) * result_row_stride + column + v * kWide, kWide);
      }
    }
  }

  void compute_number(int64_t row, int64_t column) const {
    A sum = 0;
    for (int64_t k = 0; k < depth; ++k) {
      sum += left[row * left_row_stride + k * left_depth_stride] *
             right[k * right_row_stride + column];
    }
    result[row * result_row_stride + column] = sum;
  }
};

}  // namespace cem_tetris::lltm
