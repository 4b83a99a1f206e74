// placement_features.cu's kernel on emulated threads, as an operator with placement_features.cpp's schema.
#include <torch/csrc/stable/library.h>

#include "cuda_emulation.h"

// As shared memory that nobody has written yet: every block finds in it what the last one left.
namespace tetris {
template <class List> struct PlacementMemory;
template <class List> PlacementMemory<List>& placement_memory();
}  // namespace tetris
#include "placement_features.cuh"
template <class List> tetris::PlacementMemory<List>& tetris::placement_memory() {
  static PlacementMemory<List> memory;
  return memory;
}

namespace {
using namespace tetris;

struct Emulated {
  template <class List> static void write(const Tensor&, const FeatureTensors& all) {
    cuda_emulation::launch(static_cast<unsigned>(all.count), WARP, 0, [&] { placements_kernel<List>(all); });
  }
};
using Features = FeatureList<TETRIS_FEATURES>;
}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(TETRIS_LIBRARY, m) { m.def(TETRIS_PLACEMENTS_SCHEMA); }
STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CPU, m) {
  m.impl("placements", TORCH_BOX(&(placements<Features, Emulated>)));
}
