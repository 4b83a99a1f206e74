// What the CPU and the CUDA kernels of the update share: keys of fitness values, the order of
// the sums, and the arithmetic of one dimension. All of it uses IEEE operations in one order,
// so both devices get the same bits.
//
// The list of elites is in index order, without the candidates that failed; a place p = 0, 1,
// ... is a position in that list. The places are cut into chunks of kChunk. The numbers of a
// chunk are folded, and then the sums of the chunks are folded. To fold n numbers means: first
// the numbers of each residue class r = p mod kResidues are added in order. Then the sums of
// the classes are added as a binary tree (sum r += sum r + 16, then 8, 4, 2, 1). So the order
// of the additions depends on the number of elites alone.
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
// The point about which the variance is computed.
enum Variance { kNewMean, kNewMeanUnbiased, kOldMean };

// The settings that all problems of a batch share.
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

// A type of the fitness; arguments.h converts narrower types to Float, Double or Long. The
// class defines how a fitness is stored (Bits), its key, and its value as a double. A key is an
// unsigned integer that ranks the candidates, the best one first. A candidate fails if its
// fitness is NaN or the infinity on the bad side. It gets the largest key, which no other
// number has. Integers cannot fail.
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
    // Keys have the order of the numbers: a negative number has the key kSign - magnitude, a
    // positive number kSign + magnitude, and both zeros have kSign. To maximize a number is to
    // minimize its negative.
    bool bad = magnitude > kInfinity || (magnitude == kInfinity && negative == maximize);
    return bad ? kFailed : negative != maximize ? kSign - magnitude : kSign + magnitude;
  }
  // Returns the bits of the number that has this key. The key of the two zeros gives +0.
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
  static constexpr Key kFailed = ~Key(0);  // not used: no candidate fails
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

// Returns a / b. A division of doubles is long code on a GPU, so divisions that are seldom
// needed share this one.
#if defined(__CUDACC__)
__host__ __device__ __noinline__
#endif
    inline double quotient(double a, double b) {
  return a / b;
}

// Two factors that follow from the weights w of the elites. share = 1 / sum w turns a weighted
// sum into a mean. unbiased = 1 / (1 - sum w^2 / (sum w)^2) makes the variance about the new
// mean unbiased; it is 0 where it does not exist, as for a single elite.
struct Weight {
  double share, unbiased;
};

// Returns the two factors. `total` is the sum of the weights and `squares` the sum of the
// squared weights, over the first ranks, as many as there are valid elites.
CEM_TETRIS_FUNCTION Weight make_weight(const Settings& settings, double total, double squares) {
  Weight weight{quotient(1.0, total), 0.0};
  if (settings.variance == kNewMeanUnbiased) {
    double scale = 1.0 - quotient(squares, total * total);
    weight.unbiased = scale > 0.0 ? quotient(1.0, scale) : 0.0;
  }
  return weight;
}

// The sums of w x and w x^2 over the elites in one dimension, where x is an elite's coordinate
// minus the coordinate of the best elite.
struct Moments {
  double first, second;
};

// Returns whether x is finite. The difference is NaN for an infinite x and for NaN.
CEM_TETRIS_FUNCTION bool is_finite(double x) { return x - x == 0.0; }

// Returns x rounded to T. A number that is too large for T becomes the largest number of T.
template <typename T>
CEM_TETRIS_FUNCTION T rounded(double x) {
  constexpr double kLargest = sizeof(T) == 4 ? 0x1.fffffep127 : 0x1.fffffffffffffp1023;
  return T(x > kLargest ? kLargest : x < -kLargest ? -kLargest : x);
}

