// Launches on CUDA for operators; see launcher.cuh.
#pragma once

#include "launcher.cuh"
#if defined(__CUDACC__)
#include "common.cuh"
#include "tensors.h"

namespace cem_tetris {

// A device, the current one until this goes out of scope.
struct Gpu : Launcher {
  DeviceGuard guard;

  explicit Gpu(Device device)
      : Launcher{device.index, cem_tetris::multiprocessors(device.index), current_stream(device.index)},
        guard(device.index) {}
};

// An operator: `launch` is that of the namespace of its work.
template <typename Work> void run(const Work& work, Device device) { launch(Gpu(device), work, device); }

}  // namespace cem_tetris
#endif
