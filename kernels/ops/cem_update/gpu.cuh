// The update on a GPU: launch.cuh, on the current stream.
#pragma once

#include "common.cuh"
#include "launch.cuh"

namespace cem_tetris::update {
namespace {

struct Gpu {
  int multiprocessors;
  cudaStream_t stream;

  template <typename... Parameters, typename... Given>
  void launch(void (*kernel)(Parameters...), int64_t blocks, int threads, int64_t bytes,
              const Given&... arguments) const {
    kernel<<<static_cast<unsigned>(blocks), threads, bytes, stream>>>(arguments...);
    STD_CUDA_KERNEL_LAUNCH_CHECK();
  }
  template <typename... Parameters, typename... Given>
  void launch_early(void (*kernel)(Parameters...), int64_t blocks, int threads, int64_t bytes,
                    const Given&... arguments) const {
    cem_tetris::launch_early(kernel, dim3(static_cast<unsigned>(blocks)), threads, bytes, stream,
                             arguments...);
  }
  void zero(void* memory, int64_t bytes) const { STD_CUDA_CHECK(cudaMemsetAsync(memory, 0, bytes, stream)); }
};

// The whole operator.
void run(const Arguments& arguments) {
  const int device = arguments.fitness.get_device_index();
  const DeviceGuard guard(device);
  launch(Gpu{multiprocessors(device), current_stream(arguments.fitness)}, arguments);
}

}  // namespace
}  // namespace cem_tetris::update
