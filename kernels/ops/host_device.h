// Building blocks of functions that run on host and device: macros for their declaration, the
// bits of a number, polynomials.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

// CEM_TETRIS_FUNCTION declares a function for host and device. CEM_TETRIS_DEVICE_FUNCTION
// declares a function for the device alone. CEM_TETRIS_UNROLL unrolls the loop after it.
// Without nvcc, functions for the device are compiled for the CPU, so that its threads can run
// them.
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

// Returns the number of type To that has the same bits.
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

// Returns the value of a polynomial at x by Horner's scheme. `sum` is the coefficient of the
// highest power, and the coefficients of the lower powers follow in descending order.
template <typename Real, typename... Coefficients>
CEM_TETRIS_FUNCTION Real polynomial(Real x, Real sum, Coefficients... lower) {
  ((sum = multiply_add(sum, x, lower)), ...);
  return sum;
}

}  // namespace cem_tetris
