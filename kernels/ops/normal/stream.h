// The sampler's random words: Philox4x32-10 (philox.h) at counters that consist of generation,
// sample and dimension. The key is seed ^ kDomain. The words of the counter are:
//
//     word 0: sample div 4, lower 32 bits;
//     word 1: the dimension, lower 32 bits;
//     word 2: the generation, lower 32 bits;
//     word 3: the upper bits of these three numbers, see upper().
//
// So a random number does not depend on the numbers of samples and dimensions, the layout, the
// grid or the device.
//
// Words 2 and 3 are the same for all samples and dimensions of a tile. Word 0 depends on the
// sample, and word 1 on the dimension. Nearly all operations of the first three rounds depend
// on only one of these two words. They are computed once for a loop over the other word. That
// saves 8 of the 40 instructions that four random words take.
#pragma once

#include "host_device.h"
#include "philox.h"

namespace cem_tetris::normal {

using philox::kMultiplier0, philox::kMultiplier1, philox::kRounds;
using Words = philox::Block;  // four random words
constexpr int kFirstLateRound = 3;

// Marks in word 3: bit 31 marks the words of doubles, and bit 30 the second one of the two
// draws that doubles take for a block of four samples.
constexpr uint32_t kOfDouble = 1u << 31, kSecondDraw = 1u << 30;

// Returns word 3 without its marks. It consists of the bits from 32 on of the generation (6
// bits, because a generation is below 2^38), of the dimension (12 bits) and of the block of
// samples (12 bits).
CEM_TETRIS_FUNCTION uint32_t upper(uint64_t generation, uint64_t dimension, uint64_t block) {
  return uint32_t(generation >> 32 << 24 | dimension >> 32 << 12 | block >> 32);
}

// Return the upper and the lower 32 bits of a product.
CEM_TETRIS_FUNCTION uint32_t high_word(uint64_t product) { return uint32_t(product >> 32); }
CEM_TETRIS_FUNCTION uint32_t low_word(uint64_t product) { return uint32_t(product); }

// Returns the product a * b with all of its 64 bits.
CEM_TETRIS_FUNCTION uint64_t multiply(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
  // For the C++ expression, nvcc would add a needless addition to this instruction.
  uint64_t product;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
#else
  return uint64_t(a) * b;
#endif
}

// A key of two words. Every round has its own key, which differs from the key of the previous
// round by a constant in either word.
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
// tetris/game/piece_stream.py) use the seed itself as the key, and counters of the same layout.
// Because of kDomain, their random words and the sampler's are unrelated for the same seed.
constexpr uint64_t kDomain = 0x6E6F726D616C207Aull;

// Returns the key of a seed.
CEM_TETRIS_FUNCTION Key make_key(uint64_t seed) {
  return {low_word(seed ^ kDomain), high_word(seed ^ kDomain)};
}

// The keys of rounds 3 to 9, two for each round.
constexpr int kLateKeys = 2 * (kRounds - kFirstLateRound);
struct LateKeys {
  uint32_t word[kLateKeys];

