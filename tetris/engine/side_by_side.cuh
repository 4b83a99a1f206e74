// Many streams of games on a GPU, with a thread or a warp per stream: the choice of the kernel
// and of its grid.
#pragma once

#include <algorithm>

#include "gpu_games.cuh"
#include "rollout_pairs.cuh"
#include "rollout_pool.cuh"

namespace tetris {

// Launches the kernel that plays with a known next piece, with one warp per stream of games. A
// block has as many warps as its shared memory allows. If there are few streams, the blocks
// have fewer warps, so that every multiprocessor gets a block.
template <class List, int BOARD_WIDTH>
void launch_pairs(const PairsJob& job, const Launcher& gpu) {
  int64_t streams_per_multiprocessor =
      (job.all_streams + gpu.multiprocessors - 1) / gpu.multiprocessors;
  int64_t fitting_warps = gpu.block_memory() / job.warp_bytes;
  int warps =
      int(std::min<int64_t>({MAX_PAIRS_WARPS, fitting_warps, streams_per_multiprocessor}));
  STD_TORCH_CHECK(
      warps > 0, "expected a GPU with ", job.warp_bytes, " bytes of shared memory a block");
  unsigned blocks = unsigned((job.all_streams + warps - 1) / warps);
  gpu.launch(
      rollout_pairs<List, BOARD_WIDTH>, blocks, warps * WARP, warps * job.warp_bytes, job);
}

// Chooses the number of warps of a block, and sets job.capacity and job.groups. `memory` is the
// size of a block's shared memory in bytes, and `streams` the number of streams per
// multiprocessor.
//
// The shared memory of a block holds queues of streams and `warp_bytes` bytes per warp. Smaller
// queues leave memory for more warps, but the block then plays its streams in more batches. So
// the capacity of the queues is halved as long as this gives the block more warps.
template <class List>
int divide_memory(PoolJob& job, int memory, int64_t streams) {
  constexpr int MOST_WARPS = POOL_WARPS<List, Lookahead::TETRIS_LOOKAHEAD>;
  // Returns the warps of a block whose queues hold `capacity` streams.
  auto warps_beside_queues = [&](int capacity) {
    int bytes_for_warps = memory - PieceQueues::bytes(capacity);
    int fitting_warps = std::max(0, bytes_for_warps / job.warp_bytes);
    return block_warps<List>(std::min(MOST_WARPS, fitting_warps), streams);
  };
  // Also halve the capacity as long as no warp fits beside the queues.
  job.capacity = MOST_CAPACITY;
  BlockWarps warps = warps_beside_queues(job.capacity);
  while (job.capacity > LEAST_CAPACITY) {
    BlockWarps with_half_capacity = warps_beside_queues(job.capacity / 2);
    bool gains_warps = with_half_capacity.count > warps.count;
    if (warps.count > 0 && !gains_warps) break;
    job.capacity /= 2;
    warps = with_half_capacity;
  }
  job.groups = warps.groups;
  return warps.count;
}

// Launches the kernel that plays many streams of games, with one thread per stream (two for
// expectimax) and one block per multiprocessor.
template <class List, int BOARD_WIDTH>
void launch_pool(PoolJob job, const Launcher& gpu) {
  int memory = gpu.block_memory();
  int least_memory = PieceQueues::bytes(LEAST_CAPACITY) + job.warp_bytes;
  STD_TORCH_CHECK(memory >= least_memory, "expected a GPU with ", least_memory,
      " bytes of shared memory a block");
  int warps = divide_memory<List>(job, memory, job.all_streams / gpu.multiprocessors);
  int bytes = PieceQueues::bytes(job.capacity) + warps * job.warp_bytes;
  gpu.launch(rollout_pool<List, BOARD_WIDTH, Lookahead::TETRIS_LOOKAHEAD>, gpu.multiprocessors,
      warps * WARP, bytes, job);
}

template <int BOARD_WIDTH>
void play_side_by_side(const RolloutArguments& all, void* states, const Launcher& gpu) {
  using List = FeatureList<TETRIS_FEATURES>;
  static_assert(sizeof(StreamState) == STATE_WORDS * sizeof(int32_t));
  if constexpr (Lookahead::TETRIS_LOOKAHEAD == Lookahead::preview) {
    launch_pairs<List, BOARD_WIDTH>({all, warp_bytes<List>()}, gpu);
  } else {
    auto* stream_states = static_cast<StreamState*>(states);
    launch_pool<List, BOARD_WIDTH>({all, stream_states, warp_bytes<List>(), 0, 0}, gpu);
  }
}

}  // namespace tetris
