// Vectors: the compiler's, of one register each, and pairs of them for what one register cannot hold. What has an operator in
// the language has no other name here, and the compiler chooses the instruction; the rest is written with those of SSE4, AVX2
// and AVX-512 (neon.h has SSE4's for ARM). Vectors are passed by value: the compiler copies what a reference refers to in pieces, and waits for them.
#pragma once

#if defined(__aarch64__)
#include "neon.h"
#else
#include <immintrin.h>
#endif

#include <initializer_list>
#include <type_traits>
#include <utility>

#include "portable.h"

// Code for registers `R` of 64 and of 32 bytes, where the processor has them; what follows is for the others.
#if defined(__AVX512F__)
#define TETRIS_512(...)            \
  if constexpr (sizeof(R) == 64) { \
    __VA_ARGS__                    \
  } else
#else
#define TETRIS_512(...)
#endif
#if defined(__AVX2__)
#define TETRIS_256(...)            \
  if constexpr (sizeof(R) == 32) { \
    __VA_ARGS__                    \
  } else
#else
#define TETRIS_256(...)
#endif
// Of a lambda: never a call.
#define TETRIS_INLINE __attribute__((always_inline))

namespace tetris {

template <class T, int N>
struct RegisterOf {
  typedef T type __attribute__((vector_size(sizeof(T) * N)));
  typedef T anywhere __attribute__((vector_size(sizeof(T) * N), aligned(1), may_alias));
};
template <class T, int N>
using Register = typename RegisterOf<T, N>::type;

template <class V>
struct Pair {
  V low, high;
  TETRIS_FUNCTION auto operator[](int i) const {
    constexpr int HALF = sizeof(V) / sizeof(low[0]);
    return i < HALF ? low[i] : high[i - HALF];
  }
};
template <class V>
constexpr bool IS_PAIR = false;
template <class V>
constexpr bool IS_PAIR<Pair<V>> = true;

template <class V>
using NumberOf = std::decay_t<decltype(std::declval<const V&>()[0])>;
template <class V>
constexpr int NUMBERS = sizeof(V) / sizeof(NumberOf<V>);

// A function of registers, of all that a vector has.
template <class Function, class V, class... More>
TETRIS_FUNCTION auto map(const Function& function, V a, More... more) {
  return function(a, more...);
}
template <class Function, class V, class... More>
TETRIS_FUNCTION auto map(const Function& function, Pair<V> a, More... more) {
  const auto low = map(function, a.low, more.low...),
             high = map(function, a.high, more.high...);
  return Pair<std::decay_t<decltype(low)>>{low, high};
}
#define TETRIS_PAIR_OPERATOR(op)                                           \
  template <class V>                                                       \
  TETRIS_FUNCTION auto operator op(Pair<V> a, Pair<V> b) {                 \
    return map([](auto x, auto y) TETRIS_INLINE { return x op y; }, a, b); \
  }
TETRIS_PAIR_OPERATOR(&)
TETRIS_PAIR_OPERATOR(|)
TETRIS_PAIR_OPERATOR(^)
TETRIS_PAIR_OPERATOR(+)
TETRIS_PAIR_OPERATOR(-)
TETRIS_PAIR_OPERATOR(*)
TETRIS_PAIR_OPERATOR(==)
TETRIS_PAIR_OPERATOR(!=)
TETRIS_PAIR_OPERATOR(>)
TETRIS_PAIR_OPERATOR(<)
#undef TETRIS_PAIR_OPERATOR
template <class V>
TETRIS_FUNCTION Pair<V> operator~(Pair<V> a) {
  return {~a.low, ~a.high};
}
template <class V>
TETRIS_FUNCTION Pair<V> operator-(Pair<V> a) {
  return {-a.low, -a.high};
}
template <class V>
TETRIS_FUNCTION Pair<V> operator<<(Pair<V> a, int n) {
  return {a.low << n, a.high << n};
}
template <class V>
TETRIS_FUNCTION Pair<V> operator>>(Pair<V> a, int n) {
  return {a.low >> n, a.high >> n};
}

template <class V>
TETRIS_FUNCTION V load(const NumberOf<V>* p) {
  if constexpr (IS_PAIR<V>) {
    using Half = decltype(V::low);
    return {load<Half>(p), load<Half>(p + NUMBERS<Half>)};
  } else {
    return *reinterpret_cast<const typename RegisterOf<NumberOf<V>, NUMBERS<V>>::anywhere*>(p);
  }
}
template <class V>
TETRIS_FUNCTION void store(V a, NumberOf<V>* p) {
  if constexpr (IS_PAIR<V>) {
    store(a.low, p);
    store(a.high, p + NUMBERS<decltype(V::low)>);
  } else {
    *reinterpret_cast<typename RegisterOf<NumberOf<V>, NUMBERS<V>>::anywhere*>(p) = a;
  }
}
// A number in every place; the first number of sixteen bytes in every place.
template <class V>
TETRIS_FUNCTION V repeat(NumberOf<V> value) {
  if constexpr (IS_PAIR<V>) {
    const auto half = repeat<decltype(V::low)>(value);
    return {half, half};
  } else {
    return value - V{};
  }
}
template <class V, class R128>
TETRIS_FUNCTION V repeat_first(R128 a) {
  if constexpr (IS_PAIR<V>) {
    const auto half = repeat_first<decltype(V::low)>(a);
    return {half, half};
  } else {
    using R = V;
    constexpr bool SHORT = sizeof(a[0]) == 2;
    TETRIS_512(return (R)_mm512_broadcastd_epi32((__m128i)a);)
    TETRIS_256(return (
        R)(SHORT ? _mm256_broadcastw_epi16((__m128i)a) : _mm256_broadcastd_epi32((__m128i)a));)
    return (R)_mm_shuffle_epi8((__m128i)a, _mm_set1_epi16(0x0100));  // of 16 bits
  }
}
// The same bits.
template <class To, class V>
TETRIS_FUNCTION auto as(V a) {
  return map([](auto x) TETRIS_INLINE { return (Register<To, sizeof(x) / sizeof(To)>)x; }, a);
}
// Number by number; a condition is what a comparison gives, all ones or all zeros.
template <class C, class V>
TETRIS_FUNCTION V choose(C condition, V a, V b) {
  return map([](auto c, auto x, auto y) TETRIS_INLINE { return c ? x : y; }, condition, a, b);
}
template <class V>
TETRIS_FUNCTION V greater_of(V a, V b) {
  return map([](auto x, auto y) TETRIS_INLINE { return x > y ? x : y; }, a, b);
}
// a & ~b in one instruction: the compiler computes ~b apart, for all that want it.
template <class V>
TETRIS_FUNCTION V and_not(V a, V b) {
  const auto without = [](auto x, auto y) TETRIS_INLINE {
    using R = decltype(x);
    TETRIS_512(return (R)_mm512_andnot_si512((__m512i)y, (__m512i)x);)
    TETRIS_256(return (R)_mm256_andnot_si256((__m256i)y, (__m256i)x);)
    return (R)_mm_andnot_si128((__m128i)y, (__m128i)x);
  };
  return map(without, a, b);
}

// Numbers N onwards of those of `low` and `high`, one after the other.
template <int N, class R>
TETRIS_FUNCTION R window(R low, R high) {
  constexpr int BYTES = N * sizeof(NumberOf<R>);
  if constexpr (N == 0) return low;
  else TETRIS_512(return (R)_mm512_alignr_epi32((__m512i)high, (__m512i)low, BYTES / 4);)
  TETRIS_256(
      const __m256i middle = _mm256_permute2x128_si256((__m256i)low, (__m256i)high, 0x21);
      if constexpr (BYTES < 16) return (R)_mm256_alignr_epi8(middle, (__m256i)low, BYTES);
      else return (R)_mm256_alignr_epi8((__m256i)high, middle, BYTES - 16);)
  return (R)_mm_alignr_epi8((__m128i)high, (__m128i)low, BYTES);
}
template <int N, class V>
TETRIS_FUNCTION Pair<V> window(Pair<V> low, Pair<V> high) {
  constexpr int HALF = NUMBERS<V>;
  if constexpr (N < HALF) return {window<N>(low.low, low.high), window<N>(low.high, high.low)};
  else return {window<N - HALF>(low.high, high.low), window<N - HALF>(high.low, high.high)};
}

// Numbers N to N + 7 of sixteen, twice.
struct alignas(64) TwiceIndex {
  int32_t from[8][16];
  constexpr TwiceIndex() : from() {
    for (int n = 0; n < 8; ++n) {
      for (int i = 0; i < 16; ++i) from[n][i] = i % 8 + n;
    }
  }
};
inline constexpr TwiceIndex TWICE;
template <int N, class R>
TETRIS_FUNCTION R twice(R a) {
  TETRIS_512(return (R)_mm512_permutexvar_epi32(_mm512_load_si512(TWICE.from[N]), (__m512i)a);)
  TETRIS_256(const auto low = _mm256_permute2x128_si256((__m256i)a, (__m256i)a, 0x00);
      return (R)_mm256_alignr_epi8(
          _mm256_permute2x128_si256((__m256i)a, (__m256i)a, 0x11), low, 2 * N);)
  return a;
}
template <int N, class V>
TETRIS_FUNCTION Pair<V> twice(Pair<V> a) {
  const V half = window<N>(a.low, a.high);
  return {half, half};
}

// Half of a vector.
template <int WHICH, class R>
TETRIS_FUNCTION auto half(R a) {
  using Half = Register<NumberOf<R>, NUMBERS<R> / 2>;
  if constexpr (IS_PAIR<R>) return WHICH == 0 ? a.low : a.high;
  else TETRIS_512(return (Half)_mm512_extracti64x4_epi64((__m512i)a, WHICH);)
  TETRIS_256(return (Half)_mm256_extracti128_si256((__m256i)a, WHICH);)
  return Half{};
}
// All numbers joined by an operation on vectors: those sixteen bytes apart; all, in the first number.
template <class V, class Operation>
TETRIS_FUNCTION auto narrowed(V a, const Operation& operation) {
  if constexpr (sizeof(V) > 16) return narrowed(operation(half<0>(a), half<1>(a)), operation);
  else return a;
}
template <class V, class Operation>
TETRIS_FUNCTION auto reduced(V all, const Operation& operation) {
  auto a = narrowed(all, operation);
  a = operation(a, window<8 / sizeof(a[0])>(a, a));
  a = operation(a, window<4 / sizeof(a[0])>(a, a));
  if constexpr (sizeof(a[0]) == 2) a = operation(a, window<1>(a, a));
  return a;
}
constexpr auto ADD = [](auto a, auto b) TETRIS_INLINE { return a + b; };
constexpr auto JOIN = [](auto a, auto b) TETRIS_INLINE { return a | b; };
constexpr auto MOST = [](auto a, auto b) TETRIS_INLINE { return greater_of(a, b); };

// Sixteen bytes, in both halves of 32. Not const, as all constants here: the compiler would rebuild them at every use.
struct alignas(32) Bytes {
  uint8_t byte[32];
  constexpr Bytes(std::initializer_list<uint8_t> values) : byte() {
    int i = 0;
    for (const uint8_t value : values) byte[i] = byte[i + 16] = value, ++i;
  }
  template <class R>
  TETRIS_FUNCTION R in() const {
    return *reinterpret_cast<const R*>(byte);
  }
};
inline Bytes BIT_COUNTS = {0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4};
inline Bytes NIBBLES = {15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15};
inline Bytes ONES = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
// Bytes by the lower four bits of an index (above 127: 0), in every 16 bytes.
template <class R>
TETRIS_FUNCTION R bytes_at(R table, R index) {
  TETRIS_256(return (R)_mm256_shuffle_epi8((__m256i)table, (__m256i)index);)
  return (R)_mm_shuffle_epi8((__m128i)table, (__m128i)index);
}
template <class V>
TETRIS_FUNCTION V look_up(const Bytes& table, V index) {
  return map([&](auto x) TETRIS_INLINE { return bytes_at(table.in<decltype(x)>(), x); }, index);
}
template <class V>
TETRIS_FUNCTION V look_up(V table, const Bytes& index) {
  return map([&](auto x) TETRIS_INLINE { return bytes_at(x, index.in<decltype(x)>()); }, table);
}

#if defined(__AVX512VPOPCNTDQ__)
template <class V>
constexpr bool COUNTS_BITS = sizeof(NumberOf<V>) == 4 && !IS_PAIR<V>;
#else
template <class V>
constexpr bool COUNTS_BITS = false;
#endif
// The number of bits of each number, where there is an instruction for it, and otherwise of each byte.
template <class R>
TETRIS_FUNCTION R bit_counts(R words) {
#if defined(__AVX512VPOPCNTDQ__)
  if constexpr (COUNTS_BITS<R>) return (R)_mm512_popcnt_epi32((__m512i)words);
  else
#endif
  {
    const auto lower = [](auto x) TETRIS_INLINE { return x & NIBBLES.in<decltype(x)>(); };
    return look_up(BIT_COUNTS, map(lower, words)) + look_up(BIT_COUNTS, map(lower, words >> 4));
  }
}
// The union of every number and those before it; and those after it. Of 32 bytes in each half, and then across.
inline Bytes LAST_SHORT = {14, 15, 14, 15, 14, 15, 14, 15, 14, 15, 14, 15, 14, 15, 14, 15};
inline Bytes FIRST_SHORT = {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1};
template <class V>
TETRIS_FUNCTION V united_up(V a) {
#if defined(__AVX2__)
  if constexpr (sizeof(V) == 32 && !IS_PAIR<V>) {
    a = a | (V)_mm256_slli_si256((__m256i)a, 2);
    a = a | (V)_mm256_slli_si256((__m256i)a, 4);
    a = a | (V)_mm256_slli_si256((__m256i)a, 8);
    const auto last = (__m256i)look_up(a, LAST_SHORT);
    return a | (V)_mm256_permute2x128_si256(last, last, 0x08);
  }
#endif
  a = a | window<15>(V{}, a);
  a = a | window<14>(V{}, a);
  a = a | window<12>(V{}, a);
  return a | window<8>(V{}, a);
}
template <class V>
TETRIS_FUNCTION V united_down(V a) {
#if defined(__AVX2__)
  if constexpr (sizeof(V) == 32 && !IS_PAIR<V>) {
    a = a | (V)_mm256_srli_si256((__m256i)a, 2);
    a = a | (V)_mm256_srli_si256((__m256i)a, 4);
    a = a | (V)_mm256_srli_si256((__m256i)a, 8);
    const auto first = (__m256i)look_up(a, FIRST_SHORT);
    return a | (V)_mm256_permute2x128_si256(first, first, 0x81);
  }
#endif
  a = a | window<1>(a, V{});
  a = a | window<2>(a, V{});
  a = a | window<4>(a, V{});
  return a | window<8>(a, V{});
}

// The products of the lower halves of 32-bit numbers and those of the upper halves, added up.
template <class R>
TETRIS_FUNCTION R multiply_add(R a, R b) {
  TETRIS_512(return (R)_mm512_madd_epi16((__m512i)a, (__m512i)b);)
  TETRIS_256(return (R)_mm256_madd_epi16((__m256i)a, (__m256i)b);)
  return (R)_mm_madd_epi16((__m128i)a, (__m128i)b);
}

// The number of bits of each number, over several vectors; of a whole vector, in the first number.
template <class V, int COUNT>
TETRIS_FUNCTION auto count_bits_in(const V (&words)[COUNT]) {
  V counts = bit_counts(words[0]);
  TETRIS_UNROLL for (int i = 1; i < COUNT; ++i) counts = counts + bit_counts(words[i]);
  const auto add_bytes = [](auto x) TETRIS_INLINE {
    using R = decltype(x);
    if constexpr (COUNTS_BITS<V>) return x;
    else
      TETRIS_256(const __m256i pairs = _mm256_maddubs_epi16((__m256i)x, ONES.in<__m256i>());
          return (
              R)(sizeof(x[0]) == 2 ? pairs : _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));)
    return (R)_mm_maddubs_epi16((__m128i)x, ONES.in<__m128i>());
  };
  return as<std::make_signed_t<NumberOf<V>>>(map(add_bytes, counts));
}
template <class V>
TETRIS_FUNCTION auto count_all_bits(V words) {
  using Counts = Register<std::make_signed_t<NumberOf<V>>, 16 / sizeof(NumberOf<V>)>;
  if constexpr (COUNTS_BITS<V>) return (Counts)reduced(bit_counts(words), ADD);
  else {
    const __m128i eights =
        _mm_sad_epu8((__m128i)narrowed(bit_counts(words), ADD), _mm_setzero_si128());
    return (Counts)_mm_add_epi32(eights, _mm_unpackhi_epi64(eights, eights));
  }
}

