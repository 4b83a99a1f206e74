// What functions for host and device alike are declared with, and the bits of a number.
#pragma once

#include <cstring>

#if defined(__CUDACC__)
#define CEM_TETRIS_FUNCTION __host__ __device__ __forceinline__
#else
#define CEM_TETRIS_FUNCTION inline __attribute__((always_inline))
#endif

namespace cem_tetris {

template <typename To, typename From> CEM_TETRIS_FUNCTION To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "expected types of one size");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

}  // namespace cem_tetris
