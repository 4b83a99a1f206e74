// The smallest operator of the stable ABI, for the tests of the loader.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

using torch::stable::Tensor;

Tensor twice(const Tensor& x) {
  Tensor output = torch::stable::empty_like(x);
  const float* in = static_cast<const float*>(x.const_data_ptr());
  float* out = static_cast<float*>(output.mutable_data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) out[i] = 2.0f * in[i];
  return output;
}

STABLE_TORCH_LIBRARY_FRAGMENT(cem_test_twice, m) { m.def("twice(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(cem_test_twice, CPU, m) { m.impl("twice", TORCH_BOX(&twice)); }
