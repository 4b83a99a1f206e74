// The LLTM cell for one element, a batch row and a state, and what a pass of the cell reads and
// writes. Both devices compile these lines.
//
// `Math` brings sigmoid, tanh, elu and elu_slope for A: a number, or a vector register of them.
#pragma once

#include "portable.h"
#include "tensors.h"

namespace cem_tetris::lltm {

// The rows of the weights, and so the columns of the gates, come in this order, `states` of
// each.
constexpr int kGates = 3;
enum Gate { kInput = 0, kOutput = 1, kCandidate = 2 };

template <typename A> struct State {
  A h;
  A cell;
};

template <class Math, typename A>
CEM_TETRIS_FUNCTION State<A> forward(A input, A output, A candidate, A old_cell) {
  const A new_cell = old_cell + Math::elu(candidate) * Math::sigmoid(input);
  return {Math::tanh(new_cell) * Math::sigmoid(output), new_cell};
}

// Gradients with respect to the three sums that enter the gates, and to the old cell.
template <typename A> struct Gradients {
  A gate[kGates];
  A old_cell;
};

template <class Math, typename A> CEM_TETRIS_FUNCTION Gradients<A> backward(
    A input, A output, A candidate, A new_cell, A grad_h, A grad_cell) {
  const A i = Math::sigmoid(input);
  const A o = Math::sigmoid(output);
  const A e = Math::elu(candidate);
  const A t = Math::tanh(new_cell);
  const A d_cell = grad_cell + grad_h * o * (1 - t * t);
  const A slope = Math::elu_slope(candidate, e);
  return {{d_cell * e * (i * (1 - i)), grad_h * t * (o * (1 - o)), d_cell * i * slope}, d_cell};
}

struct CellSizes {
  int64_t batch, inputs, states;

  int64_t columns() const { return inputs + states; }
  int64_t gates() const { return kGates * states; }
  int64_t multiply_adds() const { return batch * gates() * columns(); }
};

// A forward pass. All are contiguous in a small cell; what the BLAS reads need not be in
// others.
struct Forward {
  Tensor input, weights, bias, old_h, old_cell, new_h, new_cell, gates;
};

// A backward pass. But for what the BLAS reads and the gradients of h and cell, all are
// contiguous. Results that are not wanted are empty; that of the old cell is a by-product of
// all others.
struct Backward {
  bool of_input, of_parameters, of_old_h;
  const std::optional<Tensor>&grad_h, &grad_cell;  // none: zeros
  Tensor input, weights, old_h, new_cell, gates, d_gates;
  Tensor d_input, d_weights, d_bias, d_old_h, d_old_cell;
};

}  // namespace cem_tetris::lltm
