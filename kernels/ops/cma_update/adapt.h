// The update of CMA-ES for one problem, for host and device. op.py has the formulas; comments
// beside the code give their numbers in N. Hansen, The CMA Evolution Strategy: A Tutorial
// (arXiv:1604.00772). The code uses IEEE operations alone, and the order of a sum depends only
// on the sizes, so all devices get the same bits.
//
// A problem is one entry of the batch: one search with its own distribution and candidates. A
// team of threads works on it: one thread of a CPU (OneThread in cpu.h), or a block of CUDA
// threads (Block in launch.cuh). A team has `threads` threads, in `groups` groups of `lanes`
// threads; the groups of a CUDA block are its warps.
//
// The covariance is a weighted sum of products y y^T. The vectors y are the candidates minus
// the old mean, the columns of the old factor L, and the evolution path. The candidate of rank
// r belongs to slice r mod `slices`. A slice is added up in tiles of 4 x 4 numbers, and then
// the slices are added in order. The covariance is factorised as L D L^T, column by column.
// This form needs one division per step and no square root in its chain of dependent
// operations.
#pragma once

#include "cem_update/update.h"

// Unrolls a loop of unknown length by four.
#if defined(__CUDACC__)
#define CEM_TETRIS_UNROLL_4 _Pragma("unroll 4")
#else
#define CEM_TETRIS_UNROLL_4
#endif

namespace cem_tetris::cma {

using namespace update;  // CMA-ES extends the update of the cross-entropy method

constexpr int kMostDimensions = 64;    // the covariance of more does not fit into shared memory
constexpr int kMostCandidates = 2048;  // one block sorts all of them in shared memory
constexpr int kSide = 4;               // rows and columns of a tile of the covariance
constexpr int kCells = kSide * kSide;
constexpr int kTileStride = kCells + 1;  // sums of neighbouring tiles are in different banks
constexpr int kMostSlices = 8;
constexpr int kMostTiles = 240;      // of all slices: a block's threads add them up at once
constexpr double kTiny = 0x1p-1022;  // the least normal number

// Four neighbouring numbers, which one instruction loads or stores.
template <typename T>
struct alignas(kSide * sizeof(T) < 16 ? kSide * sizeof(T) : 16) Four {
  T value[kSide];
};
using Quad = Four<double>;

// The columns that follow the dimensions in a row: the constant 1, whose weighted sum is the
// sum of the elites' weights; the fitness; and, only in rows of sums, the sum of the weights of
// all candidates.
enum ExtraColumn { kOne, kFitness, kAllWeights, kExtraColumns };

// The sizes of a problem's memory.
struct Plan {
  int dimensions;
  int padded;   // dimensions, rounded up to a multiple of kSide
  int stride;   // from one row to the next: rows of eight threads are in different banks
  int tiles;    // tiles of 4 x 4 numbers on or below the diagonal
  int slices;   // partial sums over the candidates
  int columns;  // numbers of a vector: `padded`, then ExtraColumn
  int chunk;    // candidates in memory at once, a multiple of kMostSlices

