// Draws x = mean + L z for a group of samples of one problem, for host and device. z is the
// standard normal noise of the sampler in normal/.
#pragma once

#include "adapt.h"
#include "normal/call.h"

namespace cem_tetris::cma {

constexpr int kGroup = 32;  // samples that a team draws, a multiple of normal::kTile

// The tensors of a call. The memory of a group has two parts: | L's columns: padded x stride |
// z: dimension x kGroup |.
struct Draw {
  ScalarType type;                    // of all tensors but seed and generation
  int64_t problems, samples, groups;  // samples and groups of a problem
  int dimensions, padded;
  const void* distribution;
  const void* factor;
  const void* low;  // null without bounds
  const void* high;
  int64_t low_stride, high_stride;  // from one problem to the next
  const int64_t* seed;
  const int64_t* generation;
  void* out;

  CEM_TETRIS_FUNCTION int stride() const { return padded + 2; }  // see Plan
  int64_t doubles() const { return int64_t{padded} * (stride() + kGroup); }
};

// Sets z[dimension * kGroup + sample] to the standard normal noise of a group of kGroup samples
// of one problem. `first` is the number of the group's first sample, and only the first `count`
// samples of the group exist.
//
// All threads of the team call the function and share the items. An item is a block of four
// consecutive samples (normal::kTile) in one dimension. The Box-Muller transform draws two
// samples at a time, the pair radius * cosine and radius * sine, from random words of Philox.
// The noise depends only on the key, the generation, the sample and the dimension.
template <typename T, typename Team>
CEM_TETRIS_DEVICE_FUNCTION void set_noise(const Team& team, const Draw& call, normal::Key key,
    uint64_t generation, int64_t first, int count, double* z) {
  normal::LateKeys keys = normal::late_keys(key);
  constexpr int kSampleBlocks = kGroup / normal::kTile;
  for (int item = team.thread; item < kSampleBlocks * call.dimensions; item += team.threads) {
    int block = item % kSampleBlocks;
    int dimension = item / kSampleBlocks;
    bool has_samples = block * normal::kTile < count;
    if (!has_samples) continue;  // the block lies after the last sample
    // The random words are computed from a part for the dimension and a part for the samples.
    const auto dimension_part = normal::dimension_part(key, dimension, generation);
    const auto samples_part =
        normal::samples_of<T>(key, generation, /*dimension=*/0, first / normal::kTile + block);
    normal::Polar<T> pairs[normal::kTile / 2];
    normal::set_pairs<T>(keys, dimension_part, samples_part, pairs);
    Quad& four = *reinterpret_cast<Quad*>(z + dimension * kGroup + block * normal::kTile);
    CEM_TETRIS_UNROLL
    for (int s = 0; s < normal::kTile; ++s) {
      const normal::Polar<T>& pair = pairs[s / 2];
      T direction = s % 2 == 0 ? pair.cosine : pair.sine;
      four.value[s] = double(pair.radius * direction);
    }
  }
}

// Draws x = mean + L z, clamped to the bounds, for one group of kGroup samples of one problem
// (batch entry). z is standard normal noise, and L the Cholesky factor of the covariance. All
// threads of a team call the function. A team is a CUDA block or a single CPU thread.
//
// `item` is the number of the group, problem * call.groups + group. `memory` is scratch memory
// of call.doubles() numbers that the team shares: first L, column by column, then z, dimension
// by dimension.
template <typename T, typename Team>
CEM_TETRIS_DEVICE_FUNCTION void draw(
    const Team& team, const Draw& call, int64_t item, double* memory) {
  uint32_t groups = uint32_t(call.groups);
  uint32_t group_number = uint32_t(item);
  int64_t problem = group_number / groups;
  int64_t first = int64_t{group_number % groups} * kGroup;  // the group's first sample
  int d = call.dimensions;
  int padded = call.padded;
  int stride = call.stride();
  int count = int(call.samples - first < kGroup ? call.samples - first : kGroup);
  const T* mean = static_cast<const T*>(call.distribution) + problem * kRows * d;
  const T* factor = static_cast<const T*>(call.factor) + problem * d * d;
  const T* low = static_cast<const T*>(call.low) + problem * call.low_stride;
  const T* high = static_cast<const T*>(call.high) + problem * call.high_stride;
  T* out = static_cast<T*>(call.out) + (problem * call.samples + first) * d;
  double* lower = memory;
  double* z = memory + padded * stride;

  normal::Key key = normal::make_key(uint64_t(call.seed[problem]));
  uint64_t generation = uint64_t(*call.generation) % normal::kGenerations;
  auto load = [&](int i, int k) { return k <= i && i < d ? factor[i * d + k] : T{0}; };
  auto store = [&](int i, int k, T x) { lower[k * stride + i] = double(x); };
  team.template copy_matrix<4>(padded, d, load, store);
  set_noise<T>(team, call, key, generation, first, count, z);
  team.sync();  // Every thread reads L and z, which all threads have written.
  // The threads share the pieces of work. A piece is kSide dimensions of one sample, from
  // dimension `first_row` on. L is zero above its diagonal, so these dimensions need only the
  // columns of L before column `end`.
  for (int piece = team.thread; piece < kGroup / kSide * padded; piece += team.threads) {
    int sample = piece % kGroup;
    int first_row = piece / kGroup * kSide;
    int end = first_row + kSide < d ? first_row + kSide : d;
    if (sample >= count) continue;
    Quad sum{};
    CEM_TETRIS_UNROLL_4
    for (int j = 0; j < end; ++j) {
      Quad column = quad_at(lower + j * stride + first_row);
      CEM_TETRIS_UNROLL
      for (int c = 0; c < kSide; ++c) sum.value[c] += column.value[c] * z[j * kGroup + sample];
    }
    Four<T> four;
    CEM_TETRIS_UNROLL
    for (int c = 0; c < kSide; ++c) {
      // Beyond dimension d - 1, that dimension is computed again and not stored.
      int i = first_row + c < d ? first_row + c : d - 1;
      T x = T(double(mean[i]) + sum.value[c]);
      if (call.low && x < low[i]) x = low[i];  // a NaN compares false, and is not changed
      if (call.high && x > high[i]) x = high[i];
      four.value[c] = x;
    }
    // Four numbers are stored at once if their address is aligned.
    T* to = out + sample * d + first_row;
    bool is_aligned =
        d % kSide == 0 && reinterpret_cast<uintptr_t>(call.out) % sizeof(Four<T>) == 0;
    if (is_aligned) {
      *reinterpret_cast<Four<T>*>(to) = four;
    } else {
      for (int c = 0; c < end - first_row; ++c) to[c] = four.value[c];
    }
  }
}

}  // namespace cem_tetris::cma
