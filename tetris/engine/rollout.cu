// The rollout operator on CUDA: the schema is rollout.cpp's, the results are bit for bit its own. It waits for nothing.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include "advance.h"
#include "decision.h"
#include "gpu.cuh"
#include "gpu_games.cuh"

namespace {

using namespace tetris;

struct Cuda {
  template <class List>
  static void play(const RolloutArguments& all, const Tensor& boards) {
    STD_TORCH_CHECK(all.total < int64_t{1} << 31 && all.decisions < int64_t{1} << 31,
        "expected less than 2^31 games and decisions, got ", all.total, " and ", all.decisions);
    const cem_tetris::Gpu gpu{cem_tetris::Device(boards)};
    if (play_few(all, gpu)) return;
    Tensor states = torch::stable::new_empty(boards, {all.total, STATE_WORDS});
    const bool usual = all.rules.width == MAX_WIDTH;
    (usual ? play_side_by_side<MAX_WIDTH> : play_side_by_side<0>)(all,
        states.mutable_data_ptr(), gpu);
  }
};

}  // namespace

using Features = tetris::FeatureList<TETRIS_FEATURES>;
STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CUDA, m) {
  m.impl("advance", TORCH_BOX(&(advance<Features, Cuda>)));
}
