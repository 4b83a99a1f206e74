// The sampler on the CPU.
//
// It computes kLanes tiles at the same time, so that the compiler vectorises the loops over
// them. The CPU threads share the rows of tiles. A number depends only on its position in the
// result, and not on the number of threads.
#pragma once

#include <vector>

#include "call.h"

namespace cem_tetris::normal {
namespace {

constexpr int kLanes = 32;
constexpr int kCells = kTile * kTile;
constexpr int64_t kLaneDimensions = kTile * kLanes;

// One number for each dimension of a problem (batch entry), such as the means, in the order in
// which the lanes read them. Lane l works on tile l of kLanes. For kLanes tiles of kTile = 4
// dimensions the order is
//
//   | dimension 0 of tiles 0..31 | dimension 1 of tiles 0..31 | dimension 2 | dimension 3 |
//
// Zeros fill up the last tiles. If the vector has no data, there are no numbers.
//
// Every thread has the numbers of one problem at a time. A copy of all problems could need far
// more memory than the samples, because a problem of one dimension is filled up, too.
template <typename Real>
struct ByLane {
  Vector vector;
  int64_t dimensions;
  std::vector<Real> values;

  ByLane(Vector vector, int64_t dimensions) : vector(vector), dimensions(dimensions) {
    // The dimensions, rounded up to 32 tiles.
    int64_t size = divide_up(dimensions, kLaneDimensions) * kLaneDimensions;
    if (vector.data) values.resize(size);
  }

  // Copies the numbers of a problem to `values`, and converts them to Real, the type of
  // computation. A bound that does not exist has no data, and nothing is copied.
  //
  // The copy has the order in which vector registers of kLanes = 32 lanes read it. Lane l works
  // on tile l of 32 tiles, and a tile is kTile = 4 dimensions. Dimension 0 of these 32 tiles
  // comes first, then their dimensions 1, 2 and 3. Then the next 32 tiles follow. The zeros
  // that fill up the last tiles stay.
  void load(int64_t problem) {
    if (!vector.data) return;
    dispatch(vector.type, [&](auto zero) {
      const auto* data =
          static_cast<const decltype(zero)*>(vector.data) + problem * vector.stride;
      for (int64_t i = 0; i < dimensions; ++i) {
        // start() is the position of the tile's first dimension. The others are kLanes apart.
        values[start(i / kTile) + i % kTile * kLanes] = Real(data[i]);
      }
    });
  }

  // Returns the position of a tile's first dimension. The other three follow, kLanes apart.
  static int64_t start(int64_t tile) { return tile / kLanes * kLaneDimensions + tile % kLanes; }

  // Returns a pointer to the number of a tile's first dimension, or null if there are no
  // numbers.
  const Real* of(int64_t tile) const {
    return values.empty() ? nullptr : values.data() + start(tile);
  }
};

// The noise z = radius * direction of kLanes neighbouring tiles. A tile is four dimensions of a
// block of four samples. Two consecutive samples are a pair, and share a radius. The arrays are
// indexed by the dimension within a tile, by the sample (or pair) within a tile, and by lane.
// If all dimensions share their noise, only dimension 0 is set.
template <typename Real>
struct Tiles {
  Real radius[kTile][kTile / 2][kLanes];
  Real direction[kTile][kTile][kLanes];

