// The LLTM cell for one element, which is a batch row and a state, and the tensors that a pass
// of the cell reads and writes. Both devices compile this file.
//
// `Math` provides sigmoid, tanh, elu and elu_slope for the type A: a number, or a vector
// register of numbers.
#pragma once

#include "tensors.h"

namespace cem_tetris::lltm {

// The order of the gates. The weights have `states` rows for each gate. The sums that enter the
// gates have `states` columns for each gate.
constexpr int kGates = 3;
enum Gate { kInput = 0, kOutput = 1, kCandidate = 2 };

template <typename A>
struct State {
  A h;
  A cell;
};

// Returns h' and cell' of one element of the LLTM cell:
//
//   cell' = cell + elu(candidate) sigmoid(input),   h' = tanh(cell') sigmoid(output)
template <class Math, typename A>
CEM_TETRIS_FUNCTION State<A> forward(A input, A output, A candidate, A old_cell) {
  A new_cell = old_cell + Math::elu(candidate) * Math::sigmoid(input);
  return {Math::tanh(new_cell) * Math::sigmoid(output), new_cell};
}

// Gradients with respect to the three sums that enter the gates, and to the old cell.
template <typename A>
struct Gradients {
  A gate[kGates];
  A old_cell;
};

// Returns the gradients of one element of the LLTM cell with respect to the sums that enter its
// three gates and to the old cell. They are the derivatives of the forward pass
//
//   cell' = cell + elu(candidate) sigmoid(input),   h' = tanh(cell') sigmoid(output).
//
// input, output and candidate are the sums that enter the gates, and new_cell is cell'. grad_h
// and grad_cell are the gradients of the loss with respect to h' and cell'. A name such as
// d_input means the gradient with respect to `input`.
template <class Math, typename A>
CEM_TETRIS_FUNCTION Gradients<A> backward(
    A input, A output, A candidate, A new_cell, A grad_h, A grad_cell) {
  A input_gate = Math::sigmoid(input);
  A output_gate = Math::sigmoid(output);
  A activation = Math::elu(candidate);
  A cell_output = Math::tanh(new_cell);
  // The derivatives are 1 - y^2 for y = tanh(x), and y (1 - y) for y = sigmoid(x).
  A d_cell = grad_cell + grad_h * output_gate * (1 - cell_output * cell_output);
  A slope = Math::elu_slope(candidate, activation);
  A d_input = d_cell * activation * (input_gate * (1 - input_gate));
  A d_output = grad_h * cell_output * (output_gate * (1 - output_gate));
  A d_candidate = d_cell * input_gate * slope;
  return {{d_input, d_output, d_candidate}, d_cell};
}

struct CellSizes {
  int64_t batch, inputs, states;

  int64_t columns() const { return inputs + states; }
  int64_t gates() const { return kGates * states; }
  int64_t multiply_adds() const { return batch * gates() * columns(); }
};

// The tensors of a forward pass. In a small cell all are contiguous. In other cells the tensors
// that the BLAS reads may have any strides.
struct Forward {
  Tensor input, weights, bias, old_h, old_cell, new_h, new_cell, gates;
};

// The tensors of a backward pass. All are contiguous, except the tensors that the BLAS reads
// and the gradients of h and cell. Results that are not wanted are empty. The gradient of the
// old cell is always computed, because all other results need it.
struct Backward {
  bool wants_input, wants_parameters, wants_old_h;
  const std::optional<Tensor>& grad_h;  // without a value: zeros
  const std::optional<Tensor>& grad_cell;
  Tensor input, weights, old_h, new_cell, gates, d_gates;
  Tensor d_input, d_weights, d_bias, d_old_h, d_old_cell;
};

}  // namespace cem_tetris::lltm