// Writes one dimension (a marginal) of the new distribution: its mean, standard deviation,
// averaged mean, and the coordinate of the best candidate so far. They are one column of the
// matrix job.new_distribution, which has four rows (kRows). The CPU and every CUDA kernel call
// this function, once per dimension.
//
// The first three rows keep their old values if the new mean or variance is not finite. All
// rows keep their old values if all candidates failed.
//
// Args:
//     offset: the index of this dimension in row 0 of the distribution.
//     has_elites: whether at least one elite did not fail.
//     weight: the factors that turn the sums into mean and variance.
//     sums: the sums of w x and w x^2 over the elites. w is the weight of an elite, and x is
//         its coordinate minus `best`.
//     best: the coordinate of the generation's best elite.
//     is_new_best: whether that elite is better than the best candidate of earlier generations.
//     old: the four numbers of this dimension in the old distribution.
//     extra_variance: the number that is added to the variance in this generation.
//     floor: the smallest standard deviation; minus infinity if there is no floor.
//     mean_share: the weight of the new mean in the averaged mean; 1 means no averaging.
template <typename T>
CEM_TETRIS_FUNCTION void write_marginal(const Job& job, int64_t offset, bool has_elites,
    Weight weight, Moments sums, T best, bool is_new_best, const T (&old)[kRows],
    double extra_variance, double floor, double mean_share) {
  const Settings& settings = job.settings;
  double old_mean = double(old[kMean]);
  double old_std = double(old[kStd]);
  double old_average = double(old[kAveragedMean]);
  // The mean is best + sum w x / sum w, because x is a difference from the best elite. The
  // variance about the new mean is sum w x^2 / sum w - (sum w x / sum w)^2.
  double mean_offset = sums.first * weight.share;
  double mean = double(best) + mean_offset;
  double variance = sums.second * weight.share - mean_offset * mean_offset;
  // Rounding can make the variance negative. A variance of NaN is not changed.
  if (variance < 0.0) variance = 0.0;
  if (settings.variance == kNewMeanUnbiased) {
    variance = weight.unbiased > 0.0 ? variance * weight.unbiased : old_std * old_std;
  } else if (settings.variance == kOldMean) {
    // The variance about another point is larger by the square of the distance.
    double step = mean - old_mean;
    variance += step * step;
  }
  variance += extra_variance;
  bool is_updated = has_elites && is_finite(mean) && is_finite(variance);
  double std = sqrt(variance);
  if (settings.smoothing != 1.0) mean = old_mean + settings.smoothing * (mean - old_mean);
  if (settings.std_smoothing != 1.0) std = old_std + settings.std_smoothing * (std - old_std);
  if (std < floor) std = floor;
  double average = mean_share == 1.0 ? mean : old_average + (mean - old_average) * mean_share;
  // The rows of the distribution are `dimensions` numbers apart.
  T* row = static_cast<T*>(job.new_distribution) + offset;
  row[kMean * settings.dimensions] = is_updated ? rounded<T>(mean) : old[kMean];
  row[kStd * settings.dimensions] = is_updated ? rounded<T>(std) : old[kStd];
  row[kAveragedMean * settings.dimensions] =
      is_updated ? rounded<T>(average) : old[kAveragedMean];
  row[kBest * settings.dimensions] = has_elites && is_new_best ? best : old[kBest];
}

// Returns the weight of the newest mean in the averaged mean, 1 / (1 + averaging * generation).
CEM_TETRIS_FUNCTION double newest_share(const Settings& settings, int64_t generation) {
  if (settings.mean_averaging == 0.0) return 1.0;
  return quotient(1.0, 1.0 + settings.mean_averaging * double(generation));
}

// Returns whether a fitness is better than the best one of earlier generations. A best_known of
// NaN means that there was none.
CEM_TETRIS_FUNCTION bool is_better(double fitness, double best_known, bool maximize) {
  return !(maximize ? best_known >= fitness : best_known <= fitness);
}

// Returns the index of a generation in a table whose last entry is used for all later ones.
CEM_TETRIS_FUNCTION int64_t table_index(int64_t generation, int64_t length) {
  return generation < 0 ? 0 : generation < length ? generation : length - 1;
}

// Returns the variance that is added in all dimensions in this generation.
CEM_TETRIS_FUNCTION double extra_variance_of(const Job& job, int64_t generation) {
  return job.extra_variance ? job.extra_variance[table_index(generation, job.settings.table)]
                            : 0.0;
}

// Writes the record of a problem (batch entry), the five figures of enum Figure:
//
// - the best fitness so far;
// - the best fitness, the mean fitness and the worst fitness of this generation's elites;
// - the last generation in which all candidates failed, counted from 1.
//
// One thread calls the function once per problem. For problem 0 it also advances the
// generation, whose number all problems share.
//
// `valid_elites` is the number of elites that did not fail. best_fitness, worst_fitness and
// fitness_sum are the best fitness, the worst fitness and the sum over these elites alone. If
// there are none, the three figures of this generation are NaN.
CEM_TETRIS_FUNCTION void write_record(const Job& job, int64_t problem, int64_t valid_elites,
    double best_fitness, double fitness_sum, double worst_fitness, int64_t generation) {
  const double* old = job.record + problem * kFigures;
  double* record = job.new_record + problem * kFigures;
  // Adding 0 turns -0 into 0. Otherwise the sign of a zero would depend on which of several
  // equal candidates is the best one.
  best_fitness += 0.0;
  worst_fitness += 0.0;
  double best_known = old[kBestFitness];
  double nan = bit_cast<double>(uint64_t{0x7ff8000000000000});  // the same bits everywhere
  bool has_elites = valid_elites > 0;
  bool is_new_best = has_elites && is_better(best_fitness, best_known, job.settings.maximize);
  record[kBestFitness] = is_new_best ? best_fitness : best_known;
  record[kGenerationBest] = has_elites ? best_fitness : nan;
  record[kEliteMean] = has_elites ? fitness_sum / double(valid_elites) : nan;
  record[kEliteThreshold] = has_elites ? worst_fitness : nan;
  record[kFailedGeneration] =
      has_elites ? old[kFailedGeneration] : static_cast<double>(generation + 1);
  if (problem == 0) *job.new_generation = generation + 1;
}

}  // namespace cem_tetris::update
