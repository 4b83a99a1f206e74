// The operators' arguments as the kernels want them; the Python functions have checked them for the user.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Exception.h>
#include <torch/headeronly/util/Half.h>

#include <cstdint>
#include <optional>

namespace cem_tetris::normal {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// A vector of one number a dimension, of any of the four types.
struct Vector {
  const void* data;
  ScalarType type;
};

// What the noise is made of.
struct Noise {
  uint64_t seed, generation;
  const int64_t* seed_data;  // where not null, the seed is there, in the memory of the device
  int64_t samples, dimensions;
  bool shared, antithetic, dim_first;
};

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

inline void check_device(const Tensor& tensor, const Tensor& like, const char* name) {
  STD_TORCH_CHECK(tensor.is_cuda() == like.is_cuda() && tensor.get_device_index() == like.get_device_index(),
                  "sample_normal: expected all tensors on one device, got ", name, " on another");
}

// A vector of a number a dimension, contiguous. The public function says more about what is wrong.
inline Tensor as_vector(const Tensor& tensor, const Tensor& mean, ScalarType type, const char* name) {
  STD_TORCH_CHECK(tensor.dim() == 1 && tensor.numel() == mean.numel(), "sample_normal: expected ", name,
                  " of ", mean.numel(), " elements, got ", tensor.numel());
  STD_TORCH_CHECK(tensor.scalar_type() == type, "sample_normal: expected another type of ", name);
  check_device(tensor, mean, name);
  return tensor.is_contiguous() ? tensor
                                : torch::stable::contiguous(tensor);  // a call that costs a microsecond
}

// An unset tensor on the device of `like`. new_empty does the same through the dispatcher, in a microsecond
// more.
inline Tensor empty(const Tensor& like, int64_t rows, int64_t columns, ScalarType type) {
  const int64_t sizes[] = {rows, columns}, strides[] = {columns > 0 ? columns : 1, 1};
  int32_t device_type = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device_type));
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(2, sizes, strides, static_cast<int32_t>(type), device_type,
                                                  like.get_device_index(), &handle));
  return Tensor(handle);
}

inline Vector vector_of(const Tensor& tensor) { return {tensor.const_data_ptr(), tensor.scalar_type()}; }

inline Noise make_noise(const Tensor& like, const std::optional<Tensor>& seed_tensor, int64_t seed,
                        int64_t generation, int64_t samples, int64_t dimensions, bool shared, bool antithetic,
                        bool dim_first) {
  STD_TORCH_CHECK(generation >= 0 && generation < int64_t{1} << 38,
                  "sample_normal: expected a generation in 0..2^38 - 1, got ", generation);
  STD_TORCH_CHECK(samples >= 0 && samples < int64_t{1} << 46 && dimensions < int64_t{1} << 44,
                  "sample_normal: expected less than 2^46 samples and 2^44 dimensions, got ", samples,
                  " and ", dimensions);
  const int64_t* data = nullptr;
  if (seed_tensor.has_value()) {
    STD_TORCH_CHECK(seed_tensor->numel() == 1 && seed_tensor->scalar_type() == ScalarType::Long,
                    "sample_normal: expected a seed tensor of one int64");
    check_device(*seed_tensor, like, "the seed");
    data = static_cast<const int64_t*>(seed_tensor->const_data_ptr());
  }
  return {static_cast<uint64_t>(seed),
          static_cast<uint64_t>(generation),
          data,
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
