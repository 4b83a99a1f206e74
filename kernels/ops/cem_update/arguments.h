// The operator's arguments as the kernels want them. The public function says more about what is wrong.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include <cstdint>
#include <optional>
#include <tuple>

#include "update.h"

namespace cem_tetris::update {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

constexpr int kMaxDimensions = 16;  // of a tensor

inline Tensor packed(const Tensor& tensor) {
  return tensor.is_contiguous() ? tensor
                                : torch::stable::contiguous(tensor);  // a call that costs a microsecond
}

// An unset tensor on the device of `like`: its leading `batch` sizes, then what is not negative of two more.
inline Tensor empty(const Tensor& like, int64_t batch, int64_t rows, int64_t columns, ScalarType type) {
  int64_t sizes[kMaxDimensions], strides[kMaxDimensions];
  const auto known = like.sizes();
  for (int64_t i = 0; i < batch; ++i) sizes[i] = known[i];
  int64_t dimensions = batch;
  if (rows >= 0) sizes[dimensions++] = rows;
  if (columns >= 0) sizes[dimensions++] = columns;
  int64_t stride = 1;
  for (int64_t i = dimensions - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= sizes[i] > 0 ? sizes[i] : 1;
  }
  int32_t device_type = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device_type));
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(dimensions, sizes, strides, static_cast<int32_t>(type),
                                                  device_type, like.get_device_index(), &handle));
  return Tensor(handle);
}

inline void check(const Tensor& tensor, const Tensor& like, const char* name, ScalarType type, bool shape) {
  STD_TORCH_CHECK(shape, "cem_update: expected another shape of ", name);
  STD_TORCH_CHECK(tensor.scalar_type() == type, "cem_update: expected another type of ", name);
  STD_TORCH_CHECK(tensor.is_cuda() == like.is_cuda() && tensor.get_device_index() == like.get_device_index(),
                  "cem_update: expected all tensors on one device, got ", name, " on another");
}

// Contiguous inputs and unset outputs.
struct Arguments {
  Settings settings;
  ScalarType type, fitness_type;  // of candidates and distribution; of the fitness
  Tensor fitness, candidates, distribution, record, generation;
  std::optional<Tensor> extra_variance, weights, std_floor;
  Tensor new_distribution, new_record, new_generation, elites;

  template <typename T>
  static const T* data(const std::optional<Tensor>& tensor) {
    return tensor.has_value() ? static_cast<const T*>(tensor->const_data_ptr()) : nullptr;
  }
};

using Outputs = std::tuple<Tensor, Tensor, Tensor, Tensor>;

inline Arguments make_arguments(const Tensor& fitness, const Tensor& candidates, const Tensor& distribution,
                                const Tensor& record, const Tensor& generation,
                                std::optional<Tensor> extra_variance, std::optional<Tensor> weights,
                                std::optional<Tensor> std_floor, int64_t num_elites, bool maximize,
                                int64_t variance_about, double smoothing, double std_smoothing,
                                double mean_averaging, bool ranked) {
  const int64_t batch = fitness.dim() - 1;
  STD_TORCH_CHECK(batch >= 0 && batch + 2 <= kMaxDimensions, "cem_update: expected fitness of 1 to ",
                  kMaxDimensions - 1, " dimensions, got ", fitness.dim());
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
  check(candidates, fitness, "candidates", type, shaped(candidates, population, dimensions));
  check(distribution, fitness, "the distribution", type, shaped(distribution, kRows, dimensions));
  check(record, fitness, "the record", ScalarType::Double, shaped(record, kFigures, -1));
  check(generation, fitness, "the generation", ScalarType::Long, generation.dim() == 0);
  STD_TORCH_CHECK(num_elites >= 1 && num_elites <= population && population < int64_t{1} << 31,
                  "cem_update: expected a population below 2^31 and elites from 1 to it, got ", population,
                  " and ", num_elites);
  STD_TORCH_CHECK(variance_about >= kNewMean && variance_about <= kOldMean,
                  "cem_update: expected 0, 1 or 2 for variance_about, got ", variance_about);
  if (extra_variance.has_value()) {
    check(*extra_variance, fitness, "the extra variance", ScalarType::Double,
          extra_variance->dim() == 1 && extra_variance->numel() > 0);
    extra_variance = packed(*extra_variance);
  }
  if (weights.has_value()) {
    check(*weights, fitness, "the weights", ScalarType::Double,
          weights->dim() == 1 && weights->numel() == num_elites);
    weights = packed(*weights);
  }
  bool floor_of_all = false;
  if (std_floor.has_value()) {
    floor_of_all = batch > 0 && std_floor->dim() == 1 && std_floor->numel() == dimensions;
    check(*std_floor, fitness, "the floor", type, floor_of_all || shaped(*std_floor, dimensions, -1));
    std_floor = packed(*std_floor);
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
          packed(fitness),
          packed(candidates),
          packed(distribution),
          packed(record),
          generation,
          extra_variance,
          weights,
          std_floor,
          empty(fitness, batch, kRows, dimensions, type),
          empty(fitness, batch, kFigures, -1, ScalarType::Double),
          empty(fitness, 0, -1, -1, ScalarType::Long),
          empty(fitness, batch, num_elites, -1, ScalarType::Long)};
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

}  // namespace cem_tetris::update
