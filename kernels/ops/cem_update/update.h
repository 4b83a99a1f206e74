// What the CPU and the CUDA kernels of the update share: keys of fitness values, the order of
// the sums, and the arithmetic of one dimension. IEEE operations alone, in one order: both give
// the same bits.
//
// The elites are in index order, without those that failed; a place p = 0, 1, ... is a position
// there. The places are cut into chunks of kChunk. Each chunk is folded, and then the row of
// the chunks' sums. To fold: a residue class r = p mod kResidues adds its numbers in order,
// then the classes are added as a tree (r += r + 16, 8, 4, 2, 1). So the order depends on the
// number of elites alone.
#pragma once

#include "host_device.h"

namespace cem_tetris::update {

constexpr int kChunk = 512;
constexpr int kResidues = 32;  // as many as a warp has lanes
constexpr int kRows = 4;       // of a distribution, see Row
constexpr int kFigures = 5;    // of a record, see Figure

enum Row { kMean, kStd, kAveragedMean, kBest };
enum Figure { kBestFitness, kGenerationBest, kEliteMean, kEliteThreshold, kFailedGeneration };
enum class Number : int8_t {
  Long = 4,
  Float = 6,
  Double = 7
};  // torch's ScalarType, without its headers
// What the variance is about.
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

// The tensors of a call, all contiguous, with P problems of N candidates in d dimensions and K
// elites. A pointer is null where there is no tensor.
struct Job {
  Settings settings;
  Number type;  // of candidates and distributions: Float or Double
  Number fitness_type;
  const void* fitness;           // P x N
  const void* candidates;        // P x N x d
  const void* distribution;      // P x kRows x d
  const void* floors;            // d, or P x d: the least standard deviations
  const double* record;          // P x kFigures
  const double* extra_variance;  // by generation
  const double* weights;         // K, by rank
  const int64_t* generation;     // 1
  void* new_distribution;
  double* new_record;
  int64_t* new_generation;
  int64_t* elites;  // P x K

  CEM_TETRIS_FUNCTION bool can_fail() const { return fitness_type != Number::Long; }
};

// The type of a fitness, to which arguments.h widens narrower ones: how it is stored, the
// unsigned key by which it is ranked, least first, and its value. A candidate that failed, NaN
// or the infinity on the bad side, has the largest key, which no other float has. Integers
// cannot fail.
template <typename Real, typename Word, int kMantissa>
struct Floating {
  using Bits = Word;
  using Key = Word;
  static constexpr bool kCanFail = true;
  static constexpr Key kFailed = ~Key(0);  // the key of a candidate that failed
  static constexpr Word kSign = Word(1) << (8 * sizeof(Word) - 1);
  static constexpr Word kInfinity = (kSign - 1) >> kMantissa << kMantissa;

