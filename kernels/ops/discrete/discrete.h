// What is drawn, for host and device; op.py has the definition. Integers alone, but for the weights: a
// probability times 2^48 is exact, and adding 2^52 rounds it to an integer.
//
// The 64 random bits of candidate i at place j, a variable or a step: words 2 h and 2 h + 1, h = i mod 2, of
// the Philox block of key seed ^ kDomain and counter (i div 2, j, generation), of 32, 32 and 63 bits; the last
// bit is set for permutations. Two candidates share a block; a search that has both categorical variables and
// a permutation draws them independently.
#pragma once

#include <vector>

#include "philox.h"
#include "portable.h"
#include "tensors.h"

namespace cem_tetris::discrete {

constexpr uint64_t kDomain = 0x6469736372657465ull;  // "discrete" in ASCII
constexpr int kMost = 32767;                         // categories of a variable, or items

// The tensors of a call, all contiguous.
struct Call {
  const int64_t* starts;  // host's: where each variable's categories begin, and the last one's end; or null
  int64_t problems, samples, width;  // width: variables, or items
  const double* table;
  const int64_t *seed, *generation;
  void* out;
  torch::headeronly::ScalarType type;  // of out

  // Writes a category or an item.
  CEM_TETRIS_FUNCTION void put(int64_t place, int64_t index) const {
    using torch::headeronly::ScalarType;
    const bool is_double = type == ScalarType::Double;
    if (type == ScalarType::Float) {
      static_cast<float*>(out)[place] = static_cast<float>(index);
    } else {
      static_cast<int64_t*>(out)[place] = is_double ? bit_cast<int64_t>(static_cast<double>(index)) : index;
    }
  }
};

struct Noise {
  uint64_t key, counter;

  CEM_TETRIS_FUNCTION Noise(const Call& call, int64_t problem, bool is_permutation)
      : key(static_cast<uint64_t>(call.seed[problem]) ^ kDomain),
        counter(static_cast<uint64_t>(*call.generation) << 1 >> 1 | uint64_t{is_permutation} << 63) {}
  // Sets the bits of candidates 2 pair and 2 pair + 1.
  CEM_TETRIS_FUNCTION void set(uint64_t pair, uint64_t place, uint64_t* word) const {
    const philox::Block block = philox::block(pair | place << 32, counter, key);
    for (int h = 0; h < 2; ++h) word[h] = block.word[2 * h] | uint64_t{block.word[2 * h + 1]} << 32;
  }
};

// Below 2^49, so that a sum of kMost does not overflow, whatever the table holds.
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

CEM_TETRIS_FUNCTION uint64_t weight(uint64_t known) { return known; }

// Draws a variable for some candidates, whose bits set(word) gives. p: the probabilities of its `size`
// categories, or their weights; kAtOnce of them are loaded together.
template <int kAtOnce, int kCount, typename Number, typename Set, typename Index>
CEM_TETRIS_FUNCTION void draw_category(const Number* p, int size, const Set& set, Index (&found)[kCount]) {
  const auto each = [&](const auto& f) {  // the last ones may be followed by some of no weight
    for (int first = 0; first < size; first += kAtOnce) {
#pragma unroll
      for (int i = first; i < first + kAtOnce; ++i) {
        const uint64_t x = weight(p[i < size ? i : size - 1]);
        f(i < size ? x : 0);
      }
    }
  };
  uint64_t word[kCount], total = 0, sum = 0;
  each([&](uint64_t x) { total += x; });
  const uint64_t least = total == 0 ? 1 : 0;  // where no weight is more, all are 1
  if (least == 1) total = static_cast<uint64_t>(size);
  set(word);
  for (int c = 0; c < kCount; ++c) word[c] = multiply_high(word[c], total), found[c] = 0;
  each([&](uint64_t x) {
    sum += x | least;
    for (int c = 0; c < kCount; ++c) found[c] += sum <= word[c] ? 1 : 0;
  });
}

// The operators over a device's `run`.
namespace {

constexpr char kCategoricalSchema[] =
    "sample_categorical(Tensor tables, int[] sizes, SymInt num_samples, Tensor seed, Tensor generation, "
    "ScalarType dtype) -> Tensor";
constexpr char kPermutationSchema[] =
    "sample_permutation(Tensor table, SymInt num_samples, Tensor seed, Tensor generation, ScalarType dtype) "
    "-> Tensor";

using Run = void(const Call& call, Device device);

// shape: of the table of a problem.
template <Run& run> Tensor sample(const int64_t* starts, const Tensor& given,
    std::initializer_list<int64_t> shape, int64_t width, int64_t samples, const Tensor& given_seed,
    const Tensor& generation, ScalarType type) {
  const Problems problems(given, shape.size(), "a table for each problem");
  const Tensor table = problems.check(given, "the table", ScalarType::Double, shape),
               seed = problems.check(given_seed, "seed", ScalarType::Long, {});
  problems.require(generation, "generation", ScalarType::Long, {}, false);
  STD_TORCH_CHECK(
      samples >= 0 && samples < int64_t{1} << 31, "expected num_samples in 0..2^31 - 1, got ", samples);
  STD_TORCH_CHECK(type == ScalarType::Long || type == ScalarType::Float || type == ScalarType::Double,
      "expected a result of type Long, Float or Double, got ", torch::headeronly::toString(type));
  const Tensor out = problems.empty(type, {samples, width});
  const Call call{starts, problems.count(), samples, width, const_data<double>(table),
      const_data<int64_t>(seed), const_data<int64_t>(generation), mutable_data<void>(out), type};
  if (call.problems * samples * width != 0) run(call, problems.device);
  return out;
}

template <Run& run> Tensor sample_categorical(const Tensor& tables, std::vector<int64_t> sizes,
    int64_t samples, const Tensor& seed, const Tensor& generation, ScalarType type) {
  std::vector<int64_t> starts{0};
  for (const int64_t size : sizes) {
    STD_TORCH_CHECK(size >= 1 && size <= kMost, "expected sizes from 1 to ", kMost, ", got ", size);
    starts.push_back(starts.back() + size);
  }
  return sample<run>(starts.data(), tables, {starts.back()}, static_cast<int64_t>(sizes.size()), samples,
      seed, generation, type);
}

template <Run& run> Tensor sample_permutation(
    const Tensor& table, int64_t samples, const Tensor& seed, const Tensor& generation, ScalarType type) {
  const int64_t n = table.dim() < 2 ? 0 : table.sizes().back();
  STD_TORCH_CHECK(n >= 1 && n <= kMost, "expected table of shape (..., n + 1, n), 1 <= n <= ", kMost,
      ", got ", text_of(table.sizes()));
  return sample<run>(nullptr, table, {n + 1, n}, n, samples, seed, generation, type);
}

}  // namespace
}  // namespace cem_tetris::discrete
