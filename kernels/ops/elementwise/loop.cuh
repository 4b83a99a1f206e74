// What the elementwise operators share: layouts, types, and the loop over the elements, which is a parallel
// loop for the C++ compiler and a kernel for nvcc. An operator is a function object with
//     template <typename A, ...> void operator()(const A (&in)[kIn], A (&out)[kOut]) const
// on one element of every tensor; A is compute_t<T> for tensors of T.
#pragma once

#include "tensors.h"

#include <array>

#ifdef __CUDACC__
#include "common.cuh"
#elif defined(__F16C__)
#include <immintrin.h>
#endif

namespace cem_tetris {

// Calls f(T{}) with the element type of a tensor, a floating one or an integer.
// Signed ones come as unsigned: sums and products that wrap have the same bits.
template <typename F> void visit_number(const char* name, ScalarType type, const F& f) {
  switch (type) {
    case ScalarType::Byte:
    case ScalarType::Char: return f(uint8_t{});
    case ScalarType::Short: return f(uint16_t{});
    case ScalarType::Int: return f(uint32_t{});
    case ScalarType::Long: return f(uint64_t{});
    default: return visit_floating(name, type, f);
  }
}

// Whether equal indices lie at equal offsets. The sizes have to be equal.
inline bool same_layout(const Tensor& a, const Tensor& b) {
  const auto sizes = a.sizes(), left = a.strides(), right = b.strides();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (left[i] != right[i] && sizes[i] > 1) return false;
  }
  return true;
}

// An unset tensor with the shape, type, device and, but for gaps, the layout of x. empty_like goes through
// the dispatcher, which takes as long as a small kernel.
inline Tensor empty_in_layout_of(const Tensor& x) {
  return x.is_contiguous() ? empty_as(x) : torch::stable::empty_like(x);
}

// `x`, or a copy of it, with the layout of `output`, which has no gaps.
inline Tensor in_layout_of(const Tensor& output, const Tensor& x) {
  if (same_layout(output, x)) return x;
  Tensor copy = empty_in_layout_of(output);
  torch::stable::copy_(copy, x);
  return copy;
}

// The memory of tensors that all have the layout of the outputs.
template <typename T, int kIn, int kOut> struct Elements {
  const T* in[kIn];
  T* out[kOut];
  int64_t size;
};

template <typename T, int kIn, int kOut> Elements<T, kIn, kOut> elements(
    const std::array<Tensor, kIn>& inputs, const std::array<Tensor, kOut>& outputs) {
  Elements<T, kIn, kOut> result;
  for (int i = 0; i < kIn; ++i) result.in[i] = const_data<T>(inputs[i]);
  for (int i = 0; i < kOut; ++i) result.out[i] = mutable_data<T>(outputs[i]);
  result.size = outputs[0].numel();
  return result;
}

#ifdef __CUDACC__

// Of 128 to 512 threads with 16 to 64 bytes the fastest, or within 1 % of it, at 2^28 elements on an H200.
constexpr int kThreads = 128;
constexpr int kThreadBytes = 16;

// Elements of a launch: 32 bits hold their indices, and the next launch begins at an aligned address again.
constexpr int64_t kLaunch = int64_t{1} << 30;

template <int kWidth, typename T, int kIn, int kOut>
__device__ void load(const Elements<T, kIn, kOut>& x, uint32_t at, Pack<T, kWidth> (&in)[kIn]) {
#pragma unroll
  for (int i = 0; i < kIn; ++i) in[i] = *reinterpret_cast<const Pack<T, kWidth>*>(x.in[i] + at);
}

template <int kWidth, typename T, int kIn, int kOut, typename F> __device__ void compute(
    const Elements<T, kIn, kOut>& x, uint32_t at, const Pack<T, kWidth> (&in)[kIn], const F& f) {
  using A = compute_t<T>;
  Pack<T, kWidth> out[kOut];
#pragma unroll
  for (int e = 0; e < kWidth; ++e) {
    A from[kIn], to[kOut];
#pragma unroll
    for (int i = 0; i < kIn; ++i) from[i] = static_cast<A>(in[i].value[e]);
    f(from, to);
#pragma unroll
    for (int i = 0; i < kOut; ++i) out[i].value[e] = static_cast<T>(to[i]);
  }
#pragma unroll
  for (int i = 0; i < kOut; ++i) *reinterpret_cast<Pack<T, kWidth>*>(x.out[i] + at) = out[i];
}

// Bound by memory: every input is read once, every output written once, (kIn + kOut) * sizeof(T) bytes an
// element. A thread has kThreadBytes of each tensor, in packs of kWidth elements: of the packs of its block,
// which lie in a row, thread t has t, t + kThreads, ..., so that a warp reads a row too. It loads all of them
// before it uses the first. The thread whose pack the end cuts off takes what is left one by one.
template <int kWidth, typename T, int kIn, int kOut, typename F> __global__ void __launch_bounds__(kThreads)
    elementwise_kernel(Elements<T, kIn, kOut> x, F f) {
  constexpr int kPacks = kThreadBytes / sizeof(T) / kWidth;
  const uint32_t size = static_cast<uint32_t>(x.size);
  const uint32_t first = (blockIdx.x * kThreads * kPacks + threadIdx.x) * kWidth;
  Pack<T, kWidth> in[kPacks][kIn];
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const uint32_t at = first + p * kThreads * kWidth;
    if (at + kWidth <= size) load(x, at, in[p]);
  }
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    uint32_t at = first + p * kThreads * kWidth;
    if (at + kWidth <= size) {
      compute(x, at, in[p], f);
    } else if constexpr (kWidth > 1) {
#pragma unroll 1
      for (; at < size; ++at) {
        Pack<T, 1> one[kIn];
        load(x, at, one);
        compute(x, at, one, f);
      }
    }
  }
}

