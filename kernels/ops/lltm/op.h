// The LLTM cell, one source for CPU and CUDA. Small cells are computed in one go; for the others torch's BLAS
// makes the products, in TF32 only where torch allows it, and one pass over the gates makes the cell.
#pragma once

#include <tuple>

#ifdef __CUDACC__
#include "launch.cuh"
#else
#include "cpu.h"
#endif

namespace cem_tetris::lltm {
namespace {

std::tuple<Tensor, Tensor, Tensor> forward_pass(const Tensor& input, const Tensor& weights,
    const Tensor& bias, const Tensor& old_h, const Tensor& old_cell) {
  const CellSizes sizes = sizes_of(input, old_h);
  const auto [batch, inputs, states] = sizes;
  check(input, {{"weights", weights, {sizes.gates(), sizes.columns()}}, {"bias", bias, {sizes.gates()}},
                   {"old_h", old_h, {batch, states}}, {"old_cell", old_cell, {batch, states}}});
  const Place place(input);
  Forward pass{input, weights, bias, old_h, dense(old_cell), empty(input, {batch, states}),
      empty(input, {batch, states}), empty(input, {batch, sizes.gates()})};
  const ScalarType type = input.scalar_type();
  const bool small = is_small(sizes, type);
  if (small) {
    for (Tensor* each : {&pass.input, &pass.weights, &pass.bias, &pass.old_h}) *each = dense(*each);
  } else {
    call_into(pass.gates, "aten::linear", concatenate(old_h, input), weights, std::optional<Tensor>(bias));
  }
  if (batch * states != 0) {
    visit_floating("lltm", type, [&](auto zero) {
      using T = decltype(zero);
      (small ? forward_small<T> : forward_elements<T>)(place, sizes, pass);
    });
  }
  return {pass.new_h, pass.new_cell, pass.gates};
}

// The results are in the order of the forward pass's inputs.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> backward_pass(const std::optional<Tensor>& grad_h,
    const std::optional<Tensor>& grad_cell, const Tensor& input, const Tensor& weights, const Tensor& old_h,
    const Tensor& new_cell, const Tensor& gates, bool of_input, bool of_parameters, bool of_old_h) {
  const CellSizes sizes = sizes_of(input, old_h);
  const auto [batch, inputs, states] = sizes;
  check(input, {{"weights", weights, {sizes.gates(), sizes.columns()}}, {"old_h", old_h, {batch, states}},
                   {"new_cell", new_cell, {batch, states}}, {"gates", gates, {batch, sizes.gates()}}});
  if (grad_h) check(input, {{"grad_h", *grad_h, {batch, states}}});
  if (grad_cell) check(input, {{"grad_cell", *grad_cell, {batch, states}}});
  const Place place(input);
  const ScalarType type = input.scalar_type();
  const bool small = batch * states != 0 && is_small(sizes, type);
  const auto read = [&](const Tensor& tensor) { return small ? dense(tensor) : tensor; };
  const auto result = [&](bool is_wanted, const Tensor& like) {
    return is_wanted ? empty_as(like) : empty(like, {0});
  };
  const Backward pass{of_input, of_parameters, of_old_h, grad_h, grad_cell, read(input), read(weights),
      read(old_h), dense(new_cell), dense(gates), empty_as(gates), result(of_input, input),
      result(of_parameters, weights), empty(input, {of_parameters ? sizes.gates() : 0}),
      result(of_old_h, old_h), empty_as(new_cell)};
  visit_floating("lltm", type, [&](auto zero) {
    using T = decltype(zero);
    (small ? backward_small<T> : backward_elements<T>)(place, sizes, pass);
  });
  if (!small) products(pass);
  return {pass.d_input, pass.d_weights, pass.d_bias, pass.d_old_h, pass.d_old_cell};
}

}  // namespace
}  // namespace cem_tetris::lltm

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CEM_TETRIS_DEVICE, m) {
  m.impl("lltm", TORCH_BOX(&cem_tetris::lltm::forward_pass));
  m.impl("lltm_forward", TORCH_BOX(&cem_tetris::lltm::forward_pass));
  m.impl("lltm_backward", TORCH_BOX(&cem_tetris::lltm::backward_pass));
}