  // Sets the noise of kLanes tiles, one tile for each lane of the vector registers. A tile is
  // four dimensions (kTile) of a block of four samples; its noise consists of radii and
  // directions. If the dimensions share their noise, only dimension 0 is set.
  //
  // If lanes_span_dimensions is true, lane l has the dimensions of tile `tile` + l and the
  // samples of block `block`; `tile` is a multiple of kLanes. Otherwise lane l has the
  // dimensions of tile `tile` and the samples of block `block` + l; `block` is a multiple of
  // kLanes.
  //
  // Philox makes four random words at a time. In float32, they are enough for the four samples
  // of a dimension. In float64, they are enough for only two samples, so there are two draws.
  void fill(const Noise& noise, int64_t tile, int64_t block, bool lanes_span_dimensions) {
    Key key = make_key(noise.seed);
    LateKeys keys = late_keys(key);
    int64_t first_dimension = noise.shared ? 0 : tile * kTile;
    // How much the dimension and the block increase from one lane to the next.
    uint32_t dimension_step = lanes_span_dimensions && !noise.shared ? kTile : 0;
    uint32_t block_step = lanes_span_dimensions ? 0 : 1;
    uint64_t generation = noise.generation;
    // The bits from 32 on of generation, dimension and block. All lanes have the same ones: in
    // lane 0, the number that differs is a multiple of kLanes, so only its lower bits differ.
    uint32_t upper_bits = upper(generation, first_dimension, block);
    for (int j = 0; j < (noise.shared ? 1 : kTile); ++j) {
      for (int draw = 0; draw < kDraws<Real>; ++draw) {
        uint32_t word3 = upper_bits | mark_of<Real>(draw);
        uint32_t random[4][kLanes];  // random[i][l] is word i of lane l
        for (int l = 0; l < kLanes; ++l) {
          uint32_t dimension = low_word(first_dimension) + j + l * dimension_step;
          uint32_t lane_block = low_word(block) + l * block_step;
          Words lane_words = philox_words(keys, dimension_part(key, dimension, generation),
              block_part(key, lane_block, generation, word3));
          for (int i = 0; i < 4; ++i) random[i][l] = lane_words.word[i];
        }
        if constexpr (kDraws<Real> == 1) {
          set_pair(j, /*pair=*/0, random[0], random[1]);
          set_pair(j, /*pair=*/1, random[2], random[3]);
        } else {
          set_pair(j, /*pair=*/draw, random[0], random[1], random[2], random[3]);
        }
      }
      if (noise.antithetic) mirror(j);
    }
  }

 private:
  // Sets a pair of samples of dimension j, 2 pair and 2 pair + 1, from the random words of each
  // lane: two for float, four for double.
  template <typename... Words>
  void set_pair(int j, int pair, const Words*... words) {
    polar_lanes(radius[j][pair], direction[j][2 * pair], direction[j][2 * pair + 1], words...);
  }

  template <typename... Words>
  static void polar_lanes(Real* __restrict__ to_radius, Real* __restrict__ to_cosine,
      Real* __restrict__ to_sine, const Words* __restrict__... words) {
    for (int l = 0; l < kLanes; ++l) {
      Polar<Real> p = polar(words[l]...);
      to_radius[l] = p.radius;
      to_cosine[l] = p.cosine;
      to_sine[l] = p.sine;
    }
  }

  // Sets the second sample of each pair to the negative of the first one.
  void mirror(int j) {
    for (int s = 0; s < kTile; s += 2) {
      for (int l = 0; l < kLanes; ++l) direction[j][s + 1][l] = -direction[j][s][l];
    }
  }
};

// Computes and stores the samples of kLanes neighbouring tiles of one problem.
template <typename T, typename Real>
struct Chunk {
  Noise noise;  // with the seed of the problem
  // The parameters from the first tile on, in the order of ByLane; a bound that does not exist
  // is null.
  const Real *mean = nullptr, *std = nullptr, *low = nullptr, *high = nullptr;
  T* out = nullptr;  // the problem's result
  Tiles<Real> z;
  Real x[kCells][kLanes];  // the samples, by dimension * kTile + sample, then by lane

  // Computes x = mean + std * z, clamped to the bounds, for kLanes tiles. A tile is four
  // dimensions j and four samples s (kTile = 4), and belongs to one lane l of the vector
  // registers: its numbers are x[j * kTile + s][l]. The standard normal z is radius *
  // direction, and samples 0 and 1 share a radius, as do samples 2 and 3.
  //
  // If kLanesSpanDimensions is true, the lanes have different dimensions, so every lane has its
  // own mean, standard deviation and bounds. Otherwise all lanes have the same dimensions, and
  // use the values of lane 0.
  template <bool kLanesSpanDimensions>
  void compute() {
    for (int j = 0; j < kTile; ++j) {
      int noise_dimension = noise.shared ? 0 : j;  // all dimensions may share their noise
      // Returns the parameter of dimension j that belongs to lane l.
      auto lane_value = [j](const Real* values, int l) {
        return values[j * kLanes + (kLanesSpanDimensions ? l : 0)];
      };
      for (int s = 0; s < kTile; ++s) {
        Real* cell = x[j * kTile + s];
        const Real* radius = z.radius[noise_dimension][s / 2];
        const Real* direction = z.direction[noise_dimension][s];
        for (int l = 0; l < kLanes; ++l) {
          cell[l] = std::fma(lane_value(std, l) * radius[l], direction[l], lane_value(mean, l));
        }
        // A NaN compares false, and is not changed.
        if (low) {
          for (int l = 0; l < kLanes; ++l) {
            cell[l] = cell[l] < lane_value(low, l) ? lane_value(low, l) : cell[l];
          }
        }
        if (high) {
          for (int l = 0; l < kLanes; ++l) {
            cell[l] = cell[l] > lane_value(high, l) ? lane_value(high, l) : cell[l];
          }
        }
      }
    }
  }

