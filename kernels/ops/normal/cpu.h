// The sampler on the CPU.
//
// It works on kLanes tiles side by side, so that the compiler makes vectors of the loops over
// them; threads share the rows of tiles. Every number is a function of its place alone, so the
// number of threads changes nothing.
#pragma once

#include <algorithm>
#include <vector>

#include "call.h"

namespace cem_tetris::normal {
namespace {

constexpr int kLanes = 32;
constexpr int kCells = kTile * kTile;

// One number a dimension and problem in the order of the lanes: of kLanes tiles their first
// dimensions, then their second ones, and so on. The last tiles are filled up with zeros. Empty
// where there are no numbers.
template <typename Real> struct ByLane {
  int64_t size = 0;  // of a problem
  std::vector<Real> values;

  ByLane(Vector v, int64_t problems, int64_t dimensions) {
    if (v.data == nullptr) return;
    size = divide_up(dimensions, kTile * kLanes) * kTile * kLanes;
    values.resize(problems * size);
    dispatch(v.type, [&](auto zero) {
      for (int64_t p = 0; p < problems; ++p) {
        const auto* data = static_cast<const decltype(zero)*>(v.data) + p * v.stride;
        for (int64_t i = 0; i < dimensions; ++i) {
          values[p * size + start(i / kTile) + i % kTile * kLanes] = static_cast<Real>(data[i]);
        }
      }
    });
  }

  // Where the first dimension of a tile is; the others follow at distances of kLanes.
  static int64_t start(int64_t tile) { return tile / kLanes * kTile * kLanes + tile % kLanes; }

  const Real* of(int64_t problem, int64_t tile) const {
    return values.empty() ? nullptr : values.data() + problem * size + start(tile);
  }
};

// The noise of kLanes neighbouring tiles: z = radius * direction. Lane l has the dimensions
// from (tile + l) * kTile if `across` (the samples from block * kTile), else the samples from
// (block + l) * kTile. Where the noise is shared, dimension 0 stands for all.
template <typename Real> struct Tiles {
  Real radius[kTile][kTile / 2][kLanes],
      direction[kTile][kTile][kLanes];  // by dimension and sample

  void fill(const Noise& noise, int64_t tile, int64_t block, bool across) {
    const Key key = make_key(noise.seed);
    const LateKeys keys = late_keys(key);
    const int64_t first = noise.shared ? 0 : tile * kTile;
    const uint32_t by_dimension = across && !noise.shared ? kTile : 0,
                   by_block = across ? 0 : 1;
    const uint64_t generation = noise.generation;
    // The same for all lanes, since a chunk starts at a multiple of kLanes.
    const uint32_t word3 = upper(generation, first, block);
    for (int j = 0; j < (noise.shared ? 1 : kTile); ++j) {
      for (int part = 0; part < kBlocks<Real>; ++part) {
        const uint32_t mark =
            sizeof(Real) == sizeof(float) ? 0 : kOfDouble | (part == 0 ? 0 : kSecondHalf);
        uint32_t w[4][kLanes];
        for (int l = 0; l < kLanes; ++l) {
          const uint32_t dimension = low(first) + j + l * by_dimension,
                         b = low(block) + l * by_block;
          const Words x = words(keys, dimension_part(key, dimension, generation),
              block_part(key, b, generation, word3 | mark));
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
  // A pair of samples of dimension j, from the words of each lane.
  template <typename... Words> void set(int j, int half, const Words*... words) {
    polar_lanes(radius[j][half], direction[j][2 * half], direction[j][2 * half + 1], words...);
  }

  template <typename... Words> static void polar_lanes(Real* __restrict__ to_radius,
      Real* __restrict__ to_cosine, Real* __restrict__ to_sine,
      const Words* __restrict__... words) {
    for (int l = 0; l < kLanes; ++l) {
      const Polar<Real> p = polar(words[l]...);
      to_radius[l] = p.radius;
      to_cosine[l] = p.cosine;
      to_sine[l] = p.sine;
    }
  }

  void mirror(int j) {
    for (int s = 0; s < kTile; s += 2) {
      for (int l = 0; l < kLanes; ++l) direction[j][s + 1][l] = -direction[j][s][l];
    }
  }
};

// A chunk of tiles: x for the samples of a thread's kLanes tiles, then stored.
template <typename T, typename Real> struct Chunk {
  Noise noise;                          // of one problem
  const Real *mean, *std, *low, *high;  // of the first tile, as ByLane has them
  T* out;
  Tiles<Real> z;
  Real x[kCells][kLanes];

  template <bool kAcross> void compute() {
    for (int j = 0; j < kTile; ++j) {
      const int source = noise.shared ? 0 : j;
      const auto at = [j](const Real* values, int l) {
        return values[j * kLanes + (kAcross ? l : 0)];
      };
      for (int s = 0; s < kTile; ++s) {
        Real* cell = x[j * kTile + s];
        const Real *radius = z.radius[source][s / 2], *direction = z.direction[source][s];
        for (int l = 0; l < kLanes; ++l)
          cell[l] = std::fma(at(std, l) * radius[l], direction[l], at(mean, l));
        if (low != nullptr) {  // NaN stays
          for (int l = 0; l < kLanes; ++l)
            cell[l] = cell[l] < at(low, l) ? at(low, l) : cell[l];
        }
        if (high != nullptr) {
          for (int l = 0; l < kLanes; ++l)
            cell[l] = cell[l] > at(high, l) ? at(high, l) : cell[l];
        }
      }
    }
  }

  // For lanes along the layout's fast side.
  void store(int64_t tile, int64_t block, bool across, int lanes) {
    const int64_t fast = across ? noise.dimensions : noise.samples,
                  slow = across ? noise.samples : noise.dimensions;
    const int64_t first = (across ? tile : block) * kTile,
                  row = (across ? block : tile) * kTile;
    const int cell = across ? kTile : 1,
              next = across ? 1 : kTile;  // from one number of a tile to the next
    const int64_t count = std::min<int64_t>(lanes * kTile, fast - first);
    for (int r = 0; r < std::min<int64_t>(kTile, slow - row); ++r) {
      T* to = out + (row + r) * fast + first;
      for (int64_t i = 0; i < count / kTile; ++i) {
        for (int c = 0; c < kTile; ++c)
          to[i * kTile + c] = static_cast<T>(x[r * next + c * cell][i]);
      }
      for (int64_t i = count / kTile * kTile; i < count; ++i) {
        to[i] = static_cast<T>(x[r * next + i % kTile * cell][i / kTile]);
      }
    }
  }

  // The same where the lanes go along the layout's slow side.
  void scatter(int64_t tile, int64_t block, bool across, int lanes) {
    const int64_t column = noise.dim_first ? 1 : noise.dimensions,
                  row = noise.dim_first ? noise.samples : 1;
    for (int l = 0; l < lanes; ++l) {
      const int64_t i = (across ? tile + l : tile) * kTile,
                    k = (across ? block : block + l) * kTile;
      for (int s = 0; s < std::min<int64_t>(kTile, noise.samples - k); ++s) {
        for (int j = 0; j < std::min<int64_t>(kTile, noise.dimensions - i); ++j) {
          out[(i + j) * row + (k + s) * column] = static_cast<T>(x[j * kTile + s][l]);
        }
      }
    }
  }
};

template <typename T> void draw_as(const Call& call, T* out) {
  using Real = compute_t<T>;
  const Noise& noise = call.noise;
  const auto by_lane = [&](Vector v) {
    return ByLane<Real>(v, noise.problems, noise.dimensions);
  };
  const ByLane<Real> means = by_lane(call.mean), stds = by_lane(call.std),
                     lows = by_lane(call.low), highs = by_lane(call.high);
  const int64_t tiles = divide_up(noise.dimensions, kTile),
                blocks = divide_up(noise.samples, kTile);
  // Lanes follow the layout, for vectors of stores, unless most of them would be idle there.
  const bool follow = noise.dim_first ? blocks >= std::min<int64_t>(tiles, kLanes / 2)
                                      : tiles >= std::min<int64_t>(blocks, kLanes / 2);
  const bool across = follow != noise.dim_first;
  const int64_t along = across ? tiles : blocks, rows = across ? blocks : tiles,
                chunks = divide_up(along, kLanes);
  torch::stable::parallel_for(
      0, noise.problems * rows * chunks, 16, [&](int64_t begin, int64_t end) {
        Chunk<T, Real> chunk{noise, nullptr, nullptr, nullptr, nullptr, nullptr, {}, {}};
        for (int64_t i = begin; i < end; ++i) {
          const int64_t problem = i / (rows * chunks);
          const int64_t row = i / chunks % rows, column = i % chunks * kLanes;
          const int64_t tile = across ? column : row, block = across ? row : column;
          chunk.noise = noise;
          chunk.noise.enter(problem);
          chunk.mean = means.of(problem, tile);
          chunk.std = stds.of(problem, tile);
          chunk.low = lows.of(problem, tile);
          chunk.high = highs.of(problem, tile);
          chunk.out = out + problem * noise.dimensions * noise.samples;
          const int lanes = static_cast<int>(std::min<int64_t>(kLanes, along - column));
          chunk.z.fill(chunk.noise, tile, block, across);
          across ? chunk.template compute<true>() : chunk.template compute<false>();
          follow ? chunk.store(tile, block, across, lanes)
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
