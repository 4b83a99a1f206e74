// What is drawn and how tables move, for host and device. Integers alone, but for the weights:
// a probability times 2^48 is exact, and adding 2^52 rounds it to an integer. op.py and
// tables.py have the definitions.
//
// The 64 random bits of candidate i at place j, a variable or a step: words 2 h and 2 h + 1, h
// = i mod 2, of the Philox block of key seed ^ kDomain and counter (i div 2, j, generation), of
// 32, 32 and 63 bits; the last bit is set for permutations. Two candidates share a block; a
// search that has both categorical variables and a permutation draws them independently.
#pragma once

#include <limits>
#include <vector>

#include "cem_update/arguments.h"
#include "philox.h"

namespace cem_tetris::discrete {

constexpr uint64_t kDomain = 0x6469736372657465ull;  // "discrete" in ASCII
constexpr int kMost = 32767;                         // values of a row

// The tensors of a call, all contiguous. A table has a row a variable; of transitions one more
// than items.
struct Call {
  int64_t problems, samples, rows, values;
  bool is_permutation;
  const double* table;
  const int64_t *seed, *generation;
  void* out;
  ScalarType type;  // of out

  // Writes a category or an item.
  CEM_TETRIS_FUNCTION void put(int64_t place, int index) const {
    const bool is_double = type == ScalarType::Double;
    if (type == ScalarType::Float) {
      static_cast<float*>(out)[place] = static_cast<float>(index);
    } else {
      static_cast<int64_t*>(out)[place] =
          is_double ? bit_cast<int64_t>(static_cast<double>(index)) : index;
    }
  }
};

struct Noise {
  uint64_t key, counter;

