// The schemas of the elementwise operators, and their CPU side.

#include "op.h"

STABLE_TORCH_LIBRARY_FRAGMENT(cem_tetris, m) {
  m.def("sigmoid(Tensor x) -> Tensor");
  m.def("sigmoid_forward(Tensor x) -> Tensor");
  m.def("sigmoid_backward(Tensor grad, Tensor y) -> Tensor");
  m.def("vector_add(Tensor a, Tensor b) -> Tensor");
  m.def("vector_add_forward(Tensor a, Tensor b) -> Tensor");
  m.def("elementwise_mult(Tensor a, Tensor b) -> Tensor");
  m.def("elementwise_mult_forward(Tensor a, Tensor b) -> Tensor");
  m.def("elementwise_mult_backward(Tensor grad, Tensor a, Tensor b) -> (Tensor, Tensor)");
}
