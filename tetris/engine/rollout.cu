// The rollout operator on CUDA: the schema is rollout.cpp's, the results are bit for bit its own. It waits for nothing.

#include <torch/csrc/stable/library.h>

#include "rollout_warp.cuh"
#include "side_by_side.cuh"

namespace {

using namespace tetris;

// With fewer games a multiprocessor than this, a warp to each is faster. Where all that may come next counts, there is no such kernel.
template <class List> constexpr int64_t FEW = List::has_columns ? 48 : 108;

struct Cuda {
  template <class List> static void play(const RolloutArguments& all, const Tensor& boards) {
    STD_TORCH_CHECK(all.total < int64_t{1} << 31 && all.decisions < int64_t{1} << 31,
        "expected less than 2^31 games and decisions, got ", all.total, " and ", all.decisions);
    const int device = boards.get_device_index();
    const cem_tetris::DeviceGuard guard(device);
    const cudaStream_t stream = cem_tetris::current_stream(boards);
    if constexpr (Lookahead::TETRIS_LOOKAHEAD == Lookahead::none) {
      if (all.total < FEW<List> * cem_tetris::multiprocessors(device)) {
        rollout_warp<List><<<static_cast<unsigned>(all.total), WARP, 0, stream>>>(all);
        STD_CUDA_KERNEL_LAUNCH_CHECK();
        return;
      }
    }
    const bool usual = all.rules.width == MAX_WIDTH;
    (usual ? play_side_by_side<List, MAX_WIDTH> : play_side_by_side<List, 0>)(all, boards, device, stream);
  }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CUDA, m) {
  m.impl("advance", TORCH_BOX(&(advance<Features, Cuda>)));
}
