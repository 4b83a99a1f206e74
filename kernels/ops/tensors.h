// Functions for tensors that the host code of all operators uses. They call torch's stable C
// interface.
#pragma once

#include <torch/csrc/stable/c/shim.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/DeviceType.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Exception.h>
#include <torch/headeronly/util/Half.h>
#include <torch/headeronly/util/HeaderOnlyArrayRef.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <string>
#include <type_traits>

#include "host_device.h"

// The device whose library is compiled; every operator has a library for each device. An op.h
// registers its operators with `_IMPL(cem_tetris, CEM_TETRIS_DEVICE, m)`.
#ifdef __CUDACC__
#define CEM_TETRIS_DEVICE CUDA
#else
#define CEM_TETRIS_DEVICE CPU
#endif

namespace cem_tetris {

using torch::headeronly::BFloat16;
using torch::headeronly::Half;
using torch::headeronly::ScalarType;
using torch::headeronly::toString;
using torch::stable::parallel_for;
using torch::stable::Tensor;
using Sizes = torch::headeronly::IntHeaderOnlyArrayRef;

constexpr int kMaxDimensions = 64;  // a tensor of torch has at most this many dimensions

// The type in which numbers of type T are computed. The 16-bit floats are computed in float,
// which has more than twice their bits. So a sum or product that is rounded to float and then
// to 16 bits equals one that is rounded once. Small integers are computed in uint32_t, so that
// their arithmetic wraps; C++ would promote them to a signed type.
template <typename T>
using compute_t =
    std::conditional_t<std::is_integral_v<T>, std::conditional_t<sizeof(T) < 4, uint32_t, T>,
        std::conditional_t<std::is_same_v<T, double>, double, float>>;

// Calls f(T{}) with the C++ type T of a tensor's elements, and returns its result. Raises an
// error unless the type is one of torch's four floating-point types. The error message contains
// `name`, the name of the operator, and `types`, the types that the operator takes.
template <typename F>
void visit_floating(const char* name, ScalarType type, const F& f,
    const char* types = "Float, Double, Half or BFloat16") {
  switch (type) {
    case ScalarType::Double: return f(double{});
    case ScalarType::Float: return f(float{});
    case ScalarType::Half: return f(Half{});
    case ScalarType::BFloat16: return f(BFloat16{});
    default:
      STD_TORCH_CHECK(
          false, name, ": expected tensors of type ", types, ", got ", toString(type));
  }
}

// Returns the type of a tensor. Raises an error unless it is float32 or float64.
inline ScalarType real_type(const Tensor& tensor, const char* name) {
  ScalarType type = tensor.scalar_type();
  STD_TORCH_CHECK(type == ScalarType::Float || type == ScalarType::Double, "expected ", name,
      " of type Float or Double, got ", toString(type));
  return type;
}

// The device of a tensor. A query goes through the C interface, so its result is stored.
struct Device {
  int32_t type = -1, index;

  explicit Device(const Tensor& tensor) : index(tensor.get_device_index()) {
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &type));
  }
  // Returns whether tensors on this device have no data. Operators then only check their
  // arguments.
  bool is_meta() const { return type == int32_t(torch::headeronly::DeviceType::Meta); }
  bool operator==(const Device& other) const {
    return type == other.type && index == other.index;
  }
};

// Returns a contiguous tensor with unset elements. Its shape consists of the first `leading`
// numbers of `sizes`, followed by all numbers of `more`. The function calls torch's C interface
// directly, because torch::stable::empty would go through the dispatcher, which takes as long
// as a small kernel.
inline Tensor empty(Device device, ScalarType type, Sizes sizes, size_t leading,
    std::initializer_list<int64_t> more = {}) {
  int64_t count = int64_t(leading + more.size());  // the number of dimensions
  STD_TORCH_CHECK(
      count <= kMaxDimensions, "expected at most ", kMaxDimensions, " dimensions, got ", count);
  int64_t size[kMaxDimensions];
  int64_t stride[kMaxDimensions];
  int64_t* leading_end = std::copy_n(sizes.begin(), leading, size);
  std::copy(more.begin(), more.end(), leading_end);
  // The last dimension has the stride 1. The stride of every other dimension is the product of
  // the sizes after it. A size of 0 counts as 1, as in PyTorch.
  int64_t next_stride = 1;
  for (int64_t i = count - 1; i >= 0; --i) {
    stride[i] = next_stride;
    next_stride *= std::max<int64_t>(size[i], 1);
  }
  AtenTensorHandle result = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(
      count, size, stride, int32_t(type), device.type, device.index, &result));
  return Tensor(result);
}

inline Tensor empty(Device device, ScalarType type, std::initializer_list<int64_t> sizes) {
  return empty(device, type, {}, 0, sizes);
}

