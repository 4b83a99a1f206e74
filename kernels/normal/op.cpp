// The sampler: schemas and the CPU kernels.
//
// The CPU works on kLanes tiles side by side, so that the compiler makes vectors of the loops over them;
// threads share the rows of tiles. Every number is a function of its place alone, so the number of threads
// changes nothing.

// Without errno a square root is one instruction, which has a vector form.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-math-errno")
#endif

#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "arguments.h"
#include "tile.h"

namespace cem_tetris::normal {
namespace {

constexpr int kLanes = 32;
constexpr int kCells = kTile * kTile;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <typename Real>
std::vector<Real> converted(Vector v, int64_t size) {
  std::vector<Real> result(size);
  dispatch(v.type, [&](auto zero) {
    const auto* data = static_cast<const decltype(zero)*>(v.data);
    for (int64_t i = 0; i < size; ++i) result[i] = static_cast<Real>(data[i]);
  });
  return result;
}

Key key_of(const Noise& noise) {
  return make_key(noise.seed_data != nullptr ? static_cast<uint64_t>(*noise.seed_data) : noise.seed);
}

// The noise of `lanes` neighbouring tiles: z = radius * direction, in [dimension * kTile + sample][lane].
// Lane l has the dimensions from (tile + l) * kTile if `across` (the samples from block * kTile), else the
// samples from (block + l) * kTile. Where the noise is shared, dimension 0 stands for all.
template <typename Real>
struct Tiles {
  Real radius[kCells][kLanes], direction[kCells][kLanes];

  void fill(Key key, const Noise& noise, int64_t tile, int64_t block, bool across, int lanes);
};

template <>
void Tiles<float>::fill(Key key, const Noise& noise, int64_t tile, int64_t block, bool across, int) {
  LateKeys keys;
  for (int i = 0; i < kLateKeys; ++i) keys.word[i] = late_key(key, i);
  const int64_t first = noise.shared ? 0 : tile * kTile;
  const uint32_t step = across && !noise.shared ? kTile : 0;
  const uint32_t word3 = upper(noise.generation, first,
                               block);  // the same for all lanes: a chunk starts at a multiple of kLanes
  for (int j = 0; j < (noise.shared ? 1 : kTile); ++j) {
    uint32_t w[4][kLanes];
    for (int l = 0; l < kLanes; ++l) {
      const uint32_t dimension = low(first) + j + l * step, b = low(block) + (across ? 0 : l);
      const Words x = words(keys, dimension_part(key, dimension, noise.generation),
                            block_part(key, b, noise.generation, word3));
      for (int i = 0; i < 4; ++i) w[i][l] = x.word[i];
    }
    for (int half = 0; half < 2; ++half) {
      const int cell = j * kTile + 2 * half;
      for (int l = 0; l < kLanes; ++l) {
        const Polar<float> p = polar(w[2 * half][l], w[2 * half + 1][l]);
        radius[cell][l] = radius[cell + 1][l] = p.radius;
        direction[cell][l] = p.cosine;
        direction[cell + 1][l] = noise.antithetic ? -p.cosine : p.sine;
      }
    }
  }
}

template <>
void Tiles<double>::fill(Key key, const Noise& noise, int64_t tile, int64_t block, bool across, int lanes) {
  for (int l = 0; l < lanes; ++l) {
    const int64_t at = noise.shared ? 0 : across ? tile + l : tile, b = across ? block : block + l;
    const auto dimensions = Stream<double>::dimensions(key, at * kTile, noise.generation);
    const auto samples =
        Stream<double>::samples(key, b, noise.generation, upper(noise.generation, at * kTile, b));
    for (int j = 0; j < (noise.shared ? 1 : kTile); ++j) {
      Polar<double> pair[2];
      Stream<double>::set(key, dimensions, j, samples, pair);
      for (int s = 0; s < kTile; ++s) {
        const Polar<double>& p = pair[s / 2];
        radius[j * kTile + s][l] = p.radius;
        direction[j * kTile + s][l] = s % 2 == 0 ? p.cosine : noise.antithetic ? -p.cosine : p.sine;
      }
    }
  }
}

// A chunk of tiles: x for the samples of a thread's kLanes tiles, then stored.
template <typename T, typename Real>
struct Chunk {
  const Noise& noise;
  const Real *mean, *std, *low, *high;
  T* out;
  Tiles<Real> z;
  Real x[kCells][kLanes];

  void compute(int64_t tile, bool across, int lanes) {
    for (int j = 0; j < kTile; ++j) {
      for (int s = 0; s < kTile; ++s) {
        const int cell = j * kTile + s, source = (noise.shared ? 0 : j) * kTile + s;
        for (int l = 0; l < lanes; ++l) {
          const int64_t i = std::min((across ? tile + l : tile) * kTile + j, noise.dimensions - 1);
          Real value = std::fma(std[i] * z.radius[source][l], z.direction[source][l], mean[i]);
          if (low != nullptr && value < low[i]) value = low[i];  // NaN stays
          if (high != nullptr && value > high[i]) value = high[i];
          x[cell][l] = value;
        }
      }
    }
  }

