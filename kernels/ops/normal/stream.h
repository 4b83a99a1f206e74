// The sampler's random words: Philox4x32-10 (philox.h) at counters made of (generation, sample,
// dimension).
//
// key = seed ^ kDomain. Counter word 0: sample div 4, low 32 bits; word 1: the dimension, low
// 32 bits; word 2: the generation, low 32 bits; word 3: what is left of the three, see upper().
// So a number depends neither on how many samples or dimensions there are, nor on the layout,
// the grid or the device.
//
// Words 2 and 3 are the same all over a tile of samples and dimensions, word 0 belongs to the
// sample, word 1 to the dimension. Of the first three rounds nearly all depends on one of them
// alone, and a loop over the other keeps it: of 40 instructions a block, 32 are left.
#pragma once

#include <cstdint>

#include "portable.h"

namespace cem_tetris::normal {

constexpr uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
constexpr int kFirstLateRound = 3, kRounds = 10;

// Word 3: bit 31 marks the words of doubles, bit 30 the second half of such a block of four
// samples.
constexpr uint32_t kOfDouble = 1u << 31, kSecondHalf = 1u << 30;

// Below them, bits 32.. of the generation (6 of them, so it is below 2^38), of the dimension
// (12) and of the block of samples (12).
CEM_TETRIS_FUNCTION uint32_t upper(uint64_t generation, uint64_t dimension, uint64_t block) {
  return static_cast<uint32_t>(generation >> 32 << 24 | dimension >> 32 << 12 | block >> 32);
}

CEM_TETRIS_FUNCTION uint32_t high(uint64_t product) {
  return static_cast<uint32_t>(product >> 32);
}
CEM_TETRIS_FUNCTION uint32_t low(uint64_t product) { return static_cast<uint32_t>(product); }

CEM_TETRIS_FUNCTION uint64_t multiply(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
  uint64_t
      product;  // of the C++ expression nvcc makes the same instruction and a needless addition
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
#else
  return static_cast<uint64_t>(a) * b;
#endif
}

struct Key {
  uint32_t k0, k1;
  CEM_TETRIS_FUNCTION uint32_t word0(uint32_t round) const { return k0 + round * kWeyl0; }
  CEM_TETRIS_FUNCTION uint32_t word1(uint32_t round) const { return k1 + round * kWeyl1; }
};

// "normal z" in ASCII. Other users of Philox in this project (the pieces of
// tetris/game/piece_stream.py) take the seed itself for the key and lay their counters out
// alike: the same seed gives them unrelated words.
constexpr uint64_t kDomain = 0x6E6F726D616C207Aull;

CEM_TETRIS_FUNCTION Key make_key(uint64_t seed) {
  return {low(seed ^ kDomain), high(seed ^ kDomain)};
}

// The keys of rounds 3 to 9, two a round.
constexpr int kLateKeys = 2 * (kRounds - kFirstLateRound);
struct LateKeys {
  uint32_t word[kLateKeys];
};

CEM_TETRIS_FUNCTION uint32_t late_key(Key key, uint32_t index) {
  const uint32_t round = kFirstLateRound + index / 2;
  return index % 2 == 0 ? key.word0(round) : key.word1(round);
}

CEM_TETRIS_FUNCTION LateKeys late_keys(Key key) {
  LateKeys keys;
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (int i = 0; i < kLateKeys; ++i) keys.word[i] = late_key(key, i);
  return keys;
}

// What the first rounds make of the dimension alone: round 1's product of word 0.
struct DimensionPart {
  uint32_t high, low;
};

// What they make of the block of samples alone, mixed with the keys that are due.
struct BlockPart {
  uint32_t a, b, c, d;
};

struct Words {
  uint32_t word[4];
};

CEM_TETRIS_FUNCTION DimensionPart dimension_part(
    Key key, uint64_t dimension, uint64_t generation) {
  const uint64_t product = multiply(kMultiplier1, low(generation));
  const uint64_t next = multiply(kMultiplier0, high(product) ^ low(dimension) ^ key.word0(0));
  return {high(next), low(next)};
}

CEM_TETRIS_FUNCTION BlockPart block_part(
    Key key, uint64_t block, uint64_t generation, uint32_t word3) {
  const uint64_t product0 = multiply(kMultiplier0, low(block));
  const uint64_t product1 = multiply(kMultiplier1, high(product0) ^ word3 ^ key.word1(0));
  const uint32_t c1 = low(multiply(kMultiplier1, low(generation)));
  const uint64_t product2 = multiply(kMultiplier0, high(product1) ^ c1 ^ key.word0(1));
  return {low(product0) ^ key.word1(1), low(product1) ^ key.word0(2),
      high(product2) ^ key.word1(2), low(product2)};
}

// The rest of the ten rounds.
CEM_TETRIS_FUNCTION Words words(
    const LateKeys& keys, DimensionPart dimension, BlockPart block) {
  const uint64_t product = multiply(kMultiplier1, dimension.high ^ block.a);
  uint32_t c0 = high(product) ^ block.b, c1 = low(product), c2 = block.c ^ dimension.low,
           c3 = block.d;
#if defined(__CUDA_ARCH__)
#pragma unroll
#else
#pragma GCC unroll 8
#endif
  for (int i = 0; i < kLateKeys; i += 2) {
    const uint64_t product0 = multiply(kMultiplier0, c0), product1 = multiply(kMultiplier1, c2);
    c0 = high(product1) ^ c1 ^ keys.word[i];
    c1 = low(product1);
    c2 = high(product0) ^ c3 ^ keys.word[i + 1];
    c3 = low(product0);
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace cem_tetris::normal
