// The kernel of the placements' features: a warp per environment. As in rollout_warp.cuh each
// thread has a placement, and a column of the board.
//
// With the nine features of `dt` on a board of 10 x 20 a warp writes 1,480 bytes per
// environment and reads 42. The rows of features are made in shared memory, from where the warp
// writes them one after the other.
#pragma once

#include "placement_features.h"
#include "placements.cuh"
#include "warp_lanes.h"

namespace tetris {

template <class List>
struct PlacementMemory {
  float features[MAX_ORIENTATIONS * MAX_WIDTH * List::COUNT];
  int8_t ends_game[MAX_ORIENTATIONS * MAX_WIDTH];
};

// Writes the features of one environment's placements, as `Writer` of placement_features.cpp
// does.
template <class List>
struct PlacementWarp {
  using L = WarpLanes;
  using Prepared = typename List::template Prepared<L>;
  const FeatureTensors& all;
  PlacementMemory<List>& memory;
  int64_t index;
  int piece;

  __device__ int actions() const { return MAX_ORIENTATIONS * all.rules.width; }

  __device__ void store(int placement, const int (&numerators)[List::COUNT]) {
    int action = orientation_of(placement) * all.rules.width + column_of(placement);
    float* row = memory.features + action * List::COUNT;
    TETRIS_UNROLL for (int f = 0; f < List::COUNT; ++f) {
      row[f] = float(numerators[f]) * List::reciprocal(f);
    }
    memory.ends_game[action] = 0;
  }

  // Stores the features of the placements of all orientations that are WIDTH columns wide, one
  // placement per thread of a warp, except those that end the game.
  //
  // The placements that lie inside the board and complete no row are computed at the same time,
  // from what their drops change. The others that may let the game go on follow one after the
  // other: all threads compute the features of one board after a placement together, and thread
  // 0 stores them.
  template <int WIDTH>
  __device__ void write_width(
      const Board<L>& board, const Ground<L>& ground, const Prepared& prepared) {
    if (!has_width<WIDTH>(piece)) return;
    auto group = group_of_thread<L, WIDTH>(piece);
    int placement = group.first_placement[0];
    Drop<L, WIDTH> drop(ground, group.shapes);
    int height = all.rules.height;
    int top = drop.top();
    // Under the rule clear_on_overflow removed rows may bring a piece back inside the board.
    int rows_above_top = all.rules.clear_on_overflow ? MAX_PIECE_SIZE : 0;
    bool is_unwritten = top <= height + rows_above_top;
    if constexpr (List::computable_from_drops) {
      bool completes_no_row = drop.completed() == 0;
      bool is_computed_by_drop = completes_no_row && top <= height;
      int numerators[List::COUNT];
      List::numerators(prepared, drop, numerators);
      if (is_computed_by_drop) store(placement, numerators);
      is_unwritten = is_unwritten && !is_computed_by_drop;
    }
    // The set of threads whose placement is left, a bit per thread.
    unsigned threads = __ballot_sync(~0u, is_unwritten);
    for (; threads != 0; threads &= threads - 1) {
      int thread = __ffs(threads) - 1;
      int unwritten = __shfl_sync(~0u, placement, thread);
      visit_after_state<List>(board, piece, unwritten, [&](const auto& numerators) {
        if (L::lane() == 0) store(unwritten, numerators);
      });
    }
  }

  // Writes, for one environment, the features of all placements of its piece, a row of
  // List::COUNT floats per action, and whether each placement ends the game. All threads of a
  // warp call it. They make the results in shared memory, and then copy them to the tensors in
  // order, so that neighbouring threads write neighbouring numbers.
  __device__ void write() {
    bool is_over = all.is_over(index);
    clear(is_over);
    __syncwarp();
    if (!is_over) write_placements();
    __syncwarp();
    float* features = all.features + index * actions() * List::COUNT;
    for (int i = L::lane(); i < actions() * List::COUNT; i += WARP) {
      features[i] = memory.features[i];
    }
    int8_t* ends_game = all.ends_game + index * actions();
    for (int i = L::lane(); i < actions(); i += WARP) ends_game[i] = memory.ends_game[i];
  }

 private:
  // Prepares the results in shared memory: all features become 0, and every placement is marked
  // as ending the game, which `store` changes. Actions that are no placement of their own, and
  // all actions of a game that is over, are not marked.
  __device__ __forceinline__ void clear(bool is_over) {
    uint64_t mask = is_over ? 0 : mask_bits(piece, all.rules.width);
    for (int i = L::lane(); i < actions() * List::COUNT; i += WARP) memory.features[i] = 0.0f;
    for (int i = L::lane(); i < actions(); i += WARP) {
      memory.ends_game[i] = int8_t(mask >> i & 1u);
    }
  }

  // Computes the features of all placements that do not end the game, and stores them in shared
  // memory, with all threads of a warp. The warp holds one board: thread FIRST_COLUMN + c has
  // column c, and the other threads have the side walls or nothing. `columns` holds the boards
  // of all environments, column c of environment `index` at c * count + index.
  __device__ __forceinline__ void write_placements() {
    Geometry<L> geometry(all.rules);
    int column = L::lane() - FIRST_COLUMN;
    bool is_inside = column >= 0 && column < all.rules.width;
    L::ColumnBits cells = geometry.walls;
    if (is_inside) cells.own = all.columns[column * all.count + index];
    Board<L> board(geometry, cells);
    Ground<L> ground(board);
    Prepared prepared(board);
    write_width<1>(board, ground, prepared);
    write_width<2>(board, ground, prepared);
    write_width<3>(board, ground, prepared);
    write_width<4>(board, ground, prepared);
  }
};

template <class List>
__global__ void __launch_bounds__(WARP)
    placements_kernel(const __grid_constant__ FeatureTensors all) {
  int64_t index = blockIdx.x;
  auto& memory = *static_cast<PlacementMemory<List>*>(shared_memory());
  PlacementWarp<List>{all, memory, index, all.piece[index]}.write();
}

}  // namespace tetris
