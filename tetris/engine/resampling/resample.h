// The arguments of the resampling operator: its schema, what it asks of them, and what the kernel gets.
#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include <initializer_list>

#include "resample.cuh"

namespace tetris {

using torch::stable::Tensor;

#define TETRIS_RESAMPLE_SCHEMA                                                                     \
  "resample(Tensor columns, Tensor games, Tensor(a!) before, Tensor(b!) weight, Tensor(c!) held, " \
  "Tensor(d!) unit, "                                                                              \
  "Tensor(e!) ended, int count, bool counts, int bits, int offset) -> Tensor"

// `columns` (population, streams, width) int32; `games` and `before` (population, streams) int64; `weight` (population,
// streams), `held` (population, LEVELS), `unit` (population, 1) and `ended` (population,) float64. The result is of `games`'
// shape and type.
template <class Launch> Tensor resample(const Tensor& columns, const Tensor& games, Tensor before,
    Tensor weight, Tensor held, Tensor unit, Tensor ended, int64_t count, bool counts, int64_t bits,
    int64_t offset) {
  using torch::headeronly::ScalarType;
  const auto check = [](bool condition, const char* message) { STD_TORCH_CHECK(condition, message); };
  using Tensors = std::initializer_list<const Tensor*>;
  check(columns.scalar_type() == ScalarType::Int, "expected int32 columns");
  for (const Tensor* each : Tensors{&weight, &held, &unit, &ended}) {
    check(each->scalar_type() == ScalarType::Double, "expected float64 weight, held, unit and ended");
  }
  check(columns.dim() == 3 && columns.is_contiguous() && columns.size(1) > 0 && columns.size(2) > 0,
      "expected contiguous columns of shape (population, streams, width)");
  for (const Tensor* each : Tensors{&columns, &games, &before, &held, &unit, &ended}) {
    check(each->get_device_index() == weight.get_device_index() && each->is_cuda() == weight.is_cuda(),
        "expected all tensors on one device");
  }
  const int64_t population = columns.size(0), streams = columns.size(1);
  check(streams <= 1 << 13, "expected at most 8192 streams");
  for (const Tensor* each : Tensors{&games, &before}) {
    check(each->scalar_type() == ScalarType::Long, "expected int64 games and before");
  }
  for (const Tensor* each : Tensors{&games, &before, &weight}) {
    check(
        each->is_contiguous() && each->dim() == 2 && each->size(0) == population && each->size(1) == streams,
        "expected contiguous games, before and weight of shape (population, streams)");
  }
  check(held.is_contiguous() && held.dim() == 2 && held.size(0) == population && held.size(1) == LEVELS,
      "expected contiguous held of shape (population, levels)");
  check(unit.is_contiguous() && unit.dim() == 2 && unit.size(0) == population && unit.size(1) == 1,
      "expected contiguous unit of shape (population, 1)");
  check(ended.is_contiguous() && ended.dim() == 1 && ended.size(0) == population,
      "expected ended of shape (population,)");
  check(count > 0 && bits >= 0 && offset >= 0, "expected a count from 1, bits and offset from 0");
  Tensor source = torch::stable::new_empty(games, {population, streams});
  Tensor scratch = torch::stable::new_empty(games, {3, population, streams});
  Tensor after = torch::stable::new_empty(weight, {population, streams});
  if (population == 0) return source;
  int64_t* room = scratch.mutable_data_ptr<int64_t>();
  const int64_t all = population * streams;
  Resampling job{};
  job.streams = static_cast<int>(streams);
  job.width = static_cast<int>(columns.size(2));
  job.columns = reinterpret_cast<const uint32_t*>(columns.const_data_ptr<int32_t>());
  job.games = games.const_data_ptr<int64_t>();
  job.before = before.mutable_data_ptr<int64_t>();
  job.weight = weight.mutable_data_ptr<double>();
  job.held = held.mutable_data_ptr<double>();
  job.unit = unit.mutable_data_ptr<double>();
  job.ended = ended.mutable_data_ptr<double>();
  job.count = static_cast<double>(count);
  job.counts = counts;
  job.bits = bits;
  job.offset = offset;
  job.source = source.mutable_data_ptr<int64_t>();
  job.level = room;
  job.order = room + all;
  job.until = room + 2 * all;
  job.after = after.mutable_data_ptr<double>();
  Launch::launch(weight, job, static_cast<unsigned>(population));
  return source;
}

}  // namespace tetris
