// A small cell in one launch each way, for at these sizes launches take the time, not the
// arithmetic. Tiles of the operands go through shared memory, a tile of the result stays in
// registers. Sums are made in float32 (float64 for float64), never in TF32, in an order that
// depends on the sizes alone.
#pragma once

#include <cstdint>

#include "cell.h"
#include "pointwise.cuh"

namespace cem_tetris::lltm {

constexpr int kTileRows = 16;   // batch rows of a block
constexpr int kTileStates = 8;  // states of a block
constexpr int kSmallThreads = kTileRows * kTileStates;

template <typename T, int kPack> __device__ inline Pack<T, kPack> load(const T* from) {
  return *reinterpret_cast<const Pack<T, kPack>*>(from);
}

// An element of X = [old_h, input]; 0 outside.
template <typename T> struct Joined {
  const T *old_h, *input;
  int64_t batch, inputs, states;

  __device__ compute_t<T> at(int64_t row, int64_t column) const {
    if (row >= batch || column >= states + inputs) return compute_t<T>(0);
    return static_cast<compute_t<T>>(
        column < states ? old_h[row * states + column] : input[row * inputs + column - states]);
  }
};

// Grid: x over kTileStates states, y over kTileRows batch rows. A thread owns one state of one
// batch row: its three gates and what follows from them. Bound by the latency of its loads.
template <typename T> __global__ void __launch_bounds__(kSmallThreads)
    small_forward(Joined<T> joined, const T* weights, const T* bias, const T* old_cell,
        T* new_h, T* new_cell, T* gates) {
  using A = compute_t<T>;
  constexpr int kDepth = sizeof(A) == 8 ? 96 : 160;  // columns at a time
  constexpr int kStride = kDepth + 16 / sizeof(A);   // rows start 16 bytes apart in the banks
  constexpr int kWide = 16 / sizeof(A);
  __shared__ alignas(16) A x[kTileRows][kStride];
  __shared__ alignas(16) A w[kGates * kTileStates][kStride];

  const int64_t states = joined.states, columns = joined.states + joined.inputs;
  const int64_t first_state = blockIdx.x * static_cast<int64_t>(kTileStates);
  const int64_t first_row = blockIdx.y * static_cast<int64_t>(kTileRows);
  const int lane = threadIdx.x % kTileStates, line = threadIdx.x / kTileStates;
  A sum[kGates] = {};
  for (int64_t start = 0; start < columns; start += kDepth) {
    const int depth = static_cast<int>(min(static_cast<int64_t>(kDepth), columns - start));
    // A warp loads neighbouring columns of one row; all loads are under way before the first is
    // needed.
    constexpr int kWarps = kSmallThreads / 32;
    const int warp = threadIdx.x / 32, within = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < kTileRows / kWarps; ++r) {
      const int row = r * kWarps + warp;
#pragma unroll
      for (int k = within; k < kDepth; k += 32) {
        x[row][k] = k < depth ? joined.at(first_row + row, start + k) : A(0);
      }
    }
#pragma unroll
    for (int r = 0; r < kGates * kTileStates / kWarps; ++r) {
      const int row = r * kWarps + warp;
      const int64_t state = first_state + row % kTileStates;
      const T* from = weights + (row / kTileStates * states + state) * columns + start;
#pragma unroll
      for (int k = within; k < kDepth; k += 32) {
        w[row][k] = k < depth && state < states ? static_cast<A>(from[k]) : A(0);
      }
    }
    __syncthreads();
#pragma unroll 4
    for (int k = 0; k < kDepth; k += kWide) {
      const auto factor = load<A, kWide>(&x[line][k]);
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
        const auto weight = load<A, kWide>(&w[g * kTileStates + lane][k]);
#pragma unroll
        for (int j = 0; j < kWide; ++j) sum[g] = fma(factor.value[j], weight.value[j], sum[g]);
      }
    }
    __syncthreads();
  }

  const int64_t row = first_row + line, state = first_state + lane;
  if (row >= joined.batch || state >= states) return;
#pragma unroll
  for (int g = 0; g < kGates; ++g) {
    sum[g] += static_cast<A>(bias[g * states + state]);
    gates[(row * kGates + g) * states + state] = static_cast<T>(sum[g]);
  }
  const int64_t at = row * states + state;
  const auto next = forward<DeviceMath>(
      sum[kInput], sum[kOutput], sum[kCandidate], static_cast<A>(old_cell[at]));
  new_h[at] = static_cast<T>(next.h);
  new_cell[at] = static_cast<T>(next.cell);
}

// Gradients of weights and bias, and of the elements on the way. Grid: x over kTileStates
// states (24 weight rows), y over kColumns columns. The elements are computed again by every
// block of a state, which costs less than a launch; the blocks of the first columns write them
// and the gradient of the bias. A thread owns six weight rows of one column. The batch is
// walked kTileRows rows at a time.
constexpr int kColumns = 32;