// A bit a number: whether it is negative.
template <class R>
TETRIS_FUNCTION unsigned signs(R a) {
  if constexpr (sizeof(a[0]) == 2) {
    return static_cast<unsigned>(
        _mm_movemask_epi8(_mm_packs_epi16((__m128i)half<0>(a), (__m128i)half<1>(a))));
  } else if constexpr (IS_PAIR<R>) {
    return signs(a.low) | signs(a.high) << 8;
  } else TETRIS_512(return _cvtmask16_u32(_mm512_movepi32_mask((__m512i)a));)
  TETRIS_256(return static_cast<unsigned>(_mm256_movemask_ps((__m256)a));)
  return 0;
}
template <class R>
TETRIS_FUNCTION bool any_bit(R a) {
  if constexpr (IS_PAIR<R>) return any_bit(a.low | a.high);
  else TETRIS_512(return _mm512_test_epi32_mask((__m512i)a, (__m512i)a) != 0;)
  TETRIS_256(return !_mm256_testz_si256((__m256i)a, (__m256i)a);)
  return !_mm_testz_si128((__m128i)a, (__m128i)a);
}

// Four numbers, as those of 32 bits.
TETRIS_FUNCTION Register<int32_t, 4> four_of(const int8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, sizeof(four));
  return (Register<int32_t, 4>)_mm_cvtepi8_epi32(_mm_cvtsi32_si128(four));
}
TETRIS_FUNCTION Register<int32_t, 4> four_of(const int16_t* p) {
  return (Register<int32_t, 4>)_mm_cvtepi16_epi32(
      _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
TETRIS_FUNCTION Register<int32_t, 4> four_of(const int32_t* p) {
  return load<Register<int32_t, 4>>(p);
}

// Two vectors of 16-bit numbers as the halves of 32-bit ones: of the lower and of the upper half of each 16 bytes. And back.
template <class V>
TETRIS_FUNCTION auto interleaved(V a, V b) {
  const auto both = [](auto x, auto y) TETRIS_INLINE {
    using R = decltype(x);
    using Wide = Register<int32_t, sizeof(R) / 4>;
    TETRIS_256(return Pair<Wide>{(Wide)_mm256_unpacklo_epi16((__m256i)x, (__m256i)y),
        (Wide)_mm256_unpackhi_epi16((__m256i)x, (__m256i)y)};)
    return Pair<Wide>{(Wide)_mm_unpacklo_epi16((__m128i)x, (__m128i)y),
        (Wide)_mm_unpackhi_epi16((__m128i)x, (__m128i)y)};
  };
  return map(both, a, b);
}
template <class R>
TETRIS_FUNCTION auto packed(Pair<R> a) {
  using Narrow = Register<int16_t, sizeof(R) / 2>;
  if constexpr (IS_PAIR<R>) return Pair<decltype(packed(a.low))>{packed(a.low), packed(a.high)};
  else TETRIS_256(return (Narrow)_mm256_packs_epi32((__m256i)a.low, (__m256i)a.high);)
  return (Narrow)_mm_packs_epi32((__m128i)a.low, (__m128i)a.high);
}

}  // namespace tetris