// Returns the same with the device and the type of the tensor `like`.
inline Tensor empty(const Tensor& like, std::initializer_list<int64_t> sizes) {
  return empty(Device(like), like.scalar_type(), sizes);
}

// Returns an unset contiguous tensor with the shape, type and device of `like`.
inline Tensor empty_as(const Tensor& like) {
  return empty(Device(like), like.scalar_type(), like.sizes(), like.sizes().size());
}

// Returns the tensor, or a contiguous copy if it is not contiguous. The check saves a call of
// torch::stable::contiguous, which costs a microsecond.
inline Tensor dense(const Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : contiguous(tensor);
}

template <typename T>
const T* const_data(const Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}

// Returns the data of the tensor, or null if there is no tensor.
template <typename T>
const T* const_data(const std::optional<Tensor>& tensor) {
  return tensor.has_value() ? const_data<T>(*tensor) : nullptr;
}

template <typename T>
T* mutable_data(const Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

// Returns `sizes`, followed by `more`, as the text of a Python tuple, such as "(3, 2)". A
// single number has no comma: "(2)".
inline std::string text_of(Sizes sizes, Sizes more = {}) {
  std::string text = "(";
  for (const Sizes part : {sizes, more}) {
    for (const int64_t size : part)
      text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  }
  return text + ")";
}

// The problems of a call, which are the entries of its batch: their device and the batch
// dimensions. The shape of nearly every tensor of a call begins with the batch dimensions.
struct Problems {
  Device device;
  Sizes sizes;

  // The last `own_dimensions` dimensions of `tensor` belong to each problem, and all dimensions
  // before them are the batch dimensions. `shape` is the expected shape, for the error message.
  Problems(const Tensor& tensor, size_t own_dimensions, const char* shape)
      : device(tensor), sizes(tensor.sizes().data(), tensor.sizes().size() - own_dimensions) {
    STD_TORCH_CHECK(tensor.sizes().size() >= own_dimensions, "expected ", shape, ", got ",
        text_of(tensor.sizes()));
  }
  Problems(Device device, Sizes sizes) : device(device), sizes(sizes) {}

  int64_t count() const {
    return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<int64_t>());
  }
  // Returns an unset tensor whose shape is the batch dimensions followed by own_sizes.
  Tensor empty(ScalarType type, std::initializer_list<int64_t> own_sizes) const {
    return cem_tetris::empty(device, type, sizes, sizes.size(), own_sizes);
  }
  // Raises an error unless a tensor has the expected shape, type and device. The expected shape
  // consists of the batch dimensions of this call (`sizes`), followed by own_sizes, the sizes
  // that every problem has. If has_batch is false, all problems share the tensor, and its shape
  // is own_sizes alone. `name` is the tensor's name in the error message.
  void require(const Tensor& tensor, const char* name, ScalarType type,
      std::initializer_list<int64_t> own_sizes, bool has_batch = true) const {
    const Sizes got = tensor.sizes();
    const Sizes leading = has_batch ? sizes : Sizes();
    bool has_rank = got.size() == leading.size() + own_sizes.size();
    bool has_shape =
        has_rank && std::equal(leading.begin(), leading.end(), got.begin()) &&
        std::equal(own_sizes.begin(), own_sizes.end(), got.begin() + leading.size());
    STD_TORCH_CHECK(has_shape, "expected ", name, " of shape ",
        text_of(leading, {own_sizes.begin(), own_sizes.size()}), ", got ", text_of(got));
    STD_TORCH_CHECK(tensor.scalar_type() == type, "expected ", name, " of type ",
        toString(type), ", got ", toString(tensor.scalar_type()));
    STD_TORCH_CHECK(Device(tensor) == device, "expected all tensors on one device, got ", name,
        " on another");
  }
  // Checks a tensor with require(), and returns it, or a contiguous copy.
  Tensor check(const Tensor& tensor, const char* name, ScalarType type,
      std::initializer_list<int64_t> own_sizes, bool has_batch = true) const {
    require(tensor, name, type, own_sizes, has_batch);
    return dense(tensor);
  }
  // Checks an optional tensor of one number for each dimension, and makes it contiguous. It has
  // a row for every problem, or a single row for all. Returns the stride from one problem's row
  // to the next one's: 0 if there is a single row or no tensor.
  int64_t check_row(
      std::optional<Tensor>& row, const char* name, ScalarType type, int64_t dimensions) const {
    if (!row.has_value()) return 0;
    bool has_batch = row->dim() > 1;
    row = check(*row, name, type, {dimensions}, has_batch);
    return has_batch ? dimensions : 0;
  }
};

}  // namespace cem_tetris
