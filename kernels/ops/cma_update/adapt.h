// The next covariance, evolution paths and standard deviations of one problem: the formulas of op.py, for
// host and device. IEEE operations alone, each number in an order that depends on the sizes alone: the same
// bits anywhere.
//
// A team is one thread of a CPU, or a block of CUDA: see One and Block. wait() is for the update of the mean;
// what does not depend on that comes before. The covariance is a weighted sum of products of rows with
// themselves: of candidates about the old mean, of L's columns, and of the path. Position r of the rows
// belongs to slice r mod `slices`, whose sums, tiles of 4 x 4 numbers, are added in order. It is then
// factorised as L D L^T, column by column: that has one division a step, and no square root, in its chain of
// dependent operations.
#pragma once

#include "cem_update/update.h"

// For functions of a team, which on CUDA meet at barriers.
#if defined(__CUDACC__)
#define CEM_TETRIS_TEAM_FUNCTION __device__ __forceinline__
#define CEM_TETRIS_UNROLL _Pragma("unroll")
#define CEM_TETRIS_FOUR _Pragma("unroll 4")    // not sixteen, eight, four and one
#define CEM_TETRIS_ROLLED _Pragma("unroll 1")  // to fetch an instruction takes longer than to execute it
#else
#define CEM_TETRIS_TEAM_FUNCTION inline
#define CEM_TETRIS_UNROLL _Pragma("GCC unroll 16")
#define CEM_TETRIS_FOUR
#define CEM_TETRIS_ROLLED
#endif

namespace cem_tetris::cma {

using update::Job;

constexpr int kMostDimensions = 64, kMostCandidates = 2048, kSide = 4, kCells = kSide * kSide;

template <typename T> struct alignas(kSide * sizeof(T) < 16 ? kSide * sizeof(T) : 16) Four {
  T value[kSide];
};
using Quad = Four<double>;

// The sizes of a problem's memory. `padded` is d or a little more, a multiple of 4. From one row to the next
// are two numbers more: then the rows of eight threads are in different banks.
struct Plan {
  int dimensions, padded, stride, tiles, slices;
  int chunk;  // candidates at once, a multiple of 8

  Plan(int64_t d, int64_t population, int64_t most = 128)
      : dimensions(static_cast<int>(d)),
        padded((dimensions + kSide - 1) / kSide * kSide),
        stride(padded + 2) {
    const int64_t side = padded / kSide, wanted = population < most ? population : most;
    tiles = static_cast<int>(side * (side + 1) / 2);
    const int most_sums = padded > 40 ? 210 : 128;  // a thread's each; 64 KB have room for all
    for (slices = 8; slices > 1 && (slices * tiles > most_sums || slices * 8 > population + d);) slices /= 2;
    chunk = static_cast<int>((wanted + 7) / 8 * 8);
  }
  int64_t doubles() const {
    return int64_t{stride} * (padded + chunk) + 7 * padded + 2 * chunk + int64_t{slices} * tiles * kCells + 4;
  }
};

// What the learning rates come to.
struct Learning {
  double p_decay, p_gain, q_decay, q_gain, damping, chi, c_1, c_mu, stalled, longest;
};

// The tensors of a call beside those of the update of the mean.
struct Call {
  Job job;
  Learning learning;
  Plan plan;
  const void *factor, *paths;
  void *new_factor, *new_paths;
};

// e^x: x = k log(2) + r, and a Taylor series of e^r.
CEM_TETRIS_FUNCTION double exponential(double x) {
  if (!(x > -700.0)) return x < 0.0 ? 0.0 : x;  // NaN stays
  const double k = floor(x * 0x1.71547652b82fep+0 + 0.5);
  const double r = x - k * 0x1.62e42fee00000p-1 - k * 0x1.a39ef35793c76p-33;
  double sum = 1.0;
  CEM_TETRIS_UNROLL
  for (int n = 14; n > 0; --n) sum = 1.0 + sum * (r * (1.0 / n));
  return sum * bit_cast<double>(static_cast<uint64_t>(static_cast<int64_t>(k) + 1023) << 52);
}

CEM_TETRIS_FUNCTION double power(double base, int64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if (exponent & 1) result *= base;
  }
  return result;
}

CEM_TETRIS_FUNCTION Quad quad_at(const double* memory) { return *reinterpret_cast<const Quad*>(memory); }

// Solves L white = y; returns |white|^2. `lower` has L's columns one after the other.
CEM_TETRIS_FUNCTION double whiten(
    const Plan& plan, const double* lower, const double* reciprocal, const double* y, double* white) {
  double length = 0.0;
  for (int left = 0; left < plan.padded; left += kSide) {
    Quad sum = quad_at(y + left);
    CEM_TETRIS_FOUR
    for (int j = 0; j < left; ++j) {
      const Quad column = quad_at(lower + j * plan.stride + left);
      for (int c = 0; c < kSide; ++c) sum.value[c] -= white[j] * column.value[c];
    }
    CEM_TETRIS_UNROLL
    for (int c = 0; c < kSide; ++c) {
      const double x = sum.value[c] * reciprocal[left + c];
      white[left + c] = x;
      length += x * x;
      CEM_TETRIS_UNROLL
      for (int e = c + 1; e < kSide; ++e) sum.value[e] -= x * lower[(left + c) * plan.stride + left + e];
    }
  }
  return length;
}

