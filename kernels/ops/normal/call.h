// What a call of the sampler is to the kernels of both devices.
#pragma once

#include "tensors.h"

namespace cem_tetris::normal {

// One number a dimension and problem, of any of the four types. The dimensions of a problem are neighbours in
// memory, `stride` numbers lie between problems. The bounds may have no data.
struct Vector {
  const void* data;
  ScalarType type;
  int64_t stride;
};

// What the noise is made of.
struct Noise {
  uint64_t seed, generation;
  const int64_t* seed_data;        // where not null, the seeds are there, one a problem
  const int64_t* generation_data;  // where not null, the generation is there
  int64_t problems, samples, dimensions;
  bool shared, antithetic, dim_first;
};

constexpr uint64_t kGenerations = uint64_t{1} << 38;

template <typename F> void dispatch(ScalarType type, const F& f) { visit_floating("sample_normal", type, f); }

}  // namespace cem_tetris::normal
