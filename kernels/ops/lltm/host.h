// What both devices do on the host: the checks of sizes, and the products that are left to torch's BLAS.
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <tuple>
#include <vector>

#include "cell.h"
#include "tensors.h"

namespace cem_tetris::lltm {
namespace {

using Forward = std::tuple<Tensor, Tensor, Tensor>;                   // new_h, new_cell, gates
using Backward = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;  // as the inputs of the forward pass

struct CellSizes {
  int64_t batch, inputs, states;

  int64_t columns() const { return inputs + states; }
  int64_t gates() const { return kGates * states; }
  int64_t multiply_adds() const { return batch * gates() * columns(); }
};

// Which gradients are wanted. That of the old cell is a by-product of all others.
struct Wanted {
  bool input, parameters, old_h;
};

// What the backward pass of the elements reads and writes; but for the gradients all are contiguous.
struct Elements {
  const std::optional<Tensor>&grad_h, &grad_cell;  // none: zeros
  Tensor new_cell, gates, d_gates, d_old_cell;
};

// The tensors of a small cell, all contiguous, and its gradients; those that are not wanted are empty.
struct SmallGradients {
  Wanted wanted;
  Tensor input, weights, old_h;
  Tensor d_input, d_weights, d_bias, d_old_h;
};

// The public function says more about a mismatch; this keeps a direct call of the operator inside its memory.
struct Expected {
  const char* name;
  const Tensor& tensor;
  std::initializer_list<int64_t> sizes;
};

void check(const Tensor& input, std::initializer_list<Expected> tensors) {
  const Device device(input);
  for (const auto& [name, tensor, expected] : tensors) {
    const Sizes sizes = tensor.sizes();
    STD_TORCH_CHECK(sizes.equals(Sizes(expected)), "lltm: ", name,
                    " has another size than the other arguments call for");
    STD_TORCH_CHECK(tensor.scalar_type() == input.scalar_type(), "lltm: ", name,
                    " has another type than input");
    STD_TORCH_CHECK(Device(tensor) == device, "lltm: ", name, " is on another device than input");
  }
}

CellSizes sizes_of(const Tensor& input, const Tensor& old_h) {
  STD_TORCH_CHECK(input.dim() == 2 && old_h.dim() == 2, "lltm: expected input and old_h with two dimensions");
  return {input.size(0), input.size(1), old_h.size(1)};
}

// Calls an operator that writes into `out`: autocast, which may be on, changes the types of the others.
template <class... Arguments>
Tensor call_into(const Tensor& out, const char* name, const Arguments&... arguments) {
  std::array<StableIValue, sizeof...(arguments) + 1> stack{torch::stable::detail::from(arguments)...,
                                                           torch::stable::detail::from(out)};
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher(name, "out", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

Tensor concatenate(const Tensor& old_h, const Tensor& input) {
  const Tensor joined = empty(input, {input.size(0), old_h.size(1) + input.size(1)});
  return call_into(joined, "aten::cat", std::vector<Tensor>{old_h, input}, int64_t{1});
}

Tensor linear(const Tensor& input, const Tensor& weights, const Tensor& bias, const Tensor& old_h) {
  const Tensor gates = empty(input, {input.size(0), weights.size(0)});
  return call_into(gates, "aten::linear", concatenate(old_h, input), weights, std::optional<Tensor>(bias));
}

Tensor product(const Tensor& a, const Tensor& b) {
  return call_into(empty(a, {a.size(0), b.size(1)}), "aten::mm", a, b);
}

// The gradients that follow from those of the gates by products; one that is not wanted is empty.
Backward products(const Elements& elements, const Tensor& input, const Tensor& weights,
                         const Tensor& old_h, const Wanted& wanted) {
  const Tensor& d_gates = elements.d_gates;
  const int64_t states = old_h.size(1), rows = 0;
  // One empty tensor a place, for results of an operator share no memory.
  Tensor d_input = empty(input, {0}), d_weights = empty(input, {0}), d_bias = empty(input, {0}),
         d_old_h = empty(input, {0});
  if (wanted.parameters) {
    d_weights = product(torch::stable::transpose(d_gates, 0, 1), concatenate(old_h, input));
    d_bias = empty(input, {d_gates.size(1)});
    torch::stable::sum_out(d_bias, d_gates, Sizes(&rows, 1));
  }
  // Two products with two results: one product's halves would share their memory.
  const auto columns = [&](int64_t first, int64_t count) {
    return product(d_gates, torch::stable::narrow(const_cast<Tensor&>(weights), 1, first, count));
  };
  if (wanted.old_h) d_old_h = columns(0, states);
  if (wanted.input) d_input = columns(states, input.size(1));
  return {d_input, d_weights, d_bias, d_old_h, elements.d_old_cell};
}

}  // namespace
}  // namespace cem_tetris::lltm
