// What the CPU and the CUDA kernels of the update share: keys of fitness values, the order of
// the sums, and the arithmetic of one dimension. IEEE operations alone, in one order: both give
// the same bits.
//
// The elites are taken in index order, those that failed left out: places p = 0, 1, ... They
// are cut into chunks of kChunk. Each chunk is folded, and then the row of the chunks' sums: a
// residue class r = p mod kResidues adds its numbers in order, then the classes are added as a
// tree (r += r + 16, 8, 4, 2, 1). So the order depends on the number of elites alone.
#pragma once

#include <cmath>
#include <cstdint>

#include "portable.h"

namespace cem_tetris::update {

constexpr int kChunk = 512, kResidues = 32;
constexpr int kRows = 4, kFigures = 5;  // of a distribution, of a record

enum Row { kMean, kStd, kAveragedMean, kBest };
enum Figure { kBestFitness, kGenerationBest, kEliteMean, kEliteThreshold, kFailedGeneration };
enum class Number : int8_t {
  Long = 4,
  Float = 6,
  Double = 7
};  // torch's ScalarType, without its headers
enum Variance { kNewMean, kNewMeanUnbiased, kOldMean };

// What the update of every problem of a batch shares.
struct Settings {
  int64_t problems, population, dimensions, elites;
  int64_t table;         // the length of the table of extra variances
  int64_t floor_stride;  // from one problem's floors to the next one's: the dimensions, or 0
  double smoothing, std_smoothing, mean_averaging;
  int32_t variance;
  bool maximize, ranked;
};

// The tensors of a call, all contiguous; pointers that are null stand for tensors that are not
// given.
struct Job {
  Settings settings;
  Number type, fitness_type;  // type: of candidates and distribution, not Long
  const void *fitness, *candidates, *distribution, *floors;
  const double *record, *extra_variance, *weights;
  const int64_t* generation;
  void* new_distribution;
  double* new_record;
  int64_t *new_generation, *elites;

  CEM_TETRIS_FUNCTION bool can_fail() const { return fitness_type != Number::Long; }
};

// The type of a fitness, to which arguments.h widens narrower ones: how it is stored, the
// unsigned key by which it is ranked, least first, and its value. A candidate that failed, NaN
// or the infinity on the bad side, has the largest key, which no other float has. Integers
// cannot fail.
template <typename Real, typename Word, int kMantissa> struct Floating {
  using Bits = Word;
  using Key = Word;
  static constexpr bool kCanFail = true;
  static constexpr Word kSign = Word(1) << (8 * sizeof(Word) - 1);
  static constexpr Word kInfinity = (kSign - 1) >> kMantissa << kMantissa;

  static CEM_TETRIS_FUNCTION Word key(Word bits, bool maximize) {
    const bool negative = (bits & kSign) != 0;
    const Word magnitude = bits & ~kSign;
    // Least first, with one key for both zeros: kSign - magnitude and kSign + magnitude. To
    // maximize is to minimize with the other sign.
    const bool bad = magnitude > kInfinity || (magnitude == kInfinity && negative == maximize);
    return bad ? ~Word(0) : negative != maximize ? kSign - magnitude : kSign + magnitude;
  }
  // The number of a key; 0 for both zeros.
  static CEM_TETRIS_FUNCTION Word of_key(Word key, bool maximize) {
    const bool low = key < kSign;
    const Word magnitude = low ? kSign - key : key - kSign;
    return low != maximize && magnitude != 0 ? magnitude | kSign : magnitude;
  }
  static CEM_TETRIS_FUNCTION double value(Word bits) { return bit_cast<Real>(bits); }
};
using Float = Floating<float, uint32_t, 23>;
using Double = Floating<double, uint64_t, 52>;

struct Long {
  using Bits = int64_t;
  using Key = uint64_t;
  static constexpr bool kCanFail = false;
  static constexpr Key kHalf = Key(1) << 63;

