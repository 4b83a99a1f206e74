// The step operators of the vector environment on CUDA. They have the schemas of the operators
// in step.cpp, and their results are the same bit for bit. They do not wait for the GPU, so
// they can be captured in a CUDA graph.

#include <torch/csrc/stable/library.h>

#include "gpu.cuh"
#include "step.cuh"

namespace {

using namespace tetris;

struct Cuda {
  static void step(const Tensor& board, const Environments& all, const StepTensors& tensors,
      const Task& task) {
    cem_tetris::Gpu gpu{cem_tetris::Device(board)};
    auto kernel = tensors.actions == nullptr ? step_kernel<true> : step_kernel<false>;
    kernel<<<step_blocks(all.count), STEP_THREADS, 0, gpu.stream>>>({all, tensors, task});
    cem_tetris::check(cudaGetLastError());
  }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CUDA, m) {
  m.impl("step", TORCH_BOX(&Operators<Cuda>::step));
  m.impl("observe", TORCH_BOX(&Operators<Cuda>::observe));
}
