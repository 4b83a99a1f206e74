// The checks of tensors that all operators share.
#pragma once

#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include "lanes_scalar.h"

namespace tetris {

using torch::headeronly::ScalarType;
using namespace torch::stable;

// Raises an error unless a tensor has this type and this number of elements, is contiguous, and
// is on the device of `like`.
inline void check_tensor(const Tensor& tensor, ScalarType type, int64_t numbers,
    const Tensor& like, const char* name) {
  bool is_same_device = tensor.is_cuda() == like.is_cuda() &&
                        tensor.get_device_index() == like.get_device_index();
  STD_TORCH_CHECK(tensor.scalar_type() == type && tensor.is_contiguous() &&
                      tensor.numel() == numbers && is_same_device,
      "expected ", name,
      " of the documented type and shape, contiguous and on the device of the others");
}

// Raises an error unless the engines can play on boards of this size.
inline void check_board(int64_t width, int64_t height) {
  STD_TORCH_CHECK(width >= 4 && width <= MAX_WIDTH && height >= 4 && height <= MAX_HEIGHT,
      "expected a board of 4..10 x 4..24, got ", width, " x ", height);
}

// Return the numbers of an int32 tensor as unsigned words. PyTorch does not support tensors of
// unsigned words on all devices.
inline const uint32_t* words_of(const Tensor& tensor) {
  return reinterpret_cast<const uint32_t*>(tensor.const_data_ptr<int32_t>());
}
inline uint32_t* mutable_words_of(const Tensor& tensor) {
  return reinterpret_cast<uint32_t*>(tensor.mutable_data_ptr<int32_t>());
}

}  // namespace tetris
