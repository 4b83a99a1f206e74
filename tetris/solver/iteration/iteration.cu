// Value iteration on CUDA, with a thread per board or per game. A sweep reads a sector of 32
// bytes for nearly every placement. So the bandwidth of the memory limits its speed, or that of
// the L2 cache if the values fit into it.

#include <torch/csrc/stable/library.h>

#include "gpu.cuh"
#include "iteration_tensors.h"

namespace {

using namespace tetris;

constexpr int THREADS = 256;

template <class Function>
__global__ void __launch_bounds__(THREADS)
    each_kernel(int64_t count, const __grid_constant__ Function function) {
  int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (i < count) function(i);
}

struct Cuda {
  template <class Function>
  static void each(const Tensor& like, int64_t count, const Function& function) {
    if (count == 0) return;
    auto blocks = unsigned((count + THREADS - 1) / THREADS);
    cem_tetris::Gpu(cem_tetris::Device(like))
        .launch(each_kernel<Function>, blocks, THREADS, 0, count, function);
  }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CUDA, m) {
  m.impl("sweep", TORCH_BOX(&Iteration<Cuda>::sweep));
  m.impl("expand", TORCH_BOX(&Iteration<Cuda>::expand));
  m.impl("survive", TORCH_BOX(&Iteration<Cuda>::survive));
  m.impl("play", TORCH_BOX(&Iteration<Cuda>::play));
}
