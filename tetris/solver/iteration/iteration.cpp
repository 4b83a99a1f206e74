// Value iteration on the CPU: boards spread over torch's threads. TETRIS_LIBRARY is the namespace under torch.ops.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include "iteration_tensors.h"

namespace {

using namespace tetris;

struct Cpu {
  template <class Function> static void each(const Tensor&, int64_t count, const Function& function) {
    torch::stable::parallel_for(0, count, 256, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) function(i);
    });
  }
};

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(TETRIS_LIBRARY, m) {
  m.def(TETRIS_SOLVER_SWEEP);
  m.def(TETRIS_SOLVER_EXPAND);
  m.def(TETRIS_SOLVER_SURVIVE);
  m.def(TETRIS_SOLVER_PLAY);
}

STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CPU, m) {
  m.impl("sweep", TORCH_BOX(&Iteration<Cpu>::sweep));
  m.impl("expand", TORCH_BOX(&Iteration<Cpu>::expand));
  m.impl("survive", TORCH_BOX(&Iteration<Cpu>::survive));
  m.impl("play", TORCH_BOX(&Iteration<Cpu>::play));
}
