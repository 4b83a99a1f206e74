// The lanes of a CUDA thread: one placement at a time, in the order of the search.
#pragma once

#include "decision.h"

namespace tetris {

struct ThreadLanes : ScalarLanes {
  // A row of columns in shared memory. An array that is indexed by a variable cannot lie in
  // registers, and the compiler would put it into the thread's local memory, which is far away.
  // The numbers of the threads of a warp for one slot lie side by side:
  //
  //     slot 0: lane 0, lane 1, ... lane 31; slot 1: lane 0, ...
  template <class T>
  struct CachedColumns {
    static constexpr int STRIDE = 32;
    T* data;  // this thread's number of slot 0
    TETRIS_FUNCTION T operator[](int slot) const { return data[slot * STRIDE]; }
    TETRIS_FUNCTION void set(int slot, T value) { data[slot * STRIDE] = value; }
    // Returns the columns of the thread `distance` lanes on.
    TETRIS_FUNCTION CachedColumns of_neighbour(int distance) const { return {data + distance}; }
  };
  template <class T, class Columns>
  using Cached = CachedColumns<T>;

  // Hands out shared memory, one row of columns after the other. Without memory it counts how
  // much it would need.
  struct ColumnCache {
    unsigned char* memory = nullptr;  // the warp's
    int lane = 0;
    int used = 0;  // bytes, by all lanes

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
  // Masks of comparisons are numbers here, 1 or 0: to add and multiply them costs no more than
  // to set predicates.
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
  // Threads that branch apart wait for each other, so that all of them score.
  TETRIS_FUNCTION static bool is_worth_scoring(bool) { return true; }
  // Returns the row in which the bottom of a shape comes to rest if it is dropped with its left
  // edge over column x: the maximum, over its columns k, of the height of the board column
  // below minus the bottom of column k.
  //
  // The heights are first packed into one 64-bit number, six bits per column, and shifted by x
  // columns. A variable index into an array would force it out of the registers of the GPU, and
  // a shift does not. Beyond the width of the shape first_row is so large that the difference
  // is negative.
  TETRIS_FUNCTION static int landing_row(const ColumnInts& heights, const Shape& shape, int x) {
    constexpr int BITS = 6;
    constexpr int MASK = (1 << BITS) - 1;
    uint64_t packed = 0;
    TETRIS_UNROLL for (int i = 0; i < MAX_WIDTH; ++i) {
      packed |= uint64_t(heights.slot[FIRST_COLUMN + i] & MASK) << (BITS * i);
    }
    packed >>= BITS * x;  // the height below column k of the shape now begins at bit BITS * k
    int row = 0;
    TETRIS_UNROLL for (int k = 0; k < MAX_PIECE_SIZE; ++k) {
      int height = int(packed >> (BITS * k) & MASK);
      row = maximum(row, height - shape.first_row[k]);
    }
    return row;
  }
  // Records the score of this thread's placement if the placement is a candidate. Of equal
  // scores the first one that is recorded stays: placements come in the order of the search.
  template <class Group>
  TETRIS_FUNCTION static void record_scores(
      Best& best, Scores score, bool is_candidate, const Group& group) {
    bool is_best = is_candidate && score > best.first.score;
    bool is_better = is_candidate && score > best.second.score;
    best.insert({score, group.first_placement[0]}, is_best, is_better);
  }
};

}  // namespace tetris
