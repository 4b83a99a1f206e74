// The rollout operator on CUDA: the schema is rollout.cpp's, the results are bit for bit its own.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>

#include "arguments.h"
#include "common.cuh"
#include "job.cuh"

namespace {

using namespace tetris;
using torch::stable::Tensor;
using Features = FeatureList<TETRIS_FEATURES>;

// With fewer games a multiprocessor than this, a warp to each is faster.
constexpr int64_t FEW = 108;

int block_memory(int device) {
    int bytes = 0;
    STD_CUDA_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    return bytes;
}

// A thread a game, in as many warps as there is memory for.
template <int BOARD_WIDTH>
void launch_pool(Job job, int device, cudaStream_t stream) {
    constexpr auto kernel = play_pool<Features, BOARD_WIDTH>;
    job.kept = kept_bytes<Features>();
    const int room = block_memory(device) - static_cast<int>(sizeof(PoolMemory));
    const int warps = Gang::whole(std::min(MAX_WARPS, room / job.kept));
    STD_TORCH_CHECK(warps > 0, "expected a GPU with ", sizeof(PoolMemory) + job.kept, " bytes of shared memory a block");
    const int bytes = static_cast<int>(sizeof(PoolMemory)) + warps * job.kept;
    STD_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    kernel<<<static_cast<unsigned>(cem_tetris::multiprocessors(device)), warps * WARP, bytes, stream>>>(job);
    STD_CUDA_KERNEL_LAUNCH_CHECK();
}

// A warp a game.
void launch_warps(const Job& job, cudaStream_t stream) {
    play_warp<Features><<<job.total, WARP, 0, stream>>>(job);
    STD_CUDA_KERNEL_LAUNCH_CHECK();
}

// Plays decisions start .. start + decisions - 1 on every stream; the arguments are rollout.cpp's. It waits for nothing:
// `boards`, `lines`, `games` and `made` are carried on when the stream of the device comes to it.
void advance(const Tensor& weights, Tensor boards, Tensor lines, Tensor games, Tensor made, int64_t height,
             bool clear_on_overflow, int64_t pieces, int64_t piece_count, bool bag, int64_t seed, int64_t first_stream,
             bool share_streams, int64_t start, int64_t decisions, int64_t last_game) {
    check_arguments<Features>(weights, boards, lines, games, made, height, start, decisions, last_game);
    const int device = boards.get_device_index();
    STD_TORCH_CHECK(
        weights.get_device_index() == device && lines.get_device_index() == device &&
            games.get_device_index() == device && made.get_device_index() == device,
        "expected all tensors on one device");
    const int64_t population = weights.size(0), streams = boards.size(1), total = population * streams;
    if (decisions == 0 || total == 0) return;
    STD_TORCH_CHECK(total < int64_t{1} << 31 && decisions < int64_t{1} << 31,
                    "expected less than 2^31 games and decisions, got ", total, " and ", decisions);
    const cem_tetris::DeviceGuard guard(device);
    const bool few = total < FEW * cem_tetris::multiprocessors(device);
    const Tensor state =
        torch::stable::new_empty(boards, {few ? 0 : total, static_cast<int64_t>(sizeof(Game) / sizeof(int32_t))});
    auto* states = few ? nullptr : static_cast<Game*>(static_cast<void*>(state.mutable_data_ptr<int32_t>()));
    const Job job = make_job(weights, boards, lines, games, made, height, clear_on_overflow, pieces, piece_count, bag, seed,
                             first_stream, share_streams, start, decisions, last_game, states);
    const cudaStream_t stream = cem_tetris::current_stream(boards);
    if (few) launch_warps(job, stream);
    else if (job.rules.width == MAX_WIDTH) launch_pool<MAX_WIDTH>(job, device, stream);
    else launch_pool<0>(job, device, stream);
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CUDA, m) { m.impl("advance", TORCH_BOX(&advance)); }