  // Chooses the sizes of the scratch memory for `population` candidates of d dimensions.
  //
  // The covariance is cut into tiles of 4 x 4 numbers (kSide = 4); only the tiles on or below
  // the diagonal are computed. Every number is a sum over rows, which are the candidates and
  // the columns of the old factor. The sum is split into 1, 2, 4 or 8 partial sums, the slices.
  // More slices let more threads work, but cost memory. So their number is halved until all
  // slices together have at most kMostTiles tiles, and every slice adds up at least 8 rows.
  //
  // `chunk` is the number of candidates in memory at once: the population or `most_candidates`,
  // whichever is smaller, rounded up to a multiple of 8 (kMostSlices).
  Plan(int64_t d, int64_t population, int64_t most_candidates = 128)
      : dimensions(int(d)),
        padded(int(divide_up(d, kSide) * kSide)),
        stride(padded + 2),        // so that the rows of eight threads are in different banks
        columns(padded + 4) {      // room for ExtraColumn
    constexpr int kLeastRows = 8;  // a slice adds up at least this many rows
    int64_t tiles_across = padded / kSide;
    tiles = int(tiles_across * (tiles_across + 1) / 2);
    int64_t rows = population + d;
    slices = kMostSlices;
    while (slices > 1 && (slices * tiles > kMostTiles || slices * kLeastRows > rows))
      slices /= 2;
    int64_t candidates = std::min(population, most_candidates);
    chunk = int(divide_up(candidates, kMostSlices) * kMostSlices);
  }
  // Returns how many doubles the arrays of struct Arrays have together.
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
  // columns: the mean's step, then ExtraColumn
  double* step = rows + plan.chunk * plan.stride;
  double* std = step;  // the new standard deviations, which replace the step
  // columns: L^-1 step, then three numbers
  double* white = step + plan.columns;
  double* products = white;                     // see eliminate(); they replace L^-1 step
  double* path = white + plan.columns;          // columns: p
  double* long_path = path + plan.columns;      // columns: q
  double* variance = long_path + plan.columns;  // columns: the diagonal of the covariance
  double* inverse_diagonal = variance + plan.columns;  // columns: 1 / L_ii
  double* column_scale = inverse_diagonal;  // see set_column_scales(); it replaces 1 / L_ii
  // slices x columns: sums of the elites' weighted rows
  double* moments = inverse_diagonal + plan.columns;
  double* weight = moments + plan.slices * plan.columns;  // chunk: of a candidate
  double* share = weight + plan.chunk;                    // chunk: of the covariance
  // (slices + 1) x tiles x kTileStride: of products; the last slice is L's
  double* sums = share + plan.chunk;
};

// Constants that follow from the learning rates, in the notation of Hansen's tutorial.
struct Learning {
  double path_decay, path_gain;  // of p: 1 - c_s and sqrt(c_s (2 - c_s) mu_eff)
  double long_decay, long_gain;  // of q: the same of c_c
  double damping;                // c_s / d_s
  double inverse_chi;            // 1 / E|N(0, I)|
  double c_1, c_mu;
  // The additional weight of the old covariance while q does not move: c_1 c_c (2 - c_c).
  double stalled;
  // q moves while |p|^2 is below this limit; path_warmup scales it down in early generations.
  double longest_squared;
};

// The arguments of a call: those of cem_update (job), and those of CMA-ES.
struct Call {
  Job job;
  Learning learning;
  Plan plan;
  const void* factor;
  const void* paths;
  void* new_factor;
  void* new_paths;
};

// Returns e^x, by which the step size is multiplied. If x is -700 or less, the result is 0. If
// x is NaN, the result is NaN. Callers pass no x above 1.
//
// x is written as k log(2) + r with an integer k and |r| <= log(2) / 2. Then e^x is 2^k e^r,
// and e^r is the Taylor series up to r^14. log(2) is the sum of two constants, and k times the
// first of them is exact. So r keeps its last bits.
CEM_TETRIS_FUNCTION double exponential(double x) {
  if (!(x > -700.0)) return x < 0.0 ? 0.0 : x;  // every comparison with NaN is false
  double k = floor(x * 0x1.71547652b82fep+0 + 0.5);
  double r = x - k * 0x1.62e42fee00000p-1 - k * 0x1.a39ef35793c76p-33;
  double sum = polynomial(r, 1.0 / 87178291200, 1.0 / 6227020800, 1.0 / 479001600,
      1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
      1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0);
  // The exponent's bits of 2^k as a double are k + 1023, and begin at bit 52.
  return sum * bit_cast<double>(uint64_t(int64_t(k) + 1023) << 52);
}

// Returns base^exponent by repeated squaring.
CEM_TETRIS_FUNCTION double power(double base, int64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if (exponent & 1) result *= base;
  }
  return result;
}

// Loads four numbers at once. Their address is a multiple of alignof(Quad).
CEM_TETRIS_FUNCTION Quad quad_at(const double* memory) {
  return *reinterpret_cast<const Quad*>(memory);
}

// Solves L white = y for `white` by forward substitution, row by row:
//
//     white[i] = (y[i] - the sum over j < i of L(i, j) white[j]) / L(i, i).
//
// Returns |white|^2, the squared Mahalanobis length of y under the covariance L L^T. One thread
// computes the whole solution.
//
// L is lower triangular with plan.padded rows and columns, a multiple of 4 (kSide); y and
// `white` have plan.padded numbers. L(i, j) is lower[j * plan.stride + i], and 1 / L(i, i) is
// inverse_diagonal[i].
//
// The function computes four rows of the solution at a time. `rest` begins as these rows of y.
// First the products of the columns to the left with the known part of `white` are subtracted
// from it. Then the 4 x 4 triangle on the diagonal is solved.
CEM_TETRIS_FUNCTION double whiten(const Plan& plan, const double* lower,
    const double* inverse_diagonal, const double* y, double* white) {
  double squared_length = 0.0;
  for (int first = 0; first < plan.padded; first += kSide) {
    Quad rest = quad_at(y + first);
    CEM_TETRIS_UNROLL_4
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
      // Subtract L(first + below, i) x from the rows below, which are not solved yet.
      CEM_TETRIS_UNROLL
      for (int below = c + 1; below < kSide; ++below)
        rest.value[below] -= x * lower[i * plan.stride + first + below];
    }
  }
  return squared_length;
}

// Returns a slightly larger variance. If there are too few elites, the covariance is singular
// and could not be factorised without this.
CEM_TETRIS_FUNCTION double inflated(double variance) {
  return variance + (1e-12 * variance + kTiny);
}

