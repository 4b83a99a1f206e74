// out = mean + std * z: the forward kernel.
//
// Roofline: 4 bytes written a float32 and nothing else of weight, so the bound is the write
// bandwidth: an H200 fills 4 GB in 877 us. By the disassembly a normal takes 17.8 instructions,
// 3.75 of them 32 x 32 -> 64 bit products: issue slots for 542 us, but without its stores the
// kernel takes 840 to 880 us. Both count.
//
// Grid: a block owns a rectangle of tiles (call.h), kThreads / width of them high times
// `steps`, and width wide. The fast side of the layout lies along the threads, so a warp stores
// whole lines; a thread walks the other side, of which a table in shared memory holds what all
// threads need.
#pragma once

#include <type_traits>

#include "call.h"
#include "gpu.cuh"

namespace cem_tetris::normal {

constexpr int kThreads = 256;
constexpr int kMaxSteps = 16;
constexpr int kMaxEntries = 256;  // of the table in shared memory
constexpr int64_t kGroup = 128;

// Blocks a multiprocessor that leave a thread enough registers.
template <typename T, bool kPlain, bool kDimFirst> constexpr int kResident =
    sizeof(T) == sizeof(double) ? 2
    : kPlain && !kDimFirst      ? 4
                                : 3;

// Four consecutive elements from first on; beyond the end, the last one again. All are asked
// for before any is waited for: under a stream of stores a load takes microseconds.
template <typename Real> __device__ __forceinline__ void load_four(
    Vector v, int64_t first, int64_t count, Real (&to)[kTile]) {
  const auto load = [&](auto zero) {
    decltype(zero) x[kTile];
#pragma unroll
    for (int j = 0; j < kTile; ++j)
      x[j] = static_cast<const decltype(zero)*>(v.data)[min(first + j, count - 1)];
#pragma unroll
    for (int j = 0; j < kTile; ++j) to[j] = static_cast<Real>(x[j]);
  };
  switch (v.type) {
    case ScalarType::Float: return load(float{});
    case ScalarType::Double: return load(double{});
    case ScalarType::Half: return load(Half{});
    default: return load(BFloat16{});
  }
}

// The four dimensions of a tile: their noise's part and their parameters.
template <typename Real, bool kPlain> struct alignas(16) Column {
  DimensionPart noise[kTile];
  Real mean[kTile], std[kTile];
  Real low[kPlain ? 1 : kTile], high[kPlain ? 1 : kTile];
};

template <typename Real, bool kPlain>
__device__ __forceinline__ Column<Real, kPlain> load_column(
    Key key, const Call& call, int64_t first) {
  const Noise& noise = call.noise;
  Column<Real, kPlain> column;
  const uint64_t source = !kPlain && noise.shared ? 0 : first;
  load_four(call.mean, first, noise.dimensions, column.mean);
  load_four(call.std, first, noise.dimensions, column.std);
  if (!kPlain) {
#pragma unroll
    for (int j = 0; j < kTile; ++j) {
      const int64_t i = min(first + j, noise.dimensions - 1);
      const auto *low = static_cast<const Real*>(call.low.data),
                 *high = static_cast<const Real*>(call.high.data);
      column.low[j] = low != nullptr ? low[i] : -static_cast<Real>(INFINITY);
      column.high[j] = high != nullptr ? high[i] : static_cast<Real>(INFINITY);
    }
  }
#pragma unroll
  for (int j = 0; j < kTile; ++j)
    column.noise[j] = dimension_part(key, source + j, noise.generation);
  return column;
}

// To the numbers of a problem.
__device__ __forceinline__ void move_to(int64_t problem, Vector& v) {
  const int bytes = v.type == ScalarType::Double ? 8 : v.type == ScalarType::Float ? 4 : 2;
  v.data = static_cast<const char*>(v.data) + problem * v.stride * bytes;
}

inline dim3 grid_of(int64_t blocks, int64_t problems) {
  constexpr int64_t kMost = 65535;
  STD_TORCH_CHECK(
      blocks < int64_t{1} << 31, "sample_normal: expected less than 2^31 blocks, got ", blocks);
  STD_TORCH_CHECK(problems <= kMost * kMost,
      "sample_normal: expected less than 2^32 problems, got ", problems);
  const int64_t layers = (problems + kMost - 1) / kMost;
  return dim3(static_cast<unsigned>(blocks),
      static_cast<unsigned>((problems + layers - 1) / layers), static_cast<unsigned>(layers));
}

// x[dimension][sample] of a tile.
template <typename Real, bool kPlain>
__device__ __forceinline__ void sample_tile(const LateKeys& keys, const Noise& noise,
    const Column<Real, kPlain>& column, const Samples<Real>& samples, Real (&x)[kTile][kTile]) {
  Polar<Real> pairs[kTile / 2];
#pragma unroll
  for (int j = 0; j < kTile; ++j) {
    if (kPlain || !noise.shared || j == 0) set_pairs(keys, column.noise[j], samples, pairs);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Polar<Real> z = pairs[half];
      const Real scale = column.std[j] * z.radius;
      Real& even = x[j][2 * half];
      Real& odd = x[j][2 * half + 1];
      even = fma(scale, z.cosine, column.mean[j]);
      odd = !kPlain && noise.antithetic ? fma(-scale, z.cosine, column.mean[j])
                                        : fma(scale, z.sine, column.mean[j]);
      if (!kPlain) {  // NaN stays
        even = even < column.low[j]    ? column.low[j]
               : even > column.high[j] ? column.high[j]
                                       : even;
        odd = odd < column.low[j] ? column.low[j] : odd > column.high[j] ? column.high[j] : odd;
      }
    }
  }
}

