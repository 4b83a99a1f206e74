// The memory of tensors that have the same layout without gaps. An operator is a function
// object with
//     template <typename A, ...> void operator()(const A (&in)[kIn], A (&out)[kOut]) const
// for one element of every tensor. A is compute_t<T> for tensors of T.
#pragma once

#include "tensors.h"

namespace cem_tetris {

// kIn inputs and kOut outputs of `size` elements each.
template <typename T, int kIn, int kOut>
struct Elements {
  const T* in[kIn];
  T* out[kOut];
  int64_t size;
};

}  // namespace cem_tetris
