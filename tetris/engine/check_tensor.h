// What all operators ask of their tensors.
#pragma once

#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

namespace tetris {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// That a tensor has the documented type and so many numbers, side by side, on the device of another one.
inline void check_tensor(const Tensor& tensor, ScalarType type, int64_t numbers,
    const Tensor& like, const char* name) {
  STD_TORCH_CHECK(tensor.scalar_type() == type && tensor.is_contiguous() &&
                      tensor.numel() == numbers && tensor.is_cuda() == like.is_cuda() &&
                      tensor.get_device_index() == like.get_device_index(),
      "expected ", name,
      " of the documented type and shape, contiguous and on the device of the others");
}

}  // namespace tetris
