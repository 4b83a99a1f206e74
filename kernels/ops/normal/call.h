// The structures of a call of the sampler that the kernels of both devices share, and the noise
// of a tile. A tile is four consecutive samples of four consecutive dimensions, both from a
// multiple of 4 on. A block of samples is four consecutive samples.
//
//   float:   one Philox block for each dimension and block of samples:
//            | word 0: radius 01 | word 1: angle 01 | word 2: radius 23 | word 3: angle 23 |
//   double:  two, one for each pair of samples: all four words make the pair's radius and angle
//
// The first sample of a pair is radius * cosine, the second radius * sine.
#pragma once

#include "box_muller.h"
#include "tensors.h"

namespace cem_tetris::normal {

// One number for each dimension of each problem, such as the means, of any of the four types.
// The numbers of a problem are neighbours in memory; those of the next problem begin `stride`
// numbers later. A bound that does not exist has no data.
struct Vector {
  const void* data;
  ScalarType type;
  int64_t stride;
};

constexpr uint64_t kGenerations = uint64_t{1}
                                  << 38;  // a counter has 38 bits for the generation

// The parameters that determine the noise of a call.
struct Noise {
  uint64_t seed, generation;
  const int64_t* seed_data;        // if not null, one seed per problem replaces `seed`
  const int64_t* generation_data;  // if not null, replaces `generation`
  bool generation_per_problem;     // generation_data has one number per problem, not one
  int64_t problems, samples, dimensions;
  bool shared;      // all dimensions have the noise of dimension 0
  bool antithetic;  // sample 2 i + 1 has the noise of sample 2 i, negated
  bool dim_first;   // the result has the layout (..., d, N)

  // Sets seed and generation to those of a problem, an entry of the batch.
  CEM_TETRIS_FUNCTION void load_seed(int64_t problem) {
    if (seed_data) seed = uint64_t(seed_data[problem]);
    if (!generation_data) return;
    int64_t index = generation_per_problem ? problem : 0;
    generation = uint64_t(generation_data[index]) % kGenerations;
  }
};

struct Call {
  Noise noise;
  Vector mean, std, low, high;
};

constexpr int kTile = 4;

// How often Philox draws four random words for the noise of four samples of one dimension: once
// in float32, and twice in float64, once for each pair of samples.
template <typename Real>
constexpr int kDraws = sizeof(Real) / sizeof(float);

// Returns the mark of draw 0 or 1 in word 3 of the Philox counter. The draws of float32 and the
// two draws of float64 have different marks, and so different random words.
template <typename Real>
CEM_TETRIS_FUNCTION constexpr uint32_t mark_of(int draw) {
  uint32_t second = draw == 0 ? 0 : kSecondDraw;
  return kDraws<Real> == 1 ? 0 : kOfDouble | second;
}

// The part of the random words of four consecutive samples (a block of samples) that all
// dimensions have in common. There is one part for each draw of four words.
template <typename Real>
struct Samples {
  BlockPart part[kDraws<Real>];
};

// Returns the part of the random words that all dimensions have in common, for block number
// block + i of samples, which are the samples 4 (block + i) to 4 (block + i) + 3.
//
// The part depends on the upper bits (bits 32 and above) of `block` and `dimension`. Therefore
// block + i must have the same upper bits as `block`, and the part is valid only for dimensions
// with the same upper bits as `dimension`.
template <typename Real>
CEM_TETRIS_FUNCTION Samples<Real> samples_of(
    Key key, uint64_t generation, uint64_t dimension, uint64_t block, int i = 0) {
  uint32_t word3 = upper(generation, dimension, block);
  if constexpr (kDraws<Real> == 1) {
    return {{block_part(key, block + i, generation, word3)}};
  } else {
    return {{block_part(key, block + i, generation, word3 | mark_of<Real>(0)),
        block_part(key, block + i, generation, word3 | mark_of<Real>(1))}};
  }
}

// Sets the noise of four consecutive samples of one dimension: a radius, a cosine and a sine
// for each of the two pairs of samples. The first sample of a pair is radius * cosine, and the
// second one radius * sine. Both are standard normal.
//
// polar() computes a pair from random words, two of them in float32 and four in float64.
// philox_words() draws four words. So both pairs share one draw in float32, and have one draw
// each in float64.
template <typename Real>
CEM_TETRIS_FUNCTION void set_pairs(const LateKeys& keys, const DimensionPart& dimension,
    const Samples<Real>& samples, Polar<Real> (&pairs)[kTile / 2]) {
  if constexpr (kDraws<Real> == 1) {
    Words words = philox_words(keys, dimension, samples.part[0]);
    pairs[0] = polar(words.word[0], words.word[1]);
    pairs[1] = polar(words.word[2], words.word[3]);
  } else {
    for (int pair = 0; pair < 2; ++pair) {
      Words words = philox_words(keys, dimension, samples.part[pair]);
      pairs[pair] = polar(words.word[0], words.word[1], words.word[2], words.word[3]);
    }
  }
}

// Calls f(T{}) with the C++ type T of means and standard deviations, or of the result. Raises
// an error if the sampler has no kernels for this type.
template <typename F>
void dispatch(ScalarType type, const F& f) {
  visit_floating("sample_normal", type, f);
}

}  // namespace cem_tetris::normal
