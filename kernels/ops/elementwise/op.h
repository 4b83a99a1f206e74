// The elementwise operators, one source for CPU and CUDA: a function of one element each, and their table.
//
// On a GPU they are bound by memory, (inputs + outputs) * sizeof(T) bytes an element. While a multiprocessor
// of an H200 moves the 8 bytes of a float32 element of sigmoid at 4.3 TB/s, it can issue 55 thread
// instructions and 7 special functions, at 16 bits half of that; sigmoid takes 15 to 20, two of them special.
// A sum or a product is one instruction beside 12 bytes.
#pragma once

#include "loop.cuh"
#include "portable.h"

#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

namespace cem_tetris {
namespace {

template <typename T> struct Add {
  template <typename A> CEM_TETRIS_FUNCTION void operator()(const A (&in)[2], A (&out)[1]) const {
    out[0] = in[0] + in[1];
  }
};

template <typename T> struct Multiply {
  template <typename A> CEM_TETRIS_FUNCTION void operator()(const A (&in)[2], A (&out)[1]) const {
    out[0] = in[0] * in[1];
  }
};

// The gradients of a and b, of the gradient, a and b.
template <typename T> struct MultiplyBackward {
  template <typename A> CEM_TETRIS_FUNCTION void operator()(const A (&in)[3], A (&out)[2]) const {
    out[0] = in[0] * in[2];
    out[1] = in[0] * in[1];
  }
};

// The gradient of x, of the gradient and of the result.
template <typename T> struct SigmoidBackward {
  template <typename A> CEM_TETRIS_FUNCTION void operator()(const A (&in)[2], A (&out)[1]) const {
    out[0] = in[0] * (A(1) - in[1]) * in[1];
  }
};

// Sigmoid takes of the two equal forms 1 / (1 + e^-x) and e^x / (1 + e^x) the one whose exponential is at
// most 1: it cannot overflow, and keeps its relative accuracy where the result is small.
#ifdef __CUDACC__

__device__ float reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

template <typename T> struct Sigmoid {
  // 16 bits: the error of the fast exponential, at most 6e-6 where the result is not zero, is far below a
  // rounding of the result.
  __device__ void operator()(const float (&in)[1], float (&out)[1]) const {
    const float power = __expf(-fabsf(in[0]));
    out[0] = (in[0] < 0.0f ? power : 1.0f) * reciprocal(1.0f + power);
  }
};

template <> struct Sigmoid<float> {
  __device__ void operator()(const float (&in)[1], float (&out)[1]) const {
    const float power = expf(-fabsf(in[0]));
    const float numerator = in[0] < 0.0f ? power : 1.0f;
    const float denominator = 1.0f + power;           // in [1, 2], so that no division can need scaling
    const float rest = power - (denominator - 1.0f);  // 1 + power = denominator + rest
    const float inverse = reciprocal(denominator);
    const float quotient = numerator * inverse;
    const float remainder = fmaf(-rest, quotient, fmaf(-denominator, quotient, numerator));
    out[0] = fmaf(remainder, inverse, quotient);
  }
};

template <> struct Sigmoid<double> {
  __device__ void operator()(const double (&in)[1], double (&out)[1]) const {
    const double power = exp(-fabs(in[0]));
    out[0] = (in[0] < 0.0 ? power : 1.0) / (1.0 + power);
  }
};

#else

// e^x for x <= 0, into the subnormal numbers; NaN for NaN. No branches, no calls and always inlined, so that
// g++ turns a loop over it into vector code. x = n ln 2 + r with |r| <= ln 2 / 2; e^r is its Taylor series,
// cut where the next term is below a tenth of the last bit.
template <typename A> CEM_TETRIS_FUNCTION A exponential(A x) {
  constexpr bool kSingle = sizeof(A) == sizeof(float);
  using Bits = std::conditional_t<kSingle, uint32_t, uint64_t>;
  constexpr int kMantissa = std::numeric_limits<A>::digits - 1;
  constexpr A kRound =
      A(3) * (Bits{1} << (kMantissa - 1));      // added, it rounds to an integer, in the low bits
  constexpr A kLowest = kSingle ? -104 : -746;  // e^x rounds to zero below
  constexpr A kLn2High = kSingle ? 0x1.62e4p-1 : 0x1.62e42fefap-1;  // so few bits that its products are exact
  constexpr A kLn2Low = kSingle ? 0x1.7f7d1cp-20 : 0x1.cf79abc9e3b39p-40;
  x = x < kLowest ? kLowest : x;
  const A shifted = multiply_add(x, A(1.44269504088896340736), kRound);
  const A n = shifted - kRound;
  const A r = multiply_add(n, -kLn2Low, multiply_add(n, -kLn2High, x));
  A sum;
  if constexpr (kSingle) {
    sum = polynomial(r, 1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 1.0f / 2, 1.0f, 1.0f);
  } else {
    sum = polynomial(r, 1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880,
        1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2, 1.0, 1.0);
  }
  // 2^n in two factors, each a normal number: n goes down to -150 and -1076.
  const auto power_of_two = [](Bits exponent) {
    constexpr Bits kBias = std::numeric_limits<A>::max_exponent - 1;
    return bit_cast<A>((exponent + kBias) << kMantissa);
  };
  const Bits minus_n = bit_cast<Bits>(kRound) - bit_cast<Bits>(shifted), half = minus_n >> 1;
  return sum * power_of_two(Bits{0} - half) * power_of_two(half - minus_n);
}

template <typename T> struct Sigmoid {
  template <typename A> void operator()(const A (&in)[1], A (&out)[1]) const {
    const A power = exponential(-std::fabs(in[0]));
    out[0] = (in[0] < A(0) ? power : A(1)) / (A(1) + power);
  }
};

#endif

// Applies F to tensors that are alike; the new ones have the layout of input number kLike.
template <template <typename> class F, bool kIntegers, int kIn, int kOut = 1, int kLike = 0>
std::array<Tensor, kOut> map(const char* name, std::array<Tensor, kIn> inputs) {
  const Problems like{Device(inputs[0]), inputs[0].sizes()};
  for (int i = 1; i < kIn; ++i) like.require(inputs[i], "b", inputs[0].scalar_type(), {});
  std::array<Tensor, kOut> outputs;
  for (Tensor& each : outputs) each = empty_in_layout_of(inputs[kLike]);
  for (Tensor& each : inputs) each = in_layout_of(outputs[0], each);
  const auto run = [&](auto type) {
    using T = decltype(type);
    elementwise<T, kIn, kOut>(inputs, outputs, F<T>{});
  };
  if constexpr (kIntegers) {
    visit_number(name, inputs[0].scalar_type(), run);
  } else {
    visit_floating(name, inputs[0].scalar_type(), run);
  }
  return outputs;
}

Tensor sigmoid(const Tensor& x) { return map<Sigmoid, false, 1>("sigmoid", {x})[0]; }

Tensor sigmoid_backward(const Tensor& grad, const Tensor& y) {
  return map<SigmoidBackward, false, 2, 1, 1>("sigmoid_backward", {grad, y})[0];
}

Tensor vector_add(const Tensor& a, const Tensor& b) { return map<Add, true, 2>("vector_add", {a, b})[0]; }

Tensor elementwise_mult(const Tensor& a, const Tensor& b) {
  return map<Multiply, true, 2>("elementwise_mult", {a, b})[0];
}

std::tuple<Tensor, Tensor> elementwise_mult_backward(const Tensor& grad, const Tensor& a, const Tensor& b) {
  const auto grads = map<MultiplyBackward, false, 3, 2, 1>("elementwise_mult_backward", {grad, a, b});
  return {grads[0], grads[1]};
}

}  // namespace
}  // namespace cem_tetris

// NAME_forward is NAME without the autograd formula, whose Python every call of NAME passes through.
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
