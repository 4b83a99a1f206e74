// The update on CUDA. The schema is in op.cpp.

#include <torch/csrc/stable/library.h>

#include "common.cuh"
#include "launch.cuh"

namespace cem_tetris::update {
namespace {

struct Device {
  int multiprocessors;
  cudaStream_t stream;

  template <typename... Parameters, typename... Given>
  void launch(void (*kernel)(Parameters...), int64_t blocks, int threads, int64_t bytes,
              const Given&... arguments) const {
    kernel<<<static_cast<unsigned>(blocks), threads, bytes, stream>>>(arguments...);
    STD_CUDA_KERNEL_LAUNCH_CHECK();
  }
  template <typename... Parameters, typename... Given>
  void launch_early(void (*kernel)(Parameters...), int64_t blocks, int threads, int64_t bytes,
                    const Given&... arguments) const {
    cem_tetris::launch_early(kernel, dim3(static_cast<unsigned>(blocks)), threads, bytes, stream,
                             arguments...);
  }
  void zero(void* memory, int64_t bytes) const { STD_CUDA_CHECK(cudaMemsetAsync(memory, 0, bytes, stream)); }
};

Outputs cem_update_cuda(const Tensor& fitness, const Tensor& candidates, const Tensor& distribution,
                        const Tensor& record, const Tensor& generation, std::optional<Tensor> extra_variance,
                        std::optional<Tensor> weights, std::optional<Tensor> std_floor, int64_t num_elites,
                        bool maximize, int64_t variance_about, double smoothing, double std_smoothing,
                        double mean_averaging, bool ranked) {
  const DeviceGuard guard(fitness.get_device_index());
  Arguments arguments = make_arguments(fitness, candidates, distribution, record, generation, extra_variance,
                                       weights, std_floor, num_elites, maximize, variance_about, smoothing,
                                       std_smoothing, mean_averaging, ranked);
  return run(Device{multiprocessors(fitness.get_device_index()), current_stream(fitness)}, arguments);
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CUDA, m) { m.impl("cem_update", TORCH_BOX(&cem_update_cuda)); }

}  // namespace cem_tetris::update
