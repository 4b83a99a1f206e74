// Chooses the kernel of a call on CUDA and its grid, and launches it.
#pragma once

#include "small.cuh"

namespace cem_tetris::normal {
namespace {

// Chooses which rectangle of the result each thread block of sample_kernel computes. The result
// is a matrix of tiles: it has slow_tiles rows and fast_tiles columns, and the tiles of a row
// are neighbours in memory. A tile is four samples of four dimensions.
//
// A rectangle is 2^log_width tiles wide, as wide as the block's kThreads threads and the result
// allow. The threads of the block form `height` rows of this width. Every thread computes
// `steps` tiles of its column, so a rectangle has steps * height rows. More steps save work,
// because a thread computes only once what its tiles have in common. But `steps` is doubled
// only as long as at least 16 blocks per multiprocessor remain, which keep the device busy.
Shape make_shape(int64_t fast_tiles, int64_t slow_tiles, int multiprocessors) {
  int log_width = 0;
  while ((1 << log_width) < kThreads && (int64_t{1} << log_width) < fast_tiles) ++log_width;
  int height = kThreads >> log_width;
  int64_t blocks_across = divide_up(fast_tiles, int64_t{1} << log_width);
  int64_t least_blocks = 16 * multiprocessors;
  // Returns how many blocks lie below one another if every thread computes `steps` tiles.
  auto blocks_down = [&](int steps) { return divide_up(slow_tiles, steps * height); };
  int steps = 1;
  // A table in shared memory has one entry for each row of the rectangle, at most kMaxEntries.
  while (steps < kMaxSteps && 2 * steps * height <= kMaxEntries &&
         blocks_across * blocks_down(2 * steps) >= least_blocks) {
    steps *= 2;
  }
  // In the layout (..., N, d) the device runs the blocks of `group` columns of rectangles
  // before those of the next columns, see locate_block().
  return {log_width, steps, /*across=*/uint32_t(blocks_across),
      /*down=*/uint32_t(blocks_down(steps)),
      /*group=*/uint32_t(std::min(kGroup, blocks_across))};
}

// The largest call of the kernel for small results, in blocks per multiprocessor. With more
// blocks the general kernel is as fast.
constexpr int64_t kSmallLoad = 96;
constexpr int64_t kLine = 128;  // bytes of a cache line

// Returns whether the kernel for small results draws a call. Its noise is not antithetic, its
// parameters are float32, and it is small. `device_threads` is the number of threads of a full
// device.
//
// A call is small if it has at most `limit` threads, with one dimension per thread. The limit
// is kSmallLoad times the threads of a full device; above it, the general kernel is as fast.
// The comparisons divide instead of multiplying, because products could overflow.
bool is_small(const Call& call, int64_t device_threads) {
  const Noise& noise = call.noise;
  if (noise.antithetic || call.mean.type != ScalarType::Float) return false;
  if (noise.dim_first && noise.samples % kTile != 0) return false;
  int64_t limit = kSmallLoad * device_threads;
  int64_t sample_blocks = divide_up(noise.samples, kTile);
  // The number of threads is problems * sample_blocks * dimensions.
  if (noise.dimensions > limit || sample_blocks > limit / noise.dimensions) return false;
  // In the layout (..., N, d) this kernel is also faster for calls with many small problems, so
  // the limit for all problems together is higher.
  int64_t most = noise.dim_first ? limit : std::max(limit, int64_t{1} << 30);
  return noise.problems <= most / (sample_blocks * noise.dimensions);
}

// Returns how many dimensions a thread of the kernel for small results draws: 1, 2 or 4. `load`
// is the number of threads that the call would have with one dimension per thread, divided by
// the number of threads that the device can run. The limits were measured.
int choose_dims(const Noise& noise, int64_t load) {
  int dims = load < 4 ? 1 : load < 15 ? 2 : 4;
  // In the layout (..., d, N) a thread must not have more dimensions than there are. In the
  // layout (..., N, d) its dimensions must not cross the end of a row.
  while (noise.dim_first ? dims > noise.dimensions : noise.dimensions % dims != 0) dims /= 2;
  return dims;
}

// Launches the kernel for small results. A thread draws `dims` neighbouring dimensions of four
// samples (kTile). `dims` is 1, 2 or 4; it is larger in a larger call. The result has the
// layout (..., d, N) if kDimFirst is true, and otherwise (..., N, d).
//
// If is_staged is true, a thread block collects its numbers in static shared memory before it
// writes them, so that its warps write complete cache lines. This helps if a row of the result
// does not consist of complete cache lines. It is possible in the layout (..., N, d), if a
// thread has four dimensions of four existing samples, and a thread block has room for a row.
template <typename T, bool kDimFirst>
void launch_small(const Gpu& gpu, const Call& call, T* out) {
  const Noise& noise = call.noise;
  int64_t dimensions = noise.dimensions;
  int64_t sample_blocks = divide_up(noise.samples, kTile);
  int64_t threads_if_one_dim = noise.problems * sample_blocks * dimensions;
  int dims = choose_dims(noise, threads_if_one_dim / (gpu.multiprocessors * kThreads));
  // How many threads draw the same four samples, each of them for other dimensions.
  int64_t sample_threads = divide_up(dimensions, dims);
  int64_t threads = noise.problems * sample_blocks * sample_threads;
  bool has_whole_lines = dimensions * int64_t{sizeof(T)} % kLine == 0;
  bool is_staged = !kDimFirst && dims == kTile && sample_threads <= kThreads &&
                   noise.samples % kTile == 0 && !has_whole_lines;
  // If the result is staged, a thread block has as many groups of sample_threads threads as fit
  // into kThreads, so that it draws complete rows.
  int64_t block_threads = is_staged ? kThreads / sample_threads * sample_threads : kThreads;
  // The kernel numbers the threads along the side of the result whose numbers are neighbours in
  // memory: the samples if kDimFirst is true, and otherwise the dimensions.
  int64_t row_threads = kDimFirst ? sample_blocks : sample_threads;
  SmallDraw job{/*by_problem_threads=*/make_divider(uint32_t(sample_blocks * sample_threads)),
      /*by_row_threads=*/make_divider(uint32_t(row_threads)),
      /*threads=*/uint32_t(threads), is_staged, call};
  auto* kernel = small_kernel<T, kTile, kDimFirst>;
  if (dims == 1) kernel = small_kernel<T, 1, kDimFirst>;
  if (dims == 2) kernel = small_kernel<T, 2, kDimFirst>;
  gpu.launch_early(kernel, grid_of(divide_up(threads, block_threads), /*problems=*/1),
      block_threads, /*dynamic_bytes=*/0, job, out);
}

// Returns whether the faster variant of the general kernel draws a call. Its noise is
// independent, there are no bounds, and the numbers of samples and dimensions are multiples of
// kTile = 4.
bool is_plain(const Call& call) {
  const Noise& noise = call.noise;
  bool has_bounds = call.low.data || call.high.data;
  bool has_whole_tiles = noise.samples % kTile == 0 && noise.dimensions % kTile == 0;
  return !noise.shared && !noise.antithetic && !has_bounds && has_whole_tiles;
}

// Launches a draw of mean + std * z. Small results with float32 parameters have their own
// kernel; the general kernel computes all others, with a faster variant for the calls for which
// is_plain() is true. The problems (batch entries) lie along y of the grid.
template <typename T>
void launch(const Gpu& gpu, Call call, T* out) {
  Noise& noise = call.noise;
  // With one sample or one dimension both layouts are the same in memory. The longer side then
  // becomes the fast one, whose numbers are neighbours in memory.
  if (noise.samples == 1 || noise.dimensions == 1) {
    noise.dim_first = noise.dimensions == 1;
  }
  if constexpr (std::is_same_v<compute_t<T>, float>) {
    auto* small = noise.dim_first ? launch_small<T, true> : launch_small<T, false>;
    if (is_small(call, gpu.multiprocessors * kThreads)) return small(gpu, call, out);
  }
  int64_t blocks = divide_up(noise.samples, kTile);
  int64_t tiles = divide_up(noise.dimensions, kTile);
  int64_t fast_tiles = noise.dim_first ? blocks : tiles;
  int64_t slow_tiles = noise.dim_first ? tiles : blocks;
  Shape shape = make_shape(fast_tiles, slow_tiles, gpu.multiprocessors);
  auto* plain_kernel =
      noise.dim_first ? sample_kernel<T, true, true> : sample_kernel<T, true, false>;
  auto* general_kernel =
      noise.dim_first ? sample_kernel<T, false, true> : sample_kernel<T, false, false>;
  gpu.launch(is_plain(call) ? plain_kernel : general_kernel,
      grid_of(int64_t{shape.across} * shape.down, noise.problems), kThreads, /*bytes=*/0, call,
      shape, out);
}

void draw(const Call& call, const Tensor& out) {
  Gpu gpu{Device(out)};
  dispatch(out.scalar_type(),
      [&](auto zero) { launch(gpu, call, mutable_data<decltype(zero)>(out)); });
}

}  // namespace
}  // namespace cem_tetris::normal
