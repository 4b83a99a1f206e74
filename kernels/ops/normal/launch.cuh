// Which kernel a call on CUDA is, and its grid.
#pragma once

#include "small.cuh"

namespace cem_tetris::normal {
namespace {

// Returns the grid's rectangles for tiles along the fast and the slow side: a thread takes as
// many steps as leave sixteen blocks for each multiprocessor.
Shape make_shape(int64_t fast, int64_t slow, int multiprocessors) {
  int log_width = 0;
  while ((1 << log_width) < kThreads && (int64_t{1} << log_width) < fast) ++log_width;
  int height = kThreads >> log_width;
  int64_t across = divide_up(fast, int64_t{1} << log_width);
  int64_t wanted = 16 * multiprocessors;
  auto down = [&](int steps) { return divide_up(slow, steps * height); };
  int steps = 1;
  while (steps < kMaxSteps && 2 * steps * height <= kMaxEntries &&
         across * down(2 * steps) >= wanted) {
    steps *= 2;
  }
  return {log_width, steps, uint32_t(across), uint32_t(down(steps)),
      uint32_t(std::min(kGroup, across))};
}

// The largest call of a small kernel, in blocks for each multiprocessor: with more, the general
// kernel is as fast.
constexpr int64_t kSmallLoad = 96;
constexpr int64_t kLine = 128;  // bytes of a line of the cache

// Returns how many dimensions a thread of a small kernel has, by the load with one each (as
// measured).
int rows_of(int64_t load) {
  if (load < 4) return 1;
  return load < 15 ? 2 : 4;
}

// Launches the kernel for small results, and returns whether the call is for it.
template <typename T, bool kDimFirst>
bool launch_small(const Gpu& gpu, const Call& call, T* out) {
  const Noise& noise = call.noise;
  int64_t dimensions = noise.dimensions;
  int64_t device_threads = gpu.multiprocessors * kThreads;
  int64_t limit = kSmallLoad * device_threads;
  int64_t blocks = divide_up(noise.samples, kTile);
  bool whole_blocks = noise.samples % kTile == 0;
  if (kDimFirst && !whole_blocks) return false;
  if (dimensions > limit || blocks > limit / dimensions) return false;
  // Many problems are for it, too, where a thread's samples are not neighbours in memory.
  int64_t most = kDimFirst ? limit : std::max(limit, int64_t{1} << 30);
  if (noise.problems > most / (blocks * dimensions)) return false;

  int rows = rows_of(noise.problems * blocks * dimensions / device_threads);
  while (kDimFirst ? rows > dimensions : dimensions % rows != 0) rows /= 2;
  int64_t across = divide_up(dimensions, rows);
  int64_t threads = noise.problems * blocks * across;
  // Where rows are no whole lines of the cache, a warp would write parts of many.
  bool whole_lines = dimensions * int64_t{sizeof(T)} % kLine == 0;
  bool staged =
      !kDimFirst && rows == kTile && across <= kThreads && whole_blocks && !whole_lines;
  int64_t block_threads = staged ? kThreads / across * across : kThreads;
  Small job{make_divider(uint32_t(blocks * across)),
      make_divider(uint32_t(kDimFirst ? blocks : across)), uint32_t(threads), staged, call};
  auto* kernel = small_kernel<T, kTile, kDimFirst>;
  if (rows == 1) kernel = small_kernel<T, 1, kDimFirst>;
  if (rows == 2) kernel = small_kernel<T, 2, kDimFirst>;
  gpu.launch_early(
      kernel, grid_of(divide_up(threads, block_threads), 1), block_threads, 0, job, out);
  return true;
}

template <typename T>
void launch(const Gpu& gpu, Call call, T* out) {
  Noise& noise = call.noise;
  if (noise.samples == 1 || noise.dimensions == 1) {  // both layouts are the same in memory
    noise.dim_first = noise.dimensions == 1;
  }
  if constexpr (std::is_same_v<compute_t<T>, float>) {
    auto* small = noise.dim_first ? launch_small<T, true> : launch_small<T, false>;
    bool may_be_small = !noise.antithetic && call.mean.type == ScalarType::Float;
    if (may_be_small && small(gpu, call, out)) return;
  }
  int64_t blocks = divide_up(noise.samples, kTile);
  int64_t tiles = divide_up(noise.dimensions, kTile);
  Shape shape = make_shape(
      noise.dim_first ? blocks : tiles, noise.dim_first ? tiles : blocks, gpu.multiprocessors);
  bool bounded = call.low.data || call.high.data;
  bool whole_tiles = noise.samples % kTile == 0 && noise.dimensions % kTile == 0;
  bool plain = !noise.shared && !noise.antithetic && !bounded && whole_tiles;
  auto* plain_kernel =
      noise.dim_first ? sample_kernel<T, true, true> : sample_kernel<T, true, false>;
  auto* general_kernel =
      noise.dim_first ? sample_kernel<T, false, true> : sample_kernel<T, false, false>;
  dim3 grid = grid_of(int64_t{shape.across} * shape.down, noise.problems);
  gpu.launch(plain ? plain_kernel : general_kernel, grid, kThreads, 0, call, shape, out);
}

void draw(const Call& call, const Tensor& out) {
  Gpu gpu{Device(out)};
  dispatch(out.scalar_type(),
      [&](auto zero) { launch(gpu, call, mutable_data<decltype(zero)>(out)); });
}

}  // namespace
}  // namespace cem_tetris::normal
