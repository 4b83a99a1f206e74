// The update on the CPU.
//
// First every problem selects its elites, by a bisection for the key of the last one, then
// every tile of kTile dimensions of a problem adds them up, in the order of update.h. Threads
// share the problems, then the tiles; no sum depends on their number.
#pragma once

#include <limits>
#include <vector>

#include "arguments.h"

namespace cem_tetris::update {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements that are worth a thread

// What selection leaves for the sums of a problem.
struct Selection {
  int64_t usable = 0, best = 0;  // the elites that did not fail, and the index of the best one
  bool is_new_best = false;      // the best one is better than the best candidate so far
  Weight weight{};
};

// Calls function(begin, end) for ranges of items that together cover 0 to `items` - 1, on as
// many threads as the work is worth. item_cost: the work of an item, in elements read.
template <typename F>
void share(int64_t items, int64_t item_cost, const F& function) {
  // A parallel loop of one thread costs more than a call.
  if (items * item_cost <= kGrain) return function(0, items);
  int64_t grain = kGrain / std::max<int64_t>(item_cost, 1);
  parallel_for(0, items, std::max<int64_t>(1, grain), function);
}

// Returns the fitness of a problem's candidates.
template <typename Type>
const typename Type::Bits* fitness_of(const Job& job, int64_t problem) {
  return static_cast<const typename Type::Bits*>(job.fitness) +
         problem * job.settings.population;
}

// Returns the candidates of a problem as pairs of key and index, best first; of equal keys, the
// lower index first.
template <typename Type>
std::vector<std::pair<typename Type::Key, int64_t>> ranking(const Job& job, int64_t problem) {
  std::vector<std::pair<typename Type::Key, int64_t>> ranked(job.settings.population);
  const auto* fitness = fitness_of<Type>(job, problem);
  for (size_t i = 0; i < ranked.size(); ++i) {
    ranked[i] = {Type::key(fitness[i], job.settings.maximize), i};
  }
  std::sort(ranked.begin(), ranked.end());
  return ranked;
}

// A call's tensors, and what select() passes on to update(): the list of elites of each
// problem, by place, and their weights. A problem is one entry of the batch.
struct Work : Job {
  std::vector<int64_t> index;  // K + 1 places a problem
  std::vector<double> weight;  // of each place, where there are weights
  std::vector<Selection> selection;

  explicit Work(const Job& job)
      : Job(job),
        index(settings.problems * places()),
        weight(weights ? settings.problems * places() : 0),
        selection(settings.problems) {}
  int64_t places() const { return settings.elites + 1; }
  const double* weights_of(int64_t problem) const {
    return weights ? weight.data() + problem * places() : nullptr;
  }
};

// Selects the elites of one problem. Places 0 to K - 1 hold those that did not fail in index
// order, then the first ones that did.
template <typename Key>
class Selector {
 public:
  std::vector<Key> keys;
  std::vector<int64_t> rank;  // of each place, where set_ranks was called
  int64_t usable = 0, best = 0;

  Selector(int64_t population, int64_t wanted)
      : keys(population), rank(wanted), wanted_(wanted) {}

  // Selects the elites, the `wanted_` candidates with the smallest keys, and writes their
  // indices to `index`: in index order, followed by the first candidates that failed, if too
  // few did not fail. Also sets `usable`, the number of elites that did not fail, and `best`,
  // the index of the best candidate.
  //
  // keys[i] is the key of candidate i, an unsigned integer; a smaller key is better. If
  // can_fail is true, the largest key marks a candidate that failed, whose fitness is NaN or
  // infinitely bad; a fitness of integers cannot fail. `index` has one place more than there
  // are elites, which is scratch.
  void select(bool can_fail, int64_t* index) {
    Key least = ~Key(0);
    Key most = 0;      // the largest key that did not fail
    Key failures = 0;  // the population is below 2^31
    for (Key key : keys) {
      bool failed = can_fail && key == kFailed;
      least = std::min(least, key);
      most = std::max(most, failed ? Key(0) : key);
      failures += failed;
    }
    const auto passed = int64_t(keys.size() - failures);
    usable = std::min(passed, wanted_);
    best = std::find(keys.begin(), keys.end(), least) - keys.begin();
    Key limit = passed > wanted_ ? threshold(least, most) : most;
    take(limit, index);
    // Fill up with failed candidates.
    int64_t place = usable;
    for (int64_t i = 0; place < wanted_; ++i) {
      if (keys[i] != kFailed) continue;
      index[place] = i;
      ++place;
    }
  }