  static CEM_TETRIS_FUNCTION Key key(Bits bits, bool maximize) {
    const Key ordered = static_cast<Key>(bits) + kHalf;  // wraps: the least number becomes 0
    return maximize ? ~ordered : ordered;
  }
  static CEM_TETRIS_FUNCTION Bits of_key(Key key, bool maximize) {
    return static_cast<Bits>((maximize ? ~key : key) - kHalf);
  }
  static CEM_TETRIS_FUNCTION double value(Bits bits) { return static_cast<double>(bits); }
};

// A division of doubles is long code on a GPU: one for all that are seldom needed.
#if defined(__CUDACC__)
__host__ __device__ __noinline__
#endif
    inline double quotient(double a, double b) {
  return a / b;
}

// What an update needs of the weights: 1 / sum w, and 1 / (1 - sum w^2 / (sum w)^2), or 0 where
// there is none. The sums are those of the first weights by rank, as many as there are elites.
struct Weight {
  double share, unbiased;
};

CEM_TETRIS_FUNCTION Weight make_weight(const Settings& settings, double total, double squares) {
  Weight weight{quotient(1.0, total), 0.0};
  if (settings.variance == kNewMeanUnbiased) {
    const double scale = 1.0 - quotient(squares, total * total);
    weight.unbiased = scale > 0.0 ? quotient(1.0, scale) : 0.0;
  }
  return weight;
}

// The sums over the elites for one dimension: of w x and w x^2, with x from the best one.
struct Moments {
  double first, second;
};

CEM_TETRIS_FUNCTION bool is_finite(double x) { return x - x == 0.0; }

// A number of a narrower type; what is too large for it becomes its largest one.
template <typename T> CEM_TETRIS_FUNCTION T rounded(double x) {
  constexpr double kLargest = sizeof(T) == 4 ? 0x1.fffffep127 : 0x1.fffffffffffffp1023;
  return static_cast<T>(x > kLargest ? kLargest : x < -kLargest ? -kLargest : x);
}

// Writes one dimension of the next distribution; `at` is its place in the distribution's first
// row. The old marginal stays where mean or variance is not finite, and with the best candidate
// where no elite is usable. best: of the best elite of the generation; better: than the best
// candidate so far. floor: minus infinity if there is none. newest: the share of the new mean
// in the averaged one.
template <typename T> CEM_TETRIS_FUNCTION void write_marginal(const Job& job, int64_t at,
    bool usable, Weight weight, Moments sums, T best, bool better, const T (&old)[kRows],
    double extra_variance, double floor, double newest) {
  const Settings& settings = job.settings;
  const double old_mean = static_cast<double>(old[kMean]),
               old_std = static_cast<double>(old[kStd]),
               old_average = static_cast<double>(old[kAveragedMean]);
  const double offset = sums.first * weight.share;
  double mean = static_cast<double>(best) + offset,
         variance = sums.second * weight.share - offset * offset;
  if (variance < 0.0) variance = 0.0;  // NaN stays
  if (settings.variance == kNewMeanUnbiased) {
    variance = weight.unbiased > 0.0 ? variance * weight.unbiased : old_std * old_std;
  } else if (settings.variance == kOldMean) {
    const double step = mean - old_mean;
    variance += step * step;
  }
  variance += extra_variance;
  const bool moves = usable && is_finite(mean) && is_finite(variance);
  double std = sqrt(variance);
  if (settings.smoothing != 1.0) mean = old_mean + settings.smoothing * (mean - old_mean);
  if (settings.std_smoothing != 1.0) std = old_std + settings.std_smoothing * (std - old_std);
  if (std < floor) std = floor;
  const double average = newest == 1.0 ? mean : old_average + (mean - old_average) * newest;
  T* const row = static_cast<T*>(job.new_distribution) + at;
  row[kMean * settings.dimensions] = moves ? rounded<T>(mean) : old[kMean];
  row[kStd * settings.dimensions] = moves ? rounded<T>(std) : old[kStd];
  row[kAveragedMean * settings.dimensions] = moves ? rounded<T>(average) : old[kAveragedMean];
  row[kBest * settings.dimensions] = usable && better ? best : old[kBest];
}

// The share of generation t's mean in the averaged one.
CEM_TETRIS_FUNCTION double newest_share(const Settings& settings, int64_t generation) {
  if (settings.mean_averaging == 0.0) return 1.0;
  return quotient(1.0, 1.0 + settings.mean_averaging * static_cast<double>(generation));
}

// Whether a fitness is strictly better than the best one known; NaN is none.
CEM_TETRIS_FUNCTION bool is_better(double fitness, double known, bool maximize) {
  return !(maximize ? known >= fitness : known <= fitness);
}

// The place of a generation in a table whose last entry stays.
CEM_TETRIS_FUNCTION int64_t table_place(int64_t generation, int64_t length) {
  return generation < 0 ? 0 : generation < length ? generation : length - 1;
}

CEM_TETRIS_FUNCTION double extra_variance_of(const Job& job, int64_t generation) {
  return job.extra_variance != nullptr
             ? job.extra_variance[table_place(generation, job.settings.table)]
             : 0.0;
}

// Writes the record of a problem; fitness of its best and its worst elite, and the sum of all
// elites'.
CEM_TETRIS_FUNCTION void write_record(const Job& job, int64_t problem, int64_t usable,
    double top, double sum, double threshold, int64_t generation) {
  const double* old = job.record + problem * kFigures;
  double* record = job.new_record + problem * kFigures;
  top += 0.0;  // -0 becomes 0: equals may stand in for each other
  threshold += 0.0;
  const double known = old[kBestFitness], nan = bit_cast<double>(uint64_t{0x7ff8000000000000});
  record[kBestFitness] =
      usable > 0 && is_better(top, known, job.settings.maximize) ? top : known;
  record[kGenerationBest] = usable > 0 ? top : nan;
  record[kEliteMean] = usable > 0 ? sum / static_cast<double>(usable) : nan;
  record[kEliteThreshold] = usable > 0 ? threshold : nan;
  record[kFailedGeneration] =
      usable > 0 ? old[kFailedGeneration] : static_cast<double>(generation + 1);
  if (problem == 0) *job.new_generation = generation + 1;
}

}  // namespace cem_tetris::update
