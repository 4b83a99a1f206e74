// The update of CMA-ES for one problem, for host and device: the formulas of op.py, whose
// numbers in N. Hansen, The CMA Evolution Strategy: A Tutorial (arXiv:1604.00772) stand beside
// the code. IEEE operations alone, each number in an order that depends on the sizes alone: the
// same bits anywhere.
//
// A team works on a problem: one thread of a CPU (One in cpu.h), or a block of CUDA (Block in
// launch.cuh). It has `threads` threads, and `groups` groups of `lanes` threads, warps on CUDA.
//
// The covariance is a weighted sum of products of rows with themselves: of candidates about the
// old mean, of L's columns, and of the path. The candidate of rank r belongs to slice r mod
// `slices`; the slices' sums, tiles of 4 x 4 numbers, are added in order. The covariance is
// then factorised as L D L^T, column by column: that has one division a step, and no square
// root, in its chain of dependent operations.
#pragma once

#include "cem_update/update.h"

// Four rounds of a loop whose length is not known.
#if defined(__CUDACC__)
#define CEM_TETRIS_FOUR _Pragma("unroll 4")
#else
#define CEM_TETRIS_FOUR
#endif

namespace cem_tetris::cma {

using update::Job;

constexpr int kMostDimensions = 64;  // the covariance of more does not fit into shared memory
constexpr int kMostCandidates = 2048;
constexpr int kSide = 4;  // of a tile of the covariance
constexpr int kCells = kSide * kSide;
constexpr int kTileStride = kCells + 1;  // sums of neighbouring tiles are in different banks
constexpr int kMostSlices = 8;
constexpr int kSums = 240;  // tiles of all slices that a block's threads add up at once
constexpr double kTiny = 0x1p-1022;  // the least normal number

template <typename T>
struct alignas(kSide * sizeof(T) < 16 ? kSide * sizeof(T) : 16) Four {
  T value[kSide];
};
using Quad = Four<double>;

// What stands behind the dimensions of a row: its weight's factor 1, the fitness, and, in sums
// alone, the weights of all candidates. The column of weight sums is the one at kOne.
enum Behind { kOne, kFitness, kAllWeights, kBehind };

// The sizes of a problem's memory.
struct Plan {
  int dimensions;
  int padded;   // dimensions, rounded up to a multiple of kSide
  int stride;   // from one row to the next: rows of eight threads are in different banks
  int tiles;    // of 4 x 4 numbers, on or below the diagonal
  int slices;   // of candidates
  int columns;  // of a vector: `padded`, and room for Behind
  int chunk;    // candidates at once, a multiple of kMostSlices

