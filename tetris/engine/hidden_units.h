// The hidden units of a policy: a small network beside the weighted sum of features, as
// tetris/game/hidden_units.py defines it.
//
// A unit adds up its inputs, each times a weight, and its bias. The sum is shifted to the right
// and limited. The result, the activation, times the output weight is added to the score.
// Inputs, and weights inside of a unit, have eight bits, and a word holds four of them, because
// a GPU multiplies and adds four at a time.
#pragma once

#include "lanes_scalar.h"

namespace tetris {

constexpr int BYTES = 4;  // in a word
// Returns byte i of a word, with its sign.
TETRIS_FUNCTION int byte_of(int32_t word, int i) { return int8_t(word >> (8 * i)); }

// Returns `sum` plus the products of the bytes of two words: byte 0 times byte 0, and so on.
TETRIS_FUNCTION int add_products_of_bytes(int sum, int32_t a, int32_t b) {
#if defined(__CUDA_ARCH__)
  return __dp4a(a, b, sum);
#else
  for (int i = 0; i < BYTES; ++i) sum += byte_of(a, i) * byte_of(b, i);
  return sum;
#endif
}

// A layer of UNITS hidden units, which have INPUTS inputs. The weights of a unit are
// UNIT_WORDS consecutive words in memory:
//
//     INPUT_WORDS words    the weights of the inputs, the bias, and zeros
//     1 word               the output weight
template <class L, int UNITS, int INPUTS>
struct HiddenLayer {
  using Ints = typename L::Ints;
  using Scores = typename L::Scores;
  // Constants of tetris/game/hidden_units.py. An activation is a number of steps here.
  static constexpr int BIAS_INPUT = 32;
  static constexpr int INPUT_LIMIT = 127;
  static constexpr int MAX_ACTIVATION = 1023;
  // Weights are multiples of 2^-7, and a step of an activation is 2^-4.
  static constexpr int SHIFT = 7 - 4;
  static constexpr int INPUT_WORDS = INPUTS / BYTES + 1;
  static constexpr int UNIT_WORDS = INPUT_WORDS + 1;
  static constexpr int SIZE = UNITS * UNIT_WORDS;
  // Vectors multiply pairs of inputs by pairs of weights, which are prepared once.
  static constexpr bool IS_VECTOR = L::LANES > 1;
  static constexpr int PAIRS = INPUT_WORDS * BYTES / 2;

  const int32_t* words;
  typename L::Weights pairs[IS_VECTOR && UNITS > 0 ? UNITS * PAIRS : 1];

  TETRIS_FUNCTION explicit HiddenLayer(const int32_t* weights) : words(weights) {
    if constexpr (IS_VECTOR) {
      for (int i = 0; i < UNITS * PAIRS; ++i) {
        int32_t word = words_of(i / PAIRS)[i % PAIRS / 2];
        int first = 2 * (i % 2);  // the byte of the first weight of the pair
        pairs[i] = L::weights(byte_of(word, first), byte_of(word, first + 1));
      }
    }
  }

  // The inputs of the units, for every placement. Behind them is the input of the bias.
  struct Inputs {
    Ints value[INPUT_WORDS * BYTES] = {};
    TETRIS_FUNCTION Inputs() { value[INPUTS] = L::ints(BIAS_INPUT); }
    // The index is a template argument, so that CUDA can hold the array in registers.
    template <int INDEX>
    TETRIS_FUNCTION void set(Ints input) {
      Ints not_above = L::minimum(input, L::ints(INPUT_LIMIT));
      value[INDEX] = L::maximum(not_above, L::ints(-INPUT_LIMIT));
    }
  };

  // Returns `scores` plus the part of the units, for every placement.
  TETRIS_FUNCTION Scores add(Scores scores, const Inputs& inputs) const {
    int32_t input_words[INPUT_WORDS] = {};
    if constexpr (!IS_VECTOR) pack(inputs, input_words);
    // If the loop were unrolled completely, the compiler of CUDA would first copy all weights
    // to the local memory of each thread.
    TETRIS_UNROLL_4 for (int unit = 0; unit < UNITS; ++unit) {
      Scores sum = L::scores(0);
      if constexpr (IS_VECTOR) {
        TETRIS_UNROLL for (int i = 0; i < PAIRS; ++i) {
          const auto& weights = pairs[unit * PAIRS + i];
          sum = L::add_products(sum, weights, inputs.value[2 * i], inputs.value[2 * i + 1]);
        }
      } else {
        TETRIS_UNROLL for (int i = 0; i < INPUT_WORDS; ++i) {
          sum = add_products_of_bytes(sum, words_of(unit)[i], input_words[i]);
        }
      }
      int32_t output_weight = words_of(unit)[INPUT_WORDS];
      scores = L::template add_limited<MAX_ACTIVATION>(scores, output_weight, sum >> SHIFT);
    }
    return scores;
  }

 private:
  TETRIS_FUNCTION const int32_t* words_of(int unit) const { return words + unit * UNIT_WORDS; }
  // Packs the inputs of one placement into words.
  TETRIS_FUNCTION static void pack(const Inputs& inputs, int32_t (&result)[INPUT_WORDS]) {
    TETRIS_UNROLL for (int i = 0; i < INPUT_WORDS * BYTES; ++i) {
      uint32_t byte = uint32_t(inputs.value[i]) & 255;
      result[i / BYTES] |= int32_t(byte << (8 * (i % BYTES)));
    }
  }
};

}  // namespace tetris
