// The next covariance, evolution paths and standard deviations of one problem: the formulas of op.py, for
// host and device. IEEE operations alone, each number in an order that depends on the sizes alone: the same
// bits anywhere.
//
// A team has `thread`, `threads`, sync(), and wait() for the update of the mean: one thread of a CPU, or a
// block of CUDA. The covariance is a weighted sum of products of rows with themselves: of candidates about
// the old mean, of L's columns, and of the path. Position r of the rows belongs to slice r mod `slices`,
// whose sums, tiles of 4 x 4 numbers, are added in order. It is then factorised as L D L^T, column by column:
// that has one division a step, and no square root, in its chain of dependent operations.
#pragma once

#include "cem_update/update.h"

// For functions of a team, which on CUDA meet at barriers.
#if defined(__CUDACC__)
#define CEM_TETRIS_TEAM_FUNCTION __device__ __forceinline__
#define CEM_TETRIS_UNROLL _Pragma("unroll")
#define CEM_TETRIS_ROLLED _Pragma("unroll 1")  // to fetch an instruction takes longer than to execute it
#else
#define CEM_TETRIS_TEAM_FUNCTION inline
#define CEM_TETRIS_UNROLL _Pragma("GCC unroll 16")
#define CEM_TETRIS_ROLLED
#endif

namespace cem_tetris::cma {

using update::Job;

constexpr int kMostDimensions = 64, kMostCandidates = 2048, kSide = 4, kCells = kSide * kSide;

struct alignas(16) Quad {
  double value[kSide];
};

// The sizes of a problem's memory. `padded` is d or a little more, a multiple of 4.
struct Plan {
  int dimensions, padded, tiles, slices;
  int chunk;  // candidates at once, a multiple of 8