// Streaming stores: lines that leave the cache first leave it in the order of their addresses,
// nearly. In assembly, for ptxas takes some vectors apart that it sees made of single numbers.
__device__ __forceinline__ void store_words(float* to, const Pack<float, 4>& x) {
  asm volatile("st.global.cs.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x.value[0]),
      "f"(x.value[1]), "f"(x.value[2]), "f"(x.value[3])
      : "memory");
}
template <typename T> __device__ __forceinline__ void store_words(T* to, const Pack<T, 4>& x) {
  using Words = std::conditional_t<sizeof x == 8, uint2, uint4>;
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof x / sizeof(Words)); ++i)
    __stcs(reinterpret_cast<Words*>(to) + i, reinterpret_cast<const Words*>(&x)[i]);
}

template <typename T, int kCount, typename Real>
__device__ __forceinline__ Pack<T, kCount> packed(const Real (&x)[kCount]) {
  Pack<T, kCount> pack;
#pragma unroll
  for (int i = 0; i < kCount; ++i) pack.value[i] = static_cast<T>(x[i]);
  return pack;
}

template <typename T, typename Real> __device__ __forceinline__ void store(
    T* to, const Real (&x)[kTile], int64_t count, bool whole) {
  const auto pack = packed<T>(x);
  if (whole) {
    store_words(to, pack);
  } else {
#pragma unroll
    for (int i = 0; i < kTile; ++i) {
      if (i < count) to[i] = pack.value[i];
    }
  }
}

struct Shape {
  int log_width, steps;
  uint32_t across, down;  // blocks along the fast and the slow side
  uint32_t group;         // blocks along the fast side that run before those below them
};

