// step.cu's kernels on emulated threads, as operators with step.cpp's schemas.
#include <torch/csrc/stable/library.h>

#include "cuda_emulation.h"

// As shared memory that nobody has written yet: every block finds in it what the last one left.
namespace tetris {
struct StepMemory;
StepMemory& step_memory();
}  // namespace tetris
#include "step.cuh"
tetris::StepMemory& tetris::step_memory() {
  static StepMemory memory;
  return memory;
}

namespace {
using namespace tetris;

struct Emulated {
  static void step(
      const Tensor&, const Environments& all, const StepTensors& tensors, const Task& task) {
    const auto kernel = tensors.actions == nullptr ? step_kernel<true> : step_kernel<false>;
    cuda_emulation::launch(
        step_blocks(all.count), STEP_THREADS, 0, [&] { kernel({all, tensors, task}); });
  }
};
}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(TETRIS_LIBRARY, m) {
  m.def(TETRIS_STEP_SCHEMA);
  m.def(TETRIS_OBSERVE_SCHEMA);
}
STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CPU, m) {
  m.impl("step", TORCH_BOX(&Operators<Emulated>::step));
  m.impl("observe", TORCH_BOX(&Operators<Emulated>::observe));
}
