// The rollout operator on CUDA. Its schema is that of rollout.cpp, and its results are the same
// bit for bit. It does not wait for the GPU.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include "advance.h"
#include "decision.h"
#include "gpu.cuh"
#include "gpu_games.cuh"

namespace {

using namespace tetris;

struct Cuda {
  // Plays all games of a rollout on the GPU of `boards`, with the kernel that is fastest for
  // this number of games and width: play_few gives each game a warp, and returns false if there
  // are too many games for that; play_side_by_side gives each game a thread. The usual width is
  // a template argument, and 0 means any width.
  template <class List>
  static void play(const RolloutArguments& all, const Tensor& boards) {
    constexpr int64_t LIMIT = int64_t{1} << 31;
    STD_TORCH_CHECK(all.total < LIMIT && all.decisions < LIMIT,
        "expected less than 2^31 games and decisions, got ", all.total, " and ", all.decisions);
    cem_tetris::Gpu gpu{cem_tetris::Device(boards)};
    if (play_few(all, gpu)) return;
    Tensor states = torch::stable::new_empty(boards, {all.total, STATE_WORDS});
    void* memory = states.mutable_data_ptr();
    if (all.rules.width == MAX_WIDTH) play_side_by_side<MAX_WIDTH>(all, memory, gpu);
    else play_side_by_side<0>(all, memory, gpu);
  }
};

}  // namespace

using Features = tetris::FeatureList<TETRIS_FEATURES>;
STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CUDA, m) {
  m.impl("advance", TORCH_BOX(&(advance<Features, Cuda>)));
}
