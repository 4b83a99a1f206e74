// The operators, one source for CPU and CUDA.
#pragma once

#ifdef __CUDACC__
#include "launch.cuh"
#else
#include "cpu.h"
#endif

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CEM_TETRIS_DEVICE, m) {
  using namespace cem_tetris::discrete;
  m.impl("sample_categorical", TORCH_BOX(&sample_categorical<run>));
  m.impl("sample_permutation", TORCH_BOX(&sample_permutation<run>));
  m.impl("update_tables", TORCH_BOX(&update_tables<run>));
}
