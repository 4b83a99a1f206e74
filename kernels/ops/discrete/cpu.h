// The operators on the CPU: threads share the candidates of draws, and of tables the problems
// and the columns of variables.
#pragma once

#include "cem_update/cpu.h"
#include "discrete.h"

namespace cem_tetris::discrete {
namespace {

constexpr int kPairs = 32;  // of candidates, whose noise is made by vectors
constexpr int kBlock = 16;  // items whose weights are added up at once

// Draws the categories of all candidates of all problems (entries of the batch). call.table has
// a row of call.values probabilities for each of the call.rows variables of a problem; the
// result is problems x samples x variables. Threads share groups of 64 candidates (2 kPairs).
// Two candidates, a pair, share one block of random bits, so that a group takes kPairs blocks
// for each variable, which a compiler computes by vector instructions.
void draw_categories(const Call& call) {
  int64_t groups = divide_up(call.samples, 2 * kPairs);  // of one problem
  // Draws the groups `begin` to `end` - 1; they are numbered within a problem, then by problem.
  // noise.set() writes the random words of a pair of candidates for one variable;
  // draw_category() turns the words of all candidates of a group into categories.
  parallel_for(0, call.problems * groups, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t problem = i / groups;
      int64_t first = i % groups * 2 * kPairs;  // candidate
      int64_t count = std::min<int64_t>(call.samples - first, 2 * kPairs);
      Noise noise(call, problem);
      int64_t offset = (problem * call.samples + first) * call.rows;
      for (int64_t variable = 0; variable < call.rows; ++variable) {
        auto set_words = [&](uint64_t* words) {
          for (int l = 0; l < kPairs; ++l) noise.set(first / 2 + l, variable, words + 2 * l);
        };
        const double* row = call.table + (problem * call.rows + variable) * call.values;
        int categories[2 * kPairs];
        draw_category<1>(row, int(call.values), set_words, categories);
        for (int64_t s = 0; s < count; ++s) {
          call.put(offset + s * call.rows + variable, categories[s]);
        }
      }
    }
  });
}

// Sets the integer weights of n items by a row of probabilities, with 0 for items that are
// taken already, and returns their sum. free_mask has all bits of an item set while it is free,
// and none once it is taken. If no free item has a positive probability, each of them gets
// weight 1.
uint64_t set_weights(const double* row, const uint64_t* free_mask, int n, uint64_t* weights) {
  uint64_t total = 0;
  for (int k = 0; k < n; ++k) {
    weights[k] = free_mask[k] & weight(row[k]);
    total += weights[k];
  }
  if (total != 0) return total;
  for (int k = 0; k < n; ++k) {
    weights[k] = free_mask[k] & 1;
    total += weights[k];
  }
  return total;
}

// Returns a pointer to the weight of the first item up to which the weights add up to more than
// `target`. item: the weights, with zeros up to a multiple of kBlock; target: a number below
// the sum of all weights. Blocks of kBlock items that end before that item are skipped at once.
const uint64_t* find_item(const uint64_t* item, uint64_t target) {
  uint64_t sum;  // of a block
  for (;; item += kBlock, target -= sum) {
    sum = 0;
    for (int k = 0; k < kBlock; ++k) sum += item[k];
    if (sum > target) break;
  }
  for (; *item <= target; ++item) target -= *item;
  return item;
}

