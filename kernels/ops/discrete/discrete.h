// How candidates are drawn and how tables of probabilities are updated, for host and device.
// op.py and tables.py have the definitions.
//
// Weights and their sums are integers, so a sum does not depend on the order of its terms. A
// probability times 2^48 is exact. Adding 2^52 rounds it to an integer, which is then in the
// low bits of the result.
//
// A candidate takes 64 random bits for each position j, which is a variable, or a step of a
// permutation. For candidate i they are the words 2 h and 2 h + 1, with h = i mod 2, of the
// Philox block
//
//   key:      seed ^ kDomain
//   counter:  | i div 2: 32 bits | j: 32 | generation: 63 | is_permutation: 1 |
//
// So two candidates share a block. The last bit of the counter makes the categorical variables
// of a search independent of its permutation.
#pragma once

#include <limits>
#include <vector>

#include "cem_update/arguments.h"
#include "philox.h"

namespace cem_tetris::discrete {

using namespace update;

constexpr uint64_t kDomain = 0x6469736372657465ull;  // "discrete" in ASCII
constexpr int kMost = 32767;                         // a row has at most this many values

// The tensors of a draw, all contiguous.
struct Call {
  int64_t problems, samples;
  // Rows of a table: one for each variable. For permutations: one for the first item, then one
  // for each item that may come before.
  int64_t rows;
  int64_t values;  // numbers of a row: one per category or item
  bool is_permutation;
  const double* table;
  const int64_t* seed;
  const int64_t* generation;
  void* out;
  ScalarType type;  // of out

  // Writes the index of a category or item to position `place` of the result.
  CEM_TETRIS_FUNCTION void put(int64_t place, int index) const {
    bool is_double = type == ScalarType::Double;
    if (type == ScalarType::Float) {
      static_cast<float*>(out)[place] = float(index);
    } else {
      static_cast<int64_t*>(out)[place] = is_double ? bit_cast<int64_t>(double(index)) : index;
    }
  }
};

// The source of a problem's random bits.
struct Noise {
  uint64_t key, counter;

  CEM_TETRIS_FUNCTION Noise(const Call& call, int64_t problem)
      : key(uint64_t(call.seed[problem]) ^ kDomain),
        counter(uint64_t(*call.generation) << 1 >> 1 | uint64_t{call.is_permutation} << 63) {}
  // Sets word[0] and word[1] to the random words of candidates 2 * pair and 2 * pair + 1 for
  // one variable or step.
  CEM_TETRIS_FUNCTION void set(uint64_t pair, uint64_t step, uint64_t* word) const {
    philox::Block block = philox::block(pair | step << 32, counter, key);
    for (int h = 0; h < 2; ++h) {
      word[h] = block.word[2 * h] | uint64_t{block.word[2 * h + 1]} << 32;
    }
  }
};

// Returns a probability as an integer weight below 2^49. A sum of kMost such weights cannot
// overflow, even if the table holds invalid numbers.
CEM_TETRIS_FUNCTION uint64_t weight(double probability) {
  return bit_cast<uint64_t>(probability * 0x1p48 + 0x1p52) & ((uint64_t{1} << 49) - 1);
}

// Returns the upper 64 bits of the product a * b. If a is a random word, that is a random
// number below b.
CEM_TETRIS_FUNCTION uint64_t multiply_high(uint64_t a, uint64_t b) {
#if defined(__CUDA_ARCH__)
  return __umul64hi(a, b);
#else
  return uint64_t(static_cast<unsigned __int128>(a) * b >> 64);
#endif
}

// Draws one categorical variable for kCount candidates by inversion: categories[c] becomes the
// category of candidate c. set_words(words) must set one random word of 64 bits for each
// candidate.
//
// The `size` probabilities become integer weights. The weights divide the range from 0 to their
// sum into one interval per category, and a random number in this range falls into one of the
// intervals. The index of its category is the number of intervals that end at or below the
// random number; an interval ends at the sum of the weights so far, a prefix sum. If no weight
// is positive, all categories are equally likely.
//
// The function computes the weights twice instead of storing them, and loads kAtOnce
// probabilities at a time.
template <int kAtOnce, int kCount, typename Set>
CEM_TETRIS_FUNCTION void draw_category(
    const double* probabilities, int size, const Set& set_words, int (&categories)[kCount]) {
  // Calls f with every weight. Zeros follow, so that the number of calls is a multiple of
  // kAtOnce.
  auto for_each_weight = [&](const auto& f) {
#pragma unroll 1
    for (int first = 0; first < size; first += kAtOnce) {
#pragma unroll
      for (int i = first; i < first + kAtOnce; ++i) {
        uint64_t x = weight(probabilities[i < size ? i : size - 1]);  // never beyond the end
        f(i < size ? x : 0);
      }
    }
  };
  uint64_t random[kCount];  // one number for each candidate
  uint64_t total = 0;
  set_words(random);
  for_each_weight([&](uint64_t x) { total += x; });
  // If no weight is positive, every category gets the weight 1: the weights are all 0, and
  // the | below replaces them.
  uint64_t uniform_weight = total == 0 ? 1 : 0;
  if (uniform_weight == 1) total = uint64_t(size);
  // Replace the random words by random numbers below the total: the upper half of the product
  // of a word and the total.
  for (int c = 0; c < kCount; ++c) {
    random[c] = multiply_high(random[c], total);
    categories[c] = 0;
  }
  uint64_t prefix_sum = 0;
  for_each_weight([&](uint64_t x) {
    prefix_sum += x | uniform_weight;
    for (int c = 0; c < kCount; ++c) categories[c] += (prefix_sum <= random[c]);
  });
}

// update_tables rounds probabilities to multiples of 2^-40, so that the order of a sum does not
// matter.
constexpr double kUnit = 0x1p-40;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A group of discrete variables with equally many values: `columns` columns of the candidates,
// and a table of `rows` rows with a probability for every value. There is one row per column.
// If there is one more row (has_transitions), the family is a permutation.
struct Family {
  int64_t columns, rows, values;
  double rate;           // the learning rate
  double floor;          // the lowest positive probability
  int64_t first_column;  // the first one of the candidate's columns
  int64_t first_cell;    // where the table begins in the problem's tables

