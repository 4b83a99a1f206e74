// What is drawn, for host and device; op.py has the definition. Integers alone, but for the weights: a
// probability times 2^48 is exact, and adding 2^52 rounds it to an integer.
//
// The 64 random bits of candidate i at place j, a variable or a step: words 2 h and 2 h + 1, h = i mod 2, of
// the Philox block of key seed ^ kDomain and counter (i div 2, j, generation), of 32, 32 and 63 bits; the last
// bit is set for permutations. Two candidates share a block; a search that has both categorical variables and
// a permutation draws them independently.
#pragma once

#include <cstdint>

#include "philox.h"
#include "portable.h"

namespace cem_tetris::discrete {

constexpr uint64_t kDomain = 0x6469736372657465ull;  // "discrete" in ASCII
constexpr int kMostCategories = 4096, kMostItems = 32767;

// The tensors of a call, all contiguous.
struct Call {
  int64_t problems, samples, width;  // width: variables, or items
  const double* table;
  const int64_t *seed, *generation;
  int64_t* out;
};

struct Pair {
  uint64_t word[2];
};

struct Noise {
  uint64_t key, counter;

  CEM_TETRIS_FUNCTION Noise(const Call& call, int64_t problem, bool is_permutation)
      : key(static_cast<uint64_t>(call.seed[problem]) ^ kDomain),
        counter((static_cast<uint64_t>(*call.generation) << 1 >> 1) | uint64_t{is_permutation} << 63) {}
  // The bits of candidates 2 pair and 2 pair + 1.
  CEM_TETRIS_FUNCTION Pair of(uint64_t pair, uint64_t place) const {
    const philox::Block block = philox::block(pair | place << 32, counter, key);
    return {{block.word[0] | uint64_t{block.word[1]} << 32, block.word[2] | uint64_t{block.word[3]} << 32}};
  }
};

// Below 2^49, so that a sum of kMostItems does not overflow, whatever the table holds.
CEM_TETRIS_FUNCTION uint64_t weight(double probability) {
  return bit_cast<uint64_t>(probability * 0x1p48 + 0x1p52) & ((uint64_t{1} << 49) - 1);
}

CEM_TETRIS_FUNCTION uint64_t multiply_high(uint64_t a, uint64_t b) {
#if defined(__CUDA_ARCH__)
  return __umul64hi(a, b);
#else
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
#endif
}

// before[i]: the sum modulo 2^64 of the weights before category i and some more; that of one variable is less.
CEM_TETRIS_FUNCTION int category(const uint64_t* before, int count, uint64_t word) {
  const uint64_t base = before[0], total = before[count] - base;
  if (total == 0) return static_cast<int>(multiply_high(word, static_cast<uint64_t>(count)));
  const uint64_t below = multiply_high(word, total);
  int first = 0;
  while (count > 1) {  // it is among so many from the first one on
    const int half = count / 2;
    first += before[first + half] - base <= below ? half : 0;
    count -= half;
  }
  return first;
}

}  // namespace cem_tetris::discrete
