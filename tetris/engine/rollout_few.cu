// Few games: a warp to each.
#include "gpu_games.cuh"
#include "rollout_warp.cuh"

namespace tetris {

bool play_few(const RolloutArguments& all, const Launcher& gpu) {
  using List = FeatureList<TETRIS_FEATURES>;
  // With fewer games a multiprocessor a warp to each is faster. Where the next piece counts, there is no such kernel.
  constexpr int64_t FEW = List::has_columns ? 48 : 108;
  if constexpr (Lookahead::TETRIS_LOOKAHEAD == Lookahead::none) {
    if (all.total < FEW * gpu.multiprocessors) {
      gpu.launch(rollout_warp<List>, static_cast<unsigned>(all.total), WARP, 0, all);
      return true;
    }
  }
  return false;
}

}  // namespace tetris
