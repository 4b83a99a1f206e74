// What both devices' kernels know of a call of the sampler, and of a tile of its noise: four
// consecutive samples (from a multiple of 4) of four consecutive dimensions (from one, too).
//
// float: a Philox block for each dimension. Its words 0 and 1 are radius and angle of samples 0
// and 1, its words 2 and 3 those of samples 2 and 3. double: a Philox block for each pair of
// samples and each dimension. The first sample of a pair has the cosine, the second the sine.
#pragma once

#include "box_muller.h"
#include "tensors.h"

namespace cem_tetris::normal {

// One number a dimension and problem, of any of the four types. The dimensions of a problem are
// neighbours in memory, `stride` numbers lie between problems. The bounds may have no data.
struct Vector {
  const void* data;
  ScalarType type;
  int64_t stride;
};

constexpr uint64_t kGenerations = uint64_t{1} << 38;

// What the noise is made of.
struct Noise {
  uint64_t seed, generation;
  const int64_t* seed_data;        // where not null, the seeds are there, one a problem
  const int64_t* generation_data;  // where not null, the generation is there
  int64_t problems, samples, dimensions;
  bool shared, antithetic, dim_first;

  // Puts seed and generation of a problem in place of those of all.
  CEM_TETRIS_FUNCTION void enter(int64_t problem) {
    if (seed_data != nullptr) seed = static_cast<uint64_t>(seed_data[problem]);
    if (generation_data != nullptr)
      generation = static_cast<uint64_t>(*generation_data) % kGenerations;
  }
};

struct Call {
  Noise noise;
  Vector mean, std, low, high;
};

constexpr int kTile = 4;
template <typename Real> constexpr int kBlocks =
    sizeof(Real) / sizeof(float);  // of Philox, a dimension

// What is prepared of the noise of a block of four samples.
template <typename Real> struct Samples {
  BlockPart part[kBlocks<Real>];
};

// Of the i-th block from one on that differs in low bits alone, in dimensions that have the
// upper bits of one.
template <typename Real> CEM_TETRIS_FUNCTION Samples<Real> samples_of(
    Key key, uint64_t generation, uint64_t dimension, uint64_t block, int i = 0) {
  const uint32_t word3 = upper(generation, dimension, block);
  if constexpr (kBlocks<Real> == 1) {
    return {{block_part(key, block + i, generation, word3)}};
  } else {
    return {{block_part(key, block + i, generation, word3 | kOfDouble),
        block_part(key, block + i, generation, word3 | kOfDouble | kSecondHalf)}};
  }
}

// The noise of four samples of a dimension, by pair.
template <typename Real> CEM_TETRIS_FUNCTION void set_pairs(const LateKeys& keys,
    const DimensionPart& dimension, const Samples<Real>& samples,
    Polar<Real> (&pair)[kTile / 2]) {
  if constexpr (kBlocks<Real> == 1) {
    const Words w = words(keys, dimension, samples.part[0]);
    pair[0] = polar(w.word[0], w.word[1]);
    pair[1] = polar(w.word[2], w.word[3]);
  } else {
    for (int half = 0; half < 2; ++half) {
      const Words w = words(keys, dimension, samples.part[half]);
      pair[half] = polar(w.word[0], w.word[1], w.word[2], w.word[3]);
    }
  }
}

template <typename F> void dispatch(ScalarType type, const F& f) {
  visit_floating("sample_normal", type, f);
}

}  // namespace cem_tetris::normal
