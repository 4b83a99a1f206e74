// A CUDA warp as one vector: each thread holds one placement, and one slot of every array of
// columns. All threads of the warp have to call the functions on arrays of columns together.
#pragma once

#include "thread_lanes.h"
#include "warp.cuh"

namespace tetris {

// An array of columns: `value` in thread i is the number of slot i. Threads beyond the last
// slot hold 0 if a function reads their number.
template <class T>
struct WarpColumns {
  using Number = T;
  T value;
  __device__ T operator[](int slot) const { return __shfl_sync(~0u, value, slot); }
};
template <class F, class T, class... More>
TETRIS_FUNCTION auto map_slots(const F& f, const WarpColumns<T>& a, const More&... more) {
  return WarpColumns<decltype(f(a.value, more.value...))>{f(a.value, more.value...)};
}

struct WarpLanes : ThreadLanes {
  using ColumnBits = WarpColumns<uint32_t>;
  using ColumnInts = WarpColumns<int32_t>;
  template <class T, class Columns>
  using Cached = Columns;
  using ColumnCache = ScalarLanes::ColumnCache;

  __device__ static int lane() { return int(threadIdx.x % WARP); }

  using ScalarLanes::any;
  __device__ static ColumnBits bits_everywhere(Word value) { return {value}; }
  __device__ static ColumnInts ints_everywhere(int value) { return {value}; }
  __device__ static bool any(const ColumnBits& columns) {
    return __any_sync(~0u, columns.value != 0);
  }
  __device__ static uint32_t negative(const ColumnInts& columns) {
    return __ballot_sync(~0u, columns.value < 0) >> (FIRST_COLUMN - 1);
  }

  template <int WIDTH, class T>
  __device__ static T at_offset(
      const WarpColumns<T>& columns, const ShapeLanes<WarpLanes, WIDTH>& shape, int k) {
    return columns[shape.column.value + k + FIRST_COLUMN];
  }
  // Return for each slot the value of the slot to its left, or to its right. The first thread
  // of `left`, and the last thread of `right`, keep their own number. No feature reads these
  // slots.
  template <class T>
  __device__ static WarpColumns<T> left(const WarpColumns<T>& columns) {
    return {__shfl_up_sync(~0u, columns.value, 1)};
  }
  template <class T>
  __device__ static WarpColumns<T> right(const WarpColumns<T>& columns) {
    return {__shfl_down_sync(~0u, columns.value, 1)};
  }
  __device__ static int sum(const ColumnInts& columns) { return sum_of_warp(columns.value); }
  __device__ static Scores sum_of_products(const ColumnInts& weights, const ColumnInts& values,
      const ColumnInts& more_weights, const ColumnInts& more_values) {
    return sum(weights * values + more_weights * more_values);
  }
  __device__ static Ints total(const ColumnInts& columns) { return sum(columns); }
  __device__ static int count_bits(const ColumnBits& columns) { return sum(popcount(columns)); }
  __device__ static Ints count_bits_everywhere(const ColumnBits& columns) {
    return count_bits(columns);
  }
  __device__ static Bits or_all(const ColumnBits& columns) {
    return union_of_warp(columns.value);
  }
  __device__ static Word or_columns(const ColumnBits& columns) { return or_all(columns); }
  __device__ static ColumnBits prefix_or(ColumnBits columns) {
    TETRIS_UNROLL for (int step = 1; step < SLOTS; step *= 2) {
      columns.value |= __shfl_up_sync(~0u, columns.value, step);
    }
    return columns;
  }
  __device__ static ColumnBits suffix_or(ColumnBits columns) {
    TETRIS_UNROLL for (int step = 1; step < SLOTS; step *= 2) {
      columns.value |= __shfl_down_sync(~0u, columns.value, step);
    }
    return columns;
  }
  __device__ static void count_rows(const ColumnBits& columns, Bits (&digit)[ROW_DIGITS]) {
    // The sixteen slots are in the lower half of the warp. The upper half gets a copy of them,
    // so that both halves add up the same counts.
    Bits from_other_half = __shfl_sync(~0u, columns.value, lane() ^ 16);
    digit[0] = columns.value | from_other_half;
    add_lanes(digit, [](int step, Bits word) { return __shfl_sync(~0u, word, lane() ^ step); });
  }
  __device__ static ColumnBits load(const Word* slots) {
    Word word = 0;
    TETRIS_UNROLL for (int i = 0; i < SLOTS; ++i) word = lane() == i ? slots[i] : word;
    return {word};
  }

  // Records the score of this thread's placement if the placement is a candidate. Of equal
  // scores the lower placement number wins, because a thread does not score its placements in
  // the order of the search.
  template <class Group>
  __device__ static void record_scores(
      Best& best, Scores score, bool is_candidate, const Group& group) {
    if (is_candidate) best.consider({score, group.first_placement[0]});
  }

  // Returns which column of a piece lies in this thread's slot if the piece's left edge is over
  // `column`. is_in_piece says whether the piece can have this column.
  __device__ static int column_of_piece(int column) { return lane() - FIRST_COLUMN - column; }
  __device__ static bool is_in_piece(int k) { return k >= 0 && k < MAX_PIECE_SIZE; }
  // Returns the cells of a piece in this thread's column. The bottom of the piece rests in
  // `row`, and its left edge is over `column`.
  __device__ static ColumnBits piece_columns(int piece, int orientation, int column, int row) {
    int k = column_of_piece(column);
    uint32_t pattern =
        is_in_piece(k) ? shape_of(piece, orientation).patterns >> (4 * k) & 15u : 0u;
    return {row_unit(row) * pattern};
  }
  // Returns the row in which the bottom of a shape comes to rest with its left edge over column
  // x. It is the maximum of the rows in which single columns would stop the shape.
  __device__ static int landing_row(const ColumnInts& heights, const Shape& shape, int x) {
    int k = column_of_piece(x);
    int row = is_in_piece(k) ? heights.value - shape.first_row[k & 3] : 0;
    return int(greatest_of_warp(unsigned(maximum(row, 0))));
  }
};

}  // namespace tetris
