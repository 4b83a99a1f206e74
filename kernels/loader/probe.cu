// The CUDA side of probe.cpp: nvcc, the runtime library, the driver and the stream all have to work for it.

#include <cuda_runtime.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/macros.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

using torch::stable::Tensor;

// One thread an element; bound by launch latency at the sizes it is called with.
__global__ void twice_kernel(const float* in, float* out, int64_t size) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < size) out[i] = 2.0f * in[i];
}

Tensor twice_cuda(const Tensor& x) {
  STD_TORCH_CHECK(x.scalar_type() == torch::headeronly::ScalarType::Float, "twice: expected float32");
  const Tensor input = torch::stable::contiguous(x);
  Tensor output = torch::stable::empty_like(input);
  const int64_t size = input.numel();
  if (size == 0) return output;
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(input.get_device_index(), &stream));
  constexpr int kThreads = 256;
  const unsigned blocks = static_cast<unsigned>((size + kThreads - 1) / kThreads);
  twice_kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<const float*>(input.const_data_ptr()), static_cast<float*>(output.mutable_data_ptr()), size);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  return output;
}

STABLE_TORCH_LIBRARY_IMPL(cem_tetris_probe, CUDA, m) { m.impl("twice", TORCH_BOX(&twice_cuda)); }
