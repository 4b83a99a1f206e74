// The operators' arguments as the kernels want them. Those that the update of the mean has, too,
// cem_update/arguments.h checks.
#pragma once

#include "cem_update/arguments.h"
#include "draw.h"

namespace cem_tetris::cma {
namespace {

constexpr char kUpdateSchema[] =
    "cma_update(Tensor fitness, Tensor candidates, Tensor distribution, Tensor record, Tensor generation, "
    "Tensor factor, Tensor paths, Tensor weights, Tensor? extra_variance, Tensor? std_floor, "
    "SymInt num_elites, bool maximize, float smoothing, float mean_averaging, float mu_eff, float c_s, "
    "float d_s, float c_c, float c_1, float c_mu, float chi) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)";
constexpr char kDrawSchema[] =
    "draw_correlated(Tensor distribution, Tensor factor, SymInt population_size, Tensor seed, "
    "Tensor generation, Tensor? low=None, Tensor? high=None) -> Tensor";

// Checks what has the leading sizes of a tensor of `batch` + 2 dimensions, then these; returns it contiguous.
Tensor checked(const Tensor& tensor, const char* name, ScalarType type, Device device, Sizes sizes,
    size_t batch, std::initializer_list<int64_t> more) {
  const auto found = tensor.sizes();
  STD_TORCH_CHECK(found.size() == batch + more.size() &&
                      std::equal(sizes.begin(), sizes.begin() + batch, found.begin()) &&
                      std::equal(more.begin(), more.end(), found.begin() + batch),
      "cma_update: expected another shape of ", name);
  STD_TORCH_CHECK(tensor.scalar_type() == type, "cma_update: expected another type of ", name);
  STD_TORCH_CHECK(
      Device(tensor) == device, "cma_update: expected all tensors on one device, got ", name, " on another");
  return dense(tensor);
}

using Outputs = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

template <void (&run)(const Call&, ScalarType, Device)> Outputs cma_update(const Tensor& fitness,
    const Tensor& candidates, const Tensor& distribution, const Tensor& record, const Tensor& generation,
    const Tensor& given_factor, const Tensor& given_paths, const Tensor& weights,
    std::optional<Tensor> extra_variance, std::optional<Tensor> std_floor, int64_t num_elites, bool maximize,
    double smoothing, double mean_averaging, double mu_eff, double c_s, double d_s, double c_c, double c_1,
    double c_mu, double chi) {
  std::optional<Tensor> new_factor, new_paths;
  auto [next, figures, after, elites] =
      update::with_job(fitness, candidates, distribution, record, generation, std::move(extra_variance),
          weights, std::move(std_floor), num_elites, maximize, update::kOldMean, smoothing, 1.0,
          mean_averaging, true, true, [&](const Job& job, ScalarType type, Device device) {
            const int64_t d = job.settings.dimensions, population = job.settings.population;
            STD_TORCH_CHECK(d >= 1 && d <= kMostDimensions && population <= kMostCandidates,
                "cma_update: expected 1 to ", kMostDimensions, " dimensions and at most ", kMostCandidates,
                " candidates, got ", d, " and ", population);
            const Sizes sizes = fitness.sizes();
            const size_t batch = sizes.size() - 1;
            const Tensor factor = checked(given_factor, "the factor", type, device, sizes, batch, {d, d}),
                         paths = checked(given_paths, "the paths", type, device, sizes, batch, {2, d});
            new_factor = empty(device, type, sizes, batch, {d, d});
            new_paths = empty(device, type, sizes, batch, {2, d});
            const double width = static_cast<double>(d);
            const Learning learning{1.0 - c_s, std::sqrt(c_s * (2.0 - c_s) * mu_eff), 1.0 - c_c,
                std::sqrt(c_c * (2.0 - c_c) * mu_eff), c_s / d_s, chi, c_1, c_mu, c_1 * c_c * (2.0 - c_c),
                (2.0 + 4.0 / (width + 1.0)) * width};
            run({job, learning, Plan(d, population), const_data<void>(factor), const_data<void>(paths),
                    mutable_data<void>(*new_factor), mutable_data<void>(*new_paths)},
                type, device);
          });
  return {std::move(next), std::move(figures), std::move(after), std::move(*new_factor),
      std::move(*new_paths), std::move(elites)};
}

template <void (&run)(const Draw&, ScalarType, Device)> Tensor draw_correlated(const Tensor& given,
    const Tensor& given_factor, int64_t samples, const Tensor& given_seed, const Tensor& generation,
    std::optional<Tensor> low, std::optional<Tensor> high) {
  const Sizes sizes = given.sizes();
  STD_TORCH_CHECK(sizes.size() >= 2, "draw_correlated: expected a distribution of shape (..., 4, d)");
  const size_t batch = sizes.size() - 2;
  const int64_t d = sizes[batch + 1];
  STD_TORCH_CHECK(d >= 1 && d <= kMostDimensions && samples >= 0 && samples < int64_t{1} << 31,
      "draw_correlated: expected 1 to ", kMostDimensions, " dimensions and less than 2^31 samples, got ", d,
      " and ", samples);
  const Device device(given);
  const ScalarType type = given.scalar_type();
  STD_TORCH_CHECK(type == ScalarType::Float || type == ScalarType::Double,
      "draw_correlated: expected a distribution of float32 or float64");
  const auto check = [&](const Tensor& tensor, const char* name, ScalarType its, size_t leading,
                         std::initializer_list<int64_t> more) {
    return checked(tensor, name, its, device, sizes, leading, more);
  };
  const Tensor distribution = check(given, "the distribution", type, batch, {update::kRows, d}),
               factor = check(given_factor, "the factor", type, batch, {d, d}),
               seed = check(given_seed, "the seed", ScalarType::Long, batch, {});
  check(generation, "the generation", ScalarType::Long, 0, {});
  const auto stride = [&](std::optional<Tensor>& bound, const char* name) -> int64_t {
    if (!bound.has_value()) return 0;
    const size_t leading = bound->dim() == 1 ? 0 : batch;
    bound = check(*bound, name, type, leading, {d});
    return leading == 0 ? 0 : d;
  };
  const int64_t low_stride = stride(low, "low"), high_stride = stride(high, "high");
  const Tensor out = empty(device, type, sizes, batch, {samples, d});
  const int64_t problems = seed.numel(), groups = (samples + kGroup - 1) / kGroup;
  STD_TORCH_CHECK(problems * groups < int64_t{1} << 31, "draw_correlated: expected fewer samples");
  if (problems * groups == 0) return out;
  run({problems, samples, groups, static_cast<int>(d), static_cast<int>((d + kSide - 1) / kSide * kSide),
          const_data<void>(distribution), const_data<void>(factor), const_data<void>(low),
          const_data<void>(high), low_stride, high_stride, const_data<int64_t>(seed),
          const_data<int64_t>(generation), mutable_data<void>(out)},
      type, device);
  return out;
}

}  // namespace
}  // namespace cem_tetris::cma