  // For lanes along the layout's fast side.
  void store(int64_t tile, int64_t block, bool across, int lanes) {
    const int64_t fast = across ? noise.dimensions : noise.samples,
                  slow = across ? noise.samples : noise.dimensions;
    const int64_t first = (across ? tile : block) * kTile, row = (across ? block : tile) * kTile;
    const int cell = across ? kTile : 1, next = across ? 1 : kTile;  // from one number of a tile to the next
    const int64_t count = std::min<int64_t>(lanes * kTile, fast - first);
    for (int r = 0; r < std::min<int64_t>(kTile, slow - row); ++r) {
      T* to = out + (row + r) * fast + first;
      for (int64_t i = 0; i < count / kTile; ++i) {
        for (int c = 0; c < kTile; ++c) to[i * kTile + c] = static_cast<T>(x[r * next + c * cell][i]);
      }
      for (int64_t i = count / kTile * kTile; i < count; ++i) {
        to[i] = static_cast<T>(x[r * next + i % kTile * cell][i / kTile]);
      }
    }
  }

  // The same where the lanes go along the layout's slow side.
  void scatter(int64_t tile, int64_t block, bool across, int lanes) {
    const int64_t column = noise.dim_first ? 1 : noise.dimensions, row = noise.dim_first ? noise.samples : 1;
    for (int l = 0; l < lanes; ++l) {
      const int64_t i = (across ? tile + l : tile) * kTile, k = (across ? block : block + l) * kTile;
      for (int s = 0; s < std::min<int64_t>(kTile, noise.samples - k); ++s) {
        for (int j = 0; j < std::min<int64_t>(kTile, noise.dimensions - i); ++j) {
          out[(i + j) * row + (k + s) * column] = static_cast<T>(x[j * kTile + s][l]);
        }
      }
    }
  }
};

template <typename T>
void sample(const Noise& noise, Vector mean, Vector std, const std::optional<Tensor>& low,
            const std::optional<Tensor>& high, T* out) {
  using Real = typename ComputeType<T>::type;
  const std::vector<Real> means = converted<Real>(mean, noise.dimensions);
  const std::vector<Real> stds = converted<Real>(std, noise.dimensions);
  const Real* lows = low.has_value() ? static_cast<const Real*>(low->const_data_ptr()) : nullptr;
  const Real* highs = high.has_value() ? static_cast<const Real*>(high->const_data_ptr()) : nullptr;
  const int64_t tiles = divide_up(noise.dimensions, kTile), blocks = divide_up(noise.samples, kTile);
  // Lanes follow the layout, for vectors of stores, unless most of them would be idle there.
  const bool follow = noise.dim_first ? blocks >= std::min<int64_t>(tiles, kLanes / 2)
                                      : tiles >= std::min<int64_t>(blocks, kLanes / 2);
  const bool across = follow != noise.dim_first;
  const int64_t along = across ? tiles : blocks, rows = across ? blocks : tiles,
                chunks = divide_up(along, kLanes);
  const Key key = key_of(noise);
  torch::stable::parallel_for(0, rows * chunks, 16, [&](int64_t begin, int64_t end) {
    Chunk<T, Real> chunk{noise, means.data(), stds.data(), lows, highs, out, {}, {}};
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / chunks, column = i % chunks * kLanes;
      const int64_t tile = across ? column : row, block = across ? row : column;
      const int lanes = static_cast<int>(std::min<int64_t>(kLanes, along - column));
      chunk.z.fill(key, noise, tile, block, across, lanes);
      chunk.compute(tile, across, lanes);
      if (follow) {
        chunk.store(tile, block, across, lanes);
      } else {
        chunk.scatter(tile, block, across, lanes);
      }
    }
  });
}

Tensor sample_normal_cpu(const Tensor& mean, const Tensor& std, int64_t num_samples, int64_t seed,
                         std::optional<Tensor> seed_tensor, int64_t generation, bool shared_noise,
                         bool antithetic, std::optional<Tensor> low, std::optional<Tensor> high,
                         bool dim_first, ScalarType dtype) {
  const int64_t dimensions = mean.numel();
  const Tensor means = as_vector(mean, mean, mean.scalar_type(), "mean"),
               stds = as_vector(std, mean, mean.scalar_type(), "std");
  if (low.has_value()) low = as_vector(*low, mean, compute_type(dtype), "low");
  if (high.has_value()) high = as_vector(*high, mean, compute_type(dtype), "high");
  const Noise noise = make_noise(mean, seed_tensor, seed, generation, num_samples, dimensions, shared_noise,
                                 antithetic, dim_first);
  Tensor out =
      dim_first ? empty(mean, dimensions, num_samples, dtype) : empty(mean, num_samples, dimensions, dtype);
  if (dimensions == 0 || num_samples == 0) return out;
  dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    sample<T>(noise, vector_of(means), vector_of(stds), low, high, static_cast<T*>(out.mutable_data_ptr()));
  });
  return out;
}

