// What is drawn and how tables move, for host and device. op.py and tables.py have the
// definitions.
//
// Weights and their sums are integers, so that no sum depends on its order: a probability times
// 2^48 is exact, and adding 2^52 rounds it to an integer, in the low bits of the result.
//
// The 64 random bits of candidate i at place j, a variable or a step: words 2 h and 2 h + 1, h
// = i mod 2, of the Philox block
//
//   key:      seed ^ kDomain
//   counter:  | i div 2: 32 bits | j: 32 | generation: 63 | is_permutation: 1 |
//
// Two candidates share a block; a search that has both categorical variables and a permutation
// draws them independently.
#pragma once

#include <limits>
#include <vector>

#include "cem_update/arguments.h"
#include "philox.h"

namespace cem_tetris::discrete {

constexpr uint64_t kDomain = 0x6469736372657465ull;  // "discrete" in ASCII
constexpr int kMost = 32767;                         // values of a row

// The tensors of a draw, all contiguous.
struct Call {
  int64_t problems, samples;
  // Of a table: one for each variable; or, for permutations, one for the first item, then one
  // for each item that may come before.
  int64_t rows;
  int64_t values;  // of a row: categories or items
  bool is_permutation;
  const double* table;
  const int64_t* seed;
  const int64_t* generation;
  void* out;
  ScalarType type;  // of out

  // Writes a category or an item.
  CEM_TETRIS_FUNCTION void put(int64_t place, int index) const {
    bool is_double = type == ScalarType::Double;
    if (type == ScalarType::Float) {
      static_cast<float*>(out)[place] = float(index);
    } else {
      static_cast<int64_t*>(out)[place] = is_double ? bit_cast<int64_t>(double(index)) : index;
    }
  }
};

// The random bits of a problem.
struct Noise {
  uint64_t key, counter;

  CEM_TETRIS_FUNCTION Noise(const Call& call, int64_t problem)
      : key(uint64_t(call.seed[problem]) ^ kDomain),
        counter(uint64_t(*call.generation) << 1 >> 1 | uint64_t{call.is_permutation} << 63) {}
  // Sets the words of candidates 2 pair and 2 pair + 1.
  CEM_TETRIS_FUNCTION void set(uint64_t pair, uint64_t place, uint64_t* word) const {
    philox::Block block = philox::block(pair | place << 32, counter, key);
    for (int h = 0; h < 2; ++h) {
      word[h] = block.word[2 * h] | uint64_t{block.word[2 * h + 1]} << 32;
    }
  }
};

// Returns a probability as an integer below 2^49, so that a sum of kMost does not overflow,
// whatever the table holds.
CEM_TETRIS_FUNCTION uint64_t weight(double probability) {
  return bit_cast<uint64_t>(probability * 0x1p48 + 0x1p52) & ((uint64_t{1} << 49) - 1);
}

// Returns the upper half of a product: a random number below b, for a random word a.
CEM_TETRIS_FUNCTION uint64_t multiply_high(uint64_t a, uint64_t b) {
#if defined(__CUDA_ARCH__)
  return __umul64hi(a, b);
#else
  return uint64_t(static_cast<unsigned __int128>(a) * b >> 64);
#endif
}

// Draws one categorical variable for kCount candidates, by inversion: the probabilities become
// integer weights, and a random number below their total falls into the share of one category,
// the number of prefix sums of the weights that are at most that number. If no weight is
// positive, all categories are equally likely.
//
// probabilities: of the `size` categories, loaded kAtOnce at a time. set_words(words): sets one
// random word of 64 bits for each candidate. categories: the result, by candidate.
template <int kAtOnce, int kCount, typename Set>
CEM_TETRIS_FUNCTION void draw_category(
    const double* probabilities, int size, const Set& set_words, int (&categories)[kCount]) {
  // Calls f for each weight, and with zeros behind the last one up to a multiple of kAtOnce.
  auto for_each_weight = [&](const auto& f) {
#pragma unroll 1
    for (int first = 0; first < size; first += kAtOnce) {
#pragma unroll
      for (int i = first; i < first + kAtOnce; ++i) {
        uint64_t x = weight(probabilities[i < size ? i : size - 1]);
        f(i < size ? x : 0);
      }
    }
  };
  uint64_t random[kCount];
  uint64_t total = 0;
  set_words(random);
  for_each_weight([&](uint64_t x) { total += x; });
  // If no weight is positive, all are 1.
  uint64_t least = total == 0 ? 1 : 0;
  if (least == 1) total = uint64_t(size);
  // The upper half of the product with the total is a random number below the total.
  for (int c = 0; c < kCount; ++c) {
    random[c] = multiply_high(random[c], total);
    categories[c] = 0;
  }
  uint64_t prefix_sum = 0;
  for_each_weight([&](uint64_t x) {
    prefix_sum += x | least;
    for (int c = 0; c < kCount; ++c) categories[c] += (prefix_sum <= random[c]);
  });
}

// Probabilities of tables that move are multiples of 2^-40: no sum depends on its order.
constexpr double kUnit = 0x1p-40;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Columns of the candidates, of variables with as many values each, and their table of `rows`
// rows.
struct Family {
  int64_t columns, rows, values;
  double rate;           // of learning
  double floor;          // of a probability that is positive
  int64_t first_column;  // of a candidate
  int64_t first_cell;    // of a problem's tables

