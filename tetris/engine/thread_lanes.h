// The lanes of a CUDA thread: it scores one placement at a time, in the order of the search.
#pragma once

#include "decision.h"

namespace tetris {

struct ThreadLanes : ScalarLanes {
  // An array of columns in shared memory. An array that is indexed by a variable cannot be held
  // in registers; the compiler would put it into the thread's local memory, which is slow. For
  // each slot, the numbers of the threads of a warp are adjacent:
  //
  //     slot 0: lane 0, lane 1, ... lane 31; slot 1: lane 0, ...
  template <class T>
  struct CachedColumns {
    static constexpr int STRIDE = 32;
    T* data;  // the address of this thread's number for slot 0
    TETRIS_FUNCTION T operator[](int slot) const { return data[slot * STRIDE]; }
    TETRIS_FUNCTION void set(int slot, T value) { data[slot * STRIDE] = value; }
    // Returns the columns of the thread whose lane is greater by `distance`.
    TETRIS_FUNCTION CachedColumns of_neighbour(int distance) const { return {data + distance}; }
  };
  template <class T, class Columns>
  using Cached = CachedColumns<T>;

  // Allocates shared memory for one array of columns after another. If `memory` is null, it
  // only counts the bytes that it would need.
  struct ColumnCache {
    unsigned char* memory = nullptr;  // the memory of the warp
    int lane = 0;
    int used = 0;  // the bytes that all lanes use together

    template <class T, class Columns>
    TETRIS_FUNCTION CachedColumns<T> cache(const Columns& columns) {
      CachedColumns<T> cached = {reinterpret_cast<T*>(memory + used) + lane};
      used += SLOTS * CachedColumns<T>::STRIDE * int(sizeof(T));
      if (memory != nullptr) {
        TETRIS_UNROLL for (int i = 0; i < SLOTS; ++i) cached.set(i, T(columns.slot[i]));
      }
      return cached;
    }
  };

  template <int WIDTH, class T>
  TETRIS_FUNCTION static auto at_offset(
      const CachedColumns<T>& columns, const ShapeLanes<ThreadLanes, WIDTH>& shape, int k) {
    return columns[shape.column.value + k + FIRST_COLUMN];
  }
  // The result of a comparison is the number 1 or 0 here. Adding and multiplying such numbers
  // costs no more than setting predicates.
  TETRIS_FUNCTION static int exceeds(Ints a, Ints b) { return minimum(a - b, 1); }
  TETRIS_FUNCTION static int flag(Ints value) { return value; }
  template <class Columns>
  TETRIS_FUNCTION static auto nonzero(const Columns& columns) {
    return map_slots([](uint32_t x) { return x != 0 ? 1 : 0; }, columns);
  }
  TETRIS_FUNCTION static Ints ints_where(int flag, Ints value) { return flag * value; }
  TETRIS_FUNCTION static Ints one_where(int flag) { return flag; }
  // As ScalarLanes::row_unit, but a row from 32 on gives 0.
  TETRIS_FUNCTION static Unit row_unit(Ints row) {
#if defined(__CUDA_ARCH__)
    return __funnelshift_rc(0x10000000u, 0u, unsigned(row));
#else
    return row < 32 ? 0x10000000u >> row : 0u;
#endif
  }
  // Threads that take different branches wait for each other, so it saves no time if one thread
  // skips its score.
  TETRIS_FUNCTION static bool is_worth_scoring(bool) { return true; }
  // Returns the row in which the bottom of a shape comes to rest if it is dropped with its left
  // edge over column x. This is the maximum of `height - first_row[k]` over the columns k of
  // the shape: the height of the board column below, minus the shape's lowest row in column k.
  //
  // The GPU cannot hold an array in registers if a variable indexes it. So the heights are
  // packed into one 64-bit number, six bits per column.
  TETRIS_FUNCTION static int landing_row(const ColumnInts& heights, const Shape& shape, int x) {
    constexpr int BITS = 6;
    constexpr int MASK = (1 << BITS) - 1;
    uint64_t packed = 0;
    TETRIS_UNROLL for (int i = 0; i < MAX_WIDTH; ++i) {
      packed |= uint64_t(heights.slot[FIRST_COLUMN + i] & MASK) << (BITS * i);
    }
    packed >>= BITS * x;  // now the height below column k of the shape begins at bit BITS * k
    // Beyond the width of the shape, first_row is greater than every height, so the difference
    // is negative.
    int row = 0;
    TETRIS_UNROLL for (int k = 0; k < MAX_PIECE_SIZE; ++k) {
      int height = int(packed >> (BITS * k) & MASK);
      row = maximum(row, height - shape.first_row[k]);
    }
    return row;
  }
  // Records the score of this thread's placement if the placement is a candidate. Of equal
  // scores the one that was recorded first wins, because placements come in the order of the
  // search.
  template <class Group>
  TETRIS_FUNCTION static void record_scores(
      Best& best, Scores score, bool is_candidate, const Group& group) {
    bool is_best = is_candidate && score > best.first.score;
    bool is_better = is_candidate && score > best.second.score;
    best.insert({score, group.first_placement[0]}, is_best, is_better);
  }
};

}  // namespace tetris
