// How tables move on the CPU: threads share the problems, and the columns of variables.
#pragma once

#include <algorithm>

#include "tables.h"

namespace cem_tetris::discrete {
namespace {

constexpr int64_t kColumns = 64;  // of variables, whose sums one thread makes

void run(const Ranking& call, ScalarType type, Device) {
  update::visit_fitness(type, [&](auto kind) {
    const int64_t grain = std::max<int64_t>(1, 4096 / call.samples);
    torch::stable::parallel_for(0, call.problems, grain, [&](int64_t begin, int64_t end) {
      std::vector<std::pair<uint64_t, int64_t>> ranked(call.samples);
      for (int64_t problem = begin; problem < end; ++problem) {
        for (int64_t i = 0; i < call.samples; ++i) {
          ranked[i] = {rank_key<decltype(kind)>(call, problem, i), i};
        }
        std::sort(ranked.begin(), ranked.end());
        choose(call, problem, ranked[0].second, ranked[0].first);
        for (int64_t first = 0, last = 0; first < call.samples; first = last) {
          while (last < call.samples && ranked[last].first == ranked[first].first) ++last;
          for (int64_t k = first; k < last; ++k) {
            weigh(call, problem * call.samples + ranked[k].second, first, last);
          }
        }
      }
    });
  });
}

// Some columns of a family; of transitions all.
template <typename T>
void move(const Move& call, const Family& family, int64_t problem, int64_t first, int64_t end) {
  const int64_t first_row = family.has_transitions() ? 0 : first,
                end_row = family.has_transitions() ? family.rows : end;
  std::vector<int64_t> sums((end_row - first_row) * family.values);
  for (int64_t i = 0; i < call.samples; ++i) {
    const T* const x = row_of<T>(call, problem, i) + family.first_column;
    const int64_t weight = call.weights[problem * call.samples + i];
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

void run(const Move& call, const Families& families, ScalarType type, Device) {
  for (const Family& family : families) {
    const int64_t each = family.has_transitions() ? family.columns : kColumns,
                  parts = divide_up(family.columns, each),
                  grain = std::max<int64_t>(1, (1 << 15) / (call.samples * each));
    torch::stable::parallel_for(0, call.problems * parts, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i % parts * each, last = std::min(first + each, family.columns);
        (type == ScalarType::Double ? move<double> : move<float>)(call, family, i / parts, first, last);
      }
    });
  }
}

}  // namespace
}  // namespace cem_tetris::discrete