  CEM_TETRIS_FUNCTION bool has_transitions() const { return rows != columns; }
};

// An update of P problems of N candidates, whose job is the record alone. A problem has `width`
// numbers:
//
//   | table of family 0 | table of family 1 | ... | best candidate |
//   0                                             cells            width
struct Move : update::Job {
  int64_t cells, width;
  const double* before;                 // P x width
  const int64_t* sums;                  // N + 1: of the weights of the ranks below n
  double* after;                        // P x width
  const std::vector<Family>* families;  // in the host's memory
  int64_t* weights;                     // P x N: of candidates
  int64_t* best;                        // P: the first of the fittest
  double* values;                       // P x N: the fitness of elites, NaN for all others

  // Returns a candidate's columns of a family.
  template <typename T>
  CEM_TETRIS_FUNCTION const T* columns_of(
      int64_t problem, int64_t candidate, int64_t first_column) const {
    int64_t row = problem * settings.population + candidate;
    return static_cast<const T*>(candidates) + row * (width - cells) + first_column;
  }
};

// The mean weight of ranks first to last - 1, rounded down: exact, for the sum is an integer of
// 42 bits.
CEM_TETRIS_FUNCTION int64_t weight_of(const Move& call, int64_t first, int64_t last) {
  int64_t sum = call.sums[last] - call.sums[first];
  return int64_t(floor(double(sum) / double(last - first)));
}

// Returns the index of the value that a candidate's number stands for, or 0 if it stands for
// none. There is no branch, so that later loads need not wait for it.
template <typename T>
CEM_TETRIS_FUNCTION int value_of(const Family& family, T x) {
  return int(x >= T(0) && x < T(family.values) ? x : T(0));
}

// Returns a probability that moved by the sum of its value's weights, before the row is
// normalised: not below the floor, but 0 stays.
CEM_TETRIS_FUNCTION double raised(const Family& family, double p, int64_t sum) {
  double next = p + rint(double(sum) * family.rate) * kUnit;
  double floored = next > family.floor ? next : family.floor;
  return p > 0.0 ? floored : 0.0;
}

// Returns a probability's share of the sum of its row, which is 0 where nothing is possible.
CEM_TETRIS_FUNCTION double share(double p, double total) {
  return rint(p / (total > kUnit ? total : kUnit) * 0x1p40) * kUnit;
}

// The operators, for a device whose run() does the work.
namespace {

// The operator sample_discrete: draws `samples` candidates for each problem, an entry of the
// batch, from tables of probabilities. any_table is (..., V, K) for V categorical variables
// with K values, and the result (..., samples, V). For permutations of n items it is (..., n +
// 1, n), a row for the first item and one for every item that may come before, and the result
// is (..., samples, n). any_seed has one seed for each problem. Checks the arguments, and calls
// the device's run() unless the result is empty or on the meta device.
template <void (&run)(const Call&, Device)>
Tensor sample_discrete(const Tensor& any_table, int64_t samples, const Tensor& any_seed,
    const Tensor& generation, ScalarType type, bool is_permutation) {
  const char* shape =
      is_permutation ? "a table of shape (..., n + 1, n)" : "a table of shape (..., V, K)";
  Problems problems(any_table, 2, shape);
  int64_t rows = any_table.sizes().end()[-2];
  int64_t values = any_table.sizes().back();
  int64_t width = is_permutation ? values : rows;  // of a candidate
  bool fits = !is_permutation || rows == values + 1;
  STD_TORCH_CHECK(values >= 1 && values <= kMost && fits, "expected ", shape, " with 1 to ",
      kMost, " values, got ", text_of(any_table.sizes()));
  Tensor table = problems.check(any_table, "the table", ScalarType::Double, {rows, values});
  Tensor seed = problems.check(any_seed, "seed", ScalarType::Long, {});
  problems.require(generation, "generation", ScalarType::Long, {}, false);
  STD_TORCH_CHECK(samples >= 0 && samples < int64_t{1} << 31,
      "expected num_samples in 0..2^31 - 1, got ", samples);
  STD_TORCH_CHECK(
      type == ScalarType::Long || type == ScalarType::Float || type == ScalarType::Double,
      "expected a result of type Long, Float or Double, got ", toString(type));
  Tensor out = problems.empty(type, {samples, width});
  Call call{problems.count(), samples, rows, values, is_permutation, const_data<double>(table),
      const_data<int64_t>(seed), const_data<int64_t>(generation), mutable_data<void>(out),
      type};
  bool is_empty = call.problems * samples * width == 0;
  if (!is_empty && !problems.device.is_meta()) run(call, problems.device);
  return out;
}

// Moves the tables of every family towards the elites. Checks the arguments, allocates the
// results, and calls run(). The arguments from `columns` to `floors` have one element for each
// family. The tables of a problem lie one after the other, then its best candidate (see Move).
// Returns the new tables, record and generation.
template <void (&run)(const Move&, Device)>
std::tuple<Tensor, Tensor, Tensor> update_tables(const Tensor& any_fitness,
    const Tensor& any_candidates, const Tensor& any_tables, const Tensor& any_record,
    const Tensor& any_generation, const Tensor& any_sums, int64_t elites,
    std::vector<int64_t> columns, std::vector<int64_t> rows, std::vector<int64_t> values,
    std::vector<double> rates, std::vector<double> floors, bool maximize) {
  Problems problems(any_fitness, 1, "fitness of shape (..., N)");
  int64_t samples = any_fitness.sizes().back();
  int64_t count = problems.count();
  STD_TORCH_CHECK(elites >= 1 && elites <= samples, "expected num_elites from 1 to ", samples,
      ", got ", elites);
  STD_TORCH_CHECK(count * samples < int64_t{1} << 31, "expected fewer candidates");
  std::vector<Family> families;
  int64_t width = 0;  // of a candidate
  int64_t cells = 0;
  for (size_t i = 0; i < columns.size(); ++i) {
    families.push_back(
        {columns[i], rows.at(i), values.at(i), rates.at(i), floors.at(i), width, cells});
    STD_TORCH_CHECK(values[i] >= 1 && values[i] <= kMost && columns[i] >= 1 &&
                        (rows[i] == columns[i] || rows[i] == columns[i] + 1),
        "expected a row for each column, and at most one more");
    width += columns[i];
    cells += rows[i] * values[i];
  }
  STD_TORCH_CHECK(!families.empty(), "expected a family");
  ScalarType type = real_type(any_candidates, "candidates");
  Tensor fitness = update::ranked_fitness(any_fitness);
  Tensor candidates = problems.check(any_candidates, "candidates", type, {samples, width});
  Tensor tables = problems.check(any_tables, "tables", ScalarType::Double, {cells + width});
  Tensor record = problems.check(any_record, "record", ScalarType::Double, {update::kFigures});
  Tensor generation = problems.check(any_generation, "generation", ScalarType::Long, {}, false);
  Tensor sums = problems.check(any_sums, "sums", ScalarType::Long, {samples + 1}, false);
  Tensor out = empty_as(tables);
  Tensor new_record = empty_as(record);
  Tensor next = empty_as(generation);

  // Scratch: weights, P x N; the best, P; then places of elites on the CPU, their fitness on
  // CUDA, P x N.
  Tensor scratch = empty(problems.device, ScalarType::Long, {count * (2 * samples + 1)});
  int64_t* weights = mutable_data<int64_t>(scratch);
  int64_t* best = weights + count * samples;
  int64_t* places = best + count;
  update::Settings settings{
      count, samples, 0, elites, 0, 0, 1.0, 1.0, 0.0, update::kNewMean, maximize, false};
  update::Job job{settings, update::number_of(type), update::number_of(fitness.scalar_type()),
      const_data<void>(fitness), const_data<void>(candidates), nullptr, nullptr,
      const_data<double>(record), nullptr, nullptr, const_data<int64_t>(generation), nullptr,
      mutable_data<double>(new_record), mutable_data<int64_t>(next), places};
  Move call{job, cells, cells + width, const_data<double>(tables), const_data<int64_t>(sums),
      mutable_data<double>(out), &families, weights, best, reinterpret_cast<double*>(places)};
  if (!problems.device.is_meta()) run(call, problems.device);
  return {out, new_record, next};
}

}  // namespace
}  // namespace cem_tetris::discrete
