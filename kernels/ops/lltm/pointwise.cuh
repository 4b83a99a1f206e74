// One pass over the elements of a cell whose gates torch's BLAS has computed.
//
// Roofline: the memory limits the speed. For each element the forward pass reads 4 and writes 2
// numbers; the backward pass reads 6 and writes 4. Grid: a block has kRowsAtOnce batch rows (x)
// and the 32 states of a warp (y). A thread has one element.
#pragma once

#include "cell.h"
#include "gpu.cuh"

namespace cem_tetris::lltm {

struct DeviceMath {
  template <typename A>
  __device__ static A sigmoid(A x) {
    return A(1) / (A(1) + exp(-x));
  }
  template <typename A>
  __device__ static A elu(A x) {
    return x > A(0) ? x : expm1(x);
  }
  template <typename A>
  __device__ static A tanh(A x) {
    return ::tanh(x);
  }
  // Returns the derivative of elu at x, where elu has the value `value`.
  template <typename A>
  __device__ static A elu_slope(A x, A value) {
    return x > A(0) ? A(1) : value + A(1);
  }
};

// A gradient with any strides; the gradient of a sum, for example, is one number that is
// expanded. A gradient without data consists of zeros.
template <typename T>
struct Gradient {
  const T* data;
  int64_t row_stride;
  int64_t column_stride;

  __device__ compute_t<T> at(int64_t row, int64_t column) const {
    if (!data) return compute_t<T>(0);
    return compute_t<T>(data[row * row_stride + column * column_stride]);
  }
};

constexpr int kWarp = 32;
constexpr int kRowsAtOnce = 8;

// The batch row and the state of a thread.
struct Element {
  int64_t row, state;
  __device__ Element()
      : row(blockIdx.x * int64_t(kRowsAtOnce) + threadIdx.y),
        state(blockIdx.y * int64_t(kWarp) + threadIdx.x) {}
};

// Kernel: computes the new h and cell of the LLTM cell, batch x states, with one thread for
// each batch row and state. `gates`, batch x (3 * states), are the sums that enter the input
// gate, the output gate and the candidate, in this order.
template <typename T>
__global__ void forward_kernel(
    const T* gates, const T* old_cell, T* new_h, T* new_cell, int64_t batch, int64_t states) {
  using A = compute_t<T>;
  Element own;
  if (own.row >= batch || own.state >= states) return;
  int64_t element = own.row * states + own.state;
  // A row of `gates` has `states` numbers for each gate, so the three gates of a state are
  // `states` numbers apart.
  const T* gate = gates + own.row * kGates * states + own.state;
  const auto next = forward<DeviceMath>(
      A(gate[0]), A(gate[states]), A(gate[2 * states]), A(old_cell[element]));
  new_h[element] = T(next.h);
  new_cell[element] = T(next.cell);
}

// The arrays that the backward pass of the elements reads and writes.
template <typename T>
struct Pointers {
  Gradient<T> grad_h, grad_cell;
  const T* gates;
  const T* new_cell;
  T* d_gates;
  T* d_old_cell;

  // Returns the gradients of the LLTM cell for one batch row and state, with respect to the
  // sums that enter the three gates and to the old cell. If `writes` is true, also writes them
  // to d_gates and d_old_cell. `gates`, batch x (3 * states), are the sums that enter the input
  // gate, the output gate and the candidate, in this order.
  __device__ Gradients<compute_t<T>> gradients(
      int64_t row, int64_t state, int64_t states, bool writes) const {
    using A = compute_t<T>;
    int64_t element = row * states + state;
    int64_t first_gate = row * kGates * states + state;  // the others are `states` apart
    A input(gates[first_gate]);
    A output(gates[first_gate + states]);
    A candidate(gates[first_gate + 2 * states]);
    const auto result = backward<DeviceMath>(input, output, candidate, A(new_cell[element]),
        grad_h.at(row, state), grad_cell.at(row, state));
    if (writes) {
      d_old_cell[element] = T(result.old_cell);
      CEM_TETRIS_UNROLL
      for (int g = 0; g < kGates; ++g) d_gates[first_gate + g * states] = T(result.gate[g]);
    }
    return result;
  }
};

template <typename T>
__global__ void backward_kernel(Pointers<T> elements, int64_t batch, int64_t states) {
  Element own;
  if (own.row < batch && own.state < states)
    elements.gradients(own.row, own.state, states, /*writes=*/true);
}

}  // namespace cem_tetris::lltm
