// Value iteration on the CPU. PyTorch's threads share the boards. TETRIS_LIBRARY is the
// namespace under torch.ops.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include "iteration_tensors.h"

namespace {

using namespace tetris;

struct Cpu {
  template <class Function>
  static void each(const Tensor&, int64_t count, const Function& function) {
    parallel_for(0, count, 256, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) function(i);
    });
  }
};

}  // namespace

#define GAME "int width, int height, bool clear_on_overflow, int pieces"
STABLE_TORCH_LIBRARY_FRAGMENT(TETRIS_LIBRARY, m) {
  m.def("sweep(Tensor boards, Tensor values, Tensor(a!) to, " GAME ") -> ()");
  m.def("expand(Tensor boards, Tensor(a!) marks, " GAME ") -> ()");
  m.def("survive(Tensor boards, Tensor(a!) marks, Tensor(b!) changed, int known, " GAME
        ") -> ()");
  m.def(
      "play(Tensor values, Tensor(a!) lines, int seed, " GAME ", int packed, int count) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CPU, m) {
  m.impl("sweep", TORCH_BOX(&Iteration<Cpu>::sweep));
  m.impl("expand", TORCH_BOX(&Iteration<Cpu>::expand));
  m.impl("survive", TORCH_BOX(&Iteration<Cpu>::survive));
  m.impl("play", TORCH_BOX(&Iteration<Cpu>::play));
}