  Plan(int64_t d, int64_t population, int64_t most = 128)
      : dimensions(static_cast<int>(d)), padded((dimensions + kSide - 1) / kSide * kSide) {
    const int64_t side = padded / kSide, wanted = population < most ? population : most;
    tiles = static_cast<int>(side * (side + 1) / 2);
    for (slices = 8; slices > 1 && (slices * tiles > 128 || slices * 16 > population);) slices /= 2;
    chunk = static_cast<int>((wanted + 7) / 8 * 8);
  }
  int64_t doubles() const {
    return int64_t{padded} * (padded + chunk + 7) + chunk + int64_t{slices} * tiles * kCells + 4;
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
    int padded, const double* lower, const double* reciprocal, const double* y, double* white) {
  double length = 0.0;
  for (int left = 0; left < padded; left += kSide) {
    Quad sum = quad_at(y + left);
    for (int j = 0; j < left; ++j) {
      const Quad column = quad_at(lower + j * padded + left);
      for (int c = 0; c < kSide; ++c) sum.value[c] -= white[j] * column.value[c];
    }
    CEM_TETRIS_UNROLL
    for (int c = 0; c < kSide; ++c) {
      const double x = sum.value[c] * reciprocal[left + c];
      white[left + c] = x;
      length += x * x;
      CEM_TETRIS_UNROLL
      for (int e = c + 1; e < kSide; ++e) sum.value[e] -= x * lower[(left + c) * padded + left + e];
    }
  }
  return length;
}

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
    const Team& team, const Call& call, int64_t problem, const uint16_t* order, int usable, double* memory) {
  const update::Settings& settings = call.job.settings;
  const Learning& learning = call.learning;
  const int d = call.plan.dimensions, p = call.plan.padded, chunk = call.plan.chunk,
            slices = call.plan.slices, tiles = call.plan.tiles, thread = team.thread, threads = team.threads;
  const int elites = static_cast<int>(settings.elites);
  const bool last =
      thread == threads - 1;  // has less to do than the others, and what is one number a problem
  double *const lower = memory, *const rows = lower + p * p, *const sums = rows + chunk * p,
                *const step = sums + slices * tiles * kCells, *const reciprocal = step + p,
                *const white_step = reciprocal + p, *const path = white_step + p, *const long_path = path + p,
                *const variance = long_path + p, *const deviation = variance + p,
                *const share = deviation + p;
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

  CEM_TETRIS_ROLLED
  for (int e = thread; e < p * p; e += threads) {
    const int k = e / p, i = e - k * p;
    lower[e] = k <= i && i < d ? static_cast<double>(factor[i * d + k]) : 0.0;
  }
  CEM_TETRIS_ROLLED
  for (int i = thread; i < p; i += threads) {
    const double width = i < d ? static_cast<double>(factor[i * d + i]) : 0.0;
    reciprocal[i] = 1.0 / (width == 0.0 ? 1.0 : width);  // a dimension of no width
    path[i] = i < d ? static_cast<double>(paths[i]) : 0.0;
    long_path[i] = i < d ? static_cast<double>(paths[d + i]) : 0.0;
    deviation[i] = i < d && floors != nullptr ? static_cast<double>(floors[i]) : 0.0;
  }
  const double extra = update::extra_variance_of(call.job, *call.job.generation);
  double total = 0.0, warm = 0.0;
  if (last) {
    for (int r = 0; r < usable; ++r) total += call.job.weights[r];
    warm = 1.0 - power(learning.p_decay, 2 * (*call.job.generation + 1));
  }

  // Adds the products of rows, each times its weight, to the tiles of their covariance.
  const auto add = [&](const double* from, int count, bool begin, const auto& weight) {
    for (int u = thread; u < slices * tiles; u += threads) {
      const int slice = u / tiles;
      const Place place(u - slice * tiles);
      double sum[kCells];
      CEM_TETRIS_UNROLL
      for (int c = 0; c < kCells; ++c) sum[c] = begin ? 0.0 : sums[u * kCells + c];
      for (int r = slice; r < count; r += slices) {
        const double w = weight(r);
        const Quad a = quad_at(from + r * p + place.down), b = quad_at(from + r * p + place.across);
        CEM_TETRIS_UNROLL
        for (int c = 0; c < kCells; ++c) sum[c] += w * a.value[c / kSide] * b.value[c % kSide];
      }
      CEM_TETRIS_UNROLL
      for (int c = 0; c < kCells; ++c) sums[u * kCells + c] = sum[c];
    }
  };
  for (int first = 0; first < usable; first += chunk) {
    const int count = usable - first < chunk ? usable - first : chunk, quads = p / kSide;
    for (int u = thread; u < count * quads; u += threads) {
      const int row = u / quads, left = (u - row * quads) * kSide;
      const T* const x = candidates + order[first + row] * d;
      CEM_TETRIS_UNROLL
      for (int i = left; i < left + kSide; ++i) {
        rows[row * p + i] = i < d ? static_cast<double>(x[i]) - static_cast<double>(old[i]) : 0.0;
      }
    }
    for (int r = thread; r < count; r += threads) share[r] = call.job.weights[first + r];
    const int steps = first == 0 ? 1 : 0;
    if (steps > 0) {
      team.wait();
      for (int i = thread; i < p; i += threads) {
        step[i] = i < d ? static_cast<double>(next[i]) - static_cast<double>(old[i]) : 0.0;
      }
    }
    team.sync();

    // Lengths of those with negative weights, and of the step.
    const int positive = elites < first ? 0 : elites - first < count ? elites - first : count;
    for (int u = thread; u < count - positive + steps; u += threads) {
      double white[kMostDimensions];
      const int row = positive + u - steps;
      const double length = whiten(p, lower, reciprocal, u < steps ? step : rows + row * p, white);
      if (u < steps) {
        for (int i = 0; i < p; ++i) white_step[i] = white[i];
      } else if (share[row] < 0.0) {
        share[row] = share[row] * d / (length < 0x1p-1022 ? 0x1p-1022 : length);
      }
    }
    team.sync();
    if (steps > 0 && last) {
      double length = 0.0;
      for (int i = 0; i < d; ++i) {
        path[i] = learning.p_decay * path[i] + learning.p_gain * white_step[i];
        length += path[i] * path[i];
      }
      const bool moves = length / warm < learning.longest;
      for (int i = 0; i < p; ++i) {
        long_path[i] = learning.q_decay * long_path[i] + (moves ? learning.q_gain * step[i] : 0.0);
      }
      const double excess = learning.damping * (sqrt(length) / learning.chi - 1.0);
      ratio = exponential(excess > 1.0 ? 1.0 : excess);
      kept = 1.0 - learning.c_1 - learning.c_mu * total + (moves ? 0.0 : learning.stalled);
    }
    add(rows, count, first == 0, [&](int r) { return learning.c_mu * share[r]; });
    team.sync();
  }
  if (usable == 0) {
    team.wait();
  } else {
    add(lower, d, false, [&](int) { return kept; });
    add(long_path, 1, false, [&](int) { return learning.c_1; });
  }
  team.sync();

  // The covariance, in L's place.
  const double scale = ratio * ratio;
  CEM_TETRIS_ROLLED
  for (int e = thread; e < tiles * kCells; e += threads) {
    const Place place(e / kCells);
    const int i = place.down + e % kCells / kSide, k = place.across + e % kSide;
    if (i >= d || k > i) continue;
    double value = sums[e];
    for (int s = 1; s < slices; ++s) value += sums[s * tiles * kCells + e];
    value *= scale;
    if (i == k) {
      const double missing = floors != nullptr ? deviation[i] * deviation[i] - value : extra;
      value += missing > extra ? missing : extra;
      variance[i] = value;
      value += 1e-12 * value + 0x1p-1022;  // of too few elites it is singular
      deviation[i] = variance[i] > 0.0 ? sqrt(value) : 0.0;
    }
    lower[k * p + i] = value;
  }
  bool good = usable > 0;
  for (int j = 0; j < d && good; ++j) {  // what is left of the entries when column j is explained
    team.sync();
    const double* const column = lower + j * p;
    const double pivot = column[j], inverse = 1.0 / pivot;
    good = pivot > 0.0 && update::is_finite(pivot);
    team.after_column(j, d, [&](int k, int i) { lower[k * p + i] -= column[i] * (column[k] * inverse); });
  }
  CEM_TETRIS_ROLLED
  for (int j = thread; j < d; j += threads) reciprocal[j] = 1.0 / sqrt(lower[j * p + j]);
  team.sync();
  CEM_TETRIS_ROLLED
  for (int e = thread; e < d * d; e += threads) {
    const int i = e / d, k = e - i * d;
    const double value = k <= i && variance[i] > 0.0 ? lower[k * p + i] * reciprocal[k] : 0.0;
    new_factor[e] = good ? update::rounded<T>(value) : factor[e];
  }
  CEM_TETRIS_ROLLED
  for (int i = thread; i < d; i += threads) {
    next[update::kStd * d + i] = good ? update::rounded<T>(deviation[i]) : old[update::kStd * d + i];
    const auto keep = [&](int at, double x) {
      new_paths[at] = usable > 0 && update::is_finite(x) ? update::rounded<T>(x) : paths[at];
    };
    keep(i, path[i]);
    keep(d + i, ratio * long_path[i]);
  }
}

}  // namespace cem_tetris::cma
