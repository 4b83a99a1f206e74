// The CPU side of the update.

#include "op.h"

STABLE_TORCH_LIBRARY_FRAGMENT(cem_tetris, m) { m.def(cem_tetris::update::kSchema); }
