// The operator's arguments as the kernels want them. The public function says more about what is wrong.
#pragma once

#include <optional>
#include <tuple>

#include "tensors.h"
#include "update.h"

namespace cem_tetris::update {
namespace {

void check(const Tensor& tensor, const Device& device, const char* name, ScalarType type, bool shape) {
  STD_TORCH_CHECK(shape, "cem_update: expected another shape of ", name);
  STD_TORCH_CHECK(tensor.scalar_type() == type, "cem_update: expected another type of ", name);
  STD_TORCH_CHECK(Device(tensor) == device, "cem_update: expected all tensors on one device, got ", name,
                  " on another");
}

// Contiguous inputs and unset outputs.
struct Arguments {
  Settings settings;
  ScalarType type, fitness_type;  // of candidates and distribution; of the fitness
  Tensor fitness, candidates, distribution, record, generation;
  std::optional<Tensor> extra_variance, weights, std_floor;
  Tensor new_distribution, new_record, new_generation, elites;
};

using Outputs = std::tuple<Tensor, Tensor, Tensor, Tensor>;

Arguments make_arguments(const Tensor& fitness, const Tensor& candidates, const Tensor& distribution,
                                const Tensor& record, const Tensor& generation,
                                std::optional<Tensor> extra_variance, std::optional<Tensor> weights,
                                std::optional<Tensor> std_floor, int64_t num_elites, bool maximize,
                                int64_t variance_about, double smoothing, double std_smoothing,
                                double mean_averaging, bool ranked) {
  const Device device(fitness);
  const int64_t batch = fitness.dim() - 1;
  STD_TORCH_CHECK(batch >= 0, "cem_update: expected fitness of 1 dimension or more");
  const auto sizes = fitness.sizes();
  const int64_t population = sizes[batch];
  int64_t problems = 1;
  for (int64_t i = 0; i < batch; ++i) problems *= sizes[i];
  // Whether a tensor has the leading sizes of the fitness and then these.
  const auto shaped = [&](const Tensor& tensor, int64_t rows, int64_t columns) {
    if (tensor.dim() != batch + (columns < 0 ? 1 : 2)) return false;
    const auto found = tensor.sizes();
    for (int64_t i = 0; i < batch; ++i) {
      if (found[i] != sizes[i]) return false;
    }
    return found[batch] == rows && (columns < 0 || found[batch + 1] == columns);
  };
  STD_TORCH_CHECK(candidates.dim() == batch + 2, "cem_update: expected another shape of candidates");
  const int64_t dimensions = candidates.size(batch + 1);
  const ScalarType type = candidates.scalar_type();
  STD_TORCH_CHECK(type == ScalarType::Float || type == ScalarType::Double,
                  "cem_update: expected candidates of float32 or float64");
  check(candidates, device, "candidates", type, shaped(candidates, population, dimensions));
  check(distribution, device, "the distribution", type, shaped(distribution, kRows, dimensions));
  check(record, device, "the record", ScalarType::Double, shaped(record, kFigures, -1));
  check(generation, device, "the generation", ScalarType::Long, generation.dim() == 0);
  STD_TORCH_CHECK(num_elites >= 1 && num_elites <= population && population < int64_t{1} << 31,
                  "cem_update: expected a population below 2^31 and elites from 1 to it, got ", population,
                  " and ", num_elites);
  STD_TORCH_CHECK(variance_about >= kNewMean && variance_about <= kOldMean,
                  "cem_update: expected 0, 1 or 2 for variance_about, got ", variance_about);
  if (extra_variance.has_value()) {
    check(*extra_variance, device, "the extra variance", ScalarType::Double,
          extra_variance->dim() == 1 && extra_variance->numel() > 0);
    extra_variance = dense(*extra_variance);
  }
  if (weights.has_value()) {
    check(*weights, device, "the weights", ScalarType::Double,
          weights->dim() == 1 && weights->numel() == num_elites);
    weights = dense(*weights);
  }
  bool floor_of_all = false;
  if (std_floor.has_value()) {
    floor_of_all = batch > 0 && std_floor->dim() == 1 && std_floor->numel() == dimensions;
    check(*std_floor, device, "the floor", type, floor_of_all || shaped(*std_floor, dimensions, -1));
    std_floor = dense(*std_floor);
  }
  const Settings settings{problems,
                          population,
                          dimensions,
                          num_elites,
                          extra_variance.has_value() ? extra_variance->numel() : 0,
                          floor_of_all ? 0 : dimensions,
                          smoothing,
                          std_smoothing,
                          mean_averaging,
                          static_cast<int32_t>(variance_about),
                          maximize,
                          ranked};
  return {settings,
          type,
          fitness.scalar_type(),
          dense(fitness),
          dense(candidates),
          dense(distribution),
          dense(record),
          generation,
          extra_variance,
          weights,
          std_floor,
          empty(device, type, sizes, batch, {kRows, dimensions}),
          empty(device, ScalarType::Double, sizes, batch, {kFigures}),
          empty(device, ScalarType::Long, {}),
          empty(device, ScalarType::Long, sizes, batch, {num_elites})};
}

// Calls f(Type{}) with the type of a fitness.
template <typename F>
void visit_fitness(ScalarType type, F&& f) {
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

// The call as the kernels of both devices want it.
Job make_job(const Arguments& arguments) {
  bool can_fail = false;
  visit_fitness(arguments.fitness_type, [&](auto type) { can_fail = decltype(type)::kCanFail; });
  return {arguments.settings,
          arguments.fitness_type,
          can_fail,
          const_data<void>(arguments.fitness),
          const_data<void>(arguments.candidates),
          const_data<void>(arguments.distribution),
          const_data<void>(arguments.std_floor),
          const_data<double>(arguments.record),
          const_data<double>(arguments.extra_variance),
          const_data<double>(arguments.weights),
          const_data<int64_t>(arguments.generation),
          mutable_data<void>(arguments.new_distribution),
          mutable_data<double>(arguments.new_record),
          mutable_data<int64_t>(arguments.new_generation),
          mutable_data<int64_t>(arguments.elites)};
}

}  // namespace
}  // namespace cem_tetris::update
