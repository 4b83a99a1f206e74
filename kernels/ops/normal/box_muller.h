// Converts random words to a point of the plane in polar form by the Box-Muller transform (G.
// E. P. Box, M. E. Muller: A note on the generation of random normal deviates, Ann. Math. Stat.
// 29, 1958). radius * cosine and radius * sine are independent standard normal numbers.
//
// float: one word makes the radius, which is at most 6.76, and one word the angle. On the
// device, the special-function unit computes log2, square root, sine and cosine. The host uses
// polynomials with an error of at most 3e-7, which a compiler can vectorise. The results of
// both differ by at most 2e-6 * max(1, radius); 5e8 numbers differed by 1.4e-6 below a radius
// of 3, and by 2e-6 above. The polynomials are minimax fits (linear programming on 1500
// Chebyshev points). Their coefficients were rounded to float one by one, and the others fitted
// again each time.
#pragma once

#include <algorithm>

#include "stream.h"

namespace cem_tetris::normal {

// A point of the plane. radius * cosine and radius * sine are two numbers of the noise.
template <typename Real>
struct Polar {
  Real radius, cosine, sine;
};

// Returns the float that is nearest to a word. The host converts the two halves of the word,
// because AVX2 can only convert signed integers.
CEM_TETRIS_FUNCTION float nearest_float(uint32_t word) {
#if defined(__CUDA_ARCH__)
  return float(word);
#else
  int32_t upper_half = int32_t(word >> 16);
  int32_t lower_half = int32_t(word & 0xFFFFu);
  return float(upper_half) * 0x1p16f + float(lower_half);
#endif
}

// Returns slightly less than (word + 1/2) 2^-32, so that the result is at most 1 - 2^-23.
CEM_TETRIS_FUNCTION float open_unit(uint32_t word) {
  return fmaf(nearest_float(word), 0x1.fffffcp-33f, 0x1p-33f);
}

// The radius is sqrt(-2 log(u)). The logarithm has an absolute error of 2^-22. That is too much
// near u = 1, where the root magnifies an error. There the first terms of the series replace
// the logarithm: with v = 1 - u, they are v (2 + v) = (1 + v)^2 - 1, which is slightly less
// than -2 log(u). kLowered is subtracted from the other approximation, so that it is also
// slightly too small. The greater of the two is then the better one.
constexpr float kLowered = 2e-7f;

#if defined(__CUDA_ARCH__)

// Returns a random point of the plane in polar form, by the Box-Muller transform. Its
// coordinates, radius * cosine and radius * sine, are independent standard normal numbers. One
// random word determines the radius and another one the angle. The GPU's special-function unit
// computes logarithm, root, sine and cosine.
//
// The radius is sqrt(-2 log(u)) with u uniform in (0, 1). There are two approximations of
// -2 log(u). The first one is computed from the logarithm, minus kLowered, a bound of its
// error. The second one is w^2 - 1 with w = 2 - u, and is good only near u = 1. Neither is
// greater than -2 log(u), so the greater one is the better one.
//
// The angle is uniform in (-pi, pi): the word, read as a signed integer, plus 1/2, times
// pi / 2^31.
CEM_TETRIS_FUNCTION Polar<float> polar(uint32_t radius_word, uint32_t angle_word) {
  constexpr float kPi = 3.14159265f;
  constexpr float kMinusTwoLog2 = -1.38629436f;  // -2 log(2): the unit computes log2(u)
  float u = open_unit(radius_word);
  float w = 2.0f - u;
  float log2, radius, cosine, sine;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(log2) : "f"(u));
  float by_logarithm = fmaf(log2, kMinusTwoLog2, -kLowered);
  float near_one = fmaf(w, w, -1.0f);
  float squared_radius = fmaxf(by_logarithm, near_one);
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(radius) : "f"(squared_radius));
  float signed_angle = float(int32_t(angle_word));
  float angle = fmaf(signed_angle, kPi * 0x1p-31f, kPi * 0x1p-32f);
  asm("cos.approx.ftz.f32 %0, %1;" : "=f"(cosine) : "f"(angle));
  asm("sin.approx.ftz.f32 %0, %1;" : "=f"(sine) : "f"(angle));
  return {radius, cosine, sine};
}

#else

