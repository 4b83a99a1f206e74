// The operators, one source for CPU and CUDA.
#pragma once

#include "arguments.h"

#ifdef __CUDACC__
#include "launch.cuh"
#else
#include "cpu.h"
#endif

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CEM_TETRIS_DEVICE, m) {
  m.impl("cma_update", TORCH_BOX(&cem_tetris::cma::cma_update<cem_tetris::cma::run>));
  m.impl("draw_correlated", TORCH_BOX(&cem_tetris::cma::draw_correlated<cem_tetris::cma::run>));
}