template <typename T> __global__ void __launch_bounds__(kSmallThreads)
    small_parameters(Joined<T> joined, Pointers<T> elements, T* d_weights, T* d_bias) {
  using A = compute_t<T>;
  constexpr int kWeightRows = kGates * kTileStates;
  constexpr int kOwn = kWeightRows * kColumns / kSmallThreads;
  __shared__ alignas(16) A d[kTileRows][kWeightRows];
  __shared__ A x[kTileRows][kColumns];

  const int64_t states = joined.states, columns = joined.states + joined.inputs;
  const int64_t first_state = blockIdx.x * static_cast<int64_t>(kTileStates);
  const int64_t first_column = blockIdx.y * static_cast<int64_t>(kColumns);
  const int lane = threadIdx.x % kTileStates, line = threadIdx.x / kTileStates;
  const int column = threadIdx.x % kColumns, group = threadIdx.x / kColumns;
  const int64_t state = first_state + lane;
  A sum[kOwn] = {};
  A bias_sum = 0;
  for (int64_t start = 0; start < joined.batch; start += kTileRows) {
    const int64_t row = start + line;
    Gradients<A> own = {};
    if (row < joined.batch && state < states)
      own = elements.gradients(row, state, states, blockIdx.y == 0);
#pragma unroll
    for (int g = 0; g < kGates; ++g) d[line][g * kTileStates + lane] = own.gate[g];
#pragma unroll
    for (int r = 0; r < kTileRows * kColumns / kSmallThreads; ++r) {
      const int from = r * (kSmallThreads / kColumns) + group;
      x[from][column] = joined.at(start + from, first_column + column);
    }
    __syncthreads();
#pragma unroll
    for (int b = 0; b < kTileRows; ++b) {
#pragma unroll
      for (int j = 0; j < kOwn; ++j) sum[j] = fma(d[b][group * kOwn + j], x[b][column], sum[j]);
    }
    if (blockIdx.y == 0 && threadIdx.x < kWeightRows) {
#pragma unroll
      for (int b = 0; b < kTileRows; ++b) bias_sum += d[b][threadIdx.x];
    }
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < kOwn; ++j) {
    const int row = group * kOwn + j;
    const int64_t to = first_state + row % kTileStates;
    if (to < states && first_column + column < columns) {
      d_weights[(row / kTileStates * states + to) * columns + first_column + column] =
          static_cast<T>(sum[j]);
    }
  }
  const int64_t to = first_state + threadIdx.x % kTileStates;
  if (blockIdx.y == 0 && threadIdx.x < kWeightRows && to < states) {
    d_bias[threadIdx.x / kTileStates * states + to] = static_cast<T>(bias_sum);
  }
}

// Gradients of old_h and input: d_gates times the weights. Columns of one that is not wanted
// are left out. Grid: x over kResultColumns columns, y over kTileRows batch rows; a thread owns
// one number. Bound by the latency of kDepth weight rows at a time.
constexpr int kResultColumns = 16;

template <typename T> __global__ void __launch_bounds__(kTileRows* kResultColumns)
    small_inputs(const T* d_gates, const T* weights, int64_t batch, int64_t inputs,
        int64_t states, int64_t first, T* d_old_h, T* d_input) {
  using A = compute_t<T>;
  constexpr int kDepth = sizeof(A) == 8 ? 64 : 128;
  __shared__ A d[kTileRows][kDepth + 1];
  __shared__ A w[kDepth][kResultColumns];

  const int64_t rows = kGates * states, columns = inputs + states;
  const int lane = threadIdx.x % kResultColumns, line = threadIdx.x / kResultColumns;
  const int64_t column = first + blockIdx.x * static_cast<int64_t>(kResultColumns) + lane;
  const int64_t first_row = blockIdx.y * static_cast<int64_t>(kTileRows);
  const int64_t row = first_row + line;
  A sum = 0;
  for (int64_t start = 0; start < rows; start += kDepth) {
#pragma unroll
    for (int r = 0; r < kDepth / kTileRows; ++r) {
      const int k = r * kTileRows + line;
      const bool inside = start + k < rows && column < columns;
      w[k][lane] = inside ? static_cast<A>(weights[(start + k) * columns + column]) : A(0);
    }
#pragma unroll
    for (int k = lane; k < kDepth; k += kResultColumns) {
      d[line][k] = row < batch && start + k < rows
                       ? static_cast<A>(d_gates[row * rows + start + k])
                       : A(0);
    }
    __syncthreads();
#pragma unroll 16
    for (int k = 0; k < kDepth; ++k) sum = fma(d[line][k], w[k][lane], sum);
    __syncthreads();
  }
  if (row >= batch || column >= columns) return;
  if (column < states) {
    if (d_old_h != nullptr) d_old_h[row * states + column] = static_cast<T>(sum);
  } else if (d_input != nullptr) {
    d_input[row * inputs + column - states] = static_cast<T>(sum);
  }
}

}  // namespace cem_tetris::lltm
