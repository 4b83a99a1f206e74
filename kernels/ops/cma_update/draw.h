// x = mean + L z for a group of samples of one problem, for host and device; z is the sampler's
// noise.
#pragma once

#include "adapt.h"
#include "normal/call.h"

namespace cem_tetris::cma {

constexpr int kGroup = 32;  // samples of a team, a multiple of those of a tile

struct Draw {
  ScalarType type;                    // of all but seed and generation
  int64_t problems, samples, groups;  // groups of a problem
  int dimensions, padded;
  const void *distribution, *factor, *low, *high;  // bounds may be null
  int64_t low_stride, high_stride;                 // from one problem to the next
  const int64_t *seed, *generation;
  void* out;

  int64_t doubles() const { return int64_t{padded} * (padded + 2 + kGroup); }
};

template <typename T, typename Team> CEM_TETRIS_TEAM_FUNCTION void draw(
    const Team& team, const Draw& call, int64_t item, double* memory) {
  const uint32_t groups = static_cast<uint32_t>(call.groups);
  const uint32_t at = static_cast<uint32_t>(item);
  const int64_t problem = at / groups, first = int64_t{at % groups} * kGroup;
  const int d = call.dimensions, p = call.padded, q = p + 2;
  const int count =
      static_cast<int>(call.samples - first < kGroup ? call.samples - first : kGroup);
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
  const normal::LateKeys keys = normal::late_keys(key);
  constexpr int kBlocks = kGroup / normal::kTile;
  for (int u = team.thread; u < kBlocks * d; u += team.threads) {
    const int block = u % kBlocks, j = u / kBlocks;
    if (block * normal::kTile >= count) continue;
    normal::Polar<T> pair[normal::kTile / 2];
    normal::set_pairs<T>(keys, normal::dimension_part(key, j, generation),
        normal::samples_of<T>(key, generation, 0, first / normal::kTile + block), pair);
    Quad& to = *reinterpret_cast<Quad*>(z + j * kGroup + block * normal::kTile);
    CEM_TETRIS_UNROLL
    for (int s = 0; s < normal::kTile; ++s) {
      to.value[s] = static_cast<double>(
          pair[s / 2].radius * (s % 2 == 0 ? pair[s / 2].cosine : pair[s / 2].sine));
    }
  }
  team.sync();
  for (int u = team.thread; u < kGroup / kSide * p;
      u += team.threads) {  // four numbers of a sample
    const int row = u % kGroup, left = u / kGroup * kSide,
              end = left + kSide < d ? left + kSide : d;
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
