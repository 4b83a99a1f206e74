// The operators' schemas and their sides.
#pragma once

#include "discrete.h"

#ifndef __CUDACC__
STABLE_TORCH_LIBRARY_FRAGMENT(cem_tetris, m) {
  m.def(cem_tetris::discrete::kSampleSchema);
  m.def(cem_tetris::discrete::kTablesSchema);
}
#endif
STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CEM_TETRIS_DEVICE, m) {
  using namespace cem_tetris::discrete;
  m.impl("sample_discrete", TORCH_BOX(&sample_discrete<run>));
  m.impl("update_tables", TORCH_BOX(&update_tables<run>));
}
