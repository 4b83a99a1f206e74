// The operators on a GPU: launch.cuh, on the current stream.

#include "cem_update/gpu.cuh"
#include "launch.cuh"
#include "op.h"

namespace cem_tetris::cma {
namespace {

struct Gpu : update::Gpu {
  int32_t device;

  // Whether a kernel may have so much shared memory, which it is then given.
  template <typename Kernel> bool gives(Kernel* kernel, int64_t bytes) const {
    int most = 0;
    STD_CUDA_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    if (bytes > most - 256) return false;  // what is static is beside it
    STD_CUDA_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
    return true;
  }
};

Gpu on(Device device) {
  return {{multiprocessors(device.index), current_stream(device.index)}, device.index};
}

void run(const Call& call, ScalarType type, Device device) {
  const DeviceGuard guard(device.index);
  launch(on(device), call, type, device);
}

void run(const Draw& call, ScalarType type, Device device) {
  const DeviceGuard guard(device.index);
  launch(on(device), call, type);
}

}  // namespace
}  // namespace cem_tetris::cma

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CEM_TETRIS_DEVICE, m) {
  m.impl("cma_update", TORCH_BOX(&cem_tetris::cma::cma_update<cem_tetris::cma::run>));
  m.impl("draw_correlated", TORCH_BOX(&cem_tetris::cma::draw_correlated<cem_tetris::cma::run>));
}
