// The rollout operator on CUDA. It has the schema of the operator in rollout.cpp, and its
// results are the same bit for bit. It does not wait for the GPU.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include "advance.h"
#include "decision.h"
#include "gpu.cuh"
#include "gpu_games.cuh"

namespace {

using namespace tetris;

struct Cuda {
  // Plays all streams of a rollout on the GPU that holds `boards`. A stream is a sequence of
  // games on one board.
  //
  // play_few plays with one warp per stream. If there are too many streams for that, it plays
  // nothing and returns false. Then play_side_by_side plays them, usually with one thread per
  // stream.
  template <class List>
  static void play(const RolloutArguments& all, const Tensor& boards) {
    constexpr int64_t LIMIT = int64_t{1} << 31;
    // A stream has one game at a time, so the message counts the streams as games.
    STD_TORCH_CHECK(all.all_streams < LIMIT && all.decisions < LIMIT,
        "expected less than 2^31 games and decisions, got ", all.all_streams, " and ",
        all.decisions);
    cem_tetris::Gpu gpu{cem_tetris::Device(boards)};
    if (play_few(all, gpu)) return;
    // Memory for the states of the streams between decisions.
    Tensor states = new_empty(boards, {all.all_streams, STATE_WORDS});
    void* memory = states.mutable_data_ptr();
    // The usual width has a kernel of its own; 0 means any width.
    if (all.rules.width == MAX_WIDTH) play_side_by_side<MAX_WIDTH>(all, memory, gpu);
    else play_side_by_side<0>(all, memory, gpu);
  }
};

}  // namespace

using Features = tetris::FeatureList<TETRIS_FEATURES>;
STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CUDA, m) {
  m.impl("advance", TORCH_BOX(&(advance<Features, Cuda>)));
}
