// Programmatic dependent launch (CUDA C++ Programming Guide, section 4.5): a kernel that is launched early is
// set up while the one before it in the stream runs, which saves most of the microsecond between them. It
// calls wait_for_kernel_before() ahead of all that it reads and writes. Code for less than compute capability
// 9.0 is launched as usual.
#pragma once

#if defined(__CUDACC__)
#include <torch/csrc/stable/macros.h>
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

template <typename... Parameters, typename... Given> void launch_early(void (*kernel)(Parameters...),
    dim3 blocks, int threads, int64_t shared_bytes, cudaStream_t stream, const Given&... arguments) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = kLaunchesEarly ? 1 : 0;
  STD_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
}
#endif

}  // namespace cem_tetris