  CEM_TETRIS_FUNCTION Noise(const Call& call, int64_t problem)
      : key(static_cast<uint64_t>(call.seed[problem]) ^ kDomain),
        counter(static_cast<uint64_t>(*call.generation) << 1 >> 1 |
                uint64_t{call.is_permutation} << 63) {}
  // Sets the bits of candidates 2 pair and 2 pair + 1.
  CEM_TETRIS_FUNCTION void set(uint64_t pair, uint64_t place, uint64_t* word) const {
    const philox::Block block = philox::block(pair | place << 32, counter, key);
    for (int h = 0; h < 2; ++h)
      word[h] = block.word[2 * h] | uint64_t{block.word[2 * h + 1]} << 32;
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

// Draws a variable for some candidates, whose bits set(word) gives, by the probabilities of its
// categories; kAtOnce of them are loaded together.
template <int kAtOnce, int kCount, typename Set> CEM_TETRIS_FUNCTION void draw_category(
    const double* p, int size, const Set& set, int (&found)[kCount]) {
  const auto each = [&](const auto& f) {  // the last ones may be followed by some of no weight
#pragma unroll 1
    for (int first = 0; first < size; first += kAtOnce) {
#pragma unroll
      for (int i = first; i < first + kAtOnce; ++i) {
        const uint64_t x = weight(p[i < size ? i : size - 1]);
        f(i < size ? x : 0);
      }
    }
  };
  uint64_t word[kCount], total = 0, sum = 0;
  set(word);
  each([&](uint64_t x) { total += x; });
  const uint64_t least = total == 0 ? 1 : 0;  // where no weight is more, all are 1
  if (least == 1) total = static_cast<uint64_t>(size);
  for (int c = 0; c < kCount; ++c) word[c] = multiply_high(word[c], total), found[c] = 0;
  each([&](uint64_t x) {
    sum += x | least;
    for (int c = 0; c < kCount; ++c) found[c] += sum <= word[c] ? 1 : 0;
  });
}

// Weights and their sums are integers, and probabilities of tables that move multiples of
// 2^-40: no sum depends on its order.
constexpr double kUnit = 0x1p-40, kNaN = std::numeric_limits<double>::quiet_NaN();

struct Family {
  int64_t columns, rows, values;
  double rate, floor;
  int64_t first_column, first_cell;

  CEM_TETRIS_FUNCTION bool has_transitions() const { return rows != columns; }
};

// An update, whose job is the record alone. A problem's tables, and after them its best
// candidate, are `width` numbers.
struct Move : update::Job {
  int64_t cells, width;
  const double* before;
  const int64_t* sums;  // of the weights of the best 0 .. N
  double* after;
  const std::vector<Family>* families;  // host's
  int64_t *weights, *best;              // of candidates; of problems, the first of the fittest
  double* values;                       // the fitness of elites; NaN: none

  // Of a problem, the candidate's columns of a family.
  template <typename T> CEM_TETRIS_FUNCTION const T* columns_of(
      int64_t problem, int64_t candidate, int64_t first_column) const {
    const int64_t row = problem * settings.population + candidate;
    return static_cast<const T*>(candidates) + row * (width - cells) + first_column;
  }
};

// The mean weight of ranks first to last - 1, rounded down: exact, for the sum is an integer of
// 42 bits.
CEM_TETRIS_FUNCTION int64_t weight_of(const Move& call, int64_t first, int64_t last) {
  const int64_t sum = call.sums[last] - call.sums[first];
  return static_cast<int64_t>(
      floor(static_cast<double>(sum) / static_cast<double>(last - first)));
}

// The value that a number stands for; 0 for what is none. Without a branch: loads do not wait
// for it.
template <typename T> CEM_TETRIS_FUNCTION int value_of(const Family& family, T x) {
  return static_cast<int>(x >= T(0) && x < static_cast<T>(family.values) ? x : T(0));
}

CEM_TETRIS_FUNCTION double raised(const Family& family, double p, int64_t sum) {
  const double next = p + rint(static_cast<double>(sum) * family.rate) * kUnit;
  return !(p > 0.0) ? 0.0 : next > family.floor ? next : family.floor;
}

// Of the sum of a row, which is 0 where nothing is possible.
CEM_TETRIS_FUNCTION double share(double p, double total) {
  return rint(p / (total > kUnit ? total : kUnit) * 0x1p40) * kUnit;
}

// The operators over a device's `run`.
namespace {

template <void (&run)(const Call&, Device)> Tensor sample_discrete(const Tensor& given,
    int64_t samples, const Tensor& given_seed, const Tensor& generation, ScalarType type,
    bool is_permutation) {
  const char* const shape =
      is_permutation ? "a table of shape (..., n + 1, n)" : "a table of shape (..., V, K)";
  const Problems problems(given, 2, shape);
  const int64_t rows = given.sizes().end()[-2], values = given.sizes().back(),
                width = is_permutation ? values : rows;
  STD_TORCH_CHECK(values >= 1 && values <= kMost && (!is_permutation || rows == values + 1),
      "expected ", shape, " with 1 to ", kMost, " values, got ", text_of(given.sizes()));
  const Tensor table = problems.check(given, "the table", ScalarType::Double, {rows, values}),
               seed = problems.check(given_seed, "seed", ScalarType::Long, {});
  problems.require(generation, "generation", ScalarType::Long, {}, false);
  STD_TORCH_CHECK(samples >= 0 && samples < int64_t{1} << 31,
      "expected num_samples in 0..2^31 - 1, got ", samples);
  STD_TORCH_CHECK(
      type == ScalarType::Long || type == ScalarType::Float || type == ScalarType::Double,
      "expected a result of type Long, Float or Double, got ",
      torch::headeronly::toString(type));
  const Tensor out = problems.empty(type, {samples, width});
  const Call call{problems.count(), samples, rows, values, is_permutation,
      const_data<double>(table), const_data<int64_t>(seed), const_data<int64_t>(generation),
      mutable_data<void>(out), type};
  if (call.problems * samples * width != 0 && !problems.device.is_meta())
    run(call, problems.device);
  return out;
}

template <void (&run)(const Move&, Device)>
std::tuple<Tensor, Tensor, Tensor> update_tables(const Tensor& given_fitness,
    const Tensor& given_candidates, const Tensor& given_tables, const Tensor& given_record,
    const Tensor& given_generation, const Tensor& given_sums, int64_t elites,
    std::vector<int64_t> columns, std::vector<int64_t> rows, std::vector<int64_t> values,
    std::vector<double> rates, std::vector<double> floors, bool maximize) {
  const Problems problems(given_fitness, 1, "fitness of shape (..., N)");
  const int64_t samples = given_fitness.sizes().back(), count = problems.count();
  STD_TORCH_CHECK(elites >= 1 && elites <= samples, "expected num_elites from 1 to ", samples,
      ", got ", elites);
  STD_TORCH_CHECK(count * samples < int64_t{1} << 31, "expected fewer candidates");
  std::vector<Family> families;
  int64_t width = 0, cells = 0;
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
  const ScalarType type = real_type(given_candidates, "candidates");
  const Tensor fitness = update::ranked_fitness(given_fitness),
               candidates =
                   problems.check(given_candidates, "candidates", type, {samples, width}),
               tables =
                   problems.check(given_tables, "tables", ScalarType::Double, {cells + width}),
               record = problems.check(
                   given_record, "record", ScalarType::Double, {update::kFigures}),
               generation =
                   problems.check(given_generation, "generation", ScalarType::Long, {}, false),
               sums =
                   problems.check(given_sums, "sums", ScalarType::Long, {samples + 1}, false),
               scratch = empty(problems.device, ScalarType::Long, {count * (2 * samples + 1)}),
               out = empty_as(tables), new_record = empty_as(record),
               next = empty_as(generation);
  auto* const memory = mutable_data<int64_t>(scratch);
  auto* const places =
      memory + count * (samples + 1);  // on the CPU those of elites, on CUDA their fitness
  const Move call{
      {{count, samples, 0, elites, 0, 0, 1.0, 1.0, 0.0, update::kNewMean, maximize, false},
          update::number_of(type), update::number_of(fitness.scalar_type()),
          const_data<void>(fitness), const_data<void>(candidates), nullptr, nullptr,
          const_data<double>(record), nullptr, nullptr, const_data<int64_t>(generation),
          nullptr, mutable_data<double>(new_record), mutable_data<int64_t>(next), places},
      cells, cells + width, const_data<double>(tables), const_data<int64_t>(sums),
      mutable_data<double>(out), &families, memory, memory + count * samples,
      reinterpret_cast<double*>(places)};
  if (!problems.device.is_meta()) run(call, problems.device);
  return {out, new_record, next};
}

}  // namespace
}  // namespace cem_tetris::discrete
