// The operator that computes the features of all placements, on CUDA. It has the schema of the
// operator in placement_features.cpp, and its results are the same bit for bit. It does not
// wait for the GPU, so it can be captured in a CUDA graph.

#include <torch/csrc/stable/library.h>

#include "gpu.cuh"
#include "placement_features.cuh"

namespace {

using namespace tetris;

struct Cuda {
  template <class List>
  static void write(const Tensor& columns, const FeatureTensors& all) {
    STD_TORCH_CHECK(
        all.count < int64_t{1} << 31, "expected less than 2^31 environments, got ", all.count);
    cem_tetris::Gpu gpu{cem_tetris::Device(columns)};
    constexpr int BYTES = sizeof(PlacementMemory<List>);
    STD_TORCH_CHECK(BYTES <= gpu.block_memory(), "expected a GPU with ", BYTES,
        " bytes of shared memory a block");
    gpu.launch(placements_kernel<List>, unsigned(all.count), WARP, BYTES, all);
  }
};

}  // namespace

using Features = tetris::FeatureList<TETRIS_FEATURES>;
STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CUDA, m) {
  m.impl("placements", TORCH_BOX(&(placements<Features, Cuda>)));
}
