// From random words to a point of the plane in polar form: the Box-Muller transform (G. E. P.
// Box, M. E. Muller: A note on the generation of random normal deviates, Ann. Math. Stat. 29,
// 1958). radius * cosine and radius * sine are independent and normal.
//
// float: a word for the radius, which goes up to 6.76, and a word for the angle. The device
// takes the special-function unit for log2, square root, sine and cosine; the host takes
// polynomials, good to 3e-7, that a compiler can vectorise. The two differ by no more than 2e-6
// * max(1, radius) (measured on 5e8 numbers: 1.4e-6 below a radius of 3, 2e-6 above). The
// polynomials are minimax fits (linear programming on 1500 Chebyshev points; the coefficients
// rounded to float one by one, the rest fitted again each time).
#pragma once

#include <algorithm>

#include "stream.h"

namespace cem_tetris::normal {

// radius * (cosine, sine): two numbers of the noise.
template <typename Real>
struct Polar {
  Real radius, cosine, sine;
};

// Returns the nearest float. The host converts halves, because AVX2 converts signed integers
// only.
CEM_TETRIS_FUNCTION float nearest_float(uint32_t word) {
#if defined(__CUDA_ARCH__)
  return float(word);
#else
  int32_t upper_half = int32_t(word >> 16);
  int32_t lower_half = int32_t(word & 0xFFFFu);
  return float(upper_half) * 0x1p16f + float(lower_half);
#endif
}

// Returns (word + 1/2) 2^-32, a little less, so that it is at most 1 - 2^-23.
CEM_TETRIS_FUNCTION float open_unit(uint32_t word) {
  return fmaf(nearest_float(word), 0x1.fffffcp-33f, 0x1p-33f);
}

// The radius is sqrt(-2 log(u)), from a logarithm that is good to 2^-22 absolutely. That is too
// little near u = 1, where the root magnifies an error. There v (2 + v) = (1 + v)^2 - 1, with v
// = 1 - u, takes over: the series of the logarithm begins so, and it is a little less than -2
// log(u). The logarithm is lowered by kLowered, so that it is less, too; then the greater of
// the two is the better one.
constexpr float kLowered = 2e-7f;

#if defined(__CUDA_ARCH__)

// Returns a point whose coordinates radius * cosine and radius * sine are independent and
// normal, from one random word for the radius and one for the angle, by the device's
// special-function unit. The angle is uniform in (-pi, pi).
CEM_TETRIS_FUNCTION Polar<float> polar(uint32_t radius_word, uint32_t angle_word) {
  constexpr float kPi = 3.14159265f;
  constexpr float kMinusTwoLog2 = -1.38629436f;
  float u = open_unit(radius_word);
  float w = 2.0f - u;  // 1 + v
  float log2, radius, cosine, sine;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(log2) : "f"(u));
  float square = fmaxf(fmaf(log2, kMinusTwoLog2, -kLowered), fmaf(w, w, -1.0f));
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(radius) : "f"(square));
  float signed_angle = float(int32_t(angle_word));
  float angle = fmaf(signed_angle, kPi * 0x1p-31f, kPi * 0x1p-32f);
  asm("cos.approx.ftz.f32 %0, %1;" : "=f"(cosine) : "f"(angle));
  asm("sin.approx.ftz.f32 %0, %1;" : "=f"(sine) : "f"(angle));
  return {radius, cosine, sine};
}

#else

