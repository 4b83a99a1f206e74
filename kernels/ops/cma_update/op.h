// The operators' schemas and their sides.
#pragma once

#include "arguments.h"

#ifndef __CUDACC__
STABLE_TORCH_LIBRARY_FRAGMENT(cem_tetris, m) {
  m.def(cem_tetris::cma::kUpdateSchema);
  m.def(cem_tetris::cma::kDrawSchema);
}
#endif
STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CEM_TETRIS_DEVICE, m) {
  m.impl("cma_update", TORCH_BOX(&cem_tetris::cma::cma_update<cem_tetris::cma::run>));
  m.impl("draw_correlated", TORCH_BOX(&cem_tetris::cma::draw_correlated<cem_tetris::cma::run>));
}
