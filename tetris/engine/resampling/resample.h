// The resampling operator: its schema, the checks of its arguments, and the arguments of its
// kernel.
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

// The resampling operator: checks the tensors, and calls `Device::launch(weight, job,
// population)`, which resamples.
//
//   columns  (population, streams, width) int32
//   games, before  (population, streams) int64
//   weight  (population, streams), held  (population, LEVELS) float64
//   unit  (population, 1), ended  (population,) float64
//
// Returns the stream that each stream continues, in the shape of `games`, and the board of that
// stream, in the shape of `columns`.
template <class Device>
std::tuple<Tensor, Tensor> resample(const Tensor& columns, const Tensor& games, Tensor before,
    Tensor weight, Tensor held, Tensor unit, Tensor ended, int64_t count, bool counts,
    int64_t bits, int64_t offset) {
  constexpr int MOST_STREAMS = 1 << 13;
  STD_TORCH_CHECK(columns.dim() == 3 && columns.size(1) > 0 &&
                      columns.size(1) <= MOST_STREAMS && columns.size(2) > 0,
      "expected columns (population, streams, width) of at most 8192 streams");
  int64_t population = columns.size(0);
  int64_t streams = columns.size(1);
  int64_t all = population * streams;
  check_tensor(columns, ScalarType::Int, columns.numel(), weight, "columns");
  check_tensor(games, ScalarType::Long, all, weight, "games");
  check_tensor(before, ScalarType::Long, all, weight, "before");
  check_tensor(weight, ScalarType::Double, all, weight, "weight");
  check_tensor(held, ScalarType::Double, population * LEVELS, weight, "held");
  check_tensor(unit, ScalarType::Double, population, weight, "unit");
  check_tensor(ended, ScalarType::Double, population, weight, "ended");
  STD_TORCH_CHECK(
      count > 0 && bits >= 0 && offset >= 0, "expected a count from 1, bits and offset from 0");
  Tensor source = new_empty(games, {population, streams});
  Tensor boards = new_empty(columns, columns.sizes());
  Tensor scratch = new_empty(games, {3, population, streams});
  Tensor after = new_empty(weight, {population, streams});
  if (population == 0) return {source, boards};

  int64_t* scratch_data = scratch.mutable_data_ptr<int64_t>();
  Resampling job{
      /*streams=*/int(streams),
      /*width=*/int(columns.size(2)),
      /*columns=*/words_of(columns),
      /*games=*/games.const_data_ptr<int64_t>(),
      /*games_before=*/before.mutable_data_ptr<int64_t>(),
      /*weight=*/weight.mutable_data_ptr<double>(),
      /*level_sums=*/held.mutable_data_ptr<double>(),
      /*unit=*/unit.mutable_data_ptr<double>(),
      /*ended=*/ended.mutable_data_ptr<double>(),
      /*resamplings=*/double(count),
      /*measures_rate=*/counts,
      /*bits=*/bits,
      /*offset=*/offset,
      /*source=*/source.mutable_data_ptr<int64_t>(),
      /*boards=*/mutable_words_of(boards),
      /*level=*/scratch_data,
      /*order=*/scratch_data + all,
      /*copies_up_to=*/scratch_data + 2 * all,
      /*new_weight=*/after.mutable_data_ptr<double>(),
  };
  Device::launch(weight, job, unsigned(population));
  return {source, boards};
}

}  // namespace tetris
