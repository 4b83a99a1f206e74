// Checks the operators' arguments, and converts them to the structures that the kernels take.
// cem_update/arguments.h checks the arguments that this operator has in common with cem_update.
#pragma once

#include "cem_update/arguments.h"
#include "draw.h"

namespace cem_tetris::cma {
namespace {

using Outputs = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

// The operator cma_update: one generation of CMA-ES for every problem (batch entry). Checks the
// arguments, allocates the results, and calls the device's run() to compute them. Returns the
// new distribution, record, generation, factor and paths, and the indices of the elites.
//
// any_factor is the Cholesky factor L of the covariance, (..., d, d); any_paths are the
// evolution paths, (..., 2, d). Both may have any strides. The arguments from mu_eff to c_mu
// have the names of Hansen's CMA-ES tutorial (c_s is its c_sigma, and d_s its damping), and chi
// is E|N(0, I)|, the expected length of a standard normal vector.
template <void (&run)(const Call&, Device)>
Outputs cma_update(const Tensor& fitness, const Tensor& candidates, const Tensor& distribution,
    const Tensor& record, const Tensor& generation, const Tensor& any_factor,
    const Tensor& any_paths, const Tensor& weights, std::optional<Tensor> extra_variance,
    std::optional<Tensor> std_floor, int64_t num_elites, bool maximize, double smoothing,
    double mean_averaging, double mu_eff, double c_s, double d_s, double c_c, double c_1,
    double c_mu, double chi) {
  std::optional<Tensor> new_factor, new_paths;
  // Runs the update of CMA-ES. with_job() below calls it with the checked arguments of the
  // mean's update (job) and the batch of problems. The function checks the factor and the
  // paths, allocates the new ones, and computes the constants of equations (43) to (47) of
  // Hansen's tutorial from the learning rates. Tensors on the meta device have no data, so
  // run() is not called for them.
  auto adapt = [&](const Job& job, const Problems& problems) {
    ScalarType type = candidates.scalar_type();
    int64_t d = job.settings.dimensions;
    int64_t population = job.settings.population;
    STD_TORCH_CHECK(d >= 1 && d <= kMostDimensions && population <= kMostCandidates,
        "expected 1 to ", kMostDimensions, " dimensions and at most ", kMostCandidates,
        " candidates, got ", d, " and ", population);
    Tensor factor = problems.check(any_factor, "factor", type, {d, d});
    Tensor paths = problems.check(any_paths, "paths", type, {2, d});
    new_factor = problems.empty(type, {d, d});
    new_paths = problems.empty(type, {2, d});
    if (problems.device.is_meta()) return;
    Learning learning;
    learning.path_decay = 1.0 - c_s;
    learning.path_gain = std::sqrt(c_s * (2.0 - c_s) * mu_eff);
    learning.long_decay = 1.0 - c_c;
    learning.long_gain = std::sqrt(c_c * (2.0 - c_c) * mu_eff);
    learning.damping = c_s / d_s;
    learning.inverse_chi = 1.0 / chi;
    learning.c_1 = c_1;
    learning.c_mu = c_mu;
    learning.stalled = c_1 * c_c * (2.0 - c_c);
    learning.longest_squared = (2.0 + 4.0 / (double(d) + 1.0)) * double(d);
    run(Call{job, learning, Plan(d, population), const_data<void>(factor),
            const_data<void>(paths), mutable_data<void>(*new_factor),
            mutable_data<void>(*new_paths)},
        problems.device);
  };
  auto [new_distribution, new_record, new_generation, elites] = with_job(fitness, candidates,
      distribution, record, generation, std::move(extra_variance), weights,
      std::move(std_floor), num_elites, maximize, kOldMean, smoothing,
      /*std_smoothing=*/1.0, mean_averaging, /*ranked=*/true, /*has_all_weights=*/true, adapt);
  return {std::move(new_distribution), std::move(new_record), std::move(new_generation),
      std::move(*new_factor), std::move(*new_paths), std::move(elites)};
}

// The operator draw_correlated: draws `samples` candidates mean + L z for every problem (batch
// entry). Checks the arguments, and calls the device's run() unless the result is empty or on
// the meta device. The result has the shape (..., samples, d).
//
// any_distribution has the shape (..., 4, d), and its row 0 is the mean. any_factor is the
// Cholesky factor L of the covariance, (..., d, d), and z is standard normal noise. any_seed
// has one seed for every problem. These three may have any strides. The candidates are clamped
// to the bounds `low` and `high`, if there are any; the stride of a bound is 0 if all problems
// share it.
template <void (&run)(const Draw&, Device)>
Tensor draw_correlated(const Tensor& any_distribution, const Tensor& any_factor,
    int64_t samples, const Tensor& any_seed, const Tensor& generation,
    std::optional<Tensor> low, std::optional<Tensor> high) {
  Problems problems(any_distribution, 2, "distribution of shape (..., 4, d)");
  int64_t d = any_distribution.sizes().back();
  STD_TORCH_CHECK(d >= 1 && d <= kMostDimensions && samples >= 0 && samples < int64_t{1} << 31,
      "expected 1 to ", kMostDimensions, " dimensions and 0 to 2^31 - 1 candidates, got ", d,
      " and ", samples);
  ScalarType type = real_type(any_distribution, "distribution");
  Tensor distribution = problems.check(any_distribution, "distribution", type, {kRows, d});
  Tensor factor = problems.check(any_factor, "factor", type, {d, d});
  Tensor seed = problems.check(any_seed, "seed", ScalarType::Long, {});
  problems.check(generation, "generation", ScalarType::Long, {}, /*has_batch=*/false);
  int64_t low_stride = problems.check_row(low, "low", type, d);
  int64_t high_stride = problems.check_row(high, "high", type, d);
  Tensor out = problems.empty(type, {samples, d});
  int64_t count = problems.count();
  int64_t groups = divide_up(samples, kGroup);
  STD_TORCH_CHECK(count * groups < int64_t{1} << 31, "expected fewer candidates");
  if (count * groups == 0 || problems.device.is_meta()) return out;
  run(
      Draw{
          type,
          /*problems=*/count,
          samples,
          groups,
          /*dimensions=*/int(d),
          /*padded=*/int(divide_up(d, kSide) * kSide),
          const_data<void>(distribution),
          const_data<void>(factor),
          const_data<void>(low),
          const_data<void>(high),
          low_stride,
          high_stride,
          const_data<int64_t>(seed),
          const_data<int64_t>(generation),
          mutable_data<void>(out),
      },
      problems.device);
  return out;
}

}  // namespace
}  // namespace cem_tetris::cma
