// rollout.cu's kernels on emulated threads, as an operator with rollout.cpp's schema and which of the kernels to take.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include "cuda_emulation.h"

namespace tetris {
inline void* shared_memory() { return cuda_emulation::block->shared.data(); }
}
#include "job.cuh"

namespace {
using namespace tetris;
using torch::stable::Tensor;
using Features = FeatureList<TETRIS_FEATURES>;
constexpr int WARPS = 2;

template <int BOARD_WIDTH>
void play(Job job, bool pool, int64_t blocks) {
    if (pool) {
        job.kept = kept_bytes<Features>();
        cuda_emulation::launch(static_cast<unsigned>(blocks), WARPS * WARP, sizeof(PoolMemory) + WARPS * job.kept,
                               [&] { play_pool<Features, BOARD_WIDTH>(job); });
    } else {
        cuda_emulation::launch(job.total, WARP, 0, [&] { play_warp<Features>(job); });
    }
}

void advance(const Tensor& weights, Tensor boards, Tensor lines, Tensor games, int64_t height, bool clear_on_overflow,
             int64_t pieces, int64_t piece_count, bool bag, int64_t seed, int64_t first_stream, bool share_streams,
             int64_t start, int64_t decisions, bool pool, int64_t blocks) {
    std::vector<Game> state(weights.size(0) * boards.size(1));
    const Job job = make_job(weights, boards, lines, games, height, clear_on_overflow, pieces, piece_count, bag, seed,
                             first_stream, share_streams, start, decisions, state.data());
    if (job.rules.width == MAX_WIDTH) play<MAX_WIDTH>(job, pool, blocks);
    else play<0>(job, pool, blocks);
}
}  // namespace

STABLE_TORCH_LIBRARY(TETRIS_LIBRARY, m) {
    m.def(
        "advance(Tensor weights, Tensor(a!) boards, Tensor(b!) lines, Tensor(c!) games, int height, "
        "bool clear_on_overflow, int pieces, int piece_count, bool bag, int seed, int first_stream, bool share_streams, "
        "int start, int decisions, bool pool, int blocks) -> ()");
}
STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CPU, m) { m.impl("advance", TORCH_BOX(&advance)); }