  CEM_TETRIS_FUNCTION bool has_transitions() const { return rows != columns; }
};

// An update of P problems of N candidates. The part that Move inherits from Job is only for the
// record. The tables of a problem and its best candidate so far are `width` numbers:
//
//   | table of family 0 | table of family 1 | ... | best candidate |
//   0                                             cells            width
struct Move : Job {
  int64_t cells, width;
  const double* before;                 // P x width
  const int64_t* sums;                  // N + 1: sum n is over the weights of the ranks below n
  double* after;                        // P x width
  const std::vector<Family>* families;  // in the host's memory
  int64_t* weights;                     // P x N: by candidate
  int64_t* best;                        // P: the index of the best candidate
  double* values;                       // P x N: the fitness of elites, NaN for all others

  // Returns a candidate's numbers from column `first_column` on.
  template <typename T>
  CEM_TETRIS_FUNCTION const T* columns_of(
      int64_t problem, int64_t candidate, int64_t first_column) const {
    int64_t row = problem * settings.population + candidate;
    return static_cast<const T*>(candidates) + row * (width - cells) + first_column;
  }
};

// Returns the mean weight of the ranks `first` to `last` - 1, rounded down. The division of
// doubles is exact enough, because the sum is an integer of 42 bits.
CEM_TETRIS_FUNCTION int64_t weight_of(const Move& call, int64_t first, int64_t last) {
  int64_t sum = call.sums[last] - call.sums[first];
  return int64_t(floor(double(sum) / double(last - first)));
}

// Returns a candidate's number x as the index of a value. A number that is no valid index
// becomes 0. The function has no branch, which later loads would have to wait for.
template <typename T>
CEM_TETRIS_FUNCTION int value_of(const Family& family, T x) {
  return int(x >= T(0) && x < T(family.values) ? x : T(0));
}

// Returns a probability p after its increase by the sum of the weights of the candidates that
// have this value. The row still has to be normalised. The result is at least the floor, but a
// probability of 0 stays 0.
CEM_TETRIS_FUNCTION double increase(const Family& family, double p, int64_t sum) {
  // The probabilities of a first table, such as 1/50, need not be multiples of kUnit yet.
  double next = (rint(p * 0x1p40) + rint(double(sum) * family.rate)) * kUnit;
  double floored = next > family.floor ? next : family.floor;
  return p > 0.0 ? floored : 0.0;
}

// Returns a probability divided by `total`, the sum of its row. The sum is 0 if no value of the
// row is possible; then the result is 0, too.
CEM_TETRIS_FUNCTION double normalise(double p, double total) {
  return rint(p / (total > kUnit ? total : kUnit) * 0x1p40) * kUnit;
}

// The operators. run() is the function of the device that does the work.
namespace {

// The operator sample_discrete: draws `samples` candidates for each problem (batch entry) from
// tables of probabilities, and returns them with the type `type`. Checks the arguments, and
// calls the device's run() unless the result is empty or on the meta device. any_seed has one
// seed for each problem. The tensors any_table and any_seed may have any strides.
//
// Categorical variables: any_table has the shape (..., V, K) for V variables with K values. The
// result has the shape (..., samples, V).
//
// Permutations of n items: any_table has the shape (..., n + 1, n). Row 0 has the probabilities
// of the first item, and row 1 + i those of the item that follows item i. The result has the
// shape (..., samples, n).
template <void (&run)(const Call&, Device)>
Tensor sample_discrete(const Tensor& any_table, int64_t samples, const Tensor& any_seed,
    const Tensor& generation, ScalarType type, bool is_permutation) {
  const char* shape =
      is_permutation ? "a table of shape (..., n + 1, n)" : "a table of shape (..., V, K)";
  Problems problems(any_table, 2, shape);
  int64_t rows = any_table.sizes().end()[-2];
  int64_t values = any_table.sizes().back();
  int64_t width = is_permutation ? values : rows;  // numbers of a candidate
  bool has_expected_rows = !is_permutation || rows == values + 1;
  STD_TORCH_CHECK(values >= 1 && values <= kMost && has_expected_rows, "expected ", shape,
      " with 1 to ", kMost, " values, got ", text_of(any_table.sizes()));
  Tensor table = problems.check(any_table, "the table", ScalarType::Double, {rows, values});
  Tensor seed = problems.check(any_seed, "seed", ScalarType::Long, {});
  problems.require(generation, "generation", ScalarType::Long, {}, /*has_batch=*/false);
  STD_TORCH_CHECK(samples >= 0 && samples < int64_t{1} << 31,
      "expected num_samples in 0..2^31 - 1, got ", samples);
  STD_TORCH_CHECK(
      type == ScalarType::Long || type == ScalarType::Float || type == ScalarType::Double,
      "expected a result of type Long, Float or Double, got ", toString(type));
  Tensor out = problems.empty(type, {samples, width});
  Call call{
      /*problems=*/problems.count(),
      samples,
      rows,
      values,
      is_permutation,
      const_data<double>(table),
      const_data<int64_t>(seed),
      const_data<int64_t>(generation),
      mutable_data<void>(out),
      type,
  };
  bool is_empty = call.problems * samples * width == 0;
  if (!is_empty && !problems.device.is_meta()) run(call, problems.device);
  return out;
}

// The operator update_tables: moves the tables of every family towards the elites. Checks the
// arguments, allocates the results, and calls run(). Returns the new tables, record and
// generation.
//
// The arguments from `columns` to `floors` have one element for each family. The tables of a
// problem lie one after the other, and its best candidate follows (see Move). The tensors whose
// names begin with any_ may have any strides.
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
  int64_t width = 0;  // columns of a candidate
  int64_t cells = 0;
  for (size_t i = 0; i < columns.size(); ++i) {
    families.push_back(
        {columns[i], rows.at(i), values.at(i), rates.at(i), floors.at(i), width, cells});
    // A table of transitions has a row for each value, because the value before selects it.
    bool has_transitions = rows[i] == columns[i] + 1 && values[i] == columns[i];
    STD_TORCH_CHECK(values[i] >= 1 && values[i] <= kMost && columns[i] >= 1 &&
                        (rows[i] == columns[i] || has_transitions),
        "expected a row for each column, or n + 1 rows and n values for n columns");
    width += columns[i];
    cells += rows[i] * values[i];
  }
  STD_TORCH_CHECK(!families.empty(), "expected a family");
  ScalarType type = real_type(any_candidates, "candidates");
  Tensor fitness = ranked_fitness(any_fitness);
  Tensor candidates = problems.check(any_candidates, "candidates", type, {samples, width});
  Tensor tables = problems.check(any_tables, "tables", ScalarType::Double, {cells + width});
  Tensor record = problems.check(any_record, "record", ScalarType::Double, {kFigures});
  Tensor generation =
      problems.check(any_generation, "generation", ScalarType::Long, {}, /*has_batch=*/false);
  Tensor sums =
      problems.check(any_sums, "sums", ScalarType::Long, {samples + 1}, /*has_batch=*/false);
  Tensor out = empty_as(tables);
  Tensor new_record = empty_as(record);
  Tensor next = empty_as(generation);