// A pivot x of the elimination, split into mantissa / scale, where 1 <= mantissa < 2 and scale
// is a power of two. A division by x would take longer than the rest of a step. Instead, the
// elimination of a column multiplies the later columns by the mantissa. A multiplication by the
// scale is exact.
struct Pivot {
  double mantissa, scale;
  CEM_TETRIS_FUNCTION explicit Pivot(double x) {
    // The exponent of a double has 11 bits, from bit 52 on, and is 1023 for 1.0. 2046 - e is
    // the exponent of 1 / 2^(e - 1023).
    constexpr uint64_t kExponent = 0x7ff;
    uint64_t bits = bit_cast<uint64_t>(x);
    mantissa = bit_cast<double>((bits & ~(kExponent << 52)) | uint64_t{1023} << 52);
    scale = bit_cast<double>((2046 - (bits >> 52 & kExponent)) << 52);
  }
};

// The first column (`across`) and the first row (`down`) of a tile of the covariance. The tiles
// on or below the diagonal are numbered row by row: 0 | 1 2 | 3 4 5 | ...
struct TileCorner {
  int across = 0, down = 0;
  CEM_TETRIS_FUNCTION explicit TileCorner(int tile) {
    for (; tile > down; tile -= ++down) {
    }
    across = tile * kSide;
    down *= kSide;
  }
};

// One thread of a team that updates one problem. Its methods are the phases of the update, in
// the order in which adapt() calls them.
template <typename T, typename Team>
struct Adaptation {
  const Team& team;
  const Call& call;
  const int64_t problem;
  const uint16_t* order;       // the indices of all candidates, from best to worst
  const double* value;         // value[r] is the fitness of candidate order[r]
  const int valid_candidates;  // how many candidates did not fail
  const Arrays arrays;

  const Settings& settings = call.job.settings;
  const Learning& learning = call.learning;
  const Plan& plan = call.plan;
  int d = plan.dimensions;
  int padded = plan.padded;
  int stride = plan.stride;
  int thread = team.thread;
  int threads = team.threads;
  // The thread's number, counted from the last thread. A short loop that starts at `thread`
  // leaves the last threads idle; a second loop that starts at this number gives them work.
  int thread_from_last = threads - 1 - thread;
  int elites = int(settings.elites);
  int valid_elites =
      valid_candidates < elites ? valid_candidates : elites;  // how many elites did not fail
  int64_t generation = *call.job.generation;

  // The rows of a distribution are those of enum Row. Row i of L begins at factor + i * d.
  // `paths` holds the path p of the step size, then the path q of the covariance.
  const T* old_rows = of_problem(call.job.distribution, kRows* d);
  const T* old_mean = old_rows + kMean * d;
  const T* factor = of_problem(call.factor, d* d);
  const T* paths = of_problem(call.paths, 2 * d);
  const T* candidates = of_problem(call.job.candidates, settings.population* d);
  T* new_rows = static_cast<T*>(call.job.new_distribution) + problem * kRows * d;
  T* new_factor = static_cast<T*>(call.new_factor) + problem * d * d;
  T* new_paths = static_cast<T*>(call.new_paths) + problem * 2 * d;

  // Three numbers that the team shares; they are stored behind L^-1 step. In generation t,
  // path_warmup is 1 - (1 - c_s)^(2 (t + 1)): the path p begins at 0, and this is the fraction
  // of its long-term squared length that it has on average.
  double& path_warmup = arrays.white[padded];
  double& step_ratio = arrays.white[padded + 1];    // the new step size / the old one
  double& factor_share = arrays.white[padded + 2];  // weight of L L^T in the new covariance

  // Returns the part of a tensor that belongs to this problem. Every problem has `size`
  // numbers.
  CEM_TETRIS_DEVICE_FUNCTION const T* of_problem(const void* data, int64_t size) const {
    return static_cast<const T*>(data) + problem * size;
  }

  // Loads the state of the search into the team's memory. All threads of the team call the
  // function and share the work; the caller's next team.sync() makes the result visible to all.
  // The d dimensions are padded with zeros to `padded` dimensions. The function sets:
  //
  // - arrays.lower, the Cholesky factor L of the covariance: the rows of `factor` become
  //   columns;
  // - arrays.inverse_diagonal, the numbers 1 / L_ii;
  // - arrays.path and arrays.long_path, the two evolution paths;
  // - path_warmup, the fraction of its long-term squared length that the path p has on average
  //   in this generation.
  //
  // team.copy_matrix<4>() calls store(i, k, load(i, k)) for every entry (i, k). A thread has
  // four loads in flight.
  CEM_TETRIS_DEVICE_FUNCTION void load_state() const {
    // The numbers above the diagonal and in the padding are 0.
    auto load = [&](int i, int k) { return k <= i && i < d ? factor[i * d + k] : T{0}; };
    auto store = [&](int i, int k, T x) { arrays.lower[k * stride + i] = double(x); };
    team.template copy_matrix<4>(padded, padded, load, store);
    for (int i = thread_from_last; i < padded; i += threads) {
      double diagonal = i < d ? double(factor[i * d + i]) : 0.0;
      // L_ii is 0 if dimension i does not vary. No result depends on the divisor then, so it
      // only has to be nonzero.
      double divisor = diagonal == 0.0 ? 1.0 : diagonal;
      arrays.path[i] = i < d ? double(paths[i]) : 0.0;
      arrays.long_path[i] = i < d ? double(paths[d + i]) : 0.0;
      arrays.inverse_diagonal[i] = 1.0 / divisor;
    }
    if (thread == 0) path_warmup = 1.0 - power(learning.path_decay, 2 * (generation + 1));
  }

