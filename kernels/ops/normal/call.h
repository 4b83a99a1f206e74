// What both devices' kernels know of a call of the sampler, and of a tile of its noise: four consecutive
// samples (from a multiple of 4) of four consecutive dimensions (from one, too).
//
// float: a Philox block for each dimension. Its words 0 and 1 are radius and angle of samples 0 and 1, its
// words 2 and 3 those of samples 2 and 3. double: a Philox block for each pair of samples and each dimension.
// The first sample of a pair has the cosine, the second the sine.
#pragma once

#include "box_muller.h"
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
constexpr int kTile = 4;
template <typename Real> constexpr int kBlocks = sizeof(Real) / sizeof(float);  // of Philox, a dimension

template <typename F> void dispatch(ScalarType type, const F& f) { visit_floating("sample_normal", type, f); }

}  // namespace cem_tetris::normal
