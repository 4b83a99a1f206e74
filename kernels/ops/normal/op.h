// The sampler's operators, one source for CPU and CUDA: their arguments as the kernels want them, over the
// device's two functions, `draw` and `sum_gradients`.
#pragma once

#ifdef __CUDACC__
#include "launch.cuh"
#else
#include "cpu.h"
#endif

#include <tuple>
#include <utility>

namespace cem_tetris::normal {
namespace {

// The mean, and what is asked of it more than once; or any tensor whose first dimensions are the batch's.
struct Like {
  Sizes sizes;
  Device device;
  explicit Like(const Tensor& tensor) : sizes(tensor.sizes()), device(tensor) {}
};

void check_device(const Tensor& tensor, const Like& like, const char* name) {
  STD_TORCH_CHECK(Device(tensor) == like.device, "sample_normal: expected all tensors on one device, got ",
      name, " on another");
}

// The type that the samples and gradients of a type are computed in.
ScalarType compute_type(ScalarType type) {
  return type == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
}

// The numbers from one problem to the next; -1 where the tensor has to be copied first.
int64_t problem_stride(Sizes sizes, Sizes strides) {
  size_t i = sizes.size() - 1;
  if (sizes[i] > 1 && strides[i] != 1) return -1;
  int64_t stride = 0, next = -1;
  while (i-- > 0) {
    if (sizes[i] == 1) continue;
    if (next < 0) stride = strides[i];
    if (next >= 0 && strides[i] != next) return -1;
    next = strides[i] * sizes[i];
  }
  return stride;
}

// How the kernels read a tensor of shape (..., d), or a copy of it that is kept beside.
struct Parameter {
  Vector vector;
  std::optional<Tensor> copy = std::nullopt;
};

Parameter as_parameter(const Tensor& tensor, ScalarType type) {
  const int64_t stride = problem_stride(tensor.sizes(), tensor.strides());
  if (stride >= 0) return {{tensor.const_data_ptr(), type, stride}};
  Tensor copy = torch::stable::contiguous(tensor);
  const Vector vector{copy.const_data_ptr(), type, problem_stride(copy.sizes(), copy.strides())};
  return {vector, std::move(copy)};
}

// The same of a tensor beside the mean, of its shape, or (d,) for all problems where `for_all`.
Parameter as_parameter(
    const Tensor& tensor, const Like& mean, ScalarType type, const char* name, bool for_all) {
  const Sizes sizes = tensor.sizes(), expected = mean.sizes;
  const size_t skipped = expected.size() - std::min(expected.size(), sizes.size());
  STD_TORCH_CHECK(!sizes.empty() && (skipped == 0 || (for_all && sizes.size() == 1)) &&
                      std::equal(sizes.begin(), sizes.end(), expected.begin() + skipped, expected.end()),
      "sample_normal: expected ", name, " of the shape (..., d) of mean");
  STD_TORCH_CHECK(tensor.scalar_type() == type, "sample_normal: expected another type of ", name);
  check_device(tensor, mean, name);
  return as_parameter(tensor, type);
}

// The same for what may be absent: data is null then.
Parameter as_bound(const std::optional<Tensor>& tensor, const Like& mean, ScalarType type, const char* name) {
  if (!tensor.has_value()) return {{nullptr, type, 0}};
  return as_parameter(*tensor, mean, type, name, true);
}

// What the noise of a call is made of: numbers, or tensors that replace them; and how.
struct Request {
  int64_t seed, generation;
  std::optional<Tensor> seeds, generations;
  bool shared, antithetic, dim_first;
};

// Of tensors like `like`, whose first `leading` dimensions are those of the batch. The tensors of `request`
// are made contiguous, and have to live as long as the result.
Noise make_noise(const Like& like, size_t leading, Request& request, int64_t samples, int64_t dimensions) {
  const Sizes batch(like.sizes.data(), leading);
  int64_t problems = 1;
  for (const int64_t size : batch) problems *= size;
  STD_TORCH_CHECK(request.generation >= 0 && static_cast<uint64_t>(request.generation) < kGenerations,
      "sample_normal: expected a generation in 0..2^38 - 1, got ", request.generation);
  STD_TORCH_CHECK(samples >= 0 && samples < int64_t{1} << 46 && dimensions < int64_t{1} << 44,
      "sample_normal: expected less than 2^46 samples and 2^44 dimensions, got ", samples, " and ",
      dimensions);
  STD_TORCH_CHECK(leading == 0 || (request.seeds.has_value() && request.seeds->sizes().equals(batch)),
      "sample_normal: expected a tensor of seeds of the batch shape");
  const auto numbers = [&](std::optional<Tensor>& tensor, int64_t count, const char* name) -> const int64_t* {
    if (!tensor.has_value()) return nullptr;
    STD_TORCH_CHECK(tensor->numel() == count && tensor->scalar_type() == ScalarType::Long,
        "sample_normal: expected ", name, " as ", count, " int64, got ", tensor->numel(),
        " numbers or another type");
    check_device(*tensor, like, name);
    if (!tensor->is_contiguous()) tensor = torch::stable::contiguous(*tensor);
    return const_data<int64_t>(*tensor);
  };
  return {static_cast<uint64_t>(request.seed), static_cast<uint64_t>(request.generation),
      numbers(request.seeds, problems, "the seed"), numbers(request.generations, 1, "the generation"),
      problems, samples, dimensions, request.shared, request.antithetic, request.dim_first};
}

// `like` has the sizes (..., d) of mean.
Tensor sample(const Like& like, Vector mean, Vector std, int64_t num_samples, Request request,
    ScalarType dtype, const std::optional<Tensor>& low, const std::optional<Tensor>& high) {
  const Parameter lows = as_bound(low, like, compute_type(dtype), "low"),
                  highs = as_bound(high, like, compute_type(dtype), "high");
  const size_t batch = like.sizes.size() - 1;
  const int64_t dimensions = like.sizes[batch];
  const Noise noise = make_noise(like, batch, request, num_samples, dimensions);
  const Tensor out = empty(like.device, dtype, like.sizes, batch,
      {noise.dim_first ? dimensions : num_samples, noise.dim_first ? num_samples : dimensions});
  if (noise.problems != 0 && dimensions != 0 && num_samples != 0) {
    draw(noise, mean, std, lows.vector, highs.vector, out);
  }
  return out;
}

Tensor sample_normal(const Tensor& mean, const Tensor& std, int64_t num_samples, int64_t seed,
    int64_t generation, std::optional<Tensor> seeds, std::optional<Tensor> generations, bool shared,
    bool antithetic, bool dim_first, ScalarType dtype, std::optional<Tensor> low,
    std::optional<Tensor> high) {
  const Like like(mean);
  STD_TORCH_CHECK(!like.sizes.empty(), "sample_normal: expected mean of a shape (..., d)");
  const ScalarType type = mean.scalar_type();
  const Parameter means = as_parameter(mean, type), stds = as_parameter(std, like, type, "std", false);
  return sample(like, means.vector, stds.vector, num_samples,
      {seed, generation, std::move(seeds), std::move(generations), shared, antithetic, dim_first}, dtype, low,
      high);
}

Tensor sample_normal_seeded(const Tensor& mean, const Tensor& std, int64_t num_samples, int64_t seed,
    int64_t generation, bool dim_first) {
  STD_TORCH_CHECK(seed >= 0, "sample_normal: expected a seed in 0..2^63 - 1, got ", seed);
  return sample_normal(
      mean, std, num_samples, seed, generation, {}, {}, false, false, dim_first, mean.scalar_type(), {}, {});
}

// Mean and standard deviation are the first two of rows (..., R, d).
Tensor sample_normal_rows(const Tensor& given, int64_t num_samples, const Tensor& seeds,
    const Tensor& generation, std::optional<Tensor> low, std::optional<Tensor> high) {
  const Tensor rows = dense(given);
  Like like(rows);
  const size_t batch = like.sizes.size() - 2;
  STD_TORCH_CHECK(like.sizes.size() >= 2 && batch < kMaxDimensions && like.sizes[batch] >= 2,
      "sample_normal: expected rows of a shape (..., R, d), R >= 2");
  const int64_t dimensions = like.sizes[batch + 1], stride = like.sizes[batch] * dimensions;
  int64_t sizes[kMaxDimensions];
  *std::copy_n(like.sizes.begin(), batch, sizes) = dimensions;
  like.sizes = Sizes(sizes, batch + 1);
  const ScalarType type = rows.scalar_type();
  const char* first = const_data<char>(rows);
  return sample(like, {first, type, stride}, {first + dimensions * rows.element_size(), type, stride},
      num_samples, {0, 0, seeds, generation, false, false, false}, type, low, high);
}

std::tuple<Tensor, Tensor> sample_normal_backward(const Tensor& grad, int64_t seed, int64_t generation,
    std::optional<Tensor> seeds, std::optional<Tensor> generations, bool shared, bool antithetic,
    bool dim_first) {
  const Tensor gradient = dense(grad);
  const Like like(grad);
  STD_TORCH_CHECK(like.sizes.size() >= 2, "sample_normal: expected a gradient of two dimensions or more");
  const size_t batch = like.sizes.size() - 2;
  const int64_t dimensions = like.sizes[dim_first ? batch : batch + 1],
                samples = like.sizes[dim_first ? batch + 1 : batch];
  Request request{seed, generation, std::move(seeds), std::move(generations), shared, antithetic, dim_first};
  const Noise noise = make_noise(like, batch, request, samples, dimensions);
  const ScalarType type = compute_type(grad.scalar_type());
  const Tensor of_mean = empty(like.device, type, like.sizes, batch, {dimensions}),
               of_std = empty(like.device, type, like.sizes, batch, {dimensions});
  if (of_mean.numel() != 0) sum_gradients(noise, gradient, of_mean, of_std);
  return {of_mean, of_std};
}

}  // namespace
}  // namespace cem_tetris::normal

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CEM_TETRIS_DEVICE, m) {
  m.impl("sample_normal", TORCH_BOX(&cem_tetris::normal::sample_normal));
  m.impl("sample_normal_no_grad", TORCH_BOX(&cem_tetris::normal::sample_normal));
  m.impl("sample_normal_seeded", TORCH_BOX(&cem_tetris::normal::sample_normal_seeded));
  m.impl("sample_normal_rows", TORCH_BOX(&cem_tetris::normal::sample_normal_rows));
  m.impl("sample_normal_backward", TORCH_BOX(&cem_tetris::normal::sample_normal_backward));
}
