// From random words to a point of the plane in polar form: the Box-Muller transform (G. E. P. Box, M. E.
// Muller: A note on the generation of random normal deviates, Ann. Math. Stat. 29, 1958). radius * cosine and
// radius * sine are independent and normal.
//
// float: a word for the radius, which goes up to 6.76, and a word for the angle. The device takes the
// special-function unit for log2, square root, sine and cosine; the host takes polynomials, good to 3e-7,
// that a compiler can vectorise. The two differ by no more than 2e-6 * max(1, radius) (measured on 5e8
// numbers: 1.4e-6 below a radius of 3, 2e-6 above). The polynomials are minimax fits (linear programming on
// 1500 Chebyshev points; the coefficients rounded to float one by one, the rest fitted again each time).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "stream.h"

namespace cem_tetris::normal {

template <typename Real>
struct Polar {
  Real radius, cosine, sine;
};

// (word + 1/2) 2^-32, a little less, so that it is at most 1 - 2^-23.
NORMAL_FUNCTION float open_unit(uint32_t word) {
  return fmaf(static_cast<float>(word), 0x1.fffffcp-33f, 0x1p-33f);
}

// The radius is sqrt(-2 log(u)), from a logarithm that is good to 2^-22 absolutely. That is too little near u
// = 1, where the root magnifies an error. There v (2 + v) = (1 + v)^2 - 1, with v = 1 - u, takes over: the
// logarithm's series begins so, and it is a little less than -2 log(u). The logarithm is lowered by kLowered,
// so that it is less, too; then the greater of the two is the better one.
constexpr float kLowered = 2e-7f;

#if defined(__CUDA_ARCH__)

NORMAL_FUNCTION Polar<float> polar(uint32_t radius_word, uint32_t angle_word) {
  constexpr float kPi = 3.14159265f;
  const float u = open_unit(radius_word), w = 2.0f - u;
  float log2, radius, cosine, sine;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(log2) : "f"(u));
  const float square = fmaxf(fmaf(log2, -1.38629436f, -kLowered), fmaf(w, w, -1.0f));
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(radius) : "f"(square));
  const float angle =
      fmaf(static_cast<float>(static_cast<int32_t>(angle_word)), kPi * 0x1p-31f, kPi * 0x1p-32f);
  asm("cos.approx.ftz.f32 %0, %1;" : "=f"(cosine) : "f"(angle));
  asm("sin.approx.ftz.f32 %0, %1;" : "=f"(sine) : "f"(angle));
  return {radius, cosine, sine};
}

#else

// The angle is pi times this, in [-1, 1], never 0.
NORMAL_FUNCTION float half_turns(uint32_t word) {
  return fmaf(static_cast<float>(static_cast<int32_t>(word)), 0x1p-31f, 0x1p-32f);
}

NORMAL_FUNCTION float as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

NORMAL_FUNCTION uint32_t as_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// -2 log(u), to 3e-7 of itself, for floats 2^-126 <= u < 1. With u = m 2^e, 1/2 <= m < 1:
// -2 log(2) e + (m - 1) Q(m - 1), in which nothing cancels: for u near 1, e is 0.
inline float minus_two_log(float u) {
  constexpr float kMagic = 12582912.0f;      // 1.5 * 2^23: in its last bits a float holds a small integer
  constexpr float kTwoLog2 = 0x1.62e43p+0f;  // 2 log(2) to 22 bits: its product with kMagic is exact
  const uint32_t bits = as_bits(u), exponent_bits = (bits >> 23) + (0x4B400000u - 126u);
  const float exponent = as_float(exponent_bits), f = as_float(bits - (exponent_bits << 23)) - 1.0f;
  float q = 0x1.2e4adcp+1f;
  q = fmaf(q, f, 0x1.12e852p+1f);
  q = fmaf(q, f, 0x1.8f31cep+0f);
  q = fmaf(q, f, -0x1.496a24p-4f);
  q = fmaf(q, f, 0x1.165388p-1f);
  q = fmaf(q, f, -0x1.53e010p-1f);
  q = fmaf(q, f, 0x1.000482p+0f);
  q = fmaf(q, f, -0x1.fffffcp+0f);
  return fmaf(f, q, fmaf(exponent, -kTwoLog2, kMagic * kTwoLog2));
}

NORMAL_FUNCTION Polar<float> polar(uint32_t radius_word, uint32_t angle_word) {
  const float u = open_unit(radius_word), w = 2.0f - u;
  const float square = std::max(minus_two_log(u) - kLowered, fmaf(w, w, -1.0f));
  // The angle or its opposite, whichever is nearer to 0: pi t with |t| <= 1/2; the opposite has both signs
  // changed.
  const float turns = half_turns(angle_word);
  const bool near = std::fabs(turns) <= 0.5f;
  const float t = near ? turns : turns - std::copysign(1.0f, turns), t2 = t * t;
  const uint32_t sign = near ? 0u : 0x80000000u;
  float cosine = 0x1.c02e2p-3f;  // cos(pi t), 6e-8
  cosine = fmaf(cosine, t2, -0x1.54dcb4p+0f);
  cosine = fmaf(cosine, t2, 0x1.03bc26p+2f);
  cosine = fmaf(cosine, t2, -0x1.3bd39cp+2f);
  cosine = fmaf(cosine, t2, 0x1.fffffep-1f);
  float sine = 0x1.3912a8p-4f;  // sin(pi t) / t, 1e-8
  sine = fmaf(sine, t2, -0x1.31fbf4p-1f);
  sine = fmaf(sine, t2, 0x1.466504p+1f);
  sine = fmaf(sine, t2, -0x1.4abba2p+2f);
  sine = fmaf(sine, t2, 0x1.921fb4p+1f);
  return {std::sqrt(square), as_float(as_bits(cosine) ^ sign), as_float(as_bits(sine * t) ^ sign)};
}

#endif

// double: 53 bits for each of the two, from a whole block of four words.
NORMAL_FUNCTION Polar<double> polar(uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3) {
  constexpr double kPi = 3.14159265358979323846;
  const uint64_t n0 = (static_cast<uint64_t>(w0) << 32 | w1) >> 11,
                 n1 = (static_cast<uint64_t>(w2) << 32 | w3) >> 11;
  const double u = (static_cast<double>(n0) + 0.5) * 0x1p-53;  // never 0, and 1 only by rounding
  const double theta = 2.0 * kPi * ((static_cast<double>(n1) + 0.5) * 0x1p-53);
  const double square = -2.0 * log(u);
  return {sqrt(square > 0.0 ? square : 0.0), cos(theta), sin(theta)};
}

}  // namespace cem_tetris::normal
