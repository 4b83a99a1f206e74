// The noise of a tile: four consecutive samples (from a multiple of 4) of four consecutive dimensions
// (from one, too).
//
// float: a Philox block for each dimension. Its words 0 and 1 are radius and angle of samples 0 and 1, its
// words 2 and 3 those of samples 2 and 3. double: a Philox block for each pair of samples and each dimension.
// The first sample of a pair has the cosine, the second the sine.
#pragma once

#include "box_muller.h"

namespace cem_tetris::normal {

constexpr int kTile = 4;

template <typename Real> using Pairs = Polar<Real>[kTile][kTile / 2];  // by dimension and pair of samples

// How a tile's noise is computed: what is prepared for a launch, for four dimensions and for four samples.
template <typename Real> struct Stream {
  static constexpr int kParts = sizeof(Real) / sizeof(float);  // Philox blocks a dimension

  struct Dimensions {
    DimensionPart part[kTile];
  };
  struct Samples {
    BlockPart part[kParts];
  };

  CEM_TETRIS_FUNCTION static Dimensions dimensions(Key key, uint64_t first, uint64_t generation) {
    return {{dimension_part(key, first, generation), dimension_part(key, first + 1, generation),
        dimension_part(key, first + 2, generation), dimension_part(key, first + 3, generation)}};
  }

  CEM_TETRIS_FUNCTION static Samples samples(Key key, uint64_t block, uint64_t generation, uint32_t word3) {
    if constexpr (kParts == 1) {
      return {{block_part(key, block, generation, word3)}};
    } else {
      return {{block_part(key, block, generation, word3 | kOfDouble),
          block_part(key, block, generation, word3 | kOfDouble | kSecondHalf)}};
    }
  }

  CEM_TETRIS_FUNCTION static void tile(
      const LateKeys& keys, const Dimensions& dimensions, const Samples& samples, Pairs<Real>& pairs) {
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (int j = 0; j < kTile; ++j) set(keys, dimensions.part[j], samples, pairs[j]);
  }

  // The tile's first dimension alone.
  CEM_TETRIS_FUNCTION static void first(
      const LateKeys& keys, const Dimensions& dimensions, const Samples& samples, Polar<Real> (&pair)[2]) {
    set(keys, dimensions.part[0], samples, pair);
  }

  CEM_TETRIS_FUNCTION static void set(
      const LateKeys& keys, const DimensionPart& dimension, const Samples& samples, Polar<Real> (&pair)[2]) {
    if constexpr (kParts == 1) {
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
};

}  // namespace cem_tetris::normal
