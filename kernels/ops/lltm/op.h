// The LLTM cell, one source for CPU and CUDA. Functions of this folder compute a small cell.
// For other cells torch's BLAS computes the products, in TF32 only if torch allows it, and one
// pass over the gates computes the rest.
#pragma once

#include <array>
#include <tuple>
#include <vector>

#include "cell.h"

namespace cem_tetris::lltm {
namespace {

CellSizes sizes_of(const Tensor& input, const Tensor& old_h) {
  STD_TORCH_CHECK(input.dim() == 2 && old_h.dim() == 2,
      "lltm: expected input and old_h of 2 dimensions, got ", input.dim(), " and ",
      old_h.dim());
  visit_floating("lltm", input.scalar_type(), [](auto) {});
  return {input.size(0), input.size(1), old_h.size(1)};
}

// Calls an operator that writes into `out`, and returns its result. Operators without `out`
// would change their types under autocast.
template <class... Arguments>
Tensor call_into(const Tensor& out, const char* name, const Arguments&... arguments) {
  std::array<StableIValue, sizeof...(arguments) + 1> stack{
      torch::stable::detail::from(arguments)..., torch::stable::detail::from(out)};
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher(name, "out", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

// Returns X = [old_h, input].
Tensor concatenate(const Tensor& old_h, const Tensor& input) {
  Tensor joined = empty(input, {input.size(0), old_h.size(1) + input.size(1)});
  return call_into(joined, "aten::cat", std::vector<Tensor>{old_h, input}, int64_t{1});
}

// Computes the gradients of the LLTM cell's weights, bias, old_h and input with torch's BLAS. A
// gradient is computed only if it is wanted. d_gates, batch x (3 * states), are the gradients
// of the sums that enter the gates. With X = [old_h, input], the gradient of the weights is
// d_gates^T X, and the gradient of X is d_gates * weights.
//
// call_into(result, name, arguments...) calls the operator of torch with this name, and lets it
// write into `result`; aten::mm is the matrix product.
void multiply_gradients(const Backward& pass) {
  int64_t states = pass.old_h.size(1);
  int64_t batch_dimension = 0;
  if (pass.wants_parameters) {
    call_into(pass.d_weights, "aten::mm", transpose(pass.d_gates, 0, 1),
        concatenate(pass.old_h, pass.input));
    sum_out(const_cast<Tensor&>(pass.d_bias), pass.d_gates, Sizes(&batch_dimension, 1));
  }
  // Multiplies d_gates with result.size(1) columns of the weights, from column `first` on.
  // There are two products, because the results of a single one would share their memory.
  auto multiply_columns = [&](const Tensor& result, int64_t first) {
    Tensor columns =
        narrow(const_cast<Tensor&>(pass.weights), /*dim=*/1, first, result.size(1));
    call_into(result, "aten::mm", pass.d_gates, columns);
  };
  if (pass.wants_old_h) multiply_columns(pass.d_old_h, /*first=*/0);
  if (pass.wants_input) multiply_columns(pass.d_input, states);
}

// The forward pass of the LLTM cell. Checks the arguments, and returns new_h and new_cell,
// batch x states, and the gates before their activation functions, batch x (3 * states), which
// the backward pass needs.
//
// input is batch x inputs, old_h and old_cell are batch x states, and the weights are (3 *
// states) x (states + inputs). For a small cell one function, forward_small, computes all
// results. For larger cells torch's BLAS (aten::linear) computes the gates, and
// forward_elements computes new_h and new_cell from them.
std::tuple<Tensor, Tensor, Tensor> forward_pass(const Tensor& input, const Tensor& weights,
    const Tensor& bias, const Tensor& old_h, const Tensor& old_cell) {
  CellSizes sizes = sizes_of(input, old_h);
  int64_t batch = sizes.batch;
  int64_t states = sizes.states;
  Problems batched{Device(input), {&batch, 1}};  // checks tensors with a batch dimension
  Problems unbatched{batched.device, {}};        // checks tensors without one
  ScalarType type = input.scalar_type();
  unbatched.require(weights, "weights", type, {sizes.gates(), sizes.columns()});
  unbatched.require(bias, "bias", type, {sizes.gates()});
  batched.require(old_h, "old_h", type, {states});
  batched.require(old_cell, "old_cell", type, {states});
  Forward pass{input, weights, bias, old_h, dense(old_cell),
      /*new_h=*/empty(input, {batch, states}), /*new_cell=*/empty(input, {batch, states}),
      /*gates=*/empty(input, {batch, sizes.gates()})};
  if (batched.device.is_meta()) return {pass.new_h, pass.new_cell, pass.gates};
  bool cell_is_small = is_small(sizes, type);
  if (cell_is_small) {
    for (Tensor* tensor : {&pass.input, &pass.weights, &pass.bias, &pass.old_h})
      *tensor = dense(*tensor);
  } else {
    call_into(pass.gates, "aten::linear", concatenate(old_h, input), weights,
        std::optional<Tensor>(bias));
  }
  if (batch * states != 0) {
    visit_floating("lltm", type, [&](auto zero) {
      using T = decltype(zero);
      auto* compute = cell_is_small ? forward_small<T> : forward_elements<T>;
      compute(sizes, pass);
    });
  }
  return {pass.new_h, pass.new_cell, pass.gates};
}

// The backward pass of the LLTM cell. Checks the arguments, and returns the gradients of input,
// weights, bias, old_h and old_cell.
//
// Args:
//     grad_h, grad_cell: the gradients of new_h and new_cell; a missing one means zeros.
//     gates: the sums that enter the gates, batch x (3 * states), which the forward pass has
//         returned.
//     wants_input, wants_parameters, wants_old_h: which gradients are wanted. Empty tensors are
//         returned for the others.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> backward_pass(
    const std::optional<Tensor>& grad_h, const std::optional<Tensor>& grad_cell,
    const Tensor& input, const Tensor& weights, const Tensor& old_h, const Tensor& new_cell,
    const Tensor& gates, bool wants_input, bool wants_parameters, bool wants_old_h) {
  CellSizes sizes = sizes_of(input, old_h);
  int64_t batch = sizes.batch;
  int64_t states = sizes.states;
  Problems batched{Device(input), {&batch, 1}};  // checks tensors with a batch dimension
  Problems unbatched{batched.device, {}};        // checks tensors without one
  ScalarType type = input.scalar_type();
  unbatched.require(weights, "weights", type, {sizes.gates(), sizes.columns()});
  batched.require(old_h, "old_h", type, {states});
  batched.require(new_cell, "new_cell", type, {states});
  batched.require(gates, "gates", type, {sizes.gates()});
  if (grad_h) batched.require(*grad_h, "grad_h", type, {states});
  if (grad_cell) batched.require(*grad_cell, "grad_cell", type, {states});
  // A small cell reads contiguous tensors; the BLAS takes any strides.
  bool cell_is_small = batch * states != 0 && is_small(sizes, type);
  auto readable = [&](const Tensor& tensor) { return cell_is_small ? dense(tensor) : tensor; };
  auto allocate = [&](bool is_wanted, const Tensor& like) {
    return is_wanted ? empty_as(like) : empty(like, {0});
  };
  const Backward pass{
      wants_input,
      wants_parameters,
      wants_old_h,
      grad_h,
      grad_cell,
      /*input=*/readable(input),
      /*weights=*/readable(weights),
      /*old_h=*/readable(old_h),
      /*new_cell=*/dense(new_cell),
      /*gates=*/dense(gates),
      /*d_gates=*/empty_as(gates),
      /*d_input=*/allocate(wants_input, input),
      /*d_weights=*/allocate(wants_parameters, weights),
      /*d_bias=*/empty(input, {wants_parameters ? sizes.gates() : 0}),
      /*d_old_h=*/allocate(wants_old_h, old_h),
      /*d_old_cell=*/empty_as(new_cell),
  };
  if (batched.device.is_meta())
    return {pass.d_input, pass.d_weights, pass.d_bias, pass.d_old_h, pass.d_old_cell};
  visit_floating("lltm", type, [&](auto zero) {
    using T = decltype(zero);
    auto* compute = cell_is_small ? backward_small<T> : backward_elements<T>;
    compute(sizes, pass);
  });
  if (!cell_is_small) multiply_gradients(pass);
  return {pass.d_input, pass.d_weights, pass.d_bias, pass.d_old_h, pass.d_old_cell};
}

}  // namespace
}  // namespace cem_tetris::lltm

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CEM_TETRIS_DEVICE, m) {
  m.impl("lltm", TORCH_BOX(&cem_tetris::lltm::forward_pass));
  m.impl("lltm_forward", TORCH_BOX(&cem_tetris::lltm::forward_pass));
  m.impl("lltm_backward", TORCH_BOX(&cem_tetris::lltm::backward_pass));
}
