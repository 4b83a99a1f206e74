// The operators' arguments as the kernels want them; the Python functions have checked them for the user.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Exception.h>
#include <torch/headeronly/util/Half.h>
#include <torch/headeronly/util/HeaderOnlyArrayRef.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>

namespace cem_tetris::normal {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using Sizes = torch::headeronly::IntHeaderOnlyArrayRef;

// One number a dimension and problem, of any of the four types. The dimensions of a problem are neighbours in
// memory, `stride` numbers lie between problems.
struct Vector {
  const void* data;
  ScalarType type;
  int64_t stride;
};

// What the noise is made of.
struct Noise {
  uint64_t seed, generation;
  const int64_t* seed_data;        // where not null, the seeds are there, one a problem
  const int64_t* generation_data;  // where not null, the generation is there
  int64_t problems, samples, dimensions;
  bool shared, antithetic, dim_first;
};

constexpr uint64_t kGenerations = uint64_t{1} << 38;
constexpr int64_t kMost = 64;  // dimensions of a tensor

// The type that the numbers are computed in.
template <typename T>
struct ComputeType {
  using type = float;
};
template <>
struct ComputeType<double> {
  using type = double;
};

// The type that the samples and gradients of a type are computed in.
inline ScalarType compute_type(ScalarType type) {
  return type == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
}

// A tensor and what is asked of it more than once, for each question goes through torch's C interface.
struct Known {
  const Tensor& tensor;
  Sizes sizes;
  int32_t device_type, device_index;

  explicit Known(const Tensor& given)
      : tensor(given), sizes(given.sizes()), device_type(-1), device_index(given.get_device_index()) {
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(given.get(), &device_type));
  }
};

inline void check_device(const Known& tensor, const Known& like, const char* name) {
  STD_TORCH_CHECK(tensor.device_type == like.device_type && tensor.device_index == like.device_index,
                  "sample_normal: expected all tensors on one device, got ", name, " on another");
}

// The numbers from one problem to the next; -1 where the tensor has to be copied first.
inline int64_t problem_stride(Sizes sizes, Sizes strides) {
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

inline Parameter as_parameter(const Known& known, ScalarType type) {
  const Tensor& tensor = known.tensor;
  const int64_t stride = problem_stride(known.sizes, tensor.strides());
  if (stride >= 0) return {{tensor.const_data_ptr(), type, stride}};
  Tensor copy = torch::stable::contiguous(tensor);  // a call that costs a microsecond
  const Vector vector{copy.const_data_ptr(), type, problem_stride(copy.sizes(), copy.strides())};
  return {vector, std::move(copy)};
}

// The same of a tensor beside the mean, of its shape, or (d,) for all problems where `for_all`. The public
// function says more about what is wrong.
inline Parameter as_parameter(const Tensor& tensor, const Known& mean, ScalarType type, const char* name,
                              bool for_all = false) {
  const Known known(tensor);
  const Sizes sizes = known.sizes, expected = mean.sizes;
  const size_t skipped = expected.size() - std::min(expected.size(), sizes.size());
  STD_TORCH_CHECK(!sizes.empty() && (skipped == 0 || (for_all && sizes.size() == 1)) &&
                      std::equal(sizes.begin(), sizes.end(), expected.begin() + skipped, expected.end()),
                  "sample_normal: expected ", name, " of the shape (..., d) of mean");
  STD_TORCH_CHECK(tensor.scalar_type() == type, "sample_normal: expected another type of ", name);
  check_device(known, mean, name);
  return as_parameter(known, type);
}

// The same for what may be absent: data is null then.
inline Parameter as_bound(const std::optional<Tensor>& tensor, const Known& mean, ScalarType type,
                          const char* name) {
  if (!tensor.has_value()) return {{nullptr, type, 0}};
  return as_parameter(*tensor, mean, type, name, true);
}

// An unset tensor of the batch dimensions of `like`, its first `leading` ones, and the given ones. new_empty
// does the same through the dispatcher, in a microsecond more.
inline Tensor empty(const Known& like, int64_t leading, std::initializer_list<int64_t> shape,
                    ScalarType type) {
  const int64_t count = leading + static_cast<int64_t>(shape.size());
  STD_TORCH_CHECK(count <= kMost, "sample_normal: expected less than ", kMost - 1, " batch dimensions");
  int64_t sizes[kMost], strides[kMost], stride = 1;
  std::copy(shape.begin(), shape.end(), std::copy_n(like.sizes.begin(), leading, sizes));
  for (int64_t i = count - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= sizes[i] > 0 ? sizes[i] : 1;
  }
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(count, sizes, strides, static_cast<int32_t>(type),
                                                  like.device_type, like.device_index, &handle));
  return Tensor(handle);
}

