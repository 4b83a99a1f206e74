// The operators, one source for CPU and CUDA.
#pragma once

#ifdef __CUDACC__
#include "launch.cuh"
#else
#include "cpu.h"
#endif

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CEM_TETRIS_DEVICE, m) {
  using namespace cem_tetris::discrete;
  m.impl("sample_discrete", TORCH_BOX(&sample_discrete<run>));
  m.impl("update_tables", TORCH_BOX(&update_tables<run>));
}
