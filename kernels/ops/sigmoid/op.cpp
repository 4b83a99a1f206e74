// 1 / (1 + e^-x): the schemas and the CPU kernels.

#include "elementwise.cuh"

#include <torch/csrc/stable/library.h>

#include <cmath>
#include <cstring>

using namespace cem_tetris;

namespace {

template <typename A>
struct Format;

template <>
struct Format<float> {
  using Bits = uint32_t;
  static constexpr int kMantissa = 23;
  static constexpr int kDegree = 7;
  static constexpr float kRound = 0x1.8p23f;  // added, it rounds to an integer, which the low bits then hold
  static constexpr float kLowest = -104.0f;   // e^x rounds to zero below
  static constexpr float kLn2High = 0x1.62e4p-1f;  // 15 bits: its products with n are exact
  static constexpr float kLn2Low = 0x1.7f7d1cp-20f;
};

template <>
struct Format<double> {
  using Bits = uint64_t;
  static constexpr int kMantissa = 52;
  static constexpr int kDegree = 13;
  static constexpr double kRound = 0x1.8p52;
  static constexpr double kLowest = -746.0;
  static constexpr double kLn2High = 0x1.62e42fefap-1;
  static constexpr double kLn2Low = 0x1.cf79abc9e3b39p-40;
};

inline float multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double multiply_add(double a, double b, double c) { return __builtin_fma(a, b, c); }

template <typename A>
A power_of_two(typename Format<A>::Bits n) {
  using Bits = typename Format<A>::Bits;
  constexpr Bits kBias = (Bits{1} << (sizeof(A) * 8 - 2 - Format<A>::kMantissa)) - 1;
  const Bits bits = (n + kBias) << Format<A>::kMantissa;
  A power;
  std::memcpy(&power, &bits, sizeof power);
  return power;
}

template <typename A>
struct Taylor {
  A factor[Format<A>::kDegree + 1];  // 1 / k!
  constexpr Taylor() : factor() {
    double factorial = 1;
    for (int k = 0; k <= Format<A>::kDegree; factorial *= ++k) factor[k] = static_cast<A>(1 / factorial);
  }
};

template <typename A>
constexpr Taylor<A> kTaylor{};

// e^x for x <= 0, into the subnormal numbers; NaN for NaN. No branches, no calls and always inlined, so that
// g++ turns a loop over it into vector code. x = n ln 2 + r with |r| <= ln 2 / 2; e^r is its Taylor series,
// cut where the next term is below a tenth of the last bit.
template <typename A>
[[gnu::always_inline]] inline A exponential(A x) {
  using F = Format<A>;
  using Bits = typename F::Bits;
  x = x < F::kLowest ? F::kLowest : x;
  const A shifted = multiply_add(x, A(1.44269504088896340736), F::kRound);
  const A n = shifted - F::kRound;
  A r = multiply_add(n, -F::kLn2High, x);
  r = multiply_add(n, -F::kLn2Low, r);
  A sum = kTaylor<A>.factor[F::kDegree];
#pragma GCC unroll 16
  for (int k = F::kDegree - 1; k >= 0; --k) sum = multiply_add(sum, r, kTaylor<A>.factor[k]);
  // 2^n in two factors, each a normal number: n goes down to -150 and -1076.
  Bits bits, round;
  const A zero = F::kRound;
  std::memcpy(&bits, &shifted, sizeof bits);
  std::memcpy(&round, &zero, sizeof round);
  const Bits minus_n = round - bits, half = minus_n >> 1;
  return sum * power_of_two<A>(Bits{0} - half) * power_of_two<A>(half - minus_n);
}

// Of the two equal forms 1 / (1 + e^-x) and e^x / (1 + e^x) the one whose exponential is at most 1: it cannot
// overflow, and keeps its relative accuracy where the result is small.
struct Sigmoid {
  template <typename A>
  void operator()(const A (&in)[1], A (&out)[1]) const {
    const A x = in[0];
    const A power = exponential(-std::fabs(x));
    out[0] = (x < A(0) ? power : A(1)) / (A(1) + power);
  }
};

struct SigmoidBackward {
  template <typename A>
  void operator()(const A (&in)[2], A (&out)[1]) const {
    out[0] = in[0] * (A(1) - in[1]) * in[1];
  }
};

Tensor sigmoid(const Tensor& x) {
  Tensor output = empty_as(x);
  visit_floating("sigmoid", x.scalar_type(), [&](auto type) {
    elementwise<decltype(type), 1, 1>({in_layout_of(output, x)}, {output}, Sigmoid{});
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

// sigmoid_forward is sigmoid without the autograd formula, whose Python every call of sigmoid passes through.
// sigmoid_backward takes the gradient and sigmoid's result.
STABLE_TORCH_LIBRARY_FRAGMENT(cem_tetris, m) {
  m.def("sigmoid(Tensor x) -> Tensor");
  m.def("sigmoid_forward(Tensor x) -> Tensor");
  m.def("sigmoid_backward(Tensor grad, Tensor y) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CPU, m) {
  m.impl("sigmoid", TORCH_BOX(&sigmoid));
  m.impl("sigmoid_forward", TORCH_BOX(&sigmoid));
  m.impl("sigmoid_backward", TORCH_BOX(&sigmoid_backward));
}
