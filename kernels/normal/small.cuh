// out = mean + std * z for results that a multiprocessor is done with in a few microseconds: independent
// noise, no bounds. There the prologue of the general kernels counts: their tables in shared memory and their
// barriers.
//
// Roofline: the bytes of the result, which fit into the second-level cache; the latency of a thread's few
// hundred instructions is what is left. 19 instructions a normal, 4.2 of them 32 x 32 -> 64 bit products.
//
// (d, N), whole vectors: a block of kThreads has `width` threads along the samples, four samples each, and
// kThreads / width groups of kRows dimensions. A thread owns four samples of kRows consecutive dimensions.
// (N, d): a thread owns four samples of one dimension; neighbours have neighbouring dimensions.
#pragma once

#include "sample.cuh"

namespace cem_tetris::normal {

// What every thread of a small kernel needs of the seed.
struct SmallKeys {
  const int64_t* seed_data;
  Key key;  // where seed_data is null
  LateKeys late;
};

struct SmallRows {
  int64_t dimensions, samples;
  int log_width;    // of the threads along the samples
  uint32_t across;  // blocks along the samples
  bool aligned;     // mean and std to 16 bytes
  uint64_t generation;
  SmallKeys keys;
};

struct SmallColumns {
  uint32_t dimensions, threads;
  int64_t samples;
  uint64_t generation;
  SmallKeys keys;
};

// From the seed in the device's memory, where it is there.
template <bool kSeedTensor>
__device__ __forceinline__ SmallKeys load_keys(const SmallKeys& given) {
  SmallKeys keys = given;
  if constexpr (kSeedTensor) {
    keys.key = make_key(static_cast<uint64_t>(*keys.seed_data));
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

// By this instruction: of a plain store ptxas makes four.
__device__ __forceinline__ void store_four(float* to, float4 x) { __stcg(reinterpret_cast<float4*>(to), x); }
template <typename T>
__device__ __forceinline__ void store_four(T* to, float4 x) {
  Pack<T, kTile> pack;
  convert(pack.value[0], x.x);
  convert(pack.value[1], x.y);
  convert(pack.value[2], x.z);
  convert(pack.value[3], x.w);
  *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(&pack);
}

// mean + std * z for a pair of samples.
__device__ __forceinline__ void sample_pair(uint32_t radius, uint32_t angle, float mean, float std,
                                            float& even, float& odd) {
  const Polar<float> z = polar(radius, angle);
  const float scale = std * z.radius;
  even = fmaf(scale, z.cosine, mean);
  odd = fmaf(scale, z.sine, mean);
}

template <typename T, int kRows, bool kSeedTensor>
__global__ __launch_bounds__(kThreads, 4) void small_rows_kernel(const __grid_constant__ SmallRows job,
                                                                 const float* __restrict__ mean,
                                                                 const float* __restrict__ std,
                                                                 T* __restrict__ out) {
  const int height = kThreads >> job.log_width;
  int64_t row =
      (static_cast<int64_t>(blockIdx.x / job.across) * height + (threadIdx.x >> job.log_width)) * kRows;
  const uint32_t block =
      (blockIdx.x % job.across << job.log_width) + (threadIdx.x & ((1u << job.log_width) - 1));
  if (row >= job.dimensions || static_cast<int64_t>(block) * kTile >= job.samples) return;
  row = min(row, job.dimensions - kRows);  // the last rows are written twice, with the same numbers
  const bool aligned = job.aligned && row % 4 == 0;
  float means[kRows], stds[kRows];
  load_rows(mean + row, aligned, means);
  load_rows(std + row, aligned, stds);

  const SmallKeys keys = load_keys<kSeedTensor>(job.keys);
  const BlockPart samples = block_part(keys.key, block, job.generation, upper(job.generation, row, 0));
  T* to = out + row * job.samples + static_cast<int64_t>(block) * kTile;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const Words w = words(keys.late, dimension_part(keys.key, row + i, job.generation), samples);
    float4 x;
    sample_pair(w.word[0], w.word[1], means[i], stds[i], x.x, x.y);
    sample_pair(w.word[2], w.word[3], means[i], stds[i], x.z, x.w);
    store_four(to, x);
    to += job.samples;
  }
}

template <typename T, bool kSeedTensor>
__global__ __launch_bounds__(kThreads) void small_columns_kernel(const __grid_constant__ SmallColumns job,
                                                                 const float* __restrict__ mean,
                                                                 const float* __restrict__ std,
                                                                 T* __restrict__ out) {
  const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= job.threads) return;
  const uint32_t block = thread / job.dimensions, dimension = thread % job.dimensions;
  const SmallKeys keys = load_keys<kSeedTensor>(job.keys);
  const Words w = words(keys.late, dimension_part(keys.key, dimension, job.generation),
                        block_part(keys.key, block, job.generation, upper(job.generation, 0, 0)));
  float x[kTile];
  sample_pair(w.word[0], w.word[1], mean[dimension], std[dimension], x[0], x[1]);
  sample_pair(w.word[2], w.word[3], mean[dimension], std[dimension], x[2], x[3]);
  const int64_t first = static_cast<int64_t>(block) * kTile;
  T* to = out + first * job.dimensions + dimension;
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    if (first + i < job.samples) convert(to[static_cast<int64_t>(i) * job.dimensions], x[i]);
  }
}

}  // namespace cem_tetris::normal