  // Loads the candidates of ranks `first` to `first` + `count` - 1 (a chunk) into arrays.rows.
  // Rank 0 is the best candidate. Row r of the chunk is the candidate of rank `first` + r minus
  // the old mean, padded with zeros from d to `padded` numbers. Two more columns follow: the
  // constant 1 and the fitness. arrays.weight[r] is the candidate's recombination weight.
  //
  // All threads of the team call the function and share the work. team.copy_matrix<8>() calls
  // store(r, k, load(r, k)) for every row r and column k. A thread has eight loads in flight.
  CEM_TETRIS_DEVICE_FUNCTION void load_rows(int first, int count) const {
    auto load = [&](int r, int k) {
      return k < d ? candidates[order[first + r] * d + k] : T{0};
    };
    auto store = [&](int r, int k, T x) {
      arrays.rows[r * stride + k] = k < d ? double(x) - double(old_mean[k]) : 0.0;
    };
    team.template copy_matrix<8>(count, padded, load, store);
    for (int r = thread; r < count; r += threads) {
      double* extra = arrays.rows + r * stride + padded;
      arrays.weight[r] = call.job.weights[first + r];
      extra[kOne] = 1.0;
      extra[kFitness] = value[first + r];
    }
    // The next phases read rows that other threads have loaded.
    team.sync();
  }

  // Adds the candidates of ranks `first` to `first` + `count` - 1 (a chunk) to the sums in
  // arrays.moments. Row r of arrays.rows is the candidate of rank `first` + r, and there is one
  // sum over the elites for each of its columns k:
  //
  // - k < d: the weighted sum of the candidates minus the old mean, in dimension k;
  // - k = padded + kOne: the weighted sum of the constant 1, that is, the sum of the weights;
  // - k = padded + kFitness: the sum of the fitness, not weighted.
  //
  // The last sum, k = padded + kAllWeights, is over all candidates: the sum of their weights.
  //
  // Every sum is split into plan.slices partial sums: row r of a chunk belongs to slice r %
  // plan.slices. set_step() adds up the slices. A group of threads (a warp) works on one slice
  // at a time, and each of its lanes on one column.
  CEM_TETRIS_DEVICE_FUNCTION void add_moments(int first, int count) const {
    for (int slice = team.group; slice < plan.slices; slice += team.groups) {
      for (int k = team.lane; k < padded + kExtraColumns; k += team.lanes) {
        bool is_weight_sum = k == padded + kAllWeights;
        bool is_weighted = k <= padded + kOne;
        // The rows are ordered by rank, so the elites come first, and the loop ends at the last
        // elite of the chunk. Only the sum of all weights includes the other candidates, too.
        int elites_left = valid_elites - first;
        int end = is_weight_sum || elites_left > count ? count : elites_left;
        // In row r, the number to add is column[r * row_stride].
        const double* column = is_weight_sum ? arrays.weight : arrays.rows + k;
        int row_stride = is_weight_sum ? 1 : stride;
        double& moment = arrays.moments[slice * plan.columns + k];
        double sum = first > 0 ? moment : 0.0;  // continues the sum of the earlier chunks
        CEM_TETRIS_UNROLL_4
        for (int r = slice; r < end; r += plan.slices) {
          double weight = is_weighted ? arrays.weight[r] : 1.0;
          sum += weight * column[r * row_stride];
        }
        moment = sum;
      }
    }
  }

  // Sets arrays.step to the step of the mean, equation (42) of Hansen's CMA-ES tutorial with
  // c_m = smoothing: the weighted mean of the elites minus the old mean, times the smoothing.
  // In a dimension whose new mean would not be finite, the step is 0.
  //
  // All threads of the team call the function when add_moments() has added the last chunk.
  // arrays.moments then holds plan.slices partial sums of every column. Column i < d is
  // dimension i, and column padded + kOne is the sum of the elites' weights. Two more columns
  // are the sums of the fitness and of all weights. Their partial sums are only added up, and
  // stored in the same columns of arrays.step, as fitness_sum and weight_sum.
  CEM_TETRIS_DEVICE_FUNCTION void set_step() const {
    team.sync();  // The partial sums of all threads are complete.
    for (int i = thread; i < padded + kExtraColumns; i += threads) {
      double sum = 0.0;
      double total = 0.0;  // the sum of the elites' weights
      for (int slice = 0; slice < plan.slices; ++slice) {
        const double* moments = arrays.moments + slice * plan.columns;
        sum += moments[i];
        total += moments[padded + kOne];
      }
      double mean_step = sum * (1.0 / total);
      // A column from d on is no dimension. It reads the mean of dimension 0, which has no
      // effect, because `moves` is false.
      double mean = double(old_mean[i < d ? i : 0]) + mean_step;
      bool moves = i < d && is_finite(mean);
      double smoothed_step = moves ? settings.smoothing * mean_step : 0.0;
      bool is_plain_sum = i > padded + kOne;  // of the fitness or of all weights
      arrays.step[i] = is_plain_sum ? sum : smoothed_step;
    }
    team.sync();  // One thread will read the whole step in set_shares().
  }

