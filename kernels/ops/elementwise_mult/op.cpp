// a * b: the schemas and the CPU kernel.

#include "elementwise.cuh"

#include <torch/csrc/stable/library.h>

#include <tuple>

using namespace cem_tetris;

namespace {

struct Multiply {
  template <typename A>
  void operator()(const A (&in)[2], A (&out)[1]) const {
    out[0] = in[0] * in[1];
  }
};

struct MultiplyBackward {
  template <typename A>
  void operator()(const A (&in)[3], A (&out)[2]) const {
    out[0] = in[0] * in[2];
    out[1] = in[0] * in[1];
  }
};

Tensor elementwise_mult(const Tensor& a, const Tensor& b) {
  check_alike("elementwise_mult", a, b);
  Tensor output = empty_as(a);
  visit_number("elementwise_mult", a.scalar_type(), [&](auto type) {
    elementwise<decltype(type), 2, 1>({in_layout_of(output, a), in_layout_of(output, b)}, {output},
                                      Multiply{});
  });
  return output;
}

// The gradients of a and b, both in the layout of a.
std::tuple<Tensor, Tensor> elementwise_mult_backward(const Tensor& grad, const Tensor& a, const Tensor& b) {
  check_alike("elementwise_mult_backward", grad, a);
  check_alike("elementwise_mult_backward", a, b);
  Tensor grad_a = empty_as(a), grad_b = empty_as(a);
  visit_floating("elementwise_mult_backward", a.scalar_type(), [&](auto type) {
    elementwise<decltype(type), 3, 2>(
        {in_layout_of(grad_a, grad), in_layout_of(grad_a, a), in_layout_of(grad_a, b)}, {grad_a, grad_b},
        MultiplyBackward{});
  });
  return {grad_a, grad_b};
}

}  // namespace

// elementwise_mult_forward is elementwise_mult without the autograd formula, whose Python every call of
// elementwise_mult passes through.
STABLE_TORCH_LIBRARY_FRAGMENT(cem_tetris, m) {
  m.def("elementwise_mult(Tensor a, Tensor b) -> Tensor");
  m.def("elementwise_mult_forward(Tensor a, Tensor b) -> Tensor");
  m.def("elementwise_mult_backward(Tensor grad, Tensor a, Tensor b) -> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CPU, m) {
  m.impl("elementwise_mult", TORCH_BOX(&elementwise_mult));
  m.impl("elementwise_mult_forward", TORCH_BOX(&elementwise_mult));
  m.impl("elementwise_mult_backward", TORCH_BOX(&elementwise_mult_backward));
}
