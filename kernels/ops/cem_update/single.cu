// The kernels of populations that a block holds: see op.h.

#include "single.cuh"

namespace cem_tetris::update {

template void launch_single<uint32_t, float>(const Launcher&, const Job&);
template void launch_single<uint32_t, double>(const Launcher&, const Job&);
template void launch_single<uint64_t, float>(const Launcher&, const Job&);
template void launch_single<uint64_t, double>(const Launcher&, const Job&);

}  // namespace cem_tetris::update
