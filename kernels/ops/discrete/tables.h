// How tables of probabilities move, for host and device; tables.py has the definition. Weights and their sums
// are integers, and probabilities multiples of 2^-40: no sum depends on its order.
#pragma once

#include <vector>

#include "cem_update/arguments.h"

namespace cem_tetris::discrete {

using update::ScalarType;

constexpr double kUnit = 0x1p-40;

// Of candidates, contiguous.
struct Ranking {
  int64_t problems, samples;
  bool maximize;
  const void* fitness;
  const double* record;
  const int64_t* sums;      // of the weights of the best 0 .. N
  int64_t *weights, *best;  // best: that of a problem which is better than its record, or -1
};

struct Family {
  int64_t columns, rows, values;
  double rate, floor;
  int64_t first_column, first_cell;

  CEM_TETRIS_FUNCTION bool has_transitions() const { return rows != columns; }
};

// Of all families. A problem's tables, and after them its best candidate, are `width` numbers.
struct Move {
  int64_t problems, samples, cells, width;
  int64_t row_stride, problem_stride;  // of candidates
  const void* candidates;
  const int64_t *weights, *best;
  const double* before;
  double* after;
};

template <typename Type>
CEM_TETRIS_FUNCTION uint64_t rank_key(const Ranking& call, int64_t problem, int64_t candidate) {
  const auto* fitness = static_cast<const typename Type::Bits*>(call.fitness) + problem * call.samples;
  return update::Double::key(bit_cast<uint64_t>(Type::value(fitness[candidate])), call.maximize);
}

// Writes the weight of a candidate, among those of ranks first to last - 1, equally fit.
CEM_TETRIS_FUNCTION void weigh(const Ranking& call, int64_t i, int64_t first, int64_t last) {
  const int64_t sum = call.sums[last] - call.sums[first], count = last - first;
  call.weights[i] = sum / count - (sum % count < 0 ? 1 : 0);
}

// Writes which candidate is the best, of the first of those with the least key.
CEM_TETRIS_FUNCTION void choose(const Ranking& call, int64_t problem, int64_t candidate, uint64_t key) {
  const double value = bit_cast<double>(update::Double::of_key(key, call.maximize));
  const double known = call.record[problem * update::kFigures + update::kBestFitness];
  call.best[problem] = ~key != 0 && update::is_better(value, known, call.maximize) ? candidate : -1;
}

template <typename T>
CEM_TETRIS_FUNCTION const T* row_of(const Move& call, int64_t problem, int64_t candidate) {
  return static_cast<const T*>(call.candidates) + problem * call.problem_stride + candidate * call.row_stride;
}

// The value that a number stands for; 0 for what is none. Without a branch: loads do not wait for it.
template <typename T> CEM_TETRIS_FUNCTION int64_t value_of(const Family& family, T x) {
  return static_cast<int32_t>(x >= T(0) && x < static_cast<T>(family.values) ? x : T(0));
}

// The row of a column of a candidate, whose columns of the family are x.
template <typename T> CEM_TETRIS_FUNCTION int64_t row_of(const Family& family, const T* x, int64_t column) {
  if (!family.has_transitions()) return column;
  return column == 0 ? 0 : 1 + value_of(family, x[column - 1]);
}

CEM_TETRIS_FUNCTION double raised(const Family& family, double p, int64_t sum) {
  const double next = p + rint(static_cast<double>(sum) * family.rate) * kUnit;
  return !(p > 0.0) ? 0.0 : next > family.floor ? next : family.floor;
}

// Of the sum of a row, which is 0 where nothing is possible.
CEM_TETRIS_FUNCTION double share(double p, double total) {
  return rint(p / (total > kUnit ? total : kUnit) * 0x1p40) * kUnit;
}

template <typename T>
CEM_TETRIS_FUNCTION void keep_best(const Move& call, const Family& family, int64_t problem, int64_t column) {
  const int64_t place = problem * call.width + call.cells + family.first_column + column;
  const int64_t best = call.best[problem];
  call.after[place] = best < 0
                          ? call.before[place]
                          : static_cast<double>(row_of<T>(call, problem, best)[family.first_column + column]);
}

namespace {

constexpr char kRankSchema[] =
    "rank_weights(Tensor fitness, Tensor record, Tensor sums, bool maximize) -> (Tensor, Tensor)";
constexpr char kTablesSchema[] =
    "update_tables(Tensor rank_weights, Tensor best, Tensor candidates, Tensor tables, int[] columns, "
    "int[] rows, int[] values, float[] rates, float[] floors) -> Tensor";

using Families = std::vector<Family>;

template <void (&run)(const Ranking&, ScalarType, Device)> std::tuple<Tensor, Tensor> rank_weights(
    const Tensor& given, const Tensor& given_record, const Tensor& given_sums, bool maximize) {
  const Sizes sizes = given.sizes();
  STD_TORCH_CHECK(!sizes.empty() && sizes.back() > 0, "expected fitness of shape (..., N), N >= 1");
  const int64_t samples = sizes.back();
  const Problems problems{Device(given), {sizes.data(), sizes.size() - 1}};
  const Tensor fitness = dense(given),
               record = problems.check(given_record, "record", ScalarType::Double, {update::kFigures}),
               sums = problems.check(given_sums, "sums", ScalarType::Long, {samples + 1}, false);
  std::tuple<Tensor, Tensor> out{
      problems.empty(ScalarType::Long, {samples}), problems.empty(ScalarType::Long, {})};
  const Ranking call{problems.count(), samples, maximize, const_data<void>(fitness),
      const_data<double>(record), const_data<int64_t>(sums), mutable_data<int64_t>(std::get<0>(out)),
      mutable_data<int64_t>(std::get<1>(out))};
  if (call.problems != 0) run(call, given.scalar_type(), problems.device);
  return out;
}

// Whether the rows of a problem, and the problems, are one distance apart, and a row's numbers neighbours.
inline bool is_regular(const Tensor& candidates) {
  const Sizes size = candidates.sizes(), stride = candidates.strides();
  for (size_t i = 0; i + 3 < size.size(); ++i) {
    if (stride[i] != stride[i + 1] * size[i + 1]) return false;
  }
  return stride.back() == 1;
}

template <void (&run)(const Move&, const Families&, ScalarType, Device)>
Tensor update_tables(const Tensor& given_weights, const Tensor& given_best, const Tensor& given_candidates,
    const Tensor& given_tables, std::vector<int64_t> columns, std::vector<int64_t> rows,
    std::vector<int64_t> values, std::vector<double> rates, std::vector<double> floors) {
  const Sizes sizes = given_weights.sizes();
  STD_TORCH_CHECK(!sizes.empty(), "expected rank_weights of shape (..., N), got ()");
  const int64_t samples = sizes.back();
  const Problems problems{Device(given_weights), {sizes.data(), sizes.size() - 1}};
  Families families;
  int64_t width = 0, cells = 0;
  for (size_t i = 0; i < columns.size(); ++i) {
    families.push_back({columns[i], rows.at(i), values.at(i), rates.at(i), floors.at(i), width, cells});
    STD_TORCH_CHECK(values[i] >= 1 && values[i] < int64_t{1} << 31 &&
                        (rows[i] == columns[i] || rows[i] == columns[i] + 1),
        "expected a row for each column, and at most one more");
    width += columns[i];
    cells += rows[i] * values[i];
  }
  const ScalarType type = given_candidates.scalar_type();
  STD_TORCH_CHECK(type == ScalarType::Float || type == ScalarType::Double,
      "expected candidates of type Float or Double, got ", torch::headeronly::toString(type));
  problems.require(given_candidates, "candidates", type, {samples, width});
  const Tensor weights = problems.check(given_weights, "rank_weights", ScalarType::Long, {samples}),
               best = problems.check(given_best, "best", ScalarType::Long, {}),
               tables = problems.check(given_tables, "tables", ScalarType::Double, {cells + width}),
               candidates = is_regular(given_candidates) ? given_candidates : dense(given_candidates),
               out = empty_as(tables);
  const Sizes stride = candidates.strides();
  const size_t last = stride.size() - 1;
  const Move call{problems.count(), samples, cells, cells + width, stride[last - 1],
      last > 1 ? stride[last - 2] : 0, const_data<void>(candidates), const_data<int64_t>(weights),
      const_data<int64_t>(best), const_data<double>(tables), mutable_data<double>(out)};
  if (call.problems * samples * width != 0) run(call, families, type, problems.device);
  return out;
}

}  // namespace
}  // namespace cem_tetris::discrete
