// out = mean + std * z, (d, N), for results that a multiprocessor is done with in a few microseconds:
// independent noise, whole vectors, no bounds. There the prologue of the general kernel counts: its table in
// shared memory and its barrier.
//
// Roofline: the bytes of the result, which fit into the second-level cache; the latency of a thread's few
// hundred instructions is what is left. 19 instructions a normal, 4.2 of them 32 x 32 -> 64 bit products.
//
// Grid: a block of kThreads has `width` threads along the samples, four samples each, and kThreads / width
// groups of kRows dimensions. A thread owns four samples of kRows consecutive dimensions.
#pragma once

#include "sample.cuh"

namespace cem_tetris::normal {

struct SmallRows {
  int64_t dimensions, samples;
  int log_width;    // of the threads along the samples
  uint32_t across;  // blocks along the samples
  bool aligned;     // mean and std to 16 bytes
  uint64_t generation;
  const int64_t* seed_data;
  Key key;  // where seed_data is null
  LateKeys late_keys;
};

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

  Key key = job.key;
  LateKeys keys = job.late_keys;
  if constexpr (kSeedTensor) {
    key = make_key(static_cast<uint64_t>(*job.seed_data));
#pragma unroll
    for (int i = 0; i < kLateKeys; ++i) keys.word[i] = late_key(key, i);
  }
  const BlockPart samples = block_part(key, block, job.generation, upper(job.generation, row, 0));
  T* to = out + row * job.samples + static_cast<int64_t>(block) * kTile;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const Words w = words(keys, dimension_part(key, row + i, job.generation), samples);
    float4 x;
    sample_pair(w.word[0], w.word[1], means[i], stds[i], x.x, x.y);
    sample_pair(w.word[2], w.word[3], means[i], stds[i], x.z, x.w);
    store_four(to, x);
    to += job.samples;
  }
}

}  // namespace cem_tetris::normal