  CEM_TETRIS_FUNCTION uint32_t key0(int round) const {
    return word[2 * (round - kFirstLateRound)];
  }
  CEM_TETRIS_FUNCTION uint32_t key1(int round) const {
    return word[2 * (round - kFirstLateRound) + 1];
  }
};

// Returns word `index` of LateKeys.
CEM_TETRIS_FUNCTION uint32_t late_key(Key key, uint32_t index) {
  uint32_t round = kFirstLateRound + index / 2;
  return index % 2 == 0 ? key.word0(round) : key.word1(round);
}

// Returns the keys of all late rounds, which a loop over dimensions or samples computes once.
CEM_TETRIS_FUNCTION LateKeys late_keys(Key key) {
  LateKeys keys;
  CEM_TETRIS_UNROLL
  for (int i = 0; i < kLateKeys; ++i) keys.word[i] = late_key(key, i);
  return keys;
}

// A round of Philox maps the words (c0, c1, c2, c3) of the counter to
//
//   (high(m1 c2) ^ c1 ^ key0, low(m1 c2), high(m0 c0) ^ c3 ^ key1, low(m0 c0))
//
// with the multipliers m0 and m1; high and low are the halves of a product. Round 0 begins with
// (block, dimension, generation, word 3).

// The part of rounds 0 and 1 that depends on the dimension, but not on the block of samples:
// the two halves of round 1's product m0 c0.
struct DimensionPart {
  uint32_t round1_product0_high, round1_product0_low;
};

// The part of rounds 0 to 2 that depends on the block of samples, but not on the dimension; it
// includes the keys of these rounds. round3_c3 is word c3 of the counter as round 3 begins with
// it. The fields called `part` lack a term that depends on the dimension. philox_words() adds
// this term by an exclusive or:
//
//   round2_c2 = round2_c2_part ^ the high half of round 1's product m0 c0
//   round3_c0 = round3_c0_part ^ the high half of round 2's product m1 c2
//   round3_c2 = round3_c2_part ^ the low half of round 1's product m0 c0
struct BlockPart {
  uint32_t round2_c2_part;
  uint32_t round3_c0_part;
  uint32_t round3_c2_part;
  uint32_t round3_c3;
};

// Computes the part of rounds 0 and 1 that depends on the dimension. A name such as round1_c0
// means word c0 of the counter at the start of round 1, and round1_product0 is the product m0
// c0 of round 1.
CEM_TETRIS_FUNCTION DimensionPart dimension_part(
    Key key, uint64_t dimension, uint64_t generation) {
  uint64_t round0_product1 = multiply(kMultiplier1, low_word(generation));
  uint32_t round1_c0 = high_word(round0_product1) ^ low_word(dimension) ^ key.word0(0);
  uint64_t round1_product0 = multiply(kMultiplier0, round1_c0);
  return {high_word(round1_product0), low_word(round1_product0)};
}

// Computes the part of rounds 0 to 2 that depends on the block of samples; see BlockPart. A
// name such as round1_c2 means word c2 of the counter at the start of round 1, and
// round1_product1 is the product m1 c2 of round 1. `block` is the number of the sample div 4.
// `word3` is word 3 of the counter, from upper().
CEM_TETRIS_FUNCTION BlockPart block_part(
    Key key, uint64_t block, uint64_t generation, uint32_t word3) {
  uint64_t round0_product0 = multiply(kMultiplier0, low_word(block));
  uint32_t round1_c2 = high_word(round0_product0) ^ word3 ^ key.word1(0);
  uint64_t round1_product1 = multiply(kMultiplier1, round1_c2);
  uint32_t round1_c1 = low_word(multiply(kMultiplier1, low_word(generation)));
  uint32_t round2_c0 = high_word(round1_product1) ^ round1_c1 ^ key.word0(1);
  uint64_t round2_product0 = multiply(kMultiplier0, round2_c0);
  return {low_word(round0_product0) ^ key.word1(1), low_word(round1_product1) ^ key.word0(2),
      high_word(round2_product0) ^ key.word1(2), low_word(round2_product0)};
}

// Returns the four random words of Philox4x32-10 for one dimension and one block of four
// samples. Philox computes ten rounds. A round maps the words (c0, c1, c2, c3) of a counter to
//
//   (high(m1 c2) ^ c1 ^ key0, low(m1 c2), high(m0 c0) ^ c3 ^ key1, low(m0 c0)),
//
// where high and low are the halves of a product with a constant, m0 or m1.
//
// Most operations of rounds 0 to 2 depend on the dimension alone or on the block alone. The
// caller has done them before. `dimension` holds the two halves of round 1's product m0 c0.
// `block` holds words at the start of rounds 2 and 3. A word whose name ends in `part` still
// lacks the term that depends on the dimension.
//
// This function adds the missing terms by an exclusive or. Then it computes rounds 3 to 9.
// `keys` holds two words for each of these rounds.
CEM_TETRIS_FUNCTION Words philox_words(
    const LateKeys& keys, DimensionPart dimension, BlockPart block) {
  // The rest of round 2.
  uint32_t round2_c2 = dimension.round1_product0_high ^ block.round2_c2_part;
  uint64_t round2_product1 = multiply(kMultiplier1, round2_c2);
  // The counter at the start of round 3.
  uint32_t c0 = high_word(round2_product1) ^ block.round3_c0_part;
  uint32_t c1 = low_word(round2_product1);
  uint32_t c2 = block.round3_c2_part ^ dimension.round1_product0_low;
  uint32_t c3 = block.round3_c3;
  CEM_TETRIS_UNROLL
  for (int round = kFirstLateRound; round < kRounds; ++round) {
    uint64_t product0 = multiply(kMultiplier0, c0);
    uint64_t product1 = multiply(kMultiplier1, c2);
    c0 = high_word(product1) ^ c1 ^ keys.key0(round);
    c1 = low_word(product1);
    c2 = high_word(product0) ^ c3 ^ keys.key1(round);
    c3 = low_word(product0);
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace cem_tetris::normal
