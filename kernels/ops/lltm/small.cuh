// A small cell takes one launch forward, and one or two backward, because at these sizes the
// launches take longer than the arithmetic. Tiles of the operands go through shared memory, and
// a tile of the result stays in registers. Sums are float32 (float64 for float64), never TF32.
// Their order depends only on the sizes.
#pragma once

#include "cell.h"
#include "pointwise.cuh"

namespace cem_tetris::lltm {

constexpr int kTileRows = 16;   // batch rows of a block
constexpr int kTileStates = 8;  // states of a block
constexpr int kSmallThreads = kTileRows * kTileStates;

// Loads kPack neighbouring numbers at once.
template <typename T, int kPack>
__device__ inline Pack<T, kPack> load(const T* from) {
  return *reinterpret_cast<const Pack<T, kPack>*>(from);
}

// X = [old_h, input], the matrix that the weights multiply: batch rows of states + inputs
// columns.
template <typename T>
struct Joined {
  const T* old_h;
  const T* input;
  int64_t batch, inputs, states;

  // Returns an element, or 0 outside of the matrix.
  __device__ compute_t<T> at(int64_t row, int64_t column) const {
    if (row >= batch || column >= states + inputs) return compute_t<T>(0);
    return compute_t<T>(
        column < states ? old_h[row * states + column] : input[row * inputs + column - states]);
  }
};

// Kernel: the forward pass of a small cell. Grid: a block has kTileStates states (x) and
// kTileRows batch rows (y). A thread computes one state of one batch row: its three gates, and
// then the new h and cell. A gate is the product of a row of X = [old_h, input] with a row of
// the weights, plus the bias. The block goes through the columns, kDepth at a time, and loads
// two tiles into shared memory:
//
//   x:  one row per batch row, kDepth columns of X
//   w:  one row per gate and state, gate * kTileStates + state, the same columns of the weights
//
// The latency of its loads limits the speed of the kernel.
template <typename T>
__global__ void __launch_bounds__(kSmallThreads) small_forward(Joined<T> joined,
    const T* weights, const T* bias, const T* old_cell, T* new_h, T* new_cell, T* gates) {
  using A = compute_t<T>;
  constexpr int kDepth = sizeof(A) == 8 ? 96 : 160;  // columns at a time
  constexpr int kWide = 16 / sizeof(A);              // columns that a load of 16 bytes has
  constexpr int kStride = kDepth + kWide;            // rows start 16 bytes apart in the banks
  constexpr int kWarps = kSmallThreads / kWarp;
  __shared__ alignas(16) A x[kTileRows][kStride];
  __shared__ alignas(16) A w[kGates * kTileStates][kStride];

  int64_t states = joined.states;
  int64_t columns = joined.states + joined.inputs;
  int64_t first_state = blockIdx.x * int64_t(kTileStates);
  int64_t first_row = blockIdx.y * int64_t(kTileRows);
  int own_state = threadIdx.x % kTileStates;
  int own_row = threadIdx.x / kTileStates;
  int warp = threadIdx.x / kWarp;
  int lane = threadIdx.x % kWarp;
  A sum[kGates] = {};
  for (int64_t start = 0; start < columns; start += kDepth) {
    int depth = int(min(int64_t(kDepth), columns - start));
    // A warp loads neighbouring columns of one row. All loads are in flight before the first
    // value is needed.
    CEM_TETRIS_UNROLL
    for (int r = 0; r < kTileRows / kWarps; ++r) {
      int row = r * kWarps + warp;
      CEM_TETRIS_UNROLL
      for (int k = lane; k < kDepth; k += kWarp) {
        x[row][k] = k < depth ? joined.at(first_row + row, start + k) : A(0);
      }
    }
    CEM_TETRIS_UNROLL
    for (int r = 0; r < kGates * kTileStates / kWarps; ++r) {
      int row = r * kWarps + warp;
      int64_t state = first_state + row % kTileStates;
      int64_t weight_row = row / kTileStates * states + state;
      const T* from = weights + weight_row * columns + start;
      CEM_TETRIS_UNROLL
      for (int k = lane; k < kDepth; k += kWarp) {
        w[row][k] = k < depth && state < states ? A(from[k]) : A(0);
      }
    }
    __syncthreads();  // A thread reads rows of both tiles that other warps have loaded.
#pragma unroll 4
    for (int k = 0; k < kDepth; k += kWide) {
      const auto factor = load<A, kWide>(&x[own_row][k]);
      CEM_TETRIS_UNROLL
      for (int g = 0; g < kGates; ++g) {
        const auto weight = load<A, kWide>(&w[g * kTileStates + own_state][k]);
        CEM_TETRIS_UNROLL
        for (int j = 0; j < kWide; ++j) sum[g] = fma(factor.value[j], weight.value[j], sum[g]);
      }
    }
    __syncthreads();  // The next columns overwrite the tiles.
  }

  int64_t row = first_row + own_row;
  int64_t state = first_state + own_state;
  if (row >= joined.batch || state >= states) return;
  CEM_TETRIS_UNROLL
  for (int g = 0; g < kGates; ++g) {
    sum[g] += A(bias[g * states + state]);
    gates[(row * kGates + g) * states + state] = T(sum[g]);
  }
  int64_t element = row * states + state;
  const auto next =
      forward<DeviceMath>(sum[kInput], sum[kOutput], sum[kCandidate], A(old_cell[element]));
  new_h[element] = T(next.h);
  new_cell[element] = T(next.cell);
}

constexpr int kColumns = 32;  // columns of a block's gradients

// Kernel: the gradients of weights and bias in a small cell. These are sums over the batch of
// the gradients of the elements (the gates and the old cell), which the kernel computes first.
//
// Grid: a block has kTileStates states (x), which are 24 rows of weights, and kColumns columns
// of the weights (y). All blocks of a state compute the gradients of its elements, which costs
// less than another launch. The blocks of the first columns write them, and the gradient of the
// bias.
//
// A thread first computes one element of a batch row, then six rows of the weights' gradient in
// one column. The block goes through the batch, kTileRows rows at a time:
//
//   d:  the gradients of the gates, one row per batch row, kTileStates states of each gate
//   x:  the same batch rows, kColumns columns of X = [old_h, input]
template <typename T>
__global__ void __launch_bounds__(kSmallThreads)
    small_parameters(Joined<T> joined, Pointers<T> elements, T* d_weights, T* d_bias) {
  using A = compute_t<T>;
  constexpr int kWeightRows = kGates * kTileStates;
  constexpr int kOwn = kWeightRows * kColumns / kSmallThreads;
  constexpr int kRowsAtOnce = kSmallThreads / kColumns;
  __shared__ alignas(16) A d[kTileRows][kWeightRows];
  __shared__ A x[kTileRows][kColumns];

  int64_t states = joined.states;
  int64_t columns = joined.states + joined.inputs;
  int64_t first_state = blockIdx.x * int64_t(kTileStates);
  int64_t first_column = blockIdx.y * int64_t(kColumns);
  bool writes = blockIdx.y == 0;
  // The thread's element (state and row), and its part of the weights' gradient (column and
  // group of rows).
  int own_state = threadIdx.x % kTileStates;
  int own_row = threadIdx.x / kTileStates;
  int own_column = threadIdx.x % kColumns;
  int group = threadIdx.x / kColumns;
  int64_t state = first_state + own_state;
  int64_t column = first_column + own_column;
  A sum[kOwn] = {};
  A bias_sum = 0;
  for (int64_t start = 0; start < joined.batch; start += kTileRows) {
    int64_t row = start + own_row;
    Gradients<A> own = {};
    if (row < joined.batch && state < states)
      own = elements.gradients(row, state, states, writes);
    CEM_TETRIS_UNROLL
    for (int g = 0; g < kGates; ++g) d[own_row][g * kTileStates + own_state] = own.gate[g];
    CEM_TETRIS_UNROLL
    for (int r = 0; r < kTileRows / kRowsAtOnce; ++r) {
      int from = r * kRowsAtOnce + group;
      x[from][own_column] = joined.at(start + from, column);
    }
    __syncthreads();
    CEM_TETRIS_UNROLL
    for (int b = 0; b < kTileRows; ++b) {
      CEM_TETRIS_UNROLL
      for (int j = 0; j < kOwn; ++j) {
        sum[j] = fma(d[b][group * kOwn + j], x[b][own_column], sum[j]);
      }
    }
    if (writes && threadIdx.x < kWeightRows) {
      CEM_TETRIS_UNROLL
      for (int b = 0; b < kTileRows; ++b) bias_sum += d[b][threadIdx.x];
    }
    __syncthreads();
  }
  CEM_TETRIS_UNROLL
  for (int j = 0; j < kOwn; ++j) {
    int row = group * kOwn + j;
    int gate = row / kTileStates;
    int64_t to = first_state + row % kTileStates;
    if (to < states && column < columns) {
      d_weights[(gate * states + to) * columns + column] = T(sum[j]);
    }
  }
  int64_t to = first_state + threadIdx.x % kTileStates;
  if (writes && threadIdx.x < kWeightRows && to < states) {
    d_bias[threadIdx.x / kTileStates * states + to] = T(bias_sum);
  }
}

constexpr int kResultColumns = 16;

// Kernel: computes the gradients of old_h and input in a small LLTM cell. They are the product
// of d_gates, batch x (3 * states), with the weights, (3 * states) x (states + inputs). The
// first `states` columns of the product belong to old_h, the others to the input. Columns
// before `first_column` are not computed. The pointer of a result that is not wanted is null.
//
// Grid: a block has kResultColumns columns (x) and kTileRows batch rows (y). A thread computes
// one number of the product, the sum over the gates g of
//
//   d_gates[row][g] * weights[g][column].
//
// The block goes through the gates, kDepth at a time: it loads a tile of each operand into
// shared memory, with zeros beyond the matrices, and multiplies the tiles. Gate k of a tile is
// gate first_gate + k. The latency of the loads limits the speed of the kernel.
template <typename T>
__global__ void __launch_bounds__(kTileRows* kResultColumns)
    small_inputs(const T* d_gates, const T* weights, int64_t batch, int64_t inputs,
        int64_t states, int64_t first_column, T* d_old_h, T* d_input) {
  using A = compute_t<T>;
  constexpr int kDepth = sizeof(A) == 8 ? 64 : 128;
  __shared__ A d_tile[kTileRows][kDepth + 1];  // rows begin in different banks
  __shared__ A w_tile[kDepth][kResultColumns];

  int64_t gates = kGates * states;  // columns of d_gates, and rows of the weights
  int64_t columns = inputs + states;
  int own_column = threadIdx.x % kResultColumns;
  int own_row = threadIdx.x / kResultColumns;
  int64_t column = first_column + blockIdx.x * int64_t(kResultColumns) + own_column;
  int64_t row = blockIdx.y * int64_t(kTileRows) + own_row;
  A sum = 0;
  for (int64_t first_gate = 0; first_gate < gates; first_gate += kDepth) {
    // Every thread loads numbers of its own column of the weights and of its own batch row.
    CEM_TETRIS_UNROLL
    for (int r = 0; r < kDepth / kTileRows; ++r) {
      int k = r * kTileRows + own_row;
      bool is_inside = first_gate + k < gates && column < columns;
      w_tile[k][own_column] =
          is_inside ? A(weights[(first_gate + k) * columns + column]) : A(0);
    }
    CEM_TETRIS_UNROLL
    for (int k = own_column; k < kDepth; k += kResultColumns) {
      bool is_inside = row < batch && first_gate + k < gates;
      d_tile[own_row][k] = is_inside ? A(d_gates[row * gates + first_gate + k]) : A(0);
    }
    __syncthreads();  // A thread reads numbers that other threads have loaded.
#pragma unroll 16
    for (int k = 0; k < kDepth; ++k) sum = fma(d_tile[own_row][k], w_tile[k][own_column], sum);
    __syncthreads();  // The next gates overwrite the tiles.
  }
  if (row >= batch || column >= columns) return;
  if (column < states) {
    if (d_old_h) d_old_h[row * states + column] = T(sum);
  } else if (d_input) {
    d_input[row * inputs + column - states] = T(sum);
  }
}

}  // namespace cem_tetris::lltm
