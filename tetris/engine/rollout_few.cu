// The launch for few streams of games, with a warp per stream.
#include "gpu_games.cuh"
#include "rollout_warp.cuh"

namespace tetris {

bool play_few(const RolloutArguments& all, const Launcher& gpu) {
  using List = FeatureList<TETRIS_FEATURES>;
  // With fewer streams per multiprocessor, a warp per stream is faster than a thread per
  // stream. There is no such kernel for lookaheads.
  constexpr int64_t FEW = List::has_columns ? 48 : 108;
  if constexpr (Lookahead::TETRIS_LOOKAHEAD == Lookahead::none) {
    if (all.all_streams < FEW * gpu.multiprocessors) {
      gpu.launch(rollout_warp<List>, unsigned(all.all_streams), WARP, 0, all);
      return true;
    }
  }
  return false;
}

}  // namespace tetris
