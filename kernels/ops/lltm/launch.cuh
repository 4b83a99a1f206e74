// The LLTM cell on a GPU. A small cell takes one launch forward, and one or two backward
// (small.cuh). For other cells one pass computes the elements (pointwise.cuh).
#pragma once

#include "pointwise.cuh"
#include "small.cuh"

namespace cem_tetris::lltm {
namespace {

// The largest small cell. Up to this size, a pass takes the GPU less time than the host needs
// for the several launches of the BLAS. In a forward pass a block goes through all columns, in
// a backward pass through the whole batch.
constexpr int64_t kSmallMultiplyAdds = int64_t{1} << 24;
constexpr int64_t kSmallColumns = 512;
constexpr int64_t kSmallBatch = 256;

bool is_small(const CellSizes& sizes, ScalarType) {
  return sizes.batch <= kSmallBatch && sizes.columns() <= kSmallColumns &&
         sizes.multiply_adds() <= kSmallMultiplyAdds;
}

// Returns the grid of the tiles that cover a matrix. The matrix is `wide` by `high`, and a tile
// is `width` by `height`.
dim3 tiles(int64_t wide, int width, int64_t high, int height) {
  return dim3(unsigned(divide_up(wide, width)), unsigned(divide_up(high, height)));
}

// Launches a kernel with one thread per element, which is a batch row and a state. `arguments`
// are those that the kernel takes before the numbers of batch rows and of states.
template <typename... Parameters, typename... Arguments>
void for_elements(const Tensor& like, const CellSizes& sizes, void (*kernel)(Parameters...),
    const Arguments&... arguments) {
  Gpu(Device(like))
      .launch(kernel, tiles(sizes.batch, kRowsAtOnce, sizes.states, kWarp),
          dim3(kWarp, kRowsAtOnce), 0, arguments..., sizes.batch, sizes.states);
}

template <typename T>
void forward_elements(const CellSizes& sizes, const Forward& pass) {
  for_elements(pass.gates, sizes, forward_kernel<T>, const_data<T>(pass.gates),
      const_data<T>(pass.old_cell), mutable_data<T>(pass.new_h),
      mutable_data<T>(pass.new_cell));
}

template <typename T, typename Pass>
Joined<T> joined_of(const CellSizes& sizes, const Pass& pass) {
  return {const_data<T>(pass.old_h), const_data<T>(pass.input), sizes.batch, sizes.inputs,
      sizes.states};
}

template <typename T>
void forward_small(const CellSizes& sizes, const Forward& pass) {
  Gpu(Device(pass.gates))
      .launch(small_forward<T>, tiles(sizes.states, kTileStates, sizes.batch, kTileRows),
          kSmallThreads, 0, joined_of<T>(sizes, pass), const_data<T>(pass.weights),
          const_data<T>(pass.bias), const_data<T>(pass.old_cell), mutable_data<T>(pass.new_h),
          mutable_data<T>(pass.new_cell), mutable_data<T>(pass.gates));
}

template <typename T>
Pointers<T> pointers_of(const Backward& pass) {
  auto gradient = [](const std::optional<Tensor>& tensor) {
    return tensor ? Gradient<T>{const_data<T>(*tensor), tensor->stride(0), tensor->stride(1)}
                  : Gradient<T>{nullptr, 0, 0};
  };
  return {gradient(pass.grad_h), gradient(pass.grad_cell), const_data<T>(pass.gates),
      const_data<T>(pass.new_cell), mutable_data<T>(pass.d_gates),
      mutable_data<T>(pass.d_old_cell)};
}

template <typename T>
void backward_elements(const CellSizes& sizes, const Backward& pass) {
  if (sizes.batch * sizes.states == 0) return;
  for_elements(pass.gates, sizes, backward_kernel<T>, pointers_of<T>(pass));
}

// The backward pass of a small LLTM cell on a GPU. One kernel computes the gradients of the
// sums that enter the gates (d_gates), of the old cell, and of the parameters. If the gradients
// of the parameters are not wanted, another kernel computes only the other ones.
//
// The last kernel computes the gradients of old_h and of the input. They are the columns of one
// product, d_gates * weights. Columns that are not wanted are not computed.
template <typename T>
void backward_small(const CellSizes& sizes, const Backward& pass) {
  Gpu gpu{Device(pass.gates)};
  int64_t columns = sizes.columns();
  if (pass.wants_parameters) {
    gpu.launch(small_parameters<T>, tiles(sizes.states, kTileStates, columns, kColumns),
        kSmallThreads, /*bytes=*/0, joined_of<T>(sizes, pass), pointers_of<T>(pass),
        mutable_data<T>(pass.d_weights), mutable_data<T>(pass.d_bias));
  } else {
    backward_elements<T>(sizes, pass);
  }
  // The first `states` columns of the product belong to old_h, the others to the input.
  int64_t first_column = pass.wants_old_h ? 0 : sizes.states;
  int64_t end_column = pass.wants_input ? columns : sizes.states;
  if (first_column >= end_column) return;
  dim3 grid = tiles(end_column - first_column, kResultColumns, sizes.batch, kTileRows);
  T* d_old_h = pass.wants_old_h ? mutable_data<T>(pass.d_old_h) : nullptr;
  T* d_input = pass.wants_input ? mutable_data<T>(pass.d_input) : nullptr;
  gpu.launch(small_inputs<T>, grid, kTileRows * kResultColumns, /*bytes=*/0,
      const_data<T>(pass.d_gates), const_data<T>(pass.weights), sizes.batch, sizes.inputs,
      sizes.states, first_column, d_old_h, d_input);
}

}  // namespace
}  // namespace cem_tetris::lltm
