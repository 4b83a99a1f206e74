// The LLTM cell, one source for CPU and CUDA. Small cells are computed in one go; for the others torch's BLAS
// makes the products, in TF32 only where torch is told so, and one pass over the gates makes the cell.
#pragma once

#ifdef __CUDACC__
#include "launch.cuh"
#else
#include "cpu.h"
#endif

namespace cem_tetris::lltm {
namespace {

Forward forward_pass(const Tensor& input, const Tensor& weights, const Tensor& bias, const Tensor& old_h,
                     const Tensor& old_cell) {
  const CellSizes sizes = sizes_of(input, old_h);
  const auto [batch, inputs, states] = sizes;
  check(input, {{"weights", weights, {sizes.gates(), sizes.columns()}},
                {"bias", bias, {sizes.gates()}},
                {"old_h", old_h, {batch, states}},
                {"old_cell", old_cell, {batch, states}}});
  const Place place(input);
  const Tensor new_h = empty(input, {batch, states}), new_cell = empty(input, {batch, states});
  const bool small = is_small(sizes, input.scalar_type());
  const Tensor gates = small ? empty(input, {batch, sizes.gates()}) : linear(input, weights, bias, old_h);
  if (batch * states == 0) return {new_h, new_cell, gates};
  const Tensor before = dense(old_cell);
  visit_floating("lltm", input.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    if (small) {
      forward_small<T>(place, sizes, dense(input), dense(weights), dense(bias), dense(old_h), before, new_h,
                       new_cell, gates);
    } else {
      forward_elements<T>(place, sizes, gates, before, new_h, new_cell);
    }
  });
  return {new_h, new_cell, gates};
}

Backward backward_pass(const std::optional<Tensor>& grad_h, const std::optional<Tensor>& grad_cell,
                       const Tensor& input, const Tensor& weights, const Tensor& old_h,
                       const Tensor& new_cell, const Tensor& gates, bool of_input, bool of_parameters,
                       bool of_old_h) {
  const CellSizes sizes = sizes_of(input, old_h);
  const auto [batch, inputs, states] = sizes;
  check(input, {{"weights", weights, {sizes.gates(), sizes.columns()}},
                {"old_h", old_h, {batch, states}},
                {"new_cell", new_cell, {batch, states}},
                {"gates", gates, {batch, sizes.gates()}}});
  if (grad_h) check(input, {{"grad_h", *grad_h, {batch, states}}});
  if (grad_cell) check(input, {{"grad_cell", *grad_cell, {batch, states}}});
  const Place place(input);
  const Wanted wanted{of_input, of_parameters, of_old_h};
  const Elements elements{grad_h,       grad_cell,         dense(new_cell),
                          dense(gates), empty_as(gates), empty_as(new_cell)};
  const ScalarType type = input.scalar_type();
  if (batch * states == 0 || !is_small(sizes, type)) {
    visit_floating("lltm", type,
                   [&](auto zero) { backward_elements<decltype(zero)>(place, sizes, elements); });
    return products(elements, input, weights, old_h, wanted);
  }
  const auto result = [&](bool is_wanted, const Tensor& like) {
    return is_wanted ? empty_as(like) : empty(like, {0});
  };
  const SmallGradients small{wanted,
                             dense(input),
                             dense(weights),
                             dense(old_h),
                             result(of_input, input),
                             result(of_parameters, weights),
                             empty(input, {of_parameters ? sizes.gates() : 0}),
                             result(of_old_h, old_h)};
  visit_floating("lltm", type,
                 [&](auto zero) { backward_small<decltype(zero)>(place, sizes, elements, small); });
  return {small.d_input, small.d_weights, small.d_bias, small.d_old_h, elements.d_old_cell};
}

}  // namespace
}  // namespace cem_tetris::lltm

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CEM_TETRIS_DEVICE, m) {
  m.impl("lltm", TORCH_BOX(&cem_tetris::lltm::forward_pass));
  m.impl("lltm_forward", TORCH_BOX(&cem_tetris::lltm::forward_pass));
  m.impl("lltm_backward", TORCH_BOX(&cem_tetris::lltm::backward_pass));
}
