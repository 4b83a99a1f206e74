// The resampling of importance splitting: `StreamWeights.resample` of tetris/play/splitting.py,
// one candidate at a time.
//
// Streams of games carry weights. Each stream is on a level, which tells how high its stack is.
// Resampling copies streams and divides their weights, so that every level that has ever had
// weight keeps about as many streams.
//
// All engines resample the same bit for bit. Weights are multiples of a unit, 1 or 2^-40,
// and sums are made of integers, whole parts and fractional parts separately. Other
// operations are done number by number, in the order of the Python.
#pragma once

#include <cmath>
#include <cstdint>

#include "host_device.h"

namespace tetris {

constexpr int LEVELS = 32;
constexpr double ALL_WEIGHT =
    1125899906842624.0;  // 2^50, about the weight of all streams of a candidate
// 2^40. Once a weight of a candidate has been below 1, its weights are multiples of 2^-40.
constexpr double FRACTION_SCALE = 1099511627776.0;
constexpr double COPIES =
    1048576.0;  // 2^20 copies of a stream that holds all the weight of its level
constexpr int RANDOM_BITS = 12;

// The streams of all candidates, or of one. Shapes are (population, streams) if not said
// otherwise.
struct Resampling {
  int streams, width;
  const uint32_t* columns;  // (population, streams, width): row y is bit y
  const int64_t* games;     // games that have ended on each stream
  // State, carried on from one resampling to the next.
  int64_t* games_before;  // `games` at the last resampling
  double* weight;
  double*
      level_sums;  // (population, LEVELS): weight of each level, summed over the resamplings
  double* unit;    // (population,): unit of the weights
  double* ended;   // (population,): share of the weight that ended, summed over the resamplings
  double resamplings;    // the number of resamplings, this one included
  bool measures_rate;    // whether `ended` is summed
  int64_t bits, offset;  // random numbers: bits + offset * candidate
  // Results.
  int64_t* source;   // the stream that each stream goes on from
  uint32_t* boards;  // (population, streams, width): the columns of that stream
  // Scratch.
  int64_t* level;
  int64_t* order;         // streams in the order of their levels
  int64_t* copies_up_to;  // running sum of the streams' copies in this order
  double* new_weight;     // new weights, before they are scaled

  // Returns a copy of this struct for one candidate: every pointer is moved from the first
  // candidate's data to the data of `candidate`. The arrays hold one candidate after the other,
  // with `streams` numbers per candidate, or `streams * width` for boards, LEVELS for
  // `level_sums`, and one for `unit` and `ended`. `bits` is a random number, and increases by
  // `offset` from one candidate to the next.
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
    one.bits += candidate * offset;
    return one;
  }

  // Returns where the first copy is taken, at random within the first of `streams` equal parts
  // of all copies. Positions are multiples of 1 / streams.
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

// Returns the level of a stack: 0.6 times its highest column + 0.9 times its mean column - 6,
// rounded down and limited to the levels.
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

// Returns how many copies of a stream there are to choose from: COPIES times its share of
// `level_weight`, but at least one.
TETRIS_FUNCTION int64_t copies_of(double weight, double level_weight) {
  int64_t copies = int64_t(weight / level_weight * COPIES);
  return copies > 1 ? copies : 1;
}

// Returns the new weight of a stream that has `copies` of the `total` copies. Among `streams`
// choices it is taken copies / total * streams times in the mean, and its weight is divided by
// this number.
TETRIS_FUNCTION double divided_weight(
    double weight, int64_t total, int64_t copies, int streams) {
  return weight * double(total) / double(copies * streams);
}

// Resamples the streams of one candidate on the CPU. `own` are the tensors of this candidate,
// as of_candidate returns them. ResamplingBlock in resample.cuh does the same with a block of
// threads.
inline void resample_candidate(const Resampling& own) {
  // Add up the weight of each level, and the weight of the games that have ended since the last
  // resampling. Whole parts and fractional parts of weights are added on their own, as
  // integers.
  int64_t whole[LEVELS] = {}, fraction[LEVELS] = {};
  int64_t all = 0, ended = 0, ended_fraction = 0;
  // Element level + 1 first counts the streams of `level`. The running sum then makes element
  // `level` the index in `order` of the first stream of that level.
  int first_of_level[LEVELS + 1] = {};
  for (int i = 0; i < own.streams; ++i) {
    int level = stack_level(own.columns + int64_t{i} * own.width, own.width);
    SplitWeight weight(own.weight[i]);
    int64_t ended_games = own.games[i] - own.games_before[i];
    own.level[i] = level;
    whole[level] += weight.whole;
    fraction[level] += weight.fraction;
    ++first_of_level[level + 1];
    all += weight.whole;
    ended += weight.whole * ended_games;
    ended_fraction += weight.fraction * ended_games;
    own.games_before[i] = own.games[i];
  }
  if (own.measures_rate) *own.ended += join_weight(ended, ended_fraction) / double(all);
  double level_weight[LEVELS];
  for (int level = 0; level < LEVELS; ++level) {
    double now = join_weight(whole[level], fraction[level]);
    own.level_sums[level] += now;
    level_weight[level] = std::fmax(own.level_sums[level] / own.resamplings, now);
    first_of_level[level + 1] += first_of_level[level];
  }

  // Put the streams in the order of their levels, and sum up their copies.
  for (int i = 0; i < own.streams; ++i) own.order[first_of_level[own.level[i]]++] = i;
  int64_t total = 0;
  for (int k = 0; k < own.streams; ++k) {
    int64_t i = own.order[k];
    total += copies_of(own.weight[i], level_weight[own.level[i]]);
    own.copies_up_to[k] = total;
  }

  // All copies of all streams lie on a line, in the order of the levels. Take as many of them
  // as there are streams, at equal distances, and divide the weight of each stream by how often
  // it is taken in the mean. Positions are multiplied by `streams`, to stay integers. k is the
  // index in `order` of the stream whose copies cover the position.
  int64_t first_position = own.first_position(total);
  for (int i = 0, k = 0; i < own.streams; ++i) {
    int64_t position = i * total + first_position;
    while (own.copies_up_to[k] * own.streams <= position) ++k;
    int64_t copies = own.copies_up_to[k] - (k > 0 ? own.copies_up_to[k - 1] : 0);
    int64_t source = own.order[k];
    own.source[i] = source;
    for (int c = 0; c < own.width; ++c) {
      own.boards[int64_t{i} * own.width + c] = own.columns[source * own.width + c];
    }
    own.new_weight[i] = divided_weight(own.weight[source], total, copies, own.streams);
    if (own.new_weight[i] < 1) *own.unit = 1 / FRACTION_SCALE;
  }

  // Scale the weights so that their sum is about ALL_WEIGHT, and round them down to whole
  // units.
  double unit = *own.unit;
  int64_t all_after = 0;
  for (int i = 0; i < own.streams; ++i) {
    own.new_weight[i] = std::floor(own.new_weight[i] / unit) * unit;
    all_after += int64_t(own.new_weight[i]);
  }
  double scale = ALL_WEIGHT / double(all_after);
  for (int i = 0; i < own.streams; ++i) {
    own.weight[i] = std::fmax(std::floor(own.new_weight[i] * scale / unit) * unit, unit);
  }
}

}  // namespace tetris