  // Sets arrays.share[r], the factor of y y^T in the new covariance, for the `count` candidates
  // of a chunk. y is row r of arrays.rows, the candidate minus the old mean, and w is its
  // weight. By equations (46) and (47) of Hansen's CMA-ES tutorial,
  //
  //     share[r] = c_mu w                     if w >= 0,
  //     share[r] = c_mu w d / |L^-1 y|^2      if w < 0,
  //
  // so that a candidate far from the mean cannot make the covariance indefinite. L is the old
  // Cholesky factor, and d the number of dimensions.
  //
  // If `with_step` is true, the function also sets arrays.white = L^-1 step, the whitened step
  // of the mean.
  //
  // All threads of the team call the function and share `count` + 1 items: item 0 is the step,
  // item n the candidate in row `count` - n. So the last rows come first: they have negative
  // weights, and take the longest, because whiten() solves a triangular system for each.
  CEM_TETRIS_DEVICE_FUNCTION void set_shares(int count, bool with_step) const {
    int first_item = with_step ? 0 : 1;
    for (int item = first_item + thread; item <= count; item += threads) {
      bool is_step = item == 0;
      int r = count - item;
      // The step has no weight. It gets a negative one, so that it is whitened, too.
      double w = is_step ? -1.0 : arrays.weight[r];
      double white[kMostDimensions];
      if (w < 0.0) {
        const double* y = is_step ? arrays.step : arrays.rows + r * stride;
        double squared_length = whiten(plan, arrays.lower, arrays.inverse_diagonal, y, white);
        double divisor = squared_length < kTiny ? kTiny : squared_length;
        w = w * d / divisor;
      }
      if (!is_step) arrays.share[r] = learning.c_mu * w;
      // Only the thread that has whitened the step runs this loop.
      for (int i = 0; is_step && i < d; ++i) arrays.white[i] = white[i];
    }
    team.sync();  // add_products() reads the shares of all candidates.
  }

  // Adds a chunk of `count` candidates to the sums of w y y^T in the new covariance, equation
  // (47) of Hansen's CMA-ES tutorial. y is a row of arrays.rows, a candidate minus the old
  // mean, and w is the candidate's share. `first` is the rank of the chunk's first candidate.
  //
  // All threads of the team call the function and share the items. An item is the sum of one 4
  // x 4 tile of the matrix over one slice of the chunk: its rows slice, slice + plan.slices,
  // and so on.
  //
  // The first call has one more slice for the old covariance L L^T, which is the sum of l l^T
  // over the columns l of the old factor L. Column r of L is zero above row r. A tile therefore
  // needs only the columns of L up to its own last column.
  CEM_TETRIS_DEVICE_FUNCTION void add_products(int first, int count) const {
    bool is_first_chunk = first == 0;
    int slices = plan.slices + is_first_chunk;
    for (int item = thread; item < slices * plan.tiles; item += threads)
      add_tile(item, first, count);
  }

