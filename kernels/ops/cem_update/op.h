// The update's schema and its sides.
#pragma once

#include "arguments.h"

#ifndef __CUDACC__
STABLE_TORCH_LIBRARY_FRAGMENT(cem_tetris, m) { m.def(cem_tetris::update::kSchema); }
#endif
STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CEM_TETRIS_DEVICE, m) {
  m.impl("cem_update", TORCH_BOX(&cem_tetris::update::cem_update<cem_tetris::update::run>));
}
