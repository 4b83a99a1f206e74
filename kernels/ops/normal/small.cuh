// out = mean + std * z for results that a multiprocessor is done with in a few microseconds:
// noise that is not antithetic, one problem or many. There the prologue of the general kernels
// counts: their tables in shared memory and their barriers.
//
// Roofline: the bytes of the result, which fit into the second-level cache; the latency of a
// thread's few hundred instructions is what is left. 19 instructions a normal, 4.2 of them 32 x
// 32 -> 64 bit products.
//
// A thread owns four samples, a block of them, of kRows consecutive dimensions. Neighbours have
// neighbouring places on the fast side of the layout, blocks of (..., d, N) or dimensions of
// (..., N, d), then on the slow side, then problems, so that no thread is idle but the last
// ones.
#pragma once

#include "sample.cuh"

namespace cem_tetris::normal {

// n / divisor for n < 2^31 by a product (T. Granlund, P. Montgomery: Division by invariant
// integers using multiplication, PLDI 1994).
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
  return {divisor, static_cast<uint32_t>(((uint64_t{1} << (31 + log)) + divisor - 1) / divisor),
      log - 1};
}

struct Small {
  Divider of_problem, of_slow;  // threads of a problem, and of a place on its slow side
  uint32_t threads;
  bool
      staged;  // a block has whole blocks of samples, and its result goes through shared memory
  Call call;   // of float
};

// The numbers of a problem from a dimension on.
template <int kRows> __device__ __forceinline__ void load_rows(
    Vector from, int64_t problem, int64_t dimension, float (&to)[kRows]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    to[i] = static_cast<const float*>(from.data)[problem * from.stride + dimension + i];
  }
}

// By this instruction: of a plain store of four floats ptxas makes four.
template <typename T, int kCount>
__device__ __forceinline__ void store_some(T* to, const Pack<T, kCount>& x) {
  if constexpr (kCount == 4 && sizeof(T) == 4) {
    __stcg(reinterpret_cast<float4*>(to),
        make_float4(x.value[0], x.value[1], x.value[2], x.value[3]));
  } else {
    *reinterpret_cast<Pack<T, kCount>*>(to) = x;
  }
}

template <typename T, int kRows, bool kDimFirst> __global__ __launch_bounds__(
    kThreads) void small_kernel(const __grid_constant__ Small job, T* __restrict__ out) {
  wait_for_kernel_before();
  Noise noise = job.call.noise;
  const uint32_t before = blockIdx.x * blockDim.x,
                 thread = min(before + threadIdx.x, job.threads - 1);
  const uint32_t problem = job.of_problem.quotient(thread),
                 rest = thread - problem * job.of_problem.divisor;
  const uint32_t slow = job.of_slow.quotient(rest), fast = rest - slow * job.of_slow.divisor;
  const uint32_t block = kDimFirst ? fast : slow;
  // The last dimensions of (..., d, N) may be written twice, with the same numbers.
  const int64_t dimension = kDimFirst
                                ? min(slow * int64_t{kRows}, job.call.noise.dimensions - kRows)
                                : fast * int64_t{kRows};
  float means[kRows], stds[kRows];
  load_rows(job.call.mean, problem, dimension, means);
  load_rows(job.call.std, problem, dimension, stds);

  noise.enter(problem);
  const Key key = make_key(noise.seed);
  const LateKeys keys = late_keys(key);
  const auto samples = samples_of<float>(key, noise.generation, 0, block);
  float x[kTile][kRows];
  const auto set_row = [&](int row, const Polar<float>(&pairs)[kTile / 2]) {
#pragma unroll
    for (int s = 0; s < kTile; ++s) {
      const Polar<float>& pair = pairs[s / 2];
      x[s][row] =
          fmaf(stds[row] * pair.radius, s % 2 == 0 ? pair.cosine : pair.sine, means[row]);
    }
  };
  Polar<float> pairs[kTile / 2];
  if (noise.shared) {  // the noise of dimension 0 is that of all
    set_pairs(keys, dimension_part(key, 0, noise.generation), samples, pairs);
#pragma unroll
    for (int i = 0; i < kRows; ++i) set_row(i, pairs);
  } else {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      set_pairs(keys, dimension_part(key, dimension + i, noise.generation), samples, pairs);
      set_row(i, pairs);
    }
  }
  const auto clamp = [&](Vector bound, const auto& beyond) {
    if (bound.data == nullptr) return;
    float limit[kRows];
    load_rows(bound, problem, dimension, limit);
#pragma unroll
    for (int i = 0; i < kTile * kRows; ++i) {  // NaN stays
      float& value = x[i / kRows][i % kRows];
      if (beyond(value, limit[i % kRows])) value = limit[i % kRows];
    }
  };
  clamp(job.call.low, [](float a, float b) { return a < b; });
  clamp(job.call.high, [](float a, float b) { return a > b; });
  const int64_t first = static_cast<int64_t>(block) * kTile;
  if constexpr (kDimFirst) {
    T* to = out + (problem * job.call.noise.dimensions + dimension) * job.call.noise.samples +
            first;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float row[kTile] = {x[0][i], x[1][i], x[2][i], x[3][i]};
      store_some(to + i * job.call.noise.samples, packed<T>(row));
    }
  } else {
    if constexpr (kRows == kTile) {
      if (job.staged) {  // its result lies in one piece, which it writes by whole lines
        __shared__ Pack<T, kRows> staged[kTile * kThreads];
        const uint32_t width = job.of_slow.divisor;
        const uint32_t own =
            threadIdx.x + job.of_slow.quotient(threadIdx.x) * (kTile - 1) * width;
#pragma unroll
        for (int i = 0; i < kTile; ++i) staged[own + i * width] = packed<T>(x[i]);
        __syncthreads();
        auto* to =
            reinterpret_cast<Pack<T, kRows>*>(out) + kTile * static_cast<int64_t>(before);
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
    T* to = out + (problem * job.call.noise.samples + first) * job.call.noise.dimensions +
            dimension;
#pragma unroll
    for (int i = 0; i < kTile; ++i) {
      if (first + i < job.call.noise.samples)
        store_some(to + i * job.call.noise.dimensions, packed<T>(x[i]));
    }
  }
}

}  // namespace cem_tetris::normal
