// The kernel for CUDA. gpu.cuh is in kernels/ops: Pack, Gpu, is_aligned and check.
#include "my_sigmoid.h"

#include "gpu.cuh"

using namespace cem_tetris;

namespace {

template <int N, typename T, typename F, typename... In>
__device__ Pack<T, N> map_pack(F f, const In&... in) {
  Pack<T, N> out;
#pragma unroll
  for (int e = 0; e < N; ++e) out.value[e] = f(in.value[e]...);
  return out;
}

// Thread i computes the packs i, i + threads, ... of N elements. Fewer than N elements may be left
// after the last pack; the first threads of the grid compute one each.
template <int N, typename T, typename F, typename... In>
__global__ void map_kernel(F f, T* out, int64_t size, const In*... in) {
  const int64_t thread = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  const int64_t threads = gridDim.x * int64_t{blockDim.x};
  const int64_t packs = size / N;
  for (int64_t i = thread; i < packs; i += threads) {
    reinterpret_cast<Pack<T, N>*>(out)[i] =
        map_pack<N, T>(f, reinterpret_cast<const Pack<In, N>*>(in)[i]...);
  }
  const int64_t left = packs * N + thread;
  if (left < size) out[left] = f(in[left]...);
}

template <typename T, typename F, typename... In>
void map(F f, const Tensor& out, const In&... in) {
  constexpr int kThreads = 256, kWidth = 16 / sizeof(T);
  const Gpu gpu{
      Device(out)};  // makes the tensor's device the current one, and knows its stream
  T* to = static_cast<T*>(out.mutable_data_ptr());
  // Sixteen blocks per multiprocessor keep the device busy; small tensors need fewer.
  const auto grid_size = [&](int64_t items) {
    return static_cast<unsigned>(
        std::min<int64_t>(items / kThreads + 1, 16 * gpu.multiprocessors));
  };
  // A slice such as x[1:] is contiguous, but its address is not a multiple of 16 bytes.
  if ((is_aligned(in.const_data_ptr(), 16) && ... && is_aligned(to, 16))) {
    const unsigned blocks = grid_size(out.numel() / kWidth);
    map_kernel<kWidth><<<blocks, kThreads, 0, gpu.stream>>>(
        f, to, out.numel(), static_cast<const T*>(in.const_data_ptr())...);
  } else {
    const unsigned blocks = grid_size(out.numel());
    map_kernel<1><<<blocks, kThreads, 0, gpu.stream>>>(
        f, to, out.numel(), static_cast<const T*>(in.const_data_ptr())...);
  }
  check(cudaGetLastError());
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(tutorial, CUDA, m) {
  m.impl("my_sigmoid", TORCH_BOX(&forward));
  m.impl("my_sigmoid_backward", TORCH_BOX(&backward));
}
