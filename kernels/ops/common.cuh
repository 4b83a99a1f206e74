// What the CUDA side of every operator needs: the stream, the device guard, 16-byte accesses. A
// launch has a DeviceGuard, current_stream and STD_CUDA_KERNEL_LAUNCH_CHECK; it waits for nothing, so that a
// CUDA graph can capture it.
#pragma once

#include <cuda_runtime.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/macros.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace cem_tetris {

using torch::stable::accelerator::DeviceGuard;

// The stream that PyTorch's own operators would use now on a device.
inline cudaStream_t current_stream(int32_t device) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  return static_cast<cudaStream_t>(stream);
}

inline cudaStream_t current_stream(const torch::stable::Tensor& tensor) {
  return current_stream(tensor.get_device_index());
}

// The number of streaming multiprocessors; the driver is asked once a device.
inline int multiprocessors(int device) {
  constexpr int kDevices = 64;
  static std::atomic<int> known[kDevices] = {};
  int count = device < kDevices ? known[device].load(std::memory_order_relaxed) : 0;
  if (count == 0) {
    STD_CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
    if (device < kDevices) known[device].store(count, std::memory_order_relaxed);
  }
  return count;
}

// N values that are loaded and stored at once. The address has to be a multiple of its size.
template <typename T, int N> struct alignas(sizeof(T) * N) Pack {
  T value[N];
};

inline bool is_aligned(const void* pointer, int bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(bytes) == 0;
}

}  // namespace cem_tetris
