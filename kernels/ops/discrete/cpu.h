// The operators on the CPU. In a draw, the CPU threads share the candidates. In an update, they
// share the problems, and then the columns of variables.
#pragma once

#include "cem_update/cpu.h"
#include "discrete.h"

namespace cem_tetris::discrete {
namespace {

constexpr int kPairs = 32;  // pairs of candidates whose random words are computed together
constexpr int kBlock = 16;  // items whose weights are added up at once

// Draws the categories of all candidates of all problems (batch entries). call.table has one
// row of call.values probabilities for each of the call.rows variables of a problem. The result
// is problems x samples x variables.
//
// The CPU threads share groups of 64 candidates (2 * kPairs). Two candidates, a pair, share one
// block of random bits, so a group takes kPairs blocks for each variable. They are computed in
// one loop, for which the compiler uses vector instructions.
void draw_categories(const Call& call) {
  int64_t groups = divide_up(call.samples, 2 * kPairs);  // groups of one problem
  // Draw the items `begin` to `end` - 1. Item i is group i % groups of problem i / groups. For
  // one variable, noise.set() writes the random words of a pair of candidates, two words from
  // words[2 * pair] on. draw_category() converts the words of the whole group to categories.
  // kAtOnce is the number of probabilities that it loads together, which matters only on a GPU.
  parallel_for(0, call.problems * groups, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t problem = i / groups;
      int64_t first = i % groups * 2 * kPairs;  // the group's first candidate
      // The last group of a problem may have fewer candidates. Surplus categories are not used.
      int64_t count = std::min<int64_t>(call.samples - first, 2 * kPairs);
      Noise noise(call, problem);
      int64_t offset = (problem * call.samples + first) * call.rows;
      for (int64_t variable = 0; variable < call.rows; ++variable) {
        auto set_words = [&](uint64_t* words) {
          for (int pair = 0; pair < kPairs; ++pair) {
            noise.set(first / 2 + pair, variable, words + 2 * pair);
          }
        };
        const double* row = call.table + (problem * call.rows + variable) * call.values;
        int categories[2 * kPairs];
        draw_category</*kAtOnce=*/1>(row, int(call.values), set_words, categories);
        for (int64_t c = 0; c < count; ++c) {
          call.put(offset + c * call.rows + variable, categories[c]);
        }
      }
    }
  });
}

// Sets the weights of n items from a row of probabilities, and returns their sum. weight()
// converts a probability to an integer. An item that has been taken gets the weight 0:
// free_mask[k] has all bits set while item k is free, and no bit set once it is taken. If no
// free item has a positive probability, all free items get the weight 1.
uint64_t set_weights(const double* row, const uint64_t* free_mask, int n, uint64_t* weights) {
  uint64_t total = 0;
  for (int k = 0; k < n; ++k) {
    weights[k] = free_mask[k] & weight(row[k]);
    total += weights[k];
  }
  if (total != 0) return total;
  // All of these weights are 0.
  for (int k = 0; k < n; ++k) {
    weights[k] = free_mask[k] & 1;
    total += weights[k];
  }
  return total;
}

// Returns a pointer to the weight of the item that the random number `target` selects: the
// first item for which the sum of the weights up to and including its own exceeds `target`.
//
// `item` points to the weights of all items, which are followed by zeros up to a multiple of
// kBlock. `target` is smaller than the sum of all weights. The first loop skips blocks of
// kBlock items, as long as the target is beyond the block. `target` becomes the remainder.
const uint64_t* find_item(const uint64_t* item, uint64_t target) {
  while (true) {
    uint64_t block_sum = 0;
    for (int k = 0; k < kBlock; ++k) block_sum += item[k];
    if (block_sum > target) break;
    target -= block_sum;
    item += kBlock;
  }
  for (; *item <= target; ++item) target -= *item;
  return item;
}

