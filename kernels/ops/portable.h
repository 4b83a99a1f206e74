// What functions for host and device alike are made of: their declaration, the bits of a
// number, polynomials.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define CEM_TETRIS_FUNCTION __host__ __device__ __forceinline__
#else
#define CEM_TETRIS_FUNCTION inline __attribute__((always_inline))
#endif

namespace cem_tetris {

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <typename To, typename From> CEM_TETRIS_FUNCTION To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "expected types of one size");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

// a * b + c, rounded once.
CEM_TETRIS_FUNCTION float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
CEM_TETRIS_FUNCTION double multiply_add(double a, double b, double c) { return fma(a, b, c); }

// By Horner's scheme; the coefficients from the highest on.
template <typename Real, typename... Coefficients>
CEM_TETRIS_FUNCTION Real polynomial(Real x, Real sum, Coefficients... lower) {
  ((sum = multiply_add(sum, x, lower)), ...);
  return sum;
}

}  // namespace cem_tetris
