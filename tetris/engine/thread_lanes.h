// The lanes of a CUDA thread: one placement at a time, in the order of the search.
#pragma once

#include "decision.h"

namespace tetris {

struct ThreadLanes : ScalarLanes {
  // Columns in memory. An array that a variable indexes cannot lie in registers, and what the compiler keeps elsewhere
  // for a thread is memory of the device: this is shared memory. The threads of a warp have their numbers side by side.
  template <class T>
  struct KeptColumns {
    static constexpr int STRIDE = 32;
    T* data;
    TETRIS_FUNCTION T operator[](int slot) const { return data[slot * STRIDE]; }
    TETRIS_FUNCTION T& at(int slot) { return data[slot * STRIDE]; }
    // The same columns of the board that the thread `lane` lanes on has.
    TETRIS_FUNCTION KeptColumns of_lane(int lane) const { return {data + lane}; }
  };
  template <class T, class Columns>
  using Kept = KeptColumns<T>;

  // Hands out memory, array after array. Without any it counts how much there would have to be.
  struct Keeper {
    unsigned char* memory = nullptr;  // of a warp
    int lane = 0;                     // of the thread
    int used = 0;                     // bytes, of all lanes

    template <class T, class Columns>
    TETRIS_FUNCTION KeptColumns<T> keep(const Columns& columns) {
      KeptColumns<T> kept = {reinterpret_cast<T*>(memory + used) + lane};
      used += SLOTS * KeptColumns<T>::STRIDE * static_cast<int>(sizeof(T));
      if (memory != nullptr) {
        TETRIS_UNROLL for (int i = 0; i < SLOTS; ++i) kept.at(i) =
            static_cast<T>(columns.slot[i]);
      }
      return kept;
    }
  };

  // The value of the column k columns right of the placement's left edge.
  template <int WIDTH, class T>
  TETRIS_FUNCTION static auto at(
      const KeptColumns<T>& columns, const ShapeLanes<ThreadLanes, WIDTH>& shape, int k) {
    return columns[shape.column.value + k + FIRST_COLUMN];
  }
  // Flags are numbers, 1 or 0, which are added and multiplied at no more cost than predicates are set.
  TETRIS_FUNCTION static int exceeds(Ints a, Ints b) { return minimum(a - b, 1); }
  TETRIS_FUNCTION static int flag(Ints value) { return value; }
  template <class Columns>
  TETRIS_FUNCTION static auto nonzero(const Columns& columns) {
    return mapped([](uint32_t x) { return x != 0 ? 1 : 0; }, columns);
  }
  TETRIS_FUNCTION static Ints where(int flag, Ints value) { return flag * value; }
  TETRIS_FUNCTION static Ints count(int flag) { return flag; }
  // What takes the patterns of a shape to a row. A shift by 32 or more gives 0.
  TETRIS_FUNCTION static Unit row_unit(Ints row) {
#if defined(__CUDA_ARCH__)
    return __funnelshift_rc(0x10000000u, 0u, static_cast<unsigned>(row));
#else
    return row < 32 ? 0x10000000u >> row : 0u;
#endif
  }
  // Threads that branch apart wait for each other.
  TETRIS_FUNCTION static bool worthwhile(bool) { return true; }
  // The row in which the bottom of a shape comes to rest with its left edge over column x. Six bits a height fit into a
  // register, which a variable may shift.
  TETRIS_FUNCTION static int landing_row(const ColumnInts& heights, const Shape& shape, int x) {
    uint64_t packed = 0;
    TETRIS_UNROLL for (int i = 0; i < MAX_WIDTH; ++i) {
      packed |= static_cast<uint64_t>(heights.slot[FIRST_COLUMN + i] & 63) << (6 * i);
    }
    packed >>= 6 * x;
    int row = 0;
    TETRIS_UNROLL for (int k = 0; k < MAX_PIECE_SIZE; ++k) {
      row = maximum(row, static_cast<int>(packed >> (6 * k) & 63) - shape.first_row[k]);
    }
    return row;
  }
  // Of equals the first seen.
  template <class Group>
  TETRIS_FUNCTION static void consider(
      Best& best, Scores score, bool candidate, const Group& group) {
    best.take({score, group.order[0]}, candidate && score > best.first.score,
        candidate && score > best.second.score);
  }
};

}  // namespace tetris
