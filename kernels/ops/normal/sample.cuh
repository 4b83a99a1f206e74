// out = mean + std * z: the general kernel, for results of any size, layout and type. small.cuh
// has a kernel for small results, which computes the same numbers.
//
// Roofline: the kernel writes 4 bytes for each float32, and reads a negligible amount. So the
// write bandwidth limits its speed: an H200 fills 4 GB in 877 us. By the disassembly, a normal
// number takes 17.8 instructions, 3.75 of them 32 x 32 -> 64 bit products. Their issue slots
// take 542 us, but without its stores the kernel takes 840 to 880 us. So computation and memory
// both limit the speed.
//
// Grid: a block computes a rectangle of tiles; a tile is four samples of four dimensions
// (call.h). The fast side of the result is the one whose numbers are neighbours in memory:
// samples in the layout (..., d, N) (kDimFirst), dimensions in (..., N, d). Neighbouring
// threads have neighbouring tiles of the fast side, so a warp stores complete cache lines. A
// thread computes `steps` tiles, one after the other along the slow side. A table of `entries`
// entries in shared memory holds what the tiles of the slow side need, for all threads:
//
//                    fast side: `width` tiles, one for each thread of a row
//   slow side:       | thread 0     | thread 1         | ... | thread width - 1 |   step 0
//   `entries` tiles  | thread width | thread width + 1 | ...                    |   step 0
//                    | thread 0     | thread 1         | ...                    |   step 1, ...
#pragma once

#include "call.h"
#include "gpu.cuh"

namespace cem_tetris::normal {

constexpr int kThreads = 256;
constexpr int kMaxSteps = 16;
constexpr int kMaxEntries = 256;  // entries of the table in shared memory
constexpr int64_t kGroup =
    128;  // blocks along the fast side that run before the next row of blocks

// How many blocks a multiprocessor holds. With fewer blocks a thread has more registers.
template <typename T, bool kPlain, bool kDimFirst>
constexpr int kResident = sizeof(T) == sizeof(double) ? 2
                          : kPlain && !kDimFirst      ? 4
                                                      : 3;

// Loads the elements `first` to `first` + 3 of a vector of `count` elements into `to`, and
// converts them to Real. The vector has any of the four floating-point types. Instead of an
// element beyond the end, the last element is loaded again.
//
// The function issues all four loads before it converts the first value, so that they run at
// the same time. A load takes microseconds while the memory is busy with a stream of stores.
template <typename Real>
CEM_TETRIS_DEVICE_FUNCTION void load_four(
    Vector vector, int64_t first, int64_t count, Real (&to)[kTile]) {
  auto load = [&](auto zero) {
    using Stored = decltype(zero);  // the type of the vector's elements
    Stored x[kTile];
    CEM_TETRIS_UNROLL
    for (int j = 0; j < kTile; ++j) {
      x[j] = static_cast<const Stored*>(vector.data)[min(first + j, count - 1)];
    }
    CEM_TETRIS_UNROLL
    for (int j = 0; j < kTile; ++j) to[j] = Real(x[j]);
  };
  switch (vector.type) {
    case ScalarType::Float: return load(float{});
    case ScalarType::Double: return load(double{});
    case ScalarType::Half: return load(Half{});
    default: return load(BFloat16{});
  }
}

// The four dimensions of a tile: the part of the random words that depends only on the
// dimension, and the parameters. A plain call has no bounds.
template <typename Real, bool kPlain>
struct alignas(16) Column {
  DimensionPart noise[kTile];
  Real mean[kTile];
  Real std[kTile];
  Real low[kPlain ? 1 : kTile];
  Real high[kPlain ? 1 : kTile];

