// The CUDA sides of cem_update, cma_update and discrete on emulated threads, as operators of their own.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <utility>

#include "cuda_emulation.h"

// A block's shared memory; every block finds in it what the last one left.
#define __shared__ static
#define __noinline__
#define __grid_constant__

namespace {

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int step) {
  return __shfl_sync(mask, value, static_cast<int>(threadIdx.x % 32) ^ step);
}
int __syncthreads_count(bool value) {
  static int count;
  __syncthreads();
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  count += value ? 1 : 0;
  __syncthreads();
  return count;
}
bool __syncthreads_or(bool value) { return __syncthreads_count(value) > 0; }
uint32_t atomicExch(uint32_t* word, uint32_t value) { return std::exchange(*word, value); }
template <class T>
T atomicMin(T* word, std::common_type_t<T> value) {
  return std::exchange(*word, std::min(*word, value));
}
template <class T>
T atomicMax(T* word, std::common_type_t<T> value) {
  return std::exchange(*word, std::max(*word, value));
}
using std::max;
using std::min;
void __threadfence() {}

}  // namespace

#include "cma_update/arguments.h"
#include "cma_update/launch.cuh"
#include "discrete/launch.cuh"

double* cem_tetris::update::dynamic_shared() {
  return reinterpret_cast<double*>(cuda_emulation::block->shared.data());
}

namespace {

using namespace cem_tetris::update;
using torch::stable::Tensor;

struct Emulated {
  using Launcher = Emulated;
  inline static int multiprocessors = 1;

  template <typename... Parameters, typename... Given>
  void launch(void (*kernel)(Parameters...), int64_t blocks, int threads, int64_t bytes,
      const Given&... arguments) const {
    cuda_emulation::launch(static_cast<unsigned>(blocks), static_cast<unsigned>(threads),
        static_cast<size_t>(bytes), [&] { kernel(arguments...); });
  }
  template <typename... Parameters, typename... Given>
  void launch_early(void (*kernel)(Parameters...), int64_t blocks, int threads, int64_t bytes,
      const Given&... arguments) const {
    launch(kernel, blocks, threads, bytes, arguments...);
  }
  void zero(void* memory, int64_t bytes) const {
    std::memset(memory, 0, static_cast<size_t>(bytes));
  }
  // Blocks with little shared memory: few candidates at once where there are many dimensions.
  template <typename Kernel>
  bool try_dynamic_memory(Kernel*, int64_t bytes) const {
    return bytes <= 64 << 10;
  }
};

void set_multiprocessors(const Tensor&, int64_t count) {
  Emulated::multiprocessors = static_cast<int>(count);
}
template <typename Work>
void run(const Work& work, cem_tetris::Device device) {
  launch(Emulated(), work, device);
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(emulated, m) {
  m.def("set_multiprocessors(Tensor of_the_device, int count) -> ()");
}
STABLE_TORCH_LIBRARY_IMPL(emulated, CPU, m) {
  m.impl("cem_update", TORCH_BOX(&cem_update<run>));
  m.impl("cma_update", TORCH_BOX(&cem_tetris::cma::cma_update<run>));
  m.impl("draw_correlated", TORCH_BOX(&cem_tetris::cma::draw_correlated<run>));
  m.impl("sample_discrete", TORCH_BOX(&cem_tetris::discrete::sample_discrete<run>));
  m.impl("update_tables", TORCH_BOX(&cem_tetris::discrete::update_tables<run>));
  m.impl("set_multiprocessors", TORCH_BOX(&set_multiprocessors));
}
