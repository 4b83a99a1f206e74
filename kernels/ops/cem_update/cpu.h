// The update on the CPU.
//
// First the elites of every problem are selected, by a bisection for the key of the worst one.
// Then the elites are added up in every tile of kTile dimensions, in the order of update.h. In
// the first step the CPU threads share the problems, in the second step the tiles. No sum
// depends on the number of threads.
#pragma once

#include <limits>
#include <vector>

#include "arguments.h"

namespace cem_tetris::update {
namespace {

constexpr int64_t kGrain = 1 << 15;  // for fewer elements, another thread is not worthwhile

// The result of a problem's selection that the sums over its elites need.
struct Selection {
  int64_t valid_elites = 0;  // how many elites did not fail
  int64_t best = 0;          // the index of the best candidate
  bool is_new_best = false;  // whether it is better than all of earlier generations
  Weight weight{};
};

// Calls function(begin, end) for ranges of items that together cover 0 to `items` - 1, on as
// many threads as the work is worth. `item_cost` is the work of one item, in elements that are
// read.
template <typename F>
void split_work(int64_t items, int64_t item_cost, const F& function) {
  // A parallel loop of one thread costs more than a call.
  if (items * item_cost <= kGrain) return function(0, items);
  int64_t grain = kGrain / std::max<int64_t>(item_cost, 1);
  parallel_for(0, items, std::max<int64_t>(1, grain), function);
}

// Returns the fitness of a problem's candidates, an array of settings.population numbers.
template <typename Type>
const typename Type::Bits* fitness_of(const Job& job, int64_t problem) {
  return static_cast<const typename Type::Bits*>(job.fitness) +
         problem * job.settings.population;
}

// Returns the candidates of a problem as pairs of key and index, the best one first. Candidates
// of equal keys are in the order of their indices.
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

// The tensors of a call, and the results of select() that update() needs: the list of elites of
// every problem, and their weights. A problem is one entry of the batch; a place is a position
// in its list.
struct Work : Job {
  std::vector<int64_t> index;  // the candidate at each place; K + 1 places per problem
  std::vector<double> weight;  // the weight of each place; empty without weights
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

// Selects the elites of one problem. Its list of elites has the elites that did not fail in
// index order, followed by the first candidates that failed.
template <typename Key>
class Selector {
 public:
  std::vector<Key> keys;
  std::vector<int64_t> rank;  // the rank of the elite at each place; set by set_ranks()
  int64_t valid_elites = 0;   // how many elites did not fail
  int64_t best = 0;           // the index of the best candidate

  Selector(int64_t population, int64_t wanted)
      : keys(population), rank(wanted), wanted_(wanted) {}

  // Selects the elites, the `wanted_` candidates with the smallest keys, and writes their
  // indices to `index` in ascending order. If fewer candidates are valid, the first candidates
  // that failed fill the rest of `index`. Also sets `valid_elites`, the number of elites that
  // did not fail, and `best`, the index of the best candidate.
  //
  // keys[i] is the key of candidate i, an unsigned integer; a smaller key is better. A
  // candidate fails if its fitness is NaN or infinitely bad; it has the largest key, kFailed.
  // Integers cannot fail, so `can_fail` is false for them. `index` has room for `wanted_` + 1
  // numbers, because list_elites() also writes to the place after the last elite.
  void select(bool can_fail, int64_t* index) {
    Key least = ~Key(0);
    Key most = 0;      // the largest valid key
    Key failures = 0;  // a Key can hold the count, because the population is below 2^31
    for (Key key : keys) {
      bool failed = can_fail && key == kFailed;
      least = std::min(least, key);
      most = std::max(most, failed ? Key(0) : key);
      failures += failed;
    }
    const auto valid_candidates = int64_t(keys.size() - failures);
    valid_elites = std::min(valid_candidates, wanted_);
    best = std::find(keys.begin(), keys.end(), least) - keys.begin();
    // The limit is the key of the worst elite. If there are too few valid candidates, all of
    // them are elites.
    Key limit = valid_candidates > wanted_ ? find_limit(least, most) : most;
    list_elites(limit, index);
    // Failed candidates fill the rest of the list. If there is no rest, the loop does not run.
    int64_t place = valid_elites;
    for (int64_t i = 0; place < wanted_; ++i) {
      if (keys[i] != kFailed) continue;
      index[place] = i;
      ++place;
    }
  }

  // Sets `rank` for every place of the list of elites: the valid elites are ranked by their
  // keys, the best one first. The failed ones follow in the order of their places. The function
  // is not inlined, because the compiler would make the sort slower beside the bisection.
  [[gnu::noinline]] void set_ranks(const int64_t* index) {
    for (int64_t p = valid_elites; p < wanted_; ++p) rank[p] = p;
    order_.resize(valid_elites);
    for (int64_t p = 0; p < valid_elites; ++p) order_[p] = {keys[index[p]], uint32_t(p)};
    std::sort(order_.begin(), order_.end());
    for (int64_t r = 0; r < valid_elites; ++r) rank[order_[r].second] = r;
  }