// Threads lie along the samples if kDimFirst, and the table holds dimensions; else they lie
// along the dimensions, and it holds blocks of samples.
template <typename T, bool kPlain, bool kDimFirst> __global__ __launch_bounds__(kThreads,
    kResident<T, kPlain, kDimFirst>) void sample_kernel(Call call, Shape shape, T* out) {
  using Real = compute_t<T>;
  using OfDimensions = Column<Real, kPlain>;
  __shared__ alignas(16) std::conditional_t<kDimFirst, OfDimensions, Samples<Real>>
      table[kMaxEntries];
  __shared__ LateKeys shared_keys;
  const int64_t problem = static_cast<int64_t>(blockIdx.z) * gridDim.y + blockIdx.y;
  Noise& noise = call.noise;
  if (problem >= noise.problems) return;
  noise.enter(problem);
  for (Vector* each : {&call.mean, &call.std, &call.low, &call.high}) move_to(problem, *each);
  out += problem * noise.dimensions * noise.samples;
  const Key key = make_key(noise.seed);
  const int width = 1 << shape.log_width, height = kThreads >> shape.log_width,
            entries = height * shape.steps;
  uint32_t across = blockIdx.x % shape.across, down = blockIdx.x / shape.across;
  if constexpr (
      !kDimFirst) {  // blocks that run side by side shall write few rows where those are long
    const uint32_t blocks = shape.group * shape.down, rest = blockIdx.x % blocks,
                   left = blockIdx.x / blocks * shape.group,
                   group = min(shape.group, shape.across - left);
    across = left + rest % group;
    down = rest / group;
  }
  // In tiles: the thread's on the fast side, the block's first one on the slow side.
  const int64_t fast = static_cast<int64_t>(across) * width + (threadIdx.x & (width - 1)),
                slow = static_cast<int64_t>(down) * entries;
  const int64_t first = (kDimFirst ? slow : fast) * kTile, block = kDimFirst ? fast : slow;
  std::conditional_t<kDimFirst, Samples<Real>, OfDimensions> own;
  if constexpr (kDimFirst) {
    for (int i = threadIdx.x; i < entries && first + i * kTile < noise.dimensions;
        i += kThreads) {
      table[i] = load_column<Real, kPlain>(key, call, first + i * kTile);
    }
  } else {
    // The last threads may be beyond the dimensions, and load what they do not use.
    const int64_t last = (noise.dimensions - 1) / kTile * kTile;
    own = load_column<Real, kPlain>(key, call, min(first, last));
    for (int i = threadIdx.x; i < entries; i += kThreads) {
      table[i] = samples_of<Real>(key, noise.generation, noise.shared ? 0 : first, block, i);
    }
  }
  // By way of shared memory: registers that are loaded stay, while those that are computed
  // ptxas computes again in every turn of a loop.
  if (threadIdx.x < kLateKeys) shared_keys.word[threadIdx.x] = late_key(key, threadIdx.x);
  __syncthreads();
  const int64_t row_size = kDimFirst ? noise.samples : noise.dimensions,
                count = row_size - fast * kTile;
  if (count <= 0) return;

  const LateKeys keys = shared_keys;
  if constexpr (kDimFirst) {
    own = samples_of<Real>(key, noise.generation, noise.shared ? 0 : first, block);
  }
  const bool whole = row_size % kTile == 0;
  int entry = threadIdx.x >> shape.log_width;
  T* to = out + (slow + entry) * kTile * row_size + fast * kTile;
  const int64_t left = (kDimFirst ? noise.dimensions : noise.samples) - slow * kTile;
  for (; entry < entries && entry * kTile < left; entry += height) {
    Real x[kTile][kTile];
    if constexpr (kDimFirst) {
      sample_tile<Real, kPlain>(keys, noise, table[entry], own, x);
    } else {
      sample_tile<Real, kPlain>(keys, noise, own, table[entry], x);
    }
    T* row = to;
#pragma unroll
    for (int r = 0; r < kTile; ++r) {
      const auto at = [&](int i) { return kDimFirst ? x[r][i] : x[i][r]; };
      const Real y[kTile] = {at(0), at(1), at(2), at(3)};
      if (kPlain || entry * kTile + r < left) store(row, y, count, kPlain || whole);
      row += row_size;
    }
    to += height * kTile * row_size;
  }
}

}  // namespace cem_tetris::normal
