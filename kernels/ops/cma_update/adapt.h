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

  // Chooses the sizes of the scratch memory for `population` candidates of d dimensions.
  //
  // The covariance is cut into tiles of 4 x 4 numbers (kSide); only the tiles on or below the
  // diagonal are computed. The sum over the candidates is split into 1, 2, 4 or 8 partial sums,
  // the slices. Their number is halved until all slices together have at most kSums tiles, and
  // until a slice has at least 8 rows to add up; rows are the candidates and the columns of the
  // old factor. `chunk` is how many candidates are in memory at once, at most `most_candidates`
  // rounded up to a multiple of 8 (kMostSlices).
  Plan(int64_t d, int64_t population, int64_t most_candidates = 128)
      : dimensions(int(d)),
        padded((dimensions + kSide - 1) / kSide * kSide),
        stride(padded + 2),
        columns(padded + 4) {
    constexpr int kLeastRows = 8;  // of a slice
    int64_t tiles_across = padded / kSide;
    tiles = int(tiles_across * (tiles_across + 1) / 2);
    int64_t rows = population + d;
    slices = kMostSlices;
    while (slices > 1 && (slices * tiles > kSums || slices * kLeastRows > rows)) slices /= 2;
    int64_t candidates = population < most_candidates ? population : most_candidates;
    chunk = int((candidates + kMostSlices - 1) / kMostSlices * kMostSlices);
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

// Solves L white = y by forward substitution, and returns |white|^2, the squared Mahalanobis
// length of y under the covariance L L^T.
//
// L is lower triangular, plan.padded x plan.padded, a multiple of 4 (kSide). `lower` holds its
// columns one after the other, plan.stride numbers apart, and inverse_diagonal the numbers
// 1 / L_ii. Four rows of the solution are computed at a time: first the contributions of all
// columns to the left are subtracted from the four rows of y, then the 4 x 4 triangle on the
// diagonal is solved.
CEM_TETRIS_FUNCTION double whiten(const Plan& plan, const double* lower,
    const double* inverse_diagonal, const double* y, double* white) {
  double squared_length = 0.0;
  for (int first = 0; first < plan.padded; first += kSide) {
    Quad rest = quad_at(y + first);
    CEM_TETRIS_FOUR
    for (int j = 0; j < first; ++j) {
      Quad column = quad_at(lower + j * plan.stride + first);
      for (int c = 0; c < kSide; ++c) rest.value[c] -= white[j] * column.value[c];
    }
    CEM_TETRIS_UNROLL
    for (int c = 0; c < kSide; ++c) {
      int i = first + c;
      double x = rest.value[c] * inverse_diagonal[i];
      white[i] = x;
      squared_length += x * x;
      CEM_TETRIS_UNROLL
      for (int below = c + 1; below < kSide; ++below)
        rest.value[below] -= x * lower[i * plan.stride + first + below];
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
  const T* old_mean = old_rows + update::kMean * d;
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

  // Loads the state that the last generation left into shared memory, padded with zeros from d
  // to `padded` dimensions: the Cholesky factor L of the covariance, whose rows in `factor`
  // become columns of arrays.lower; the numbers 1 / L_ii; and the two evolution paths.
  // team.table<4>() calls store(i, k, load(i, k)) for all entries, spread over the threads of
  // the team, with four loads in flight.
  CEM_TETRIS_DEVICE_FUNCTION void load_state() const {
    auto load = [&](int i, int k) { return k <= i && i < d ? factor[i * d + k] : T{0}; };
    auto store = [&](int i, int k, T x) { arrays.lower[k * stride + i] = double(x); };
    team.template table<4>(padded, padded, load, store);
    for (int i = thread_from_last; i < padded; i += threads) {
      double diagonal = i < d ? double(factor[i * d + i]) : 0.0;
      // L_ii is 0 where dimension i does not vary; any divisor will do there.
      double divisor = diagonal == 0.0 ? 1.0 : diagonal;
      arrays.path[i] = i < d ? double(paths[i]) : 0.0;
      arrays.long_path[i] = i < d ? double(paths[d + i]) : 0.0;
      arrays.inverse_diagonal[i] = 1.0 / divisor;
    }
    if (thread == 0) path_warmup = 1.0 - power(learning.path_decay, 2 * (generation + 1));
  }

  // Loads a chunk of candidates, those of ranks `first` to `first` + `count` - 1 (best first),
  // into the rows of arrays.rows. Row r is the candidate minus the old mean, padded with zeros
  // from d to `padded` numbers; then come the constant 1 and the fitness. arrays.weight[r] is
  // the candidate's recombination weight. team.table<8>() calls store(r, k, load(r, k)) for all
  // numbers, spread over the threads of the team, with eight loads in flight.
  CEM_TETRIS_DEVICE_FUNCTION void load_rows(int first, int count) const {
    auto load = [&](int r, int k) {
      return k < d ? candidates[order[first + r] * d + k] : T{0};
    };
    auto store = [&](int r, int k, T x) {
      arrays.rows[r * stride + k] = k < d ? double(x) - double(old_mean[k]) : 0.0;
    };
    team.template table<8>(count, padded, load, store);
    for (int r = thread; r < count; r += threads) {
      double* extra = arrays.rows + r * stride + padded;
      arrays.weight[r] = call.job.weights[first + r];
      extra[kOne] = 1.0;
      extra[kFitness] = value[first + r];
    }
    team.sync();
  }

  // Adds a chunk of candidates, those of ranks `first` to `first` + `count` - 1, to the sums
  // over the elites, one sum per column of arrays.rows. The columns are the dimensions
  // (candidate minus old mean) and the constant 1, both weighted; then the fitness, unweighted.
  // One more column, kAllWeights, adds up the weights of all candidates, not only the elites'.
  //
  // The sums are split into slices, which set_step() adds up: rank r belongs to slice
  // r % plan.slices. A group of threads (a warp) adds up one slice, a lane of it one column.
  CEM_TETRIS_DEVICE_FUNCTION void add_moments(int first, int count) const {
    for (int slice = team.group; slice < plan.slices; slice += team.groups) {
      for (int k = team.lane; k < padded + kExtraColumns; k += team.lanes) {
        bool is_weight_sum = k == padded + kAllWeights;
        bool is_weighted = k <= padded + kOne;
        int elites_left = usable_elites - first;
        int end = is_weight_sum || elites_left > count ? count : elites_left;
        const double* column = is_weight_sum ? arrays.weight : arrays.rows + k;
        int row_stride = is_weight_sum ? 1 : stride;
        double& moment = arrays.moments[slice * plan.columns + k];
        double sum = first > 0 ? moment : 0.0;
        CEM_TETRIS_FOUR
        for (int r = slice; r < end; r += plan.slices) {
          double weight = is_weighted ? arrays.weight[r] : 1.0;
          sum += weight * column[r * row_stride];
        }
        moment = sum;
      }
    }
  }

  // Sets arrays.step to the step of the mean, equation (42) of Hansen's CMA-ES tutorial with
  // c_m = smoothing: the weighted mean of the elites minus the old mean, times the smoothing. A
  // dimension whose new mean would not be finite does not move.
  //
  // The sums over the elites come in plan.slices partial sums (arrays.moments), one column for
  // each dimension; column padded + kOne is the sum of the weights. The columns behind it, the
  // sums of the fitness and of all weights, are copied behind the step.
  CEM_TETRIS_DEVICE_FUNCTION void set_step() const {
    team.sync();
    for (int i = thread; i < padded + kExtraColumns; i += threads) {
      double sum = 0.0;
      double total = 0.0;  // the elites' weights
      for (int slice = 0; slice < plan.slices; ++slice) {
        const double* moments = arrays.moments + slice * plan.columns;
        sum += moments[i];
        total += moments[padded + kOne];
      }
      double mean_step = sum * (1.0 / total);
      double mean = double(old_mean[i < d ? i : 0]) + mean_step;
      bool moves = i < d && update::is_finite(mean);
      double smoothed_step = moves ? settings.smoothing * mean_step : 0.0;
      arrays.step[i] = i > padded + kOne ? sum : smoothed_step;
    }
    team.sync();
  }

  // Sets arrays.share[r] = c_mu w for the `count` candidates of the chunk: the factor of y y^T
  // in the new covariance, equation (47) of Hansen's CMA-ES tutorial, with y the candidate
  // minus the old mean. By equation (46), a negative weight w is first scaled by d / |L^-1
  // y|^2, so that a candidate far away cannot make the covariance indefinite; L is the Cholesky
  // factor of the old covariance.
  //
  // The threads of the team share `count` + 1 items. Item 0, which is left out unless
  // `with_step`, sets arrays.white = L^-1 step, the whitened step of the mean. The other items
  // are the candidates from the last rank on: negative weights, which take long, come first.
  CEM_TETRIS_DEVICE_FUNCTION void set_shares(int count, bool with_step) const {
    int first_item = with_step ? 0 : 1;
    for (int item = first_item + thread; item <= count; item += threads) {
      bool is_step = item == 0;
      int r = count - item;
      double w = is_step ? -1.0 : arrays.weight[r];
      double white[kMostDimensions];
      if (w < 0.0) {
        const double* y = is_step ? arrays.step : arrays.rows + r * stride;
        double squared_length = whiten(plan, arrays.lower, arrays.inverse_diagonal, y, white);
        double divisor = squared_length < kTiny ? kTiny : squared_length;
        w = w * d / divisor;
      }
      if (!is_step) arrays.share[r] = learning.c_mu * w;
      for (int i = 0; is_step && i < d; ++i) arrays.white[i] = white[i];
    }
    team.sync();
  }

  // Adds a chunk of `count` candidates to the sums of w y y^T in the new covariance, equation
  // (47) of Hansen's CMA-ES tutorial: y is a row of arrays.rows, a candidate minus the old
  // mean, and w is its share. `first` is the rank of the chunk's first candidate.
  //
  // A thread adds up one item, a 4 x 4 tile of the matrix for one slice of the candidates:
  // ranks slice, slice + plan.slices, and so on. In the first call there is one more slice,
  // which is L L^T with the old factor L: the sum of the products of L's columns with
  // themselves. Column r of L is zero above row r, so a tile needs no columns of L behind its
  // own last one.
  CEM_TETRIS_DEVICE_FUNCTION void add_products(int first, int count) const {
    int slices = plan.slices + (first == 0);
    for (int item = thread; item < slices * plan.tiles; item += threads) {
      int slice = item / plan.tiles;
      TileCorner corner(item - slice * plan.tiles);
      bool is_factor = slice == plan.slices;
      const double* rows = is_factor ? arrays.lower : arrays.rows;
      int tile_end = corner.across + kSide < d ? corner.across + kSide : d;
      int end = is_factor ? tile_end : count;
      int row_step = is_factor ? 1 : plan.slices;
      double* tile = arrays.sums + item * kTileStride;
      double sum[kCells];
      CEM_TETRIS_UNROLL
      for (int c = 0; c < kCells; ++c) sum[c] = first > 0 ? tile[c] : 0.0;
      for (int r = is_factor ? 0 : slice; r < end; r += row_step) {
        double w = is_factor ? 1.0 : arrays.share[r];
        Quad down = quad_at(rows + r * stride + corner.down);
        Quad across = quad_at(rows + r * stride + corner.across);
        CEM_TETRIS_UNROLL
        for (int c = 0; c < kCells; ++c)
          sum[c] += w * down.value[c / kSide] * across.value[c % kSide];
      }
      CEM_TETRIS_UNROLL
      for (int c = 0; c < kCells; ++c) tile[c] = sum[c];
    }
  }

  // Moves the two evolution paths of CMA-ES by equations (43) to (45) of Hansen's tutorial.
  // arrays.path is the path of the step size, arrays.long_path that of the covariance;
  // arrays.white is the whitened step of the mean, L^-1 step. While the first path is too long,
  // the step size grows fast, and the second path only decays (h_sigma = 0).
  //
  // Also sets step_ratio, the new step size divided by the old one, and factor_share, the share
  // of the old covariance in the new one. Group 0 (the first warp) does all this while the
  // other threads write the means; its lanes share the dimensions.
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

  // Writes the new mean, its average over the generations, the best candidate so far, the
  // indices of the elites and the problem's record. `order` lists all candidates, best first,
  // and `value` their fitness; the first `usable` of them did not fail. Rows of the
  // distribution are d numbers long. The loops begin with the last thread, because the first
  // ones are busy with move_paths().
  CEM_TETRIS_DEVICE_FUNCTION void write_means() const {
    double top = usable > 0 ? value[0] : 0.0;
    double known = call.job.record[problem * update::kFigures + update::kBestFitness];
    // Adding 0 turns -0 into 0, as in the record.
    bool is_new_best = usable > 0 && update::is_better(top + 0.0, known, settings.maximize);
    // The average moves by this share of the way to the new mean; 1 means no averaging.
    double mean_share = update::newest_share(settings, generation);
    for (int i = thread_from_last; i < d; i += threads) {
      T old_average = old_rows[update::kAveragedMean * d + i];
      double averaged = double(old_average);
      double mean = double(old_mean[i]) + arrays.step[i];
      bool moves = usable > 0 && update::is_finite(mean);
      double average = mean_share == 1.0 ? mean : averaged + (mean - averaged) * mean_share;
      new_rows[update::kMean * d + i] = moves ? update::rounded<T>(mean) : old_mean[i];
      new_rows[update::kAveragedMean * d + i] =
          moves ? update::rounded<T>(average) : old_average;
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

  // Replaces the old factor L in arrays.lower by the new covariance, equation (47) of Hansen's
  // CMA-ES tutorial, on and below the diagonal; also writes the new evolution paths.
  //
  // arrays.sums holds 4 x 4 tiles of sums: those over the candidates, in plan.slices slices,
  // and in one more slice the old L L^T. The rank-one term of the path arrays.long_path is
  // added, and the sum is scaled by the square of the new step size over the old one. A
  // variance (on the diagonal) then grows by the generation's extra variance, or by more where
  // the standard deviation would be below its floor. An item of the loop is one cell of one
  // tile.
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
        double missing = floors ? least_std * least_std - entry : extra;
        entry += missing > extra ? missing : extra;
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

  // Factorises the new covariance in arrays.lower in place, and returns whether it is positive
  // definite: whether every pivot of the elimination is positive and finite. The threads of a
  // team call it together, and all get the same answer.
  //
  // If it is, column k of arrays.lower times arrays.inverse_diagonal[k] is column k of the new
  // Cholesky factor, and arrays.step holds the standard deviations. team.eliminate() leaves
  // column k too large by the factor arrays.white[k], which the square root here takes out.
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

  // Writes the new standard deviations and the new Cholesky factor, row by row and with zeros
  // above the diagonal; or the old ones if the covariance could not be factorised. A dimension
  // without variance has a row of zeros. Column k of arrays.lower has yet to be multiplied by
  // arrays.inverse_diagonal[k]. team.table<4>() calls store(i, k, load(i, k)) for all entries,
  // spread over the threads of the team.
  CEM_TETRIS_DEVICE_FUNCTION void write_factor(bool is_factorised) const {
    for (int i = thread; i < d; i += threads) {
      new_rows[update::kStd * d + i] =
          is_factorised ? update::rounded<T>(arrays.step[i]) : old_rows[update::kStd * d + i];
    }
    auto load = [&](int i, int k) { return is_factorised ? T{0} : factor[i * d + k]; };
    auto store = [&](int i, int k, T old_entry) {
      bool is_nonzero = is_factorised && k <= i && arrays.variance[i] > 0.0;
      double entry =
          is_nonzero ? arrays.lower[k * stride + i] * arrays.inverse_diagonal[k] : 0.0;
      new_factor[i * d + k] = is_factorised ? update::rounded<T>(entry) : old_entry;
    };
    team.template table<4>(d, d, load, store);
  }
};

// Updates mean, step size, covariance and evolution paths of one problem (an entry of the
// batch) by one generation of CMA-ES. All threads of a team call it: those of a CUDA block, or
// one thread of a CPU.
//
// order, value: all candidates and their fitness, best first; the first `usable` did not fail.
// memory: scratch of call.plan.doubles() numbers that the team shares; a chunk of
// call.plan.chunk candidates at a time fits into it. What needs all candidates follows the last
// chunk.
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