// Where the seeds and the generation come from: numbers, or tensors that replace them.
struct Origin {
  int64_t seed = 0, generation = 0;
  std::optional<Tensor> seed_tensor = std::nullopt, generation_tensor = std::nullopt;
};

// Of tensors like `like`, whose first `leading` dimensions are those of the batch. The tensors of `origin`
// are made contiguous, and have to live as long as the result.
inline Noise make_noise(const Known& like, int64_t leading, Origin& origin, int64_t samples,
                        int64_t dimensions, bool shared, bool antithetic, bool dim_first) {
  const Sizes batch(like.sizes.data(), leading);
  int64_t problems = 1;
  for (const int64_t size : batch) problems *= size;
  STD_TORCH_CHECK(origin.generation >= 0 && static_cast<uint64_t>(origin.generation) < kGenerations,
                  "sample_normal: expected a generation in 0..2^38 - 1, got ", origin.generation);
  STD_TORCH_CHECK(samples >= 0 && samples < int64_t{1} << 46 && dimensions < int64_t{1} << 44,
                  "sample_normal: expected less than 2^46 samples and 2^44 dimensions, got ", samples,
                  " and ", dimensions);
  const auto data = [&](std::optional<Tensor>& tensor, int64_t count, const char* name) -> const int64_t* {
    if (!tensor.has_value()) return nullptr;
    STD_TORCH_CHECK(tensor->numel() == count && tensor->scalar_type() == ScalarType::Long,
                    "sample_normal: expected ", name, " as ", count, " int64, got ", tensor->numel(),
                    " numbers or another type");
    check_device(Known(*tensor), like, name);
    if (!tensor->is_contiguous()) tensor = torch::stable::contiguous(*tensor);
    return static_cast<const int64_t*>(tensor->const_data_ptr());
  };
  STD_TORCH_CHECK(origin.seed_tensor.has_value() || leading == 0,
                  "sample_normal: expected a tensor of seeds, one a problem");
  STD_TORCH_CHECK(leading == 0 || origin.seed_tensor->sizes().equals(batch),
                  "sample_normal: expected seeds of the batch shape");
  const int64_t* seeds = data(origin.seed_tensor, problems, "the seed");
  return {static_cast<uint64_t>(origin.seed),
          static_cast<uint64_t>(origin.generation),
          seeds,
          data(origin.generation_tensor, 1, "the generation"),
          problems,
          samples,
          dimensions,
          shared,
          antithetic,
          dim_first};
}

// Calls f(T{}) with the C++ type of a floating type.
template <typename F>
void dispatch(ScalarType type, F&& f) {
  switch (type) {
    case ScalarType::Float:
      return f(float{});
    case ScalarType::Double:
      return f(double{});
    case ScalarType::Half:
      return f(torch::headeronly::Half{});
    case ScalarType::BFloat16:
      return f(torch::headeronly::BFloat16{});
    default:
      STD_TORCH_CHECK(false, "sample_normal: expected float64, float32, float16 or bfloat16");
  }
}

}  // namespace cem_tetris::normal
