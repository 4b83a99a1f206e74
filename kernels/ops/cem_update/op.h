// The update, one source for CPU and CUDA.
#pragma once

#ifdef __CUDACC__
#include "launch.cuh"
#else
#include "cpu.h"
#endif

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CEM_TETRIS_DEVICE, m) {
  m.impl("cem_update", TORCH_BOX(&cem_tetris::update::cem_update<cem_tetris::update::run>));
}
