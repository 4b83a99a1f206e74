// The gradients: sum of grad over the samples for mean, sum of grad * z for std, with z drawn again.
//
// Roofline: the gradient is read once; the noise costs what it costs forward. No atomics: a block sums a
// chunk of samples in a fixed order, then one thread a dimension sums the chunks. The result depends on the
// shape alone.
#pragma once

#include "sample.cuh"

namespace cem_tetris::normal {

constexpr int kChunk = 1024;  // samples a block sums

// z[dimension][sample] of a tile.
template <typename Real> __device__ __forceinline__ void noise_tile(const LateKeys& keys, const Noise& noise,
    const Dimensions& dimensions, const Samples<Real>& samples, Real (&z)[kTile][kTile]) {
  Pairs<Real> pairs;
  set_tile(keys, noise.shared, dimensions, samples, pairs);
#pragma unroll
  for (int j = 0; j < kTile; ++j) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Polar<Real> pair = pairs[j][half];
      z[j][2 * half] = pair.radius * pair.cosine;
      z[j][2 * half + 1] = noise.antithetic ? -z[j][2 * half] : pair.radius * pair.sine;
    }
  }
}

// A thread's sums for the four dimensions of its tile over the tiles of samples first_tile, + step, ... <
// last_tile.
template <typename T, typename Real> __device__ __forceinline__ void sum_tiles(const Noise& noise,
    const T* grad, int64_t first, int64_t tile, int64_t step, int64_t last, Real (&sum)[2][kTile]) {
  __shared__ LateKeys shared_keys;
  const Key key = make_key(noise.seed);
  put_keys(key, shared_keys);
  __syncthreads();
  const LateKeys keys = shared_keys;
  const auto dimensions = dimensions_of(key, noise.shared ? 0 : first, noise.generation);
  const int64_t row = noise.dim_first ? noise.samples : 1, column = noise.dim_first ? 1 : noise.dimensions;
  for (; tile < last; tile += step) {
    const auto samples = samples_of<Real>(key, noise, first, tile);
    Real z[kTile][kTile];
    noise_tile<Real>(keys, noise, dimensions, samples, z);
#pragma unroll
    for (int j = 0; j < kTile; ++j) {
#pragma unroll
      for (int s = 0; s < kTile; ++s) {
        if (first + j < noise.dimensions && tile * kTile + s < noise.samples) {
          const Real g = static_cast<Real>(grad[(first + j) * row + (tile * kTile + s) * column]);
          sum[0][j] += g;
          sum[1][j] += g * z[j][s];
        }
      }
    }
  }
}

// (d, N): a block for four dimensions and a chunk; its threads along the samples.
template <typename T, typename Real> __global__ __launch_bounds__(kThreads) void backward_rows_kernel(
    Noise noise, const T* grad, int64_t chunks, Real* partial) {
  if (!enter_problem(noise, grad)) return;
  partial += problem_of_block() * 2 * chunks * noise.dimensions;
  const int64_t chunk = blockIdx.x % chunks, first = blockIdx.x / chunks * kTile;
  const int64_t tiles = (noise.samples + kTile - 1) / kTile, begin = chunk * (kChunk / kTile);
  Real sum[2][kTile] = {};
  sum_tiles<T, Real>(
      noise, grad, first, begin + threadIdx.x, kThreads, min(begin + kChunk / kTile, tiles), sum);
  __shared__ Real warps[kThreads / 32][2][kTile];
#pragma unroll
  for (int i = 0; i < 2 * kTile; ++i) {
    Real& value = sum[i / kTile][i % kTile];
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xFFFFFFFFu, value, offset);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32][i / kTile][i % kTile] = value;
  }
  __syncthreads();
  const int which = threadIdx.x / kTile, j = threadIdx.x % kTile;
  if (which < 2 && first + j < noise.dimensions) {
    Real total = 0;
    for (int warp = 0; warp < kThreads / 32; ++warp) total += warps[warp][which][j];
    partial[(which * chunks + chunk) * noise.dimensions + first + j] = total;
  }
}

// (N, d): a thread for four dimensions and a chunk; the threads along the dimensions.
template <typename T, typename Real> __global__ __launch_bounds__(kThreads) void backward_columns_kernel(
    Noise noise, const T* grad, int64_t chunks, Real* partial) {
  if (!enter_problem(noise, grad)) return;
  partial += problem_of_block() * 2 * chunks * noise.dimensions;
  const int64_t chunk = blockIdx.x % chunks, first = (blockIdx.x / chunks * kThreads + threadIdx.x) * kTile;
  const int64_t tiles = (noise.samples + kTile - 1) / kTile, begin = chunk * (kChunk / kTile);
  Real sum[2][kTile] = {};
  sum_tiles<T, Real>(noise, grad, first, begin, 1, min(begin + kChunk / kTile, tiles), sum);
  for (int i = 0; i < 2 * kTile; ++i) {
    const int64_t dimension = first + i % kTile;
    if (dimension < noise.dimensions) {
      partial[(i / kTile * chunks + chunk) * noise.dimensions + dimension] = sum[i / kTile][i % kTile];
    }
  }
}

// One thread a dimension of a problem sums its chunks.
template <typename Real> __global__ void sum_chunks_kernel(const Real* partial, int64_t chunks,
    int64_t dimensions, int64_t problems, Real* mean_grad, Real* std_grad) {
  const int64_t index = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (index >= problems * dimensions) return;
  const int64_t i = index % dimensions;
  partial += index / dimensions * 2 * chunks * dimensions;
  double sum[2] = {};
  for (int which = 0; which < 2; ++which) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
      sum[which] += partial[(which * chunks + chunk) * dimensions + i];
  }
  mean_grad[index] = static_cast<Real>(sum[0]);
  std_grad[index] = static_cast<Real>(sum[1]);
}

}  // namespace cem_tetris::normal
