// How tables of probabilities move, for host and device; tables.py has the definition. Weights and their sums
// are integers, and probabilities multiples of 2^-40: no sum depends on its order.
#pragma once

#include <vector>

#include "cem_update/arguments.h"

namespace cem_tetris::discrete {

using update::ScalarType;

constexpr double kUnit = 0x1p-40;

struct Family {
  int64_t columns, rows, values;
  double rate, floor;
  int64_t first_column, first_cell;

  CEM_TETRIS_FUNCTION bool has_transitions() const { return rows != columns; }
};

// A problem's tables, and after them its best candidate, are `width` numbers.
struct Move {
  int64_t problems, samples, cells, width;
  int64_t row_stride, problem_stride;  // of candidates
  bool maximize;
  ScalarType fitness_type, type;  // type: of candidates
  const void *fitness, *candidates;
  const double *before, *record;
  const int64_t* sums;  // of the weights of the best 0 .. N
  int64_t* ranked;      // of a problem: the weights, and which candidate is better than its record, or -1
  double* after;
  const std::vector<Family>* families;  // host's

  CEM_TETRIS_FUNCTION int64_t* ranked_of(int64_t problem) const { return ranked + problem * (samples + 1); }
  // Of a problem, the candidate's columns of a family.
  template <typename T>
  CEM_TETRIS_FUNCTION const T* columns_of(const Family& family, int64_t problem, int64_t candidate) const {
    return static_cast<const T*>(candidates) + problem * problem_stride + candidate * row_stride +
           family.first_column;
  }
};

// The fitness of a candidate, of the types of cem_update/update.h.
template <typename Type>
CEM_TETRIS_FUNCTION auto bits_of(const Move& call, int64_t problem, int64_t candidate) {
  return static_cast<const typename Type::Bits*>(call.fitness)[problem * call.samples + candidate];
}

// The mean weight of ranks first to last - 1, rounded down.
CEM_TETRIS_FUNCTION int64_t weight_of(const Move& call, int64_t first, int64_t last) {
  const int64_t sum = call.sums[last] - call.sums[first], count = last - first;
  return sum / count - (sum % count < 0 ? 1 : 0);
}

// Keeps the first of the fittest candidates, if it is better than the record.
template <typename Type>
CEM_TETRIS_FUNCTION void choose(const Move& call, int64_t problem, int64_t candidate) {
  const auto bits = bits_of<Type>(call, problem, candidate);
  const bool failed = Type::kCanFail && Type::key(bits, call.maximize) == typename Type::Key(-1);
  const double known = call.record[problem * update::kFigures + update::kBestFitness];
  const bool better = !failed && update::is_better(Type::value(bits), known, call.maximize);
  call.ranked_of(problem)[call.samples] = better ? candidate : -1;
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
  const int64_t best = call.ranked_of(problem)[call.samples];
  call.after[place] =
      best < 0 ? call.before[place] : static_cast<double>(call.columns_of<T>(family, problem, best)[column]);
}

namespace {

constexpr char kTablesSchema[] =
    "update_tables(Tensor fitness, Tensor candidates, Tensor tables, Tensor record, Tensor sums, "
    "int[] columns, int[] rows, int[] values, float[] rates, float[] floors, bool maximize) -> Tensor";

// Whether the rows of a problem, and the problems, are one distance apart, and a row's numbers neighbours.
inline bool is_regular(const Tensor& candidates) {
  const Sizes size = candidates.sizes(), stride = candidates.strides();
  for (size_t i = 0; i + 3 < size.size(); ++i) {
    if (stride[i] != stride[i + 1] * size[i + 1]) return false;
  }
  return stride.back() == 1;
}

template <void (&run)(const Move&, Device)> Tensor update_tables(const Tensor& given_fitness,
    const Tensor& given_candidates, const Tensor& given_tables, const Tensor& given_record,
    const Tensor& given_sums, std::vector<int64_t> columns, std::vector<int64_t> rows,
    std::vector<int64_t> values, std::vector<double> rates, std::vector<double> floors, bool maximize) {
  const Problems problems(given_fitness, 1, "fitness of shape (..., N)");
  const int64_t samples = given_fitness.sizes().back();
  STD_TORCH_CHECK(samples > 0, "expected a candidate");
  std::vector<Family> families;
  int64_t width = 0, cells = 0;
  for (size_t i = 0; i < columns.size(); ++i) {
    families.push_back({columns[i], rows.at(i), values.at(i), rates.at(i), floors.at(i), width, cells});
    STD_TORCH_CHECK(values[i] >= 1 && values[i] < int64_t{1} << 31 &&
                        (rows[i] == columns[i] || rows[i] == columns[i] + 1),
        "expected a row for each column, and at most one more");
    width += columns[i];
    cells += rows[i] * values[i];
  }
  const ScalarType type = real_type(given_candidates, "candidates");
  problems.require(given_candidates, "candidates", type, {samples, width});
  const Tensor fitness = update::ranked_fitness(given_fitness),
               candidates = is_regular(given_candidates) ? given_candidates : dense(given_candidates),
               tables = problems.check(given_tables, "tables", ScalarType::Double, {cells + width}),
               record = problems.check(given_record, "record", ScalarType::Double, {update::kFigures}),
               sums = problems.check(given_sums, "sums", ScalarType::Long, {samples + 1}, false),
               ranked = problems.empty(ScalarType::Long, {samples + 1}), out = empty_as(tables);
  const Sizes stride = candidates.strides();
  const size_t last = stride.size() - 1;
  const Move call{problems.count(), samples, cells, cells + width, stride[last - 1],
      last > 1 ? stride[last - 2] : 0, maximize, fitness.scalar_type(), type, const_data<void>(fitness),
      const_data<void>(candidates), const_data<double>(tables), const_data<double>(record),
      const_data<int64_t>(sums), mutable_data<int64_t>(ranked), mutable_data<double>(out), &families};
  if (call.problems != 0) run(call, problems.device);
  return out;
}

}  // namespace
}  // namespace cem_tetris::discrete
