// The sampler's random words: Philox4x32-10 (philox.h) at counters made of (generation, sample,
// dimension).
//
// key = seed ^ kDomain. Counter word 0: sample div 4, low 32 bits; word 1: the dimension, low
// 32 bits; word 2: the generation, low 32 bits; word 3: what is left of the three, see upper().
// So a number depends neither on how many samples or dimensions there are, nor on the layout,
// the grid or the device. Words 2 and 3 are the same all over a tile of samples and dimensions,
// word 0 belongs to the sample, word 1 to the dimension. Nearly everything in the first three
// rounds depends on only one of them, and is computed once for a loop over the other: that
// leaves 32 of 40 instructions for each block.
#pragma once

#include "host_device.h"
#include "philox.h"

namespace cem_tetris::normal {

using philox::kMultiplier0, philox::kMultiplier1, philox::kRounds;
using Words = philox::Block;  // four random words
constexpr int kFirstLateRound = 3;

// Word 3: bit 31 marks the words of doubles, bit 30 the second half of such a block of four
// samples.
constexpr uint32_t kOfDouble = 1u << 31, kSecondHalf = 1u << 30;

// Returns word 3 without its marks: bits 32 and up of the generation (6 of them, so it is below
// 2^38), of the dimension (12 bits) and of the block of samples (12 bits).
CEM_TETRIS_FUNCTION uint32_t upper(uint64_t generation, uint64_t dimension, uint64_t block) {
  return uint32_t(generation >> 32 << 24 | dimension >> 32 << 12 | block >> 32);
}

CEM_TETRIS_FUNCTION uint32_t high(uint64_t product) { return uint32_t(product >> 32); }
CEM_TETRIS_FUNCTION uint32_t low(uint64_t product) { return uint32_t(product); }

// Returns the 64 bits of a product.
CEM_TETRIS_FUNCTION uint64_t multiply(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
  uint64_t
      product;  // for the C++ expression, nvcc adds a needless addition to this instruction
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
#else
  return uint64_t(a) * b;
#endif
}

// The two words of a key, which every round increases.
struct Key {
  uint32_t k0, k1;
  CEM_TETRIS_FUNCTION uint32_t word0(uint32_t round) const {
    return k0 + round * philox::kWeyl0;
  }
  CEM_TETRIS_FUNCTION uint32_t word1(uint32_t round) const {
    return k1 + round * philox::kWeyl1;
  }
};

// "normal z" in ASCII. Other users of Philox in this project (the pieces of
// tetris/game/piece_stream.py) take the seed itself for the key and lay their counters out
// alike: the same seed gives them unrelated words.
constexpr uint64_t kDomain = 0x6E6F726D616C207Aull;

// Returns the key of a seed.
CEM_TETRIS_FUNCTION Key make_key(uint64_t seed) {
  return {low(seed ^ kDomain), high(seed ^ kDomain)};
}

// The keys of rounds 3 to 9, two for each round.
constexpr int kLateKeys = 2 * (kRounds - kFirstLateRound);
struct LateKeys {
  uint32_t word[kLateKeys];
};

CEM_TETRIS_FUNCTION uint32_t late_key(Key key, uint32_t index) {
  uint32_t round = kFirstLateRound + index / 2;
  return index % 2 == 0 ? key.word0(round) : key.word1(round);
}

// Returns the keys of all late rounds, which a loop over dimensions or samples computes once.
CEM_TETRIS_FUNCTION LateKeys late_keys(Key key) {
  LateKeys keys;
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (int i = 0; i < kLateKeys; ++i) keys.word[i] = late_key(key, i);
  return keys;
}

// A round of Philox takes the words (c0, c1, c2, c3) to
//
//   (high(m1 c2) ^ c1 ^ key0, low(m1 c2), high(m0 c0) ^ c3 ^ key1, low(m0 c0))
//
// with the multipliers m0 and m1. The counter begins as (block, dimension, generation, word 3).

// What rounds 0 and 1 make of the dimension alone: round 1's product m0 c0.
struct DimensionPart {
  uint32_t high, low;
};

// What rounds 0 to 2 make of the block of samples alone, with the keys of these rounds. Three
// of the words lack a term that depends on the dimension; words() adds it by an exclusive or.
struct BlockPart {
  uint32_t round2_c2;  // lacks DimensionPart::high
  uint32_t round3_c0;  // lacks the high half of round 2's product m1 c2
  uint32_t round3_c2;  // lacks DimensionPart::low
  uint32_t round3_c3;
};

// Computes the first two rounds as far as they depend on the dimension. A name such as
// round1_c0 is word c0 of the counter as round 1 begins with it; round1_product0 is round 1's
// product m0 c0.
CEM_TETRIS_FUNCTION DimensionPart dimension_part(
    Key key, uint64_t dimension, uint64_t generation) {
  uint64_t round0_product1 = multiply(kMultiplier1, low(generation));
  uint32_t round1_c0 = high(round0_product1) ^ low(dimension) ^ key.word0(0);
  uint64_t round1_product0 = multiply(kMultiplier0, round1_c0);
  return {high(round1_product0), low(round1_product0)};
}

// Computes the first three rounds as far as they depend on the block of samples. A name such as
// round1_c2 is word c2 of the counter as round 1 begins with it; round1_product1 is round 1's
// product m1 c2. block: the sample div 4; word3: see upper().
CEM_TETRIS_FUNCTION BlockPart block_part(
    Key key, uint64_t block, uint64_t generation, uint32_t word3) {
  uint64_t round0_product0 = multiply(kMultiplier0, low(block));
  uint32_t round1_c2 = high(round0_product0) ^ word3 ^ key.word1(0);
  uint64_t round1_product1 = multiply(kMultiplier1, round1_c2);
  uint32_t round1_c1 = low(multiply(kMultiplier1, low(generation)));
  uint32_t round2_c0 = high(round1_product1) ^ round1_c1 ^ key.word0(1);
  uint64_t round2_product0 = multiply(kMultiplier0, round2_c0);
  return {low(round0_product0) ^ key.word1(1), low(round1_product1) ^ key.word0(2),
      high(round2_product0) ^ key.word1(2), low(round2_product0)};
}

// Returns the four random words of Philox4x32-10 at the counter of one dimension and one block
// of four samples. Most of rounds 0 to 2 depends on only one of the two; that was computed
// before, in `dimension` and `block`. This joins both (exclusive or), and computes rounds 3 to
// 9, whose keys are `keys`, two words for each round. A round takes the words (c0, c1, c2, c3)
// to
//
//   (high(m1 c2) ^ c1 ^ key0, low(m1 c2), high(m0 c0) ^ c3 ^ key1, low(m0 c0)).
CEM_TETRIS_FUNCTION Words words(
    const LateKeys& keys, DimensionPart dimension, BlockPart block) {
  // What is left of round 2.
  uint64_t round2_product1 = multiply(kMultiplier1, dimension.high ^ block.round2_c2);
  uint32_t c0 = high(round2_product1) ^ block.round3_c0;
  uint32_t c1 = low(round2_product1);
  uint32_t c2 = block.round3_c2 ^ dimension.low;
  uint32_t c3 = block.round3_c3;
#if defined(__CUDA_ARCH__)
#pragma unroll
#else
#pragma GCC unroll 8
#endif
  for (int i = 0; i < kLateKeys; i += 2) {
    uint64_t product0 = multiply(kMultiplier0, c0);
    uint64_t product1 = multiply(kMultiplier1, c2);
    c0 = high(product1) ^ c1 ^ keys.word[i];
    c1 = low(product1);
    c2 = high(product0) ^ c3 ^ keys.word[i + 1];
    c3 = low(product0);
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace cem_tetris::normal
