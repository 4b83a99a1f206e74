// sigmoid, elu and tanh of vector registers, which are a language extension of g++ and clang++.
//
// All three are computed from e^x - 1 for x <= 0. With x = n ln 2 + r and |r| <= ln 2 / 2, e^x
// is 2^n e^r, and e^r is a Taylor series. The series ends where the next term is below a
// quarter of the last bit. The errors are at most three units in the last place.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#ifdef __AVX__
#include <immintrin.h>
#endif

namespace cem_tetris::lltm {

#ifdef __AVX__
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

template <typename A>
struct Format {
  static constexpr bool kSingle = sizeof(A) == sizeof(float);
  using Word = std::conditional_t<kSingle, uint32_t, uint64_t>;
  typedef A Vector __attribute__((vector_size(kVectorBytes)));  // g++ takes no `using` here
  typedef Word Bits __attribute__((vector_size(kVectorBytes)));
  static constexpr int kMantissa = std::numeric_limits<A>::digits - 1;
  static constexpr Word kSign = Word{1} << (8 * sizeof(A) - 1);
  static constexpr Word kBias = std::numeric_limits<A>::max_exponent - 1;
  static constexpr int kTerms = kSingle ? 8 : 14;
  // Adding kRound to a number rounds it to an integer, which is then in the low bits of the
  // sum.
  static constexpr A kRound = A(3) * (Word{1} << (kMantissa - 1));
  static constexpr A kLowest = kSingle ? -87 : -708;  // e^x is a normal number from here on
  // ln 2 in two parts, as fdlibm splits it: n * kLn2High has no rounding error.
  static constexpr A kLn2High = kSingle ? 6.9313812256e-01f : 6.93147180369123816490e-01;
  static constexpr A kLn2Low = kSingle ? 9.0580006145e-06f : 1.90821492927058770002e-10;
};

template <typename A>
using Vector = typename Format<A>::Vector;

template <typename A>
constexpr int kLanes = kVectorBytes / int(sizeof(A));

// Returns the first `lanes` numbers at `from` as a vector; its other lanes are 0. A full vector
// is copied by a memcpy of constant size, which is one instruction.
template <typename A>
inline Vector<A> load_lanes(const A* from, int lanes) {
  Vector<A> values = {};
  if (lanes == kLanes<A>) {
    std::memcpy(&values, from, sizeof values);
  } else {
    std::memcpy(&values, from, size_t(lanes) * sizeof(A));
  }
  return values;
}

// Stores the first `lanes` numbers of a vector at `to`.
template <typename V, typename A>
inline void store_lanes(const V& values, A* to, int lanes) {
  if (lanes == kLanes<A>) {
    std::memcpy(to, &values, sizeof values);
  } else {
    std::memcpy(to, &values, size_t(lanes) * sizeof(A));
  }
}

// Returns a * b + c. The result is rounded once if the processor has an instruction for this,
// otherwise twice.
template <typename V>
inline V multiply_add(V a, V b, V c) {
#if defined(__FMA__) && defined(__AVX__)
  if constexpr (std::is_same_v<V, Vector<float>>) {
    return _mm256_fmadd_ps(a, b, c);
  } else {
    return _mm256_fmadd_pd(a, b, c);
  }
#else
  return a * b + c;
#endif
}

// Returns a vector whose lane i is the sum of the lanes of v[i]; a lane is one number of a
// vector. With AVX, a vector has 8 floats or 4 doubles in two halves. hadd adds neighbouring
// lanes within each half of its arguments. The first permutation (0x20) joins the lower halves
// of a and b, and the second one (0x31) their upper halves. Their sum is the result.
template <typename A>
inline Vector<A> lane_sums(const Vector<A> (&v)[kLanes<A>]) {
#ifdef __AVX__
  if constexpr (std::is_same_v<A, float>) {
    const __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    const __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(v[4], v[5]), _mm256_hadd_ps(v[6], v[7]));
    // Lanes 0 to 3 of `a` are the sums of the lower halves of v[0] to v[3], and lanes 4 to 7
    // the sums of their upper halves. `b` has the sums of v[4] to v[7] in the same order.
    return _mm256_permute2f128_ps(a, b, 0x20) + _mm256_permute2f128_ps(a, b, 0x31);
  } else {
    // `a` has the sums of the lower halves of v[0] and v[1], then those of the upper halves.
    const __m256d a = _mm256_hadd_pd(v[0], v[1]);
    const __m256d b = _mm256_hadd_pd(v[2], v[3]);
    return _mm256_permute2f128_pd(a, b, 0x20) + _mm256_permute2f128_pd(a, b, 0x31);
  }
#else
  Vector<A> sums = {};
  for (int i = 0; i < kLanes<A>; ++i) {
    for (int lane = 0; lane < kLanes<A>; ++lane) sums[i] += v[i][lane];
  }
  return sums;
#endif
}

template <typename A>
struct VectorMath {
  using F = Format<A>;
  using V = typename F::Vector;
  using Bits = typename F::Bits;

  static V sigmoid(V x) {
    Exponential e(negative_magnitude(x));
    V z = multiply_add(e.scale, e.fraction, e.scale);
    return (x < A(0) ? z : V{} + A(1)) / (A(1) + z);
  }

  static V elu(V x) {
    Exponential e(negative_magnitude(x));
    return x > A(0) ? x : multiply_add(e.scale, e.fraction, e.scale - A(1));
  }

  // Returns the derivative of elu at x, where elu has the value `value`.
  static V elu_slope(V x, V value) { return x > A(0) ? V{} + A(1) : value + A(1); }

  static V tanh(V x) {
    Exponential e(A(2) * negative_magnitude(x));
    V m = multiply_add(e.scale, e.fraction, e.scale - A(1));
    V magnitude = -m / (A(2) + m);
    return (V)(((Bits)magnitude & ~F::kSign) | ((Bits)x & F::kSign));
  }

 private:
  static V negative_magnitude(V x) { return (V)((Bits)x | F::kSign); }

  // Computes e^x = scale + scale * fraction for x <= 0. A number below kLowest counts as
  // kLowest; NaN gives NaN.
  struct Exponential {
    V scale;
    V fraction;

    explicit Exponential(V x) {
      x = x < F::kLowest ? V{} + F::kLowest : x;
      V shifted = x * A(1.44269504088896340736) + F::kRound;  // times 1 / ln 2
      V n = shifted - F::kRound;
      V r = multiply_add(n, V{} - F::kLn2Low, multiply_add(n, V{} - F::kLn2High, x));
      fraction = series<1>(r) * r;
      // 2^n: the low bits of `shifted` hold n.
      scale = (V)(((Bits)shifted + F::kBias) << F::kMantissa);
    }
  };

  // Returns 1 / k! + r / (k + 1)! + r^2 / (k + 2)! + ...
  template <int k>
  static V series(V r) {
    constexpr A factor = A(1 / factorial(k));
    if constexpr (k == F::kTerms) {
      return V{} + factor;
    } else {
      return multiply_add(series<k + 1>(r), r, V{} + factor);
    }
  }

  static constexpr double factorial(int k) { return k == 0 ? 1 : k * factorial(k - 1); }
};

}  // namespace cem_tetris::lltm
