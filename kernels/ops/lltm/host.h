// What both devices do on the host: sizes, allocation, and the products that are left to torch's BLAS.
#pragma once

#include <torch/csrc/stable/c/shim.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Exception.h>
#include <torch/headeronly/util/Half.h>

#include <array>
#include <initializer_list>
#include <optional>
#include <tuple>
#include <vector>

#include "cell.h"

namespace cem_tetris::lltm {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

using Forward = std::tuple<Tensor, Tensor, Tensor>;                   // new_h, new_cell, gates
using Backward = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;  // as the inputs of the forward pass

struct Sizes {
  int64_t batch;
  int64_t inputs;
  int64_t states;

  int64_t columns() const { return inputs + states; }
  int64_t gates() const { return kGates * states; }
  int64_t multiply_adds() const { return batch * gates() * columns(); }
};

// Which gradients are wanted. That of the old cell is a by-product of all others.
struct Wanted {
  bool input;
  bool parameters;
  bool old_h;
};

inline int32_t device_type(const Tensor& tensor) {
  int32_t type;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &type));
  return type;
}

// That a tensor has these sizes, and the type and the device of the input.
inline void check_like(const char* name, const Tensor& tensor, const Tensor& input,
                       std::initializer_list<int64_t> expected) {
  bool same = tensor.dim() == static_cast<int64_t>(expected.size());
  int64_t dim = 0;
  for (const int64_t size : expected) same = same && tensor.size(dim++) == size;
  STD_TORCH_CHECK(same, "lltm: ", name, " has another size than the other arguments call for");
  STD_TORCH_CHECK(tensor.scalar_type() == input.scalar_type(), "lltm: ", name,
                  " has another type than input");
  STD_TORCH_CHECK(device_type(tensor) == device_type(input) &&
                      tensor.get_device_index() == input.get_device_index(),
                  "lltm: ", name, " is on another device than input");
}

// The public function says more about a mismatch; this keeps a direct call of the operator inside its memory.
inline Sizes check_cell(const Tensor& input, const Tensor& weights, const Tensor& bias, const Tensor& old_h,
                        const Tensor& old_cell) {
  STD_TORCH_CHECK(input.dim() == 2 && old_h.dim() == 2, "lltm: expected input and old_h with two dimensions");
  const Sizes sizes{input.size(0), input.size(1), old_h.size(1)};
  check_like("weights", weights, input, {sizes.gates(), sizes.columns()});
  check_like("bias", bias, input, {sizes.gates()});
  check_like("old_h", old_h, input, {sizes.batch, sizes.states});
  check_like("old_cell", old_cell, input, {sizes.batch, sizes.states});
  return sizes;
}

inline Sizes check_saved(const std::optional<Tensor>& grad_h, const std::optional<Tensor>& grad_cell,
                         const Tensor& input, const Tensor& weights, const Tensor& old_h,
                         const Tensor& new_cell, const Tensor& gates) {
  STD_TORCH_CHECK(input.dim() == 2 && old_h.dim() == 2, "lltm: expected input and old_h with two dimensions");
  const Sizes sizes{input.size(0), input.size(1), old_h.size(1)};
  check_like("weights", weights, input, {sizes.gates(), sizes.columns()});
  check_like("old_h", old_h, input, {sizes.batch, sizes.states});
  check_like("new_cell", new_cell, input, {sizes.batch, sizes.states});
  check_like("gates", gates, input, {sizes.batch, sizes.gates()});
  if (grad_h) check_like("grad_h", *grad_h, input, {sizes.batch, sizes.states});
  if (grad_cell) check_like("grad_cell", *grad_cell, input, {sizes.batch, sizes.states});
  return sizes;
}

// A number type as a value, to choose a template's argument at run time.
template <typename T>
struct Type {
  using type = T;
};

