// The parts that the CUDA code of all operators uses: the device, its stream, 16-byte accesses.
// Kernels are launched through a Gpu. A launch never waits, so that a CUDA graph can capture
// it.
#pragma once

#include "launcher.cuh"
#if defined(__CUDACC__)
#include <torch/csrc/stable/accelerator.h>

#include <atomic>

#include "tensors.h"

namespace cem_tetris {

// Returns the stream that PyTorch's own operators currently use on a device.
inline cudaStream_t current_stream(int32_t device) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  return static_cast<cudaStream_t>(stream);
}

// Returns the number of streaming multiprocessors of a device. The driver is asked once per
// device, and its answer is stored. Relaxed atomics are enough, because every thread would
// store the same number.
inline int multiprocessors(int device) {
  // For devices with higher numbers, the driver is asked every time.
  constexpr int kDevices = 64;
  static std::atomic<int> known[kDevices] = {};
  int count = device < kDevices ? known[device].load(std::memory_order_relaxed) : 0;
  if (count == 0) {
    check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
    if (device < kDevices) known[device].store(count, std::memory_order_relaxed);
  }
  return count;
}

// N values that are loaded and stored at once. The address must be a multiple of the size.
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  T value[N];
};

// Returns whether a pointer is a multiple of `bytes`.
inline bool is_aligned(const void* pointer, int bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(bytes) == 0;
}

// A device, which is the current device until this object goes out of scope.
struct Gpu : Launcher {
  torch::stable::accelerator::DeviceGuard guard;

  explicit Gpu(Device device)
      : Launcher{device.index, cem_tetris::multiprocessors(device.index),
            current_stream(device.index)},
        guard(device.index) {}
};

// Runs an operator on CUDA. launch() is a function in the namespace of Work.
template <typename Work>
void run(const Work& work, Device device) {
  launch(Gpu(device), work, device);
}

}  // namespace cem_tetris
#endif