  Plan(int64_t d, int64_t population, int64_t most = 128)
      : dimensions(int(d)),
        padded((dimensions + kSide - 1) / kSide * kSide),
        stride(padded + 2),
        columns(padded + 4) {
    int64_t side = padded / kSide;
    tiles = int(side * (side + 1) / 2);
    slices = kMostSlices;
    while (slices > 1 && (slices * tiles > kSums || slices * 8 > population + d)) slices /= 2;
    int64_t wanted = population < most ? population : most;
    chunk = int((wanted + kMostSlices - 1) / kMostSlices * kMostSlices);
  }
  int64_t doubles() const {
    return int64_t{stride} * (padded + chunk) + (slices + 6) * columns + 2 * chunk +
           (slices + 1) * tiles * kTileStride;
  }
};

// The memory of a problem, Plan::doubles() numbers: the arrays lie one after the other, in this
// order.
struct Arrays {
  const Plan& plan;
  double* lower;  // padded x stride: L's columns; then the covariance, and its factor
  // chunk x stride: candidates minus the old mean, and Behind
  double* rows = lower + plan.padded * plan.stride;
  // columns: the mean's step, and Behind; then the standard deviations
  double* step = rows + plan.chunk * plan.stride;
  // columns: L^-1 step, and three numbers; then the products of pivots
  double* white = step + plan.columns;
  double* path = white + plan.columns;           // columns: p
  double* long_path = path + plan.columns;       // columns: q
  double* variance = long_path + plan.columns;   // columns: the diagonal of the covariance
  double* reciprocal = variance + plan.columns;  // columns: 1 / L_ii
  // slices x columns: sums of the elites' weighted rows
  double* moments = reciprocal + plan.columns;
  double* weight = moments + plan.slices * plan.columns;  // chunk: of a candidate
  double* share = weight + plan.chunk;                    // chunk: of the covariance
  // (slices + 1) x tiles x kTileStride: of products; the last slice is L's
  double* sums = share + plan.chunk;
};

// What the learning rates come to.
struct Learning {
  double path_decay, path_gain;  // of p: 1 - c_s and sqrt(c_s (2 - c_s) mu_eff)
  double long_decay, long_gain;  // of q: the same of c_c
  double damping;                // c_s / d_s
  double inverse_chi;            // 1 / E|N(0, I)|
  double c_1, c_mu;
  double stalled;  // what L L^T keeps where q does not move: c_1 c_c (2 - c_c)
  double longest;  // |p|^2, in a search that is warm, up to which q moves
};

// The tensors of a call beside those of cem_update.
struct Call {
  Job job;
  Learning learning;
  Plan plan;
  const void* factor;
  const void* paths;
  void* new_factor;
  void* new_paths;
};

// Returns e^x, with x = k log(2) + r and a Taylor series of e^r.
CEM_TETRIS_FUNCTION double exponential(double x) {
  if (!(x > -700.0)) return x < 0.0 ? 0.0 : x;  // NaN stays
  double k = floor(x * 0x1.71547652b82fep+0 + 0.5);
  double r = x - k * 0x1.62e42fee00000p-1 - k * 0x1.a39ef35793c76p-33;
  double sum = polynomial(r, 1.0 / 87178291200, 1.0 / 6227020800, 1.0 / 479001600,
      1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
      1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0);
  return sum * bit_cast<double>(uint64_t(int64_t(k) + 1023) << 52);
}

// Returns base^exponent by repeated squares.
CEM_TETRIS_FUNCTION double power(double base, int64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if (exponent & 1) result *= base;
  }
  return result;
}

CEM_TETRIS_FUNCTION Quad quad_at(const double* memory) {
  return *reinterpret_cast<const Quad*>(memory);
}

// Solves L white = y, four rows at a time, and returns |white|^2. `lower` has L's columns one
// after the other; reciprocal: 1 / L_ii.
CEM_TETRIS_FUNCTION double whiten(const Plan& plan, const double* lower,
    const double* reciprocal, const double* y, double* white) {
  double length = 0.0;
  for (int left = 0; left < plan.padded; left += kSide) {
    Quad sum = quad_at(y + left);
    CEM_TETRIS_FOUR
    for (int j = 0; j < left; ++j) {
      Quad column = quad_at(lower + j * plan.stride + left);
      for (int c = 0; c < kSide; ++c) sum.value[c] -= white[j] * column.value[c];
    }
    CEM_TETRIS_UNROLL
    for (int c = 0; c < kSide; ++c) {
      double x = sum.value[c] * reciprocal[left + c];
      white[left + c] = x;
      length += x * x;
      CEM_TETRIS_UNROLL
      for (int e = c + 1; e < kSide; ++e)
        sum.value[e] -= x * lower[(left + c) * plan.stride + left + e];
    }
  }
  return length;
}

// Returns a variance a little larger: the covariance of too few elites is singular.
CEM_TETRIS_FUNCTION double inflated(double variance) {
  return variance + (1e-12 * variance + kTiny);
}

