// The operators on the CPU: threads share the candidates of draws, and of tables the problems
// and the columns of variables.
#pragma once

#include "cem_update/cpu.h"
#include "discrete.h"

namespace cem_tetris::discrete {
namespace {

constexpr int kPairs = 32;  // of candidates, whose noise is made by vectors
constexpr int kBlock = 16;  // items whose weights are added up at once

// Draws categorical variables for all problems (entries of the batch). Threads share the groups
// of 2 kPairs candidates; a pair shares a block of random bits, and kPairs blocks are made by
// vectors.
void draw_categories(const Call& call) {
  int64_t groups = divide_up(call.samples, 2 * kPairs);  // of a problem's candidates
  int64_t items = call.problems * groups;
  // Draws the groups `begin` to `end` - 1 of candidates, numbered through all problems.
  parallel_for(0, items, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t problem = i / groups;
      int64_t first = i % groups * 2 * kPairs;
      int64_t count = std::min<int64_t>(call.samples - first, 2 * kPairs);
      Noise noise(call, problem);
      int64_t offset = (problem * call.samples + first) * call.rows;
      for (int64_t variable = 0; variable < call.rows; ++variable) {
        auto set_words = [&](uint64_t* words) {
          for (int l = 0; l < kPairs; ++l) noise.set(first / 2 + l, variable, words + 2 * l);
        };
        const double* p = call.table + (problem * call.rows + variable) * call.values;
        int categories[2 * kPairs];
        draw_category<1>(p, int(call.values), set_words, categories);
        for (int64_t s = 0; s < count; ++s) {
          call.put(offset + s * call.rows + variable, categories[s]);
        }
      }
    }
  });
}

// Sets the weights of n items by a row of probabilities, with 0 for items that are taken
// already, and returns their sum. left: for each item a mask, all bits if it is left and none
// if it is taken. If no item that is left has a positive probability, each of them gets the
// weight 1.
uint64_t set_weights(const double* row, const uint64_t* left, int n, uint64_t* weights) {
  uint64_t total = 0;
  for (int k = 0; k < n; ++k) total += weights[k] = left[k] & weight(row[k]);
  if (total != 0) return total;
  for (int k = 0; k < n; ++k) total += weights[k] = left[k] & 1;
  return total;
}

// Returns a pointer to the weight of the first item whose prefix sum of weights is above a
// number. item: the weights, with zeros up to a multiple of kBlock; below: a number below their
// sum. Blocks of kBlock items whose sum is too small are passed over at once.
const uint64_t* find_item(const uint64_t* item, uint64_t below) {
  uint64_t sum;
  for (;; item += kBlock, below -= sum) {
    sum = 0;
    for (int k = 0; k < kBlock; ++k) sum += item[k];
    if (sum > below) break;
  }
  for (; *item <= below; ++item) below -= *item;
  return item;
}

// Draws permutations of n items for all problems, item by item: each by the row of the table
// for the item before it (row 0 for the first one), among the items that are left. Threads
// share the candidates.
void draw_permutations(const Call& call) {
  int n = int(call.values);
  int64_t items = call.problems * call.samples;
  int64_t grain = std::max(1, 4096 / n / n);
  // Draws the permutations `begin` to `end` - 1, numbered through all problems. left[k] is all
  // bits while item k is not taken, then 0; row: the probabilities of the next item.
  parallel_for(0, items, grain, [&](int64_t begin, int64_t end) {
    std::vector<uint64_t> left(n);
    std::vector<uint64_t> weights(divide_up(n, kBlock) * kBlock);
    for (int64_t i = begin; i < end; ++i) {
      int64_t problem = i / call.samples;
      int64_t candidate = i % call.samples;
      const double* table = call.table + problem * (n + 1) * n;
      const double* row = table;
      Noise noise(call, problem);
      std::fill(left.begin(), left.end(), ~uint64_t{0});
      for (int step = 0; step < n; ++step) {
        uint64_t word[2];
        noise.set(candidate / 2, step, word);
        uint64_t total = set_weights(row, left.data(), n, weights.data());
        uint64_t below = multiply_high(word[candidate % 2], total);
        int64_t item = find_item(weights.data(), below) - weights.data();
        left[item] = 0;
        row = table + (1 + item) * n;
        call.put(i * n + step, int(item));
      }
    }
  });
}

void run(const Call& call, Device) {
  (call.is_permutation ? draw_permutations : draw_categories)(call);
}

