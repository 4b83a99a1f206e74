// The sampler of A. Kompella's article "Custom CUDA Extensions" (2024), written again from its description,
// with which scripts/measure/sampling.py compares.
//
// A block has a dimension and a thread a sample, so there are at most 1,024 samples. One noise value, which
// torch draws before, is shared by all dimensions of a sample. The result is filled with zeros first. The
// article launches on the default stream; here it is PyTorch's current one, so that a CUDA graph can hold it.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <array>

#include "gpu.cuh"

namespace {

using torch::stable::Tensor;
using torch::stable::detail::from;

__global__ void sample_kernel(
    const float* mean, const float* std, const float* noise, float* out) {
  const int64_t dimension = blockIdx.x, sample = threadIdx.x;
  out[dimension * blockDim.x + sample] = mean[dimension] + std[dimension] * noise[sample];
}

// torch.randn is an empty tensor and this operator.
void fill_normal(const Tensor& noise) {
  std::array<StableIValue, 4> stack{from(noise), from(0.0), from(1.0), from(std::nullopt)};
  TORCH_ERROR_CODE_CHECK(
      torch_call_dispatcher("aten::normal_", "", stack.data(), TORCH_ABI_VERSION));
  torch::stable::detail::to<Tensor>(stack[0]);
}

// Mean and std have shape (d,), float32; the result has shape (d, N).
Tensor sample(const Tensor& mean, const Tensor& std, int64_t samples) {
  STD_TORCH_CHECK(samples > 0 && samples <= 1024, "expected 1 to 1024 samples, got ", samples);
  const cem_tetris::Gpu gpu{cem_tetris::Device(mean)};
  const Tensor out = torch::stable::new_zeros(mean, {mean.size(0), samples});
  const Tensor noise = torch::stable::new_empty(mean, {samples});
  fill_normal(noise);
  const auto data = [](const Tensor& tensor) {
    return static_cast<const float*>(tensor.const_data_ptr());
  };
  sample_kernel<<<static_cast<unsigned>(mean.size(0)), static_cast<unsigned>(samples), 0,
      gpu.stream>>>(
      data(mean), data(std), data(noise), static_cast<float*>(out.mutable_data_ptr()));
  cem_tetris::check(cudaGetLastError());
  return out;
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(cem_tetris_article, m) {
  m.def("sample(Tensor mean, Tensor std, int num_samples) -> Tensor");
}
STABLE_TORCH_LIBRARY_IMPL(cem_tetris_article, CUDA, m) { m.impl("sample", TORCH_BOX(&sample)); }
