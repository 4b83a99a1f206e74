// The sampler on the CPU.
//
// It works on kLanes tiles side by side, so that the compiler makes vectors of the loops over
// them; threads share the rows of tiles. Every number is a function of its place alone, so the
// number of threads changes nothing.
#pragma once

#include <vector>

#include "call.h"

namespace cem_tetris::normal {
namespace {

constexpr int kLanes = 32;
constexpr int kCells = kTile * kTile;
constexpr int64_t kLaneDimensions = kTile * kLanes;

// One number for each dimension of each problem (an entry of the batch), such as the means, in
// the order in which lanes read them; lane l works on tile l of kLanes. For kLanes tiles of
// kTile = 4 dimensions:
//
//   | dimension 0 of tiles 0..31 | dimension 1 of tiles 0..31 | dimension 2 | dimension 3 |
//
// The last tiles are filled up with zeros. It is empty if the vector has no data.
template <typename Real>
struct ByLane {
  int64_t size = 0;  // of a problem
  std::vector<Real> values;

  // Copies a vector's numbers into the order of the lanes, converted to the type of
  // computation.
  ByLane(Vector vector, int64_t problems, int64_t dimensions) {
    if (!vector.data) return;
    size = divide_up(dimensions, kLaneDimensions) * kLaneDimensions;
    values.resize(problems * size);
    dispatch(vector.type, [&](auto zero) {
      for (int64_t p = 0; p < problems; ++p) {
        const auto* data = static_cast<const decltype(zero)*>(vector.data) + p * vector.stride;
        for (int64_t i = 0; i < dimensions; ++i) {
          values[p * size + start(i / kTile) + i % kTile * kLanes] = Real(data[i]);
        }
      }
    });
  }

  // Returns where the first dimension of a tile is; the others follow at distances of kLanes.
  static int64_t start(int64_t tile) { return tile / kLanes * kLaneDimensions + tile % kLanes; }

  // Returns the number of a tile's first dimension, or null without numbers.
  const Real* of(int64_t problem, int64_t tile) const {
    return values.empty() ? nullptr : values.data() + problem * size + start(tile);
  }
};

// The noise of kLanes neighbouring tiles, z = radius * direction, indexed by the dimension and
// the sample within a tile, then by lane; a pair of samples shares a radius. A tile is four
// dimensions of a block of four samples. If `across`, the lanes are neighbours across the
// dimensions: lane l has the dimensions from (tile + l) * kTile on and the samples from block *
// kTile on; otherwise the dimensions from tile * kTile on and the samples from (block + l) *
// kTile on. If all dimensions share their noise, only dimension 0 is set.
template <typename Real>
struct Tiles {
  Real radius[kTile][kTile / 2][kLanes];
  Real direction[kTile][kTile][kLanes];

  // Sets the noise of the tiles, from `tile` and `block` on. One block of four Philox words
  // makes four samples of floats; doubles take two, one for each pair of samples.
  void fill(const Noise& noise, int64_t tile, int64_t block, bool across) {
    Key key = make_key(noise.seed);
    LateKeys keys = late_keys(key);
    int64_t first = noise.shared ? 0 : tile * kTile;
    uint32_t dimension_step = across && !noise.shared ? kTile : 0;
    uint32_t block_step = across ? 0 : 1;
    uint64_t generation = noise.generation;
    // The same for all lanes, because a chunk starts at a multiple of kLanes.
    uint32_t word3 = upper(generation, first, block);
    for (int j = 0; j < (noise.shared ? 1 : kTile); ++j) {
      for (int part = 0; part < kPhiloxBlocks<Real>; ++part) {
        uint32_t half_mark = part == 0 ? 0 : kSecondHalf;
        uint32_t mark = sizeof(Real) == sizeof(float) ? 0 : kOfDouble | half_mark;
        uint32_t w[4][kLanes];
        for (int l = 0; l < kLanes; ++l) {
          uint32_t dimension = low(first) + j + l * dimension_step;
          uint32_t lane_block = low(block) + l * block_step;
          Words x = words(keys, dimension_part(key, dimension, generation),
              block_part(key, lane_block, generation, word3 | mark));
          for (int i = 0; i < 4; ++i) w[i][l] = x.word[i];
        }
        if constexpr (sizeof(Real) == sizeof(float)) {
          for (int half = 0; half < 2; ++half) set(j, half, w[2 * half], w[2 * half + 1]);
        } else {
          set(j, part, w[0], w[1], w[2], w[3]);
        }
      }
      if (noise.antithetic) mirror(j);
    }
  }

