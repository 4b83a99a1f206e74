// The CUDA sides of cem_update and cma_update on emulated threads, as operators of their own.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <utility>

#include "cuda_emulation.h"

// A block's shared memory; every block finds in it what the last one left.
#define __shared__ static
#define __noinline__
#define __grid_constant__

namespace {

template <class T> T __shfl_xor_sync(unsigned mask, T value, int step) {
  return __shfl_sync(mask, value, static_cast<int>(threadIdx.x % 32) ^ step);
}
int __syncthreads_count(bool value) {
  static int counts[2];
  static int turn = 0;
  __syncthreads();
  const int mine = turn & 1;
  if (threadIdx.x == 0) counts[mine] = 0;
  __syncthreads();
  counts[mine] += value ? 1 : 0;
  __syncthreads();
  if (threadIdx.x == 0) ++turn;
  return counts[mine];
}
bool __syncthreads_or(bool value) { return __syncthreads_count(value) > 0; }
uint32_t atomicExch(uint32_t* word, uint32_t value) { return std::exchange(*word, value); }
template <class T> T atomicMin(T* word, std::common_type_t<T> value) {
  const T old = *word;
  *word = std::min(old, value);
  return old;
}
template <class T> T atomicMax(T* word, std::common_type_t<T> value) {
  const T old = *word;
  *word = std::max(old, value);
  return old;
}
using std::max;
using std::min;
void __threadfence() {}

}  // namespace

#include "cma_update/launch.cuh"
#include "cma_update/op.h"

double* cem_tetris::update::dynamic_shared() {
  return reinterpret_cast<double*>(cuda_emulation::block->shared.data());
}

namespace {

using namespace cem_tetris::update;
using torch::stable::Tensor;

struct Emulated {
  int multiprocessors;

  template <typename... Parameters, typename... Given> void launch(void (*kernel)(Parameters...),
      int64_t blocks, int threads, int64_t bytes, const Given&... arguments) const {
    cuda_emulation::launch(static_cast<unsigned>(blocks), static_cast<unsigned>(threads),
        static_cast<size_t>(bytes), [&] { kernel(arguments...); });
  }
  template <typename... Parameters, typename... Given> void launch_early(void (*kernel)(Parameters...),
      int64_t blocks, int threads, int64_t bytes, const Given&... arguments) const {
    launch(kernel, blocks, threads, bytes, arguments...);
  }
  void zero(void* memory, int64_t bytes) const { std::memset(memory, 0, static_cast<size_t>(bytes)); }
  // Blocks with little shared memory: few candidates at once where there are many dimensions.
  template <typename Kernel> bool gives(Kernel*, int64_t bytes) const { return bytes <= 64 << 10; }
};

int64_t multiprocessors_of_call;

void set_multiprocessors(const Tensor&, int64_t count) { multiprocessors_of_call = count; }

void run_emulated(const Job& job, ScalarType type, cem_tetris::Device device) {
  launch(Emulated{static_cast<int>(multiprocessors_of_call)}, job, type, device);
}

void adapt_emulated(const cem_tetris::cma::Call& call, ScalarType type, cem_tetris::Device device) {
  launch(Emulated{static_cast<int>(multiprocessors_of_call)}, call, type, device);
}
void draw_emulated(const cem_tetris::cma::Draw& call, ScalarType type, cem_tetris::Device) {
  launch(Emulated{static_cast<int>(multiprocessors_of_call)}, call, type);
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(emulated, m) {
  m.def(kSchema);
  m.def(cem_tetris::cma::kUpdateSchema);
  m.def(cem_tetris::cma::kDrawSchema);
  m.def("set_multiprocessors(Tensor of_the_device, int count) -> ()");
}
STABLE_TORCH_LIBRARY_IMPL(emulated, CPU, m) {
  m.impl("cem_update", TORCH_BOX(&cem_update<run_emulated>));
  m.impl("cma_update", TORCH_BOX(&cem_tetris::cma::cma_update<adapt_emulated>));
  m.impl("draw_correlated", TORCH_BOX(&cem_tetris::cma::draw_correlated<draw_emulated>));
  m.impl("set_multiprocessors", TORCH_BOX(&set_multiprocessors));
}
