// The resampling of importance splitting: `StreamWeights.resample` of tetris/play/splitting.py,
// one candidate at a time.
//
// Streams of games have weights. Each stream is on a level, according to the height of its
// stack. Resampling copies streams and divides their weights, so that all levels that have ever
// had weight have about the same number of streams.
//
// The results of all engines are the same bit for bit. Weights are multiples of a unit, 1 or
// 2^-40. They are summed as integers, whole parts and fractional parts separately. The other
// operations are applied to single numbers, in the same order as in Python.
#pragma once

#include <cmath>
#include <cstdint>

#include "host_device.h"

namespace tetris {

constexpr int LEVELS = 32;
// 2^50, about the weight of all streams of a candidate.
constexpr double ALL_WEIGHT = 1125899906842624.0;
// 2^40. Once a weight of a candidate has been below 1, its weights are multiples of 2^-40.
constexpr double FRACTION_SCALE = 1099511627776.0;
// 2^20, the number of copies of a stream that holds all the weight of its level.
constexpr double COPIES = 1048576.0;
constexpr int RANDOM_BITS = 12;

// The streams of all candidates, or of one candidate. The shape of an array is (population,
// streams) unless a comment says otherwise.
struct Resampling {
  int streams, width;
  const uint32_t* columns;  // (population, streams, width): row y is bit y
  const int64_t* games;     // games that have ended on each stream
  // The state, which is passed on from one resampling to the next.
  int64_t* games_before;  // `games` at the last resampling
  double* weight;
  // (population, LEVELS): the weight of each level, summed over the resamplings.
  double* level_sums;
  double* unit;        // (population,): the unit of the weights
  double* ended;       // (population,): share of weight on ended games, summed over resamplings
  double resamplings;  // the number of resamplings, this one included
  bool measures_rate;  // whether `ended` is summed
  int64_t bits, offset;  // the random number of a candidate is bits + offset * candidate
  // The results.
  int64_t* source;   // the stream that each stream continues
  uint32_t* boards;  // (population, streams, width): the columns of that stream
  // Scratch memory.
  int64_t* level;
  int64_t* order;         // streams in the order of their levels
  int64_t* copies_up_to;  // running sum of the streams' copies in this order
  double* new_weight;     // new weights, before they are scaled

  // Returns a copy of this struct for one candidate: every pointer points to the data of this
  // candidate. The arrays hold the data of one candidate after another.
  TETRIS_FUNCTION Resampling of_candidate(int64_t candidate) const {
    Resampling one = *this;
    int64_t first_stream = candidate * streams;
    int64_t first_column = first_stream * width;
    one.columns += first_column;
    one.boards += first_column;
    one.games += first_stream;
    one.games_before += first_stream;
    one.weight += first_stream;
    one.source += first_stream;
    one.level += first_stream;
    one.order += first_stream;
    one.copies_up_to += first_stream;
    one.new_weight += first_stream;
    one.level_sums += candidate * LEVELS;
    one.unit += candidate;
    one.ended += candidate;
    one.bits += candidate * offset;  // the random number of this candidate
    return one;
  }

