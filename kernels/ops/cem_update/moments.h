// The sums over the elites of one problem in the order of update.h, on the CPU.
#pragma once

#include <algorithm>
#include <cstdint>

#include "update.h"

namespace cem_tetris::update {

constexpr int kTile = 64;  // dimensions that are added side by side

// Adds the residues that numbers were added to as a tree, for each of `width` columns; the others are 0.
template <int kColumns> void fold(double (*sums)[kColumns], int residues, int width) {
  for (int half = kResidues / 2; half > 0; half /= 2) {
    for (int r = 0; r < half && r + half < residues; ++r) {
      for (int j = 0; j < width; ++j) sums[r][j] += sums[r + half][j];
    }
  }
}

inline int residues_of(int64_t count) { return static_cast<int>(std::min<int64_t>(count, kResidues)); }

// The sum of one number an elite in the order of update.h; number(p) is that of place p.
template <typename Number> double ordered_sum(int64_t count, const Number& number) {
  double chunks[kResidues][1] = {};
  for (int64_t first = 0; first < count; first += kChunk) {
    const int64_t last = std::min(count, first + kChunk);
    double part[kResidues][1] = {};
    for (int64_t p = first; p < last; ++p) part[p % kResidues][0] += number(p);
    fold(part, kResidues, 1);
    chunks[first / kChunk % kResidues][0] += part[0][0];
  }
  fold(chunks, kResidues, 1);
  return chunks[0][0];
}

// The moments of the elites in kTile or fewer dimensions.
template <typename T> struct Tile {
  double base[kTile];
  double part[2][kResidues][kTile], chunks[2][kResidues][kTile];

  Moments moments(int j) const { return {chunks[0][0][j], chunks[1][0][j]}; }

  // rows: the candidates of the problem at the tile's first dimension. weight: of each place, or null.
  // usable: elites that did not fail. best: the index of the best one.
  void sum(const T* rows, int64_t stride, int width, const int64_t* index, const double* weight,
      int64_t usable, int64_t best) {
    for (int j = 0; j < width; ++j) base[j] = rows[best * stride + j];
    const int rounds = residues_of((usable + kChunk - 1) / kChunk);
    for (auto& sums : chunks) {
      for (int r = 0; r < rounds; ++r) std::fill(sums[r], sums[r] + width, 0.0);
    }
    for (int64_t begin = 0; begin < usable; begin += kChunk) {
      const int64_t end = std::min(usable, begin + kChunk);
      const int residues = residues_of(end - begin), chunk = static_cast<int>(begin / kChunk % kResidues);
      for (int r = 0; r < residues; ++r) {
        if (width == kTile) {
          add<kTile>(rows, stride, kTile, index, weight, begin + r, end, r);
        } else {
          add<0>(rows, stride, width, index, weight, begin + r, end, r);
        }
      }
      for (int i = 0; i < 2; ++i) {
        fold(part[i], residues, width);
        for (int j = 0; j < width; ++j) chunks[i][chunk][j] += part[i][0][j];
      }
    }
    for (auto& sums : chunks) fold(sums, rounds, width);
  }

 private:
  // The residue class r of a chunk. A width that the compiler knows keeps the sums in registers.
  template <int kWidth> void add(const T* rows, int64_t stride, int width, const int64_t* index,
      const double* weight, int64_t p, int64_t end, int r) {
    const int count = kWidth > 0 ? kWidth : width;
    double sum1[kTile] = {}, sum2[kTile] = {};
    for (; p < end; p += kResidues) {
      const T* row = rows + index[p] * stride;
      if (weight == nullptr) {
        for (int j = 0; j < count; ++j) {
          const double x = static_cast<double>(row[j]) - base[j];
          sum1[j] += x;
          sum2[j] += x * x;
        }
      } else {
        for (int j = 0; j < count; ++j) {
          const double x = static_cast<double>(row[j]) - base[j], weighted = weight[p] * x;
          sum1[j] += weighted;
          sum2[j] += weighted * x;
        }
      }
    }
    std::copy(sum1, sum1 + count, part[0][r]);
    std::copy(sum2, sum2 + count, part[1][r]);
  }
};

}  // namespace cem_tetris::update
