// The arguments of the resampling operator: its schema, what it asks of them, and what the kernel gets.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <tuple>

#include "check_tensor.h"
#include "resampling.h"

namespace tetris {

#define TETRIS_RESAMPLE_SCHEMA                                                               \
  "resample(Tensor columns, Tensor games, Tensor(a!) before, Tensor(b!) weight, Tensor(c!) " \
  "held, "                                                                                   \
  "Tensor(d!) unit, Tensor(e!) ended, int count, bool counts, int bits, int offset) -> "     \
  "(Tensor, Tensor)"

// `columns` (population, streams, width) int32; `games` and `before` (population, streams) int64; `weight` (population,
// streams), `held` (population, LEVELS), `unit` (population, 1) and `ended` (population,) float64. The results are
// the stream that each goes on from, of `games`' shape and type, and its board, of `columns`'.
template <class Launch>
std::tuple<Tensor, Tensor> resample(const Tensor& columns, const Tensor& games, Tensor before,
    Tensor weight, Tensor held, Tensor unit, Tensor ended, int64_t count, bool counts,
    int64_t bits, int64_t offset) {
  STD_TORCH_CHECK(columns.dim() == 3 && columns.size(1) > 0 && columns.size(1) <= 1 << 13 &&
                      columns.size(2) > 0,
      "expected columns (population, streams, width) of at most 8192 streams");
  const int64_t population = columns.size(0), streams = columns.size(1),
                all = population * streams;
  check_tensor(columns, ScalarType::Int, columns.numel(), weight, "columns");
  check_tensor(games, ScalarType::Long, all, weight, "games");
  check_tensor(before, ScalarType::Long, all, weight, "before");
  check_tensor(weight, ScalarType::Double, all, weight, "weight");
  check_tensor(held, ScalarType::Double, population * LEVELS, weight, "held");
  check_tensor(unit, ScalarType::Double, population, weight, "unit");
  check_tensor(ended, ScalarType::Double, population, weight, "ended");
  STD_TORCH_CHECK(
      count > 0 && bits >= 0 && offset >= 0, "expected a count from 1, bits and offset from 0");
  Tensor source = torch::stable::new_empty(games, {population, streams}),
         boards = torch::stable::new_empty(columns, columns.sizes());
  Tensor scratch = torch::stable::new_empty(games, {3, population, streams});
  Tensor after = torch::stable::new_empty(weight, {population, streams});
  if (population == 0) return {source, boards};
  int64_t* room = scratch.mutable_data_ptr<int64_t>();
  const Resampling job{static_cast<int>(streams), static_cast<int>(columns.size(2)),
      reinterpret_cast<const uint32_t*>(columns.const_data_ptr<int32_t>()),
      games.const_data_ptr<int64_t>(), before.mutable_data_ptr<int64_t>(),
      weight.mutable_data_ptr<double>(), held.mutable_data_ptr<double>(),
      unit.mutable_data_ptr<double>(), ended.mutable_data_ptr<double>(),
      static_cast<double>(count), counts, bits, offset, source.mutable_data_ptr<int64_t>(),
      reinterpret_cast<uint32_t*>(boards.mutable_data_ptr<int32_t>()), room, room + all,
      room + 2 * all, after.mutable_data_ptr<double>()};
  Launch::launch(weight, job, static_cast<unsigned>(population));
  return {source, boards};
}

}  // namespace tetris
