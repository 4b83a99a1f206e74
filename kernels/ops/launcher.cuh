// Launches on CUDA, without torch's tensors: their headers take longer to compile than most
// kernels.
//
// A kernel that is launched early is set up while the one before it in the stream runs. That
// saves most of the microsecond between them (programmatic dependent launch, CUDA C++
// Programming Guide, section 4.5). It calls wait_for_kernel_before() ahead of all that it reads
// and writes. Code for less than compute capability 9.0 is launched as usual.
#pragma once

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#include <torch/headeronly/util/Exception.h>

#include <cstdint>
#endif

namespace cem_tetris {

// The dynamic shared memory, in bytes, that a kernel need not ask for.
constexpr int64_t kPlainMemory = 48 << 10;

// Waits until the kernel before has ended and what it wrote can be read.
__device__ __forceinline__ void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the kernel after this one be set up, if it is launched early, as soon as all blocks are
// here.
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
    if (bytes > kPlainMemory) give(kernel, bytes);
    kernel<<<blocks, threads, bytes, stream>>>(arguments...);
    check(cudaGetLastError());
  }
  template <typename... Parameters, typename... Arguments>
  void launch_early(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, int64_t bytes,
      const Arguments&... arguments) const {
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{blocks, threads, size_t(bytes), stream, &early, kLaunchesEarly};
    check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
  }
  void zero(void* memory, int64_t bytes) const {
    check(cudaMemsetAsync(memory, 0, bytes, stream));
  }
  // Returns the most bytes of shared memory that a block may have.
  int block_memory() const {
    int most = 0;
    check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, index));
    return most;
  }
  // Gives a kernel so much dynamic shared memory.
  template <typename Kernel>
  void give(Kernel* kernel, int64_t bytes) const {
    check(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)));
  }
  // Gives it if a block may have so much beside its static shared memory, and returns whether
  // it may.
  template <typename Kernel>
  bool gives(Kernel* kernel, int64_t bytes) const {
    constexpr int kStatic = 256;
    if (bytes > block_memory() - kStatic) return false;
    give(kernel, bytes);
    return true;
  }
};
#endif

}  // namespace cem_tetris
