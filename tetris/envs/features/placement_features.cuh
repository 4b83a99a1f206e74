// The kernel that computes the features of all placements, with a warp per environment. As in
// rollout_warp.cuh, each thread holds one placement and one column of the board.
//
// With the nine features of `dt` on a board of 10 x 20, a warp reads 42 bytes per environment
// and writes 1,480 bytes. The warp computes the rows of features in shared memory, and then
// copies them in order.
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

// Writes the features of all placements in one environment, like `Writer` of
// placement_features.cpp.
template <class List>
struct PlacementWarp {
  using L = WarpLanes;
  using Prepared = typename List::template Prepared<L>;
  const FeatureTensors& tensors;
  PlacementMemory<List>& memory;
  int64_t environment;
  int piece;

  __device__ int actions() const { return MAX_ORIENTATIONS * tensors.rules.width; }

  __device__ void store(int placement, const int (&numerators)[List::COUNT]) {
    int action = orientation_of(placement) * tensors.rules.width + column_of(placement);
    float* row = memory.features + action * List::COUNT;
    TETRIS_UNROLL for (int f = 0; f < List::COUNT; ++f) {
      row[f] = float(numerators[f]) * List::reciprocal(f);
    }
    memory.ends_game[action] = 0;
  }

  // Stores the features of the placements of all orientations of the piece that are WIDTH
  // columns wide, except for placements that end the game. All threads of a warp call this
  // function, and each of them has one placement.
  //
  // `ground` is the surface on which the piece lands. `prepared` is the data that the features
  // have computed from the board.
  template <int WIDTH>
  __device__ void write_orientations(
      const Board<L>& board, const Ground<L>& ground, const Prepared& prepared) {
    if (!has_width<WIDTH>(piece)) return;
    auto group = group_of_thread<L, WIDTH>(piece);
    int placement = group.first_placement[0];
    Drop<L, WIDTH> drop(ground, group.shapes);
    int height = tensors.rules.height;
    int top = drop.top();  // the row above the piece's uppermost cells
    // Under the rule clear_on_overflow, the removal of full rows may bring a piece back inside
    // the board.
    int rows_above_top = tensors.rules.clear_on_overflow ? MAX_PIECE_SIZE : 0;
    bool is_unwritten = top <= height + rows_above_top;
    if constexpr (List::computable_from_drops) {
      // The features of placements that lie inside the board and complete no row are computed
      // at the same time, from the changes that the drops make.
      bool completes_no_row = drop.completed() == 0;
      bool is_computed_by_drop = completes_no_row && top <= height;
      int numerators[List::COUNT];
      List::numerators(prepared, drop, numerators);
      if (is_computed_by_drop) store(placement, numerators);
      is_unwritten = is_unwritten && !is_computed_by_drop;
    }
    // The other placements are handled one after another: all threads together compute the
    // features of the board after a placement. `threads` is the set of the threads whose
    // placement is left, one bit per thread.
    unsigned threads = __ballot_sync(~0u, is_unwritten);
    for (; threads != 0; threads = without_lowest_bit(threads)) {
      int thread = __ffs(threads) - 1;
      int unwritten = __shfl_sync(~0u, placement, thread);
      visit_after_state<List>(board, piece, unwritten, [&](const auto& numerators) {
        if (L::lane() == 0) store(unwritten, numerators);
      });
    }
  }

  // Writes the results of one environment to the tensors: for every action a row of List::COUNT
  // features, and whether the placement ends the game. All threads of a warp call this
  // function.
  __device__ void write() {
    bool is_over = tensors.is_over(environment);
    clear(is_over);
    __syncwarp();
    if (!is_over) write_placements();
    __syncwarp();
    // Copy the results from shared memory to the tensors. Neighbouring threads write
    // neighbouring numbers.
    float* features = tensors.features + environment * actions() * List::COUNT;
    for (int i = L::lane(); i < actions() * List::COUNT; i += WARP) {
      features[i] = memory.features[i];
    }
    int8_t* ends_game = tensors.ends_game + environment * actions();
    for (int i = L::lane(); i < actions(); i += WARP) ends_game[i] = memory.ends_game[i];
  }

 private:
  // Initialises the results in shared memory. All features become 0. `ends_game` becomes 1 for
  // every placement; `store` changes it to 0 for the placements that do not end the game. It
  // becomes 0 for actions that are not placements, and for all actions of a game that is over.
  __device__ __forceinline__ void clear(bool is_over) {
    uint64_t mask = is_over ? 0 : mask_bits(piece, tensors.rules.width);
    for (int i = L::lane(); i < actions() * List::COUNT; i += WARP) memory.features[i] = 0.0f;
    for (int i = L::lane(); i < actions(); i += WARP) {
      memory.ends_game[i] = int8_t(mask >> i & 1u);
    }
  }

  // Computes the features of all placements that do not end the game, and stores them in shared
  // memory. All threads of a warp call this function.
  //
  // Thread FIRST_COLUMN + c holds column c of the board. tensors.columns has the shape (width,
  // count).
  __device__ __forceinline__ void write_placements() {
    Geometry<L> geometry(tensors.rules);
    int column = L::lane() - FIRST_COLUMN;
    bool is_inside = column >= 0 && column < tensors.rules.width;
    L::ColumnBits cells = geometry.walls;
    if (is_inside) cells.value = tensors.columns[column * tensors.count + environment];
    Board<L> board(geometry, cells);
    Ground<L> ground(board);   // the surface on which the piece lands
    Prepared prepared(board);  // the data of the board that the features need
    // Write the placements of the orientations that are 1, 2, 3 and 4 columns wide.
    write_orientations<1>(board, ground, prepared);
    write_orientations<2>(board, ground, prepared);
    write_orientations<3>(board, ground, prepared);
    write_orientations<4>(board, ground, prepared);
  }
};

// Kernel: writes the features of all placements, with one block per environment, which consists
// of one warp.
template <class List>
__global__ void __launch_bounds__(WARP)
    placements_kernel(const __grid_constant__ FeatureTensors tensors) {
  int64_t environment = blockIdx.x;
  auto& memory = *static_cast<PlacementMemory<List>*>(shared_memory());
  PlacementWarp<List>{tensors, memory, environment, tensors.piece[environment]}.write();
}

}  // namespace tetris
