// Few games: a warp per game.
#include "gpu_games.cuh"
#include "rollout_warp.cuh"

namespace tetris {

bool play_few(const RolloutArguments& all, const Launcher& gpu) {
  using List = FeatureList<TETRIS_FEATURES>;
  // A warp per game is faster than a thread with fewer games per multiprocessor. There is no
  // such kernel for lookaheads.
  constexpr int64_t FEW = List::has_columns ? 48 : 108;
  if constexpr (Lookahead::TETRIS_LOOKAHEAD == Lookahead::none) {
    if (all.total < FEW * gpu.multiprocessors) {
      gpu.launch(rollout_warp<List>, unsigned(all.total), WARP, 0, all);
      return true;
    }
  }
  return false;
}

}  // namespace tetris
