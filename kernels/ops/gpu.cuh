// Launches on CUDA. A kernel that is launched early is set up while the one before it in the stream runs.
// That saves most of the microsecond between them (programmatic dependent launch, CUDA C++ Programming Guide,
// section 4.5). It calls wait_for_kernel_before() ahead of all that it reads and writes. Code for less than
// compute capability 9.0 is launched as usual.
#pragma once

#if defined(__CUDACC__)
#include "common.cuh"
#include "tensors.h"
#endif

namespace cem_tetris {

// Waits until the kernel before has ended and what it wrote can be read.
__device__ __forceinline__ void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the kernel after this one be set up, if it is launched early, as soon as all blocks are here.
__device__ __forceinline__ void let_kernel_after_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#if defined(__CUDACC__)
constexpr bool kLaunchesEarly = [] {
  for (int architecture : {__CUDA_ARCH_LIST__}) {
    if (architecture < 900) return false;
  }
  return true;
}();

// A device, the current one until this goes out of scope, and the stream that PyTorch's operators would use.
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
  template <typename... Parameters, typename... Given> void launch(void (*kernel)(Parameters...), dim3 blocks,
      dim3 threads, int64_t bytes, const Given&... arguments) const {
    kernel<<<blocks, threads, bytes, stream>>>(arguments...);
    STD_CUDA_KERNEL_LAUNCH_CHECK();
  }
  template <typename... Parameters, typename... Given> void launch_early(void (*kernel)(Parameters...),
      dim3 blocks, dim3 threads, int64_t bytes, const Given&... arguments) const {
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{blocks, threads, static_cast<size_t>(bytes), stream, &early, kLaunchesEarly};
    STD_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
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

// An operator: `launch` is that of the namespace of its work.
template <typename Work> void run(const Work& work, Device device) { launch(Gpu(device), work, device); }
#endif

}  // namespace cem_tetris