constexpr int64_t kColumns = 64;  // of variables, whose sums one thread makes

// Sets call.weights, the weight of each candidate of a problem by its rank, and call.best.
// Candidates of equal fitness get the mean weight of the ranks that they share.
template <typename Type>
void rank(const Move& call, int64_t problem) {
  int64_t samples = call.settings.population;
  const auto ranked = update::ranking<Type>(call, problem);
  call.best[problem] = ranked[0].second;
  for (int64_t first = 0, last = 0; first < samples; first = last) {
    while (last < samples && ranked[last].first == ranked[first].first) ++last;
    int64_t weight = weight_of(call, first, last);
    for (int64_t k = first; k < last; ++k) {
      call.weights[problem * samples + ranked[k].second] = weight;
    }
  }
}

// Moves the rows of a family's table that belong to the columns `first` to `end` - 1 of a
// problem's candidates: adds the candidates' weights to the cells they used, and normalises
// each row. Usually row and column are the same; for transitions the row is that of the item in
// the column before, so all columns must be moved together.
template <typename T>
void move(const Move& call, const Family& family, int64_t problem, int64_t first, int64_t end) {
  bool has_transitions = family.has_transitions();
  int64_t first_row = has_transitions ? 0 : first;
  int64_t end_row = has_transitions ? family.rows : end;
  std::vector<int64_t> sums((end_row - first_row) * family.values);
  for (int64_t i = 0; i < call.settings.population; ++i) {
    const T* x = call.columns_of<T>(problem, i, family.first_column);
    int64_t weight = call.weights[problem * call.settings.population + i];
    for (int64_t column = first; column < end; ++column) {
      int64_t row = column - first;
      if (has_transitions && column > 0) row = 1 + value_of(family, x[column - 1]);
      sums[row * family.values + value_of(family, x[column])] += weight;
    }
  }
  int64_t offset = problem * call.width + family.first_cell;
  for (int64_t row = first_row; row < end_row; ++row) {
    const double* before = call.before + offset + row * family.values;
    double* next = call.after + offset + row * family.values;
    const int64_t* row_sums = sums.data() + (row - first_row) * family.values;
    double total = 0.0;
    for (int64_t k = 0; k < family.values; ++k) {
      total += next[k] = raised(family, before[k], row_sums[k]);
    }
    for (int64_t k = 0; k < family.values; ++k) next[k] = share(next[k], total);
  }
}

// Writes the best candidate so far of a problem: this generation's if the record says that it
// is better than the one before, otherwise the old one. The record must have been written.
template <typename T>
void keep_best(const Move& call, int64_t problem) {
  int64_t figure = problem * update::kFigures + update::kBestFitness;
  int64_t offset = problem * call.width;
  double best = call.new_record[figure];
  const T* x = call.columns_of<T>(problem, call.best[problem], 0);
  bool is_new_best = best == best && best != call.record[figure];
  for (int64_t i = call.cells; i < call.width; ++i) {
    call.after[offset + i] = is_new_best ? double(x[i - call.cells]) : call.before[offset + i];
  }
}

// Updates the record, then the ranks and best candidates, then all tables.
void run(const Move& call, Device device) {
  update::run(call, device);  // the record
  int64_t problems = call.settings.problems;
  int64_t samples = call.settings.population;
  auto for_each = [&](int64_t items, int64_t item_cost, const auto& f) {
    update::share(items, item_cost, [&](int64_t i, int64_t end) {
      for (; i < end; ++i) f(i);
    });
  };
  bool is_double = call.type == update::Number::Double;
  update::visit_fitness(call.fitness_type, [&](auto kind) {
    for_each(problems, 8 * samples, [&](int64_t problem) {
      rank<decltype(kind)>(call, problem);
      (is_double ? keep_best<double> : keep_best<float>)(call, problem);
    });
  });
  for (const Family& family : *call.families) {
    int64_t columns = family.columns;  // of a thread
    if (!family.has_transitions()) columns = std::min(kColumns, columns);
    int64_t parts = divide_up(family.columns, columns);
    for_each(problems * parts, samples * columns, [&](int64_t i) {
      int64_t first = i % parts * columns;
      int64_t end = std::min(first + columns, family.columns);
      (is_double ? move<double> : move<float>)(call, family, i / parts, first, end);
    });
  }
}

}  // namespace
}  // namespace cem_tetris::discrete