// Draws a permutation of n items for every candidate of all problems (entries of the batch),
// item by item. Row 0 of a problem's table has the probabilities of the first item; row 1 + i
// has those of the item that follows item i. Items that are taken already cannot be drawn
// again. Threads share the candidates.
void draw_permutations(const Call& call) {
  constexpr int kGrainWeights = 4096;  // weights that are worth waking another thread for
  int n = int(call.values);
  int64_t permutations = call.problems * call.samples;
  int64_t grain = std::max(1, kGrainWeights / n / n);
  // Draws the permutations `begin` to `end` - 1, which are numbered by candidate, then by
  // problem. free_mask[k] has all bits set while item k is not taken, then none. A step draws
  // the item whose share of the free items' weights, added up in order, holds a random number.
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
        uint64_t words[2];  // of a pair of candidates
        noise.set(candidate / 2, step, words);
        uint64_t total = set_weights(row, free_mask.data(), n, weights.data());
        uint64_t below_total = multiply_high(words[candidate % 2], total);
        int64_t item = find_item(weights.data(), below_total) - weights.data();
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

constexpr int64_t kColumns = 64;  // of variables, whose sums one thread makes

// Ranks the candidates of one problem by fitness, and sets call.weights, the weight of each
// candidate by its rank, and call.best, the index of the best one. Candidates of equal fitness
// all get the mean weight of the ranks that they share. `Type` is the type of the fitness, and
// ranking() returns pairs of key and index, best first.
template <typename Type>
void rank(const Move& call, int64_t problem) {
  int64_t samples = call.settings.population;
  const auto ranked = update::ranking<Type>(call, problem);
  call.best[problem] = ranked[0].second;
  int64_t first = 0;
  while (first < samples) {
    // The ranks `first` to `end` - 1 have the same fitness.
    int64_t end = first;
    while (end < samples && ranked[end].first == ranked[first].first) ++end;
    int64_t weight = weight_of(call, first, end);
    for (int64_t k = first; k < end; ++k) {
      call.weights[problem * samples + ranked[k].second] = weight;
    }
    first = end;
  }
}

// Moves the probabilities of one problem towards its elites: for the columns `first` to `end` -
// 1 of the candidates, adds the weight of each candidate to the cells of the table that it
// used, and normalises each row. A family is a group of discrete variables with equally many
// values; its table has a row of probabilities for each variable (column of the candidates),
// and value_of() is the index of a candidate's value in the row. In a permutation, the row is 1
// + the item in the column before (row 0 for the first column); then all columns are moved
// together.
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
  // raised() moves a probability by its sum of weights, but not below the family's floor.
  int64_t offset = problem * call.width + family.first_cell;
  for (int64_t row = first_row; row < end_row; ++row) {
    const double* before = call.before + offset + row * family.values;
    double* next = call.after + offset + row * family.values;
    const int64_t* row_sums = sums.data() + (row - first_row) * family.values;
    double total = 0.0;
    for (int64_t k = 0; k < family.values; ++k) {
      next[k] = raised(family, before[k], row_sums[k]);
      total += next[k];
    }
    for (int64_t k = 0; k < family.values; ++k) next[k] = share(next[k], total);
  }
}

// Writes the best candidate so far of a problem, behind its tables: this generation's best if
// it has changed the best fitness in the record, otherwise the old one. A best fitness of NaN
// means that there is none yet. The new record must have been written before.
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

// Updates all problems (entries of the batch): first the records, then the weights and best
// candidates, then the table of every family of variables. Threads share the problems, and of a
// table its columns: kColumns at a time, or all together where the rows depend on the column
// before (transitions).
void run(const Move& call, Device device) {
  update::run(call, device);  // the record
  int64_t problems = call.settings.problems;
  int64_t samples = call.settings.population;
  // Calls f(i) for all items; threads share them if their cost is worth it.
  auto for_each = [&](int64_t items, int64_t item_cost, const auto& f) {
    update::split_work(items, item_cost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) f(i);
    });
  };
  bool is_double = call.type == update::Number::Double;
  update::visit_fitness(call.fitness_type, [&](auto kind) {
    for_each(problems, 8 * samples, [&](int64_t problem) {
      rank<decltype(kind)>(call, problem);
      auto* keep = is_double ? keep_best<double> : keep_best<float>;
      keep(call, problem);
    });
  });
  auto* move_columns = is_double ? move<double> : move<float>;
  for (const Family& family : *call.families) {
    int64_t columns = family.columns;  // that are moved together
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
