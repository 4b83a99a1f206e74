// The noise of a tile: four consecutive samples (from a multiple of 4) of four consecutive dimensions
// (from one, too).
//
// float: a Philox block for each dimension. Its words 0 and 1 are radius and angle of samples 0 and 1, its
// words 2 and 3 those of samples 2 and 3. double: a Philox block for each pair of samples and each dimension.
// The first sample of a pair has the cosine, the second the sine.
#pragma once

#include "box_muller.h"
#include "philox.h"

namespace cem_tetris::normal {

constexpr int kTile = 4;

template <typename Real>
using Pairs = Polar<Real>[kTile][kTile / 2];  // by dimension and pair of samples

// How a tile's noise is computed: what is prepared for a launch, for four dimensions and for four samples.
template <typename Real>
struct Stream;

template <>
struct Stream<float> {
  using Keys = LateKeys;
  using Samples = BlockPart;
  struct Dimensions {
    DimensionPart part[kTile];
  };

  NORMAL_FUNCTION static Dimensions dimensions(Key key, uint64_t first, uint64_t generation) {
    return {{dimension_part(key, first, generation), dimension_part(key, first + 1, generation),
             dimension_part(key, first + 2, generation), dimension_part(key, first + 3, generation)}};
  }

  NORMAL_FUNCTION static Samples samples(Key key, uint64_t block, uint64_t generation, uint32_t word3) {
    return block_part(key, block, generation, word3);
  }

  NORMAL_FUNCTION static void tile(const Keys& keys, const Dimensions& dimensions, const Samples& samples,
                                   Pairs<float>& pairs) {
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (int j = 0; j < kTile; ++j) set(words(keys, dimensions.part[j], samples), pairs[j]);
  }

  // The tile's first dimension alone.
  NORMAL_FUNCTION static void first(const Keys& keys, const Dimensions& dimensions, const Samples& samples,
                                    Polar<float> (&pair)[2]) {
    set(words(keys, dimensions.part[0], samples), pair);
  }

  NORMAL_FUNCTION static void set(const Words& w, Polar<float> (&pair)[2]) {
    pair[0] = polar(w.word[0], w.word[1]);
    pair[1] = polar(w.word[2], w.word[3]);
  }
};

template <>
struct Stream<double> {
  using Keys = Key;
  struct Samples {
    uint32_t block, word3;
  };
  struct Dimensions {
    uint32_t first, generation;
  };

  NORMAL_FUNCTION static Dimensions dimensions(Key, uint64_t first, uint64_t generation) {
    return {low(first), low(generation)};
  }

  NORMAL_FUNCTION static Samples samples(Key, uint64_t block, uint64_t, uint32_t word3) {
    return {low(block), word3};
  }

  NORMAL_FUNCTION static void tile(const Keys& key, const Dimensions& dimensions, const Samples& samples,
                                   Pairs<double>& pairs) {
    for (uint32_t j = 0; j < kTile; ++j) set(key, dimensions, j, samples, pairs[j]);
  }

  NORMAL_FUNCTION static void first(const Keys& key, const Dimensions& dimensions, const Samples& samples,
                                    Polar<double> (&pair)[2]) {
    set(key, dimensions, 0, samples, pair);
  }

  NORMAL_FUNCTION static void set(Key key, const Dimensions& dimensions, uint32_t j, const Samples& samples,
                                  Polar<double> (&pair)[2]) {
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t word3 = samples.word3 | 1u << 31 | half << 30;
      const philox::Block w = philox::block(static_cast<uint64_t>(dimensions.first + j) << 32 | samples.block,
                                            static_cast<uint64_t>(word3) << 32 | dimensions.generation,
                                            static_cast<uint64_t>(key.k1) << 32 | key.k0);
      pair[half] = polar(w.word[0], w.word[1], w.word[2], w.word[3]);
    }
  }
};

}  // namespace cem_tetris::normal
