// Which kernel a call on CUDA is, and its grid.
#pragma once

#include "small.cuh"

namespace cem_tetris::normal {
namespace {

// Tiles along the fast and the slow side to a grid: as many steps a thread as leave sixteen
// blocks a multiprocessor.
Shape make_shape(int64_t fast, int64_t slow, int multiprocessors) {
  int log_width = 0;
  while ((1 << log_width) < kThreads && (int64_t{1} << log_width) < fast) ++log_width;
  const int height = kThreads >> log_width;
  const int64_t across = divide_up(fast, int64_t{1} << log_width),
                wanted = 16 * multiprocessors;
  int steps = 1;
  while (steps < kMaxSteps && 2 * steps * height <= kMaxEntries &&
         across * divide_up(slow, 2 * steps * height) >= wanted) {
    steps *= 2;
  }
  return {log_width, steps, static_cast<uint32_t>(across),
      static_cast<uint32_t>(divide_up(slow, steps * height)),
      static_cast<uint32_t>(std::min(kGroup, across))};
}

// A load, in blocks a multiprocessor: with more, the general kernels are as fast.
constexpr int64_t kSmallLoad = 96;
constexpr int64_t kLine = 128;  // bytes of a line of the cache

// How many dimensions a thread of a small kernel has, by the load with one each.
int rows_of(int64_t load) { return load < 4 ? 1 : load < 15 ? 2 : 4; }

// Whether the kernel for small results was launched; all else is left to the general ones.
template <typename T, bool kDimFirst>
bool launch_small(const Gpu& gpu, const Call& call, T* out) {
  const Noise& noise = call.noise;
  const int64_t device = gpu.multiprocessors * kThreads, limit = kSmallLoad * device;
  const int64_t blocks = divide_up(noise.samples, kTile);
  if (kDimFirst && noise.samples % kTile != 0) return false;
  if (noise.dimensions > limit || blocks > limit / noise.dimensions) return false;
  const int64_t most = kDimFirst ? limit : std::max(limit, int64_t{1} << 30);
  if (noise.problems > most / (blocks * noise.dimensions)) return false;
  int rows = rows_of(noise.problems * blocks * noise.dimensions / device);
  while (kDimFirst ? rows > noise.dimensions : noise.dimensions % rows != 0) rows /= 2;
  const int64_t across = divide_up(noise.dimensions, rows),
                threads = noise.problems * blocks * across;
  // Rows that are no whole lines of the cache: a warp would write parts of many.
  const bool staged = !kDimFirst && rows == kTile && across <= kThreads &&
                      noise.samples % kTile == 0 &&
                      noise.dimensions * static_cast<int64_t>(sizeof(T)) % kLine != 0;
  const int64_t block_threads = staged ? kThreads / across * across : kThreads;
  const Small job{make_divider(static_cast<uint32_t>(blocks * across)),
      make_divider(static_cast<uint32_t>(kDimFirst ? blocks : across)),
      static_cast<uint32_t>(threads), staged, call};
  auto* kernel = rows == 1   ? small_kernel<T, 1, kDimFirst>
                 : rows == 2 ? small_kernel<T, 2, kDimFirst>
                             : small_kernel<T, kTile, kDimFirst>;
  gpu.launch_early(
      kernel, grid_of(divide_up(threads, block_threads), 1), block_threads, 0, job, out);
  return true;
}

template <typename T> void launch(const Gpu& gpu, Call call, T* out) {
  Noise& noise = call.noise;
  if (noise.samples == 1 || noise.dimensions == 1)
    noise.dim_first = noise.dimensions == 1;  // the same in memory
  const bool bounded = call.low.data != nullptr || call.high.data != nullptr;
  if constexpr (std::is_same_v<compute_t<T>, float>) {
    auto* small = noise.dim_first ? launch_small<T, true> : launch_small<T, false>;
    if (!noise.antithetic && call.mean.type == ScalarType::Float && small(gpu, call, out))
      return;
  }
  const int64_t blocks_of_samples = divide_up(noise.samples, kTile),
                tiles = divide_up(noise.dimensions, kTile);
  const Shape shape = make_shape(noise.dim_first ? blocks_of_samples : tiles,
      noise.dim_first ? tiles : blocks_of_samples, gpu.multiprocessors);
  const bool plain = !noise.shared && !noise.antithetic && !bounded &&
                     noise.samples % kTile == 0 && noise.dimensions % kTile == 0;
  auto* kernel = noise.dim_first
                     ? (plain ? sample_kernel<T, true, true> : sample_kernel<T, false, true>)
                     : (plain ? sample_kernel<T, true, false> : sample_kernel<T, false, false>);
  gpu.launch(kernel, grid_of(int64_t{shape.across} * shape.down, noise.problems), kThreads, 0,
      call, shape, out);
}

void draw(const Call& call, const Tensor& out) {
  const Gpu gpu{Device(out)};
  dispatch(out.scalar_type(),
      [&](auto zero) { launch(gpu, call, mutable_data<decltype(zero)>(out)); });
}

}  // namespace
}  // namespace cem_tetris::normal
