// How tables move on the CPU: threads share the problems, and the columns of variables.
#pragma once

#include <algorithm>

#include "tables.h"

namespace cem_tetris::discrete {
namespace {

constexpr int64_t kColumns = 64;  // of variables, whose sums one thread makes

template <typename Type> void rank(const Move& call, int64_t problem) {
  std::vector<std::pair<typename Type::Key, int64_t>> ranked(call.samples);
  for (int64_t i = 0; i < call.samples; ++i) {
    ranked[i] = {Type::key(bits_of<Type>(call, problem, i), call.maximize), i};
  }
  std::sort(ranked.begin(), ranked.end());
  choose<Type>(call, problem, ranked[0].second);
  for (int64_t first = 0, last = 0; first < call.samples; first = last) {
    while (last < call.samples && ranked[last].first == ranked[first].first) ++last;
    const int64_t weight = weight_of(call, first, last);
    for (int64_t k = first; k < last; ++k) call.ranked_of(problem)[ranked[k].second] = weight;
  }
}

// Columns first to end - 1 of a family; of transitions all.
template <typename T>
void move(const Move& call, const Family& family, int64_t problem, int64_t first, int64_t end) {
  const int64_t first_row = family.has_transitions() ? 0 : first,
                end_row = family.has_transitions() ? family.rows : end;
  std::vector<int64_t> sums((end_row - first_row) * family.values);
  for (int64_t i = 0; i < call.samples; ++i) {
    const T* const x = call.columns_of<T>(family, problem, i);
    const int64_t weight = call.ranked_of(problem)[i];
    for (int64_t c = first; c < end; ++c) {
      sums[(row_of(family, x, c) - first_row) * family.values + value_of(family, x[c])] += weight;
    }
  }
  const int64_t place = problem * call.width + family.first_cell;
  for (int64_t row = first_row; row < end_row; ++row) {
    const double* const before = call.before + place + row * family.values;
    double* const after = call.after + place + row * family.values;
    double total = 0.0;
    for (int64_t k = 0; k < family.values; ++k) {
      total += after[k] = raised(family, before[k], sums[(row - first_row) * family.values + k]);
    }
    for (int64_t k = 0; k < family.values; ++k) after[k] = share(after[k], total);
  }
  for (int64_t c = first; c < end; ++c) keep_best<T>(call, family, problem, c);
}

void run(const Move& call, Device) {
  const auto share = [&](int64_t items, int64_t work, const auto& f) {
    torch::stable::parallel_for(
        0, items, std::max<int64_t>(1, (1 << 15) / work), [&](int64_t i, int64_t end) {
          for (; i < end; ++i) f(i);
        });
  };
  update::visit_fitness(call.fitness_type, [&](auto kind) {
    share(call.problems, 8 * call.samples, [&](int64_t problem) { rank<decltype(kind)>(call, problem); });
  });
  for (const Family& family : *call.families) {
    const int64_t each = family.has_transitions() ? family.columns : std::min(kColumns, family.columns),
                  parts = divide_up(family.columns, each);
    share(call.problems * parts, call.samples * each, [&](int64_t i) {
      const int64_t first = i % parts * each, end = std::min(first + each, family.columns);
      (call.type == ScalarType::Double ? move<double> : move<float>)(call, family, i / parts, first, end);
    });
  }
}

}  // namespace
}  // namespace cem_tetris::discrete