  // Scratch memory: the weights of the candidates, P x N; the best candidates, P; and P x N
  // numbers that the CPU uses for the places of elites, and CUDA for their fitness.
  Tensor scratch = empty(problems.device, ScalarType::Long, {count * (2 * samples + 1)});
  int64_t* weights = mutable_data<int64_t>(scratch);
  int64_t* best = weights + count * samples;
  int64_t* places = best + count;
  // The job of cem_update computes the record. It has no dimensions, so it updates no
  // distribution, and most settings have no effect.
  Settings settings{
      /*problems=*/count,
      /*population=*/samples,
      /*dimensions=*/0,
      elites,
      /*table=*/0,
      /*floor_stride=*/0,
      /*smoothing=*/1.0,
      /*std_smoothing=*/1.0,
      /*mean_averaging=*/0.0,
      /*variance=*/kNewMean,
      maximize,
      /*ranked=*/false,
  };
  Job job{
      settings,
      /*type=*/number_of(type),
      /*fitness_type=*/number_of(fitness.scalar_type()),
      const_data<void>(fitness),
      const_data<void>(candidates),
      /*distribution=*/nullptr,
      /*floors=*/nullptr,
      const_data<double>(record),
      /*extra_variance=*/nullptr,
      /*weights=*/nullptr,
      const_data<int64_t>(generation),
      /*new_distribution=*/nullptr,
      mutable_data<double>(new_record),
      /*new_generation=*/mutable_data<int64_t>(next),
      /*elites=*/places,
  };
  Move call{
      job,
      cells,
      /*width=*/cells + width,
      /*before=*/const_data<double>(tables),
      const_data<int64_t>(sums),
      /*after=*/mutable_data<double>(out),
      &families,
      weights,
      best,
      /*values=*/reinterpret_cast<double*>(places),
  };
  if (!problems.device.is_meta()) run(call, problems.device);
  return {out, new_record, next};
}

}  // namespace
}  // namespace cem_tetris::discrete
