// A CUDA warp as one vector: each thread has a placement of its own, and one slot of every row
// of columns. All threads of the warp have to take part in functions of columns.
#pragma once

#include "thread_lanes.h"
#include "warp.cuh"

namespace tetris {

// One number a slot: thread i has that of slot i. Threads beyond the slots have 0 where it
// matters.
template <class T>
struct WarpColumns {
  using Number = T;
  T own;
  __device__ T operator[](int slot) const { return __shfl_sync(~0u, own, slot); }
};
template <class F, class T, class... More>
TETRIS_FUNCTION auto map_slots(const F& f, const WarpColumns<T>& a, const More&... more) {
  return WarpColumns<decltype(f(a.own, more.own...))>{f(a.own, more.own...)};
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
  __device__ static bool any(const ColumnBits& value) {
    return __any_sync(~0u, value.own != 0);
  }
  __device__ static uint32_t negative(const ColumnInts& columns) {
    return __ballot_sync(~0u, columns.own < 0) >> (FIRST_COLUMN - 1);
  }

  template <int WIDTH, class T>
  __device__ static T at_offset(
      const WarpColumns<T>& columns, const ShapeLanes<WarpLanes, WIDTH>& shape, int k) {
    return columns[shape.column.value + k + FIRST_COLUMN];
  }
  // The first and the last thread keep their own number: no feature asks for columns beyond the
  // slots.
  template <class T>
  __device__ static WarpColumns<T> left(const WarpColumns<T>& columns) {
    return {__shfl_up_sync(~0u, columns.own, 1)};
  }
  template <class T>
  __device__ static WarpColumns<T> right(const WarpColumns<T>& columns) {
    return {__shfl_down_sync(~0u, columns.own, 1)};
  }
  __device__ static int sum(const ColumnInts& columns) { return sum_of_warp(columns.own); }
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
    return union_of_warp(columns.own);
  }
  __device__ static Word or_columns(const ColumnBits& columns) { return or_all(columns); }
  __device__ static ColumnBits prefix_or(ColumnBits columns) {
    TETRIS_UNROLL for (int step = 1; step < SLOTS; step *= 2) {
      columns.own |= __shfl_up_sync(~0u, columns.own, step);
    }
    return columns;
  }
  __device__ static ColumnBits suffix_or(ColumnBits columns) {
    TETRIS_UNROLL for (int step = 1; step < SLOTS; step *= 2) {
      columns.own |= __shfl_down_sync(~0u, columns.own, step);
    }
    return columns;
  }
  __device__ static void count_rows(const ColumnBits& columns, Bits (&digit)[ROW_DIGITS]) {
    // The sixteen slots are in the lower half of the warp. The upper half gets a copy of them,
    // so that both halves add up the same counts.
    Bits from_other_half = __shfl_sync(~0u, columns.own, lane() ^ 16);
    digit[0] = columns.own | from_other_half;
    add_lanes(digit, [](int step, Bits word) { return __shfl_sync(~0u, word, lane() ^ step); });
  }
  __device__ static ColumnBits load(const Word* slots) {
    Word own = 0;
    TETRIS_UNROLL for (int i = 0; i < SLOTS; ++i) own = lane() == i ? slots[i] : own;
    return {own};
  }

  // Records the score of this thread's placement if the placement is a candidate. Of equal
  // scores the lower placement number wins, because the placements of a thread do not come in
  // the order of the search.
  template <class Group>
  __device__ static void record_scores(
      Best& best, Scores score, bool is_candidate, const Group& group) {
    if (is_candidate) best.consider({score, group.first_placement[0]});
  }

  // Returns which column of a piece lies in this thread's slot, if its left edge is over
  // `column`; it may be none.
  __device__ static int column_of_piece(int column) { return lane() - FIRST_COLUMN - column; }
  __device__ static bool is_in_piece(int k) { return k >= 0 && k < MAX_PIECE_SIZE; }
  // Returns the cells of a piece in this thread's column. The piece rests with its bottom in
  // `row` and its left edge over `column`.
  __device__ static ColumnBits piece_columns(int piece, int orientation, int column, int row) {
    int k = column_of_piece(column);
    uint32_t pattern =
        is_in_piece(k) ? shape_of(piece, orientation).patterns >> (4 * k) & 15u : 0u;
    return {row_unit(row) * pattern};
  }
  // Returns the row in which the bottom of a shape comes to rest with its left edge over column
  // x: the greatest of the rows in which single columns would hold it.
  __device__ static int landing_row(const ColumnInts& heights, const Shape& shape, int x) {
    int k = column_of_piece(x);
    int row = is_in_piece(k) ? heights.own - shape.first_row[k & 3] : 0;
    return int(greatest_of_warp(unsigned(maximum(row, 0))));
  }
};

}  // namespace tetris