// A number as mantissa / scale, 1 <= mantissa < 2, scale a power of two. A division would take
// longer than the rest of a step; instead, the elimination of a column multiplies the rest of
// the matrix by the pivot's mantissa.
struct Pivot {
  double mantissa, scale;
  CEM_TETRIS_FUNCTION explicit Pivot(double x) {
    constexpr uint64_t kExponent = 0x7ff;
    uint64_t bits = bit_cast<uint64_t>(x);
    mantissa = bit_cast<double>((bits & ~(kExponent << 52)) | uint64_t{1023} << 52);
    scale = bit_cast<double>((2046 - (bits >> 52 & kExponent)) << 52);
  }
};

// The first column and row of a tile; the tiles on or below the diagonal are numbered row by
// row.
struct Place {
  int across = 0, down = 0;
  CEM_TETRIS_FUNCTION explicit Place(int tile) {
    for (; tile > down; tile -= ++down) {
    }
    across = tile * kSide;
    down *= kSide;
  }
};

// The update of one problem by one thread of a team. The phases are its methods, in the order
// of adapt().
template <typename T, typename Team>
struct Adaptation {
  const Team& team;
  const Call& call;
  const int64_t problem;
  const uint16_t* order;  // all candidates, best first
  const double* value;    // their fitness
  const int usable;       // as many did not fail
  const Arrays arrays;

  const update::Settings& settings = call.job.settings;
  const Learning& learning = call.learning;
  const Plan& plan = call.plan;
  int d = plan.dimensions;
  int padded = plan.padded;
  int stride = plan.stride;
  int thread = team.thread;
  int threads = team.threads;
  int last_first = threads - 1 - thread;  // the thread's number, counted from the last one
  int elites = int(settings.elites);
  int best = usable < elites ? usable : elites;  // elites that did not fail
  int64_t generation = *call.job.generation;

  const T* old = of_problem(call.job.distribution, update::kRows* d);
  const T* factor = of_problem(call.factor, d* d);
  const T* paths = of_problem(call.paths, 2 * d);
  const T* candidates = of_problem(call.job.candidates, settings.population* d);
  T* next = static_cast<T*>(call.job.new_distribution) + problem * update::kRows * d;
  T* new_factor = static_cast<T*>(call.new_factor) + problem * d * d;
  T* new_paths = static_cast<T*>(call.new_paths) + problem * 2 * d;

  // Three numbers behind L^-1 step: 1 - (1 - c_s)^(2 (t + 1)), the ratio of step sizes, and the
  // share of L L^T in the covariance.
  double& warm = arrays.white[padded];
  double& ratio = arrays.white[padded + 1];
  double& kept = arrays.white[padded + 2];

  CEM_TETRIS_DEVICE_FUNCTION const T* of_problem(const void* data, int64_t size) const {
    return static_cast<const T*>(data) + problem * size;
  }

  // Loads L, its diagonal's reciprocals and the paths.
  CEM_TETRIS_DEVICE_FUNCTION void load_state() const {
    team.template table<4>(
        padded, padded,
        [&](int i, int k) { return k <= i && i < d ? factor[i * d + k] : T{0}; },
        [&](int i, int k, T x) { arrays.lower[k * stride + i] = double(x); });
    for (int i = last_first; i < padded; i += threads) {
      double width = i < d ? double(factor[i * d + i]) : 0.0;
      arrays.path[i] = i < d ? double(paths[i]) : 0.0;
      arrays.long_path[i] = i < d ? double(paths[d + i]) : 0.0;
      arrays.reciprocal[i] = 1.0 / (width == 0.0 ? 1.0 : width);  // a dimension of no width
    }
    if (thread == 0) warm = 1.0 - power(learning.path_decay, 2 * (generation + 1));
  }

  // Loads the rows of `count` candidates, of ranks from `first` on.
  CEM_TETRIS_DEVICE_FUNCTION void load_rows(int first, int count) const {
    team.template table<8>(
        count, padded,
        [&](int r, int k) { return k < d ? candidates[order[first + r] * d + k] : T{0}; },
        [&](int r, int k, T x) {
          arrays.rows[r * stride + k] = k < d ? double(x) - double(old[k]) : 0.0;
        });
    for (int r = thread; r < count; r += threads) {
      double* behind = arrays.rows + r * stride + padded;
      arrays.weight[r] = call.job.weights[first + r];
      behind[kOne] = 1.0;
      behind[kFitness] = value[first + r];
    }
    team.sync();
  }

