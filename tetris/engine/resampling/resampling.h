// The resampling of importance splitting: `StreamWeights.resample` of tetris/play/splitting.py, candidate by candidate.
//
// Weights are multiples of a unit, 1 or 1 / PARTS. Sums are of integers, whole parts and others apart, and all else is done
// number by number, in the order of the Python, so that all engines resample the same.
#pragma once

#include <cmath>
#include <cstdint>

#include "portable.h"

namespace tetris {

constexpr int LEVELS = 32;
constexpr double ALL_WEIGHT = 1125899906842624.0;  // 2^50, of all streams of a candidate, about
constexpr double PARTS =
    1099511627776.0;  // 2^40, of 1, where a weight of the candidate has been below 1
constexpr double COPIES = 1048576.0;  // of a stream that holds the whole weight of its level
constexpr int RANDOM_BITS = 12;

// The streams of all candidates, or of one. Scratch is of shape (population, streams), too.
struct Resampling {
  int streams, width;
  const uint32_t* columns;  // (population, streams, width): bit y is row y
  const int64_t* games;     // that have ended on each stream
  int64_t* before;          // `games` at the last resampling; carried on
  double* weight;           // of each stream; carried on
  double*
      held;  // (population, LEVELS): weight of each level, summed over the resamplings; carried on
  double* unit;   // (population): of the weights; carried on
  double* ended;  // (population): share of the weight that ended, summed over them; carried on
  double count;   // resamplings, this one included
  bool counts;    // whether what ended counts
  int64_t bits, offset;            // where resampling begins: bits + offset * candidate
  int64_t* source;                 // result: from which stream each goes on
  uint32_t* boards;                // result: the columns of it, shaped as `columns`
  int64_t *level, *order, *until;  // scratch
  double* after;                   // scratch

  TETRIS_FUNCTION Resampling of(int64_t candidate) const {
    Resampling own = *this;
    const int64_t first = candidate * streams;
    own.columns += first * width;
    own.boards += first * width;
    own.games += first;
    own.unit += candidate;
    own.ended += candidate;
    own.held += candidate * LEVELS;
    own.bits += candidate * offset;
    for (int64_t** each : {&own.before, &own.source, &own.level, &own.order, &own.until})
      *each += first;
    for (double** each : {&own.weight, &own.after}) *each += first;
    return own;
  }
};

// The level of a stack: 0.6 rows to the highest cell + 0.9 rows to the highest cell of a column, in the mean - 6.
TETRIS_FUNCTION int stack_level(const uint32_t* columns, int width) {
  int highest = 0, sum = 0;
  for (int c = 0; c < width; ++c) {
#if defined(__CUDA_ARCH__)
    const int height = 32 - __clz(static_cast<int>(columns[c]));
#else
    const int height = columns[c] == 0 ? 0 : 32 - __builtin_clz(columns[c]);
#endif
    highest = height > highest ? height : highest;
    sum += height;
  }
  const int level = 3 * (2 * width * highest + 3 * sum) / (10 * width) - 6;
  return level < 0 ? 0 : level < LEVELS ? level : LEVELS - 1;
}

TETRIS_FUNCTION double with_parts(int64_t whole, int64_t parts) {
  return static_cast<double>(whole) + static_cast<double>(parts) / PARTS;
}

// One candidate's resampling, on the CPU.
inline void resample_candidate(const Resampling& own) {
  int64_t whole[LEVELS] = {}, parts[LEVELS] = {}, all = 0, ended = 0, ended_parts = 0,
          total = 0;
  int place[LEVELS + 1] = {};
  for (int i = 0; i < own.streams; ++i) {
    const int level = stack_level(own.columns + int64_t{i} * own.width, own.width);
    const auto more = static_cast<int64_t>(own.weight[i]);
    const auto more_parts =
        static_cast<int64_t>((own.weight[i] - static_cast<double>(more)) * PARTS);
    own.level[i] = level;
    whole[level] += more;
    parts[level] += more_parts;
    ++place[level + 1];
    all += more;
    ended += more * (own.games[i] - own.before[i]);
    ended_parts += more_parts * (own.games[i] - own.before[i]);
    own.before[i] = own.games[i];
  }
  if (own.counts) *own.ended += with_parts(ended, ended_parts) / static_cast<double>(all);
  double most[LEVELS];  // the weight that a stream's is divided by for its share
  for (int level = 0; level < LEVELS; ++level) {
    const double now = with_parts(whole[level], parts[level]);
    own.held[level] += now;
    most[level] = std::fmax(own.held[level] / own.count, now);
    place[level + 1] += place[level];
  }
  for (int i = 0; i < own.streams; ++i) own.order[place[own.level[i]]++] = i;
  for (int k = 0; k < own.streams; ++k) {
    const int64_t i = own.order[k];
    const auto copies = static_cast<int64_t>(own.weight[i] / most[own.level[i]] * COPIES);
    own.until[k] = total += copies > 1 ? copies : 1;
  }
  const int64_t begin = total * (own.bits & ((1 << RANDOM_BITS) - 1)) >> RANDOM_BITS;
  all = 0;
  for (int i = 0, k = 0; i < own.streams; ++i) {
    while (own.until[k] * own.streams <= i * total + begin) ++k;
    const int64_t copies = own.until[k] - (k > 0 ? own.until[k - 1] : 0);
    own.source[i] = own.order[k];
    for (int c = 0; c < own.width; ++c)
      own.boards[int64_t{i} * own.width + c] = own.columns[own.order[k] * own.width + c];
    // In the mean it is taken copies / total x streams times, and its weight is divided by that.
    own.after[i] = own.weight[own.order[k]] * static_cast<double>(total) /
                   static_cast<double>(copies * own.streams);
    if (own.after[i] < 1) *own.unit = 1 / PARTS;
  }
  const double unit = *own.unit;
  for (int i = 0; i < own.streams; ++i) {
    own.after[i] = std::floor(own.after[i] / unit) * unit;
    all += static_cast<int64_t>(own.after[i]);
  }
  const double scale = ALL_WEIGHT / static_cast<double>(all);
  for (int i = 0; i < own.streams; ++i)
    own.weight[i] = std::fmax(std::floor(own.after[i] * scale / unit) * unit, unit);
}

}  // namespace tetris
