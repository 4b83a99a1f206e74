// The loop over the elements as a kernel, and the sigmoid on CUDA.
#pragma once

#include "elements.h"
#include "gpu.cuh"

namespace cem_tetris {
namespace {

// These are the fastest of 128 to 512 threads with 16 to 64 bytes, or within 1 % of the
// fastest. They were measured at 2^28 elements on an H200.
constexpr int kThreads = 128;
constexpr int kThreadBytes = 16;  // bytes of each tensor that a thread loads or stores

// The most elements of one launch. Their indices fit into 32 bits, and the next launch begins
// at an aligned address again.
constexpr int64_t kLaunch = int64_t{1} << 30;

// Loads kWidth consecutive elements of every input, from element `first` on.
template <int kWidth, typename T, int kIn, int kOut>
__device__ void load(
    const Elements<T, kIn, kOut>& tensors, uint32_t first, Pack<T, kWidth> (&in)[kIn]) {
  CEM_TETRIS_UNROLL
  for (int i = 0; i < kIn; ++i)
    in[i] = *reinterpret_cast<const Pack<T, kWidth>*>(tensors.in[i] + first);
}

// Applies f to kWidth consecutive elements, from element `first` on, and stores the results.
// One thread computes them. in[i] holds these elements of input i, which have been loaded.
// f(inputs, outputs) reads one element of each input, and sets one element of each output. Both
// are numbers of A, the type of computation, which is float for 16-bit floats.
template <int kWidth, typename T, int kIn, int kOut, typename F>
__device__ void compute(const Elements<T, kIn, kOut>& tensors, uint32_t first,
    const Pack<T, kWidth> (&in)[kIn], const F& f) {
  using A = compute_t<T>;
  Pack<T, kWidth> out[kOut];
  CEM_TETRIS_UNROLL
  for (int e = 0; e < kWidth; ++e) {
    A inputs[kIn], outputs[kOut];
    CEM_TETRIS_UNROLL
    for (int i = 0; i < kIn; ++i) inputs[i] = A(in[i].value[e]);
    f(inputs, outputs);
    CEM_TETRIS_UNROLL
    for (int i = 0; i < kOut; ++i) out[i].value[e] = T(outputs[i]);
  }
  CEM_TETRIS_UNROLL
  for (int i = 0; i < kOut; ++i)
    *reinterpret_cast<Pack<T, kWidth>*>(tensors.out[i] + first) = out[i];
}

// Kernel: applies f to every element of kIn input and kOut output tensors. The memory bandwidth
// limits its speed: it reads every input once, and writes every output once.
//
// A pack is kWidth consecutive elements, which a thread loads or stores at once. A thread has
// kPacks packs of every tensor. The packs of a block are consecutive, and neighbouring threads
// have neighbouring packs, so that the loads of a warp are coalesced:
//
//   | thread 0 | thread 1 | ... | thread kThreads - 1 | thread 0 | thread 1 | ...
//
// A thread loads all of its packs before it uses the first one, so that the loads are in flight
// together. If the number of elements is not a multiple of kWidth, the last pack is incomplete.
// Its thread computes the elements of this pack one by one.
template <int kWidth, typename T, int kIn, int kOut, typename F>
__global__ void __launch_bounds__(kThreads)
    elementwise_kernel(Elements<T, kIn, kOut> tensors, F f) {
  constexpr int kPacks = kThreadBytes / sizeof(T) / kWidth;
  uint32_t size = uint32_t(tensors.size);
  // The first element of the thread's first pack, and the distance to its next pack.
  uint32_t first_of_thread = (blockIdx.x * kThreads * kPacks + threadIdx.x) * kWidth;
  constexpr uint32_t kStride = kThreads * kWidth;
  Pack<T, kWidth> in[kPacks][kIn];
  CEM_TETRIS_UNROLL
  for (int p = 0; p < kPacks; ++p) {
    uint32_t first = first_of_thread + p * kStride;
    if (first + kWidth <= size) load(tensors, first, in[p]);
  }
  CEM_TETRIS_UNROLL
  for (int p = 0; p < kPacks; ++p) {
    uint32_t first = first_of_thread + p * kStride;
    bool is_complete = first + kWidth <= size;
    if (is_complete) {
      compute(tensors, first, in[p], f);
    } else if constexpr (kWidth > 1) {
#pragma unroll 1
      for (; first < size; ++first) {
        Pack<T, 1> single[kIn];
        load(tensors, first, single);
        compute(tensors, first, single, f);
      }
    }
  }
}

// Launches the kernel for all elements, at most kLaunch elements per launch. kWidth is the
// number of elements in a pack, which a thread loads and stores at once.
template <int kWidth, typename T, int kIn, int kOut, typename F>
void launch(const Gpu& gpu, Elements<T, kIn, kOut> tensors, const F& f) {
  constexpr int64_t kBlockElements = int64_t{kThreads} * kThreadBytes / sizeof(T);
  for (int64_t remaining = tensors.size; remaining > 0; remaining -= kLaunch) {
    tensors.size = std::min(remaining, kLaunch);
    gpu.launch(elementwise_kernel<kWidth, T, kIn, kOut, F>,
        divide_up(tensors.size, kBlockElements), kThreads, /*bytes=*/0, tensors, f);
    // The next launch begins after the elements of this one.
    for (const T*& pointer : tensors.in) pointer += tensors.size;
    for (T*& pointer : tensors.out) pointer += tensors.size;
  }
}

// Applies f to all elements of kIn input and kOut output tensors, on the current CUDA stream.
// f(inputs, outputs) reads one element of each input, and sets one element of each output. A
// thread loads and stores packs of 16 bytes, or single elements if one of the tensors does not
// begin at a multiple of 16 bytes.
template <typename T, int kIn, int kOut, typename F>
void for_each_element(const Elements<T, kIn, kOut>& tensors, const F& f, Device device) {
  if (tensors.size == 0) return;
  bool all_aligned = true;
  for (const T* pointer : tensors.in) all_aligned &= is_aligned(pointer, kThreadBytes);
  for (const T* pointer : tensors.out) all_aligned &= is_aligned(pointer, kThreadBytes);
  constexpr int kPackWidth = kThreadBytes / sizeof(T);
  auto* launch_packs =
      all_aligned ? launch<kPackWidth, T, kIn, kOut, F> : launch<1, T, kIn, kOut, F>;
  launch_packs(Gpu(device), tensors, f);
}

// Returns an approximation of 1 / x.
__device__ float reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

template <typename T>
struct Sigmoid {
  // This version is for types of 16 bits. The fast exponential has an error of at most 6e-6 if
  // the result is not zero. The rounding error of the result is much larger.
  __device__ void operator()(const float (&in)[1], float (&out)[1]) const {
    float power = __expf(-fabsf(in[0]));
    out[0] = (in[0] < 0.0f ? power : 1.0f) * reciprocal(1.0f + power);
  }
};

// Computes the quotient numerator / (1 + power) by an approximate reciprocal and one step of
// Newton's method. `rest` is the rounding error of the sum 1 + power.
template <>
struct Sigmoid<float> {
  __device__ void operator()(const float (&in)[1], float (&out)[1]) const {
    float power = expf(-fabsf(in[0]));
    float numerator = in[0] < 0.0f ? power : 1.0f;
    float denominator = 1.0f + power;           // in [1, 2], so the reciprocal needs no scaling
    float rest = power - (denominator - 1.0f);  // exactly: 1 + power = denominator + rest
    float inverse = reciprocal(denominator);
    float quotient = numerator * inverse;
    float remainder = fmaf(-rest, quotient, fmaf(-denominator, quotient, numerator));
    out[0] = fmaf(remainder, inverse, quotient);
  }
};

template <>
struct Sigmoid<double> {
  __device__ void operator()(const double (&in)[1], double (&out)[1]) const {
    double power = exp(-fabs(in[0]));
    out[0] = (in[0] < 0.0 ? power : 1.0) / (1.0 + power);
  }
};

}  // namespace
}  // namespace cem_tetris
