// The resampling operator on CUDA. It does not wait for the GPU.

#include <torch/csrc/stable/library.h>

#include "gpu.cuh"
#include "resample.cuh"
#include "resample.h"

namespace {

using namespace tetris;

struct Cuda {
  static void launch(const Tensor& weight, const Resampling& job, unsigned population) {
    cem_tetris::Gpu gpu{cem_tetris::Device(weight)};
    gpu.launch(resample_streams, population, resampling_threads(job.streams), 0, job);
  }
};

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(TETRIS_LIBRARY, m) { m.def(TETRIS_RESAMPLE_SCHEMA); }
STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CUDA, m) {
  m.impl("resample", TORCH_BOX(&resample<Cuda>));
}
