// Vectors of numbers: vector types of the compiler, which fill one register, and pairs of them
// (Pair) for vectors that one register cannot hold.
//
// If the language has an operator, it is used, and the compiler chooses the instruction. The
// other operations are written with the instructions of SSE4, AVX2 and AVX-512, for registers R
// of 16, 32 and 64 bytes. neon.h implements the instructions of SSE4 for ARM. Vectors are
// passed by value, because the compiler copies a vector that is passed by reference in pieces,
// and then waits for them.
#pragma once

#if defined(__aarch64__)
#include "neon.h"
#else
#include <immintrin.h>
#endif

#include <initializer_list>
#include <type_traits>
#include <utility>

#include "host_device.h"

// A lambda that is always inlined.
#define TETRIS_INLINE __attribute__((always_inline))

namespace tetris {

template <class T, int N>
struct RegisterOf {
  typedef T type __attribute__((vector_size(sizeof(T) * N)));
  typedef T unaligned __attribute__((vector_size(sizeof(T) * N), aligned(1), may_alias));
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

// Applies a function to the registers of vectors, one after another.
template <class Function, class V, class... More>
TETRIS_FUNCTION auto map(const Function& function, V a, More... more) {
  return function(a, more...);
}
template <class Function, class V, class... More>
TETRIS_FUNCTION auto map(const Function& function, Pair<V> a, More... more) {
  auto low = map(function, a.low, more.low...), high = map(function, a.high, more.high...);
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
    return *reinterpret_cast<const typename RegisterOf<NumberOf<V>, NUMBERS<V>>::unaligned*>(p);
  }
}
template <class V>
TETRIS_FUNCTION void store(V a, NumberOf<V>* p) {
  if constexpr (IS_PAIR<V>) {
    store(a.low, p);
    store(a.high, p + NUMBERS<decltype(V::low)>);
  } else {
    *reinterpret_cast<typename RegisterOf<NumberOf<V>, NUMBERS<V>>::unaligned*>(p) = a;
  }
}
// Returns a vector in which every number is `value`.
template <class V>
TETRIS_FUNCTION V repeat(NumberOf<V> value) {
  if constexpr (IS_PAIR<V>) {
    auto half = repeat<decltype(V::low)>(value);
    return {half, half};
  } else {
    return value - V{};
  }
}
// Broadcasts the first number of `a`: returns a vector in which every number equals it. The
// vector type V is a register of 16, 32 or 64 bytes, or a Pair of registers.
template <class V, class Bytes16>
TETRIS_FUNCTION V repeat_first(Bytes16 a) {
  if constexpr (IS_PAIR<V>) {
    auto half = repeat_first<decltype(V::low)>(a);
    return {half, half};
  } else if constexpr (sizeof(V) == 64) {
    return (V)_mm512_broadcastd_epi32((__m128i)a);
  } else if constexpr (sizeof(V) == 32) {
    constexpr bool IS_16_BIT = sizeof(a[0]) == 2;
    if constexpr (IS_16_BIT) return (V)_mm256_broadcastw_epi16((__m128i)a);
    else return (V)_mm256_broadcastd_epi32((__m128i)a);
  } else {
    // SSE has no broadcast instruction. For numbers of 16 bits, this shuffle repeats bytes 0
    // and 1.
    auto bytes_0_and_1 = _mm_set1_epi16(0x0100);
    return (V)_mm_shuffle_epi8((__m128i)a, bytes_0_and_1);
  }
}
// Returns the same bits as numbers of another type.
template <class To, class V>
TETRIS_FUNCTION auto as(V a) {
  return map([](auto x) TETRIS_INLINE { return (Register<To, sizeof(x) / sizeof(To)>)x; }, a);
}
// Returns a or b, number by number. `condition` is the result of a comparison: its numbers are
// all ones (choose a) or all zeros (choose b).
template <class C, class V>
TETRIS_FUNCTION V choose(C condition, V a, V b) {
  return map([](auto c, auto x, auto y) TETRIS_INLINE { return c ? x : y; }, condition, a, b);
}
template <class V>
TETRIS_FUNCTION V greater_of(V a, V b) {
  return map([](auto x, auto y) TETRIS_INLINE { return x > y ? x : y; }, a, b);
}
// Returns a & ~b. Each branch is one instruction; with operators, the compiler would compute ~b
// separately.
template <class V>
TETRIS_FUNCTION V and_not(V a, V b) {
  auto without = [](auto x, auto y) TETRIS_INLINE {
    using R = decltype(x);
    if constexpr (sizeof(R) == 64) return (R)_mm512_andnot_si512((__m512i)y, (__m512i)x);
    else if constexpr (sizeof(R) == 32) return (R)_mm256_andnot_si256((__m256i)y, (__m256i)x);
    else return (R)_mm_andnot_si128((__m128i)y, (__m128i)x);
  };
  return map(without, a, b);
}

// Concatenates two registers and returns the numbers from number N on, as many as fill one
// register. For registers of eight numbers, window<3> returns low[3] ... low[7], high[0],
// high[1], high[2].
template <int N, class R>
TETRIS_FUNCTION R window(R low, R high) {
  constexpr int BYTES = N * sizeof(NumberOf<R>);
  if constexpr (N == 0) {
    return low;
  } else if constexpr (sizeof(R) == 64) {  // AVX-512 shifts by whole 32-bit numbers
    return (R)_mm512_alignr_epi32((__m512i)high, (__m512i)low, BYTES / 4);
  } else if constexpr (sizeof(R) == 32) {
    // In AVX2, alignr shifts each half of sixteen bytes separately, and fills it from the half
    // that follows. `middle` holds the upper half of `low` and the lower half of `high`.
    constexpr int UPPER_OF_LOW_THEN_LOWER_OF_HIGH = 0x21;
    auto middle =
        _mm256_permute2x128_si256((__m256i)low, (__m256i)high, UPPER_OF_LOW_THEN_LOWER_OF_HIGH);
    if constexpr (BYTES < 16) return (R)_mm256_alignr_epi8(middle, (__m256i)low, BYTES);
    else return (R)_mm256_alignr_epi8((__m256i)high, middle, BYTES - 16);
  } else {
    return (R)_mm_alignr_epi8((__m128i)high, (__m128i)low, BYTES);
  }
}
template <int N, class V>
TETRIS_FUNCTION Pair<V> window(Pair<V> low, Pair<V> high) {
  constexpr int HALF = NUMBERS<V>;
  if constexpr (N < HALF) return {window<N>(low.low, low.high), window<N>(low.high, high.low)};
  else return {window<N - HALF>(low.high, high.low), window<N - HALF>(high.low, high.high)};
}
// Returns a vector moved up by N positions: number i becomes number i + N, and the first N
// numbers are 0.
template <int N, class V>
TETRIS_FUNCTION V move_up(V a) {
  return window<NUMBERS<V> - N>(V{}, a);
}

// For every n, the indices n to n + 7, twice.
struct alignas(64) WindowIndices {
  int32_t from[8][16];
  constexpr WindowIndices() : from() {
    for (int n = 0; n < 8; ++n) {
      for (int i = 0; i < 16; ++i) from[n][i] = i % 8 + n;
    }
  }
};
inline constexpr WindowIndices WINDOW_INDICES;

// Returns the numbers N to N + 7 of a vector of sixteen numbers, once in each half of the
// result. The two halves belong to two orientations of a piece.
template <int N, class R>
TETRIS_FUNCTION R window_in_both_halves(R a) {
  if constexpr (sizeof(R) == 64) {  // sixteen numbers of 4 bytes
    auto indices = _mm512_load_si512(WINDOW_INDICES.from[N]);
    return (R)_mm512_permutexvar_epi32(indices, (__m512i)a);
  } else {  // sixteen numbers of 2 bytes
    static_assert(sizeof(R) == 32);
    auto numbers_0_to_7_twice = _mm256_permute2x128_si256((__m256i)a, (__m256i)a, 0x00);
    auto numbers_8_to_15_twice = _mm256_permute2x128_si256((__m256i)a, (__m256i)a, 0x11);
    // In each half, this instruction joins the numbers 0 to 15 and drops the first N of them.
    constexpr int DROPPED_BYTES = 2 * N;
    return (R)_mm256_alignr_epi8(numbers_8_to_15_twice, numbers_0_to_7_twice, DROPPED_BYTES);
  }
}
template <int N, class V>
TETRIS_FUNCTION Pair<V> window_in_both_halves(Pair<V> a) {
  V half = window<N>(a.low, a.high);
  return {half, half};
}

// Returns the lower (0) or upper (1) half of a vector.
template <int WHICH, class R>
TETRIS_FUNCTION auto half(R a) {
  using Half = Register<NumberOf<R>, NUMBERS<R> / 2>;
  if constexpr (IS_PAIR<R>) return WHICH == 0 ? a.low : a.high;
  else if constexpr (sizeof(R) == 64) return (Half)_mm512_extracti64x4_epi64((__m512i)a, WHICH);
  else return (Half)_mm256_extracti128_si256((__m256i)a, WHICH);
}
// Combines the lower half of a vector with its upper half by an operation, and repeats this
// until sixteen bytes are left.
template <class V, class Operation>
TETRIS_FUNCTION auto fold_to_16_bytes(V a, const Operation& operation) {
  if constexpr (sizeof(V) > 16)
    return fold_to_16_bytes(operation(half<0>(a), half<1>(a)), operation);
  else return a;
}
// Combines all numbers of a vector by an operation such as ADD or MAXIMUM. The first number of
// the returned register is the result; the other numbers are meaningless. The steps combine
// numbers that are 8 bytes apart, then 4 bytes, and for numbers of 16 bits also 2 bytes.
template <class V, class Operation>
TETRIS_FUNCTION auto reduce(V all, const Operation& operation) {
  auto a = fold_to_16_bytes(all, operation);
  a = operation(a, window<8 / sizeof(a[0])>(a, a));
  a = operation(a, window<4 / sizeof(a[0])>(a, a));
  if constexpr (sizeof(a[0]) == 2) a = operation(a, window<1>(a, a));
  return a;
}
constexpr auto ADD = [](auto a, auto b) TETRIS_INLINE { return a + b; };
constexpr auto BITWISE_OR = [](auto a, auto b) TETRIS_INLINE { return a | b; };
constexpr auto MAXIMUM = [](auto a, auto b) TETRIS_INLINE { return greater_of(a, b); };

// A table of sixteen bytes, stored twice. Tables are not const, because the compiler would
// otherwise build them from immediate numbers wherever they are used.
struct alignas(32) Bytes {
  uint8_t byte[32];
  constexpr Bytes(std::initializer_list<uint8_t> values) : byte() {
    int i = 0;
    for (const uint8_t value : values) {
      byte[i] = byte[i + 16] = value;
      ++i;
    }
  }
  template <class R>
  TETRIS_FUNCTION R in() const {
    return *reinterpret_cast<const R*>(byte);
  }
};
inline Bytes BIT_COUNTS = {0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4};
inline Bytes NIBBLES = {15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15};
inline Bytes ONES = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
// Looks up every byte of `index` in a table of sixteen bytes. Only the lower four bits of an
// index count; an index above 127 yields 0.
template <class R>
TETRIS_FUNCTION R bytes_at(R table, R index) {
  if constexpr (sizeof(R) == 32) {
    return (R)_mm256_shuffle_epi8((__m256i)table, (__m256i)index);
  } else {
    return (R)_mm_shuffle_epi8((__m128i)table, (__m128i)index);
  }
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
constexpr bool HAS_POPCOUNT = sizeof(NumberOf<V>) == 4 && !IS_PAIR<V>;
#else
template <class V>
constexpr bool HAS_POPCOUNT = false;
#endif
// Returns the number of set bits of each number if the processor has an instruction for this
// (HAS_POPCOUNT). Otherwise returns the number of set bits of each byte, and the caller adds up
// the bytes. The bits of a byte are looked up in a table, four bits at a time.
template <class R>
TETRIS_FUNCTION R bit_counts(R words) {
#if defined(__AVX512VPOPCNTDQ__)
  if constexpr (HAS_POPCOUNT<R>) return (R)_mm512_popcnt_epi32((__m512i)words);
  else
#endif
  {
    auto lower = [](auto x) TETRIS_INLINE { return x & NIBBLES.in<decltype(x)>(); };
    return look_up(BIT_COUNTS, map(lower, words)) + look_up(BIT_COUNTS, map(lower, words >> 4));
  }
}
// Indices with which look_up repeats the last (or first) 16-bit number of sixteen bytes.
inline Bytes LAST_SHORT = {14, 15, 14, 15, 14, 15, 14, 15, 14, 15, 14, 15, 14, 15, 14, 15};
inline Bytes FIRST_SHORT = {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1};

// Returns the prefix scan of a vector of sixteen numbers by bitwise OR: number i of the result
// is the OR of numbers 0 to i. Four steps combine each number with the number that is 1, 2, 4
// and 8 positions before it.
template <class V>
TETRIS_FUNCTION V prefix_union(V a) {
  if constexpr (sizeof(V) == 32 && !IS_PAIR<V>) {
    // AVX2 shifts move bytes only within each half of eight numbers, so scan the two halves
    // separately.
    a = a | (V)_mm256_slli_si256((__m256i)a, 2);
    a = a | (V)_mm256_slli_si256((__m256i)a, 4);
    a = a | (V)_mm256_slli_si256((__m256i)a, 8);
    // The last number of a half is now the OR of the whole half. Combine that of the lower half
    // with every number of the upper half, and the numbers of the lower half with zeros.
    auto or_of_half = (__m256i)look_up(a, LAST_SHORT);
    constexpr int LOWER_TO_UPPER_HALF = 0x08;
    return a | (V)_mm256_permute2x128_si256(or_of_half, or_of_half, LOWER_TO_UPPER_HALF);
  } else {
    a = a | move_up<1>(a);
    a = a | move_up<2>(a);
    a = a | move_up<4>(a);
    return a | move_up<8>(a);
  }
}
// Returns the suffix scan of a vector of sixteen numbers by bitwise OR: number i of the result
// is the OR of numbers i to 15. Four steps combine each number with the number that is 1, 2, 4
// and 8 positions after it.
template <class V>
TETRIS_FUNCTION V suffix_union(V a) {
  if constexpr (sizeof(V) == 32 && !IS_PAIR<V>) {
    // AVX2 shifts move bytes only within each half of eight numbers, so scan the two halves
    // separately.
    a = a | (V)_mm256_srli_si256((__m256i)a, 2);
    a = a | (V)_mm256_srli_si256((__m256i)a, 4);
    a = a | (V)_mm256_srli_si256((__m256i)a, 8);
    // The first number of a half is now the OR of the whole half. Combine that of the upper
    // half with every number of the lower half, and the numbers of the upper half with zeros.
    auto or_of_half = (__m256i)look_up(a, FIRST_SHORT);
    constexpr int UPPER_TO_LOWER_HALF = 0x81;
    return a | (V)_mm256_permute2x128_si256(or_of_half, or_of_half, UPPER_TO_LOWER_HALF);
  } else {
    // window<N>(a, V{}) is `a` moved down by N positions, with zeros after it.
    a = a | window<1>(a, V{});
    a = a | window<2>(a, V{});
    a = a | window<4>(a, V{});
    return a | window<8>(a, V{});
  }
}

// Returns, for every 32-bit number of `a` and `b`, the product of their lower halves plus the
// product of their upper halves. The halves are signed 16-bit numbers.
template <class R>
TETRIS_FUNCTION R multiply_add(R a, R b) {
  if constexpr (sizeof(R) == 64) return (R)_mm512_madd_epi16((__m512i)a, (__m512i)b);
  else if constexpr (sizeof(R) == 32) return (R)_mm256_madd_epi16((__m256i)a, (__m256i)b);
  else return (R)_mm_madd_epi16((__m128i)a, (__m128i)b);
}

// Returns the sum of the bytes of every number. Numbers have 16 bits; in registers of 32 bytes
// they may also have 32 bits.
template <class R>
TETRIS_FUNCTION R add_bytes(R bytes) {
  if constexpr (sizeof(R) == 32) {
    auto pairs = _mm256_maddubs_epi16((__m256i)bytes, ONES.in<__m256i>());
    constexpr bool SHORT = sizeof(bytes[0]) == 2;
    return (R)(SHORT ? pairs : _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  } else {
    return (R)_mm_maddubs_epi16((__m128i)bytes, ONES.in<__m128i>());
  }
}
// Counts bits over several vectors: number i of the result is how many bits are set in number i
// of all COUNT vectors together. If bit_counts() counts per byte, the counts of the vectors are
// added first, and the bytes of a number are added up once at the end.
template <class V, int COUNT>
TETRIS_FUNCTION auto count_bits_in(const V (&words)[COUNT]) {
  V counts = bit_counts(words[0]);
  TETRIS_UNROLL for (int i = 1; i < COUNT; ++i) counts = counts + bit_counts(words[i]);
  auto of_numbers = [](auto x) TETRIS_INLINE {
    if constexpr (HAS_POPCOUNT<V>) return x;
    else return add_bytes(x);
  };
  return as<std::make_signed_t<NumberOf<V>>>(map(of_numbers, counts));
}
// Returns the number of set bits of a whole vector. The first number of the result is this
// count; the other numbers are meaningless.
template <class V>
TETRIS_FUNCTION auto count_all_bits(V words) {
  using Counts = Register<std::make_signed_t<NumberOf<V>>, 16 / sizeof(NumberOf<V>)>;
  if constexpr (HAS_POPCOUNT<V>) {
    return (Counts)reduce(bit_counts(words), ADD);
  } else {
    auto of_bytes = (__m128i)fold_to_16_bytes(bit_counts(words), ADD);
    __m128i of_halves = _mm_sad_epu8(of_bytes, _mm_setzero_si128());  // adds up eight bytes
    return (Counts)_mm_add_epi32(of_halves, _mm_unpackhi_epi64(of_halves, of_halves));
  }
}

// Returns the signs of the numbers of a vector as a bit mask: bit i is 1 if number i is
// negative. The vector has sixteen numbers of 16 or 32 bits, or is half of a Pair.
template <class R>
TETRIS_FUNCTION unsigned signs(R a) {
  if constexpr (sizeof(a[0]) == 2) {
    // movemask needs bytes. Packing numbers into bytes preserves their signs.
    auto lower_half = (__m128i)half<0>(a);
    auto upper_half = (__m128i)half<1>(a);
    auto bytes = _mm_packs_epi16(lower_half, upper_half);
    return unsigned(_mm_movemask_epi8(bytes));
  } else if constexpr (IS_PAIR<R>) {
    return signs(a.low) | signs(a.high) << 8;
  } else if constexpr (sizeof(R) == 64) {
    return _cvtmask16_u32(_mm512_movepi32_mask((__m512i)a));
  } else {
    return unsigned(_mm256_movemask_ps((__m256)a));
  }
}
template <class R>
TETRIS_FUNCTION bool any_bit(R a) {
  if constexpr (IS_PAIR<R>) return any_bit(a.low | a.high);
  else if constexpr (sizeof(R) == 64)
    return _mm512_test_epi32_mask((__m512i)a, (__m512i)a) != 0;
  else if constexpr (sizeof(R) == 32) return !_mm256_testz_si256((__m256i)a, (__m256i)a);
  else return !_mm_testz_si128((__m128i)a, (__m128i)a);
}

// Load four numbers and convert them to 32 bits.
TETRIS_FUNCTION Register<int32_t, 4> load_four(const int8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, sizeof(four));
  return (Register<int32_t, 4>)_mm_cvtepi8_epi32(_mm_cvtsi32_si128(four));
}
TETRIS_FUNCTION Register<int32_t, 4> load_four(const int16_t* p) {
  return (Register<int32_t, 4>)_mm_cvtepi16_epi32(
      _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
TETRIS_FUNCTION Register<int32_t, 4> load_four(const int32_t* p) {
  return load<Register<int32_t, 4>>(p);
}

// Joins the 16-bit numbers of two vectors at the same position to 32-bit numbers a0 + 2^16 b0,
// a1 + 2^16 b1, and so on. Each register of `a` becomes a Pair of registers.
//
// The results are in the order of the x86 unpack instructions; `pack` restores the original
// order.
template <class V>
TETRIS_FUNCTION auto interleave(V a, V b) {
  // Joins the 16-bit numbers of two registers to 32-bit numbers in two registers. `unpacklo`
  // joins the numbers in the lower eight bytes of every sixteen, and `unpackhi` those in the
  // upper eight bytes.
  auto interleave_registers = [](auto x, auto y) TETRIS_INLINE {
    using Wide = Register<int32_t, sizeof(x) / 4>;
    if constexpr (sizeof(x) == 32) {
      auto low = (Wide)_mm256_unpacklo_epi16((__m256i)x, (__m256i)y);
      auto high = (Wide)_mm256_unpackhi_epi16((__m256i)x, (__m256i)y);
      return Pair<Wide>{low, high};
    } else {
      auto low = (Wide)_mm_unpacklo_epi16((__m128i)x, (__m128i)y);
      auto high = (Wide)_mm_unpackhi_epi16((__m128i)x, (__m128i)y);
      return Pair<Wide>{low, high};
    }
  };
  return map(interleave_registers, a, b);
}
// Converts 32-bit numbers in the order of `interleave` to 16-bit numbers in their original
// order.
template <class R>
TETRIS_FUNCTION auto pack(Pair<R> a) {
  using Narrow = Register<int16_t, sizeof(R) / 2>;
  if constexpr (IS_PAIR<R>) return Pair<decltype(pack(a.low))>{pack(a.low), pack(a.high)};
  else if constexpr (sizeof(R) == 32)
    return (Narrow)_mm256_packs_epi32((__m256i)a.low, (__m256i)a.high);
  else return (Narrow)_mm_packs_epi32((__m128i)a.low, (__m128i)a.high);
}

}  // namespace tetris
