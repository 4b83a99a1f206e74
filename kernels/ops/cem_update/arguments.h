// Checks the operator's arguments, and converts them to the structures that the kernels take.
#pragma once

#include <tuple>
#include <utility>

#include "tensors.h"
#include "update.h"

namespace cem_tetris::update {
namespace {

// Calls f(Type{}) with the type of a fitness: Float, Double or Long of update.h.
template <typename F>
void visit_fitness(Number type, const F& f) {
  type == Number::Float ? f(Float{}) : type == Number::Double ? f(Double{}) : f(Long{});
}

inline Number number_of(ScalarType type) { return Number(type); }
static_assert(Number(ScalarType::Long) == Number::Long &&
              Number(ScalarType::Float) == Number::Float &&
              Number(ScalarType::Double) == Number::Double);

// Returns the fitness as a contiguous tensor of type Float, Double or Long, the types that the
// kernels can rank. Half and BFloat16 become Float; Bool and the smaller integers become Long.
// These conversions are exact. Raises an error for any other type.
inline Tensor ranked_fitness(const Tensor& fitness) {
  ScalarType type = fitness.scalar_type();
  switch (type) {
    case ScalarType::Float:
    case ScalarType::Double:
    case ScalarType::Long: return dense(fitness);
    case ScalarType::Half:
    case ScalarType::BFloat16: return dense(to(fitness, ScalarType::Float));
    case ScalarType::Bool:
    case ScalarType::Byte:
    case ScalarType::Char:
    case ScalarType::Short:
    case ScalarType::Int: return dense(to(fitness, ScalarType::Long));
    default:
      STD_TORCH_CHECK(false,
          "expected fitness of type Bool, integer to Long, Half to Double or BFloat16, got ",
          toString(type));
      return fitness;  // not reached
  }
}

using Outputs = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// Checks the arguments of an update, allocates the results, calls run(job, problems), and
// returns the results. cem_update and cma_update share this function. A problem is one entry of
// the batch.
//
// Three tensors are optional: extra_variance has one number per generation, `weights` one per
// rank, and std_floor one per dimension. variance_about is a value of enum Variance.
// has_all_weights says whether `weights` has one weight for each candidate, as in CMA-ES, or
// one for each elite. The tensors whose names begin with any_ may have any strides.
template <typename F>
Outputs with_job(const Tensor& any_fitness, const Tensor& any_candidates,
    const Tensor& any_distribution, const Tensor& any_record, const Tensor& any_generation,
    std::optional<Tensor> extra_variance, std::optional<Tensor> weights,
    std::optional<Tensor> std_floor, int64_t elites, bool maximize, int64_t variance_about,
    double smoothing, double std_smoothing, double mean_averaging, bool ranked,
    bool has_all_weights, const F& run) {
  Problems problems(any_fitness, 1, "fitness of shape (..., N)");
  int64_t population = any_fitness.sizes().back();
  STD_TORCH_CHECK(
      population < int64_t{1} << 31, "expected less than 2^31 candidates, got ", population);
  STD_TORCH_CHECK(any_candidates.dim() == any_fitness.dim() + 1,
      "expected candidates of shape (..., N, d), got ", text_of(any_candidates.sizes()));
  int64_t dimensions = any_candidates.sizes().back();
  ScalarType type = real_type(any_candidates, "candidates");
  STD_TORCH_CHECK(elites >= 1 && elites <= population, "expected num_elites from 1 to ",
      population, ", got ", elites);
  // NaN compares false, so these checks reject it, too.
  STD_TORCH_CHECK(smoothing > 0 && smoothing <= 1 && std_smoothing > 0 && std_smoothing <= 1,
      "expected smoothing and std_smoothing in (0, 1], got ", smoothing, " and ",
      std_smoothing);
  STD_TORCH_CHECK(mean_averaging >= 0 && mean_averaging < INFINITY,
      "expected mean_averaging in [0, inf), got ", mean_averaging);
  Tensor fitness = ranked_fitness(any_fitness);
  Tensor candidates =
      problems.check(any_candidates, "candidates", type, {population, dimensions});
  Tensor distribution =
      problems.check(any_distribution, "distribution", type, {kRows, dimensions});
  Tensor record = problems.check(any_record, "record", ScalarType::Double, {kFigures});
  Tensor generation =
      problems.check(any_generation, "generation", ScalarType::Long, {}, /*has_batch=*/false);
  int64_t table = 0;  // the length of the table of extra variances
  if (extra_variance.has_value()) {
    table = extra_variance->numel();
    STD_TORCH_CHECK(table > 0, "expected extra_variance of shape (T), T >= 1, got (0)");
    extra_variance =
        problems.check(*extra_variance, "extra_variance", ScalarType::Double, {table},
            /*has_batch=*/false);
  }
  if (weights.has_value()) {
    int64_t count = has_all_weights ? population : elites;
    weights =
        problems.check(*weights, "weights", ScalarType::Double, {count}, /*has_batch=*/false);
  }
  int64_t floor_stride = problems.check_row(std_floor, "std_floor", type, dimensions);
  Outputs outputs{problems.empty(type, {kRows, dimensions}),
      problems.empty(ScalarType::Double, {kFigures}),
      empty(problems.device, ScalarType::Long, {}), problems.empty(ScalarType::Long, {elites})};
  const auto& [new_distribution, new_record, new_generation, new_elites] = outputs;
  const Settings settings{
      /*problems=*/problems.count(),
      population,
      dimensions,
      elites,
      table,
      floor_stride,
      smoothing,
      std_smoothing,
      mean_averaging,
      /*variance=*/int32_t(variance_about),
      maximize,
      ranked,
  };
  const Job job{
      settings,
      /*type=*/number_of(type),
      /*fitness_type=*/number_of(fitness.scalar_type()),
      const_data<void>(fitness),
      const_data<void>(candidates),
      const_data<void>(distribution),
      /*floors=*/const_data<void>(std_floor),
      const_data<double>(record),
      const_data<double>(extra_variance),
      const_data<double>(weights),
      const_data<int64_t>(generation),
      mutable_data<void>(new_distribution),
      mutable_data<double>(new_record),
      mutable_data<int64_t>(new_generation),
      /*elites=*/mutable_data<int64_t>(new_elites),
  };
  run(job, problems);
  return outputs;
}

// The operator cem_update: updates the distribution of a cross-entropy method from the fitness
// of a generation. with_job() checks the arguments and allocates the results, and its last
// argument computes them: run() of the CPU or of CUDA. Tensors on the meta device have shapes
// but no data, so run() is not called for them. `weights`, if any, has a weight for each elite,
// not for each candidate (has_all_weights).
//
// Returns the new distribution, the new record, the new generation number, and the indices of
// the elites.
template <void (&run)(const Job&, Device)>
Outputs cem_update(const Tensor& fitness, const Tensor& candidates, const Tensor& distribution,
    const Tensor& record, const Tensor& generation, std::optional<Tensor> extra_variance,
    std::optional<Tensor> weights, std::optional<Tensor> std_floor, int64_t num_elites,
    bool maximize, int64_t variance_about, double smoothing, double std_smoothing,
    double mean_averaging, bool ranked) {
  return with_job(fitness, candidates, distribution, record, generation,
      std::move(extra_variance), std::move(weights), std::move(std_floor), num_elites, maximize,
      variance_about, smoothing, std_smoothing, mean_averaging, ranked,
      /*has_all_weights=*/false, [](const Job& job, const Problems& problems) {
        if (!problems.device.is_meta()) run(job, problems.device);
      });
}

}  // namespace
}  // namespace cem_tetris::update