// Returns -2 log(u) for normal floats u < 1, with a relative error of at most 3e-7. With u = m
// 2^e and 1/2 <= m < 1 it is -2 log(2) e + (m - 1) Q(m - 1), where Q is a polynomial. Both
// terms are positive or zero, so no digits cancel; near u = 1, e is 0 and the second term is
// all.
//
// The exponent becomes a float without a conversion, which would be slow in vectors: adding e
// to the bits of kMagic, a float whose last place is worth 1, gives the float kMagic + e.
// Shifted left by 23 bits, kMagicBits vanishes (its low 9 bits are 0), so that the same integer
// also removes the exponent from the bits of u. The last fmaf but one subtracts
// kMagic again, and gives -2 log(2) e with one rounding.
inline float minus_two_log(float u) {
  constexpr float kMagic = 12582912.0f;         // 1.5 * 2^23
  constexpr uint32_t kMagicBits = 0x4B400000u;  // the bits of kMagic
  constexpr float kTwoLog2 = 0x1.62e43p+0f;     // to 22 bits: kMagic * kTwoLog2 is exact
  constexpr int kMantissa = 23;
  constexpr uint32_t kBias = 126;  // of an exponent where 1/2 <= m < 1
  uint32_t bits = bit_cast<uint32_t>(u);
  uint32_t exponent_bits = (bits >> kMantissa) + (kMagicBits - kBias);
  float exponent = bit_cast<float>(exponent_bits);                        // kMagic + e
  float f = bit_cast<float>(bits - (exponent_bits << kMantissa)) - 1.0f;  // m - 1
  float q = polynomial(f, 0x1.2e4adcp+1f, 0x1.12e852p+1f, 0x1.8f31cep+0f, -0x1.496a24p-4f,
      0x1.165388p-1f, -0x1.53e010p-1f, 0x1.000482p+0f, -0x1.fffffcp+0f);
  float minus_two_log_power = fmaf(exponent, -kTwoLog2, kMagic * kTwoLog2);  // -2 log(2) e
  return fmaf(f, q, minus_two_log_power);
}

// Returns a point whose coordinates radius * cosine and radius * sine are independent and
// normal, from one random word for the radius and one for the angle, by polynomials.
CEM_TETRIS_FUNCTION Polar<float> polar(uint32_t radius_word, uint32_t angle_word) {
  float u = open_unit(radius_word);
  float w = 2.0f - u;  // 1 + v
  float square = std::max(minus_two_log(u) - kLowered, fmaf(w, w, -1.0f));
  // The angle is pi times `turns`, in (-1, 1) and never 0. Where it is in the left half plane
  // (is_far), half a turn takes it to pi t with |t| <= 1/2, where the polynomials hold; then
  // the signs of cosine and sine change. Masks take the place of branches, so that a loop over
  // this function can be vectorised.
  float turns = fmaf(float(int32_t(angle_word)), 0x1p-31f, 0x1p-32f);
  uint32_t is_far = std::fabs(turns) <= 0.5f ? 0u : ~0u;
  uint32_t half_turn = bit_cast<uint32_t>(std::copysign(1.0f, turns)) & is_far;
  float t = turns - bit_cast<float>(half_turn);
  float t2 = t * t;
  uint32_t sign = is_far & 0x80000000u;
  float cosine = polynomial(  // cos(pi t), to 6e-8
      t2, 0x1.c02e2p-3f, -0x1.54dcb4p+0f, 0x1.03bc26p+2f, -0x1.3bd39cp+2f, 0x1.fffffep-1f);
  float sine = polynomial(  // sin(pi t) / t, to 1e-8
      t2, 0x1.3912a8p-4f, -0x1.31fbf4p-1f, 0x1.466504p+1f, -0x1.4abba2p+2f, 0x1.921fb4p+1f);
  uint32_t cosine_bits = bit_cast<uint32_t>(cosine) ^ sign;
  uint32_t sine_bits = bit_cast<uint32_t>(sine * t) ^ sign;
  return {std::sqrt(square), bit_cast<float>(cosine_bits), bit_cast<float>(sine_bits)};
}

#endif

// double: 53 bits for each of radius and angle, from a whole block of four words. IEEE
// operations alone, in a fixed order, in place of the libraries' functions: the same bits on
// every processor and on CUDA. The series are cut where what is left out is below 1e-16 of the
// sum; radius * cosine and radius * sine are good to 1e-15 of the radius.