  // Loads the bounds of the dimensions `first` to `first` + 3.
  CEM_TETRIS_DEVICE_FUNCTION void load_bounds(const Call& call, int64_t first) {
    const Real* lows = static_cast<const Real*>(call.low.data);
    const Real* highs = static_cast<const Real*>(call.high.data);
    CEM_TETRIS_UNROLL
    for (int j = 0; j < kTile; ++j) {
      int64_t i = min(first + j, call.noise.dimensions - 1);
      low[j] = lows ? lows[i] : -Real(INFINITY);
      high[j] = highs ? highs[i] : Real(INFINITY);
    }
  }
};

// Returns what the samples of the four dimensions `first` to `first` + 3 of a problem have in
// common: mean, standard deviation and bounds, and the part of the random words that depends on
// the dimension but not on the sample. A bound that does not exist is infinite. A plain call
// (kPlain) has no bounds.
//
// If all dimensions share their noise, they use the random words of dimension 0, which belong
// to column.noise[0]. Dimensions beyond the last one repeat its parameters.
template <typename Real, bool kPlain>
CEM_TETRIS_DEVICE_FUNCTION Column<Real, kPlain> load_column(
    Key key, const Call& call, int64_t first) {
  const Noise& noise = call.noise;
  Column<Real, kPlain> column;
  load_four(call.mean, first, noise.dimensions, column.mean);
  load_four(call.std, first, noise.dimensions, column.std);
  if (!kPlain) column.load_bounds(call, first);
  uint64_t noise_dimension = !kPlain && noise.shared ? 0 : first;
  CEM_TETRIS_UNROLL
  for (int j = 0; j < kTile; ++j) {
    column.noise[j] = dimension_part(key, noise_dimension + j, noise.generation);
  }
  return column;
}

// Advances the pointer of a vector from the numbers of problem 0 to those of another problem.
CEM_TETRIS_DEVICE_FUNCTION void move_to(int64_t problem, Vector& vector) {
  int bytes = vector.type == ScalarType::Double ? 8 : vector.type == ScalarType::Float ? 4 : 2;
  vector.data = static_cast<const char*>(vector.data) + problem * vector.stride * bytes;
}

// Returns a grid of `blocks` blocks along x for every problem. The problems lie along y; if
// there are too many for y, they also use z.
inline dim3 grid_of(int64_t blocks, int64_t problems) {
  constexpr int64_t kMost = 65535;  // the largest grid along y and z
  STD_TORCH_CHECK(
      blocks < int64_t{1} << 31, "sample_normal: expected less than 2^31 blocks, got ", blocks);
  STD_TORCH_CHECK(problems <= kMost * kMost,
      "sample_normal: expected less than 2^32 problems, got ", problems);
  int64_t layers = (problems + kMost - 1) / kMost;
  int64_t layer_problems = (problems + layers - 1) / layers;
  return dim3(unsigned(blocks), unsigned(layer_problems), unsigned(layers));
}

// Computes a tile of four dimensions by four samples, x[dimension][sample] = mean + std * z,
// clamped to the bounds. One thread computes a tile.
//
// Two consecutive samples are a pair with one radius. The standard normal z of the first sample
// is radius * cosine, and z of the second one is radius * sine. In an antithetic pair, z of the
// second sample is minus z of the first one.
//
// If the dimensions share their noise, all of them use the pairs of dimension 0. A plain call
// (kPlain) has no bounds, and its noise is neither shared nor antithetic.
template <typename Real, bool kPlain>
CEM_TETRIS_DEVICE_FUNCTION void sample_tile(const LateKeys& keys, const Noise& noise,
    const Column<Real, kPlain>& column, const Samples<Real>& samples, Real (&x)[kTile][kTile]) {
  // Both comparisons with a NaN are false, so it is not changed.
  auto clamp_to = [](Real value, Real low, Real high) {
    if (value < low) return low;
    return value > high ? high : value;
  };
  Polar<Real> pairs[kTile / 2];
  CEM_TETRIS_UNROLL
  for (int j = 0; j < kTile; ++j) {
    // Otherwise the pairs of dimension 0 are kept.
    if (kPlain || !noise.shared || j == 0) set_pairs(keys, column.noise[j], samples, pairs);
    CEM_TETRIS_UNROLL
    for (int pair = 0; pair < 2; ++pair) {
      Polar<Real> z = pairs[pair];
      Real scale = column.std[j] * z.radius;
      Real& first = x[j][2 * pair];
      Real& second = x[j][2 * pair + 1];
      first = fma(scale, z.cosine, column.mean[j]);
      second = !kPlain && noise.antithetic ? fma(-scale, z.cosine, column.mean[j])
                                           : fma(scale, z.sine, column.mean[j]);
      if (!kPlain) {
        first = clamp_to(first, column.low[j], column.high[j]);
        second = clamp_to(second, column.low[j], column.high[j]);
      }
    }
  }
}

// Stores a pack of four numbers as vectors of 8 or 16 bytes, by streaming stores. Their cache
// lines leave the cache first, so they are written to memory nearly in the order of their
// addresses. Floats are stored by inline assembly, because ptxas splits some vectors that are
// built from single numbers.
CEM_TETRIS_DEVICE_FUNCTION void store_words(float* to, const Pack<float, 4>& x) {
  asm volatile("st.global.cs.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x.value[0]),
      "f"(x.value[1]), "f"(x.value[2]), "f"(x.value[3])
      : "memory");
}
template <typename T>
CEM_TETRIS_DEVICE_FUNCTION void store_words(T* to, const Pack<T, 4>& x) {
  using Words = std::conditional_t<sizeof x == 8, uint2, uint4>;
  CEM_TETRIS_UNROLL
  for (int i = 0; i < int(sizeof x / sizeof(Words)); ++i) {
    __stcs(reinterpret_cast<Words*>(to) + i, reinterpret_cast<const Words*>(&x)[i]);
  }
}

// Returns the numbers x as a pack, converted to the result's type T.
template <typename T, int kCount, typename Real>
CEM_TETRIS_DEVICE_FUNCTION Pack<T, kCount> packed(const Real (&x)[kCount]) {
  Pack<T, kCount> pack;
  CEM_TETRIS_UNROLL
  for (int i = 0; i < kCount; ++i) pack.value[i] = T(x[i]);
  return pack;
}

// Stores four neighbouring numbers of a row of the result at `to`, converted to its type T.
// `count` is how many numbers there are from `to` to the end of the row. Numbers beyond the end
// are not stored. If is_aligned is true, the length of a row is a multiple of four. Then all
// four numbers are within the row, and are stored at once.
template <typename T, typename Real>
CEM_TETRIS_DEVICE_FUNCTION void store(
    T* to, const Real (&x)[kTile], int64_t count, bool is_aligned) {
  const auto pack = packed<T>(x);
  if (is_aligned) {
    store_words(to, pack);
  } else {
    CEM_TETRIS_UNROLL
    for (int i = 0; i < kTile; ++i) {
      if (i < count) to[i] = pack.value[i];
    }
  }
}

// Stores a tile of four dimensions by four samples, x[dimension][sample], at `to`, as four rows
// of four numbers each. A row of the result has row_size numbers: the samples of one dimension
// if kDimFirst, and otherwise the dimensions of one sample. The tile begins with row `row`, and
// rows from `rows` on do not exist. In a plain call (kPlain) all rows exist. `count` and
// is_aligned are arguments of store().
template <bool kPlain, bool kDimFirst, typename T, typename Real>
CEM_TETRIS_DEVICE_FUNCTION void store_tile(T* to, const Real (&x)[kTile][kTile],
    int64_t row_size, int row, int64_t rows, int64_t count, bool is_aligned) {
  CEM_TETRIS_UNROLL
  for (int r = 0; r < kTile; ++r) {
    auto number = [&](int i) { return kDimFirst ? x[r][i] : x[i][r]; };
    const Real numbers[kTile] = {number(0), number(1), number(2), number(3)};
    if (kPlain || row + r < rows) store(to, numbers, count, is_aligned);
    to += row_size;
  }
}

// How the result is cut into the rectangles of the blocks. A rectangle is 2^log_width tiles
// wide and kThreads / 2^log_width * steps tiles high.
struct Shape {
  int log_width, steps;
  uint32_t across, down;  // how many blocks lie along the fast and the slow side
  uint32_t group;         // the smaller one of kGroup and `across`
};

// The position of a block among those of a problem: its column along the fast side of the
// result, and its row along the slow side.
struct Position {
  uint32_t across, down;
};

// Returns the position of this block. In the layout (..., d, N) (kDimFirst) the blocks are
// numbered row by row. In the layout (..., N, d) the rows may be long, and blocks that run at
// the same time should write only few of them. Therefore the grid is cut into groups of
// shape.group columns, one after the other, and the blocks of a group are numbered row by row.
template <bool kDimFirst>
CEM_TETRIS_DEVICE_FUNCTION Position locate_block(const Shape& shape) {
  if constexpr (kDimFirst) return {blockIdx.x % shape.across, blockIdx.x / shape.across};
  uint32_t group_blocks = shape.group * shape.down;
  uint32_t within = blockIdx.x % group_blocks;  // the number of the block within its group
  uint32_t first_column = blockIdx.x / group_blocks * shape.group;
  uint32_t columns = min(shape.group, shape.across - first_column);  // the last group has fewer
  return {first_column + within % columns, within / columns};
}

// Kernel: draws mean + std * z for every problem (batch entry). The problems are numbered along
// y and z of the grid. If kPlain, the result consists of complete tiles of independent noise
// without bounds.
//
// If kDimFirst, neighbouring threads have neighbouring blocks of four samples, and the table in
// shared memory holds the parameters of dimensions. Otherwise they have neighbouring
// dimensions, and the table holds the noise of blocks of samples.
template <typename T, bool kPlain, bool kDimFirst>
__global__ __launch_bounds__(kThreads, kResident<T, kPlain, kDimFirst>) void sample_kernel(
    Call call, Shape shape, T* out) {
  using Real = compute_t<T>;
  using Dimensions = Column<Real, kPlain>;
  __shared__ alignas(16) std::conditional_t<kDimFirst, Dimensions, Samples<Real>>
      table[kMaxEntries];
  __shared__ LateKeys shared_keys;
  int64_t problem = int64_t(blockIdx.z) * gridDim.y + blockIdx.y;
  Noise& noise = call.noise;
  if (problem >= noise.problems) return;
  noise.load_seed(problem);
  move_to(problem, call.mean);
  move_to(problem, call.std);
  move_to(problem, call.low);
  move_to(problem, call.high);
  out += problem * noise.dimensions * noise.samples;
  Key key = make_key(noise.seed);

  int width = 1 << shape.log_width;
  int height = kThreads >> shape.log_width;
  int entries = height * shape.steps;
  const Position block = locate_block<kDimFirst>(shape);
  // The thread's tile along the fast side, and the block's first tile along the slow side.
  int64_t fast = int64_t(block.across) * width + (threadIdx.x & (width - 1));
  int64_t slow = int64_t(block.down) * entries;
  int64_t first_dimension = (kDimFirst ? slow : fast) * kTile;
  int64_t first_block = kDimFirst ? fast : slow;  // the first block of samples

  std::conditional_t<kDimFirst, Samples<Real>, Dimensions> own;
  if constexpr (kDimFirst) {
    for (int i = threadIdx.x; i < entries && first_dimension + i * kTile < noise.dimensions;
        i += kThreads) {
      table[i] = load_column<Real, kPlain>(key, call, first_dimension + i * kTile);
    }
  } else {
    // Threads beyond the last dimension load the last tile, and do not use it.
    int64_t last = (noise.dimensions - 1) / kTile * kTile;
    own = load_column<Real, kPlain>(key, call, min(first_dimension, last));
    for (int i = threadIdx.x; i < entries; i += kThreads) {
      table[i] = samples_of<Real>(
          key, noise.generation, noise.shared ? 0 : first_dimension, first_block, i);
    }
  }
  // The keys go through shared memory, because ptxas keeps loaded values in registers. Without
  // this, it would compute the keys again in each iteration of the loop below.
  if (threadIdx.x < kLateKeys) {
    shared_keys.word[threadIdx.x] = late_key(key, threadIdx.x);
  }
  __syncthreads();
  int64_t row_size = kDimFirst ? noise.samples : noise.dimensions;
  int64_t count = row_size - fast * kTile;  // numbers of a row from the thread's tile on
  if (count <= 0) return;

  LateKeys keys = shared_keys;
  if constexpr (kDimFirst) {
    own = samples_of<Real>(
        key, noise.generation, noise.shared ? 0 : first_dimension, first_block);
  }
  bool is_aligned = kPlain || row_size % kTile == 0;
  int entry = threadIdx.x >> shape.log_width;
  T* to = out + (slow + entry) * kTile * row_size + fast * kTile;
  int64_t rows = (kDimFirst ? noise.dimensions : noise.samples) - slow * kTile;
  for (; entry < entries && entry * kTile < rows; entry += height) {
    Real x[kTile][kTile];
    if constexpr (kDimFirst) {
      sample_tile<Real, kPlain>(keys, noise, table[entry], own, x);
    } else {
      sample_tile<Real, kPlain>(keys, noise, own, table[entry], x);
    }
    store_tile<kPlain, kDimFirst>(to, x, row_size, entry * kTile, rows, count, is_aligned);
    to += height * kTile * row_size;
  }
}

}  // namespace cem_tetris::normal
