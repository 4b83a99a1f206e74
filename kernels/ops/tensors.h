// What every operator's code on the host does with tensors, through torch's stable C interface.
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

// Which of an operator's two libraries is compiled: an op.h says `_IMPL(cem_tetris,
// CEM_TETRIS_DEVICE, m)`.
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

constexpr int kMaxDimensions = 64;  // torch has no tensors of more

// The type that numbers are computed in: float for the 16-bit floats (float has more than twice
// their bits, so that a sum or product rounded twice is what one rounding gives), and for the
// small integers, whose arithmetic wraps, an unsigned one that C++ does not promote to a signed
// one.
template <typename T>
using compute_t =
    std::conditional_t<std::is_integral_v<T>, std::conditional_t<sizeof(T) < 4, uint32_t, T>,
        std::conditional_t<std::is_same_v<T, double>, double, float>>;

// Calls f(T{}) with the C++ type T for the element type of a tensor, and returns its result;
// raises an error if that is not one of torch's four floating-point types. name: the operator,
// and types: the types that it takes, as the error names them.
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

// Returns the type of a tensor, which has to be float32 or float64.
inline ScalarType real_type(const Tensor& tensor, const char* name) {
  ScalarType type = tensor.scalar_type();
  STD_TORCH_CHECK(type == ScalarType::Float || type == ScalarType::Double, "expected ", name,
      " of type Float or Double, got ", toString(type));
  return type;
}

// Where a tensor is. Each question goes through the C interface, so it is asked once.
struct Device {
  int32_t type = -1, index;

  explicit Device(const Tensor& tensor) : index(tensor.get_device_index()) {
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &type));
  }
  // Whether tensors have no data: then the arguments are checked, and nothing is computed.
  bool is_meta() const { return type == int32_t(torch::headeronly::DeviceType::Meta); }
  bool operator==(const Device& other) const {
    return type == other.type && index == other.index;
  }
};

// Returns a contiguous tensor with unset elements, whose sizes are the first `leading` of
// `sizes` followed by `more`. It calls torch's C interface: torch::stable::empty does the same
// through the dispatcher, which takes as long as a small kernel.
inline Tensor empty(Device device, ScalarType type, Sizes sizes, size_t leading,
    std::initializer_list<int64_t> more = {}) {
  int64_t count = int64_t(leading + more.size());
  STD_TORCH_CHECK(
      count <= kMaxDimensions, "expected at most ", kMaxDimensions, " dimensions, got ", count);
  int64_t size[kMaxDimensions];
  int64_t stride[kMaxDimensions];
  int64_t* size_end = std::copy_n(sizes.begin(), leading, size);
  std::copy(more.begin(), more.end(), size_end);
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

// The same on the device and of the type of a tensor.
inline Tensor empty(const Tensor& like, std::initializer_list<int64_t> sizes) {
  return empty(Device(like), like.scalar_type(), sizes);
}

// Returns an unset contiguous tensor of the same size, type and device.
inline Tensor empty_as(const Tensor& like) {
  return empty(Device(like), like.scalar_type(), like.sizes(), like.sizes().size());
}

// Returns a tensor contiguous. A call of `torch::stable::contiguous` costs a microsecond.
inline Tensor dense(const Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : torch::stable::contiguous(tensor);
}

template <typename T>
const T* const_data(const Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}

// Returns null where there is no tensor.
template <typename T>
const T* const_data(const std::optional<Tensor>& tensor) {
  return tensor.has_value() ? const_data<T>(*tensor) : nullptr;
}

template <typename T>
T* mutable_data(const Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

// Returns sizes as Python writes a tuple, but "(2)" for one number.
inline std::string text_of(Sizes sizes, Sizes more = {}) {
  std::string text = "(";
  for (const Sizes part : {sizes, more}) {
    for (const int64_t size : part)
      text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  }
  return text + ")";
}

// The problems of a call: a device, and the batch dimensions, which come first in nearly all of
// its tensors.
struct Problems {
  Device device;
  Sizes sizes;

  // The batch dimensions are those of a tensor but for the last `more`; shape: what it should
  // have.
  Problems(const Tensor& tensor, size_t more, const char* shape)
      : device(tensor), sizes(tensor.sizes().data(), tensor.sizes().size() - more) {
    STD_TORCH_CHECK(
        tensor.sizes().size() >= more, "expected ", shape, ", got ", text_of(tensor.sizes()));
  }
  Problems(Device device, Sizes sizes) : device(device), sizes(sizes) {}

  int64_t count() const {
    return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<int64_t>());
  }
  // Returns an unset tensor of the batch dimensions, then `more`.
  Tensor empty(ScalarType type, std::initializer_list<int64_t> more) const {
    return cem_tetris::empty(device, type, sizes, sizes.size(), more);
  }
  // Raises an error unless a tensor has the expected shape, type and device: the shape is the
  // batch dimensions of this call (`sizes`) followed by `more`, or only `more` without
  // has_batch. name: what the error calls the tensor.
  void require(const Tensor& tensor, const char* name, ScalarType type,
      std::initializer_list<int64_t> more, bool has_batch = true) const {
    const Sizes got = tensor.sizes();
    const Sizes leading = has_batch ? sizes : Sizes();
    bool has_rank = got.size() == leading.size() + more.size();
    bool has_shape = has_rank && std::equal(leading.begin(), leading.end(), got.begin()) &&
                     std::equal(more.begin(), more.end(), got.begin() + leading.size());
    STD_TORCH_CHECK(has_shape, "expected ", name, " of shape ",
        text_of(leading, {more.begin(), more.size()}), ", got ", text_of(got));
    STD_TORCH_CHECK(tensor.scalar_type() == type, "expected ", name, " of type ",
        toString(type), ", got ", toString(tensor.scalar_type()));
    STD_TORCH_CHECK(Device(tensor) == device, "expected all tensors on one device, got ", name,
        " on another");
  }
  // Checks a tensor in this way, and returns it contiguous.
  Tensor check(const Tensor& tensor, const char* name, ScalarType type,
      std::initializer_list<int64_t> more, bool has_batch = true) const {
    require(tensor, name, type, more, has_batch);
    return dense(tensor);
  }
  // Checks an optional row of one number for each dimension, for each problem or for all. Makes
  // it contiguous, and returns the stride from one problem's row to the next one's, or 0.
  int64_t check_row(
      std::optional<Tensor>& row, const char* name, ScalarType type, int64_t dimensions) const {
    if (!row.has_value()) return 0;
    bool has_batch = row->dim() > 1;
    row = check(*row, name, type, {dimensions}, has_batch);
    return has_batch ? dimensions : 0;
  }
};

}  // namespace cem_tetris
