// Launches CUDA kernels without torch's tensors, whose headers take longer to compile than most
// kernels.
//
// A kernel that is launched early is set up while the kernel before it in the stream still
// runs. That saves most of the microsecond between them (programmatic dependent launch, CUDA
// C++ Programming Guide, section 4.5). Such a kernel calls wait_for_previous_kernel() before
// it reads or writes anything. Code for a compute capability below 9.0 is launched as usual.
#pragma once

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#include <torch/headeronly/util/Exception.h>

#include <cstdint>
#endif

namespace cem_tetris {

// How many bytes of dynamic shared memory a kernel may have without set_dynamic_memory(). The
// limit of 48 KiB includes a kernel's static shared memory, which here is at most 4 KiB.
constexpr int64_t kPlainMemory = 44 << 10;

// Waits until the previous kernel of the stream has ended, so that its results can be read.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Allows the next kernel of the stream to be set up, if it is launched early, as soon as all
// blocks of this kernel have called this function.
__device__ __forceinline__ void allow_next_kernel() {
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

inline void check(cudaError_t error) {
  STD_TORCH_CHECK(error == cudaSuccess, cudaGetErrorString(error));
}

// A device, and the stream that PyTorch's operators would use.
struct Launcher {
  int32_t index;
  int multiprocessors;
  cudaStream_t stream;

  template <typename... Parameters, typename... Arguments>
  void launch(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, int64_t bytes,
      const Arguments&... arguments) const {
    if (bytes > kPlainMemory) set_dynamic_memory(kernel, bytes);
    kernel<<<blocks, threads, bytes, stream>>>(arguments...);
    check(cudaGetLastError());
  }
  template <typename... Parameters, typename... Arguments>
  void launch_early(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, int64_t bytes,
      const Arguments&... arguments) const {
    if (bytes > kPlainMemory) set_dynamic_memory(kernel, bytes);
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{blocks, threads, size_t(bytes), stream, &early, kLaunchesEarly};
    check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
  }
  void zero(void* memory, int64_t bytes) const {
    check(cudaMemsetAsync(memory, 0, bytes, stream));
  }
  // Returns the largest number of bytes of shared memory that a block may have.
  int block_memory() const {
    int most = 0;
    check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, index));
    return most;
  }
  // Allows a kernel to have `bytes` bytes of dynamic shared memory.
  template <typename Kernel>
  void set_dynamic_memory(Kernel* kernel, int64_t bytes) const {
    check(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)));
  }
  // Allows it only if a block can have this memory in addition to its static shared memory.
  // Returns whether it can.
  template <typename Kernel>
  bool try_dynamic_memory(Kernel* kernel, int64_t bytes) const {
    constexpr int kStatic = 256;  // the callers' kernels have less static shared memory
    if (bytes > block_memory() - kStatic) return false;
    set_dynamic_memory(kernel, bytes);
    return true;
  }
};
#endif

}  // namespace cem_tetris
