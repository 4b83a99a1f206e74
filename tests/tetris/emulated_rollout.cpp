// rollout.cu's kernels on emulated threads, as an operator with rollout.cpp's schema and how to launch them:
// so many blocks of so many warps for a thread a game, no warps for a warp a game.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include "cuda_emulation.h"

namespace tetris {
inline void* shared_memory() { return cuda_emulation::block->shared.data(); }
inline void barrier(int number, int threads) { emulated_barrier(number, threads); }
}
#include "job.cuh"

namespace {
using namespace tetris;
using torch::stable::Tensor;
using Features = FeatureList<TETRIS_FEATURES>;

template <int BOARD_WIDTH>
void play(Job job, int64_t blocks, int warps) {
    if (warps > 0) {
        job.kept = kept_bytes<Features>();
        cuda_emulation::launch(static_cast<unsigned>(blocks), static_cast<unsigned>(warps * WARP),
                               sizeof(PoolMemory) + warps * job.kept,
                               [&] { play_pool<Features, BOARD_WIDTH>(job); });
    } else {
        cuda_emulation::launch(job.total, WARP, 0, [&] { play_warp<Features>(job); });
    }
}

void advance(const Tensor& weights, Tensor boards, Tensor lines, Tensor games, Tensor made, int64_t height,
             bool clear_on_overflow, int64_t pieces, int64_t piece_count, bool bag, int64_t seed, int64_t first_stream,
             bool share_streams, int64_t start, int64_t decisions, int64_t last_game, int64_t blocks, int64_t warps) {
    std::vector<Game> state(weights.size(0) * boards.size(1));
    const Job job = make_job(weights, boards, lines, games, made, height, clear_on_overflow, pieces, piece_count, bag, seed,
                             first_stream, share_streams, start, decisions, last_game, state.data());
    if (job.rules.width == MAX_WIDTH) play<MAX_WIDTH>(job, blocks, static_cast<int>(warps));
    else play<0>(job, blocks, static_cast<int>(warps));
}
}  // namespace

STABLE_TORCH_LIBRARY(TETRIS_LIBRARY, m) {
    m.def(
        "advance(Tensor weights, Tensor(a!) boards, Tensor(b!) lines, Tensor(c!) games, Tensor(d!) made, int height, "
        "bool clear_on_overflow, int pieces, int piece_count, bool bag, int seed, int first_stream, bool share_streams, "
        "int start, int decisions, int last_game, int blocks, int warps) -> ()");
}
STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CPU, m) { m.impl("advance", TORCH_BOX(&advance)); }
