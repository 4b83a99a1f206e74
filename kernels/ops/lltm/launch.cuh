// The LLTM cell on a GPU. A small cell is one launch forward and one or two backward (small.cuh); of the
// others one pass makes the elements (pointwise.cuh).
#pragma once

#include "host.h"
#include "pointwise.cuh"
#include "small.cuh"

namespace cem_tetris::lltm {
namespace {

// Up to here a pass takes the GPU less time than the BLAS's several launches take the host. A block walks all
// columns forward, and the whole batch backward.
constexpr int64_t kSmallMultiplyAdds = int64_t{1} << 24;
constexpr int64_t kSmallColumns = 512;
constexpr int64_t kSmallBatch = 256;
constexpr int kThreads = 256;
constexpr int kBlocksPerMultiprocessor = 8;

bool is_small(const CellSizes& sizes, ScalarType) {
  return sizes.batch <= kSmallBatch && sizes.columns() <= kSmallColumns &&
         sizes.multiply_adds() <= kSmallMultiplyAdds;
}

// Where the work is done; the device is the current one meanwhile.
struct Place {
  int device;
  DeviceGuard guard;
  cudaStream_t stream;
  explicit Place(const Tensor& input)
      : device(input.get_device_index()), guard(device), stream(current_stream(input)) {}
};

dim3 tiles(int64_t wide, int width, int64_t high, int height) {
  return dim3(static_cast<unsigned>(divide_up(wide, width)), static_cast<unsigned>(divide_up(high, height)));
}

// Calls f with the number of elements of one 16-byte access and of such groups of states, or with 1, and a
// grid for them.
template <typename T, class F, typename... Pointers>
void in_packs(const Place& place, const CellSizes& sizes, bool wide, const F& f,
              const Pointers*... pointers) {
  constexpr int kPack = 16 / static_cast<int>(sizeof(T));
  const auto call = [&](auto pack) {
    const int64_t groups = sizes.batch * sizes.states / pack.value;
    f(pack, groups, grid_size(groups, kThreads, place.device, kBlocksPerMultiprocessor));
    STD_CUDA_KERNEL_LAUNCH_CHECK();
  };
  if (wide && sizes.states % kPack == 0 && (is_aligned(pointers, 16) && ...)) {
    call(std::integral_constant<int, kPack>{});
  } else {
    call(std::integral_constant<int, 1>{});
  }
}

template <typename T>
void forward_elements(const Place& place, const CellSizes& sizes, const Tensor& gates, const Tensor& old_cell,
                      const Tensor& new_h, const Tensor& new_cell) {
  const T *gate = const_data<T>(gates), *before = const_data<T>(old_cell);
  T *h = mutable_data<T>(new_h), *cell = mutable_data<T>(new_cell);
  in_packs<T>(
      place, sizes, true,
      [&](auto pack, int64_t groups, unsigned blocks) {
        forward_kernel<T, pack.value>
            <<<blocks, kThreads, 0, place.stream>>>(gate, before, h, cell, sizes.states, groups);
      },
      gate, before, h, cell);
}

template <typename T>
void forward_small(const Place& place, const CellSizes& sizes, const Tensor& input, const Tensor& weights,
                   const Tensor& bias, const Tensor& old_h, const Tensor& old_cell, const Tensor& new_h,
                   const Tensor& new_cell, const Tensor& gates) {
  const Joined<T> joined{const_data<T>(old_h), const_data<T>(input), sizes.batch, sizes.inputs, sizes.states};
  const dim3 grid = tiles(sizes.states, kTileStates, sizes.batch, kTileRows);
  small_forward<T><<<grid, kSmallThreads, 0, place.stream>>>(
      joined, const_data<T>(weights), const_data<T>(bias), const_data<T>(old_cell), mutable_data<T>(new_h),
      mutable_data<T>(new_cell), mutable_data<T>(gates));
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

template <typename T>
Pointers<T> pointers_of(const Elements& elements) {
  const auto gradient = [](const std::optional<Tensor>& tensor) {
    return tensor ? Gradient<T>{const_data<T>(*tensor), tensor->stride(0), tensor->stride(1)}
                  : Gradient<T>{nullptr, 0, 0};
  };
  return {gradient(elements.grad_h),
          gradient(elements.grad_cell),
          const_data<T>(elements.gates),
          const_data<T>(elements.new_cell),
          mutable_data<T>(elements.d_gates),
          mutable_data<T>(elements.d_old_cell)};
}

template <typename T>
void backward_elements(const Place& place, const CellSizes& sizes, const Elements& elements) {
  if (sizes.batch * sizes.states == 0) return;
  const Pointers<T> p = pointers_of<T>(elements);
  const bool wide = p.grad_h.is_expanded_or_packed(sizes.states, 16) &&
                    p.grad_cell.is_expanded_or_packed(sizes.states, 16);
  in_packs<T>(
      place, sizes, wide,
      [&](auto pack, int64_t groups, unsigned blocks) {
        backward_kernel<T, pack.value><<<blocks, kThreads, 0, place.stream>>>(p, sizes.states, groups);
      },
      p.gates, p.new_cell, p.d_gates, p.d_old_cell);
}

template <typename T>
void backward_small(const Place& place, const CellSizes& sizes, const Elements& elements,
                    const SmallGradients& small) {
  const auto& [wanted, input, weights, old_h, d_input, d_weights, d_bias, d_old_h] = small;
  const int64_t columns = sizes.columns();
  if (wanted.parameters) {
    const Joined<T> joined{const_data<T>(old_h), const_data<T>(input), sizes.batch, sizes.inputs,
                           sizes.states};
    const dim3 grid = tiles(sizes.states, kTileStates, columns, kColumns);
    small_parameters<T><<<grid, kSmallThreads, 0, place.stream>>>(
        joined, pointers_of<T>(elements), mutable_data<T>(d_weights), mutable_data<T>(d_bias));
    STD_CUDA_KERNEL_LAUNCH_CHECK();
  } else {
    backward_elements<T>(place, sizes, elements);
  }
  // The columns of one that is not wanted are left out.
  const int64_t first = wanted.old_h ? 0 : sizes.states, last = wanted.input ? columns : sizes.states;
  if (first >= last) return;
  const dim3 grid = tiles(last - first, kResultColumns, sizes.batch, kTileRows);
  small_inputs<T><<<grid, kTileRows * kResultColumns, 0, place.stream>>>(
      const_data<T>(elements.d_gates), const_data<T>(weights), sizes.batch, sizes.inputs, sizes.states, first,
      wanted.old_h ? mutable_data<T>(d_old_h) : nullptr, wanted.input ? mutable_data<T>(d_input) : nullptr);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace
}  // namespace cem_tetris::lltm
