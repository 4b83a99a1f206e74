// The sampler's operators, one source for CPU and CUDA. They check their arguments, convert
// them to the structures that the kernels take, and call draw() of the device.
#pragma once

#include "call.h"

namespace cem_tetris::normal {
namespace {

// Draws noise.samples samples of mean + std * z for each problem (batch entry), and returns
// them in the shape (..., d, N) if noise.dim_first is true, and otherwise (..., N, d). Checks
// the arguments that all operators have in common. Calls draw(), the function of the device,
// unless the result is empty or on the meta device.
//
// Args:
//     mean, std: one number for each dimension and problem.
//     seeds: replaces noise.seed by one seed per problem; required if there are batch
//         dimensions.
//     generations: replaces noise.generation by one number for all problems, or by one number
//         per problem.
//     dtype: the type of the result.
//     low, high: bounds, one number per dimension, either for every problem or shared by all.
Tensor sample(const Problems& problems, Vector mean, Vector std, Noise noise,
    std::optional<Tensor> seeds, std::optional<Tensor> generations, ScalarType dtype,
    std::optional<Tensor> low, std::optional<Tensor> high) {
  int64_t samples = noise.samples;
  int64_t dimensions = noise.dimensions;
  STD_TORCH_CHECK(noise.generation < kGenerations, "expected a generation in 0..2^38 - 1, got ",
      int64_t(noise.generation));
  STD_TORCH_CHECK(samples >= 0 && samples < int64_t{1} << 46 && dimensions < int64_t{1} << 44,
      "expected num_samples in 0..2^46 - 1 and less than 2^44 dimensions, got ", samples,
      " and ", dimensions);
  // Raise an error if a type is not supported.
  dispatch(mean.type, [](auto) {});
  dispatch(dtype, [](auto) {});
  STD_TORCH_CHECK(problems.sizes.empty() || seeds.has_value(),
      "expected a tensor of seeds of the batch shape");
  // Checks an optional tensor of integers: one per problem if has_batch, and otherwise a single
  // number. Returns its data, or null if there is no tensor.
  auto check_numbers = [&](std::optional<Tensor>& tensor, const char* name,
                           bool has_batch) -> const int64_t* {
    if (tensor.has_value()) {
      tensor = problems.check(*tensor, name, ScalarType::Long, {}, has_batch);
    }
    return const_data<int64_t>(tensor);
  };
  noise.seed_data = check_numbers(seeds, "seed", /*has_batch=*/true);
  noise.generation_per_problem = generations.has_value() && generations->dim() > 0;
  noise.generation_data =
      check_numbers(generations, "generation", noise.generation_per_problem);
  // Bounds have the type that the samples are computed in.
  bool is_double = dtype == ScalarType::Double;
  ScalarType type = is_double ? ScalarType::Double : ScalarType::Float;
  auto check_bound = [&](std::optional<Tensor>& tensor, const char* name) -> Vector {
    int64_t stride = problems.check_row(tensor, name, type, dimensions);
    return {const_data<void>(tensor), type, stride};
  };
  Call call{noise, mean, std, check_bound(low, "low"), check_bound(high, "high")};
  int64_t rows = noise.dim_first ? dimensions : samples;
  int64_t columns = noise.dim_first ? samples : dimensions;
  Tensor out = problems.empty(dtype, {rows, columns});
  bool has_samples = noise.problems != 0 && dimensions != 0 && samples != 0;
  if (has_samples && !problems.device.is_meta()) draw(call, out);
  return out;
}

// The operator sample_normal. It draws num_samples = N samples from normal distributions with
// independent dimensions. mean and std are tensors of the same shape (..., d). The result has
// the shape (..., d, N) if dim_first, and otherwise (..., N, d).
//
// Every number is a function of seed, generation, sample and dimension.
//
// Args:
//     seeds, generations: replace seed and generation; seeds has one seed per batch entry.
//     shared: whether all dimensions of a sample use the same noise.
//     antithetic: whether sample 2 i + 1 uses the noise of sample 2 i, negated.
//     low, high: the samples are clamped to these bounds.
Tensor sample_normal(const Tensor& mean, const Tensor& std, int64_t num_samples, int64_t seed,
    int64_t generation, std::optional<Tensor> seeds, std::optional<Tensor> generations,
    bool shared, bool antithetic, bool dim_first, ScalarType dtype, std::optional<Tensor> low,
    std::optional<Tensor> high) {
  // The batch entries are the problems. A mean has one more dimension, d.
  Problems problems(mean, /*own_dimensions=*/1, "mean of shape (..., d)");
  ScalarType type = mean.scalar_type();
  int64_t dimensions = mean.sizes().back();
  Tensor means = dense(mean);
  Tensor stds = problems.check(std, "std", type, {dimensions});
  Noise noise{};
  noise.seed = uint64_t(seed);
  noise.generation = uint64_t(generation);
  noise.problems = problems.count();
  noise.samples = num_samples;
  noise.dimensions = dimensions;
  noise.shared = shared;
  noise.antithetic = antithetic;
  noise.dim_first = dim_first;
  const Vector mean_vector{const_data<void>(means), type, dimensions};
  const Vector std_vector{const_data<void>(stds), type, dimensions};
  return sample(problems, mean_vector, std_vector, noise, std::move(seeds),
      std::move(generations), dtype, std::move(low), std::move(high));
}

// The operator sample_normal_seeded: sample_normal with one seed and no bounds. The result has
// the type of the mean.
Tensor sample_normal_seeded(const Tensor& mean, const Tensor& std, int64_t num_samples,
    int64_t seed, int64_t generation, bool dim_first, bool shared) {
  STD_TORCH_CHECK(seed >= 0, "expected a seed in 0..2^63 - 1, got ", seed);
  return sample_normal(mean, std, num_samples, seed, generation, /*seeds=*/{},
      /*generations=*/{}, shared, /*antithetic=*/false, dim_first, mean.scalar_type(),
      /*low=*/{},
      /*high=*/{});
}

// The operator sample_normal_rows: draws num_samples = N samples for each problem (batch entry)
// from a normal distribution with independent dimensions. `distribution` has the shape (..., R,
// d): of its R rows, row 0 is the mean, row 1 the standard deviation, and the others are not
// read. The result has the shape (..., N, d).
Tensor sample_normal_rows(const Tensor& distribution, int64_t num_samples, const Tensor& seeds,
    const Tensor& generation, std::optional<Tensor> low, std::optional<Tensor> high) {
  Tensor rows = dense(distribution);
  const Sizes sizes = rows.sizes();
  STD_TORCH_CHECK(sizes.size() >= 2 && sizes[sizes.size() - 2] >= 2,
      "expected rows of a shape (..., R, d), R >= 2, got ", text_of(sizes));
  Problems problems{Device(rows), {sizes.data(), sizes.size() - 2}};
  int64_t dimensions = sizes.back();
  int64_t stride = sizes[sizes.size() - 2] * dimensions;  // from one problem to the next
  ScalarType type = rows.scalar_type();
  // The addresses are those of bytes, because the rows can have any floating-point type.
  const char* means = const_data<char>(rows);
  const char* stds = means + dimensions * rows.element_size();
  Noise noise{};
  noise.problems = problems.count();
  noise.samples = num_samples;
  noise.dimensions = dimensions;
  return sample(problems, {means, type, stride}, {stds, type, stride}, noise, seeds, generation,
      type, std::move(low), std::move(high));
}

}  // namespace
}  // namespace cem_tetris::normal

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CEM_TETRIS_DEVICE, m) {
  m.impl("sample_normal", TORCH_BOX(&cem_tetris::normal::sample_normal));
  m.impl("sample_normal_no_grad", TORCH_BOX(&cem_tetris::normal::sample_normal));
  m.impl("sample_normal_seeded", TORCH_BOX(&cem_tetris::normal::sample_normal_seeded));
  m.impl("sample_normal_rows", TORCH_BOX(&cem_tetris::normal::sample_normal_rows));
}
