// out = mean + std * z for results that a multiprocessor is done with in a few microseconds: independent
// noise, one problem or many. There the prologue of the general kernels counts: their tables in shared memory
// and their barriers.
//
// Roofline: the bytes of the result, which fit into the second-level cache; the latency of a thread's few
// hundred instructions is what is left. 19 instructions a normal, 4.2 of them 32 x 32 -> 64 bit products.
//
// (..., d, N), whole vectors, no bounds: a block of kThreads has `width` threads along the samples, four
// samples each, and kThreads / width groups of kRows dimensions. A thread owns four samples of kRows
// consecutive dimensions. Problems lie along the grid's second side.
// (..., N, d): a thread owns four samples of kRows consecutive dimensions; neighbours have neighbouring
// dimensions, then blocks of samples, then problems, so that no thread is idle but the last ones.
#pragma once

#include "early_launch.cuh"
#include "sample.cuh"

namespace cem_tetris::normal {

// What every thread of a small kernel needs of seed and generation.
struct SmallKeys {
  const int64_t* seed_data;  // where not null, in place of key and late
  const int64_t* generation_data;
  uint64_t generation;
  Key key;
  LateKeys late;
};

struct SmallRows {
  int64_t dimensions, samples, problems;
  int log_width;    // of the threads along the samples
  uint32_t across;  // blocks along the samples
  bool aligned;     // mean and std of every problem to 16 bytes
  int64_t mean_stride, std_stride;
  SmallKeys keys;
};

// n / divisor for n < 2^31 by a product (T. Granlund, P. Montgomery: Division by invariant integers using
// multiplication, PLDI 1994).
struct Divider {
  uint32_t divisor, multiplier, shift;

  __device__ __forceinline__ uint32_t quotient(uint32_t n) const {
    return divisor == 1 ? n : __umulhi(n, multiplier) >> shift;
  }
};

inline Divider make_divider(uint32_t divisor) {
  uint32_t log = 0;
  while ((uint64_t{1} << log) < divisor) ++log;
  if (log == 0) return {1, 0, 0};
  return {divisor, static_cast<uint32_t>(((uint64_t{1} << (31 + log)) + divisor - 1) / divisor), log - 1};
}

struct SmallColumns {
  Divider of_problem, of_block;  // threads of a problem, and of a block of samples
  uint32_t threads;
  bool aligned;
  bool staged;  // a block has whole blocks of samples, and its result goes through shared memory
  int64_t dimensions, samples;
  const float *mean, *std;
  int64_t mean_stride, std_stride;
  Bounds<float> bounds;
  SmallKeys keys;
};

// From the device's memory, where they are there.
template <bool kTensors>
__device__ __forceinline__ SmallKeys load_keys(const SmallKeys& given, int64_t problem) {
  SmallKeys keys = given;
  if constexpr (kTensors) {
    if (keys.seed_data != nullptr) keys.key = make_key(static_cast<uint64_t>(keys.seed_data[problem]));
    if (keys.generation_data != nullptr)
      keys.generation = static_cast<uint64_t>(*keys.generation_data) % kGenerations;
#pragma unroll
    for (int i = 0; i < kLateKeys; ++i) keys.late.word[i] = late_key(keys.key, i);
  }
  return keys;
}

template <int kRows>
__device__ __forceinline__ void load_rows(const float* from, bool aligned, float (&to)[kRows]) {
  if (kRows % 4 == 0 && aligned) {
#pragma unroll
    for (int i = 0; i < kRows / 4; ++i) {
      const float4 pack = reinterpret_cast<const float4*>(from)[i];
      to[4 * i] = pack.x;
      to[4 * i + 1] = pack.y;
      to[4 * i + 2] = pack.z;
      to[4 * i + 3] = pack.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kRows; ++i) to[i] = from[i];
  }
}

// By this instruction: of a plain store of four floats ptxas makes four.
template <typename T, int kCount>
__device__ __forceinline__ void store_some(T* to, const Pack<T, kCount>& x) {
  if constexpr (kCount == 4 && sizeof(T) == 4) {
    __stcg(reinterpret_cast<float4*>(to), make_float4(x.value[0], x.value[1], x.value[2], x.value[3]));
  } else {
    *reinterpret_cast<Pack<T, kCount>*>(to) = x;
  }
}

// mean + std * z for a pair of samples.
__device__ __forceinline__ void sample_pair(
    uint32_t radius, uint32_t angle, float mean, float std, float& even, float& odd) {
  const Polar<float> z = polar(radius, angle);
  const float scale = std * z.radius;
  even = fmaf(scale, z.cosine, mean);
  odd = fmaf(scale, z.sine, mean);
}

template <typename T, int kRows, bool kTensors>
__global__ __launch_bounds__(kThreads, 4) void small_rows_kernel(const __grid_constant__ SmallRows job,
    const float* __restrict__ mean, const float* __restrict__ std, T* __restrict__ out) {
  const int64_t problem = problem_of_block();
  const int height = kThreads >> job.log_width;
  int64_t row =
      (static_cast<int64_t>(blockIdx.x / job.across) * height + (threadIdx.x >> job.log_width)) * kRows;
  const uint32_t block =
      (blockIdx.x % job.across << job.log_width) + (threadIdx.x & ((1u << job.log_width) - 1));
  if (problem >= job.problems || row >= job.dimensions || static_cast<int64_t>(block) * kTile >= job.samples)
    return;
  row = min(row, job.dimensions - kRows);  // the last rows are written twice, with the same numbers
  const bool aligned = job.aligned && row % 4 == 0;
  float means[kRows], stds[kRows];
  load_rows(mean + problem * job.mean_stride + row, aligned, means);
  load_rows(std + problem * job.std_stride + row, aligned, stds);

  const SmallKeys keys = load_keys<kTensors>(job.keys, problem);
  const BlockPart samples = block_part(keys.key, block, keys.generation, upper(keys.generation, row, 0));
  T* to = out + (problem * job.dimensions + row) * job.samples + static_cast<int64_t>(block) * kTile;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const Words w = words(keys.late, dimension_part(keys.key, row + i, keys.generation), samples);
    float x[kTile];
    sample_pair(w.word[0], w.word[1], means[i], stds[i], x[0], x[1]);
    sample_pair(w.word[2], w.word[3], means[i], stds[i], x[2], x[3]);
    store_some(to, packed<T>(x));
    to += job.samples;
  }
}