Tensor sample_normal_seeded_cpu(const Tensor& mean, const Tensor& std, int64_t num_samples, int64_t seed,
                                int64_t generation, bool dim_first) {
  return sample_normal_cpu(mean, std, num_samples, seed, std::nullopt, generation, false, false, std::nullopt,
                           std::nullopt, dim_first, mean.scalar_type());
}

// A thread has whole tiles of dimensions and goes through their samples in order, so the sums are the same
// for any number of threads.
template <typename T>
void backward(const Noise& noise, const T* grad, typename ComputeType<T>::type* mean_grad,
              typename ComputeType<T>::type* std_grad) {
  using Real = typename ComputeType<T>::type;
  const int64_t row = noise.dim_first ? noise.samples : 1, column = noise.dim_first ? 1 : noise.dimensions;
  const Key key = key_of(noise);
  torch::stable::parallel_for(0, divide_up(noise.dimensions, kTile), 1, [&](int64_t begin, int64_t end) {
    Tiles<Real> z;
    for (int64_t tile = begin; tile < end; ++tile) {
      double sum[2][kTile] = {};
      const int64_t first = tile * kTile;
      const int dimensions = static_cast<int>(std::min<int64_t>(kTile, noise.dimensions - first));
      for (int64_t sample = 0; sample < noise.samples; sample += kTile * kLanes) {
        const int count = static_cast<int>(std::min<int64_t>(kTile * kLanes, noise.samples - sample));
        z.fill(key, noise, tile, sample / kTile, false, static_cast<int>(divide_up(count, kTile)));
        for (int j = 0; j < dimensions; ++j) {
          for (int s = 0; s < count; ++s) {
            const int cell = (noise.shared ? 0 : j) * kTile + s % kTile, lane = s / kTile;
            const double g = static_cast<Real>(grad[(first + j) * row + (sample + s) * column]);
            sum[0][j] += g;
            sum[1][j] += g * (z.radius[cell][lane] * z.direction[cell][lane]);
          }
        }
      }
      for (int j = 0; j < dimensions; ++j) {
        mean_grad[first + j] = static_cast<Real>(sum[0][j]);
        std_grad[first + j] = static_cast<Real>(sum[1][j]);
      }
    }
  });
}

std::tuple<Tensor, Tensor> sample_normal_backward_cpu(const Tensor& grad, int64_t seed,
                                                      std::optional<Tensor> seed_tensor, int64_t generation,
                                                      bool shared_noise, bool antithetic, bool dim_first) {
  const Tensor gradient = torch::stable::contiguous(grad);
  const int64_t dimensions = grad.size(dim_first ? 0 : 1), samples = grad.size(dim_first ? 1 : 0);
  const Noise noise = make_noise(grad, seed_tensor, seed, generation, samples, dimensions, shared_noise,
                                 antithetic, dim_first);
  const ScalarType type = compute_type(grad.scalar_type());
  Tensor mean_grad = torch::stable::new_empty(grad, {dimensions}, type),
         std_grad = torch::stable::new_empty(grad, {dimensions}, type);
  dispatch(grad.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    using Real = typename ComputeType<T>::type;
    backward<T>(noise, static_cast<const T*>(gradient.const_data_ptr()),
                static_cast<Real*>(mean_grad.mutable_data_ptr()),
                static_cast<Real*>(std_grad.mutable_data_ptr()));
  });
  return {mean_grad, std_grad};
}

constexpr const char* kArguments =
    "(Tensor mean, Tensor std, SymInt num_samples, SymInt seed, Tensor? seed_tensor, SymInt generation, bool "
    "shared_noise, "
    "bool antithetic, Tensor? low, Tensor? high, bool dim_first, ScalarType dtype) -> Tensor";

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(cem_tetris, m) {
  m.def((std::string("sample_normal") + kArguments).c_str());
  // The same without a derivative: a formula for it puts Python into every call.
  m.def((std::string("sample_normal_no_grad") + kArguments).c_str());
  // The same again with what a plain call needs: half the arguments cost the host half the time.
  m.def(
      "sample_normal_seeded(Tensor mean, Tensor std, SymInt num_samples, SymInt seed, SymInt generation, "
      "bool "
      "dim_first) "
      "-> Tensor");
  m.def(
      "sample_normal_backward(Tensor grad, SymInt seed, Tensor? seed_tensor, SymInt generation, bool "
      "shared_noise, "
      "bool antithetic, bool dim_first) -> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CPU, m) {
  m.impl("sample_normal", TORCH_BOX(&sample_normal_cpu));
  m.impl("sample_normal_no_grad", TORCH_BOX(&sample_normal_cpu));
  m.impl("sample_normal_seeded", TORCH_BOX(&sample_normal_seeded_cpu));
  m.impl("sample_normal_backward", TORCH_BOX(&sample_normal_backward_cpu));
}

}  // namespace cem_tetris::normal