 private:
  static constexpr Key kFailed = ~Key(0);

  // Returns how many keys are at most `limit`.
  int64_t count_to(Key limit) const {
    Key count = 0;
    for (Key key : keys) count += (key <= limit);
    return int64_t(count);
  }

  // Returns a limit such that exactly `wanted_` candidates have a key of at most the limit. If
  // equal keys make that impossible, returns the smallest limit with at least `wanted_` such
  // candidates. The function searches by bisection from `low` to `high`.
  Key find_limit(Key low, Key high) const {
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

  // Writes the indices of the elites, the `wanted_` candidates with the smallest keys, to
  // `index` in ascending order. All candidates with a key below the limit are elites. The ties,
  // whose key equals the limit, are elites as long as there is room, from the first one on.
  //
  // The body of the loop has no branches. It writes every candidate to the current place, and
  // goes on to the next place only if the candidate is an elite. Otherwise the next candidate
  // overwrites it.
  void list_elites(Key limit, int64_t* index) const {
    const auto population = int64_t(keys.size());
    int64_t below_limit = limit > 0 ? count_to(limit - 1) : 0;
    int64_t room = wanted_ - below_limit;  // how many ties can still become elites
    int64_t place = 0;
    for (int64_t i = 0; i < population && place < wanted_; ++i) {
      bool is_elite_tie = keys[i] == limit && room > 0;
      index[place] = i;
      place += keys[i] < limit || is_elite_tie ? 1 : 0;
      room -= is_elite_tie ? 1 : 0;
    }
  }

  int64_t wanted_;
  std::vector<std::pair<Key, uint32_t>> order_;
};

constexpr int kTile = 64;  // dimensions that a thread adds up at the same time

// Adds up the rows of `sums` as the binary tree of update.h, in each of the first `width`
// columns. Row 0 receives the result. A row holds the sums of one residue class. Only the first
// `residues` rows hold numbers; the others are not read.
template <int kColumns>
void fold(double (*sums)[kColumns], int residues, int width) {
  for (int half = kResidues / 2; half > 0; half /= 2) {
    for (int r = 0; r < half && r + half < residues; ++r) {
      for (int j = 0; j < width; ++j) sums[r][j] += sums[r + half][j];
    }
  }
}

// Returns how many residue classes mod kResidues are not empty if there are `count` numbers.
int residues_of(int64_t count) { return int(std::min<int64_t>(count, kResidues)); }

// Returns the sum of number(p) over p = 0 to `count` - 1. The GPU kernels add up numbers in the
// same order, so that all devices get the same bits.
//
// The numbers are split into chunks of kChunk. In a chunk, the numbers with the same residue p
// mod kResidues are added one after the other. Then fold(sums, rows, columns) adds the sums of
// the residues as a binary tree, and leaves the result in row 0. The sums of the chunks are
// added in the same way: by the residue of the chunk's number, then as a tree.
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

// Computes the moments of the elites, the sums of w x and w x^2, in at most kTile dimensions.
// The arrays are indexed by moment, residue and dimension.
template <typename T>
struct Tile {
  double base[kTile];  // the coordinates of the best candidate
  // Row r of residue_sums is the sum of the elites in one chunk whose place is r mod kResidues.
  // Row r of chunk_sums is the sum of the chunks whose number is r mod kResidues.
  double residue_sums[2][kResidues][kTile];
  double chunk_sums[2][kResidues][kTile];

  Moments moments(int j) const { return {chunk_sums[0][0][j], chunk_sums[1][0][j]}; }

  // Computes the moments of the elites in each of the first `width` dimensions: the sums of w x
  // and w x^2. w is the weight of an elite, and x its coordinate minus the best candidate's
  // coordinate. moments() returns the results.
  //
  // All devices add in the same order, so that they get the same bits: add_chunk() adds up a
  // chunk of kChunk elites, and fold() then adds the sums of the chunks as a binary tree.
  //
  // Args:
  //     rows: the coordinates of the candidates in these dimensions. Those of candidate i begin
  //         at rows + i * stride.
  //     index: the candidates that are elites. A place is a position in this list.
  //     weight: the weight at each place; null means that all weights are 1.
  //     valid_elites: how many elites did not fail; they are the first ones of the list.
  //     best: the index of the best candidate.
  void add_up(const T* rows, int64_t stride, int width, const int64_t* index,
      const double* weight, int64_t valid_elites, int64_t best) {
    for (int j = 0; j < width; ++j) base[j] = rows[best * stride + j];
    int used_rows = residues_of(divide_up(valid_elites, kChunk));
    for (auto& sums : chunk_sums) {
      for (int r = 0; r < used_rows; ++r) std::fill(sums[r], sums[r] + width, 0.0);
    }
    for (int64_t begin = 0; begin < valid_elites; begin += kChunk) {
      int64_t end = std::min(valid_elites, begin + kChunk);
      add_chunk(rows, stride, width, index, weight, begin, end);
    }
    for (auto& sums : chunk_sums) fold(sums, used_rows, width);  // the result is in row 0
  }

