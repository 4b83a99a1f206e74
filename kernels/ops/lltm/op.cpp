// The schemas of the LLTM cell, and its CPU side.

#include "op.h"

// `lltm` has an autograd formula (op.py); `lltm_forward` is the same function without one.
STABLE_TORCH_LIBRARY_FRAGMENT(cem_tetris, m) {
  m.def("lltm(Tensor input, Tensor weights, Tensor bias, Tensor old_h, Tensor old_cell) -> "
        "(Tensor new_h, Tensor new_cell, Tensor gates)");
  m.def("lltm_forward(Tensor input, Tensor weights, Tensor bias, Tensor old_h, Tensor old_cell) -> "
        "(Tensor new_h, Tensor new_cell, Tensor gates)");
  m.def("lltm_backward(Tensor? grad_h, Tensor? grad_cell, Tensor input, Tensor weights, Tensor old_h, "
        "Tensor new_cell, Tensor gates, bool of_input, bool of_parameters, bool of_old_h) -> "
        "(Tensor d_input, Tensor d_weights, Tensor d_bias, Tensor d_old_h, Tensor d_old_cell)");
}