  // Adds the products w y y^T of one slice of a chunk to one 4 x 4 tile of the covariance.
  // `item` is slice * plan.tiles + tile. `first` is the rank of the chunk's first candidate,
  // and `count` the number of its candidates. One thread computes the tile. Cell c is in row
  // c / 4 and column c % 4 (kSide = 4), and its sum is
  //
  //     sum over the rows r of the slice: w y[corner.down + c / 4] y[corner.across + c % 4].
  //
  // y is row r of arrays.rows, a candidate minus the old mean, and w is arrays.share[r]. In the
  // slice for the old covariance L L^T (is_factor), y is column r of L, and w is 1. Column r is
  // 0 above row r, so only the columns up to the tile's last column are added.
  CEM_TETRIS_DEVICE_FUNCTION void add_tile(int item, int first, int count) const {
    int slice = item / plan.tiles;
    TileCorner corner(item - slice * plan.tiles);
    bool is_factor = slice == plan.slices;
    const double* rows = is_factor ? arrays.lower : arrays.rows;
    int tile_end = corner.across + kSide < d ? corner.across + kSide : d;
    int end = is_factor ? tile_end : count;
    int row_step = is_factor ? 1 : plan.slices;
    double* tile = arrays.sums + item * kTileStride;
    double sum[kCells];
    // The first chunk begins a new sum, and a later one (first > 0) continues it.
    CEM_TETRIS_UNROLL
    for (int c = 0; c < kCells; ++c) sum[c] = first > 0 ? tile[c] : 0.0;
    // Add every column of L up to `end`, or every row of the slice.
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

  // Updates the two evolution paths of CMA-ES by equations (43) to (45) of Hansen's tutorial.
  // arrays.path is the path of the step size, and arrays.long_path the path of the covariance.
  // arrays.white holds L^-1 step, the whitened step of the mean. If the step size is far too
  // small, its path becomes long. Then h_sigma is false: the path of the covariance does not
  // follow the step but only decays, while the step size grows fast.
  //
  // Also sets step_ratio, the new step size divided by the old one, and factor_share, the
  // weight of the old covariance in the new one. The latter depends on the sum of the weights
  // of all candidates, which is stored behind the step: arrays.step[padded + kAllWeights].
  //
  // Only group 0 (the first warp) does this, and its lanes share the dimensions. The other
  // groups return at once and go on to write_means_and_elites().
  CEM_TETRIS_DEVICE_FUNCTION void move_paths() const {
    if (team.group != 0 || valid_candidates == 0) return;
    for (int i = team.lane; i < d; i += team.lanes) {
      arrays.path[i] =
          learning.path_decay * arrays.path[i] + learning.path_gain * arrays.white[i];
    }
    team.sync_lanes();
    double squared_length = 0.0;
    CEM_TETRIS_UNROLL_4
    for (int i = 0; i < d; ++i) squared_length += arrays.path[i] * arrays.path[i];
    // The path begins at 0. path_warmup lowers the limit in the first generations, in which the
    // path is therefore short.
    bool h_sigma = squared_length < learning.longest_squared * path_warmup;
    for (int i = team.lane; i < d; i += team.lanes) {
      arrays.long_path[i] = learning.long_decay * arrays.long_path[i] +
                            (h_sigma ? learning.long_gain * arrays.step[i] : 0.0);
    }
    if (team.lane == 0) {
      // inverse_chi is 1 / the expected length of a standard normal vector.
      double exponent = learning.damping * (sqrt(squared_length) * learning.inverse_chi - 1.0);
      // The step size grows at most by the factor e in a generation.
      step_ratio = exponential(exponent > 1.0 ? 1.0 : exponent);
      factor_share = 1.0 - learning.c_1 - learning.c_mu * arrays.step[padded + kAllWeights] +
                     (h_sigma ? 0.0 : learning.stalled);
    }
  }

  // Writes the results that do not depend on the new covariance:
  //
  // - the new mean, its average over the generations, and the best candidate so far;
  // - the indices of the elites, the best one first;
  // - the record of the problem.
  //
  // order[r] is the index of the candidate of rank r, and value[r] its fitness. Rank 0 is the
  // best candidate. The candidates of the ranks from valid_candidates on have failed.
  //
  // All threads of the team call the function and share the work. The first threads come later,
  // because they still execute move_paths(). So the work is given to the last threads first:
  // thread_from_last is 0 for the last thread.
  CEM_TETRIS_DEVICE_FUNCTION void write_means_and_elites() const {
    double best_fitness = valid_candidates > 0 ? value[0] : 0.0;
    write_means(best_fitness);
    for (int rank = thread_from_last; rank < elites; rank += threads) {
      call.job.elites[problem * elites + rank] = order[rank];
    }
    if (thread_from_last == 0) {
      double worst_fitness = valid_candidates > 0 ? value[valid_elites - 1] : 0.0;
      double fitness_sum = arrays.step[padded + kFitness];  // stored there by set_step()
      write_record(call.job, problem, valid_elites, best_fitness, fitness_sum, worst_fitness,
          generation);
    }
    team.sync();  // Until move_paths() has ended: set_covariance() reads its results.
  }

  // Writes three rows of the new distribution, d numbers each: the new mean, its average over
  // the generations, and the best candidate so far. best_fitness is the fitness of this
  // generation's best candidate.
  CEM_TETRIS_DEVICE_FUNCTION void write_means(double best_fitness) const {
    double best_known = call.job.record[problem * kFigures + kBestFitness];
    // Adding 0 turns -0 into 0. write_record() does so, too, and both have to agree on whether
    // there is a new best candidate.
    bool is_new_best =
        valid_candidates > 0 && is_better(best_fitness + 0.0, best_known, settings.maximize);
    // The weight of the new mean in the averaged mean; 1 means no averaging.
    double mean_share = newest_share(settings, generation);
    for (int i = thread_from_last; i < d; i += threads) {
      T stored_average = old_rows[kAveragedMean * d + i];
      double old_average = double(stored_average);  // computed in double, stored as T
      double mean = double(old_mean[i]) + arrays.step[i];
      bool is_updated = valid_candidates > 0 && is_finite(mean);
      double average =
          mean_share == 1.0 ? mean : old_average + (mean - old_average) * mean_share;
      new_rows[kMean * d + i] = is_updated ? rounded<T>(mean) : old_mean[i];
      new_rows[kAveragedMean * d + i] = is_updated ? rounded<T>(average) : stored_average;
      new_rows[kBest * d + i] =
          is_new_best ? candidates[order[0] * d + i] : old_rows[kBest * d + i];
    }
  }

  // Writes the new covariance, equation (47) of Hansen's CMA-ES tutorial, to arrays.lower, on
  // and below the diagonal. It replaces the old factor L. Also writes the new evolution paths.
  // With the path q in arrays.long_path, the new covariance is
  //
  //     step_ratio^2 (factor_share L L^T + the sum of share[r] y y^T + c_1 q q^T).
  //
  // The sum is over the candidates. y is a candidate minus the old mean, and set_shares() has
  // computed its factor share[r].
  //
  // Then the generation's extra variance is added to the diagonal, or more, if the standard
  // deviation would be below its floor otherwise.
  //
  // All threads of the team call the function and share the cells of the 4 x 4 tiles (kSide =
  // 4). Entry (i, k) of the covariance is lower[k * stride + i]. If all candidates failed,
  // there is no new covariance, and the loop does not run.
  CEM_TETRIS_DEVICE_FUNCTION void set_covariance() const {
    const T* floors =
        call.job.floors ? of_problem(call.job.floors, settings.floor_stride) : nullptr;
    double scale = step_ratio * step_ratio;
    double extra = extra_variance_of(call.job, generation);
    for (int item = thread; valid_candidates > 0 && item < plan.tiles * kCells;
        item += threads) {
      int tile = item / kCells;
      int cell = item % kCells;
      TileCorner corner(tile);
      int i = corner.down + cell / kSide;
      int k = corner.across + cell % kSide;
      if (i >= d || k > i) continue;  // beyond the matrix, or above the diagonal
      double entry = sum_of_products(tile, cell);
      entry = (entry + learning.c_1 * arrays.long_path[i] * arrays.long_path[k]) * scale;
      if (i == k) {
        double least_std = floors ? double(floors[i]) : 0.0;
        // The variance that is missing to the floor; negative if `entry` is above the floor.
        double missing = floors ? least_std * least_std - entry : extra;
        entry += missing > extra ? missing : extra;
        arrays.variance[i] = entry;
        entry = inflated(entry);
      }
      arrays.lower[k * stride + i] = entry;
    }
    write_paths();
    team.sync();  // factorise() reads the entries that all threads have written.
  }

  // Returns the sum of the products of the candidates in one cell of a tile, plus factor_share
  // times the old covariance L L^T. arrays.sums holds a partial sum for each slice of the
  // candidates, and then L L^T as one more slice.
  CEM_TETRIS_DEVICE_FUNCTION double sum_of_products(int tile, int cell) const {
    auto cell_sum = [&](int slice) {
      return arrays.sums[(slice * plan.tiles + tile) * kTileStride + cell];
    };
    double sum = 0.0;
    for (int slice = 0; slice < plan.slices; ++slice) sum += cell_sum(slice);
    return sum + factor_share * cell_sum(plan.slices);
  }

  // Writes the new evolution paths: p to new_paths[0] to new_paths[d - 1], and q after it. q
  // contains the step size as a factor, and so is multiplied by step_ratio. If all candidates
  // failed, or a number is not finite, the old number is written.
  CEM_TETRIS_DEVICE_FUNCTION void write_paths() const {
    for (int i = thread_from_last; i < 2 * d; i += threads) {
      double x = i < d ? arrays.path[i] : step_ratio * arrays.long_path[i - d];
      new_paths[i] = valid_candidates > 0 && is_finite(x) ? rounded<T>(x) : paths[i];
    }
  }

  // Factorises the new covariance in arrays.lower in place, and computes the new standard
  // deviations. Returns whether the covariance is positive definite. If all candidates failed,
  // there is no new covariance, and the function returns false.
  //
  // All threads of the team call the function and get the same result. If the result is true,
  // column k of the new Cholesky factor is column k of arrays.lower times column_scale[k].
  CEM_TETRIS_DEVICE_FUNCTION bool factorise() const {
    if (valid_candidates > 0) team.eliminate(plan, arrays.lower, arrays.products);
    bool is_positive = set_column_scales();
    set_stds();
    return team.all(is_positive);
  }

  // Sets arrays.column_scale, the factors that turn the columns of arrays.lower into those of
  // the new Cholesky factor. Returns whether the pivots of this thread's columns are positive
  // and finite.
  //
  // The covariance is L D L^T. eliminate() has left L D in arrays.lower, but has multiplied
  // column k by products[k]. The diagonal of L is 1, so the diagonal of arrays.lower holds
  //
  //     pivot_k = products[k] D_kk.
  //
  // The Cholesky factor is L sqrt(D). Its column k is column k of arrays.lower times
  //
  //     column_scale[k] = sqrt(D_kk) / (products[k] D_kk) = 1 / sqrt(pivot_k products[k]).
  CEM_TETRIS_DEVICE_FUNCTION bool set_column_scales() const {
    bool is_positive = valid_candidates > 0;
    for (int k = thread; k < d && valid_candidates > 0; k += threads) {
      double pivot = arrays.lower[k * stride + k];
      is_positive = is_positive && pivot > 0.0 && is_finite(pivot);
      arrays.column_scale[k] = 1.0 / sqrt(pivot * arrays.products[k]);
    }
    return is_positive;
  }

  // Sets arrays.std, the new standard deviations. The last threads of the team compute them,
  // because set_column_scales() keeps the first threads busy.
  CEM_TETRIS_DEVICE_FUNCTION void set_stds() const {
    for (int i = thread_from_last; i < d && valid_candidates > 0; i += threads) {
      double variance = arrays.variance[i];
      arrays.std[i] = variance > 0.0 ? sqrt(inflated(variance)) : 0.0;
    }
  }

  // Writes the new standard deviations and the new Cholesky factor, row by row and with zeros
  // above the diagonal. If `is_factorised` is false, the covariance could not be factorised;
  // the function then writes the old standard deviations and the old factor.
  //
  // Column k of the new factor is column k of arrays.lower times arrays.column_scale[k]. A
  // dimension without variance gets a row of zeros.
  //
  // All threads of the team call the function and share the entries. team.copy_matrix<4>()
  // calls store(i, k, load(i, k)) for every entry (i, k); load() is for the old factor alone.
  CEM_TETRIS_DEVICE_FUNCTION void write_factor(bool is_factorised) const {
    for (int i = thread; i < d; i += threads) {
      new_rows[kStd * d + i] =
          is_factorised ? rounded<T>(arrays.std[i]) : old_rows[kStd * d + i];
    }
    auto load = [&](int i, int k) { return is_factorised ? T{0} : factor[i * d + k]; };
    auto store = [&](int i, int k, T old_entry) {
      bool is_nonzero = is_factorised && k <= i && arrays.variance[i] > 0.0;
      double entry = is_nonzero ? arrays.lower[k * stride + i] * arrays.column_scale[k] : 0.0;
      new_factor[i * d + k] = is_factorised ? rounded<T>(entry) : old_entry;
    };
    team.template copy_matrix<4>(d, d, load, store);
  }
};

// Updates mean, step size, covariance and evolution paths of one problem (batch entry) by one
// generation of CMA-ES. All threads of a team call the function. A team is a CUDA block or a
// single CPU thread.
//
// order[r] is the index of the candidate of rank r, and value[r] its fitness. Rank 0 is the
// best candidate. The candidates of the ranks from valid_candidates on have failed. If all have
// failed, the new state is a copy of the old one.
//
// `memory` is scratch memory of call.plan.doubles() doubles that the team shares. It has room
// for the rows of call.plan.chunk candidates. Therefore the loop loads the candidates in
// chunks, and adds each chunk to the sums over all candidates.
template <typename T, typename Team>
CEM_TETRIS_DEVICE_FUNCTION void adapt(const Team& team, const Call& call, int64_t problem,
    const uint16_t* order, const double* value, int valid_candidates, double* memory) {
  const Adaptation<T, Team> adaptation{
      team, call, problem, order, value, valid_candidates, {call.plan, memory}};
  adaptation.load_state();
  for (int first = 0; first < valid_candidates; first += call.plan.chunk) {
    int count =
        valid_candidates - first < call.plan.chunk ? valid_candidates - first : call.plan.chunk;
    bool is_last = first + count == valid_candidates;
    // All threads must have finished with the previous chunk before its rows are overwritten.
    if (first > 0) team.sync();
    adaptation.load_rows(first, count);
    adaptation.add_moments(first, count);
    // The last chunk completes the moments, from which the step of the mean is computed.
    if (is_last) adaptation.set_step();
    // A candidate's share is the factor of its product y y^T in the new covariance. It depends
    // on L^-1 y, where L is the factor of the old covariance L L^T. The step of the mean is
    // multiplied by L^-1, too. That happens here, because one thread does it for the step while
    // others do it for the candidates.
    adaptation.set_shares(count, /*with_step=*/is_last);
    adaptation.add_products(first, count);
  }
  team.sync();  // The phases below read the sums of all threads.
  adaptation.move_paths();
  adaptation.write_means_and_elites();
  adaptation.set_covariance();
  bool is_factorised = adaptation.factorise();
  adaptation.write_factor(is_factorised);
}

}  // namespace cem_tetris::cma
