// The LLTM cell on a GPU. A small cell is one launch forward and one or two backward (small.cuh); for the
// others torch's BLAS makes the products, in TF32 only where torch is told so, and one pass the elements
// (pointwise.cuh).

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

bool is_small(const Sizes& sizes) {
  return sizes.batch <= kSmallBatch && sizes.columns() <= kSmallColumns &&
         sizes.multiply_adds() <= kSmallMultiplyAdds;
}

unsigned tiles(int64_t size, int tile) { return static_cast<unsigned>((size + tile - 1) / tile); }

template <typename T>
Gradient<T> gradient(const std::optional<Tensor>& tensor) {
  if (!tensor) return {nullptr, 0, 0};
  return {data<T>(*tensor), tensor->stride(0), tensor->stride(1)};
}

// Calls f with the number of elements of one 16-byte access, or with 1.
template <typename T, class F>
void with_pack(bool wide, const F& f) {
  constexpr int kPack = 16 / static_cast<int>(sizeof(T));
  if (wide) {
    f(std::integral_constant<int, kPack>{});
  } else {
    f(std::integral_constant<int, 1>{});
  }
}

// Whether rows of states can be read 16 bytes at a time in all of these.
template <typename... Pointers>
bool is_wide(int64_t row_bytes, const Pointers*... pointers) {
  return row_bytes % 16 == 0 && (is_aligned(pointers, 16) && ...);
}

Forward forward_cuda(const Tensor& input, const Tensor& weights, const Tensor& bias, const Tensor& old_h,
                     const Tensor& old_cell) {
  const Sizes sizes = check_cell(input, weights, bias, old_h, old_cell);
  const int device = input.get_device_index();
  const DeviceGuard guard(device);
  const Tensor new_h = empty(input, {sizes.batch, sizes.states});
  const Tensor new_cell = empty(input, {sizes.batch, sizes.states});
  const bool small = is_small(sizes);
  const Tensor gates =
      small ? empty(input, {sizes.batch, sizes.gates()}) : linear(input, weights, bias, old_h);
  const int64_t size = sizes.batch * sizes.states;
  if (size == 0) return {new_h, new_cell, gates};
  const Tensor cell = dense(old_cell);
  const cudaStream_t stream = current_stream(input);
  with_type(input.scalar_type(), [&](auto type) {
    using T = typename decltype(type)::type;
    const T* before = data<T>(cell);
    T *h = mutable_data<T>(new_h), *next = mutable_data<T>(new_cell), *gate = mutable_data<T>(gates);
    if (small) {
      const Tensor x = dense(input), w = dense(weights), b = dense(bias), s = dense(old_h);
      const Joined<T> joined{data<T>(s), data<T>(x), sizes.batch, sizes.inputs, sizes.states};
      const dim3 grid(tiles(sizes.states, kTileStates), tiles(sizes.batch, kTileRows));
      small_forward<T>
          <<<grid, kSmallThreads, 0, stream>>>(joined, data<T>(w), data<T>(b), before, h, next, gate);
    } else {
      const int64_t row_bytes = sizes.states * static_cast<int64_t>(sizeof(T));
      with_pack<T>(is_wide(row_bytes, before, h, next, gate), [&](auto pack) {
        const int64_t groups = size / pack.value;
        forward_elements<T, pack.value>
            <<<grid_size(groups, kThreads, device, kBlocksPerMultiprocessor), kThreads, 0, stream>>>(
                gate, before, h, next, sizes.states, groups);
      });
    }
  });
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  return {new_h, new_cell, gates};
}

