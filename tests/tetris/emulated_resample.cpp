// resample.cu's kernel on emulated threads, as an operator with its schema.
#include <torch/csrc/stable/library.h>

#include "cuda_emulation.h"

// As shared memory that nobody has written yet: every block finds in it what the last one left.
namespace tetris {
struct ResamplingMemory;
ResamplingMemory& resampling_memory();
}  // namespace tetris
#include "resample.cuh"
#include "resample.h"
tetris::ResamplingMemory& tetris::resampling_memory() {
  static ResamplingMemory memory;
  return memory;
}

namespace {
using namespace tetris;

struct Emulated {
  static void launch(const Tensor&, const Resampling& job, unsigned population) {
    const auto threads = static_cast<unsigned>(resampling_threads(job.streams));
    cuda_emulation::launch(population, threads, 0, [&] { resample_streams(job); });
  }
};
}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(TETRIS_LIBRARY, m) { m.def(TETRIS_RESAMPLE_SCHEMA); }
STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CPU, m) {
  m.impl("resample", TORCH_BOX(&resample<Emulated>));
}
