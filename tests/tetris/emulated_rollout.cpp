// rollout.cu's kernels on emulated threads, as an operator with rollout.cpp's schema; `launch_as` says how to launch them:
// so many blocks of so many warps for a thread a game, no warps for a warp a game.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include "cuda_emulation.h"

namespace tetris {
inline void* shared_memory() { return cuda_emulation::block->shared.data(); }
inline void barrier(int number, int threads) { emulated_barrier(number, threads); }
}  // namespace tetris
#include "advance.h"
#include "rollout_pairs.cuh"
#include "rollout_pool.cuh"
#include "rollout_warp.cuh"

namespace {
using namespace tetris;

unsigned launched_blocks = 1, launched_warps = 0;
void launch_as(int64_t blocks, int64_t warps) {
  launched_blocks = static_cast<unsigned>(blocks);
  launched_warps = static_cast<unsigned>(warps);
}

struct Emulated {
  template <class List>
  static void play(const RolloutArguments& all, const Tensor&) {
    if constexpr (Lookahead::TETRIS_LOOKAHEAD == Lookahead::preview) play_pairs<List>(all);
    else if (launched_warps > 0) play_pool<List>(all);
    else
      cuda_emulation::launch(
          static_cast<unsigned>(all.all_streams), WARP, 0, [&] { rollout_warp<List>(all); });
  }

 private:
  template <class List>
  static void play_pairs(const RolloutArguments& all) {
    constexpr unsigned WARPS = 2;
    const PairsJob job{all, warp_bytes<List>()};
    const auto blocks = static_cast<unsigned>((all.all_streams + WARPS - 1) / WARPS);
    cuda_emulation::launch(blocks, WARPS * WARP, WARPS * job.warp_bytes, [&] {
      if (all.rules.width == MAX_WIDTH) rollout_pairs<List, MAX_WIDTH>(job);
      else rollout_pairs<List, 0>(job);
    });
  }
  template <class List>
  static void play_pool(const RolloutArguments& all) {
    std::vector<StreamState> states(all.all_streams);
    const auto [warps, groups] =
        block_warps<List>(static_cast<int>(launched_warps), all.all_streams / launched_blocks);
    const PoolJob job{all, states.data(), warp_bytes<List>(), groups, 256};
    const int bytes = PieceQueues::bytes(job.capacity) + warps * job.warp_bytes;
    cuda_emulation::launch(launched_blocks, static_cast<unsigned>(warps) * WARP, bytes, [&] {
      if (all.rules.width == MAX_WIDTH)
        rollout_pool<List, MAX_WIDTH, Lookahead::TETRIS_LOOKAHEAD>(job);
      else rollout_pool<List, 0, Lookahead::TETRIS_LOOKAHEAD>(job);
    });
  }
};
using Features = FeatureList<TETRIS_FEATURES>;
}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(TETRIS_LIBRARY, m) {
  m.def(TETRIS_ADVANCE_SCHEMA);
  m.def("launch_as(int blocks, int warps) -> ()");
}
STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CPU, m) {
  m.impl("advance", TORCH_BOX(&(advance<Features, Emulated>)));
}
STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CompositeExplicitAutograd, m) {
  m.impl("launch_as", TORCH_BOX(&launch_as));
}
