// The parallel loop over the elements on the CPU, and the sigmoid.
#pragma once

#include <limits>

#include "elements.h"

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace cem_tetris {
namespace {

// A thread gets at least this many elements, as in PyTorch.
constexpr int64_t kGrain = 32768;

// How many 16-bit floats are converted to the type of computation at a time. They all fit into
// the first-level cache.
constexpr int kBlock = 512;

// Converts numbers to the type of computation, or back.
template <typename A, typename T>
inline void convert(const T* source, A* target, int count) {
  for (int i = 0; i < count; ++i) target[i] = A(source[i]);
}

// The same for Half, eight numbers at a time with instructions of the processor. torch's
// conversions of Half call functions, which the compiler cannot vectorize.
#ifdef __F16C__
inline void convert(const Half* source, float* target, int count) {
  int i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(target + i,
        _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i))));
  }
  for (; i < count; ++i) target[i] = source[i];
}

inline void convert(const float* source, Half* target, int count) {
  int i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i bits =
        _mm256_cvtps_ph(_mm256_loadu_ps(source + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target + i), bits);
  }
  for (; i < count; ++i) target[i] = source[i];
}
#endif

// Applies f to the elements `begin` to `begin` + `count` - 1 of kIn input and kOut output
// tensors. f(inputs, outputs) reads one element of each input, and sets one element of each
// output. Both are numbers of A, the type of computation.
//
// The pointers are declared __restrict__, which promises that the tensors do not overlap. So
// the compiler can vectorize the loop.
template <typename T, int kIn, int kOut, typename F>
void apply(const Elements<T, kIn, kOut>& tensors, int64_t begin, int64_t count, const F& f) {
  using A = compute_t<T>;
  std::array<const T* __restrict__, kIn> in;
  std::array<T* __restrict__, kOut> out;
  for (int i = 0; i < kIn; ++i) in[i] = tensors.in[i] + begin;
  for (int i = 0; i < kOut; ++i) out[i] = tensors.out[i] + begin;
  for (int64_t element = 0; element < count; ++element) {
    A inputs[kIn], outputs[kOut];
    for (int i = 0; i < kIn; ++i) inputs[i] = A(in[i][element]);
    f(inputs, outputs);
    for (int i = 0; i < kOut; ++i) out[i][element] = T(outputs[i]);
  }
}

// Applies f to all elements of kIn input and kOut output tensors, in parallel on the CPU.
// f(inputs, outputs) reads one element of each input, and sets one element of each output.
//
// f works on numbers of A, the type of computation. If T is a 16-bit float, A is float. Then
// kBlock elements at a time are converted to float, computed, and converted back. Other types
// need no conversion.
template <typename T, int kIn, int kOut, typename F>
void for_each_element(const Elements<T, kIn, kOut>& tensors, const F& f, Device) {
  using A = compute_t<T>;
  constexpr bool kConverts = std::is_same_v<A, float> && !std::is_same_v<T, float>;
  // The work of one thread: apply f to the elements `begin` to `end` - 1. For 16-bit floats,
  // `buffer` holds a block of elements of every tensor as floats, first of the inputs, then of
  // the outputs. `block` holds the pointers into the buffer.
  parallel_for(0, tensors.size, kGrain, [&](int64_t begin, int64_t end) {
    if constexpr (!kConverts) {
      apply(tensors, begin, end - begin, f);
    } else {
      A buffer[kIn + kOut][kBlock];
      Elements<A, kIn, kOut> block;
      for (int i = 0; i < kIn; ++i) block.in[i] = buffer[i];
      for (int i = 0; i < kOut; ++i) block.out[i] = buffer[kIn + i];
      for (; begin < end; begin += kBlock) {
        int count = int(std::min<int64_t>(kBlock, end - begin));
        for (int i = 0; i < kIn; ++i) convert(tensors.in[i] + begin, buffer[i], count);
        apply(block, 0, count, f);
        for (int i = 0; i < kOut; ++i) convert(buffer[kIn + i], tensors.out[i] + begin, count);
      }
    }
  });
}

// Returns e^x for x <= 0, accurate down to subnormal results; NaN for NaN. A is float or
// double. The function has no branches and no calls, so that the compiler can vectorize a loop
// over it.
//
// x is written as n ln 2 + r with an integer n and |r| <= ln 2 / 2. Then e^x is 2^n e^r. e^r is
// a Taylor polynomial, which ends where the next term is below a tenth of the last bit.
//
// Adding kRound to x / ln 2 rounds it to the integer n. kRound is so large that the last bit of
// the sum has the value 1. So the low bits of the sum hold n, and subtracting kRound leaves n
// as a float. To keep r accurate, ln 2 is the sum of two constants. The greater one, kLn2High,
// has so few bits that its product with n is exact.
template <typename A>
CEM_TETRIS_FUNCTION A exponential(A x) {
  constexpr bool kSingle = sizeof(A) == sizeof(float);
  using Bits = std::conditional_t<kSingle, uint32_t, uint64_t>;
  constexpr int kMantissa = std::numeric_limits<A>::digits - 1;
  constexpr A kRound = A(3) * (Bits{1} << (kMantissa - 1));  // 1.5 * 2^kMantissa
  constexpr A kLowest = kSingle ? -104 : -746;               // below it e^x rounds to zero
  constexpr A kInverseLn2 = A(1.44269504088896340736);
  constexpr A kLn2High = kSingle ? 0x1.62e4p-1 : 0x1.62e42fefap-1;
  constexpr A kLn2Low = kSingle ? 0x1.7f7d1cp-20 : 0x1.cf79abc9e3b39p-40;
  x = x < kLowest ? kLowest : x;
  A shifted = multiply_add(x, kInverseLn2, kRound);
  A n = shifted - kRound;
  A r = multiply_add(n, -kLn2Low, multiply_add(n, -kLn2High, x));
  A e_to_r;  // the coefficients are 1 / k!, and the highest power comes first
  if constexpr (kSingle) {
    e_to_r = polynomial(
        r, 1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 1.0f / 2, 1.0f, 1.0f);
  } else {
    e_to_r = polynomial(r, 1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,
        1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2,
        1.0, 1.0);
  }
  // n can be as low as -150 (or -1076 for double), where 2^n is not a normal number. Therefore
  // 2^n is the product of two powers of two, with the exponents -half and half - minus_n. The
  // bits of a power of two are its exponent plus kBias, shifted past the bits of the mantissa.
  auto power_of_two = [](Bits exponent) {
    constexpr Bits kBias = std::numeric_limits<A>::max_exponent - 1;
    return bit_cast<A>((exponent + kBias) << kMantissa);
  };
  // `shifted` is kRound + n, and the last bit of both has the value 1, so their bits differ by
  // n. n is 0 or negative. -n is an unsigned integer, which a shift can halve.
  Bits minus_n = bit_cast<Bits>(kRound) - bit_cast<Bits>(shifted);
  Bits half = minus_n >> 1;
  return e_to_r * power_of_two(Bits{0} - half) * power_of_two(half - minus_n);
}

// Sets out[0] to the sigmoid of x = in[0]: 1 / (1 + e^-x), or e^x / (1 + e^x) for negative x.
template <typename T>
struct Sigmoid {
  template <typename A>
  void operator()(const A (&in)[1], A (&out)[1]) const {
    A power = exponential(-std::fabs(in[0]));
    out[0] = (in[0] < A(0) ? power : A(1)) / (A(1) + power);
  }
};

}  // namespace
}  // namespace cem_tetris
