// The operators, one source for CPU and CUDA.
#pragma once

#ifdef __CUDACC__
#include "launch.cuh"
#include "tables.cuh"
#else
#include "cpu.h"
#include "tables_cpu.h"
#endif

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CEM_TETRIS_DEVICE, m) {
  m.impl(
      "sample_categorical", TORCH_BOX(&cem_tetris::discrete::sample_categorical<cem_tetris::discrete::run>));
  m.impl(
      "sample_permutation", TORCH_BOX(&cem_tetris::discrete::sample_permutation<cem_tetris::discrete::run>));
  m.impl("rank_weights", TORCH_BOX(&cem_tetris::discrete::rank_weights<cem_tetris::discrete::run>));
  m.impl("update_tables", TORCH_BOX(&cem_tetris::discrete::update_tables<cem_tetris::discrete::run>));
}
