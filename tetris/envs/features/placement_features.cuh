// The kernel of the placements' features: a warp per environment, a thread per placement and per column, as rollout_warp.cuh.
//
// With the nine features of `dt` on a board of 10 x 20 a warp writes 1,480 bytes per environment and reads 42. The rows of
// features are made in shared memory, from where the warp writes them one after the other.
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

// One environment's placements.
template <class List>
struct PlacementWarp {
  using L = WarpLanes;
  const FeatureTensors& all;
  PlacementMemory<List>& memory;
  int64_t index;
  int piece;

  __device__ int actions() const { return MAX_ORIENTATIONS * all.rules.width; }

  __device__ void store(int place, const int (&numerators)[List::COUNT]) {
    const int action = orientation_of(place) * all.rules.width + column_of(place);
    float* row = memory.features + action * List::COUNT;
    TETRIS_UNROLL for (int f = 0; f < List::COUNT; ++f) {
      row[f] = static_cast<float>(numerators[f]) * List::reciprocal(f);
    }
    memory.ends_game[action] = 0;
  }

  // The placements of all orientations of one width, one a thread; see WarpRollout::score and Chooser::score.
  template <int WIDTH>
  __device__ void write_width(const Board<L>& board, const Ground<L>& ground,
      const typename List::template Prepared<L>& prepared) {
    if (!has_width<WIDTH>(piece)) return;
    const auto group = group_of_thread<L, WIDTH>(piece);
    const int place = group.order[0];
    const Drop<L, WIDTH> drop(ground, group.shapes);
    const int height = all.rules.height, end = drop.end();
    bool whole = end <= height + (all.rules.clear_on_overflow ? MAX_PIECE_SIZE : 0);
    if constexpr (List::all_follow_drops) {
      const bool plain = drop.completed() == 0 && end <= height;
      int numerators[List::COUNT];
      List::numerators(prepared, drop, numerators);
      if (plain) store(place, numerators);
      whole = whole && !plain;
    }
    // All threads work on one after-state.
    for (unsigned rest = __ballot_sync(~0u, whole); rest != 0; rest &= rest - 1) {
      const int each = __shfl_sync(~0u, place, __ffs(rest) - 1);
      visit_whole<List>(board, piece, each, [&](const auto& numerators) {
        if (L::lane() == 0) store(each, numerators);
      });
    }
  }

  __device__ void write() {
    const int width = all.rules.width;
    const bool over = all.is_over(index);
    const uint64_t mask = over ? 0 : mask_bits(piece, width);
    for (int at = L::lane(); at < actions() * List::COUNT; at += WARP)
      memory.features[at] = 0.0f;
    for (int at = L::lane(); at < actions(); at += WARP)
      memory.ends_game[at] = static_cast<int8_t>(mask >> at & 1u);
    __syncwarp();
    if (!over) {
      const Geometry<L> geometry(all.rules);
      const int column = L::lane() - FIRST_COLUMN;
      L::ColumnBits cells = geometry.walls;
      if (column >= 0 && column < width) cells.own = all.columns[column * all.count + index];
      const Board<L> board(geometry, cells);
      const Ground<L> ground(board);
      const typename List::template Prepared<L> prepared(board);
      write_width<1>(board, ground, prepared);
      write_width<2>(board, ground, prepared);
      write_width<3>(board, ground, prepared);
      write_width<4>(board, ground, prepared);
    }
    __syncwarp();
    float* features = all.features + index * actions() * List::COUNT;
    for (int at = L::lane(); at < actions() * List::COUNT; at += WARP)
      features[at] = memory.features[at];
    int8_t* ends_game = all.ends_game + index * actions();
    for (int at = L::lane(); at < actions(); at += WARP) ends_game[at] = memory.ends_game[at];
  }
};

template <class List>
__global__ void __launch_bounds__(WARP)
    placements_kernel(const __grid_constant__ FeatureTensors all) {
  const int64_t index = blockIdx.x;
  auto& memory = *static_cast<PlacementMemory<List>*>(shared_memory());
  PlacementWarp<List>{all, memory, index, all.piece[index]}.write();
}

}  // namespace tetris