template <typename T>
void launch_backward_elements(const Sizes& sizes, const Elements<T>& elements, int device,
                              cudaStream_t stream) {
  const int64_t row_bytes = sizes.states * static_cast<int64_t>(sizeof(T));
  const bool wide =
      is_wide(row_bytes, elements.gates, elements.new_cell, elements.d_gates, elements.d_old_cell) &&
      elements.grad_h.is_expanded_or_packed(sizes.states, 16) &&
      elements.grad_cell.is_expanded_or_packed(sizes.states, 16);
  with_pack<T>(wide, [&](auto pack) {
    const int64_t groups = sizes.batch * sizes.states / pack.value;
    backward_elements<T, pack.value>
        <<<grid_size(groups, kThreads, device, kBlocksPerMultiprocessor), kThreads, 0, stream>>>(
            elements.grad_h, elements.grad_cell, elements.gates, elements.new_cell, elements.d_gates,
            elements.d_old_cell, sizes.states, groups);
  });
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

// Gradients of a small cell. `d_gates` is written where something after it reads it.
template <typename T>
Backward backward_small(const Sizes& sizes, const Elements<T>& elements, const Tensor& d_old_cell,
                        const Tensor& input, const Tensor& weights, const Tensor& old_h, const Wanted& wanted,
                        int device, cudaStream_t stream) {
  const Tensor x = dense(input), w = dense(weights), h = dense(old_h);
  const auto result = [&](bool is_wanted, const Tensor& like) {
    return is_wanted ? empty_as(like) : nothing(like);
  };
  const Tensor d_input = result(wanted.input, x), d_old_h = result(wanted.old_h, h);
  const Tensor d_weights = result(wanted.parameters, w);
  const Tensor d_bias = empty(input, {wanted.parameters ? sizes.gates() : 0});
  if (wanted.parameters) {
    const Joined<T> joined{data<T>(h), data<T>(x), sizes.batch, sizes.inputs, sizes.states};
    const dim3 grid(tiles(sizes.states, kTileStates), tiles(sizes.columns(), kColumns));
    small_parameters<T><<<grid, kSmallThreads, 0, stream>>>(joined, elements, mutable_data<T>(d_weights),
                                                            mutable_data<T>(d_bias));
    STD_CUDA_KERNEL_LAUNCH_CHECK();
  } else {
    launch_backward_elements(sizes, elements, device, stream);
  }
  if (wanted.input || wanted.old_h) {
    const int64_t first = wanted.old_h ? 0 : sizes.states;
    const int64_t last = wanted.input ? sizes.columns() : sizes.states;
    if (first < last) {
      const dim3 grid(tiles(last - first, kResultColumns), tiles(sizes.batch, kTileRows));
      small_inputs<T><<<grid, kTileRows * kResultColumns, 0, stream>>>(
          elements.d_gates, data<T>(w), sizes.batch, sizes.inputs, sizes.states, first,
          wanted.old_h ? mutable_data<T>(d_old_h) : nullptr,
          wanted.input ? mutable_data<T>(d_input) : nullptr);
      STD_CUDA_KERNEL_LAUNCH_CHECK();
    }
  }
  return {d_input, d_weights, d_bias, d_old_h, d_old_cell};
}

Backward backward_cuda(const std::optional<Tensor>& grad_h, const std::optional<Tensor>& grad_cell,
                       const Tensor& input, const Tensor& weights, const Tensor& old_h,
                       const Tensor& new_cell, const Tensor& gates, bool of_input, bool of_parameters,
                       bool of_old_h) {
  const Sizes sizes = check_saved(grad_h, grad_cell, input, weights, old_h, new_cell, gates);
  const Wanted wanted{of_input, of_parameters, of_old_h};
  const int device = input.get_device_index();
  const DeviceGuard guard(device);
  const cudaStream_t stream = current_stream(input);
  const bool some = sizes.batch * sizes.states > 0;
  const bool small = some && is_small(sizes);
  const bool needs_gates = !(small && of_parameters && !of_input && !of_old_h);
  const Tensor cell = dense(new_cell), gate = dense(gates);
  const Tensor d_old_cell = empty_as(cell);
  const Tensor d_gates = needs_gates ? empty_as(gate) : nothing(gate);
  std::optional<Backward> result;
  with_type(input.scalar_type(), [&](auto type) {
    using T = typename decltype(type)::type;
    const Elements<T> elements{gradient<T>(grad_h),
                               gradient<T>(grad_cell),
                               data<T>(gate),
                               data<T>(cell),
                               needs_gates ? mutable_data<T>(d_gates) : nullptr,
                               mutable_data<T>(d_old_cell)};
    if (small) {
      result = backward_small<T>(sizes, elements, d_old_cell, input, weights, old_h, wanted, device, stream);
    } else if (some) {
      launch_backward_elements(sizes, elements, device, stream);
    }
  });
  return small ? *result : products(d_gates, d_old_cell, input, weights, old_h, wanted);
}

}  // namespace
}  // namespace cem_tetris::lltm

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CUDA, m) {
  m.impl("lltm", TORCH_BOX(&cem_tetris::lltm::forward_cuda));
  m.impl("lltm_forward", TORCH_BOX(&cem_tetris::lltm::forward_cuda));
  m.impl("lltm_backward", TORCH_BOX(&cem_tetris::lltm::backward_cuda));
}
