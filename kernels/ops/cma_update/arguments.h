// The operators' arguments as the kernels want them. Those that the update of the mean has,
// too, cem_update/arguments.h checks.
#pragma once

#include "cem_update/arguments.h"
#include "draw.h"

namespace cem_tetris::cma {
namespace {

using Outputs = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

template <void (&run)(const Call&, Device)> Outputs cma_update(const Tensor& fitness,
    const Tensor& candidates, const Tensor& distribution, const Tensor& record,
    const Tensor& generation, const Tensor& given_factor, const Tensor& given_paths,
    const Tensor& weights, std::optional<Tensor> extra_variance,
    std::optional<Tensor> std_floor, int64_t num_elites, bool maximize, double smoothing,
    double mean_averaging, double mu_eff, double c_s, double d_s, double c_c, double c_1,
    double c_mu, double chi) {
  std::optional<Tensor> new_factor, new_paths;
  auto [next, figures, after, elites] = update::with_job(fitness, candidates, distribution,
      record, generation, std::move(extra_variance), weights, std::move(std_floor), num_elites,
      maximize, update::kOldMean, smoothing, 1.0, mean_averaging, true, true,
      [&](const Job& job, const Problems& problems) {
        const ScalarType type = candidates.scalar_type();
        const int64_t d = job.settings.dimensions, population = job.settings.population;
        STD_TORCH_CHECK(d >= 1 && d <= kMostDimensions && population <= kMostCandidates,
            "expected 1 to ", kMostDimensions, " dimensions and at most ", kMostCandidates,
            " candidates, got ", d, " and ", population);
        const Tensor factor = problems.check(given_factor, "factor", type, {d, d}),
                     paths = problems.check(given_paths, "paths", type, {2, d});
        new_factor = problems.empty(type, {d, d});
        new_paths = problems.empty(type, {2, d});
        const double width = static_cast<double>(d);
        const Learning learning{1.0 - c_s, std::sqrt(c_s * (2.0 - c_s) * mu_eff), 1.0 - c_c,
            std::sqrt(c_c * (2.0 - c_c) * mu_eff), c_s / d_s, 1.0 / chi, c_1, c_mu,
            c_1 * c_c * (2.0 - c_c), (2.0 + 4.0 / (width + 1.0)) * width};
        if (problems.device.is_meta()) return;
        run({job, learning, Plan(d, population), const_data<void>(factor),
                const_data<void>(paths), mutable_data<void>(*new_factor),
                mutable_data<void>(*new_paths)},
            problems.device);
      });
  return {std::move(next), std::move(figures), std::move(after), std::move(*new_factor),
      std::move(*new_paths), std::move(elites)};
}

template <void (&run)(const Draw&, Device)> Tensor draw_correlated(const Tensor& given,
    const Tensor& given_factor, int64_t samples, const Tensor& given_seed,
    const Tensor& generation, std::optional<Tensor> low, std::optional<Tensor> high) {
  const Problems problems(given, 2, "distribution of shape (..., 4, d)");
  const int64_t d = given.sizes().back();
  STD_TORCH_CHECK(d >= 1 && d <= kMostDimensions && samples >= 0 && samples < int64_t{1} << 31,
      "expected 1 to ", kMostDimensions, " dimensions and 0 to 2^31 - 1 candidates, got ", d,
      " and ", samples);
  const ScalarType type = real_type(given, "distribution");
  const Tensor distribution = problems.check(given, "distribution", type, {update::kRows, d}),
               factor = problems.check(given_factor, "factor", type, {d, d}),
               seed = problems.check(given_seed, "seed", ScalarType::Long, {});
  problems.check(generation, "generation", ScalarType::Long, {}, false);
  const int64_t low_stride = problems.check_row(low, "low", type, d),
                high_stride = problems.check_row(high, "high", type, d);
  const Tensor out = problems.empty(type, {samples, d});
  const int64_t count = problems.count(), groups = (samples + kGroup - 1) / kGroup;
  STD_TORCH_CHECK(count * groups < int64_t{1} << 31, "expected fewer candidates");
  if (count * groups == 0 || problems.device.is_meta()) return out;
  run({type, count, samples, groups, static_cast<int>(d),
          static_cast<int>((d + kSide - 1) / kSide * kSide), const_data<void>(distribution),
          const_data<void>(factor), const_data<void>(low), const_data<void>(high), low_stride,
          high_stride, const_data<int64_t>(seed), const_data<int64_t>(generation),
          mutable_data<void>(out)},
      problems.device);
  return out;
}

}  // namespace
}  // namespace cem_tetris::cma
