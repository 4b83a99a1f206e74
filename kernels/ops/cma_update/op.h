// The operators' sides.
#pragma once

#include "arguments.h"

namespace cem_tetris::cma {

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CEM_TETRIS_DEVICE, m) {
  m.impl("cma_update", TORCH_BOX(&cma_update<run>));
  m.impl("draw_correlated", TORCH_BOX(&draw_correlated<run>));
}

}  // namespace cem_tetris::cma
