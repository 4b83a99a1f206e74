// x = mean + L z for a group of samples of one problem, for host and device; z is the sampler's noise.
#pragma once

#include "adapt.h"
#include "normal/call.h"

namespace cem_tetris::cma {

constexpr int kGroup = 32;  // samples of a team, a multiple of those of a tile

struct Draw {
  int64_t problems, samples, groups;  // groups of a problem
  int dimensions, padded;
  const void *distribution, *factor, *low, *high;  // bounds may be null
  int64_t low_stride, high_stride;                 // from one problem to the next
  const int64_t *seed, *generation;
  void* out;

  int64_t doubles() const { return int64_t{padded} * (padded + 2 + kGroup); }
};

// The noise of four samples of one dimension, as sample_normal has it for mean 0 and std 1.
template <typename T> CEM_TETRIS_FUNCTION void noise(normal::Key key, const normal::LateKeys& keys,
    uint64_t generation, int dimension, int64_t block, double (&z)[normal::kTile]) {
  const auto words = [&](uint32_t which) {
    const uint32_t word3 = normal::upper(generation, 0, static_cast<uint64_t>(block)) | which;
    return normal::words(keys, normal::dimension_part(key, dimension, generation),
        normal::block_part(key, block, generation, word3));
  };
  normal::Polar<T> pair[2];
  if constexpr (normal::kBlocks<T> == 1) {
    const normal::Words w = words(0);
    pair[0] = normal::polar(w.word[0], w.word[1]);
    pair[1] = normal::polar(w.word[2], w.word[3]);
  } else {
    for (int half = 0; half < 2; ++half) {
      const normal::Words w = words(normal::kOfDouble | (half == 0 ? 0u : normal::kSecondHalf));
      pair[half] = normal::polar(w.word[0], w.word[1], w.word[2], w.word[3]);
    }
  }
  CEM_TETRIS_UNROLL
  for (int s = 0; s < normal::kTile; ++s) {
    z[s] = static_cast<double>(pair[s / 2].radius * (s % 2 == 0 ? pair[s / 2].cosine : pair[s / 2].sine));
  }
}

template <typename T, typename Team>
CEM_TETRIS_TEAM_FUNCTION void draw(const Team& team, const Draw& call, int64_t item, double* memory) {
  const uint32_t groups = static_cast<uint32_t>(call.groups);
  const uint32_t at = static_cast<uint32_t>(item);
  const int64_t problem = at / groups, first = int64_t{at % groups} * kGroup;
  const int d = call.dimensions, p = call.padded, q = p + 2;
  const int count = static_cast<int>(call.samples - first < kGroup ? call.samples - first : kGroup);
  const T* const mean = static_cast<const T*>(call.distribution) + problem * update::kRows * d;
  const T* const factor = static_cast<const T*>(call.factor) + problem * d * d;
  const T* const low = static_cast<const T*>(call.low) + problem * call.low_stride;
  const T* const high = static_cast<const T*>(call.high) + problem * call.high_stride;
  T* const out = static_cast<T*>(call.out) + (problem * call.samples + first) * d;
  double *const lower = memory, *const z = memory + p * q;

  const normal::Key key = normal::make_key(static_cast<uint64_t>(call.seed[problem]));
  const uint64_t generation = static_cast<uint64_t>(*call.generation) % normal::kGenerations;
  team.template table<4>(
      p, d, [&](int i, int k) { return k <= i && i < d ? factor[i * d + k] : T{0}; },
      [&](int i, int k, T x) { lower[k * q + i] = static_cast<double>(x); });
  normal::LateKeys keys;
  CEM_TETRIS_UNROLL
  for (int i = 0; i < normal::kLateKeys; ++i) keys.word[i] = normal::late_key(key, i);
  constexpr int kBlocks = kGroup / normal::kTile;
  for (int u = team.thread; u < kBlocks * d; u += team.threads) {
    const int block = u % kBlocks, j = u / kBlocks;
    if (block * normal::kTile >= count) continue;
    double of_samples[normal::kTile];
    noise<T>(key, keys, generation, j, first / normal::kTile + block, of_samples);
    Quad& to = *reinterpret_cast<Quad*>(z + j * kGroup + block * normal::kTile);
    CEM_TETRIS_UNROLL
    for (int s = 0; s < normal::kTile; ++s) to.value[s] = of_samples[s];
  }
  team.sync();
  for (int u = team.thread; u < kGroup / kSide * p; u += team.threads) {  // four numbers of a sample
    const int row = u % kGroup, left = u / kGroup * kSide, end = left + kSide < d ? left + kSide : d;
    if (row >= count) continue;
    Quad sum{};
    CEM_TETRIS_FOUR
    for (int j = 0; j < end; ++j) {
      const Quad column = quad_at(lower + j * q + left);
      CEM_TETRIS_UNROLL
      for (int c = 0; c < kSide; ++c) sum.value[c] += column.value[c] * z[j * kGroup + row];
    }
    Four<T> four;
    CEM_TETRIS_UNROLL
    for (int c = 0; c < kSide; ++c) {
      const int i = left + c < d ? left + c : d - 1;
      T x = static_cast<T>(static_cast<double>(mean[i]) + sum.value[c]);
      if (call.low != nullptr && x < low[i]) x = low[i];  // NaN stays
      if (call.high != nullptr && x > high[i]) x = high[i];
      four.value[c] = x;
    }
    T* const to = out + row * d + left;
    if (d % kSide == 0 && reinterpret_cast<uintptr_t>(call.out) % sizeof(Four<T>) == 0) {
      *reinterpret_cast<Four<T>*>(to) = four;
    } else {
      for (int c = 0; c < end - left; ++c) to[c] = four.value[c];
    }
  }
}

}  // namespace cem_tetris::cma