  // Returns the position of the first copy that is chosen: a random position within the first
  // of `streams` equal parts of all `total` copies. Positions are in units of 1 / streams.
  TETRIS_FUNCTION int64_t first_position(int64_t total) const {
    return total * (bits & ((1 << RANDOM_BITS) - 1)) >> RANDOM_BITS;
  }
};

TETRIS_FUNCTION int column_height(uint32_t column) {
#if defined(__CUDA_ARCH__)
  return 32 - __clz(int(column));
#else
  return column == 0 ? 0 : 32 - __builtin_clz(column);
#endif
}

// Returns the level of a stack: 0.6 times the height of its highest column, plus 0.9 times the
// mean height of its columns, minus 6. The result is rounded down and limited to 0 .. LEVELS -
// 1.
TETRIS_FUNCTION int stack_level(const uint32_t* columns, int width) {
  int highest = 0, sum = 0;
  for (int c = 0; c < width; ++c) {
    int height = column_height(columns[c]);
    highest = height > highest ? height : highest;
    sum += height;
  }
  int level = 3 * (2 * width * highest + 3 * sum) / (10 * width) - 6;
  return level < 0 ? 0 : level < LEVELS ? level : LEVELS - 1;
}

// Splits a weight into its whole part and its fractional part, which is an integer number of
// units of 2^-40.
struct SplitWeight {
  int64_t whole, fraction;
  TETRIS_FUNCTION explicit SplitWeight(double weight)
      : whole(int64_t(weight)), fraction(int64_t((weight - double(whole)) * FRACTION_SCALE)) {}
};
// Returns the weight that consists of a whole part and `fraction` units of 2^-40.
TETRIS_FUNCTION double join_weight(int64_t whole, int64_t fraction) {
  return double(whole) + double(fraction) / FRACTION_SCALE;
}

// Returns the number of copies of a stream: COPIES times the stream's share of the weight of
// its level, but at least one. Resampling chooses among the copies of all streams.
TETRIS_FUNCTION int64_t copies_of(double weight, double level_weight) {
  int64_t copies = int64_t(weight / level_weight * COPIES);
  return copies > 1 ? copies : 1;
}

// Returns the new weight of a stream that has `copies` of all `total` copies. Resampling
// chooses `streams` copies. The stream is therefore chosen copies / total * streams times on
// average, and its weight is divided by this number.
TETRIS_FUNCTION double divided_weight(
    double weight, int64_t total, int64_t copies, int streams) {
  return weight * double(total) / double(copies * streams);
}

// Resamples the streams of one candidate on the CPU. `data` holds pointers to the data of this
// candidate; see of_candidate. ResamplingBlock in resample.cuh does the same with a block of
// threads.
inline void resample_candidate(const Resampling& data) {
  // Add up the weight of each level, and the weight of the games that have ended since the
  // previous resampling. Whole parts and fractional parts of weights are added separately, as
  // integers.
  int64_t whole[LEVELS] = {}, fraction[LEVELS] = {};
  int64_t all = 0, ended = 0, ended_fraction = 0;
  // Element level + 1 first counts the streams of `level`. The running sum then makes element
  // `level` the index in `order` of the first stream of that level.
  int first_of_level[LEVELS + 1] = {};
  for (int i = 0; i < data.streams; ++i) {
    int level = stack_level(data.columns + int64_t{i} * data.width, data.width);
    SplitWeight weight(data.weight[i]);
    int64_t ended_games = data.games[i] - data.games_before[i];
    data.level[i] = level;
    whole[level] += weight.whole;
    fraction[level] += weight.fraction;
    ++first_of_level[level + 1];
    all += weight.whole;
    ended += weight.whole * ended_games;
    ended_fraction += weight.fraction * ended_games;
    data.games_before[i] = data.games[i];
  }
  if (data.measures_rate) *data.ended += join_weight(ended, ended_fraction) / double(all);
  double level_weight[LEVELS];
  for (int level = 0; level < LEVELS; ++level) {
    double now = join_weight(whole[level], fraction[level]);
    data.level_sums[level] += now;
    level_weight[level] = std::fmax(data.level_sums[level] / data.resamplings, now);
    first_of_level[level + 1] += first_of_level[level];
  }

  // Sort the streams by level, and compute the running sum of their copies.
  for (int i = 0; i < data.streams; ++i) data.order[first_of_level[data.level[i]]++] = i;
  int64_t total = 0;
  for (int k = 0; k < data.streams; ++k) {
    int64_t i = data.order[k];
    total += copies_of(data.weight[i], level_weight[data.level[i]]);
    data.copies_up_to[k] = total;
  }

  // Imagine the copies of all streams on a line, sorted by level. Choose as many of them as
  // there are streams, at equal distances. The weight of a stream is divided by how often it is
  // chosen on average. Positions are multiplied by `streams`, so that they are integers. k is
  // the index in `order` of the stream whose copies cover the position.
  int64_t first_position = data.first_position(total);
  for (int i = 0, k = 0; i < data.streams; ++i) {
    int64_t position = i * total + first_position;
    while (data.copies_up_to[k] * data.streams <= position) ++k;
    int64_t copies = data.copies_up_to[k] - (k > 0 ? data.copies_up_to[k - 1] : 0);
    int64_t source = data.order[k];
    data.source[i] = source;
    for (int c = 0; c < data.width; ++c) {
      data.boards[int64_t{i} * data.width + c] = data.columns[source * data.width + c];
    }
    data.new_weight[i] = divided_weight(data.weight[source], total, copies, data.streams);
    if (data.new_weight[i] < 1) *data.unit = 1 / FRACTION_SCALE;
  }

  // Scale the weights so that their sum is about ALL_WEIGHT, and round them down to multiples
  // of the unit.
  double unit = *data.unit;
  int64_t all_after = 0;
  for (int i = 0; i < data.streams; ++i) {
    data.new_weight[i] = std::floor(data.new_weight[i] / unit) * unit;
    all_after += int64_t(data.new_weight[i]);
  }
  double scale = ALL_WEIGHT / double(all_after);
  for (int i = 0; i < data.streams; ++i) {
    data.weight[i] = std::fmax(std::floor(data.new_weight[i] * scale / unit) * unit, unit);
  }
}

}  // namespace tetris
