// What functions for host and device alike are made of: their declaration, the bits of a
// number, polynomials.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

// A function for host and device, one for the device alone, and a loop that is unrolled.
// Outside of nvcc, functions of the device are for threads of the CPU that stand for it.
#if defined(__CUDACC__)
#define CEM_TETRIS_FUNCTION __host__ __device__ __forceinline__
#define CEM_TETRIS_DEVICE_FUNCTION __device__ __forceinline__
#define CEM_TETRIS_UNROLL _Pragma("unroll")
#else
#define CEM_TETRIS_FUNCTION inline __attribute__((always_inline))
#define CEM_TETRIS_DEVICE_FUNCTION inline
#define CEM_TETRIS_UNROLL _Pragma("GCC unroll 16")
#endif

namespace cem_tetris {

// Returns a / b, rounded up.
inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Returns the same bits as a number of another type.
template <typename To, typename From>
CEM_TETRIS_FUNCTION To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "expected types of one size");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

// Returns a * b + c, rounded once.
CEM_TETRIS_FUNCTION float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
CEM_TETRIS_FUNCTION double multiply_add(double a, double b, double c) { return fma(a, b, c); }

// Returns a polynomial at x by Horner's scheme; the coefficients are given from the highest
// power on.
template <typename Real, typename... Coefficients>
CEM_TETRIS_FUNCTION Real polynomial(Real x, Real sum, Coefficients... lower) {
  ((sum = multiply_add(sum, x, lower)), ...);
  return sum;
}

}  // namespace cem_tetris