  // Stores the tiles of the first `lanes` lanes into a problem's result. A tile is four
  // dimensions and four samples (kTile = 4). The tiles are neighbours in memory: together they
  // form four rows of lanes * kTile consecutive numbers. A row is
  //
  //   | 4 numbers of lane 0's tile | 4 numbers of lane 1's tile | ...
  //
  // If lanes_span_dimensions is true, the result has the layout (N, d). A row has the
  // dimensions of one sample, and lane l has the dimensions of tile `tile` + l. Otherwise the
  // result has the layout (d, N). A row has the samples of one dimension, and lane l has the
  // samples of block `block` + l. The first dimension of a tile is tile * kTile, and the first
  // sample of a block is block * kTile.
  //
  // x is indexed by dimension * kTile + sample, both within a tile, then by lane. Numbers
  // beyond the end of a row or after the last row of the result are not stored.
  void store(int64_t tile, int64_t block, bool lanes_span_dimensions, int lanes) {
    int64_t row_size = lanes_span_dimensions ? noise.dimensions : noise.samples;
    int64_t rows = lanes_span_dimensions ? noise.samples : noise.dimensions;
    int64_t first_column = (lanes_span_dimensions ? tile : block) * kTile;
    int64_t first_row = (lanes_span_dimensions ? block : tile) * kTile;
    // The distances in x between neighbouring columns and between neighbouring rows of a tile.
    int column_step = lanes_span_dimensions ? kTile : 1;
    int row_step = lanes_span_dimensions ? 1 : kTile;
    // Returns the number in row r and column c of the tile of lane l.
    auto number = [&](int r, int c, int64_t l) {
      return T(x[r * row_step + c * column_step][l]);
    };
    // The length of the tiles' part of a row. The row may end within the last tile.
    int64_t count = std::min<int64_t>(lanes * kTile, row_size - first_column);
    int64_t full_tiles = count / kTile;
    for (int r = 0; r < std::min<int64_t>(kTile, rows - first_row); ++r) {
      T* to = out + (first_row + r) * row_size + first_column;
      for (int64_t l = 0; l < full_tiles; ++l) {
        for (int c = 0; c < kTile; ++c) to[l * kTile + c] = number(r, c, l);
      }
      for (int64_t i = full_tiles * kTile; i < count; ++i) {
        to[i] = number(r, i % kTile, i / kTile);
      }
    }
  }

