// The elementwise operators, one source for CPU and CUDA: a function of one element for every
// operator, and their registration.
//
// On a GPU the memory limits their speed: they move (inputs + outputs) * sizeof(T) bytes per
// element. An H200 moves the 8 bytes of a float32 element of sigmoid at 4.3 TB/s. In this time
// a multiprocessor can issue 55 thread instructions and 7 special functions, and half as many
// for 16-bit types. sigmoid takes 15 to 20 instructions, two of them special. A sum or a
// product takes one instruction for 12 bytes.
#pragma once

#include <array>
#include <tuple>

#include "elements.h"

namespace cem_tetris {
namespace {

template <typename T>
struct Add {
  template <typename A>
  CEM_TETRIS_FUNCTION void operator()(const A (&in)[2], A (&out)[1]) const {
    out[0] = in[0] + in[1];
  }
};

template <typename T>
struct Multiply {
  template <typename A>
  CEM_TETRIS_FUNCTION void operator()(const A (&in)[2], A (&out)[1]) const {
    out[0] = in[0] * in[1];
  }
};

// Computes the gradients of a and b from the gradient of the product, a and b.
template <typename T>
struct MultiplyBackward {
  template <typename A>
  CEM_TETRIS_FUNCTION void operator()(const A (&in)[3], A (&out)[2]) const {
    out[0] = in[0] * in[2];
    out[1] = in[0] * in[1];
  }
};

// Computes the gradient of x from the gradient of the result and the result.
template <typename T>
struct SigmoidBackward {
  template <typename A>
  CEM_TETRIS_FUNCTION void operator()(const A (&in)[2], A (&out)[1]) const {
    out[0] = in[0] * (A(1) - in[1]) * in[1];
  }
};

// Calls f(T{}) with the C++ type T of a tensor's elements, a floating-point or an integer type,
// and raises an error for other types, which contains `name`, the name of the operator. A
// signed integer type is replaced by the unsigned type of the same size, whose sums and
// products have the same bits, because their overflow is defined.
template <typename F>
void visit_number(const char* name, ScalarType type, const F& f) {
  switch (type) {
    case ScalarType::Byte:
    case ScalarType::Char: return f(uint8_t{});
    case ScalarType::Short: return f(uint16_t{});
    case ScalarType::Int: return f(uint32_t{});
    case ScalarType::Long: return f(uint64_t{});
    default:
      return visit_floating(
          name, type, f, "Byte, Char, Short, Int, Long, Float, Double, Half or BFloat16");
  }
}

// Returns whether elements of equal index lie at equal offsets in both tensors. The tensors
// must have the same shape.
bool same_layout(const Tensor& a, const Tensor& b) {
  const Sizes sizes = a.sizes();
  const Sizes left = a.strides();
  const Sizes right = b.strides();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (left[i] != right[i] && sizes[i] > 1) return false;
  }
  return true;
}

// Returns an unset tensor with the shape, type, device and layout of x, but without gaps. The
// function avoids empty_like where it can, because that goes through the dispatcher, which
// takes as long as a small kernel.
Tensor empty_in_layout_of(const Tensor& x) {
  return x.is_contiguous() ? empty_as(x) : empty_like(x);
}

// Returns x if it has the layout of `output`, which has no gaps; otherwise a copy of x with
// that layout.
Tensor in_layout_of(const Tensor& output, const Tensor& x) {
  if (same_layout(output, x)) return x;
  Tensor copy = empty_in_layout_of(output);
  copy_(copy, x);
  return copy;
}

// Applies the function object F<T> to each element of kIn tensors of type T, and returns its
// kOut results. T is a floating-point type, or any number type if kIntegers is true.
// `name` is the name of the operator in error messages.
//
// The inputs must have the same shape, type and device; the error message calls an input that
// differs from the first one "b". The results have the memory layout (the strides) of input
// number kLayout. Inputs with another layout are copied first.
template <template <typename> class F, bool kIntegers, int kIn, int kOut = 1, int kLayout = 0>
std::array<Tensor, kOut> map(const char* name, std::array<Tensor, kIn> inputs) {
  ScalarType type = inputs[0].scalar_type();
  Device device(inputs[0]);
  Problems expected{device, inputs[0].sizes()};  // checks the shape and the device of tensors
  for (int i = 1; i < kIn; ++i) expected.require(inputs[i], "b", type, /*own_sizes=*/{});
  std::array<Tensor, kOut> outputs;
  for (Tensor& output : outputs) output = empty_in_layout_of(inputs[kLayout]);
  for (Tensor& input : inputs) input = in_layout_of(outputs[0], input);
  // visit_number() and visit_floating() call this function with a zero of type T, or raise an
  // error if T is not allowed. Tensors on the meta device have no data to compute with.
  auto compute = [&](auto zero) {
    if (device.is_meta()) return;
    using T = decltype(zero);
    Elements<T, kIn, kOut> tensors;
    for (int i = 0; i < kIn; ++i) tensors.in[i] = const_data<T>(inputs[i]);
    for (int i = 0; i < kOut; ++i) tensors.out[i] = mutable_data<T>(outputs[i]);
    tensors.size = outputs[0].numel();
    for_each_element(tensors, F<T>{}, device);
  };
  if constexpr (kIntegers) visit_number(name, type, compute);
  else visit_floating(name, type, compute);
  return outputs;
}

// Returns the sigmoid of x. Of the equal forms 1 / (1 + e^-x) and e^x / (1 + e^x), it uses the
// one whose exponential is at most 1: it cannot overflow, and a small result has a small
// relative error. The function object Sigmoid is defined in cpu.h and launch.cuh.
Tensor sigmoid(const Tensor& x) { return map<Sigmoid, false, 1>("sigmoid", {x})[0]; }

Tensor sigmoid_backward(const Tensor& grad, const Tensor& y) {
  return map<SigmoidBackward, /*kIntegers=*/false, 2, 1, /*kLayout=*/1>(
      "sigmoid_backward", {grad, y})[0];
}

Tensor vector_add(const Tensor& a, const Tensor& b) {
  return map<Add, true, 2>("vector_add", {a, b})[0];
}

Tensor elementwise_mult(const Tensor& a, const Tensor& b) {
  return map<Multiply, true, 2>("elementwise_mult", {a, b})[0];
}

std::tuple<Tensor, Tensor> elementwise_mult_backward(
    const Tensor& grad, const Tensor& a, const Tensor& b) {
  const auto grads =
      map<MultiplyBackward, false, 3, 2, 1>("elementwise_mult_backward", {grad, a, b});
  return {grads[0], grads[1]};
}

}  // namespace
}  // namespace cem_tetris

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CEM_TETRIS_DEVICE, m) {
  m.impl("sigmoid", TORCH_BOX(&cem_tetris::sigmoid));
  m.impl("sigmoid_forward", TORCH_BOX(&cem_tetris::sigmoid));
  m.impl("sigmoid_backward", TORCH_BOX(&cem_tetris::sigmoid_backward));
  m.impl("vector_add", TORCH_BOX(&cem_tetris::vector_add));
  m.impl("vector_add_forward", TORCH_BOX(&cem_tetris::vector_add));
  m.impl("elementwise_mult", TORCH_BOX(&cem_tetris::elementwise_mult));
  m.impl("elementwise_mult_forward", TORCH_BOX(&cem_tetris::elementwise_mult));
  m.impl("elementwise_mult_backward", TORCH_BOX(&cem_tetris::elementwise_mult_backward));
}
