// The operators on the CPU: threads share the candidates of draws, and of tables the problems
// and the columns of variables.
#pragma once

#include <algorithm>

#include "cem_update/cpu.h"
#include "discrete.h"

namespace cem_tetris::discrete {
namespace {

constexpr int kPairs = 32;  // of candidates, whose noise is made by vectors
constexpr int kBlock = 16;  // items that are passed over at once

void draw_categories(const Call& call) {
  const int64_t groups = divide_up(call.samples, 2 * kPairs);
  torch::stable::parallel_for(0, call.problems * groups, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t problem = i / groups, first = i % groups * 2 * kPairs;
      const Noise noise(call, problem);
      const int64_t place = (problem * call.samples + first) * call.rows;
      for (int64_t v = 0; v < call.rows; ++v) {
        const auto set = [&](uint64_t* word) {
          for (int l = 0; l < kPairs; ++l) noise.set(first / 2 + l, v, word + 2 * l);
        };
        int found[2 * kPairs];
        draw_category<1>(call.table + (problem * call.rows + v) * call.values,
            static_cast<int>(call.values), set, found);
        for (int64_t s = std::min<int64_t>(call.samples - first, 2 * kPairs); s-- > 0;) {
          call.put(place + s * call.rows + v, found[s]);
        }
      }
    }
  });
}

// Sets weights to those of the items left; returns their sum.
uint64_t weigh(const double* row, const uint64_t* left, int n, uint64_t* weights) {
  uint64_t total = 0;
  for (int k = 0; k < n; ++k) total += weights[k] = left[k] & weight(row[k]);
  if (total != 0) return total;
  for (int k = 0; k < n; ++k) total += weights[k] = left[k] & 1;
  return total;
}

void draw_permutations(const Call& call) {
  const int n = static_cast<int>(call.values);
  const int64_t grain = std::max(1, 4096 / n / n);
  torch::stable::parallel_for(
      0, call.problems * call.samples, grain, [&](int64_t begin, int64_t end) {
        std::vector<uint64_t> left(n),
            weights(divide_up(n, kBlock) * kBlock);  // left: all bits, or none
        for (int64_t i = begin; i < end; ++i) {
          const int64_t problem = i / call.samples, candidate = i % call.samples;
          const double *const table = call.table + problem * (n + 1) * n, *row = table;
          const Noise noise(call, problem);
          std::fill(left.begin(), left.end(), ~uint64_t{0});
          for (int step = 0; step < n; ++step) {
            uint64_t word[2], sum;
            noise.set(candidate / 2, step, word);
            uint64_t below =
                multiply_high(word[candidate % 2], weigh(row, left.data(), n, weights.data()));
            const uint64_t* item = weights.data();
            for (;; item += kBlock, below -= sum) {
              sum = 0;
              for (int k = 0; k < kBlock; ++k) sum += item[k];
              if (sum > below) break;
            }
            for (; *item <= below; ++item) below -= *item;
            const int64_t found = item - weights.data();
            left[found] = 0;
            row = table + (1 + found) * n;
            call.put(i * n + step, static_cast<int>(found));
          }
        }
      });
}

void run(const Call& call, Device) {
  (call.is_permutation ? draw_permutations : draw_categories)(call);
}

constexpr int64_t kColumns = 64;  // of variables, whose sums one thread makes

template <typename Type> void rank(const Move& call, int64_t problem) {
  const int64_t samples = call.settings.population;
  const auto ranked = update::ranking<Type>(call, problem);
  call.best[problem] = ranked[0].second;
  for (int64_t first = 0, last = 0; first < samples; first = last) {
    while (last < samples && ranked[last].first == ranked[first].first) ++last;
    const int64_t weight = weight_of(call, first, last);
    for (int64_t k = first; k < last; ++k)
      call.weights[problem * samples + ranked[k].second] = weight;
  }
}

// Columns first to end - 1 of a family; of transitions all.
template <typename T>
void move(const Move& call, const Family& family, int64_t problem, int64_t first, int64_t end) {
  const bool after = family.has_transitions();  // of which a column's row is by the item before
  const int64_t first_row = after ? 0 : first, end_row = after ? family.rows : end;
  std::vector<int64_t> sums((end_row - first_row) * family.values);
  for (int64_t i = 0; i < call.settings.population; ++i) {
    const T* const x = call.columns_of<T>(problem, i, family.first_column);
    const int64_t weight = call.weights[problem * call.settings.population + i];
    for (int64_t c = first; c < end; ++c) {
      const int64_t row = !after ? c - first : c == 0 ? 0 : 1 + value_of(family, x[c - 1]);
      sums[row * family.values + value_of(family, x[c])] += weight;
    }
  }
  const int64_t place = problem * call.width + family.first_cell;
  for (int64_t row = first_row; row < end_row; ++row) {
    const double* const before = call.before + place + row * family.values;
    double* const next = call.after + place + row * family.values;
    double total = 0.0;
    for (int64_t k = 0; k < family.values; ++k) {
      total += next[k] = raised(family, before[k], sums[(row - first_row) * family.values + k]);
    }
    for (int64_t k = 0; k < family.values; ++k) next[k] = share(next[k], total);
  }
}

// Keeps the best candidate of a problem, if it is better than the one before.
template <typename T> void keep_best(const Move& call, int64_t problem) {
  const int64_t figure = problem * update::kFigures + update::kBestFitness,
                place = problem * call.width;
  const double best = call.new_record[figure];
  const T* const x = call.columns_of<T>(problem, call.best[problem], 0);
  const bool better = best == best && best != call.record[figure];
  for (int64_t i = call.cells; i < call.width; ++i) {
    call.after[place + i] =
        better ? static_cast<double>(x[i - call.cells]) : call.before[place + i];
  }
}

void run(const Move& call, Device device) {
  update::run(call, device);  // the record
  const int64_t problems = call.settings.problems, samples = call.settings.population;
  const auto share = [&](int64_t items, int64_t work, const auto& f) {
    update::share(items, work, [&](int64_t i, int64_t end) {
      for (; i < end; ++i) f(i);
    });
  };
  const bool is_double = call.type == update::Number::Double;
  update::visit_fitness(call.fitness_type, [&](auto kind) {
    share(problems, 8 * samples, [&](int64_t problem) {
      rank<decltype(kind)>(call, problem);
      (is_double ? keep_best<double> : keep_best<float>)(call, problem);
    });
  });
  for (const Family& family : *call.families) {
    const int64_t each = family.has_transitions() ? family.columns
                                                  : std::min(kColumns, family.columns),
                  parts = divide_up(family.columns, each);
    share(problems * parts, samples * each, [&](int64_t i) {
      const int64_t first = i % parts * each, end = std::min(first + each, family.columns);
      (is_double ? move<double> : move<float>)(call, family, i / parts, first, end);
    });
  }
}

}  // namespace
}  // namespace cem_tetris::discrete
