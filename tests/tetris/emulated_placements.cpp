// placement_features.cu's kernel on emulated threads, as an operator with placement_features.cpp's schema.
#include <torch/csrc/stable/library.h>

#include "cuda_emulation.h"

namespace tetris {
inline void* shared_memory() { return cuda_emulation::block->shared.data(); }
}  // namespace tetris
#include "placement_features.cuh"

namespace {
using namespace tetris;

struct Emulated {
  template <class List>
  static void write(const Tensor&, const FeatureTensors& all) {
    cuda_emulation::launch(static_cast<unsigned>(all.count), WARP,
        sizeof(PlacementMemory<List>), [&] { placements_kernel<List>(all); });
  }
};
using Features = FeatureList<TETRIS_FEATURES>;
}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(TETRIS_LIBRARY, m) { m.def(TETRIS_PLACEMENTS_SCHEMA); }
STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CPU, m) {
  m.impl("placements", TORCH_BOX(&(placements<Features, Emulated>)));
}
