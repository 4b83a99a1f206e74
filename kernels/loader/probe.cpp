// The smallest operator there is. The doctor builds, loads and calls it to see whether a build works here.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

using torch::stable::Tensor;

Tensor twice_cpu(const Tensor& x) {
  STD_TORCH_CHECK(x.scalar_type() == torch::headeronly::ScalarType::Float, "twice: expected float32");
  const Tensor input = torch::stable::contiguous(x);
  Tensor output = torch::stable::empty_like(input);
  const float* in = static_cast<const float*>(input.const_data_ptr());
  float* out = static_cast<float*>(output.mutable_data_ptr());
  for (int64_t i = 0; i < input.numel(); ++i) out[i] = 2.0f * in[i];
  return output;
}

STABLE_TORCH_LIBRARY_FRAGMENT(cem_tetris_probe, m) { m.def("twice(Tensor x) -> Tensor"); }

STABLE_TORCH_LIBRARY_IMPL(cem_tetris_probe, CPU, m) { m.impl("twice", TORCH_BOX(&twice_cpu)); }