// Of too few elites a covariance is singular.
CEM_TETRIS_FUNCTION double inflated(double variance) { return variance + (1e-12 * variance + 0x1p-1022); }

// The place of a tile on or below the diagonal, row by row.
struct Place {
  int across = 0, down = 0;
  CEM_TETRIS_FUNCTION explicit Place(int tile) {
    for (; tile > down; tile -= ++down) {
    }
    across = tile * kSide;
    down *= kSide;
  }
};

// The update. order: the candidates that did not fail, best first, as many as `usable`.
template <typename T, typename Team> CEM_TETRIS_TEAM_FUNCTION void adapt(
    Team&& team, const Call& call, int64_t problem, const uint16_t* order, int usable, double* memory) {
  const update::Settings& settings = call.job.settings;
  const Learning& learning = call.learning;
  const Plan& plan = call.plan;
  const int d = plan.dimensions, p = plan.padded, q = plan.stride, chunk = plan.chunk, slices = plan.slices,
            tiles = plan.tiles, thread = team.thread, threads = team.threads;
  const int lane = thread % Team::lanes;
  const bool leads = thread >= threads - Team::lanes, last = thread == threads - 1;
  double *const lower = memory, *const rows = lower + p * q, *const sums = rows + chunk * q,
                *const step = sums + slices * tiles * kCells, *const reciprocal = step + p,
                *const white_step = reciprocal + p, *const path = white_step + p, *const long_path = path + p,
                *const variance = long_path + p, *const least = variance + p, *const weight = least + p,
                *const share = weight + chunk;
  double &ratio = share[chunk], &kept = share[chunk + 1];
  const auto of_problem = [&](const void* data, int64_t size) {
    return static_cast<const T*>(data) + problem * size;
  };
  const T *const old = of_problem(call.job.distribution, update::kRows * d),
                 *const factor = of_problem(call.factor, d * d), *const paths = of_problem(call.paths, 2 * d),
                 *const candidates = of_problem(call.job.candidates, settings.population * d),
                 *const floors = call.job.floors != nullptr
                                     ? of_problem(call.job.floors, settings.floor_stride)
                                     : nullptr;
  T *const next = static_cast<T*>(call.job.new_distribution) + problem * update::kRows * d,
           *const new_factor = static_cast<T*>(call.new_factor) + problem * d * d,
           *const new_paths = static_cast<T*>(call.new_paths) + problem * 2 * d;

  team.template table<4>(
      p, p, [&](int i, int k) { return k <= i && i < d ? factor[i * d + k] : T{0}; },
      [&](int i, int k, T x) { lower[k * q + i] = static_cast<double>(x); });
  CEM_TETRIS_ROLLED
  for (int i = thread; i < p; i += threads) {
    const double width = i < d ? static_cast<double>(factor[i * d + i]) : 0.0;
    reciprocal[i] = 1.0 / (width == 0.0 ? 1.0 : width);  // a dimension of no width
    path[i] = i < d ? static_cast<double>(paths[i]) : 0.0;
    long_path[i] = i < d ? static_cast<double>(paths[d + i]) : 0.0;
    least[i] = i < d && floors != nullptr ? static_cast<double>(floors[i]) : 0.0;
  }
  const double extra = update::extra_variance_of(call.job, *call.job.generation),
               warm = 1.0 - power(learning.p_decay, 2 * (*call.job.generation + 1));

  // Adds the products of the first rows, each times its weight, to the tiles of their covariance.
  const auto add = [&](const double* from, const auto& count, const auto& weight_of) {
    team.tiles(plan, sums, [&](int slice, const Place& place, double* sum) {
      const int end = count(place);
      for (int r = slice; r < end; r += slices) {
        const double w = weight_of(r);
        const Quad a = quad_at(from + r * q + place.down), b = quad_at(from + r * q + place.across);
        CEM_TETRIS_UNROLL
        for (int c = 0; c < kCells; ++c) sum[c] += w * a.value[c / kSide] * b.value[c % kSide];
      }
    });
  };
  for (int e = 0; Team::lanes == 1 && e < slices * tiles * kCells; ++e) sums[e] = 0.0;
  double total = 0.0;
  for (int first = 0; first < usable; first += chunk) {
    const int count = usable - first < chunk ? usable - first : chunk;
    if (first > 0) team.sync();
    team.template table<8>(
        count, p, [&](int r, int k) { return k < d ? candidates[order[first + r] * d + k] : T{0}; },
        [&](int r, int k, T x) {
          rows[r * q + k] = k < d ? static_cast<double>(x) - static_cast<double>(old[k]) : 0.0;
        });
    for (int r = thread; r < count; r += threads) weight[r] = call.job.weights[first + r];
    team.sync();
    if (last) {
      CEM_TETRIS_FOUR
      for (int r = 0; r < count; ++r) total += weight[r];
    }
    for (int u = thread; u < count; u += threads) {  // first the worst ones: they need lengths
      const int r = count - 1 - u;
      double w = weight[r];
      if (w < 0.0) {
        double white[kMostDimensions];
        const double length = whiten(plan, lower, reciprocal, rows + r * q, white);
        w = w * d / (length < 0x1p-1022 ? 0x1p-1022 : length);
      }
      share[r] = learning.c_mu * w;
    }
    team.sync();
    add(rows, [&](const Place&) { return count; }, [&](int r) { return share[r]; });
  }
  team.wait();
  if (usable > 0) {
    double length = 0.0;
    if (leads) {
      CEM_TETRIS_ROLLED
      for (int i = lane; i < p; i += Team::lanes) {
        step[i] = i < d ? static_cast<double>(next[i]) - static_cast<double>(old[i]) : 0.0;
      }
      team.solve(plan, lower, reciprocal, step, white_step);
      CEM_TETRIS_ROLLED
      for (int i = lane; i < d; i += Team::lanes) {
        path[i] = learning.p_decay * path[i] + learning.p_gain * white_step[i];
      }
      team.sync_lanes();
      CEM_TETRIS_FOUR
      for (int i = 0; i < d; ++i) length += path[i] * path[i];
      const bool moves = length < learning.longest * warm;
      CEM_TETRIS_ROLLED
      for (int i = lane; i < p; i += Team::lanes) {
        long_path[i] = learning.q_decay * long_path[i] + (moves ? learning.q_gain * step[i] : 0.0);
      }
      if (last) kept = 1.0 - learning.c_1 - learning.c_mu * total + (moves ? 0.0 : learning.stalled);
    }
    team.sync();
    if (last) {
      const double excess = learning.damping * (sqrt(length) / learning.chi - 1.0);
      ratio = exponential(excess > 1.0 ? 1.0 : excess);
    }
    // L's columns begin at the diagonal.
    add(
        lower, [&](const Place& place) { return place.across + kSide < d ? place.across + kSide : d; },
        [&](int) { return kept; });
    add(long_path, [](const Place&) { return 1; }, [&](int) { return learning.c_1; });
    team.publish(plan, sums);
  }
  team.sync();

  // The covariance, in L's place.
  const double scale = ratio * ratio;
  CEM_TETRIS_ROLLED
  for (int e = thread; e < tiles * kCells; e += threads) {
    const int cell = e / tiles, tile = e - cell * tiles;
    const Place place(tile);
    const int i = place.down + cell / kSide, k = place.across + cell % kSide;
    if (i >= d || k > i) continue;
    double value = 0.0;
    CEM_TETRIS_FOUR
    for (int s = 0; s < slices; ++s) value += sums[team.place(plan, s, tile, cell)];
    value *= scale;
    if (i == k) {
      const double missing = floors != nullptr ? least[i] * least[i] - value : extra;
      value += missing > extra ? missing : extra;
      variance[i] = value;
      value = inflated(value);
    }
    lower[k * q + i] = value;
  }
  CEM_TETRIS_ROLLED
  for (int i = thread; i < d; i += threads) {
    const auto keep = [&](int at, double x) {
      new_paths[at] = usable > 0 && update::is_finite(x) ? update::rounded<T>(x) : paths[at];
    };
    keep(i, path[i]);
    keep(d + i, ratio * long_path[i]);
  }
  team.sync();
  team.eliminate(plan, lower);
  bool positive = usable > 0;
  CEM_TETRIS_ROLLED
  for (int i = thread; i < d; i += threads) {
    const double pivot = lower[i * q + i];
    positive = positive && pivot > 0.0 && update::is_finite(pivot);
    reciprocal[i] = 1.0 / sqrt(pivot);
    step[i] = variance[i] > 0.0 ? sqrt(inflated(variance[i])) : 0.0;
  }
  const bool good = team.all(positive);
  CEM_TETRIS_ROLLED
  for (int i = thread; i < d; i += threads) {
    next[update::kStd * d + i] = good ? update::rounded<T>(step[i]) : old[update::kStd * d + i];
  }
  team.template table<4>(
      d, d,
      [&](int i, int k) {
        const double value = k <= i && variance[i] > 0.0 ? lower[k * q + i] * reciprocal[k] : 0.0;
        return good ? update::rounded<T>(value) : factor[i * d + k];
      },
      [&](int i, int k, T x) { new_factor[i * d + k] = x; });
}

}  // namespace cem_tetris::cma
