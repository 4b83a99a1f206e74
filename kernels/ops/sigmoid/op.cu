// 1 / (1 + e^-x) on CUDA, by elementwise_kernel: its grid is told there.
//
// Roofline: 2 * sizeof(T) bytes an element forward and 3 * sizeof(T) backward. While a multiprocessor of an
// H200 moves the bytes of one float32 element at 4.3 TB/s, it can issue 55 thread instructions and 7 special
// functions; at 16 bits half of that. The functions below take 15 to 20, two of them special: memory-bound.

#include "elementwise.cuh"

#include <torch/csrc/stable/library.h>

using namespace cem_tetris;

namespace {

__device__ float reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// Of the two equal forms 1 / (1 + e^-x) and e^x / (1 + e^x) the one whose exponential is at most 1: it cannot
// overflow, and keeps its relative accuracy where the result is small.
template <typename T>
struct Sigmoid {
  // 16 bits: the error of the fast exponential, at most 6e-6 where the result is not zero, is far below a
  // rounding of the result.
  __device__ void operator()(const float (&in)[1], float (&out)[1]) const {
    const float power = __expf(-fabsf(in[0]));
    out[0] = (in[0] < 0.0f ? power : 1.0f) * reciprocal(1.0f + power);
  }
};

template <>
struct Sigmoid<float> {
  __device__ void operator()(const float (&in)[1], float (&out)[1]) const {
    const float power = expf(-fabsf(in[0]));
    const float numerator = in[0] < 0.0f ? power : 1.0f;
    const float denominator = 1.0f + power;  // in [1, 2], so that no division can need scaling
    const float rest = power - (denominator - 1.0f);  // 1 + power = denominator + rest
    const float inverse = reciprocal(denominator);
    const float quotient = numerator * inverse;
    const float remainder = fmaf(-rest, quotient, fmaf(-denominator, quotient, numerator));
    out[0] = fmaf(remainder, inverse, quotient);
  }
};

template <>
struct Sigmoid<double> {
  __device__ void operator()(const double (&in)[1], double (&out)[1]) const {
    const double power = exp(-fabs(in[0]));
    out[0] = (in[0] < 0.0 ? power : 1.0) / (1.0 + power);
  }
};

struct SigmoidBackward {
  template <typename A>
  __device__ void operator()(const A (&in)[2], A (&out)[1]) const {
    out[0] = in[0] * (A(1) - in[1]) * in[1];
  }
};

Tensor sigmoid(const Tensor& x) {
  Tensor output = empty_as(x);
  visit_floating("sigmoid", x.scalar_type(), [&](auto type) {
    using T = decltype(type);
    elementwise<T, 1, 1>({in_layout_of(output, x)}, {output}, Sigmoid<T>{});
  });
  return output;
}

Tensor sigmoid_backward(const Tensor& grad, const Tensor& y) {
  check_alike("sigmoid_backward", grad, y);
  Tensor output = empty_as(y);
  visit_floating("sigmoid_backward", y.scalar_type(), [&](auto type) {
    elementwise<decltype(type), 2, 1>({in_layout_of(output, grad), in_layout_of(output, y)}, {output},
                                      SigmoidBackward{});
  });
  return output;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CUDA, m) {
  m.impl("sigmoid", TORCH_BOX(&sigmoid));
  m.impl("sigmoid_forward", TORCH_BOX(&sigmoid));
  m.impl("sigmoid_backward", TORCH_BOX(&sigmoid_backward));
}
