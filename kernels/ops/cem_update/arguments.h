// The operator's arguments as the kernels want them. The public function says more about what is wrong.
#pragma once

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "tensors.h"
#include "update.h"

namespace cem_tetris::update {
namespace {

constexpr char kSchema[] =
    "cem_update(Tensor fitness, Tensor candidates, Tensor distribution, Tensor record, Tensor generation, "
    "Tensor? extra_variance, Tensor? weights, Tensor? std_floor, SymInt num_elites, bool maximize, "
    "int variance_about, float smoothing, float std_smoothing, float mean_averaging, bool ranked) "
    "-> (Tensor, Tensor, Tensor, Tensor)";

// Calls f(Type{}) with the type of a fitness.
template <typename F> void visit_fitness(ScalarType type, F&& f) {
  switch (type) {
    case ScalarType::Half: return f(Half{});
    case ScalarType::BFloat16: return f(BFloat16{});
    case ScalarType::Float: return f(Float{});
    case ScalarType::Double: return f(Double{});
    case ScalarType::Bool:
    case ScalarType::Byte: return f(Integer<uint8_t, uint32_t>{});
    case ScalarType::Char: return f(Integer<int8_t, uint32_t>{});
    case ScalarType::Short: return f(Integer<int16_t, uint32_t>{});
    case ScalarType::Int: return f(Integer<int32_t, uint32_t>{});
    case ScalarType::Long: return f(Integer<int64_t, uint64_t>{});
    default:
      STD_TORCH_CHECK(false, "cem_update: expected fitness of a floating type, an integer type or bool");
  }
}

using Outputs = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// What a device makes of a call: the job, the type of candidates and distribution, and where they are.
using Run = void(const Job& job, ScalarType type, Device device);

// Checks the arguments, and calls run(job, type, device). all_weights: whether there is one a candidate, of
// which the elites take the first.
template <typename F> Outputs with_job(const Tensor& given_fitness, const Tensor& given_candidates,
    const Tensor& given_distribution, const Tensor& given_record, const Tensor& generation,
    std::optional<Tensor> extra_variance, std::optional<Tensor> weights, std::optional<Tensor> std_floor,
    int64_t num_elites, bool maximize, int64_t variance_about, double smoothing, double std_smoothing,
    double mean_averaging, bool ranked, bool all_weights, const F& run) {
  const Device device(given_fitness);
  const int64_t batch = given_fitness.dim() - 1;
  STD_TORCH_CHECK(batch >= 0, "cem_update: expected fitness of 1 dimension or more");
  const auto sizes = given_fitness.sizes();
  const int64_t population = sizes[batch];
  int64_t problems = 1;
  for (int64_t i = 0; i < batch; ++i) problems *= sizes[i];
  // Whether a tensor has the leading sizes of the fitness and then these.
  const auto shaped = [&](const Tensor& tensor, int64_t rows, int64_t columns) {
    if (tensor.dim() != batch + (columns < 0 ? 1 : 2)) return false;
    const auto found = tensor.sizes();
    return std::equal(sizes.begin(), sizes.begin() + batch, found.begin()) && found[batch] == rows &&
           (columns < 0 || found[batch + 1] == columns);
  };
  const auto check = [&](const Tensor& tensor, const char* name, ScalarType type, bool shape) {
    STD_TORCH_CHECK(shape, "cem_update: expected another shape of ", name);
    STD_TORCH_CHECK(tensor.scalar_type() == type, "cem_update: expected another type of ", name);
    STD_TORCH_CHECK(Device(tensor) == device, "cem_update: expected all tensors on one device, got ", name,
        " on another");
    return dense(tensor);
  };
  STD_TORCH_CHECK(given_candidates.dim() == batch + 2, "cem_update: expected another shape of candidates");
  const int64_t dimensions = given_candidates.size(batch + 1);
  const ScalarType type = given_candidates.scalar_type(), fitness_type = given_fitness.scalar_type();
  STD_TORCH_CHECK(type == ScalarType::Float || type == ScalarType::Double,
      "cem_update: expected candidates of float32 or float64");
  STD_TORCH_CHECK(num_elites >= 1 && num_elites <= population && population < int64_t{1} << 31,
      "cem_update: expected a population below 2^31 and elites from 1 to it, got ", population, " and ",
      num_elites);
  STD_TORCH_CHECK(variance_about >= kNewMean && variance_about <= kOldMean,
      "cem_update: expected 0, 1 or 2 for variance_about, got ", variance_about);
  const Tensor fitness = dense(given_fitness),
               candidates = check(
                   given_candidates, "candidates", type, shaped(given_candidates, population, dimensions)),
               distribution = check(given_distribution, "the distribution", type,
                   shaped(given_distribution, kRows, dimensions)),
               record =
                   check(given_record, "the record", ScalarType::Double, shaped(given_record, kFigures, -1));
  check(generation, "the generation", ScalarType::Long, generation.dim() == 0);
  if (extra_variance.has_value()) {
    extra_variance = check(*extra_variance, "the extra variance", ScalarType::Double,
        extra_variance->dim() == 1 && extra_variance->numel() > 0);
  }
  if (weights.has_value()) {
    weights = check(*weights, "the weights", ScalarType::Double,
        weights->dim() == 1 && weights->numel() == (all_weights ? population : num_elites));
  }
  bool floor_of_all = false;
  if (std_floor.has_value()) {
    floor_of_all = batch > 0 && std_floor->dim() == 1 && std_floor->numel() == dimensions;
    std_floor = check(*std_floor, "the floor", type, floor_of_all || shaped(*std_floor, dimensions, -1));
  }
  bool can_fail = false;
  visit_fitness(fitness_type, [&](auto kind) { can_fail = decltype(kind)::kCanFail; });
  const Outputs out{empty(device, type, sizes, batch, {kRows, dimensions}),
      empty(device, ScalarType::Double, sizes, batch, {kFigures}), empty(device, ScalarType::Long, {}),
      empty(device, ScalarType::Long, sizes, batch, {num_elites})};
  const auto& [new_distribution, new_record, new_generation, elites] = out;
  const Settings settings{problems, population, dimensions, num_elites,
      extra_variance.has_value() ? extra_variance->numel() : 0, floor_of_all ? 0 : dimensions, smoothing,
      std_smoothing, mean_averaging, static_cast<int32_t>(variance_about), maximize, ranked};
  run({settings, fitness_type, can_fail, const_data<void>(fitness), const_data<void>(candidates),
          const_data<void>(distribution), const_data<void>(std_floor), const_data<double>(record),
          const_data<double>(extra_variance), const_data<double>(weights), const_data<int64_t>(generation),
          mutable_data<void>(new_distribution), mutable_data<double>(new_record),
          mutable_data<int64_t>(new_generation), mutable_data<int64_t>(elites)},
      type, device);
  return out;
}

// The operator on a device.
template <Run& run> Outputs cem_update(const Tensor& fitness, const Tensor& candidates,
    const Tensor& distribution, const Tensor& record, const Tensor& generation,
    std::optional<Tensor> extra_variance, std::optional<Tensor> weights, std::optional<Tensor> std_floor,
    int64_t num_elites, bool maximize, int64_t variance_about, double smoothing, double std_smoothing,
    double mean_averaging, bool ranked) {
  return with_job(fitness, candidates, distribution, record, generation, std::move(extra_variance),
      std::move(weights), std::move(std_floor), num_elites, maximize, variance_about, smoothing,
      std_smoothing, mean_averaging, ranked, false, run);
}

}  // namespace
}  // namespace cem_tetris::update
