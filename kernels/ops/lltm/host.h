// What both devices do on the host: the checks of sizes, and the products that are left to torch's BLAS.
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <vector>

#include "cell.h"
#include "tensors.h"

namespace cem_tetris::lltm {
namespace {

struct CellSizes {
  int64_t batch, inputs, states;

  int64_t columns() const { return inputs + states; }
  int64_t gates() const { return kGates * states; }
  int64_t multiply_adds() const { return batch * gates() * columns(); }
};

// A forward pass. All are contiguous in a small cell; what the BLAS reads need not be in others.
struct Forward {
  Tensor input, weights, bias, old_h, old_cell, new_h, new_cell, gates;
};

// A backward pass. But for what the BLAS reads and the gradients of h and cell, all are contiguous. Results
// that are not wanted are empty; that of the old cell is a by-product of all others.
struct Backward {
  bool of_input, of_parameters, of_old_h;
  const std::optional<Tensor>&grad_h, &grad_cell;  // none: zeros
  Tensor input, weights, old_h, new_cell, gates, d_gates;
  Tensor d_input, d_weights, d_bias, d_old_h, d_old_cell;
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
    STD_TORCH_CHECK(
        sizes.equals(Sizes(expected)), "lltm: ", name, " has another size than the other arguments call for");
    STD_TORCH_CHECK(
        tensor.scalar_type() == input.scalar_type(), "lltm: ", name, " has another type than input");
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
  std::array<StableIValue, sizeof...(arguments) + 1> stack{
      torch::stable::detail::from(arguments)..., torch::stable::detail::from(out)};
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher(name, "out", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

Tensor concatenate(const Tensor& old_h, const Tensor& input) {
  const Tensor joined = empty(input, {input.size(0), old_h.size(1) + input.size(1)});
  return call_into(joined, "aten::cat", std::vector<Tensor>{old_h, input}, int64_t{1});
}

// The gradients that follow from those of the gates by products.
void products(const Backward& pass) {
  const int64_t states = pass.old_h.size(1), rows = 0;
  if (pass.of_parameters) {
    call_into(pass.d_weights, "aten::mm", torch::stable::transpose(pass.d_gates, 0, 1),
        concatenate(pass.old_h, pass.input));
    torch::stable::sum_out(const_cast<Tensor&>(pass.d_bias), pass.d_gates, Sizes(&rows, 1));
  }
  // Two products with two results: one product's halves would share their memory.
  const auto columns = [&](const Tensor& to, int64_t first) {
    call_into(to, "aten::mm", pass.d_gates,
        torch::stable::narrow(const_cast<Tensor&>(pass.weights), 1, first, to.size(1)));
  };
  if (pass.of_old_h) columns(pass.d_old_h, 0);
  if (pass.of_input) columns(pass.d_input, states);
}

}  // namespace
}  // namespace cem_tetris::lltm
