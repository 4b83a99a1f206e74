// The update of CMA-ES for one problem, for host and device: the formulas of op.py, whose
// numbers in N. Hansen, The CMA Evolution Strategy: A Tutorial (arXiv:1604.00772) stand beside
// the code. IEEE operations alone, each number in an order that depends on the sizes alone: the
// same bits anywhere.
//
// A problem is one entry of the batch: one search with its own distribution and candidates. A
// team works on it: one thread of a CPU (OneThread in cpu.h), or a block of CUDA (Block in
// launch.cuh). A team has `threads` threads, in `groups` groups of `lanes` threads: its warps.
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

// The columns that follow the dimensions in a row: the constant 1, whose weighted sum is the
// sum of the elites' weights; the fitness; and, in rows of sums only, the weights of all
// candidates.
enum ExtraColumn { kOne, kFitness, kAllWeights, kExtraColumns };

// The sizes of a problem's memory.
struct Plan {
  int dimensions;
  int padded;   // dimensions, rounded up to a multiple of kSide
  int stride;   // from one row to the next: rows of eight threads are in different banks
  int tiles;    // of 4 x 4 numbers, on or below the diagonal
  int slices;   // of candidates
  int columns;  // of a vector: `padded`, then ExtraColumn
  int chunk;    // candidates at once, a multiple of kMostSlices