  // Sets the rank of the elite at each place of the list, best first; failed ones keep their
  // places. Not inlined, because next to the bisection the compiler makes a slower sort.
  [[gnu::noinline]] void set_ranks(const int64_t* index) {
    for (int64_t p = usable; p < wanted_; ++p) rank[p] = p;
    order_.resize(usable);
    for (int64_t p = 0; p < usable; ++p) order_[p] = {keys[index[p]], uint32_t(p)};
    std::sort(order_.begin(), order_.end());
    for (int64_t r = 0; r < usable; ++r) rank[order_[r].second] = r;
  }

 private:
  static constexpr Key kFailed = ~Key(0);

  int64_t count_to(Key limit) const {
    Key count = 0;
    for (Key key : keys) count += (key <= limit);
    return int64_t(count);
  }

  // Returns a key that separates the elites: exactly `wanted_` keys are at or below it, or if
  // ties make that impossible, it is the smallest key with at least that many at or below it.
  // It is found by bisection between the keys `low` and `high`.
  Key threshold(Key low, Key high) const {
    while (low < high) {
      Key middle = low + (high - low) / 2;
      int64_t count = count_to(middle);
      if (count == wanted_) return middle;
      if (count > wanted_) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  // Writes the K candidates with the least keys to `index`, in index order: all whose keys are
  // below the limit, and of those at the limit (ties) the first ones, as many as there is room
  // for. Every candidate is written, and `place` advances only past one that stays: no
  // branches.
  void take(Key limit, int64_t* index) const {
    const auto population = int64_t(keys.size());
    int64_t place = 0, ties = wanted_ - (limit > 0 ? count_to(limit - 1) : 0);
    for (int64_t i = 0; i < population && place < wanted_; ++i) {
      bool tie = keys[i] == limit && ties > 0;
      index[place] = i;
      place += keys[i] < limit || tie ? 1 : 0;
      ties -= tie ? 1 : 0;
    }
  }

  int64_t wanted_;
  std::vector<std::pair<Key, uint32_t>> order_;
};

constexpr int kTile = 64;  // dimensions that are added side by side

// Adds up the rows of `sums` as the tree of update.h, for each of `width` columns; row 0 has
// the result. A row is a residue class; those from `residues` on have no numbers, and are not
// read.
template <int kColumns>
void fold(double (*sums)[kColumns], int residues, int width) {
  for (int half = kResidues / 2; half > 0; half /= 2) {
    for (int r = 0; r < half && r + half < residues; ++r) {
      for (int j = 0; j < width; ++j) sums[r][j] += sums[r + half][j];
    }
  }
}

// Returns how many residue classes of `count` numbers are not empty.
int residues_of(int64_t count) { return int(std::min<int64_t>(count, kResidues)); }

// Returns the sum of number(p) for p = 0 to `count` - 1, added in an order that the GPU kernels
// use as well, so that all devices get the same bits.
//
// The numbers are split into chunks of kChunk. In a chunk, those with the same residue r = p
// mod kResidues are added one after the other, and then `fold` adds the sums of the residues as
// a binary tree. The sums of the chunks are added in the same way.
template <typename Number>
double ordered_sum(int64_t count, const Number& number) {
  double chunks[kResidues][1] = {};
  for (int64_t first = 0; first < count; first += kChunk) {
    int64_t last = std::min(count, first + kChunk);
    double residues[kResidues][1] = {};
    for (int64_t p = first; p < last; ++p) residues[p % kResidues][0] += number(p);
    fold(residues, kResidues, 1);
    double chunk_sum = residues[0][0];
    int64_t chunk = first / kChunk;
    chunks[chunk % kResidues][0] += chunk_sum;
  }
  fold(chunks, kResidues, 1);
  return chunks[0][0];
}

// The moments (sums of w x and of w x^2) of the elites in kTile or fewer dimensions, and
// scratch for them.
template <typename T>
struct Tile {
  double base[kTile];
  double part[2][kResidues][kTile], chunks[2][kResidues][kTile];

  Moments moments(int j) const { return {chunks[0][0][j], chunks[1][0][j]}; }

  // Computes the first two moments of the elites, the sums of w x and w x^2, in each of `width`
  // <= kTile dimensions, with x counted from the best candidate. The results are chunks[0][0]
  // and chunks[1][0].
  //
  // The order of the additions is the same on all devices, so that they get the same bits. The
  // list of elites is split into chunks of kChunk. In a chunk the elites whose places have the
  // same residue mod kResidues are added one after the other (`add`), and then the sums of the
  // residues as a binary tree (`fold`). The sums of the chunks are added in the same way.
  //
  //     rows    the candidates' coordinates, from the first of these dimensions on;
  //             candidate i begins at rows + i * stride
  //     index   the candidate at each place of the list of elites
  //     weight  the weight w at each place; null means that all are 1
  //     usable  how many elites did not fail and are added
  //     best    the best candidate
  void sum(const T* rows, int64_t stride, int width, const int64_t* index, const double* weight,
      int64_t usable, int64_t best) {
    for (int j = 0; j < width; ++j) base[j] = rows[best * stride + j];
    // The residues mod kResidues that the numbers of chunks take.
    int chunk_residues = residues_of((usable + kChunk - 1) / kChunk);
    for (auto& sums : chunks) {
      for (int r = 0; r < chunk_residues; ++r) std::fill(sums[r], sums[r] + width, 0.0);
    }
    for (int64_t begin = 0; begin < usable; begin += kChunk) {
      int64_t end = std::min(usable, begin + kChunk);
      int residues = residues_of(end - begin);
      int chunk_residue = int(begin / kChunk % kResidues);
      for (int r = 0; r < residues; ++r) {
        if (width == kTile) {
          add<kTile>(rows, stride, kTile, index, weight, begin + r, end, r);
        } else {
          add<0>(rows, stride, width, index, weight, begin + r, end, r);
        }
      }
      for (int moment = 0; moment < 2; ++moment) {
        fold(part[moment], residues, width);
        const double* chunk_sum = part[moment][0];
        for (int j = 0; j < width; ++j) chunks[moment][chunk_residue][j] += chunk_sum[j];
      }
    }
    for (auto& sums : chunks) fold(sums, chunk_residues, width);
  }

 private:
  // Adds up w x and w x^2 over every kResidues-th elite, from place p to `end` - 1 of the list
  // of elites, in each of `width` dimensions, and stores the sums in part[0][r] and part[1][r].
  //
  // x is a candidate's coordinate minus the best candidate's, base[j]. index[p] is the
  // candidate at place p, whose coordinates begin at rows + index[p] * stride. weight[p] is its
  // weight w; null means that all are 1. If the compiler knows the width, as kWidth > 0, it
  // keeps the sums in registers.
  template <int kWidth>
  void add(const T* rows, int64_t stride, int width, const int64_t* index, const double* weight,
      int64_t p, int64_t end, int r) {
    int columns = kWidth > 0 ? kWidth : width;
    double first_moment[kTile] = {}, second_moment[kTile] = {};
    for (; p < end; p += kResidues) {
      const T* candidate = rows + index[p] * stride;
      if (!weight) {
        for (int j = 0; j < columns; ++j) {
          double x = double(candidate[j]) - base[j];
          first_moment[j] += x;
          second_moment[j] += x * x;
        }
      } else {
        for (int j = 0; j < columns; ++j) {
          double x = double(candidate[j]) - base[j];
          double weighted = weight[p] * x;
          first_moment[j] += weighted;
          second_moment[j] += weighted * x;
        }
      }
    }
    std::copy(first_moment, first_moment + columns, part[0][r]);
    std::copy(second_moment, second_moment + columns, part[1][r]);
  }
};

// Selects the elites of a problem, an entry of the batch, and writes their indices and the
// problem's record (best fitness and so on).
//
// Also sets what the update of the distribution needs: job.selection, job.index, the candidate
// at each place of the list of elites, and job.weight, the weight at each place. The list is in
// index order; the result `elites` is ordered by rank instead, best first, if settings.ranked
// is true. `selector` is scratch memory of the CPU thread. A key is an unsigned integer that
// ranks a fitness, smallest first.
template <typename Type>
void select_elites(Work& job, int64_t problem, Selector<typename Type::Key>& selector) {
  const Settings& settings = job.settings;
  const auto* fitness = fitness_of<Type>(job, problem);
  int64_t* index = job.index.data() + problem * job.places();
  for (int64_t i = 0; i < settings.population; ++i) {
    selector.keys[i] = Type::key(fitness[i], settings.maximize);
  }
  selector.select(Type::kCanFail, index);
  int64_t usable = selector.usable;  // the elites that did not fail

  Selection& selection = job.selection[problem];
  selection.usable = usable;
  selection.best = selector.best;
  selection.weight = make_weight(settings, double(usable), double(usable));
  if (settings.ranked || job.weights) selector.set_ranks(index);
  if (job.weights) {
    // Weights come by rank. Every place of the list gets the weight of its rank.
    double* weight = job.weight.data() + problem * job.places();
    for (int64_t p = 0; p < usable; ++p) weight[p] = job.weights[selector.rank[p]];
    const double* w = job.weights;
    double total = ordered_sum(usable, [&](int64_t p) { return w[p]; });
    double squares = ordered_sum(usable, [&](int64_t p) { return w[p] * w[p]; });
    selection.weight = make_weight(settings, total, squares);
  }
  int64_t* elites = job.elites + problem * settings.elites;
  for (int64_t p = 0; p < settings.elites; ++p) {
    int64_t position = settings.ranked ? selector.rank[p] : p;
    elites[position] = index[p];
  }

  // The fitness of the best and of the worst elite, and the sum over all elites.
  auto value = [&](int64_t i) { return Type::value(fitness[i]); };
  auto is_better_key = [&](int64_t a, int64_t b) {
    return selector.keys[a] < selector.keys[b];
  };
  double top = 0.0;
  double threshold = 0.0;
  if (usable > 0) {
    int64_t worst = *std::max_element(index, index + usable, is_better_key);
    top = value(selector.best);
    threshold = value(worst);
  }
  double best_known = job.record[problem * kFigures + kBestFitness];
  selection.is_new_best = is_better(top, best_known, settings.maximize);
  double sum = ordered_sum(usable, [&](int64_t p) { return value(index[p]); });
  write_record(job, problem, usable, top, sum, threshold, *job.generation);
}

// Updates the distribution of a problem in the dimensions `left` to `left + width - 1`.
//
// A distribution is a matrix of kRows x dimensions: the rows are mean, standard deviation,
// averaged mean and best candidate so far. tile.sum computes the moments of the elites, and
// write_marginal a column of the new distribution from them. `tile` is scratch, `mean_share`
// the share of the new mean in the averaged one, and `extra_variance` is added to every
// variance. `floors` are the smallest standard deviations, if there are any.
template <typename T>
void update_tile(const Work& job, Tile<T>& tile, int64_t problem, int64_t left, int width,
    double mean_share, double extra_variance) {
  const Settings& settings = job.settings;
  int64_t dimensions = settings.dimensions;
  const Selection& selection = job.selection[problem];
  int64_t offset = problem * kRows * dimensions + left;
  const T* distribution = static_cast<const T*>(job.distribution) + offset;
  const T* candidates =
      static_cast<const T*>(job.candidates) + problem * settings.population * dimensions + left;
  const int64_t* index = job.index.data() + problem * job.places();
  tile.sum(candidates, dimensions, width, index, job.weights_of(problem), selection.usable,
      selection.best);
  const auto* floors = static_cast<const T*>(job.floors);
  const T* floor = floors ? floors + problem * settings.floor_stride + left : nullptr;
  for (int j = 0; j < width; ++j) {
    T old[kRows];
    for (int row = 0; row < kRows; ++row) old[row] = distribution[row * dimensions + j];
    double least_std = floor ? double(floor[j]) : -std::numeric_limits<double>::infinity();
    T best_coordinate = candidates[selection.best * dimensions + j];
    write_marginal(job, offset + j, selection.usable > 0, selection.weight, tile.moments(j),
        best_coordinate, selection.is_new_best, old, extra_variance, least_std, mean_share);
  }
}

// Selects the elites of all problems; threads share the problems.
template <typename Type>
void select(Work& job) {
  const Settings& settings = job.settings;
  share(settings.problems, settings.population, [&](int64_t begin, int64_t end) {
    Selector<typename Type::Key> selector(settings.population, settings.elites);
    for (int64_t problem = begin; problem < end; ++problem) {
      select_elites<Type>(job, problem, selector);
    }
  });
}

// Updates the marginals (mean, standard deviation and so on of every dimension) of all
// problems, the entries of the batch. The dimensions of each problem are split into tiles of
// kTile, and the CPU threads share the tiles of all problems.
template <typename T>
void update(const Work& job) {
  const Settings& settings = job.settings;
  int64_t dimensions = settings.dimensions;
  int64_t tiles = divide_up(dimensions, kTile);
  double mean_share = newest_share(settings, *job.generation);
  double extra_variance = extra_variance_of(job, *job.generation);
  int64_t tile_cost = settings.elites * std::min<int64_t>(kTile, dimensions);
  share(settings.problems * tiles, tile_cost, [&](int64_t begin, int64_t end) {
    Tile<T> tile;
    for (int64_t item = begin; item < end; ++item) {
      int64_t problem = item / tiles;
      int64_t left = item % tiles * kTile;  // the first dimension of the tile
      int width = int(std::min<int64_t>(kTile, dimensions - left));
      update_tile(job, tile, problem, left, width, mean_share, extra_variance);
    }
  });
}

// The whole operator.
void run(const Job& call, Device) {
  Work job(call);
  *job.new_generation = *job.generation + 1;
  visit_fitness(job.fitness_type, [&](auto kind) { select<decltype(kind)>(job); });
  (job.type == Number::Float ? update<float> : update<double>)(job);
}

}  // namespace
}  // namespace cem_tetris::update
