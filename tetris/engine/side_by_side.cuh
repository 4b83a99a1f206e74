// Games side by side on a GPU: which kernel plays them, and its grid. A source for each kind of board width defines
// `play_side_by_side`, so that nvcc compiles them at the same time.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <algorithm>

#include "common.cuh"
#include "rollout_arguments.h"
#include "rollout_pairs.cuh"
#include "rollout_pool.cuh"

namespace tetris {

inline int block_memory(int device) {
  int bytes = 0;
  STD_CUDA_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return bytes;
}

template <class Job>
void launch(void (*kernel)(Job), int64_t blocks, int warps, int bytes, const Job& job, cudaStream_t stream) {
  STD_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  kernel<<<static_cast<unsigned>(blocks), warps * WARP, bytes, stream>>>(job);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

// A warp a game, side by side in blocks of as many as there is memory for, unless there are few.
template <class List, int BOARD_WIDTH>
void launch_pairs(const PairsJob& job, int device, cudaStream_t stream) {
  const int64_t spread =
      (job.total + cem_tetris::multiprocessors(device) - 1) / cem_tetris::multiprocessors(device);
  const int warps =
      static_cast<int>(std::min<int64_t>({MAX_PAIRS_WARPS, block_memory(device) / job.warp_bytes, spread}));
  STD_TORCH_CHECK(warps > 0, "expected a GPU with ", job.warp_bytes, " bytes of shared memory a block");
  launch(rollout_pairs<List, BOARD_WIDTH>, (job.total + warps - 1) / warps, warps, warps * job.warp_bytes,
      job, stream);
}

// A thread a game, in as many warps as there is memory for.
template <class List, int BOARD_WIDTH> void launch_pool(PoolJob job, int device, cudaStream_t stream) {
  const int room = block_memory(device), least = PieceQueues::bytes(LEAST_IN_HAND) + job.warp_bytes;
  STD_TORCH_CHECK(room >= least, "expected a GPU with ", least, " bytes of shared memory a block");
  const auto block_of = [&](int capacity) {
    const int fit = std::max(0, (room - PieceQueues::bytes(capacity)) / job.warp_bytes);
    return block_warps<List>(std::min(POOL_WARPS<List, Lookahead::TETRIS_LOOKAHEAD>, fit),
        job.total / cem_tetris::multiprocessors(device));
  };
  job.capacity = MOST_IN_HAND;
  BlockWarps block = block_of(job.capacity);
  // Fewer games in hand where their room takes more warps.
  while (
      job.capacity > LEAST_IN_HAND && (block.count == 0 || block_of(job.capacity / 2).count > block.count)) {
    job.capacity /= 2;
    block = block_of(job.capacity);
  }
  job.groups = block.groups;
  const int bytes = PieceQueues::bytes(job.capacity) + block.count * job.warp_bytes;
  launch(rollout_pool<List, BOARD_WIDTH, Lookahead::TETRIS_LOOKAHEAD>, cem_tetris::multiprocessors(device),
      block.count, bytes, job, stream);
}

// Plays the games of a board BOARD_WIDTH columns wide, of any width where that is 0.
template <class List, int BOARD_WIDTH>
void play_side_by_side(const RolloutArguments& all, const Tensor& boards, int device, cudaStream_t stream) {
  if constexpr (Lookahead::TETRIS_LOOKAHEAD == Lookahead::preview) {
    launch_pairs<List, BOARD_WIDTH>({all, warp_bytes<List>()}, device, stream);
  } else {
    Tensor states = torch::stable::new_empty(
        boards, {all.total, static_cast<int64_t>(sizeof(GameState) / sizeof(int32_t))});
    auto* memory = static_cast<GameState*>(states.mutable_data_ptr());
    launch_pool<List, BOARD_WIDTH>({all, memory, warp_bytes<List>(), 0, 0}, device, stream);
  }
}

using Features = FeatureList<TETRIS_FEATURES>;
extern template void play_side_by_side<Features, MAX_WIDTH>(
    const RolloutArguments&, const Tensor&, int, cudaStream_t);
extern template void play_side_by_side<Features, 0>(
    const RolloutArguments&, const Tensor&, int, cudaStream_t);

}  // namespace tetris
