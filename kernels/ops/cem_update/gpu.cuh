// The update on a GPU: launch.cuh, on the current stream.
#pragma once

#include "common.cuh"
#include "launch.cuh"

namespace cem_tetris::update {
namespace {

// The current device until it goes out of scope.
struct Gpu {
  int32_t index;
  DeviceGuard guard;
  int multiprocessors;
  cudaStream_t stream;

  explicit Gpu(Device device)
      : index(device.index),
        guard(index),
        multiprocessors(cem_tetris::multiprocessors(index)),
        stream(current_stream(index)) {}
  template <typename... Parameters, typename... Given> void launch(void (*kernel)(Parameters...),
      int64_t blocks, int threads, int64_t bytes, const Given&... arguments) const {
    kernel<<<static_cast<unsigned>(blocks), threads, bytes, stream>>>(arguments...);
    STD_CUDA_KERNEL_LAUNCH_CHECK();
  }
  template <typename... Parameters, typename... Given> void launch_early(void (*kernel)(Parameters...),
      int64_t blocks, int threads, int64_t bytes, const Given&... arguments) const {
    cem_tetris::launch_early(
        kernel, dim3(static_cast<unsigned>(blocks)), threads, bytes, stream, arguments...);
  }
  void zero(void* memory, int64_t bytes) const { STD_CUDA_CHECK(cudaMemsetAsync(memory, 0, bytes, stream)); }
  // Whether a kernel may have so much shared memory, which it is then given.
  template <typename Kernel> bool gives(Kernel* kernel, int64_t bytes) const {
    int most = 0;
    STD_CUDA_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, index));
    if (bytes > most - 256) return false;  // what is static is beside it
    STD_CUDA_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
    return true;
  }
};

// The whole operator.
void run(const Job& job, ScalarType type, Device device) { launch(Gpu(device), job, type, device); }

}  // namespace
}  // namespace cem_tetris::update