  // Adds up by slice what the elites have in each column: weighted rows, weights and the
  // fitness; and the weights of all candidates.
  CEM_TETRIS_DEVICE_FUNCTION void add_moments(int first, int count) const {
    for (int slice = team.group; slice < plan.slices; slice += team.groups) {
      for (int k = team.lane; k < padded + kBehind; k += team.lanes) {
        bool of_all = k == padded + kAllWeights;
        int end = of_all || best - first > count ? count : best - first;
        const double* column = of_all ? arrays.weight : arrays.rows + k;
        int next_row = of_all ? 1 : stride;
        double& moment = arrays.moments[slice * plan.columns + k];
        double sum = first > 0 ? moment : 0.0;
        CEM_TETRIS_FOUR
        for (int r = slice; r < end; r += plan.slices) {
          sum += (k > padded ? 1.0 : arrays.weight[r]) * column[r * next_row];
        }
        moment = sum;
      }
    }
  }

  // Sets the step of the mean, (42) with c_m = smoothing, and behind it the sums of fitness and
  // weights.
  CEM_TETRIS_DEVICE_FUNCTION void set_step() const {
    team.sync();
    for (int i = thread; i < padded + kBehind; i += threads) {
      double sum = 0.0;
      double total = 0.0;
      for (int slice = 0; slice < plan.slices; ++slice) {
        const double* moments = arrays.moments + slice * plan.columns;
        sum += moments[i];
        total += moments[padded + kOne];
      }
      double moved = sum * (1.0 / total);
      bool moves = i < d && update::is_finite(double(old[i < d ? i : 0]) + moved);
      arrays.step[i] = i > padded ? sum : moves ? settings.smoothing * moved : 0.0;
    }
    team.sync();
  }

  // Sets the shares of candidates in the covariance, (46): the length of one with a negative
  // weight in units of L takes it to |L z|^2 = d. With the last candidates, sets the step in
  // units of L.
  CEM_TETRIS_DEVICE_FUNCTION void set_shares(int count, bool with_step) const {
    for (int u = with_step ? thread : thread + 1; u <= count; u += threads) {
      bool is_step = u == 0;
      int r = count - u;  // those with negative weights, which take long, first
      double w = is_step ? -1.0 : arrays.weight[r];
      double white[kMostDimensions];
      if (w < 0.0) {
        const double* row = is_step ? arrays.step : arrays.rows + r * stride;
        double length = whiten(plan, arrays.lower, arrays.reciprocal, row, white);
        w = w * d / (length < kTiny ? kTiny : length);
      }
      if (!is_step) arrays.share[r] = learning.c_mu * w;
      for (int i = 0; is_step && i < d; ++i) arrays.white[i] = white[i];
    }
    team.sync();
  }

  // Adds up the products of candidates, y y^T in (47), tile by tile and slice by slice. With
  // the first candidates, the products of L's columns, which begin at the diagonal, make one
  // more slice.
  CEM_TETRIS_DEVICE_FUNCTION void add_products(int first, int count) const {
    for (int u = thread; u < (plan.slices + (first == 0)) * plan.tiles; u += threads) {
      int slice = u / plan.tiles;
      Place place(u - slice * plan.tiles);
      bool of_factor = slice == plan.slices;
      const double* rows = of_factor ? arrays.lower : arrays.rows;
      int diagonal_end = place.across + kSide < d ? place.across + kSide : d;
      int end = of_factor ? diagonal_end : count;
      double* tile = arrays.sums + u * kTileStride;
      double sum[kCells];
      CEM_TETRIS_UNROLL
      for (int c = 0; c < kCells; ++c) sum[c] = first > 0 ? tile[c] : 0.0;
      for (int r = of_factor ? 0 : slice; r < end; r += of_factor ? 1 : plan.slices) {
        double w = of_factor ? 1.0 : arrays.share[r];
        Quad a = quad_at(rows + r * stride + place.down);
        Quad b = quad_at(rows + r * stride + place.across);
        CEM_TETRIS_UNROLL
        for (int c = 0; c < kCells; ++c) sum[c] += w * a.value[c / kSide] * b.value[c % kSide];
      }
      CEM_TETRIS_UNROLL
      for (int c = 0; c < kCells; ++c) tile[c] = sum[c];
    }
  }

