// The LLTM cell for one element: a batch row and a state. Both devices compile these lines.
//
// `Math` brings sigmoid, tanh, elu and elu_slope for A: a number, or a vector register of them.
#pragma once

#include "portable.h"

namespace cem_tetris::lltm {

// The rows of the weights, and so the columns of the gates, come in this order, `states` of each.
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

template <class Math, typename A>
CEM_TETRIS_FUNCTION Gradients<A> backward(A input, A output, A candidate, A new_cell, A grad_h, A grad_cell) {
  const A i = Math::sigmoid(input);
  const A o = Math::sigmoid(output);
  const A e = Math::elu(candidate);
  const A t = Math::tanh(new_cell);
  const A d_cell = grad_cell + grad_h * o * (1 - t * t);
  const A slope = Math::elu_slope(candidate, e);
  return {{d_cell * e * (i * (1 - i)), grad_h * t * (o * (1 - o)), d_cell * i * slope}, d_cell};
}

}  // namespace cem_tetris::lltm