template <int kWidth, typename T, int kIn, int kOut, typename F>
void launch(Elements<T, kIn, kOut> x, const F& f, cudaStream_t stream) {
  constexpr int64_t kTile = int64_t{kThreads} * kThreadBytes / sizeof(T);
  for (int64_t left = x.size; left > 0; left -= kLaunch) {
    x.size = std::min(left, kLaunch);
    const auto blocks = static_cast<unsigned>((x.size + kTile - 1) / kTile);
    elementwise_kernel<kWidth><<<blocks, kThreads, 0, stream>>>(x, f);
    for (const T*& pointer : x.in) pointer += x.size;
    for (T*& pointer : x.out) pointer += x.size;
  }
}

// outputs = f(inputs), element by element, on the current stream. Where 16 does not divide one of the
// addresses, a pack is a single element.
template <typename T, int kIn, int kOut, typename F>
void elementwise(const std::array<Tensor, kIn>& inputs, const std::array<Tensor, kOut>& outputs, const F& f) {
  const Elements<T, kIn, kOut> x = elements<T, kIn, kOut>(inputs, outputs);
  if (x.size == 0) return;
  bool aligned = true;
  for (const T* pointer : x.in) aligned = aligned && is_aligned(pointer, kThreadBytes);
  for (const T* pointer : x.out) aligned = aligned && is_aligned(pointer, kThreadBytes);
  const DeviceGuard guard(outputs[0].get_device_index());
  const cudaStream_t stream = current_stream(outputs[0]);
  if (aligned) {
    launch<kThreadBytes / sizeof(T)>(x, f, stream);
  } else {
    launch<1>(x, f, stream);
  }
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

#else

// Elements a thread has to have before a second one joins, as in PyTorch.
constexpr int64_t kGrain = 32768;

// Elements that are converted to the type of computation at a time: they stay in the first-level cache.
constexpr int kBlock = 512;

template <typename A, typename T> inline void convert(const T* from, A* to, int count) {
  for (int i = 0; i < count; ++i) to[i] = static_cast<A>(from[i]);
}

#ifdef __F16C__  // torch's conversions of Half call functions: the compiler makes no vectors of them
inline void convert(const Half* from, float* to, int count) {
  int i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  }
  for (; i < count; ++i) to[i] = from[i];
}

inline void convert(const float* from, Half* to, int count) {
  int i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i bits = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), bits);
  }
  for (; i < count; ++i) to[i] = from[i];
}
#endif

// `count` elements from `begin`.
template <typename T, int kIn, int kOut, typename F>
void run(const Elements<T, kIn, kOut>& x, int64_t begin, int64_t count, const F& f) {
  using A = compute_t<T>;
  std::array<const T* __restrict__, kIn> in;
  std::array<T* __restrict__, kOut> out;
  for (int i = 0; i < kIn; ++i) in[i] = x.in[i] + begin;
  for (int i = 0; i < kOut; ++i) out[i] = x.out[i] + begin;
  for (int64_t j = 0; j < count; ++j) {
    A from[kIn], to[kOut];
    for (int i = 0; i < kIn; ++i) from[i] = static_cast<A>(in[i][j]);
    f(from, to);
    for (int i = 0; i < kOut; ++i) out[i][j] = static_cast<T>(to[i]);
  }
}

// outputs = f(inputs), element by element.
template <typename T, int kIn, int kOut, typename F>
void elementwise(const std::array<Tensor, kIn>& inputs, const std::array<Tensor, kOut>& outputs, const F& f) {
  using A = compute_t<T>;
  const Elements<T, kIn, kOut> x = elements<T, kIn, kOut>(inputs, outputs);
  torch::stable::parallel_for(0, x.size, kGrain, [&](int64_t begin, int64_t end) {
    if constexpr (!std::is_same_v<A, float> || std::is_same_v<T, float>) {
      run(x, begin, end - begin, f);
    } else {
      A buffer[kIn + kOut][kBlock];
      Elements<A, kIn, kOut> block;
      for (int i = 0; i < kIn; ++i) block.in[i] = buffer[i];
      for (int i = 0; i < kOut; ++i) block.out[i] = buffer[kIn + i];
      for (; begin < end; begin += kBlock) {
        const int count = static_cast<int>(std::min<int64_t>(kBlock, end - begin));
        for (int i = 0; i < kIn; ++i) convert(x.in[i] + begin, buffer[i], count);
        run(block, 0, count, f);
        for (int i = 0; i < kOut; ++i) convert(buffer[kIn + i], x.out[i] + begin, count);
      }
    }
  });
}

#endif

}  // namespace cem_tetris
