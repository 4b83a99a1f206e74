// A generation's update of one problem: the formulas of op.py, for host and device. IEEE operations alone,
// each number in an order that depends on the sizes alone: the same bits anywhere.
//
// A team is one thread of a CPU, or a block of CUDA: see One and Block. The covariance is a weighted sum of
// products of rows with themselves: of candidates about the old mean, of L's columns, and of the path. The
// candidate of rank r belongs to slice r mod `slices`, whose sums, tiles of 4 x 4 numbers, are added in order.
// It is then factorised as L D L^T, column by column: that has one division a step, and no square root, in
// its chain of dependent operations.
#pragma once

#include "cem_update/update.h"

// For functions of a team, which on CUDA meet at barriers.
#if defined(__CUDACC__)
#define CEM_TETRIS_TEAM_FUNCTION __device__ __forceinline__
#define CEM_TETRIS_UNROLL _Pragma("unroll")
#define CEM_TETRIS_FOUR _Pragma("unroll 4")
#else
#define CEM_TETRIS_TEAM_FUNCTION inline
#define CEM_TETRIS_UNROLL _Pragma("GCC unroll 16")
#define CEM_TETRIS_FOUR
#endif

namespace cem_tetris::cma {

using update::Job;

constexpr int kMostDimensions = 64, kMostCandidates = 2048, kSide = 4, kCells = kSide * kSide;
constexpr int kMostSlices = 8;
constexpr int kTileStride = kCells + 1;  // sums of neighbouring tiles are in different banks

template <typename T> struct alignas(kSide * sizeof(T) < 16 ? kSide * sizeof(T) : 16) Four {
  T value[kSide];
};
using Quad = Four<double>;

// The sizes of a problem's memory. `padded` is d or a little more, a multiple of 4. From one row to the next
// are two numbers more: then the rows of eight threads are in different banks.
struct Plan {
  int dimensions, padded, stride, tiles, slices, columns;
  int chunk;  // candidates at once, a multiple of kMostSlices

