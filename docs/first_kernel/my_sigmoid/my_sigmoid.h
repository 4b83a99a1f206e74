// What CPU and CUDA share: the functions of one element, and the operators on tensors.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include <cmath>
#include <tuple>

#ifdef __CUDACC__
#define DEVICE __device__
#else
#define DEVICE
#endif

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

struct Sigmoid {
  template <typename T>
  DEVICE T operator()(T x) const {
    const T e = exp(-fabs(x));
    return (x < T(0) ? e : T(1)) / (T(1) + e);
  }
};

struct SigmoidBackward {
  template <typename T>
  DEVICE T operator()(T grad, T y) const {
    return grad * (T(1) - y) * y;
  }
};

// Computes out[i] = f(in[i]...) for every i; my_sigmoid.cpp defines it for the CPU, my_sigmoid.cu
// for CUDA.
template <typename T, typename F, typename... In>
void map(F f, const Tensor& out, const In&... in);

template <typename F, typename... In>
Tensor apply(F f, const In&... in) {
  const Tensor first = std::get<0>(std::tie(in...));
  const bool is_one_size = ((in.numel() == first.numel()) && ...);
  const bool is_one_type = ((in.scalar_type() == first.scalar_type()) && ...);
  const bool is_one_device = ((in.is_cuda() == first.is_cuda()) && ...);
  STD_TORCH_CHECK(is_one_size && is_one_type && is_one_device,
      "my_sigmoid: expected tensors of one size, type and device");
  Tensor out = torch::stable::empty_like(first);
  if (out.numel() == 0) return out;
  if (first.scalar_type() == ScalarType::Float) {
    map<float>(f, out, in...);
  } else {
    STD_TORCH_CHECK(
        first.scalar_type() == ScalarType::Double, "my_sigmoid: expected float32 or float64");
    map<double>(f, out, in...);
  }
  return out;
}

Tensor forward(const Tensor& x) { return apply(Sigmoid{}, torch::stable::contiguous(x)); }

Tensor backward(const Tensor& grad, const Tensor& y) {
  return apply(
      SigmoidBackward{}, torch::stable::contiguous(grad), torch::stable::contiguous(y));
}

}  // namespace
