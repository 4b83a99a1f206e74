// Registers the operator for the device that this file is compiled for.
#pragma once

#include "arguments.h"

namespace cem_tetris::update {

#ifdef __CUDACC__  // single.cu compiles these at the same time
extern template void launch_single<uint32_t, float>(const Launcher&, const Job&);
extern template void launch_single<uint32_t, double>(const Launcher&, const Job&);
extern template void launch_single<uint64_t, float>(const Launcher&, const Job&);
extern template void launch_single<uint64_t, double>(const Launcher&, const Job&);
#endif
STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CEM_TETRIS_DEVICE, m) {
  m.impl("cem_update", TORCH_BOX(&cem_update<run>));
}

}  // namespace cem_tetris::update
