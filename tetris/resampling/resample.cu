// The draw of importance splitting on CUDA. It waits for nothing.

#include <torch/csrc/stable/library.h>

#include "common.cuh"
#include "resample.h"

namespace {

using namespace tetris;

struct Cuda {
    static void launch(const Tensor& mass, const Draw& job, unsigned population) {
        const cem_tetris::DeviceGuard guard(mass.get_device_index());
        draw_streams<<<population, draw_threads(job.streams), 0, cem_tetris::current_stream(mass)>>>(job);
        STD_CUDA_KERNEL_LAUNCH_CHECK();
    }
};

}  // namespace

STABLE_TORCH_LIBRARY(TETRIS_LIBRARY, m) { m.def(TETRIS_DRAW_SCHEMA); }
STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CUDA, m) { m.impl("draw", TORCH_BOX(&draw<Cuda>)); }
