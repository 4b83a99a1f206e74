// The operators on a GPU: launch.cuh, on the current stream.

#include "launch.cuh"
#include "op.h"

namespace cem_tetris::cma {
namespace {

void run(const Call& call, ScalarType type, Device device) {
  launch(update::Gpu(device), call, type, device);
}
void run(const Draw& call, ScalarType type, Device device) { launch(update::Gpu(device), call, type); }

}  // namespace
}  // namespace cem_tetris::cma

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CEM_TETRIS_DEVICE, m) {
  m.impl("cma_update", TORCH_BOX(&cem_tetris::cma::cma_update<cem_tetris::cma::run>));
  m.impl("draw_correlated", TORCH_BOX(&cem_tetris::cma::draw_correlated<cem_tetris::cma::run>));
}
