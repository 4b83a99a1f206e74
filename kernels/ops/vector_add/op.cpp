// a + b: the schemas and the CPU kernel.

#include "elementwise.cuh"

#include <torch/csrc/stable/library.h>

using namespace cem_tetris;

namespace {

struct Add {
  template <typename A>
  void operator()(const A (&in)[2], A (&out)[1]) const {
    out[0] = in[0] + in[1];
  }
};

Tensor vector_add(const Tensor& a, const Tensor& b) {
  check_alike("vector_add", a, b);
  Tensor output = empty_as(a);
  visit_number("vector_add", a.scalar_type(), [&](auto type) {
    elementwise<decltype(type), 2, 1>({in_layout_of(output, a), in_layout_of(output, b)}, {output},
                                      Add{});
  });
  return output;
}

}  // namespace

// vector_add_forward is vector_add without the autograd formula, whose Python every call of vector_add passes
// through.
STABLE_TORCH_LIBRARY_FRAGMENT(cem_tetris, m) {
  m.def("vector_add(Tensor a, Tensor b) -> Tensor");
  m.def("vector_add_forward(Tensor a, Tensor b) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CPU, m) {
  m.impl("vector_add", TORCH_BOX(&vector_add));
  m.impl("vector_add_forward", TORCH_BOX(&vector_add));
}
