// Games side by side on a GPU: which kernel plays them, and its grid.
#pragma once

#include <algorithm>

#include "gpu_games.cuh"
#include "rollout_pairs.cuh"
#include "rollout_pool.cuh"

namespace tetris {

// A warp a game, side by side in blocks of as many as there is memory for, unless there are few.
template <class List, int BOARD_WIDTH>
void launch_pairs(const PairsJob& job, const Launcher& gpu) {
  const int64_t spread = (job.total + gpu.multiprocessors - 1) / gpu.multiprocessors;
  const int warps = static_cast<int>(
      std::min<int64_t>({MAX_PAIRS_WARPS, gpu.block_memory() / job.warp_bytes, spread}));
  STD_TORCH_CHECK(
      warps > 0, "expected a GPU with ", job.warp_bytes, " bytes of shared memory a block");
  gpu.launch(rollout_pairs<List, BOARD_WIDTH>,
      static_cast<unsigned>((job.total + warps - 1) / warps), warps * WARP,
      warps * job.warp_bytes, job);
}

// A thread a game, in as many warps as there is memory for.
template <class List, int BOARD_WIDTH>
void launch_pool(PoolJob job, const Launcher& gpu) {
  const int room = gpu.block_memory(),
            least = PieceQueues::bytes(LEAST_IN_HAND) + job.warp_bytes;
  STD_TORCH_CHECK(
      room >= least, "expected a GPU with ", least, " bytes of shared memory a block");
  const auto block_of = [&](int capacity) {
    const int fit = std::max(0, (room - PieceQueues::bytes(capacity)) / job.warp_bytes);
    return block_warps<List>(std::min(POOL_WARPS<List, Lookahead::TETRIS_LOOKAHEAD>, fit),
        job.total / gpu.multiprocessors);
  };
  job.capacity = MOST_IN_HAND;
  BlockWarps block = block_of(job.capacity);
  // Fewer games in hand where their room takes more warps.
  while (job.capacity > LEAST_IN_HAND &&
         (block.count == 0 || block_of(job.capacity / 2).count > block.count)) {
    job.capacity /= 2;
    block = block_of(job.capacity);
  }
  job.groups = block.groups;
  const int bytes = PieceQueues::bytes(job.capacity) + block.count * job.warp_bytes;
  gpu.launch(rollout_pool<List, BOARD_WIDTH, Lookahead::TETRIS_LOOKAHEAD>, gpu.multiprocessors,
      block.count * WARP, bytes, job);
}

template <int BOARD_WIDTH>
void play_side_by_side(const RolloutArguments& all, void* states, const Launcher& gpu) {
  using List = FeatureList<TETRIS_FEATURES>;
  static_assert(sizeof(GameState) == STATE_WORDS * sizeof(int32_t));
  if constexpr (Lookahead::TETRIS_LOOKAHEAD == Lookahead::preview) {
    launch_pairs<List, BOARD_WIDTH>({all, warp_bytes<List>()}, gpu);
  } else {
    launch_pool<List, BOARD_WIDTH>(
        {all, static_cast<GameState*>(states), warp_bytes<List>(), 0, 0}, gpu);
  }
}

}  // namespace tetris
