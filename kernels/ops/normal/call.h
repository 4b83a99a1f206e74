// The operators as torch calls them, over a device's two functions: one draws, one sums the gradients.
#pragma once

#include <algorithm>
#include <tuple>
#include <utility>

#include "arguments.h"

namespace cem_tetris::normal {

struct Draw {
  Noise noise;
  Vector mean, std, low, high;  // low and high may have no data
};

template <void (*kDraw)(const Draw&, Tensor& out)>
struct Forward {
  // `like` has the sizes (..., d) of mean.
  static Tensor call(const Known& like, Vector mean, Vector std, int64_t num_samples, Origin origin,
                     bool shared_noise, bool antithetic, const std::optional<Tensor>& low,
                     const std::optional<Tensor>& high, bool dim_first, ScalarType dtype) {
    const Parameter lows = as_bound(low, like, compute_type(dtype), "low"),
                    highs = as_bound(high, like, compute_type(dtype), "high");
    const int64_t leading = like.sizes.size() - 1, dimensions = like.sizes[leading];
    const Noise noise =
        make_noise(like, leading, origin, num_samples, dimensions, shared_noise, antithetic, dim_first);
    Tensor out = dim_first ? empty(like, leading, {dimensions, num_samples}, dtype)
                           : empty(like, leading, {num_samples, dimensions}, dtype);
    if (noise.problems != 0 && dimensions != 0 && num_samples != 0) {
      kDraw({noise, mean, std, lows.vector, highs.vector}, out);
    }
    return out;
  }

  template <typename... Others>
  static Tensor call(const Tensor& mean, const Tensor& std, const Others&... others) {
    const Known like(mean);
    STD_TORCH_CHECK(!like.sizes.empty(), "sample_normal: expected mean of a shape (..., d)");
    const ScalarType type = mean.scalar_type();
    const Parameter means = as_parameter(like, type), stds = as_parameter(std, like, type, "std");
    return call(like, means.vector, stds.vector, others...);
  }

  static Tensor all(const Tensor& mean, const Tensor& std, int64_t num_samples, int64_t seed,
                    std::optional<Tensor> seed_tensor, int64_t generation,
                    std::optional<Tensor> generation_tensor, bool shared_noise, bool antithetic,
                    std::optional<Tensor> low, std::optional<Tensor> high, bool dim_first, ScalarType dtype) {
    return call(mean, std, num_samples,
                Origin{seed, generation, std::move(seed_tensor), std::move(generation_tensor)}, shared_noise,
                antithetic, low, high, dim_first, dtype);
  }

  static Tensor seeded(const Tensor& mean, const Tensor& std, int64_t num_samples, int64_t seed,
                       int64_t generation, bool dim_first) {
    STD_TORCH_CHECK(seed >= 0, "sample_normal: expected a seed in 0..2^63 - 1, got ", seed);
    return call(mean, std, num_samples, Origin{seed, generation}, false, false, std::nullopt, std::nullopt,
                dim_first, mean.scalar_type());
  }

  // Mean and standard deviation are the first two rows of a tensor (..., R, d).
  static Tensor rows(const Tensor& rows, int64_t num_samples, const Tensor& seed, const Tensor& generation,
                     std::optional<Tensor> low, std::optional<Tensor> high) {
    const Tensor packed = rows.is_contiguous() ? rows : torch::stable::contiguous(rows);
    Known like(packed);
    const int64_t batch = static_cast<int64_t>(like.sizes.size()) - 2;
    STD_TORCH_CHECK(batch >= 0 && batch < kMost && like.sizes[batch] >= 2,
                    "sample_normal: expected rows of a shape (..., R, d), R >= 2");
    const int64_t dimensions = like.sizes[batch + 1], stride = like.sizes[batch] * dimensions;
    int64_t sizes[kMost];
    std::copy_n(like.sizes.begin(), batch, sizes);
    sizes[batch] = dimensions;
    like.sizes = Sizes(sizes, batch + 1);
    const ScalarType type = packed.scalar_type();
    const auto* data = static_cast<const char*>(packed.const_data_ptr());
    const Vector mean{data, type, stride}, std{data + dimensions * packed.element_size(), type, stride};
    return call(like, mean, std, num_samples, {0, 0, seed, generation}, false, false, low, high, false, type);
  }
};

template <void (*kSum)(const Noise&, const Tensor& grad, Tensor& mean_grad, Tensor& std_grad)>
std::tuple<Tensor, Tensor> backward(const Tensor& grad, int64_t seed, std::optional<Tensor> seed_tensor,
                                    int64_t generation, std::optional<Tensor> generation_tensor,
                                    bool shared_noise, bool antithetic, bool dim_first) {
  const Tensor gradient = torch::stable::contiguous(grad);
  const Known like(grad);
  const int64_t leading = static_cast<int64_t>(like.sizes.size()) - 2;
  STD_TORCH_CHECK(leading >= 0, "sample_normal: expected a gradient of two dimensions or more");
  const int64_t dimensions = like.sizes[leading + (dim_first ? 0 : 1)],
                samples = like.sizes[leading + (dim_first ? 1 : 0)];
  Origin origin{seed, generation, std::move(seed_tensor), std::move(generation_tensor)};
  const Noise noise =
      make_noise(like, leading, origin, samples, dimensions, shared_noise, antithetic, dim_first);
  const ScalarType type = compute_type(grad.scalar_type());
  Tensor mean_grad = empty(like, leading, {dimensions}, type),
         std_grad = empty(like, leading, {dimensions}, type);
  if (mean_grad.numel() != 0) kSum(noise, gradient, mean_grad, std_grad);
  return {mean_grad, std_grad};
}

}  // namespace cem_tetris::normal