// Draws a permutation of n items for every candidate of all problems (batch entries), one item
// after the other. Row 0 of a problem's table has the probabilities of the first item. Row 1 +
// k has the probabilities of the item that follows item k. An item that has been taken cannot
// be drawn again. The CPU threads share the candidates.
//
// An item is drawn as follows. Its probability is converted to an integer, its weight. The
// weights of all free items divide the range from 0 to their sum (`total`) into one interval
// per item. `target` is a random number in this range, and find_item() returns the item whose
// interval it falls into.
void draw_permutations(const Call& call) {
  // Every thread is given enough permutations that it computes about kGrainWeights weights. A
  // permutation of n items takes n * n weights.
  constexpr int kGrainWeights = 4096;
  int n = int(call.values);
  int64_t permutations = call.problems * call.samples;
  int64_t grain = std::max(1, kGrainWeights / n / n);
  // Draw the permutations `begin` to `end` - 1. Permutation i is that of candidate i % samples
  // of problem i / samples. free_mask[k] has all bits set while item k is free, and no bit set
  // once it is taken.
  parallel_for(0, permutations, grain, [&](int64_t begin, int64_t end) {
    std::vector<uint64_t> free_mask(n);
    std::vector<uint64_t> weights(divide_up(n, kBlock) * kBlock);
    for (int64_t i = begin; i < end; ++i) {
      int64_t problem = i / call.samples;
      int64_t candidate = i % call.samples;
      const double* table = call.table + problem * (n + 1) * n;
      const double* row = table;  // the probabilities of the next item
      Noise noise(call, problem);
      std::fill(free_mask.begin(), free_mask.end(), ~uint64_t{0});
      for (int step = 0; step < n; ++step) {
        uint64_t words[2];  // the random words of a pair of candidates
        noise.set(candidate / 2, step, words);
        uint64_t total = set_weights(row, free_mask.data(), n, weights.data());
        // A random word is below 2^64, so the upper 64 bits of this product are below `total`.
        uint64_t target = multiply_high(words[candidate % 2], total);
        int64_t item = find_item(weights.data(), target) - weights.data();
        free_mask[item] = 0;
        row = table + (1 + item) * n;
        call.put(i * n + step, int(item));
      }
    }
  });
}

void run(const Call& call, Device) {
  (call.is_permutation ? draw_permutations : draw_categories)(call);
}

constexpr int64_t kColumns = 64;  // variables whose sums one thread computes

// Ranks the candidates of one problem by fitness. Sets the weight of every candidate in
// call.weights, which depends on its rank, and the index of the best candidate in call.best.
// Candidates of equal fitness share their ranks: weight_of() returns the mean weight of these
// ranks, which all of them get.
//
// `Type` is the type of the fitness. ranking() returns the candidates as pairs of key and
// index, the best one first. The key is an integer that is smaller for a better fitness.
template <typename Type>
void rank(const Move& call, int64_t problem) {
  int64_t samples = call.settings.population;
  const auto ranked = ranking<Type>(call, problem);
  call.best[problem] = ranked[0].second;
  int64_t first = 0;
  while (first < samples) {
    // Find the ranks `first` to `end` - 1 whose candidates have the same fitness.
    int64_t end = first;
    while (end < samples && ranked[end].first == ranked[first].first) ++end;
    int64_t weight = weight_of(call, first, end);
    for (int64_t k = first; k < end; ++k) {
      int64_t candidate = ranked[k].second;
      call.weights[problem * samples + candidate] = weight;
    }
    first = end;
  }
}

// Computes a row of the new table, which has family.values probabilities, from the row `before`
// of the old table. increase() adds the sum of the weights for a value, times the learning
// rate, to its probability. The result is at least the family's floor, the lowest positive
// probability. Then the row is divided by its sum.
void move_row(
    const Family& family, const double* before, const int64_t* row_sums, double* after) {
  double total = 0.0;
  for (int64_t k = 0; k < family.values; ++k) {
    after[k] = increase(family, before[k], row_sums[k]);
    total += after[k];
  }
  for (int64_t k = 0; k < family.values; ++k) after[k] = normalise(after[k], total);
}