  Plan(int64_t d, int64_t population, int64_t most = 128)
      : dimensions(static_cast<int>(d)),
        padded((dimensions + kSide - 1) / kSide * kSide),
        stride(padded + 2),
        columns(padded + 4) {
    const int64_t side = padded / kSide, wanted = population < most ? population : most;
    tiles = static_cast<int>(side * (side + 1) / 2);
    for (slices = kMostSlices; slices > 1 && (slices * tiles > 240 || slices * 8 > population + d);)
      slices /= 2;
    chunk = static_cast<int>((wanted + kMostSlices - 1) / kMostSlices * kMostSlices);
  }
  int64_t doubles() const {
    return int64_t{stride} * (padded + chunk) + (slices + 6) * columns + 2 * chunk +
           (slices + 1) * tiles * kTileStride;
  }
};

// What the learning rates come to.
struct Learning {
  double p_decay, p_gain, q_decay, q_gain, damping, inverse_chi, c_1, c_mu, stalled, longest;
};

// The tensors of a call beside those of cem_update.
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
  const double sum =
      polynomial(r, 1.0 / 87178291200, 1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,
          1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0);
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

// A number as mantissa / scale, 1 <= mantissa < 2. In place of a division, which takes longer than all else of
// a step, the elimination of a column multiplies the rest of the matrix by the pivot's mantissa.
struct Pivot {
  double mantissa, scale;
  CEM_TETRIS_FUNCTION explicit Pivot(double x) {
    constexpr uint64_t kExponent = 0x7ff;
    const uint64_t bits = bit_cast<uint64_t>(x);
    mantissa = bit_cast<double>((bits & ~(kExponent << 52)) | uint64_t{1023} << 52);
    scale = bit_cast<double>((2046 - (bits >> 52 & kExponent)) << 52);
  }
};

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

// The update. order, value: all candidates and their fitness, best first; as many as `usable` did not fail.
template <typename T, typename Team> CEM_TETRIS_TEAM_FUNCTION void adapt(const Team& team, const Call& call,
    int64_t problem, const uint16_t* order, const double* value, int usable, double* memory) {
  const update::Settings& settings = call.job.settings;
  const Learning& learning = call.learning;
  const Plan& plan = call.plan;
  const int d = plan.dimensions, p = plan.padded, q = plan.stride, slices = plan.slices, tiles = plan.tiles,
            columns = plan.columns, thread = team.thread, threads = team.threads,
            elites = static_cast<int>(settings.elites), best = usable < elites ? usable : elites;
  double *const lower = memory, *const rows = lower + p * q, *const step = rows + plan.chunk * q,
                *const white = step + columns, *const path = white + columns,
                *const long_path = path + columns, *const variance = long_path + columns,
                *const reciprocal = variance + columns, *const moments = reciprocal + columns,
                *const weight = moments + slices * columns, *const share = weight + plan.chunk,
                *const sums = share + plan.chunk;
  double &warm = white[p], &ratio = white[p + 1], &kept = white[p + 2];
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
  const int64_t generation = *call.job.generation;

  team.template table<4>(
      p, p, [&](int i, int k) { return k <= i && i < d ? factor[i * d + k] : T{0}; },
      [&](int i, int k, T x) { lower[k * q + i] = static_cast<double>(x); });
  for (int i = threads - 1 - thread; i < p; i += threads) {
    const double width = i < d ? static_cast<double>(factor[i * d + i]) : 0.0;
    path[i] = i < d ? static_cast<double>(paths[i]) : 0.0;
    long_path[i] = i < d ? static_cast<double>(paths[d + i]) : 0.0;
    reciprocal[i] = 1.0 / (width == 0.0 ? 1.0 : width);  // a dimension of no width
  }
  if (thread == 0) warm = 1.0 - power(learning.p_decay, 2 * (generation + 1));
  for (int first = 0; first < usable; first += plan.chunk) {
    const int count = usable - first < plan.chunk ? usable - first : plan.chunk;
    const bool last = first + count == usable;
    if (first > 0) team.sync();
    team.template table<8>(
        count, p, [&](int r, int k) { return k < d ? candidates[order[first + r] * d + k] : T{0}; },
        [&](int r, int k, T x) {
          rows[r * q + k] = k < d ? static_cast<double>(x) - static_cast<double>(old[k]) : 0.0;
        });
    for (int r = thread; r < count; r += threads) {
      weight[r] = call.job.weights[first + r];
      rows[r * q + p] = 1.0;
      rows[r * q + p + 1] = value[first + r];
    }
    team.sync();
    // Of the elites: sums of weighted rows, of weights, and of the fitness; behind them that of all weights.
    for (int slice = team.group; slice < slices; slice += team.groups) {
      for (int k = team.lane; k < p + 3; k += team.lanes) {
        const bool of_all = k == p + 2;
        const int end = of_all || best - first > count ? count : best - first, stride = of_all ? 1 : q;
        const double* const from = of_all ? weight : rows + k;
        double sum = first > 0 ? moments[slice * columns + k] : 0.0;
        CEM_TETRIS_FOUR
        for (int r = slice; r < end; r += slices) sum += (k > p ? 1.0 : weight[r]) * from[r * stride];
        moments[slice * columns + k] = sum;
      }
    }
    if (last) {
      team.sync();
      for (int i = thread; i < p + 3; i += threads) {
        double sum = 0.0, total = 0.0;
        for (int s = 0; s < slices; ++s) sum += moments[s * columns + i], total += moments[s * columns + p];
        const double moved = sum * (1.0 / total);
        const bool moves = i < d && update::is_finite(static_cast<double>(old[i < d ? i : 0]) + moved);
        step[i] = i > p ? sum : moves ? settings.smoothing * moved : 0.0;
      }
      team.sync();
    }
    // The step in units of L, and the lengths of the worst candidates.
    for (int u = last ? thread : thread + 1; u <= count; u += threads) {
      const int r = count - u;
      double w = u > 0 ? weight[r] : -1.0, found[kMostDimensions];
      if (w < 0.0) {
        const double length = whiten(plan, lower, reciprocal, u > 0 ? rows + r * q : step, found);
        w = w * d / (length < 0x1p-1022 ? 0x1p-1022 : length);
      }
      if (u > 0) share[r] = learning.c_mu * w;
      for (int i = 0; u == 0 && i < d; ++i) white[i] = found[i];
    }
    team.sync();
    // The sums of the candidates' products; the last slice has those of L's columns, which begin at the
    // diagonal.
    for (int u = thread; u < (slices + (first == 0)) * tiles; u += threads) {
      const int slice = u / tiles;
      const Place place(u - slice * tiles);
      const bool of_factor = slice == slices;
      const double* const from = of_factor ? lower : rows;
      const int end = !of_factor ? count : place.across + kSide < d ? place.across + kSide : d;
      double* const to = sums + u * kTileStride;
      double sum[kCells];
      CEM_TETRIS_UNROLL
      for (int c = 0; c < kCells; ++c) sum[c] = first > 0 ? to[c] : 0.0;
      for (int r = of_factor ? 0 : slice; r < end; r += of_factor ? 1 : slices) {
        const double w = of_factor ? 1.0 : share[r];
        const Quad a = quad_at(from + r * q + place.down), b = quad_at(from + r * q + place.across);
        CEM_TETRIS_UNROLL
        for (int c = 0; c < kCells; ++c) sum[c] += w * a.value[c / kSide] * b.value[c % kSide];
      }
      CEM_TETRIS_UNROLL
      for (int c = 0; c < kCells; ++c) to[c] = sum[c];
    }
  }
  team.sync();

  // The paths, by one warp.
  if (team.group == 0 && usable > 0) {
    for (int i = team.lane; i < d; i += team.lanes) {
      path[i] = learning.p_decay * path[i] + learning.p_gain * white[i];
    }
    team.sync_lanes();
    double length = 0.0;
    CEM_TETRIS_FOUR
    for (int i = 0; i < d; ++i) length += path[i] * path[i];
    const bool moves = length < learning.longest * warm;
    for (int i = team.lane; i < d; i += team.lanes) {
      long_path[i] = learning.q_decay * long_path[i] + (moves ? learning.q_gain * step[i] : 0.0);
    }
    if (team.lane == 0) {
      const double excess = learning.damping * (sqrt(length) * learning.inverse_chi - 1.0);
      ratio = exponential(excess > 1.0 ? 1.0 : excess);
      kept = 1.0 - learning.c_1 - learning.c_mu * step[p + 2] + (moves ? 0.0 : learning.stalled);
    }
  }
  // Meanwhile the others write the mean, the best candidate, the elites and the record.
  const double top = usable > 0 ? value[0] : 0.0;
  const bool better = usable > 0 && update::is_better(top + 0.0,
                                        call.job.record[problem * update::kFigures + update::kBestFitness],
                                        settings.maximize);
  const double newest = update::newest_share(settings, generation);
  for (int i = threads - 1 - thread; i < d; i += threads) {
    const double before = static_cast<double>(old[i]), averaged = static_cast<double>(old[2 * d + i]);
    const double mean = before + step[i];
    const bool moves = usable > 0 && update::is_finite(mean);
    next[update::kMean * d + i] = moves ? update::rounded<T>(mean) : old[i];
    next[update::kAveragedMean * d + i] =
        !moves ? old[2 * d + i]
               : update::rounded<T>(newest == 1.0 ? mean : averaged + (mean - averaged) * newest);
    next[update::kBest * d + i] = better ? candidates[order[0] * d + i] : old[update::kBest * d + i];
  }
  for (int k = threads - 1 - thread; k < elites; k += threads)
    call.job.elites[problem * elites + k] = order[k];
  if (thread == threads - 1) {
    const double threshold = usable > 0 ? value[best - 1] : 0.0;
    update::write_record(call.job, problem, best, top, step[p + 1], threshold, generation);
  }
  team.sync();

  // The covariance, in L's place.
  const double scale = ratio * ratio, extra = update::extra_variance_of(call.job, generation);
  for (int e = thread; usable > 0 && e < tiles * kCells; e += threads) {
    const int tile = e / kCells, cell = e % kCells;
    const Place place(tile);
    const int i = place.down + cell / kSide, k = place.across + cell % kSide;
    if (i >= d || k > i) continue;
    double entry = 0.0;
    for (int s = 0; s < slices; ++s) entry += sums[(s * tiles + tile) * kTileStride + cell];
    entry += kept * sums[(slices * tiles + tile) * kTileStride + cell];
    entry = (entry + learning.c_1 * long_path[i] * long_path[k]) * scale;
    if (i == k) {
      const double least = floors != nullptr ? static_cast<double>(floors[i]) : 0.0;
      const double missing = floors != nullptr ? least * least - entry : extra;
      entry += missing > extra ? missing : extra;
      variance[i] = entry;
      entry = inflated(entry);
    }
    lower[k * q + i] = entry;
  }
  for (int i = threads - 1 - thread; i < 2 * d; i += threads) {
    const double x = i < d ? path[i] : ratio * long_path[i - d];
    new_paths[i] = usable > 0 && update::is_finite(x) ? update::rounded<T>(x) : paths[i];
  }
  team.sync();
  if (usable > 0) team.eliminate(plan, lower, white);
  bool positive = usable > 0;
  for (int i = thread; i < d && usable > 0; i += threads) {
    const double pivot = lower[i * q + i];
    positive = positive && pivot > 0.0 && update::is_finite(pivot);
    reciprocal[i] = 1.0 / sqrt(pivot * white[i]);
  }
  for (int i = threads - 1 - thread; i < d && usable > 0; i += threads) {
    step[i] = variance[i] > 0.0 ? sqrt(inflated(variance[i])) : 0.0;
  }
  const bool good = team.all(positive);
  for (int i = thread; i < d; i += threads) {
    next[update::kStd * d + i] = good ? update::rounded<T>(step[i]) : old[update::kStd * d + i];
  }
  team.template table<4>(
      d, d, [&](int i, int k) { return good ? T{0} : factor[i * d + k]; },
      [&](int i, int k, T x) {
        const double entry = good && k <= i && variance[i] > 0.0 ? lower[k * q + i] * reciprocal[k] : 0.0;
        new_factor[i * d + k] = good ? update::rounded<T>(entry) : x;
      });
}

}  // namespace cem_tetris::cma