  // Chooses the sizes for d dimensions. most: the most candidates in memory at once. There are
  // as many slices as leave each at least 8 rows, candidates and columns of L, and kSums tiles
  // in all.
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
  // chunk x stride: candidates minus the old mean, then ExtraColumn
  double* rows = lower + plan.padded * plan.stride;
  // columns: the mean's step, then ExtraColumn; later the standard deviations
  double* step = rows + plan.chunk * plan.stride;
  // columns: L^-1 step, and three numbers; then the products of pivots
  double* white = step + plan.columns;
  double* path = white + plan.columns;          // columns: p
  double* long_path = path + plan.columns;      // columns: q
  double* variance = long_path + plan.columns;  // columns: the diagonal of the covariance
  double* inverse_diagonal = variance + plan.columns;  // columns: 1 / L_ii
  // slices x columns: sums of the elites' weighted rows
  double* moments = inverse_diagonal + plan.columns;
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
  double longest;  // q moves while |p|^2 is below this; early generations scale it down
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

// Returns e^x for the factor of the step size. With x = k log(2) + r and |r| <= log(2) / 2,
// that is 2^k times the Taylor series of e^r; k is subtracted in two parts of log(2), so that r
// keeps its last bits. Below -700 the result is 0.
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

// Solves L white = y by forward substitution, and returns |white|^2: the squared length of y in
// units of the distribution's factor L. `lower` holds L's columns one after the other, and
// inverse_diagonal the numbers 1 / L_ii. Four rows are solved at a time: first what the columns
// to the left contribute is subtracted from all four, then the 4 x 4 triangle is solved.
CEM_TETRIS_FUNCTION double whiten(const Plan& plan, const double* lower,
    const double* inverse_diagonal, const double* y, double* white) {
  double squared_length = 0.0;
  for (int left = 0; left < plan.padded; left += kSide) {
    Quad sum = quad_at(y + left);
    CEM_TETRIS_FOUR
    for (int j = 0; j < left; ++j) {
      Quad column = quad_at(lower + j * plan.stride + left);
      for (int c = 0; c < kSide; ++c) sum.value[c] -= white[j] * column.value[c];
    }
    CEM_TETRIS_UNROLL
    for (int c = 0; c < kSide; ++c) {
      double x = sum.value[c] * inverse_diagonal[left + c];
      white[left + c] = x;
      squared_length += x * x;
      CEM_TETRIS_UNROLL
      for (int e = c + 1; e < kSide; ++e)
        sum.value[e] -= x * lower[(left + c) * plan.stride + left + e];
    }
  }
  return squared_length;
}

// Returns a variance a little larger: the covariance of too few elites is singular.
CEM_TETRIS_FUNCTION double inflated(double variance) {
  return variance + (1e-12 * variance + kTiny);
}

// A pivot x of the elimination as mantissa / scale, with 1 <= mantissa < 2 and scale a power of
// two. A division by x would take longer than the rest of a step; instead, the elimination of a
// column multiplies the rest of the matrix by the mantissa, and divides by the power of two.
struct Pivot {
  double mantissa, scale;
  CEM_TETRIS_FUNCTION explicit Pivot(double x) {
    constexpr uint64_t kExponent = 0x7ff;
    uint64_t bits = bit_cast<uint64_t>(x);
    mantissa = bit_cast<double>((bits & ~(kExponent << 52)) | uint64_t{1023} << 52);
    scale = bit_cast<double>((2046 - (bits >> 52 & kExponent)) << 52);
  }
};

// The first column (`across`) and the first row (`down`) of a tile. The tiles on or below the
// diagonal are numbered row by row: 0 | 1 2 | 3 4 5 | ...
struct TileCorner {
  int across = 0, down = 0;
  CEM_TETRIS_FUNCTION explicit TileCorner(int tile) {
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
  const int usable;       // candidates that did not fail
  const Arrays arrays;

  const update::Settings& settings = call.job.settings;
  const Learning& learning = call.learning;
  const Plan& plan = call.plan;
  int d = plan.dimensions;
  int padded = plan.padded;
  int stride = plan.stride;
  int thread = team.thread;
  int threads = team.threads;
  // The thread's number, counted from the last thread: short loops that begin with the last
  // thread are done by threads that a loop from `thread` on leaves idle.
  int thread_from_last = threads - 1 - thread;
  int elites = int(settings.elites);
  int usable_elites = usable < elites ? usable : elites;  // elites that did not fail
  int64_t generation = *call.job.generation;

  // The rows of a distribution are those of update::Row. L has row i at factor + i * d; the
  // path p (of the step size) comes before the path q (of the covariance).
  const T* old_rows = of_problem(call.job.distribution, update::kRows* d);
  const T* factor = of_problem(call.factor, d* d);
  const T* paths = of_problem(call.paths, 2 * d);
  const T* candidates = of_problem(call.job.candidates, settings.population* d);
  T* new_rows = static_cast<T*>(call.job.new_distribution) + problem * update::kRows * d;
  T* new_factor = static_cast<T*>(call.new_factor) + problem * d * d;
  T* new_paths = static_cast<T*>(call.new_paths) + problem * 2 * d;

  // Three numbers that the team shares, stored behind L^-1 step. path_warmup is the correction
  // of a path that began at 0, 1 - (1 - c_s)^(2 (t + 1)) in generation t: p has reached this
  // share of the squared length that it has in the long run.
  double& path_warmup = arrays.white[padded];
  double& step_ratio = arrays.white[padded + 1];    // the new step size / the old one
  double& factor_share = arrays.white[padded + 2];  // of the old L L^T in the new covariance

  // Returns the part of a tensor that belongs to this problem; it has `size` numbers of it.
  CEM_TETRIS_DEVICE_FUNCTION const T* of_problem(const void* data, int64_t size) const {
    return static_cast<const T*>(data) + problem * size;
  }

  // Loads what the last generation left, padded with zeros to whole tiles: the factor L, from
  // rows in `factor` to columns in arrays.lower; 1 / L_ii; and the two paths.
  CEM_TETRIS_DEVICE_FUNCTION void load_state() const {
    team.template table<4>(
        padded, padded,
        [&](int i, int k) { return k <= i && i < d ? factor[i * d + k] : T{0}; },
        [&](int i, int k, T x) { arrays.lower[k * stride + i] = double(x); });
    for (int i = thread_from_last; i < padded; i += threads) {
      double diagonal = i < d ? double(factor[i * d + i]) : 0.0;  // 0: x_i does not vary
      arrays.path[i] = i < d ? double(paths[i]) : 0.0;
      arrays.long_path[i] = i < d ? double(paths[d + i]) : 0.0;
      arrays.inverse_diagonal[i] = 1.0 / (diagonal == 0.0 ? 1.0 : diagonal);
    }
    if (thread == 0) path_warmup = 1.0 - power(learning.path_decay, 2 * (generation + 1));
  }

  // Loads the candidates of ranks `first` to `first` + `count` - 1. A row of arrays.rows is the
  // candidate minus the old mean, padded with zeros, then 1 and the fitness (ExtraColumn).
  CEM_TETRIS_DEVICE_FUNCTION void load_rows(int first, int count) const {
    team.template table<8>(
        count, padded,
        [&](int r, int k) { return k < d ? candidates[order[first + r] * d + k] : T{0}; },
        [&](int r, int k, T x) {
          arrays.rows[r * stride + k] = k < d ? double(x) - double(old_rows[k]) : 0.0;
        });
    for (int r = thread; r < count; r += threads) {
      double* extra = arrays.rows + r * stride + padded;
      arrays.weight[r] = call.job.weights[first + r];
      extra[kOne] = 1.0;
      extra[kFitness] = value[first + r];
    }
    team.sync();
  }

  // Adds the candidates of ranks `first` to `first` + `count` - 1 to the sums over the elites:
  // of the weighted rows, the weights and the fitness, one sum for each column. The column
  // kAllWeights is the sum of the weights of all candidates. A group of threads adds up one
  // slice (the ranks r mod plan.slices), one column per thread.
  CEM_TETRIS_DEVICE_FUNCTION void add_moments(int first, int count) const {
    for (int slice = team.group; slice < plan.slices; slice += team.groups) {
      for (int k = team.lane; k < padded + kExtraColumns; k += team.lanes) {
        bool is_weight_sum = k == padded + kAllWeights;
        int elites_left = usable_elites - first;
        int end = is_weight_sum || elites_left > count ? count : elites_left;
        const double* column = is_weight_sum ? arrays.weight : arrays.rows + k;
        int row_stride = is_weight_sum ? 1 : stride;
        double& moment = arrays.moments[slice * plan.columns + k];
        double sum = first > 0 ? moment : 0.0;
        CEM_TETRIS_FOUR
        for (int r = slice; r < end; r += plan.slices) {
          // Rows and the constant 1 are weighted; the fitness and the weights are not.
          sum += (k > padded ? 1.0 : arrays.weight[r]) * column[r * row_stride];
        }
        moment = sum;
      }
    }
  }

  // Adds up the slices' sums. arrays.step becomes the step of the mean, equation (42) of the
  // tutorial with c_m = smoothing: the weighted mean of the elites about the old mean. The
  // extra columns behind it hold the sums of the fitness and of all weights. A dimension whose
  // new mean would not be finite does not move.
  CEM_TETRIS_DEVICE_FUNCTION void set_step() const {
    team.sync();
    for (int i = thread; i < padded + kExtraColumns; i += threads) {
      double sum = 0.0;
      double total = 0.0;  // of the elites' weights
      for (int slice = 0; slice < plan.slices; ++slice) {
        const double* moments = arrays.moments + slice * plan.columns;
        sum += moments[i];
        total += moments[padded + kOne];
      }
      double mean_step = sum * (1.0 / total);
      bool moves = i < d && update::is_finite(double(old_rows[i < d ? i : 0]) + mean_step);
      arrays.step[i] = i > padded ? sum : moves ? settings.smoothing * mean_step : 0.0;
    }
    team.sync();
  }

  // Sets the share c_mu w of each of `count` candidates in the covariance, equation (46) of the
  // tutorial. A negative weight is scaled by d / |L^-1 y|^2, with y the candidate minus the old
  // mean, so that a far candidate cannot make the covariance negative. If `with_step`, also
  // sets arrays.white = L^-1 step, as item 0 of the loop; items 1 to count are the candidates.
  CEM_TETRIS_DEVICE_FUNCTION void set_shares(int count, bool with_step) const {
    for (int item = with_step ? thread : thread + 1; item <= count; item += threads) {
      bool is_step = item == 0;
      int r = count - item;  // from the last rank: negative weights, which take long, first
      double w = is_step ? -1.0 : arrays.weight[r];
      double white[kMostDimensions];
      if (w < 0.0) {
        const double* row = is_step ? arrays.step : arrays.rows + r * stride;
        double squared_length = whiten(plan, arrays.lower, arrays.inverse_diagonal, row, white);
        w = w * d / (squared_length < kTiny ? kTiny : squared_length);
      }
      if (!is_step) arrays.share[r] = learning.c_mu * w;
      for (int i = 0; is_step && i < d; ++i) arrays.white[i] = white[i];
    }
    team.sync();
  }

  // Adds to the sums of w y y^T over the candidates in arrays.rows, equation (47) of the
  // tutorial; y is a candidate minus the old mean and w its share. A thread adds up one 4 x 4
  // tile of one slice. In the first call (first == 0) there is one more slice: L L^T, the sum
  // over L's columns of each column times itadaptation. Column r is zero above row r, so a tile
  // needs the columns up to its last one only.
  CEM_TETRIS_DEVICE_FUNCTION void add_products(int first, int count) const {
    int slices = plan.slices + (first == 0);
    for (int item = thread; item < slices * plan.tiles; item += threads) {
      int slice = item / plan.tiles;
      TileCorner corner(item - slice * plan.tiles);
      bool is_factor = slice == plan.slices;
      const double* rows = is_factor ? arrays.lower : arrays.rows;
      int diagonal_end = corner.across + kSide < d ? corner.across + kSide : d;
      int end = is_factor ? diagonal_end : count;
      double* tile = arrays.sums + item * kTileStride;
      double sum[kCells];
      CEM_TETRIS_UNROLL
      for (int c = 0; c < kCells; ++c) sum[c] = first > 0 ? tile[c] : 0.0;
      for (int r = is_factor ? 0 : slice; r < end; r += is_factor ? 1 : plan.slices) {
        double w = is_factor ? 1.0 : arrays.share[r];
        Quad a = quad_at(rows + r * stride + corner.down);
        Quad b = quad_at(rows + r * stride + corner.across);
        CEM_TETRIS_UNROLL
        for (int c = 0; c < kCells; ++c) sum[c] += w * a.value[c / kSide] * b.value[c % kSide];
      }
      CEM_TETRIS_UNROLL
      for (int c = 0; c < kCells; ++c) tile[c] = sum[c];
    }
  }

  // Moves the path p of the step size, (43), and the path q of the covariance, (45), and sets
  // the ratio of step sizes, (44), and the share of the old covariance in the new one. Group 0
  // does it while the other threads write the means. q does not move while p is too long.
  CEM_TETRIS_DEVICE_FUNCTION void move_paths() const {
    if (team.group != 0 || usable == 0) return;
    for (int i = team.lane; i < d; i += team.lanes) {
      arrays.path[i] =
          learning.path_decay * arrays.path[i] + learning.path_gain * arrays.white[i];
    }
    team.sync_lanes();
    double squared_length = 0.0;
    CEM_TETRIS_FOUR
    for (int i = 0; i < d; ++i) squared_length += arrays.path[i] * arrays.path[i];
    bool moves = squared_length < learning.longest * path_warmup;
    for (int i = team.lane; i < d; i += team.lanes) {
      arrays.long_path[i] = learning.long_decay * arrays.long_path[i] +
                            (moves ? learning.long_gain * arrays.step[i] : 0.0);
    }
    if (team.lane == 0) {
      double excess = learning.damping * (sqrt(squared_length) * learning.inverse_chi - 1.0);
      step_ratio = exponential(excess > 1.0 ? 1.0 : excess);
      factor_share = 1.0 - learning.c_1 - learning.c_mu * arrays.step[padded + kAllWeights] +
                     (moves ? 0.0 : learning.stalled);
    }
  }

  // Writes the mean, the averaged mean, the best candidate so far, the list of elites and the
  // record. The loops begin with the last threads, because the first ones move the paths.
  CEM_TETRIS_DEVICE_FUNCTION void write_means() const {
    double top = usable > 0 ? value[0] : 0.0;
    double known = call.job.record[problem * update::kFigures + update::kBestFitness];
    bool is_new_best = usable > 0 && update::is_better(top + 0.0, known, settings.maximize);
    double mean_share = update::newest_share(settings, generation);
    for (int i = thread_from_last; i < d; i += threads) {
      double averaged = double(old_rows[update::kAveragedMean * d + i]);
      double mean = double(old_rows[i]) + arrays.step[i];
      bool moves = usable > 0 && update::is_finite(mean);
      new_rows[update::kMean * d + i] = moves ? update::rounded<T>(mean) : old_rows[i];
      new_rows[update::kAveragedMean * d + i] =
          !moves ? old_rows[update::kAveragedMean * d + i]
                 : update::rounded<T>(
                       mean_share == 1.0 ? mean : averaged + (mean - averaged) * mean_share);
      new_rows[update::kBest * d + i] =
          is_new_best ? candidates[order[0] * d + i] : old_rows[update::kBest * d + i];
    }
    for (int k = thread_from_last; k < elites; k += threads) {
      call.job.elites[problem * elites + k] = order[k];
    }
    if (thread_from_last == 0) {
      double threshold = usable > 0 ? value[usable_elites - 1] : 0.0;
      update::write_record(call.job, problem, usable_elites, top,
          arrays.step[padded + kFitness], threshold, generation);
    }
    team.sync();
  }

  // Replaces L in arrays.lower by the new covariance, (47), on and below the diagonal: the sums
  // of the slices, the old L L^T and the path q, times the square of the step sizes' ratio. A
  // diagonal entry, a variance, grows by the extra variance of the generation, or by more where
  // it would be below the squared floor of the standard deviation. Also writes the new paths.
  CEM_TETRIS_DEVICE_FUNCTION void set_covariance() const {
    const T* floors =
        call.job.floors ? of_problem(call.job.floors, settings.floor_stride) : nullptr;
    double scale = step_ratio * step_ratio;
    double extra = update::extra_variance_of(call.job, generation);
    for (int item = thread; usable > 0 && item < plan.tiles * kCells; item += threads) {
      int tile = item / kCells;
      int cell = item % kCells;
      TileCorner corner(tile);
      int i = corner.down + cell / kSide;
      int k = corner.across + cell % kSide;
      if (i >= d || k > i) continue;
      auto cell_sum = [&](int slice) {
        return arrays.sums[(slice * plan.tiles + tile) * kTileStride + cell];
      };
      double entry = 0.0;
      for (int slice = 0; slice < plan.slices; ++slice) entry += cell_sum(slice);
      entry += factor_share * cell_sum(plan.slices);
      entry = (entry + learning.c_1 * arrays.long_path[i] * arrays.long_path[k]) * scale;
      if (i == k) {
        double least_std = floors ? double(floors[i]) : 0.0;
        double below_floor = floors ? least_std * least_std - entry : extra;
        entry += below_floor > extra ? below_floor : extra;
        arrays.variance[i] = entry;
        entry = inflated(entry);
      }
      arrays.lower[k * stride + i] = entry;
    }
    for (int i = thread_from_last; i < 2 * d; i += threads) {
      double x = i < d ? arrays.path[i] : step_ratio * arrays.long_path[i - d];
      new_paths[i] = usable > 0 && update::is_finite(x) ? update::rounded<T>(x) : paths[i];
    }
    team.sync();
  }

  // Factorises the covariance in arrays.lower by Team::eliminate, which leaves each column
  // scaled by the numbers in arrays.white. Returns whether all pivots are positive and finite.
  // If so, the columns of arrays.lower times arrays.inverse_diagonal are the new L, and
  // arrays.step holds the standard deviations.
  CEM_TETRIS_DEVICE_FUNCTION bool factorise() const {
    if (usable > 0) team.eliminate(plan, arrays.lower, arrays.white);
    bool is_positive = usable > 0;
    for (int i = thread; i < d && usable > 0; i += threads) {
      double pivot = arrays.lower[i * stride + i];
      is_positive = is_positive && pivot > 0.0 && update::is_finite(pivot);
      arrays.inverse_diagonal[i] = 1.0 / sqrt(pivot * arrays.white[i]);
    }
    for (int i = thread_from_last; i < d && usable > 0; i += threads) {
      double variance = arrays.variance[i];
      arrays.step[i] = variance > 0.0 ? sqrt(inflated(variance)) : 0.0;
    }
    return team.all(is_positive);
  }

  // Writes the standard deviations and the factor L, row by row and with zeros above the
  // diagonal; the old ones if the covariance could not be factorised. The row of a dimension
  // without variance is 0.
  CEM_TETRIS_DEVICE_FUNCTION void write_factor(bool is_factorised) const {
    for (int i = thread; i < d; i += threads) {
      new_rows[update::kStd * d + i] =
          is_factorised ? update::rounded<T>(arrays.step[i]) : old_rows[update::kStd * d + i];
    }
    team.template table<4>(
        d, d, [&](int i, int k) { return is_factorised ? T{0} : factor[i * d + k]; },
        [&](int i, int k, T x) {
          bool has_variance = is_factorised && k <= i && arrays.variance[i] > 0.0;
          double entry =
              has_variance ? arrays.lower[k * stride + i] * arrays.inverse_diagonal[k] : 0.0;
          new_factor[i * d + k] = is_factorised ? update::rounded<T>(entry) : x;
        });
  }
};

// Updates the distribution of one problem. All threads of a team call it, from adapt_kernel in
// launch.cuh and update_problem in cpu.h.
//
// order, value: all candidates and their fitness, best first; the first `usable` did not fail.
// memory: scratch of call.plan.doubles() numbers that the team shares. The candidates are
// loaded in chunks of call.plan.chunk rows; what needs all of them follows the last chunk.
template <typename T, typename Team>
CEM_TETRIS_DEVICE_FUNCTION void adapt(const Team& team, const Call& call, int64_t problem,
    const uint16_t* order, const double* value, int usable, double* memory) {
  const Adaptation<T, Team> adaptation{
      team, call, problem, order, value, usable, {call.plan, memory}};
  adaptation.load_state();
  for (int first = 0; first < usable; first += call.plan.chunk) {
    int count = usable - first < call.plan.chunk ? usable - first : call.plan.chunk;
    bool is_last = first + count == usable;
    if (first > 0) team.sync();
    adaptation.load_rows(first, count);
    adaptation.add_moments(first, count);
    if (is_last) adaptation.set_step();
    adaptation.set_shares(count, is_last);
    adaptation.add_products(first, count);
  }
  team.sync();
  adaptation.move_paths();
  adaptation.write_means();
  adaptation.set_covariance();
  bool is_factorised = adaptation.factorise();
  adaptation.write_factor(is_factorised);
}

}  // namespace cem_tetris::cma
