// The rollout operator on CUDA: the schema is rollout.cpp's, the results are bit for bit its own. It waits for nothing.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>

#include "common.cuh"
#include "rollout_arguments.h"
#include "rollout_pairs.cuh"
#include "rollout_pool.cuh"
#include "rollout_warp.cuh"

namespace {

using namespace tetris;

// With fewer games a multiprocessor than this, a warp to each is faster. Where all that may come next counts, there is no such kernel.
template <class List> constexpr int64_t FEW = List::has_columns ? 48 : 108;

[[maybe_unused]] int block_memory(int device) {
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
template <class List> void launch_pairs(const PairsJob& job, int device, cudaStream_t stream) {
  const int64_t spread =
      (job.total + cem_tetris::multiprocessors(device) - 1) / cem_tetris::multiprocessors(device);
  const int warps =
      static_cast<int>(std::min<int64_t>({MAX_PAIRS_WARPS, block_memory(device) / job.warp_bytes, spread}));
  STD_TORCH_CHECK(warps > 0, "expected a GPU with ", job.warp_bytes, " bytes of shared memory a block");
  const auto kernel = job.rules.width == MAX_WIDTH ? rollout_pairs<List, MAX_WIDTH> : rollout_pairs<List, 0>;
  launch(kernel, (job.total + warps - 1) / warps, warps, warps * job.warp_bytes, job, stream);
}

// A thread a game, in as many warps as there is memory for.
template <class List> void launch_pool(PoolJob job, int device, cudaStream_t stream) {
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
  const auto kernel = job.rules.width == MAX_WIDTH
                          ? rollout_pool<List, MAX_WIDTH, Lookahead::TETRIS_LOOKAHEAD>
                          : rollout_pool<List, 0, Lookahead::TETRIS_LOOKAHEAD>;
  launch(kernel, cem_tetris::multiprocessors(device), block.count, bytes, job, stream);
}

struct Cuda {
  template <class List> static void play(const RolloutArguments& all, const Tensor& boards) {
    STD_TORCH_CHECK(all.total < int64_t{1} << 31 && all.decisions < int64_t{1} << 31,
        "expected less than 2^31 games and decisions, got ", all.total, " and ", all.decisions);
    const int device = boards.get_device_index();
    const cem_tetris::DeviceGuard guard(device);
    const cudaStream_t stream = cem_tetris::current_stream(boards);
    if constexpr (Lookahead::TETRIS_LOOKAHEAD == Lookahead::preview) {
      launch_pairs<List>({all, warp_bytes<List>()}, device, stream);
    } else {
      if constexpr (Lookahead::TETRIS_LOOKAHEAD == Lookahead::none) {
        if (all.total < FEW<List> * cem_tetris::multiprocessors(device)) {
          rollout_warp<List><<<static_cast<unsigned>(all.total), WARP, 0, stream>>>(all);
          STD_CUDA_KERNEL_LAUNCH_CHECK();
          return;
        }
      }
      Tensor states = torch::stable::new_empty(
          boards, {all.total, static_cast<int64_t>(sizeof(GameState) / sizeof(int32_t))});
      auto* memory = static_cast<GameState*>(states.mutable_data_ptr());
      launch_pool<List>({all, memory, warp_bytes<List>(), 0, 0}, device, stream);
    }
  }
};

}  // namespace

using Features = tetris::FeatureList<TETRIS_FEATURES>;
STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CUDA, m) {
  m.impl("advance", TORCH_BOX(&(advance<Features, Cuda>)));
}
