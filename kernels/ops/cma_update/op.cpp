// The schemas of the operators, and their CPU side.

#include "op.h"

STABLE_TORCH_LIBRARY_FRAGMENT(cem_tetris, m) {
  m.def(cem_tetris::cma::kUpdateSchema);
  m.def(cem_tetris::cma::kDrawSchema);
}