  // Moves the paths, (43) and (45), and sets the ratio of step sizes, (44), by one group.
  CEM_TETRIS_DEVICE_FUNCTION void move_paths() const {
    if (team.group != 0 || usable == 0) return;
    for (int i = team.lane; i < d; i += team.lanes) {
      arrays.path[i] =
          learning.path_decay * arrays.path[i] + learning.path_gain * arrays.white[i];
    }
    team.sync_lanes();
    double length = 0.0;
    CEM_TETRIS_FOUR
    for (int i = 0; i < d; ++i) length += arrays.path[i] * arrays.path[i];
    bool moves = length < learning.longest * warm;
    for (int i = team.lane; i < d; i += team.lanes) {
      arrays.long_path[i] = learning.long_decay * arrays.long_path[i] +
                            (moves ? learning.long_gain * arrays.step[i] : 0.0);
    }
    if (team.lane == 0) {
      double excess = learning.damping * (sqrt(length) * learning.inverse_chi - 1.0);
      ratio = exponential(excess > 1.0 ? 1.0 : excess);
      kept = 1.0 - learning.c_1 - learning.c_mu * arrays.step[padded + kAllWeights] +
             (moves ? 0.0 : learning.stalled);
    }
  }

  // Writes the mean, the best candidate, the elites and the record, by the threads that move no
  // paths.
  CEM_TETRIS_DEVICE_FUNCTION void write_means() const {
    double top = usable > 0 ? value[0] : 0.0;
    double known = call.job.record[problem * update::kFigures + update::kBestFitness];
    bool better = usable > 0 && update::is_better(top + 0.0, known, settings.maximize);
    double newest = update::newest_share(settings, generation);
    for (int i = last_first; i < d; i += threads) {
      double averaged = double(old[update::kAveragedMean * d + i]);
      double mean = double(old[i]) + arrays.step[i];
      bool moves = usable > 0 && update::is_finite(mean);
      next[update::kMean * d + i] = moves ? update::rounded<T>(mean) : old[i];
      next[update::kAveragedMean * d + i] =
          !moves ? old[update::kAveragedMean * d + i]
                 : update::rounded<T>(
                       newest == 1.0 ? mean : averaged + (mean - averaged) * newest);
      next[update::kBest * d + i] =
          better ? candidates[order[0] * d + i] : old[update::kBest * d + i];
    }
    for (int k = last_first; k < elites; k += threads) {
      call.job.elites[problem * elites + k] = order[k];
    }
    if (last_first == 0) {
      double threshold = usable > 0 ? value[best - 1] : 0.0;
      update::write_record(
          call.job, problem, best, top, arrays.step[padded + kFitness], threshold, generation);
    }
    team.sync();
  }