  // Stores the tiles of the first `lanes` lanes into a problem's result, one number at a time,
  // because the tiles are not neighbours in memory. A tile is four dimensions j and four
  // samples s (kTile = 4). Its number for j and s is x[j * kTile + s][l], if it belongs to lane
  // l.
  //
  // If lanes_span_dimensions is true, lane l has the dimensions of tile `tile` + l and the
  // samples of block `block`. Otherwise it has the dimensions of `tile` and the samples of
  // block `block` + l. The result has the layout (d, N) if noise.dim_first is true, and
  // otherwise (N, d). Numbers of a tile that are beyond the end of the result are not stored.
  void scatter(int64_t tile, int64_t block, bool lanes_span_dimensions, int lanes) {
    int64_t sample_stride = noise.dim_first ? 1 : noise.dimensions;
    int64_t dimension_stride = noise.dim_first ? noise.samples : 1;
    for (int l = 0; l < lanes; ++l) {
      int64_t dimension = (lanes_span_dimensions ? tile + l : tile) * kTile;
      int64_t sample = (lanes_span_dimensions ? block : block + l) * kTile;
      for (int s = 0; s < std::min<int64_t>(kTile, noise.samples - sample); ++s) {
        for (int j = 0; j < std::min<int64_t>(kTile, noise.dimensions - dimension); ++j) {
          out[(dimension + j) * dimension_stride + (sample + s) * sample_stride] =
              T(x[j * kTile + s][l]);
        }
      }
    }
  }
};

// Draws mean + std * z for all samples, dimensions and problems (batch entries) of a call on
// the CPU. A tile is 4 neighbouring dimensions (kTile) of 4 neighbouring samples. The CPU
// threads share chunks of up to kLanes = 32 tiles. A chunk is computed with vector registers
// that have one lane for each of its tiles.
//
// The lanes either have different dimensions of the same samples (lanes_span_dimensions is
// true), or different samples of the same dimensions. Usually the lanes span the fast side of
// the result, the one whose numbers are neighbours in memory: the dimensions in the layout
// (..., N, d), the samples in (..., d, N). But if the fast side is so short that most lanes
// would be idle, they span the other side.
template <typename T>
void draw_as(const Call& call, T* out) {
  using Real = compute_t<T>;
  const Noise& noise = call.noise;
  int64_t dimension_tiles = divide_up(noise.dimensions, kTile);
  int64_t sample_tiles = divide_up(noise.samples, kTile);
  int64_t fast_tiles = noise.dim_first ? sample_tiles : dimension_tiles;
  int64_t slow_tiles = noise.dim_first ? dimension_tiles : sample_tiles;
  bool lanes_span_fast_side = fast_tiles >= std::min<int64_t>(slow_tiles, kLanes / 2);
  // The fast side has the samples if dim_first is true, and otherwise the dimensions.
  bool lanes_span_dimensions = lanes_span_fast_side != noise.dim_first;
  // The tiles of a problem form a matrix, whose columns lie along the side that the lanes span.
  // A row of this matrix is cut into chunks of kLanes tiles; the last one may be smaller.
  int64_t columns = lanes_span_dimensions ? dimension_tiles : sample_tiles;
  int64_t rows = lanes_span_dimensions ? sample_tiles : dimension_tiles;
  int64_t row_chunks = divide_up(columns, kLanes);
  constexpr int64_t kGrain = 16;  // a CPU thread is given at least this many chunks
  // Draw the chunks `begin` to `end` - 1. Chunk 0 is the first one of row 0 of problem 0. It is
  // followed by the other chunks of this row, then by the other rows, then by the other
  // problems. The first tile of a chunk begins with dimension tile * kTile and with sample
  // block * kTile.
  parallel_for(0, noise.problems * rows * row_chunks, kGrain, [&](int64_t begin, int64_t end) {
    Chunk<T, Real> chunk{};
    // Mean, standard deviation, lower and upper bound of the problem `loaded`.
    ByLane<Real> parameters[] = {{call.mean, noise.dimensions}, {call.std, noise.dimensions},
        {call.low, noise.dimensions}, {call.high, noise.dimensions}};
    int64_t loaded = -1;
    for (int64_t i = begin; i < end; ++i) {
      int64_t problem = i / (rows * row_chunks);
      if (problem != loaded) {
        for (ByLane<Real>& parameter : parameters) parameter.load(problem);
        loaded = problem;
      }
      int64_t row = i / row_chunks % rows;
      int64_t column = i % row_chunks * kLanes;
      int64_t tile = lanes_span_dimensions ? column : row;
      int64_t block = lanes_span_dimensions ? row : column;
      chunk.noise = noise;
      chunk.noise.load_seed(problem);
      chunk.mean = parameters[0].of(tile);
      chunk.std = parameters[1].of(tile);
      chunk.low = parameters[2].of(tile);
      chunk.high = parameters[3].of(tile);
      chunk.out = out + problem * noise.dimensions * noise.samples;
      chunk.z.fill(chunk.noise, tile, block, lanes_span_dimensions);
      if (lanes_span_dimensions) {
        chunk.template compute<true>();
      } else {
        chunk.template compute<false>();
      }
      int lanes = int(std::min<int64_t>(kLanes, columns - column));
      if (lanes_span_fast_side) {
        chunk.store(tile, block, lanes_span_dimensions, lanes);
      } else {
        chunk.scatter(tile, block, lanes_span_dimensions, lanes);
      }
    }
  });
}

void draw(const Call& call, const Tensor& out) {
  dispatch(
      out.scalar_type(), [&](auto zero) { draw_as(call, mutable_data<decltype(zero)>(out)); });
}

}  // namespace
}  // namespace cem_tetris::normal