// Moves the probabilities of one problem towards its better candidates, for columns `first` to
// `end` - 1 of the candidates. Better candidates have positive weights, and worse ones negative
// weights. The function adds up the weights of the candidates that have the
// same value, and move_row() then computes a row of probabilities from these sums.
//
// A family is a group of discrete variables with equally many values. A variable is a column of
// the candidates, and its row of the table has a probability for each value. value_of() returns
// the index of a candidate's value in the row.
//
// The rows of a permutation (has_transitions) do not belong to columns: row 0 is for the item
// in the first column, and row 1 + i for the item that follows item i. Any column may use any
// of these rows, so the caller passes all columns of a permutation at once.
template <typename T>
void move(const Move& call, const Family& family, int64_t problem, int64_t first, int64_t end) {
  bool has_transitions = family.has_transitions();
  int64_t first_row = has_transitions ? 0 : first;
  int64_t end_row = has_transitions ? family.rows : end;
  // sums[r * family.values + k] is the sum of the weights for value k in row `first_row` + r.
  std::vector<int64_t> sums((end_row - first_row) * family.values);
  for (int64_t i = 0; i < call.settings.population; ++i) {
    const T* x = call.columns_of<T>(problem, i, family.first_column);
    int64_t weight = call.weights[problem * call.settings.population + i];
    for (int64_t column = first; column < end; ++column) {
      int64_t r = column - first;
      // In a permutation, `first` and first_row are 0.
      if (has_transitions && column > 0) r = 1 + value_of(family, x[column - 1]);
      sums[r * family.values + value_of(family, x[column])] += weight;
    }
  }
  for (int64_t row = first_row; row < end_row; ++row) {
    const int64_t* row_sums = sums.data() + (row - first_row) * family.values;
    int64_t cell = problem * call.width + family.first_cell + row * family.values;
    move_row(family, call.before + cell, row_sums, call.after + cell);
  }
}

// Writes the best candidate so far of a problem to its position after the problem's tables. It
// is this generation's best candidate if the best fitness in the record has changed, and
// otherwise the old one. A best fitness of NaN means that all candidates so far have failed.
// The new record must have been written before.
template <typename T>
void write_best(const Move& call, int64_t problem) {
  int64_t figure = problem * kFigures + kBestFitness;
  int64_t offset = problem * call.width;
  double best = call.new_record[figure];
  const T* x = call.columns_of<T>(problem, call.best[problem], /*first_column=*/0);
  bool is_new_best = best == best && best != call.record[figure];  // NaN is unequal to itself
  for (int64_t i = call.cells; i < call.width; ++i) {
    call.after[offset + i] = is_new_best ? double(x[i - call.cells]) : call.before[offset + i];
  }
}

// Updates all problems (batch entries): first the records, then the weights and best
// candidates, then the tables. Every family of variables has a table with a row for each of its
// columns. The CPU threads share the problems, and also the columns of a table, kColumns at a
// time. In a permutation a row of the table depends on the previous column (has_transitions),
// so one thread moves all columns of a problem.
void run(const Move& call, Device device) {
  // The job has no dimensions, so this updates the record and no distribution.
  update::run(call, device);
  int64_t problems = call.settings.problems;
  int64_t samples = call.settings.population;
  // Calls f(i) for all items. The CPU threads share the items if there is enough work.
  auto for_each = [&](int64_t items, int64_t item_cost, const auto& f) {
    split_work(items, item_cost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) f(i);
    });
  };
  bool is_double = call.type == Number::Double;
  visit_fitness(call.fitness_type, [&](auto kind) {
    // The cost is in numbers that are read. To rank a candidate counts as eight of them.
    for_each(problems, 8 * samples, [&](int64_t problem) {
      rank<decltype(kind)>(call, problem);
      auto* write = is_double ? write_best<double> : write_best<float>;
      write(call, problem);
    });
  });
  auto* move_columns = is_double ? move<double> : move<float>;
  for (const Family& family : *call.families) {
    int64_t columns = family.columns;  // how many columns are moved together
    if (!family.has_transitions()) columns = std::min(kColumns, columns);
    int64_t parts = divide_up(family.columns, columns);
    for_each(problems * parts, samples * columns, [&](int64_t i) {
      int64_t problem = i / parts;
      int64_t first = i % parts * columns;
      int64_t end = std::min(first + columns, family.columns);
      move_columns(call, family, problem, first, end);
    });
  }
}

}  // namespace
}  // namespace cem_tetris::discrete
