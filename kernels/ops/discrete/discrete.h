// What is drawn, for host and device; op.py has the definition. Integers alone, but for the weights: a
// probability times 2^48 is exact, and adding 2^52 rounds it to an integer.
//
// The 64 random bits of candidate i at place j, a variable or a step: words 2 h and 2 h + 1, h = i mod 2, of
// the Philox block of key seed ^ kDomain and counter (i div 2, j, generation), of 32, 32 and 63 bits; the last
// bit is set for permutations. Two candidates share a block; a search that has both categorical variables and
// a permutation draws them independently.
#pragma once

#include <vector>

#include "cem_update/arguments.h"
#include "philox.h"

namespace cem_tetris::discrete {

constexpr uint64_t kDomain = 0x6469736372657465ull;  // "discrete" in ASCII
constexpr int kMost = 32767;                         // categories of a variable, or items

// The tensors of a call, all contiguous.
struct Call {
  const int64_t* starts;  // host's: where each variable's categories begin, and the last one's end; or null
  int64_t problems, samples, width;  // width: variables, or items
  const double* table;
  const int64_t *seed, *generation;
  void* out;
  ScalarType type;  // of out

  // Writes a category or an item.
  CEM_TETRIS_FUNCTION void put(int64_t place, int64_t index) const {
    const bool is_double = type == ScalarType::Double;
    if (type == ScalarType::Float) {
      static_cast<float*>(out)[place] = static_cast<float>(index);
    } else {
      static_cast<int64_t*>(out)[place] = is_double ? bit_cast<int64_t>(static_cast<double>(index)) : index;
    }
  }
};

struct Noise {
  uint64_t key, counter;

  CEM_TETRIS_FUNCTION Noise(const Call& call, int64_t problem, bool is_permutation)
      : key(static_cast<uint64_t>(call.seed[problem]) ^ kDomain),
        counter(static_cast<uint64_t>(*call.generation) << 1 >> 1 | uint64_t{is_permutation} << 63) {}
  // Sets the bits of candidates 2 pair and 2 pair + 1.
  CEM_TETRIS_FUNCTION void set(uint64_t pair, uint64_t place, uint64_t* word) const {
    const philox::Block block = philox::block(pair | place << 32, counter, key);
    for (int h = 0; h < 2; ++h) word[h] = block.word[2 * h] | uint64_t{block.word[2 * h + 1]} << 32;
  }
};

// Below 2^49, so that a sum of kMost does not overflow, whatever the table holds.
CEM_TETRIS_FUNCTION uint64_t weight(double probability) {
  return bit_cast<uint64_t>(probability * 0x1p48 + 0x1p52) & ((uint64_t{1} << 49) - 1);
}

CEM_TETRIS_FUNCTION uint64_t multiply_high(uint64_t a, uint64_t b) {
#if defined(__CUDA_ARCH__)
  return __umul64hi(a, b);
#else
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
#endif
}

CEM_TETRIS_FUNCTION uint64_t weight(uint64_t known) { return known; }

// Draws a variable for some candidates, whose bits set(word) gives. p: the probabilities of its `size`
// categories, or their weights; kAtOnce of them are loaded together.
template <int kAtOnce, int kCount, typename Number, typename Set, typename Index>
CEM_TETRIS_FUNCTION void draw_category(const Number* p, int size, const Set& set, Index (&found)[kCount]) {
  const auto each = [&](const auto& f) {  // the last ones may be followed by some of no weight
    for (int first = 0; first < size; first += kAtOnce) {
#pragma unroll
      for (int i = first; i < first + kAtOnce; ++i) {
        const uint64_t x = weight(p[i < size ? i : size - 1]);
        f(i < size ? x : 0);
      }
    }
  };
  uint64_t word[kCount], total = 0, sum = 0;
  each([&](uint64_t x) { total += x; });
  const uint64_t least = total == 0 ? 1 : 0;  // where no weight is more, all are 1
  if (least == 1) total = static_cast<uint64_t>(size);
  set(word);
  for (int c = 0; c < kCount; ++c) word[c] = multiply_high(word[c], total), found[c] = 0;
  each([&](uint64_t x) {
    sum += x | least;
    for (int c = 0; c < kCount; ++c) found[c] += sum <= word[c] ? 1 : 0;
  });
}

// How tables of probabilities move; tables.py has the definition. Weights and their sums
// are integers, and probabilities multiples of 2^-40: no sum depends on its order.

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

// The operators over a device's `run`.
namespace {

constexpr char kCategoricalSchema[] =
    "sample_categorical(Tensor tables, int[] sizes, SymInt num_samples, Tensor seed, Tensor generation, "
    "ScalarType dtype) -> Tensor";
constexpr char kPermutationSchema[] =
    "sample_permutation(Tensor table, SymInt num_samples, Tensor seed, Tensor generation, ScalarType dtype) "
    "-> Tensor";

using Run = void(const Call& call, Device device);

// shape: of the table of a problem.
template <Run& run> Tensor sample(const int64_t* starts, const Tensor& given,
    std::initializer_list<int64_t> shape, int64_t width, int64_t samples, const Tensor& given_seed,
    const Tensor& generation, ScalarType type) {
  const Problems problems(given, shape.size(), "a table for each problem");
  const Tensor table = problems.check(given, "the table", ScalarType::Double, shape),
               seed = problems.check(given_seed, "seed", ScalarType::Long, {});
  problems.require(generation, "generation", ScalarType::Long, {}, false);
  STD_TORCH_CHECK(
      samples >= 0 && samples < int64_t{1} << 31, "expected num_samples in 0..2^31 - 1, got ", samples);
  STD_TORCH_CHECK(type == ScalarType::Long || type == ScalarType::Float || type == ScalarType::Double,
      "expected a result of type Long, Float or Double, got ", torch::headeronly::toString(type));
  const Tensor out = problems.empty(type, {samples, width});
  const Call call{starts, problems.count(), samples, width, const_data<double>(table),
      const_data<int64_t>(seed), const_data<int64_t>(generation), mutable_data<void>(out), type};
  if (call.problems * samples * width != 0) run(call, problems.device);
  return out;
}

template <Run& run> Tensor sample_categorical(const Tensor& tables, std::vector<int64_t> sizes,
    int64_t samples, const Tensor& seed, const Tensor& generation, ScalarType type) {
  std::vector<int64_t> starts{0};
  for (const int64_t size : sizes) {
    STD_TORCH_CHECK(size >= 1 && size <= kMost, "expected sizes from 1 to ", kMost, ", got ", size);
    starts.push_back(starts.back() + size);
  }
  return sample<run>(starts.data(), tables, {starts.back()}, static_cast<int64_t>(sizes.size()), samples,
      seed, generation, type);
}

template <Run& run> Tensor sample_permutation(
    const Tensor& table, int64_t samples, const Tensor& seed, const Tensor& generation, ScalarType type) {
  const int64_t n = table.dim() < 2 ? 0 : table.sizes().back();
  STD_TORCH_CHECK(n >= 1 && n <= kMost, "expected table of shape (..., n + 1, n), 1 <= n <= ", kMost,
      ", got ", text_of(table.sizes()));
  return sample<run>(nullptr, table, {n + 1, n}, n, samples, seed, generation, type);
}

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