// Returns -2 log(u) for floats u < 1 that are not subnormal, with a relative error of at most
// 3e-7. Let u be m 2^e with 1/2 <= m < 1. The result is -2 log(2) e + (m - 1) Q(m - 1), where Q
// is a polynomial fitted to the logarithm. Both terms are positive or zero, so no digits
// cancel.
//
// To compute m, e is subtracted from the exponent of u. The exponent field of a float begins at
// bit 23, so the integer e * 2^23 is subtracted from the bits of u.
//
// The vector instruction that converts the integer e to float is slow. Instead, e is added to
// the bits of the float kMagic. It is so large that its last bit has the value 1, so the result
// is the bits of the float kMagic + e. A multiply-add then computes the term -2 log(2) e as
// -2 log(2) (kMagic + e) + 2 log(2) kMagic.
inline float minus_two_log(float u) {
  constexpr float kMagic = 12582912.0f;         // 1.5 * 2^23
  constexpr uint32_t kMagicBits = 0x4B400000u;  // the bits of kMagic
  constexpr float kTwoLog2 = 0x1.62e43p+0f;     // to 22 bits: kMagic * kTwoLog2 is exact
  constexpr int kMantissa = 23;                 // the number of bits below the exponent field
  constexpr uint32_t kBias = 126;  // the exponent field of numbers m with 1/2 <= m < 1
  uint32_t bits = bit_cast<uint32_t>(u);
  // The sign bit is 0, so the bits above the mantissa are e + kBias.
  uint32_t magic_plus_e_bits = (bits >> kMantissa) + (kMagicBits - kBias);
  float magic_plus_e = bit_cast<float>(magic_plus_e_bits);
  // The bits of kMagic vanish in this shift, because the lowest 9 of them are 0.
  uint32_t e_in_exponent_field = magic_plus_e_bits << kMantissa;
  float m = bit_cast<float>(bits - e_in_exponent_field);
  float m_minus_1 = m - 1.0f;
  float q = polynomial(m_minus_1, 0x1.2e4adcp+1f, 0x1.12e852p+1f, 0x1.8f31cep+0f,
      -0x1.496a24p-4f, 0x1.165388p-1f, -0x1.53e010p-1f, 0x1.000482p+0f, -0x1.fffffcp+0f);
  float minus_two_log2_e = fmaf(magic_plus_e, -kTwoLog2, kMagic * kTwoLog2);
  return fmaf(m_minus_1, q, minus_two_log2_e);
}

// Returns a random point of the plane in polar form, by the Box-Muller transform. Its
// coordinates, radius * cosine and radius * sine, are independent standard normal numbers. One
// random word determines the radius and another one the angle. Sine and cosine are polynomials.
// Bit masks replace branches, so that a compiler can vectorise a loop over this function.
//
// The radius is sqrt(-2 log(u)) with u uniform in (0, 1). There are two approximations of
// -2 log(u). The first one is computed from the logarithm, minus kLowered, a bound of its
// error. The second one is w^2 - 1 with w = 2 - u, and is good only near u = 1. Neither is
// greater than -2 log(u), so the greater one is the better one.
CEM_TETRIS_FUNCTION Polar<float> polar(uint32_t radius_word, uint32_t angle_word) {
  float u = open_unit(radius_word);
  float w = 2.0f - u;
  float squared_radius = std::max(minus_two_log(u) - kLowered, fmaf(w, w, -1.0f));
  // The angle is pi times half_turns, a number from -1 to 1. The polynomials below need an
  // angle pi t with |t| <= 1/2. From an angle in the left half plane, half a turn is therefore
  // subtracted (or added, if it is negative). That changes the signs of sine and cosine.
  // left_mask has all bits set for such an angle, and no bit for others.
  float half_turns = fmaf(float(int32_t(angle_word)), 0x1p-31f, 0x1p-32f);
  uint32_t left_mask = std::fabs(half_turns) <= 0.5f ? 0u : ~0u;
  uint32_t subtracted_bits = bit_cast<uint32_t>(std::copysign(1.0f, half_turns)) & left_mask;
  float t = half_turns - bit_cast<float>(subtracted_bits);  // minus 1, -1 or 0
  float t2 = t * t;
  uint32_t changed_sign = left_mask & 0x80000000u;  // the sign bit of a float, or 0
  // Polynomials for cos(pi t), with an error of at most 6e-8, and for sin(pi t) / t, with an
  // error of at most 1e-8.
  float cosine = polynomial(
      t2, 0x1.c02e2p-3f, -0x1.54dcb4p+0f, 0x1.03bc26p+2f, -0x1.3bd39cp+2f, 0x1.fffffep-1f);
  float sine_over_t = polynomial(
      t2, 0x1.3912a8p-4f, -0x1.31fbf4p-1f, 0x1.466504p+1f, -0x1.4abba2p+2f, 0x1.921fb4p+1f);
  uint32_t cosine_bits = bit_cast<uint32_t>(cosine) ^ changed_sign;
  uint32_t sine_bits = bit_cast<uint32_t>(sine_over_t * t) ^ changed_sign;
  return {std::sqrt(squared_radius), bit_cast<float>(cosine_bits), bit_cast<float>(sine_bits)};
}

#endif

// double: radius and angle have 53 bits each, from four random words. The functions use only
// IEEE operations, in a fixed order, and no library functions. So every processor and CUDA get
// the same bits. A series ends where the remaining terms are below 1e-16 of the sum. The errors
// of radius * cosine and radius * sine are at most 1e-15 of the radius.

// Returns upper * 2^32 + lower + 1/2, rounded once.
CEM_TETRIS_FUNCTION double plus_half(int32_t upper, uint32_t lower) {
  double signed_lower = double(int32_t(lower ^ 0x80000000u));  // lower - 2^31
  return fma(double(upper), 0x1p32, signed_lower + (0x1p31 + 0.5));
}

