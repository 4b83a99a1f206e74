// The sampler's operators, one source for CPU and CUDA: their arguments as the kernels want
// them, over the device's `draw`.
#pragma once

#include <string>
#include <utility>

#include "call.h"

namespace cem_tetris::normal {
namespace {

// Seed and generation of the noise are numbers, or tensors that replace them.
Tensor sample(const Problems& problems, Vector mean, Vector std, Noise noise,
    std::optional<Tensor> seeds, std::optional<Tensor> generations, ScalarType dtype,
    std::optional<Tensor> low, std::optional<Tensor> high) {
  const int64_t samples = noise.samples, dimensions = noise.dimensions;
  STD_TORCH_CHECK(noise.generation < kGenerations, "expected a generation in 0..2^38 - 1, got ",
      static_cast<int64_t>(noise.generation));
  STD_TORCH_CHECK(samples >= 0 && samples < int64_t{1} << 46 && dimensions < int64_t{1} << 44,
      "expected num_samples in 0..2^46 - 1 and less than 2^44 dimensions, got ", samples,
      " and ", dimensions);
  dispatch(mean.type, [](auto) {});
  STD_TORCH_CHECK(problems.sizes.empty() || seeds.has_value(),
      "expected a tensor of seeds of the batch shape");
  const auto numbers = [&](std::optional<Tensor>& tensor, const char* name,
                           bool leads) -> const int64_t* {
    if (tensor.has_value()) tensor = problems.check(*tensor, name, ScalarType::Long, {}, leads);
    return const_data<int64_t>(tensor);
  };
  noise.seed_data = numbers(seeds, "seed", true);
  noise.generation_data = numbers(generations, "generation", false);
  // The type that the samples are computed in.
  const ScalarType type = dtype == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
  const auto bound = [&](std::optional<Tensor>& tensor, const char* name) -> Vector {
    const int64_t stride = problems.check_row(tensor, name, type, dimensions);
    return {const_data<void>(tensor), type, stride};
  };
  const Call call{noise, mean, std, bound(low, "low"), bound(high, "high")};
  const Tensor out = problems.empty(
      dtype, {noise.dim_first ? dimensions : samples, noise.dim_first ? samples : dimensions});
  if (noise.problems != 0 && dimensions != 0 && samples != 0 && !problems.device.is_meta())
    draw(call, out);
  return out;
}

Tensor sample_normal(const Tensor& mean, const Tensor& std, int64_t num_samples, int64_t seed,
    int64_t generation, std::optional<Tensor> seeds, std::optional<Tensor> generations,
    bool shared, bool antithetic, bool dim_first, ScalarType dtype, std::optional<Tensor> low,
    std::optional<Tensor> high) {
  const Problems problems(mean, 1, "mean of shape (..., d)");
  const ScalarType type = mean.scalar_type();
  const int64_t dimensions = mean.sizes().back();
  const Tensor means = dense(mean), stds = problems.check(std, "std", type, {dimensions});
  return sample(problems, {const_data<void>(means), type, dimensions},
      {const_data<void>(stds), type, dimensions},
      {static_cast<uint64_t>(seed), static_cast<uint64_t>(generation), nullptr, nullptr,
          problems.count(), num_samples, dimensions, shared, antithetic, dim_first},
      std::move(seeds), std::move(generations), dtype, std::move(low), std::move(high));
}

Tensor sample_normal_seeded(const Tensor& mean, const Tensor& std, int64_t num_samples,
    int64_t seed, int64_t generation, bool dim_first, bool shared) {
  STD_TORCH_CHECK(seed >= 0, "expected a seed in 0..2^63 - 1, got ", seed);
  return sample_normal(mean, std, num_samples, seed, generation, {}, {}, shared, false,
      dim_first, mean.scalar_type(), {}, {});
}

// Mean and standard deviation are the first two of rows (..., R, d).
Tensor sample_normal_rows(const Tensor& given, int64_t num_samples, const Tensor& seeds,
    const Tensor& generation, std::optional<Tensor> low, std::optional<Tensor> high) {
  const Tensor rows = dense(given);
  const Sizes sizes = rows.sizes();
  STD_TORCH_CHECK(sizes.size() >= 2 && sizes[sizes.size() - 2] >= 2,
      "expected rows of a shape (..., R, d), R >= 2, got ", text_of(sizes));
  const Problems problems{Device(rows), {sizes.data(), sizes.size() - 2}};
  const int64_t dimensions = sizes.back(), stride = sizes[sizes.size() - 2] * dimensions;
  const ScalarType type = rows.scalar_type();
  const char* first = const_data<char>(rows);
  return sample(problems, {first, type, stride},
      {first + dimensions * rows.element_size(), type, stride},
      {0, 0, nullptr, nullptr, problems.count(), num_samples, dimensions, false, false, false},
      seeds, generation, type, std::move(low), std::move(high));
}

}  // namespace
}  // namespace cem_tetris::normal

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CEM_TETRIS_DEVICE, m) {
  m.impl("sample_normal", TORCH_BOX(&cem_tetris::normal::sample_normal));
  m.impl("sample_normal_no_grad", TORCH_BOX(&cem_tetris::normal::sample_normal));
  m.impl("sample_normal_seeded", TORCH_BOX(&cem_tetris::normal::sample_normal_seeded));
  m.impl("sample_normal_rows", TORCH_BOX(&cem_tetris::normal::sample_normal_rows));
}
