// The operators on the CPU: threads share the candidates of draws, and of tables the problems and the columns of
// variables.
#pragma once

#include <algorithm>

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
      const Noise noise(call, problem, false);
      const int64_t place = (problem * call.samples + first) * call.width;
      for (int64_t v = 0; v < call.width; ++v) {
        const auto set = [&](uint64_t* word) {
          for (int l = 0; l < kPairs; ++l) noise.set(first / 2 + l, v, word + 2 * l);
        };
        int64_t found[2 * kPairs];
        draw_category<1>(call.table + problem * call.starts[call.width] + call.starts[v],
            static_cast<int>(call.starts[v + 1] - call.starts[v]), set, found);
        for (int64_t s = std::min<int64_t>(call.samples - first, 2 * kPairs); s-- > 0;) {
          call.put(place + s * call.width + v, found[s]);
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
  const int n = static_cast<int>(call.width);
  const int64_t grain = std::max(1, 4096 / n / n);
  torch::stable::parallel_for(0, call.problems * call.samples, grain, [&](int64_t begin, int64_t end) {
    std::vector<uint64_t> left(n), weights(divide_up(n, kBlock) * kBlock);  // left: all bits, or none
    for (int64_t i = begin; i < end; ++i) {
      const int64_t problem = i / call.samples, candidate = i % call.samples;
      const double *const table = call.table + problem * (n + 1) * n, *row = table;
      const Noise noise(call, problem, true);
      std::fill(left.begin(), left.end(), ~uint64_t{0});
      for (int step = 0; step < n; ++step) {
        uint64_t word[2], sum;
        noise.set(candidate / 2, step, word);
        uint64_t below = multiply_high(word[candidate % 2], weigh(row, left.data(), n, weights.data()));
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
        call.put(i * n + step, found);
      }
    }
  });
}

void run(const Call& call, Device) { (call.starts != nullptr ? draw_categories : draw_permutations)(call); }

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