template <class F>
void with_type(ScalarType type, const F& f) {
  switch (type) {
    case ScalarType::Float:
      return f(Type<float>{});
    case ScalarType::Double:
      return f(Type<double>{});
    case ScalarType::Half:
      return f(Type<torch::headeronly::Half>{});
    case ScalarType::BFloat16:
      return f(Type<torch::headeronly::BFloat16>{});
    default:
      STD_TORCH_CHECK(false, "lltm: expected float32, float64, float16 or bfloat16");
  }
}

inline Tensor dense(const Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : torch::stable::contiguous(tensor);
}

// torch::stable::empty goes through the dispatcher, which costs as much as a small kernel.
inline Tensor empty(const Tensor& like, std::initializer_list<int64_t> sizes) {
  std::array<int64_t, 2> size{}, stride{};
  int64_t step = 1;
  for (size_t dim = sizes.size(); dim-- > 0;) {
    size[dim] = sizes.begin()[dim];
    stride[dim] = step;
    step *= size[dim] > 0 ? size[dim] : 1;
  }
  int32_t type;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(like.get(), &type));
  AtenTensorHandle result;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()), size.data(),
                                                  stride.data(), type, device_type(like),
                                                  like.get_device_index(), &result));
  return Tensor(result);
}

// Like a dense tensor of at most two dimensions.
inline Tensor empty_as(const Tensor& like) {
  return like.dim() == 1 ? empty(like, {like.size(0)}) : empty(like, {like.size(0), like.size(1)});
}

// In place of a gradient that nobody wants. One a place, for results of an operator share no memory.
inline Tensor nothing(const Tensor& like) { return empty(like, {0}); }

template <typename T>
const T* data(const Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}

template <typename T>
T* mutable_data(const Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

// Calls an operator that writes into `out`: autocast, which may be on, changes the types of the others.
template <class... Arguments>
Tensor call_into(const Tensor& out, const char* name, const Arguments&... arguments) {
  std::array<StableIValue, sizeof...(arguments) + 1> stack{torch::stable::detail::from(arguments)...,
                                                           torch::stable::detail::from(out)};
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher(name, "out", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

inline Tensor concatenate(const Tensor& old_h, const Tensor& input) {
  const Tensor joined = empty(input, {input.size(0), old_h.size(1) + input.size(1)});
  return call_into(joined, "aten::cat", std::vector<Tensor>{old_h, input}, int64_t{1});
}

inline Tensor linear(const Tensor& input, const Tensor& weights, const Tensor& bias, const Tensor& old_h) {
  const Tensor gates = empty(input, {input.size(0), weights.size(0)});
  return call_into(gates, "aten::linear", concatenate(old_h, input), weights, std::optional<Tensor>(bias));
}

inline Tensor product(const Tensor& a, const Tensor& b) {
  return call_into(empty(a, {a.size(0), b.size(1)}), "aten::mm", a, b);
}

// The gradients that follow from those of the gates by products; one that is not wanted is empty.
inline Backward products(const Tensor& d_gates, const Tensor& d_old_cell, const Tensor& input,
                         const Tensor& weights, const Tensor& old_h, const Wanted& wanted) {
  const int64_t states = old_h.size(1);
  std::optional<Tensor> d_input, d_weights, d_bias, d_old_h;
  if (wanted.parameters) {
    d_weights = product(torch::stable::transpose(d_gates, 0, 1), concatenate(old_h, input));
    const int64_t rows = 0;
    d_bias = empty(input, {d_gates.size(1)});
    torch::stable::sum_out(*d_bias, d_gates, torch::headeronly::IntHeaderOnlyArrayRef(&rows, 1));
  }
  // Two products with two results: one product's halves would share their memory.
  if (wanted.old_h) {
    d_old_h = product(d_gates, torch::stable::narrow(const_cast<Tensor&>(weights), 1, 0, states));
  }
  if (wanted.input) {
    d_input = product(d_gates, torch::stable::narrow(const_cast<Tensor&>(weights), 1, states, input.size(1)));
  }
  const auto result = [&](const std::optional<Tensor>& gradient) {
    return gradient ? *gradient : nothing(input);
  };
  return {result(d_input), result(d_weights), result(d_bias), result(d_old_h), d_old_cell};
}

}  // namespace cem_tetris::lltm
