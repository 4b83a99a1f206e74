// One pass over the elements of a cell whose gates torch's BLAS has computed.
//
// Roofline: memory. Forward reads 4 and writes 2 numbers an element, backward reads 6 and writes 4.
// Grid: grid-stride over groups of kPack neighbouring states of a batch row; a thread owns a group. kPack is
// 1 where the sizes or addresses do not allow 16-byte accesses, or where a gradient is strided.
#pragma once

#include "cell.h"
#include "common.cuh"

namespace cem_tetris::lltm {

struct DeviceMath {
  __device__ static float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
  __device__ static double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
  __device__ static float elu(float x) { return x > 0.0f ? x : expm1f(x); }
  __device__ static double elu(double x) { return x > 0.0 ? x : expm1(x); }
  __device__ static float tanh(float x) { return tanhf(x); }
  __device__ static double tanh(double x) { return ::tanh(x); }

  // The derivative of elu at x, where it is `value`.
  template <typename A> __device__ static A elu_slope(A x, A value) { return x > A(0) ? A(1) : value + A(1); }
};

// A gradient with any strides: that of a sum is one number, expanded. None is a gradient of zeros.
template <typename T> struct Gradient {
  const T* data;
  int64_t row_stride;
  int64_t column_stride;

  __device__ compute_t<T> at(int64_t row, int64_t column) const {
    if (data == nullptr) return compute_t<T>(0);
    return static_cast<compute_t<T>>(data[row * row_stride + column * column_stride]);
  }

  bool is_expanded_or_packed(int64_t states, int bytes) const {
    return data == nullptr || (row_stride == 0 && column_stride == 0) ||
           (row_stride == states && column_stride == 1 && is_aligned(data, bytes));
  }
};

template <typename T, int kPack> __device__ inline Pack<T, kPack> load(const T* from) {
  return *reinterpret_cast<const Pack<T, kPack>*>(from);
}

template <typename T, int kPack> __device__ inline void store(T* to, const Pack<T, kPack>& values) {
  *reinterpret_cast<Pack<T, kPack>*>(to) = values;
}

// kPack > 1 only where is_expanded_or_packed.
template <typename T, int kPack>
__device__ inline Pack<T, kPack> load(const Gradient<T>& from, int64_t row, int64_t column) {
  if (kPack > 1 && from.data != nullptr && from.column_stride == 1) {
    return load<T, kPack>(from.data + row * from.row_stride + column);
  }
  Pack<T, kPack> values;
  const T value = static_cast<T>(from.at(row, column));
#pragma unroll
  for (int i = 0; i < kPack; ++i) values.value[i] = value;
  return values;
}

template <typename T, int kPack> __global__ void forward_kernel(
    const T* gates, const T* old_cell, T* new_h, T* new_cell, int64_t states, int64_t groups) {
  using A = compute_t<T>;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < groups; i += step) {
    const int64_t at = i * kPack;
    const T* gate = gates + at + at / states * (kGates - 1) * states;
    const auto input = load<T, kPack>(gate), output = load<T, kPack>(gate + states);
    const auto candidate = load<T, kPack>(gate + 2 * states), before = load<T, kPack>(old_cell + at);
    Pack<T, kPack> h, cell;
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      const auto next = forward<DeviceMath>(static_cast<A>(input.value[j]), static_cast<A>(output.value[j]),
          static_cast<A>(candidate.value[j]), static_cast<A>(before.value[j]));
      h.value[j] = static_cast<T>(next.h);
      cell.value[j] = static_cast<T>(next.cell);
    }
    store(new_h + at, h);
    store(new_cell + at, cell);
  }
}

// What the backward pass of the elements reads and writes.
template <typename T> struct Pointers {
  Gradient<T> grad_h, grad_cell;
  const T *gates, *new_cell;
  T *d_gates, *d_old_cell;
};

template <typename T, int kPack>
__global__ void backward_kernel(Pointers<T> p, int64_t states, int64_t groups) {
  using A = compute_t<T>;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < groups; i += step) {
    const int64_t at = i * kPack;
    const int64_t row = at / states;
    const int64_t gate = at + row * (kGates - 1) * states;
    const auto input = load<T, kPack>(p.gates + gate), output = load<T, kPack>(p.gates + gate + states);
    const auto candidate = load<T, kPack>(p.gates + gate + 2 * states);
    const auto cell = load<T, kPack>(p.new_cell + at);
    const auto of_h = load<T, kPack>(p.grad_h, row, at - row * states);
    const auto of_cell = load<T, kPack>(p.grad_cell, row, at - row * states);
    Pack<T, kPack> d_gate[kGates], d_cell;
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      const auto d = backward<DeviceMath>(static_cast<A>(input.value[j]), static_cast<A>(output.value[j]),
          static_cast<A>(candidate.value[j]), static_cast<A>(cell.value[j]), static_cast<A>(of_h.value[j]),
          static_cast<A>(of_cell.value[j]));
#pragma unroll
      for (int g = 0; g < kGates; ++g) d_gate[g].value[j] = static_cast<T>(d.gate[g]);
      d_cell.value[j] = static_cast<T>(d.old_cell);
    }
#pragma unroll
    for (int g = 0; g < kGates; ++g) store(p.d_gates + gate + g * states, d_gate[g]);
    store(p.d_old_cell + at, d_cell);
  }
}

}  // namespace cem_tetris::lltm
