// The update, one source for CPU and CUDA.
#pragma once

#ifdef __CUDACC__
#include "gpu.cuh"
#else
#include "cpu.h"
#endif

namespace cem_tetris::update {
namespace {

Outputs cem_update(const Tensor& fitness, const Tensor& candidates, const Tensor& distribution,
                   const Tensor& record, const Tensor& generation, std::optional<Tensor> extra_variance,
                   std::optional<Tensor> weights, std::optional<Tensor> std_floor, int64_t num_elites,
                   bool maximize, int64_t variance_about, double smoothing, double std_smoothing,
                   double mean_averaging, bool ranked) {
  const Arguments arguments = make_arguments(fitness, candidates, distribution, record, generation,
                                             extra_variance, weights, std_floor, num_elites, maximize,
                                             variance_about, smoothing, std_smoothing, mean_averaging,
                                             ranked);
  run(arguments);
  return {arguments.new_distribution, arguments.new_record, arguments.new_generation, arguments.elites};
}

}  // namespace
}  // namespace cem_tetris::update

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CEM_TETRIS_DEVICE, m) {
  m.impl("cem_update", TORCH_BOX(&cem_tetris::update::cem_update));
}
