// The update on a GPU: launch.cuh, on the current stream.
#pragma once

#include "common.cuh"
#include "launch.cuh"

namespace cem_tetris::update {
namespace {

struct Gpu {
  int multiprocessors;
  cudaStream_t stream;

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
};

// The whole operator.
void run(const Job& job, ScalarType type, Device device) {
  const DeviceGuard guard(device.index);
  launch(Gpu{multiprocessors(device.index), current_stream(device.index)}, job, type, device);
}

}  // namespace
}  // namespace cem_tetris::update