// Returns -2 log(u) for 2^-54 <= u <= 1. Let u be m 2^e with sqrt(1/2) <= m < sqrt(2). Then
//
//     log(u) = e log(2) + log(m),
//     log(m) = 2 atanh(s) = 2 (s + s^3 / 3 + s^5 / 5 + ...), where s = (m - 1) / (m + 1).
//
// The exponent e is computed from the bits of u. The bits of sqrt(1/2), the smallest m, are
// subtracted, and kBias is added to the exponent, so that the integer e + kBias is positive. To
// convert it to a double, it is written into the lowest bits of 2^52, whose last bit has the
// value 1. Then 2^52 + kBias is subtracted.
CEM_TETRIS_FUNCTION double minus_two_log(double u) {
  constexpr uint64_t kRootHalfBits = 0x3FE6A09E667F3BCDull;  // the bits of sqrt(1/2)
  constexpr uint64_t kTwo52Bits = 0x4330000000000000ull;     // the bits of 2^52
  constexpr uint64_t kBias = 64;
  constexpr double kTwoLog2 = 0x1.62e42fefa39efp+0;
  constexpr int kMantissa = 52;
  uint64_t bits = bit_cast<uint64_t>(u);
  uint64_t biased_e = (bits - kRootHalfBits + (kBias << kMantissa)) >> kMantissa;
  double e = bit_cast<double>(kTwo52Bits | biased_e) - (0x1p52 + double(kBias));
  double m = bit_cast<double>(bits - ((biased_e - kBias) << kMantissa));
  double m_minus_1 = m - 1.0;
  double s = m_minus_1 / (2.0 + m_minus_1);
  double s2 = s * s;
  // atanh(s) is s + s^3 times this series.
  double series = polynomial(s2, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11,
      1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3);
  return fma(e, -kTwoLog2, -4.0 * fma(s * s2, series, s));
}

// Returns a random point of the plane in polar form, by the Box-Muller transform. Its
// coordinates, radius * cosine and radius * sine, are independent standard normal numbers. The
// words w0 and w1 are 64 random bits, and the upper 53 of them determine the radius. The upper
// 53 bits of w2 and w3 determine the angle. The function uses only IEEE operations, so CPU and
// GPU get the same bits. plus_half(upper, lower) is upper * 2^32 + lower + 1/2.
CEM_TETRIS_FUNCTION Polar<double> polar(uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3) {
  constexpr double kTwoPi53 = 0x1.921fb54442d18p-51;  // 2 pi 2^-53
  // The radius is sqrt(-2 log(u)). With the 53 bits as an integer n, u is (n + 1/2) 2^-53. The
  // upper 21 bits of n are w0 >> 11, and the lower 32 bits are radius_lower.
  uint32_t radius_lower = w0 << 21 | w1 >> 11;
  double u = plus_half(int32_t(w0 >> 11), radius_lower) * 0x1p-53;
  double squared_radius = minus_two_log(u);
  // The angle is a number of quarter turns plus x, with |x| <= pi / 4. A whole turn is 2^53, so
  // the upper 3 bits are a number of eighths of a turn, which is rounded to quarters. x is the
  // angle minus the quarters. The upper 21 of the 53 bits are w2 >> 11, where a quarter is 2^19.
  uint32_t eighths = w2 >> 29;
  uint32_t quarters = (eighths + 1) / 2;
  int32_t angle_upper = int32_t((w2 >> 11) - (quarters << 19));
  uint32_t angle_lower = w2 << 21 | w3 >> 11;
  double x = plus_half(angle_upper, angle_lower) * kTwoPi53;
  double x2 = x * x;
  double sine_series = polynomial(x2, -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800,
      1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6);
  double cosine_series = polynomial(x2, 1.0 / 20922789888000, -1.0 / 87178291200,
      1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24);
  double sine = fma(x * x2, sine_series, x);
  // cos(x) = (1 - x^2 / 2) + the rounding error of that difference + x^4 (1/24 - ...).
  double half_square = 0.5 * x2;
  double first_terms = 1.0 - half_square;
  double rounding_error = (1.0 - first_terms) - half_square;
  double cosine = first_terms + fma(x2 * x2, cosine_series, rounding_error);
  // Turn by 0 to 4 quarters. An odd number exchanges sine and cosine. 1 and 2 quarters change
  // the sign of the cosine, and 2 and 3 quarters the sign of the sine. For these numbers, bit 1
  // of quarters + 1 and of `quarters` is set. It is moved to bit 63, the sign of a double.
  bool is_odd = quarters % 2 != 0;
  uint64_t cosine_bits = bit_cast<uint64_t>(is_odd ? sine : cosine);
  uint64_t sine_bits = bit_cast<uint64_t>(is_odd ? cosine : sine);
  uint64_t cosine_sign = uint64_t((quarters + 1) & 2) << 62;
  uint64_t sine_sign = uint64_t(quarters & 2) << 62;
  double radius = sqrt(squared_radius > 0.0 ? squared_radius : 0.0);
  return {radius, bit_cast<double>(cosine_bits ^ cosine_sign),
      bit_cast<double>(sine_bits ^ sine_sign)};
}

}  // namespace cem_tetris::normal
