// The operator's arguments as the kernels want them.
#pragma once

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "tensors.h"
#include "update.h"

namespace cem_tetris::update {
namespace {

// Calls f(Type{}) with the type of a fitness.
template <typename F> void visit_fitness(Number type, const F& f) {
  type == Number::Float ? f(Float{}) : type == Number::Double ? f(Double{}) : f(Long{});
}

inline Number number_of(ScalarType type) { return static_cast<Number>(type); }
static_assert(static_cast<Number>(ScalarType::Long) == Number::Long &&
              static_cast<Number>(ScalarType::Float) == Number::Float &&
              static_cast<Number>(ScalarType::Double) == Number::Double);

// A fitness, contiguous, of one of the types that are ranked; a wider one has the same order.
inline Tensor ranked_fitness(const Tensor& given) {
  const ScalarType type = given.scalar_type();
  switch (type) {
    case ScalarType::Float:
    case ScalarType::Double:
    case ScalarType::Long: return dense(given);
    case ScalarType::Half:
    case ScalarType::BFloat16: return dense(torch::stable::to(given, ScalarType::Float));
    default:
      STD_TORCH_CHECK(type == ScalarType::Bool || type == ScalarType::Byte ||
                          type == ScalarType::Char || type == ScalarType::Short ||
                          type == ScalarType::Int,
          "expected fitness of type Bool, integer to Long, Half to Double or BFloat16, got ",
          torch::headeronly::toString(type));
      return dense(torch::stable::to(given, ScalarType::Long));
  }
}

using Outputs = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// Checks the arguments, and calls run(job, problems). all_weights: whether there is one a
// candidate, of which the elites take the first.
template <typename F> Outputs with_job(const Tensor& given_fitness,
    const Tensor& given_candidates, const Tensor& given_distribution,
    const Tensor& given_record, const Tensor& given_generation,
    std::optional<Tensor> extra_variance, std::optional<Tensor> weights,
    std::optional<Tensor> std_floor, int64_t elites, bool maximize, int64_t variance_about,
    double smoothing, double std_smoothing, double mean_averaging, bool ranked,
    bool all_weights, const F& run) {
  const Problems problems(given_fitness, 1, "fitness of shape (..., N)");
  const int64_t population = given_fitness.sizes().back();
  STD_TORCH_CHECK(
      population < int64_t{1} << 31, "expected less than 2^31 candidates, got ", population);
  STD_TORCH_CHECK(given_candidates.dim() == given_fitness.dim() + 1,
      "expected candidates of shape (..., N, d), got ", text_of(given_candidates.sizes()));
  const int64_t dimensions = given_candidates.sizes().back();
  const ScalarType type = real_type(given_candidates, "candidates");
  STD_TORCH_CHECK(elites >= 1 && elites <= population, "expected num_elites from 1 to ",
      population, ", got ", elites);
  const Tensor fitness = ranked_fitness(given_fitness),
               candidates = problems.check(
                   given_candidates, "candidates", type, {population, dimensions}),
               distribution = problems.check(
                   given_distribution, "distribution", type, {kRows, dimensions}),
               record = problems.check(given_record, "record", ScalarType::Double, {kFigures}),
               generation =
                   problems.check(given_generation, "generation", ScalarType::Long, {}, false);
  int64_t table = 0;
  if (extra_variance.has_value()) {
    table = extra_variance->numel();
    STD_TORCH_CHECK(table > 0, "expected extra_variance of shape (T), T >= 1, got (0)");
    extra_variance =
        problems.check(*extra_variance, "extra_variance", ScalarType::Double, {table}, false);
  }
  if (weights.has_value()) {
    weights = problems.check(
        *weights, "weights", ScalarType::Double, {all_weights ? population : elites}, false);
  }
  const int64_t floor_stride = problems.check_row(std_floor, "std_floor", type, dimensions);
  const Outputs out{problems.empty(type, {kRows, dimensions}),
      problems.empty(ScalarType::Double, {kFigures}),
      empty(problems.device, ScalarType::Long, {}), problems.empty(ScalarType::Long, {elites})};
  const auto& [new_distribution, new_record, new_generation, new_elites] = out;
  const Settings settings{problems.count(), population, dimensions, elites, table, floor_stride,
      smoothing, std_smoothing, mean_averaging, static_cast<int32_t>(variance_about), maximize,
      ranked};
  run({settings, number_of(type), number_of(fitness.scalar_type()), const_data<void>(fitness),
          const_data<void>(candidates), const_data<void>(distribution),
          const_data<void>(std_floor), const_data<double>(record),
          const_data<double>(extra_variance), const_data<double>(weights),
          const_data<int64_t>(generation), mutable_data<void>(new_distribution),
          mutable_data<double>(new_record), mutable_data<int64_t>(new_generation),
          mutable_data<int64_t>(new_elites)},
      problems);
  return out;
}

// The operator on a device.
template <void (&run)(const Job&, Device)> Outputs cem_update(const Tensor& fitness,
    const Tensor& candidates, const Tensor& distribution, const Tensor& record,
    const Tensor& generation, std::optional<Tensor> extra_variance,
    std::optional<Tensor> weights, std::optional<Tensor> std_floor, int64_t num_elites,
    bool maximize, int64_t variance_about, double smoothing, double std_smoothing,
    double mean_averaging, bool ranked) {
  return with_job(fitness, candidates, distribution, record, generation,
      std::move(extra_variance), std::move(weights), std::move(std_floor), num_elites, maximize,
      variance_about, smoothing, std_smoothing, mean_averaging, ranked, false,
      [](const Job& job, const Problems& problems) {
        if (!problems.device.is_meta()) run(job, problems.device);
      });
}

}  // namespace
}  // namespace cem_tetris::update