template <typename T, int kRows, bool kTensors> __global__ __launch_bounds__(
    kThreads) void small_columns_kernel(const __grid_constant__ SmallColumns job, T* __restrict__ out) {
  wait_for_kernel_before();
  const uint32_t before = blockIdx.x * blockDim.x, thread = min(before + threadIdx.x, job.threads - 1);
  const uint32_t problem = job.of_problem.quotient(thread), rest = thread - problem * job.of_problem.divisor;
  const uint32_t block = job.of_block.quotient(rest);
  const int64_t dimension = (rest - block * job.of_block.divisor) * int64_t{kRows};
  float means[kRows], stds[kRows];
  load_rows(job.mean + problem * job.mean_stride + dimension, job.aligned, means);
  load_rows(job.std + problem * job.std_stride + dimension, job.aligned, stds);

  const SmallKeys keys = load_keys<kTensors>(job.keys, problem);
  const BlockPart samples = block_part(keys.key, block, keys.generation, upper(keys.generation, 0, 0));
  float x[kTile][kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const Words w = words(keys.late, dimension_part(keys.key, dimension + i, keys.generation), samples);
    sample_pair(w.word[0], w.word[1], means[i], stds[i], x[0][i], x[1][i]);
    sample_pair(w.word[2], w.word[3], means[i], stds[i], x[2][i], x[3][i]);
  }
  const auto clamp = [&](const float* bound, int64_t stride, const auto& beyond) {
    if (bound == nullptr) return;
    float limit[kRows];
    load_rows(bound + problem * stride + dimension, false, limit);
#pragma unroll
    for (int i = 0; i < kTile * kRows; ++i) {  // NaN stays
      float& value = x[i / kRows][i % kRows];
      if (beyond(value, limit[i % kRows])) value = limit[i % kRows];
    }
  };
  clamp(job.bounds.low, job.bounds.low_stride, [](float a, float b) { return a < b; });
  clamp(job.bounds.high, job.bounds.high_stride, [](float a, float b) { return a > b; });
  if constexpr (kRows == kTile) {
    if (job.staged) {  // its result lies in one piece, which it writes by whole lines
      __shared__ Pack<T, kRows> staged[kTile * kThreads];
      const uint32_t width = job.of_block.divisor;
      const uint32_t own = threadIdx.x + job.of_block.quotient(threadIdx.x) * (kTile - 1) * width;
#pragma unroll
      for (int i = 0; i < kTile; ++i) staged[own + i * width] = packed<T>(x[i]);
      __syncthreads();
      auto* to = reinterpret_cast<Pack<T, kRows>*>(out) + kTile * static_cast<int64_t>(before);
      const uint32_t left = kTile * (job.threads - before);
      Pack<T, kRows> pack[kTile];
#pragma unroll
      for (int i = 0; i < kTile; ++i) pack[i] = staged[threadIdx.x + i * blockDim.x];
#pragma unroll
      for (int i = 0; i < kTile; ++i) {
        const uint32_t at = threadIdx.x + i * blockDim.x;
        if (at < left) store_some(to[at].value, pack[i]);
      }
      return;
    }
  }
  const int64_t first = static_cast<int64_t>(block) * kTile;
  T* to = out + (problem * job.samples + first) * job.dimensions + dimension;
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    if (first + i < job.samples) store_some(to + i * job.dimensions, packed<T>(x[i]));
  }
}

}  // namespace cem_tetris::normal