 private:
  // Sets the samples 2 half and 2 half + 1 of dimension j from the random words of each lane:
  // two for float, four for double.
  template <typename... Words>
  void set(int j, int half, const Words*... words) {
    polar_lanes(radius[j][half], direction[j][2 * half], direction[j][2 * half + 1], words...);
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

  // Makes the second sample of each pair the first one's opposite.
  void mirror(int j) {
    for (int s = 0; s < kTile; s += 2) {
      for (int l = 0; l < kLanes; ++l) direction[j][s + 1][l] = -direction[j][s][l];
    }
  }
};

// The samples of kLanes neighbouring tiles of one problem, which are computed and then stored.
template <typename T, typename Real>
struct Chunk {
  Noise noise;  // of one problem
  // Of the first tile, in the order of ByLane; null for bounds that do not exist.
  const Real *mean = nullptr, *std = nullptr, *low = nullptr, *high = nullptr;
  T* out = nullptr;  // the problem's result
  Tiles<Real> z;
  Real x[kCells][kLanes];  // by dimension * kTile + sample

  // Computes x = mean + std * z within the bounds. kAcross: lanes have different dimensions, so
  // each has its own mean, and so on; otherwise all lanes have those of lane 0.
  template <bool kAcross>
  void compute() {
    for (int j = 0; j < kTile; ++j) {
      int source = noise.shared ? 0 : j;
      auto lane_value = [j](const Real* values, int l) {
        return values[j * kLanes + (kAcross ? l : 0)];
      };
      for (int s = 0; s < kTile; ++s) {
        Real* cell = x[j * kTile + s];
        const Real* radius = z.radius[source][s / 2];
        const Real* direction = z.direction[source][s];
        for (int l = 0; l < kLanes; ++l) {
          cell[l] = std::fma(lane_value(std, l) * radius[l], direction[l], lane_value(mean, l));
        }
        if (low) {  // NaN stays
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

  // Stores the first `lanes` tiles if they are neighbours in memory, as rows of lanes * kTile
  // numbers. The fast side of the layout is the one whose numbers are neighbours: dimensions in
  // (..., N, d), which the lanes follow if `across`, and samples in (..., d, N). The last tile
  // may extend beyond the fast side; its numbers within are stored one by one.
  void store(int64_t tile, int64_t block, bool across, int lanes) {
    int64_t row_size = across ? noise.dimensions : noise.samples;
    int64_t rows = across ? noise.samples : noise.dimensions;
    int64_t column = (across ? tile : block) * kTile;
    int64_t row = (across ? block : tile) * kTile;
    int column_step = across ? kTile : 1;  // in x, from one number of a row to the next
    int row_step = across ? 1 : kTile;     // in x, from one row of a tile to the next
    int64_t count = std::min<int64_t>(lanes * kTile, row_size - column);
    for (int r = 0; r < std::min<int64_t>(kTile, rows - row); ++r) {
      T* to = out + (row + r) * row_size + column;
      for (int64_t l = 0; l < count / kTile; ++l) {
        for (int c = 0; c < kTile; ++c) {
          to[l * kTile + c] = T(x[r * row_step + c * column_step][l]);
        }
      }
      for (int64_t i = count / kTile * kTile; i < count; ++i) {
        to[i] = T(x[r * row_step + i % kTile * column_step][i / kTile]);
      }
    }
  }

  // Stores the first `lanes` tiles if they are not neighbours in memory, one number at a time.
  // If `across`, lane l has the dimensions of tile `tile` + l and the samples of block `block`;
  // otherwise the dimensions of `tile` and the samples of block `block` + l.
  void scatter(int64_t tile, int64_t block, bool across, int lanes) {
    int64_t sample_stride = noise.dim_first ? 1 : noise.dimensions;
    int64_t dimension_stride = noise.dim_first ? noise.samples : 1;
    for (int l = 0; l < lanes; ++l) {
      int64_t dimension = (across ? tile + l : tile) * kTile;
      int64_t sample = (across ? block : block + l) * kTile;
      for (int s = 0; s < std::min<int64_t>(kTile, noise.samples - sample); ++s) {
        for (int j = 0; j < std::min<int64_t>(kTile, noise.dimensions - dimension); ++j) {
          out[(dimension + j) * dimension_stride + (sample + s) * sample_stride] =
              T(x[j * kTile + s][l]);
        }
      }
    }
  }
};

// Draws all samples of a call; threads share the chunks of kLanes neighbouring tiles. Lanes
// follow the layout, so that their results are neighbours in memory and are stored as vectors,
// unless most of the lanes would be idle there.
template <typename T>
void draw_as(const Call& call, T* out) {
  using Real = compute_t<T>;
  const Noise& noise = call.noise;
  auto by_lane = [&](Vector vector) {
    return ByLane<Real>(vector, noise.problems, noise.dimensions);
  };
  ByLane<Real> means = by_lane(call.mean);
  ByLane<Real> stds = by_lane(call.std);
  ByLane<Real> lows = by_lane(call.low);
  ByLane<Real> highs = by_lane(call.high);
  int64_t tiles = divide_up(noise.dimensions, kTile);
  int64_t blocks = divide_up(noise.samples, kTile);
  int64_t fast_tiles = noise.dim_first ? blocks : tiles;
  int64_t slow_tiles = noise.dim_first ? tiles : blocks;
  bool follows_layout = fast_tiles >= std::min<int64_t>(slow_tiles, kLanes / 2);
  bool across = follows_layout != noise.dim_first;  // lanes have different dimensions
  int64_t columns = across ? tiles : blocks;        // tiles along the lanes
  int64_t rows = across ? blocks : tiles;
  int64_t chunks = divide_up(columns, kLanes);  // of a row
  // Draws the chunks `begin` to `end` - 1. They are numbered along a row of tiles, then by row,
  // then by problem; a row has the tiles along the lanes.
  parallel_for(0, noise.problems * rows * chunks, 16, [&](int64_t begin, int64_t end) {
    Chunk<T, Real> chunk{};
    for (int64_t i = begin; i < end; ++i) {
      int64_t problem = i / (rows * chunks);
      int64_t row = i / chunks % rows;
      int64_t column = i % chunks * kLanes;
      int64_t tile = across ? column : row;
      int64_t block = across ? row : column;
      chunk.noise = noise;
      chunk.noise.load_seed(problem);
      chunk.mean = means.of(problem, tile);
      chunk.std = stds.of(problem, tile);
      chunk.low = lows.of(problem, tile);
      chunk.high = highs.of(problem, tile);
      chunk.out = out + problem * noise.dimensions * noise.samples;
      int lanes = int(std::min<int64_t>(kLanes, columns - column));
      chunk.z.fill(chunk.noise, tile, block, across);
      across ? chunk.template compute<true>() : chunk.template compute<false>();
      follows_layout ? chunk.store(tile, block, across, lanes)
                     : chunk.scatter(tile, block, across, lanes);
    }
  });
}

void draw(const Call& call, const Tensor& out) {
  dispatch(
      out.scalar_type(), [&](auto zero) { draw_as(call, mutable_data<decltype(zero)>(out)); });
}

}  // namespace
}  // namespace cem_tetris::normal
