// The schemas, and the operators on the CPU.

#include "op.h"

STABLE_TORCH_LIBRARY_FRAGMENT(cem_tetris, m) {
  m.def(cem_tetris::discrete::kSampleSchema);
  m.def(cem_tetris::discrete::kTablesSchema);
}
