// The operators' sides.
#pragma once

#include "discrete.h"

namespace cem_tetris::discrete {

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CEM_TETRIS_DEVICE, m) {
  m.impl("sample_discrete", TORCH_BOX(&sample_discrete<run>));
  m.impl("update_tables", TORCH_BOX(&update_tables<run>));
}

}  // namespace cem_tetris::discrete