  // Sets the covariance, (47), in L's place, with extra variance and floors on its diagonal;
  // writes the paths.
  CEM_TETRIS_DEVICE_FUNCTION void set_covariance() const {
    const T* floors =
        call.job.floors ? of_problem(call.job.floors, settings.floor_stride) : nullptr;
    double scale = ratio * ratio;
    double extra = update::extra_variance_of(call.job, generation);
    for (int e = thread; usable > 0 && e < plan.tiles * kCells; e += threads) {
      int tile = e / kCells;
      int cell = e % kCells;
      Place place(tile);
      int i = place.down + cell / kSide;
      int k = place.across + cell % kSide;
      if (i >= d || k > i) continue;
      auto sum_of = [&](int slice) {
        return arrays.sums[(slice * plan.tiles + tile) * kTileStride + cell];
      };
      double entry = 0.0;
      for (int slice = 0; slice < plan.slices; ++slice) entry += sum_of(slice);
      entry += kept * sum_of(plan.slices);
      entry = (entry + learning.c_1 * arrays.long_path[i] * arrays.long_path[k]) * scale;
      if (i == k) {
        double least = floors ? double(floors[i]) : 0.0;
        double missing = floors ? least * least - entry : extra;
        entry += missing > extra ? missing : extra;
        arrays.variance[i] = entry;
        entry = inflated(entry);
      }
      arrays.lower[k * stride + i] = entry;
    }
    for (int i = last_first; i < 2 * d; i += threads) {
      double x = i < d ? arrays.path[i] : ratio * arrays.long_path[i - d];
      new_paths[i] = usable > 0 && update::is_finite(x) ? update::rounded<T>(x) : paths[i];
    }
    team.sync();
  }

  // Factorises the covariance. Returns whether it is positive; then 1 / L_ii is in `reciprocal`
  // and the standard deviations are in `step`.
  CEM_TETRIS_DEVICE_FUNCTION bool factorise() const {
    if (usable > 0) team.eliminate(plan, arrays.lower, arrays.white);
    bool positive = usable > 0;
    for (int i = thread; i < d && usable > 0; i += threads) {
      double pivot = arrays.lower[i * stride + i];
      positive = positive && pivot > 0.0 && update::is_finite(pivot);
      arrays.reciprocal[i] = 1.0 / sqrt(pivot * arrays.white[i]);
    }
    for (int i = last_first; i < d && usable > 0; i += threads) {
      double variance = arrays.variance[i];
      arrays.step[i] = variance > 0.0 ? sqrt(inflated(variance)) : 0.0;
    }
    return team.all(positive);
  }

  // Writes the standard deviations and the factor; without a factorisation, the old ones.
  CEM_TETRIS_DEVICE_FUNCTION void write_factor(bool good) const {
    for (int i = thread; i < d; i += threads) {
      next[update::kStd * d + i] =
          good ? update::rounded<T>(arrays.step[i]) : old[update::kStd * d + i];
    }
    team.template table<4>(
        d, d, [&](int i, int k) { return good ? T{0} : factor[i * d + k]; },
        [&](int i, int k, T x) {
          bool has_width = good && k <= i && arrays.variance[i] > 0.0;
          double entry = has_width ? arrays.lower[k * stride + i] * arrays.reciprocal[k] : 0.0;
          new_factor[i * d + k] = good ? update::rounded<T>(entry) : x;
        });
  }
};

// The update. order, value: all candidates and their fitness, best first; as many as `usable`
// did not fail. memory: call.plan.doubles() numbers. All threads of a team call it.
template <typename T, typename Team>
CEM_TETRIS_DEVICE_FUNCTION void adapt(const Team& team, const Call& call, int64_t problem,
    const uint16_t* order, const double* value, int usable, double* memory) {
  const Adaptation<T, Team> self{
      team, call, problem, order, value, usable, {call.plan, memory}};
  self.load_state();
  for (int first = 0; first < usable; first += call.plan.chunk) {
    int count = usable - first < call.plan.chunk ? usable - first : call.plan.chunk;
    bool is_last = first + count == usable;
    if (first > 0) team.sync();
    self.load_rows(first, count);
    self.add_moments(first, count);
    if (is_last) self.set_step();
    self.set_shares(count, is_last);
    self.add_products(first, count);
  }
  team.sync();
  self.move_paths();
  self.write_means();
  self.set_covariance();
  bool good = self.factorise();
  self.write_factor(good);
}

}  // namespace cem_tetris::cma