  static CEM_TETRIS_FUNCTION Word key(Word bits, bool maximize) {
    bool negative = (bits & kSign) != 0;
    Word magnitude = bits & ~kSign;
    // Keys are in the order of the numbers: negative ones are kSign - magnitude, positive ones
    // kSign + magnitude, and both zeros kSign. To maximize is to minimize with the other sign.
    bool bad = magnitude > kInfinity || (magnitude == kInfinity && negative == maximize);
    return bad ? kFailed : negative != maximize ? kSign - magnitude : kSign + magnitude;
  }
  // Returns the bits of the number that has a key; +0 for both zeros.
  static CEM_TETRIS_FUNCTION Word of_key(Word key, bool maximize) {
    bool low = key < kSign;
    Word magnitude = low ? kSign - key : key - kSign;
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
  static constexpr Key kFailed = ~Key(0);  // of none
  static constexpr Key kHalf = Key(1) << 63;

  static CEM_TETRIS_FUNCTION Key key(Bits bits, bool maximize) {
    Key ordered = Key(bits) + kHalf;  // wraps: the least number becomes 0
    return maximize ? ~ordered : ordered;
  }
  static CEM_TETRIS_FUNCTION Bits of_key(Key key, bool maximize) {
    return Bits((maximize ? ~key : key) - kHalf);
  }
  static CEM_TETRIS_FUNCTION double value(Bits bits) { return double(bits); }
};

// A division of doubles is long code on a GPU: one for all that are seldom needed.
#if defined(__CUDACC__)
__host__ __device__ __noinline__
#endif
    inline double quotient(double a, double b) {
  return a / b;
}

// What an update needs of the elites' weights: share = 1 / sum w, which makes a weighted sum a
// mean, and unbiased = 1 / (1 - sum w^2 / (sum w)^2), the correction that makes the variance
// about the new mean unbiased, or 0 where there is none, as for a single elite.
struct Weight {
  double share, unbiased;
};

// Returns the two numbers. total, squares: the sums of the weights and of the squared weights
// over the first ranks, as many as there are elites that did not fail.
CEM_TETRIS_FUNCTION Weight make_weight(const Settings& settings, double total, double squares) {
  Weight weight{quotient(1.0, total), 0.0};
  if (settings.variance == kNewMeanUnbiased) {
    double scale = 1.0 - quotient(squares, total * total);
    weight.unbiased = scale > 0.0 ? quotient(1.0, scale) : 0.0;
  }
  return weight;
}

// The sums over the elites for one dimension: of w x and w x^2, with x from the best one.
struct Moments {
  double first, second;
};

// False for NaN, too.
CEM_TETRIS_FUNCTION bool is_finite(double x) { return x - x == 0.0; }

// A number of a narrower type; what is too large for it becomes its largest one.
template <typename T>
CEM_TETRIS_FUNCTION T rounded(double x) {
  constexpr double kLargest = sizeof(T) == 4 ? 0x1.fffffep127 : 0x1.fffffffffffffp1023;
  return T(x > kLargest ? kLargest : x < -kLargest ? -kLargest : x);
}

// Writes one dimension (a marginal) of the next distribution: its mean, standard deviation,
// averaged mean, and the coordinate of the best candidate so far, which are rows of the matrix
// job.new_distribution. The CPU and every kernel call it, once per dimension.
//
// The first three rows stay as they are if the new mean or variance is not finite, and all rows
// stay if all candidates failed.
//
// Args:
//     offset: the index of this dimension in row 0 of the distribution
//     usable: whether any elite did not fail
//     weight: the factors that turn the sums into mean and variance
//     sums: the sums of w x and w x^2 over the elites, with x counted from `best`
//     best: the coordinate of the generation's best elite
//     is_new_best: whether that elite is better than the best candidate so far
//     old: the column of the old distribution
//     extra_variance: what is added to the variance in this generation
//     floor: the smallest standard deviation; minus infinity for none
//     mean_share: the share of the new mean in the averaged mean
template <typename T>
CEM_TETRIS_FUNCTION void write_marginal(const Job& job, int64_t offset, bool usable,
    Weight weight, Moments sums, T best, bool is_new_best, const T (&old)[kRows],
    double extra_variance, double floor, double mean_share) {
  const Settings& settings = job.settings;
  double old_mean = double(old[kMean]);
  double old_std = double(old[kStd]);
  double old_average = double(old[kAveragedMean]);
  // With x counted from the best elite, mean = best + sum w x / sum w, and variance = sum w x^2
  // / sum w - (sum w x / sum w)^2.
  double mean_offset = sums.first * weight.share;
  double mean = double(best) + mean_offset;
  double variance = sums.second * weight.share - mean_offset * mean_offset;
  if (variance < 0.0) variance = 0.0;  // It can be negative by rounding. NaN stays.
  if (settings.variance == kNewMeanUnbiased) {
    variance = weight.unbiased > 0.0 ? variance * weight.unbiased : old_std * old_std;
  } else if (settings.variance == kOldMean) {
    double step = mean - old_mean;
    variance += step * step;
  }
  variance += extra_variance;
  bool moves = usable && is_finite(mean) && is_finite(variance);
  double std = sqrt(variance);
  if (settings.smoothing != 1.0) mean = old_mean + settings.smoothing * (mean - old_mean);
  if (settings.std_smoothing != 1.0) std = old_std + settings.std_smoothing * (std - old_std);
  if (std < floor) std = floor;
  double average = mean_share == 1.0 ? mean : old_average + (mean - old_average) * mean_share;
  // The rows of the distribution are `dimensions` numbers apart.
  T* row = static_cast<T*>(job.new_distribution) + offset;
  row[kMean * settings.dimensions] = moves ? rounded<T>(mean) : old[kMean];
  row[kStd * settings.dimensions] = moves ? rounded<T>(std) : old[kStd];
  row[kAveragedMean * settings.dimensions] = moves ? rounded<T>(average) : old[kAveragedMean];
  row[kBest * settings.dimensions] = usable && is_new_best ? best : old[kBest];
}

// Returns the share of generation t's mean in the averaged one.
CEM_TETRIS_FUNCTION double newest_share(const Settings& settings, int64_t generation) {
  if (settings.mean_averaging == 0.0) return 1.0;
  return quotient(1.0, 1.0 + settings.mean_averaging * double(generation));
}

// Returns whether a fitness is strictly better than the best one known; a known fitness of NaN
// means that there is none yet.
CEM_TETRIS_FUNCTION bool is_better(double fitness, double known, bool maximize) {
  return !(maximize ? known >= fitness : known <= fitness);
}

// Returns the index of a generation in a table whose last entry is used for all later ones.
CEM_TETRIS_FUNCTION int64_t table_index(int64_t generation, int64_t length) {
  return generation < 0 ? 0 : generation < length ? generation : length - 1;
}

// Returns what a generation adds to all variances.
CEM_TETRIS_FUNCTION double extra_variance_of(const Job& job, int64_t generation) {
  return job.extra_variance ? job.extra_variance[table_index(generation, job.settings.table)]
                            : 0.0;
}

// Writes the record of a problem (entry of the batch), the figures of enum Figure: the best
// fitness so far; the best, the mean and the worst fitness of this generation's elites; and the
// last generation in which all candidates failed, counted from 1. Called once per problem.
// Problem 0 also advances the generation.
//
// `usable` is the number of elites that did not fail. `top` and `threshold` are the fitness of
// the best and of the worst of them, and `sum` is the sum over all of them. If there are none,
// the generation's figures are NaN.
CEM_TETRIS_FUNCTION void write_record(const Job& job, int64_t problem, int64_t usable,
    double top, double sum, double threshold, int64_t generation) {
  const double* old = job.record + problem * kFigures;
  double* record = job.new_record + problem * kFigures;
  // -0 becomes 0. Otherwise the sign would depend on which of equal candidates is the best.
  top += 0.0;
  threshold += 0.0;
  double best_known = old[kBestFitness];
  double nan = bit_cast<double>(uint64_t{0x7ff8000000000000});
  bool has_elites = usable > 0;
  bool is_new_best = has_elites && is_better(top, best_known, job.settings.maximize);
  record[kBestFitness] = is_new_best ? top : best_known;
  record[kGenerationBest] = has_elites ? top : nan;
  record[kEliteMean] = has_elites ? sum / double(usable) : nan;
  record[kEliteThreshold] = has_elites ? threshold : nan;
  record[kFailedGeneration] =
      has_elites ? old[kFailedGeneration] : static_cast<double>(generation + 1);
  if (problem == 0) *job.new_generation = generation + 1;
}

}  // namespace cem_tetris::update