 private:
  // Adds the moments of one chunk to chunk_sums. The chunk is the elites at the places `begin`
  // to `end` - 1; the other arguments are those of add_up().
  CEM_TETRIS_FUNCTION void add_chunk(const T* rows, int64_t stride, int width,
      const int64_t* index, const double* weight, int64_t begin, int64_t end) {
    int residues = residues_of(end - begin);
    int row = int(begin / kChunk % kResidues);  // the chunk's number mod kResidues
    for (int r = 0; r < residues; ++r) {
      // A constant width is faster. 0 means that the width is a variable.
      if (width == kTile) {
        add_residue<kTile>(rows, stride, kTile, index, weight, begin + r, end, r);
      } else {
        add_residue<0>(rows, stride, width, index, weight, begin + r, end, r);
      }
    }
    for (int moment = 0; moment < 2; ++moment) {
      fold(residue_sums[moment], residues, width);
      const double* chunk_sum = residue_sums[moment][0];
      for (int j = 0; j < width; ++j) chunk_sums[moment][row][j] += chunk_sum[j];
    }
  }

  // Computes the sums of w x and w x^2 over the elites of one residue in each of `width`
  // dimensions, and stores them in residue_sums[0][residue] and residue_sums[1][residue]. The
  // elites of this residue are at the places `first`, `first` + kResidues, and so on, up to
  // `end` - 1, of the list.
  //
  // The candidate at place p is index[p], and its coordinates begin at rows + index[p] *
  // stride. In dimension j, x is the coordinate minus base[j], the coordinate of the best
  // candidate. w is weight[p], or 1 if `weight` is null. If kWidth is not 0, it equals `width`,
  // and the compiler can keep the sums in registers, because it knows their number.
  template <int kWidth>
  void add_residue(const T* rows, int64_t stride, int width, const int64_t* index,
      const double* weight, int64_t first, int64_t end, int residue) {
    int columns = kWidth > 0 ? kWidth : width;
    double first_moment[kTile] = {}, second_moment[kTile] = {};
    for (int64_t p = first; p < end; p += kResidues) {
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
    std::copy(first_moment, first_moment + columns, residue_sums[0][residue]);
    std::copy(second_moment, second_moment + columns, residue_sums[1][residue]);
  }
};

// Sets the weight of every valid elite of a problem in job.weight, and the sums of the weights
// in its selection. job.weights holds the weights by rank, and rank[p] is the rank of the elite
// at place p of the list of elites.
void set_weights(Work& job, int64_t problem, const int64_t* rank) {
  Selection& selection = job.selection[problem];
  int64_t valid_elites = selection.valid_elites;
  const double* w = job.weights;
  double* weight = job.weight.data() + problem * job.places();
  for (int64_t p = 0; p < valid_elites; ++p) weight[p] = w[rank[p]];
  double total = ordered_sum(valid_elites, [&](int64_t p) { return w[p]; });
  double squares = ordered_sum(valid_elites, [&](int64_t p) { return w[p] * w[p]; });
  selection.weight = make_weight(job.settings, total, squares);
}

// Selects the elites of a problem (batch entry), and writes two results of the operator:
//
// - job.elites, the indices of the elites, ordered by rank if settings.ranked is true (the best
//   elite first), and in ascending order otherwise;
// - the problem's record, which holds the best fitness, the mean fitness and so on.
//
// It also sets what the update of the distribution needs: job.selection; job.index, the list of
// elites, which is always in ascending order; and job.weight, the weight at each place of this
// list.
//
// A key is an unsigned integer that ranks a fitness, the best one first. `selector` is scratch
// memory of the CPU thread.
template <typename Type>
void select_elites(Work& job, int64_t problem, Selector<typename Type::Key>& selector) {
  const Settings& settings = job.settings;
  const auto* fitness = fitness_of<Type>(job, problem);
  int64_t* index = job.index.data() + problem * job.places();
  for (int64_t i = 0; i < settings.population; ++i) {
    selector.keys[i] = Type::key(fitness[i], settings.maximize);
  }
  selector.select(Type::kCanFail, index);
  int64_t valid_elites = selector.valid_elites;

  Selection& selection = job.selection[problem];
  selection.valid_elites = valid_elites;
  selection.best = selector.best;
  selection.weight = make_weight(settings, double(valid_elites), double(valid_elites));
  if (settings.ranked || job.weights) selector.set_ranks(index);
  if (job.weights) set_weights(job, problem, selector.rank.data());
  int64_t* elites = job.elites + problem * settings.elites;
  for (int64_t p = 0; p < settings.elites; ++p) {
    int64_t position = settings.ranked ? selector.rank[p] : p;
    elites[position] = index[p];
  }

  // The record needs the fitness of the best and of the worst elite, and the sum over all
  // elites.
  auto value = [&](int64_t i) { return Type::value(fitness[i]); };
  auto has_smaller_key = [&](int64_t a, int64_t b) {
    return selector.keys[a] < selector.keys[b];
  };
  double best_fitness = 0.0;
  double worst_fitness = 0.0;
  if (valid_elites > 0) {
    int64_t worst = *std::max_element(index, index + valid_elites, has_smaller_key);
    best_fitness = value(selector.best);
    worst_fitness = value(worst);
  }
  double best_known = job.record[problem * kFigures + kBestFitness];
  selection.is_new_best = is_better(best_fitness, best_known, settings.maximize);
  double sum = ordered_sum(valid_elites, [&](int64_t p) { return value(index[p]); });
  write_record(job, problem, valid_elites, best_fitness, sum, worst_fitness, *job.generation);
}

// Updates the distribution of a problem in the dimensions `left` to `left` + `width` - 1. A
// distribution is a matrix with one column per dimension. Its four rows are the mean, the
// standard deviation, the averaged mean and the best candidate so far. tile.add_up() computes
// the moments of the elites, the sums of w x and w x^2. write_marginal() computes a column of
// the new distribution from the moments of its dimension.
//
// `tile` is scratch memory. `mean_share` is the weight of the new mean in the averaged mean,
// and `extra_variance` is added to every variance. job.floors holds the smallest standard
// deviations; it is null if there are none.
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
  tile.add_up(candidates, dimensions, width, index, job.weights_of(problem),
      selection.valid_elites, selection.best);
  const auto* floors = static_cast<const T*>(job.floors);
  const T* floor = floors ? floors + problem * settings.floor_stride + left : nullptr;
  for (int j = 0; j < width; ++j) {
    T old[kRows];  // this dimension of the old distribution
    for (int row = 0; row < kRows; ++row) old[row] = distribution[row * dimensions + j];
    double least_std = floor ? double(floor[j]) : -std::numeric_limits<double>::infinity();
    T best_coordinate = candidates[selection.best * dimensions + j];
    write_marginal(job, offset + j, selection.valid_elites > 0, selection.weight,
        tile.moments(j), best_coordinate, selection.is_new_best, old, extra_variance, least_std,
        mean_share);
  }
}

// Selects the elites of all problems. The CPU threads share the problems.
template <typename Type>
void select(Work& job) {
  const Settings& settings = job.settings;
  split_work(settings.problems, settings.population, [&](int64_t begin, int64_t end) {
    Selector<typename Type::Key> selector(settings.population, settings.elites);
    for (int64_t problem = begin; problem < end; ++problem) {
      select_elites<Type>(job, problem, selector);
    }
  });
}

// Updates the distributions of all problems (batch entries). The dimensions of a problem are
// split into tiles of kTile. The CPU threads share the tiles of all problems: an item is tile
// item % tiles of problem item / tiles.
template <typename T>
void update(const Work& job) {
  const Settings& settings = job.settings;
  int64_t dimensions = settings.dimensions;
  int64_t tiles = divide_up(dimensions, kTile);
  double mean_share = newest_share(settings, *job.generation);
  double extra_variance = extra_variance_of(job, *job.generation);
  int64_t tile_cost = settings.elites * std::min<int64_t>(kTile, dimensions);
  split_work(settings.problems * tiles, tile_cost, [&](int64_t begin, int64_t end) {
    Tile<T> tile;
    for (int64_t item = begin; item < end; ++item) {
      int64_t problem = item / tiles;
      int64_t left = item % tiles * kTile;  // the first dimension of the tile
      int width = int(std::min<int64_t>(kTile, dimensions - left));
      update_tile(job, tile, problem, left, width, mean_share, extra_variance);
    }
  });
}

// Runs the operator: selects the elites of all problems, then updates the distributions.
void run(const Job& call, Device) {
  Work job(call);
  *job.new_generation = *job.generation + 1;
  visit_fitness(job.fitness_type, [&](auto kind) { select<decltype(kind)>(job); });
  (job.type == Number::Float ? update<float> : update<double>)(job);
}

}  // namespace
}  // namespace cem_tetris::update