// Returns upper * 2^32 + lower + 1/2, rounded once.
CEM_TETRIS_FUNCTION double plus_half(int32_t upper, uint32_t lower) {
  double signed_lower = double(int32_t(lower ^ 0x80000000u));  // lower - 2^31
  return fma(double(upper), 0x1p32, signed_lower + (0x1p31 + 0.5));
}

// Returns -2 log(u) for 2^-54 <= u <= 1. With u = m 2^e, sqrt(1/2) <= m < sqrt(2), and s = (m -
// 1) / (m + 1), log(u) = e log(2) + log(m), and log(m) = 2 atanh(s) = 2 (s + s^3 / 3 + ...).
// The exponent becomes a double by its bits: those of 2^52, with e + kBias in the lowest ones.
CEM_TETRIS_FUNCTION double minus_two_log(double u) {
  constexpr uint64_t kRootHalf = 0x3FE6A09E667F3BCDull;  // the bits of sqrt(1/2)
  constexpr uint64_t kBias = 64;                         // makes e positive
  constexpr uint64_t kMagic =
      0x4330000000000000ull;  // the bits of 2^52, which then hold e + kBias
  constexpr double kTwoLog2 = 0x1.62e42fefa39efp+0;
  constexpr int kMantissa = 52;
  uint64_t bits = bit_cast<uint64_t>(u);
  uint64_t biased = (bits - kRootHalf + (kBias << kMantissa)) >> kMantissa;
  double exponent = bit_cast<double>(kMagic | biased) - (0x1p52 + double(kBias));
  double m = bit_cast<double>(bits - ((biased - kBias) << kMantissa));
  double f = m - 1.0;
  double s = f / (2.0 + f);
  double s2 = s * s;
  double series = polynomial(s2, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11,
      1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3);
  return fma(exponent, -kTwoLog2, -4.0 * fma(s * s2, series, s));
}

// Returns a point whose coordinates radius * cosine and radius * sine are independent and
// normal, from four random words: the first two make the radius, the last two the angle.
CEM_TETRIS_FUNCTION Polar<double> polar(uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3) {
  // u = (n + 1/2) 2^-53 with the upper 53 bits of the first two words: never 0, and 1 only by
  // rounding.
  double u = plus_half(int32_t(w0 >> 11), w0 << 21 | w1 >> 11) * 0x1p-53;
  double square = minus_two_log(u);
  // The angle is `quarter` quarters of a turn plus x, |x| <= pi / 4. The upper 3 bits, rounded,
  // are the quarters; what is left of the 53 bits makes x, and is subtracted as an integer.
  uint32_t quarter = ((w2 >> 29) + 1) / 2;
  int32_t upper = int32_t((w2 >> 11) - (quarter << 19));
  double x = plus_half(upper, w2 << 21 | w3 >> 11) * 0x1.921fb54442d18p-51;  // 2 pi 2^-53
  double x2 = x * x;
  double sine_series = polynomial(x2, -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800,
      1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6);
  double cosine_series = polynomial(x2, 1.0 / 20922789888000, -1.0 / 87178291200,
      1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24);
  double sine = fma(x * x2, sine_series, x);
  // cos(x) = rest + the rounding error of rest + x^4 (1/24 - ...), with rest = 1 - x^2 / 2.
  double half = 0.5 * x2;
  double rest = 1.0 - half;
  double cosine = rest + fma(x2 * x2, cosine_series, (1.0 - rest) - half);
  // An odd number of quarters exchanges the two; quarters 1 and 2 change the cosine's sign, 2
  // and 3 the sine's.
  bool odd = quarter % 2 != 0;
  uint64_t along = bit_cast<uint64_t>(odd ? sine : cosine);
  uint64_t across = bit_cast<uint64_t>(odd ? cosine : sine);
  uint64_t along_sign = uint64_t((quarter + 1) & 2) << 62;
  uint64_t across_sign = uint64_t(quarter & 2) << 62;
  return {sqrt(square > 0.0 ? square : 0.0), bit_cast<double>(along ^ along_sign),
      bit_cast<double>(across ^ across_sign)};
}

}  // namespace cem_tetris::normal
