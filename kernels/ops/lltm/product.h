// A small matrix product on the CPU, for which a BLAS would first pack both operands and wake its threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "vector_math.h"

namespace cem_tetris::lltm {

// result[i][j] = the sum over k of left[i][k] * right[k][j]. Rows of `right` and `result` are contiguous.
//
// A tile of kRows rows by kVectors vectors of the result stays in registers while k runs: a step loads
// kVectors vectors and kRows numbers for kRows * kVectors products.
template <typename A> struct Product {
  static constexpr int kRows = 4;
  static constexpr int kVectors = 3;
  static constexpr int kWide = kLanes<A>;

  int64_t rows, columns, depth;
  const A* left;
  int64_t left_row, left_depth;  // strides
  const A* right;
  int64_t right_depth;
  A* result;
  int64_t result_row;

  void compute_rows(int64_t first, int64_t last) const {
    int64_t row = first;
    for (; row + kRows <= last; row += kRows) compute_columns<kRows>(row);
    for (; row < last; ++row) compute_columns<1>(row);
  }

 private:
  template <int kCount> void compute_columns(int64_t row) const {
    int64_t column = 0;
    for (; column + kVectors * kWide <= columns; column += kVectors * kWide) {
      tile<kCount, kVectors>(row, column);
    }
    for (; column + kWide <= columns; column += kWide) tile<kCount, 1>(row, column);
    for (; column < columns; ++column) {
      for (int i = 0; i < kCount; ++i) single(row + i, column);
    }
  }

  template <int kCount, int kAcross> void tile(int64_t row, int64_t column) const {
    Vector<A> sums[kCount][kAcross] = {};
    for (int64_t k = 0; k < depth; ++k) {
      Vector<A> across[kAcross];
#pragma GCC unroll 4
      for (int v = 0; v < kAcross; ++v) {
        std::memcpy(&across[v], right + k * right_depth + column + v * kWide, kVectorBytes);
      }
#pragma GCC unroll 4
      for (int i = 0; i < kCount; ++i) {
        const Vector<A> factor = Vector<A>{} + left[(row + i) * left_row + k * left_depth];
#pragma GCC unroll 4
        for (int v = 0; v < kAcross; ++v) sums[i][v] = multiply_add(factor, across[v], sums[i][v]);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kCount; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kAcross; ++v) {
        std::memcpy(result + (row + i) * result_row + column + v * kWide, &sums[i][v], kVectorBytes);
      }
    }
  }

  void single(int64_t row, int64_t column) const {
    A sum = 0;
    for (int64_t k = 0; k < depth; ++k) {
      sum += left[row * left_row + k * left_depth] * right[k * right_depth + column];
    }
    result[row * result_row + column] = sum;
  }
};

}  // namespace cem_tetris::lltm
