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

  // Writes the K elites to `index` (K + 1 places, of which the last is scratch) by the keys in
  // `keys`, and sets `usable` and `best`. can_fail: whether the largest key marks a candidate
  // that failed; integers cannot fail.
  void select(bool can_fail, int64_t* index) {
    Key least = ~Key(0), most = 0, failures = 0;  // the population is below 2^31
    for (Key key : keys) {
      bool failed = can_fail && key == kFailed;
      least = std::min(least, key);
      most = std::max(most, failed ? Key(0) : key);
      failures += failed;
    }
    const auto passed = int64_t(keys.size() - failures);
    usable = std::min(passed, wanted_);
    best = std::find(keys.begin(), keys.end(), least) - keys.begin();
    take(passed > wanted_ ? threshold(least, most) : most, index);
    for (int64_t i = 0, place = usable; place < wanted_; ++i) {
      if (keys[i] == kFailed) index[place++] = i;
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

  // Returns, by bisection between two keys, the least key that at least K keys are at or below.
  // If exactly K keys are at or below a key that was tried, that key will do.
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

// Returns the sum of number(p) over the places p = 0 to `count` - 1, in the order of update.h:
// each chunk is folded (residue classes, then a tree), then the chunks' sums are folded in the
// same way.
template <typename Number>
double ordered_sum(int64_t count, const Number& number) {
  double chunks[kResidues][1] = {};
  for (int64_t first = 0; first < count; first += kChunk) {
    int64_t last = std::min(count, first + kChunk);
    double part[kResidues][1] = {};
    for (int64_t p = first; p < last; ++p) part[p % kResidues][0] += number(p);
    fold(part, kResidues, 1);
    chunks[first / kChunk % kResidues][0] += part[0][0];
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

  // Computes the moments, in the order of update.h: chunk by chunk, and in a chunk one residue
  // class after the other.
  //
  // rows: the candidates of the problem, from the tile's first dimension on; `stride` apart.
  // width: dimensions of the tile. index, weight: the candidate and the weight at each place of
  // the list of elites; weight may be null. usable: elites that did not fail. best: the best
  // candidate.
  void sum(const T* rows, int64_t stride, int width, const int64_t* index, const double* weight,
      int64_t usable, int64_t best) {
    for (int j = 0; j < width; ++j) base[j] = rows[best * stride + j];
    int chunk_classes = residues_of((usable + kChunk - 1) / kChunk);
    for (auto& sums : chunks) {
      for (int r = 0; r < chunk_classes; ++r) std::fill(sums[r], sums[r] + width, 0.0);
    }
    for (int64_t begin = 0; begin < usable; begin += kChunk) {
      int64_t end = std::min(usable, begin + kChunk);
      int residues = residues_of(end - begin);
      int chunk = int(begin / kChunk % kResidues);
      for (int r = 0; r < residues; ++r) {
        if (width == kTile) {
          add<kTile>(rows, stride, kTile, index, weight, begin + r, end, r);
        } else {
          add<0>(rows, stride, width, index, weight, begin + r, end, r);
        }
      }
      for (int moment = 0; moment < 2; ++moment) {
        fold(part[moment], residues, width);
        for (int j = 0; j < width; ++j) chunks[moment][chunk][j] += part[moment][0][j];
      }
    }
    for (auto& sums : chunks) fold(sums, chunk_classes, width);
  }

 private:
  // Adds up w x and w x^2 over residue class r of a chunk, the places p, p + kResidues, ...
  // below `end`, in each dimension of the tile. kWidth: the width, where the compiler knows it
  // and can keep the sums in registers, or 0.
  template <int kWidth>
  void add(const T* rows, int64_t stride, int width, const int64_t* index, const double* weight,
      int64_t p, int64_t end, int r) {
    int count = kWidth > 0 ? kWidth : width;
    double first[kTile] = {}, second[kTile] = {};  // moments
    for (; p < end; p += kResidues) {
      const T* row = rows + index[p] * stride;
      if (!weight) {
        for (int j = 0; j < count; ++j) {
          double x = double(row[j]) - base[j];
          first[j] += x;
          second[j] += x * x;
        }
      } else {
        for (int j = 0; j < count; ++j) {
          double x = double(row[j]) - base[j];
          double weighted = weight[p] * x;
          first[j] += weighted;
          second[j] += weighted * x;
        }
      }
    }
    std::copy(first, first + count, part[0][r]);
    std::copy(second, second + count, part[1][r]);
  }
};

// Selects the elites of a problem, and writes them and the record. Sets job.selection,
// job.index and job.weight of the problem, which update_tile() needs. selector: scratch of a
// CPU thread.
template <typename Type>
void select_elites(Work& job, int64_t problem, Selector<typename Type::Key>& selector) {
  const Settings& settings = job.settings;
  const auto* fitness = fitness_of<Type>(job, problem);
  int64_t* index = job.index.data() + problem * job.places();
  for (int64_t i = 0; i < settings.population; ++i) {
    selector.keys[i] = Type::key(fitness[i], settings.maximize);
  }
  selector.select(Type::kCanFail, index);
  int64_t usable = selector.usable;
  Selection& selection = job.selection[problem];
  selection.usable = usable;
  selection.best = selector.best;
  selection.weight = make_weight(settings, double(usable), double(usable));
  if (settings.ranked || job.weights) selector.set_ranks(index);
  if (job.weights) {
    double* weight = job.weight.data() + problem * job.places();
    for (int64_t p = 0; p < usable; ++p) weight[p] = job.weights[selector.rank[p]];
    const double* w = job.weights;
    double total = ordered_sum(usable, [&](int64_t p) { return w[p]; });
    double squares = ordered_sum(usable, [&](int64_t p) { return w[p] * w[p]; });
    selection.weight = make_weight(settings, total, squares);
  }
  int64_t* elites = job.elites + problem * settings.elites;
  for (int64_t p = 0; p < settings.elites; ++p) {
    elites[settings.ranked ? selector.rank[p] : p] = index[p];
  }
  auto value = [&](int64_t i) { return Type::value(fitness[i]); };
  auto by_key = [&](int64_t a, int64_t b) { return selector.keys[a] < selector.keys[b]; };
  double top = 0.0;
  double threshold = 0.0;
  if (usable > 0) {
    top = value(selector.best);
    threshold = value(*std::max_element(index, index + usable, by_key));
  }
  double known = job.record[problem * kFigures + kBestFitness];
  selection.is_new_best = is_better(top, known, settings.maximize);
  double sum = ordered_sum(usable, [&](int64_t p) { return value(index[p]); });
  write_record(job, problem, usable, top, sum, threshold, *job.generation);
}

// Updates the marginals of a tile: dimensions `left` to `left` + `width` - 1 of a problem.
// tile: scratch. mean_share: the share of the new mean in the averaged one. extra_variance:
// what the generation adds to every variance.
template <typename T>
void update_tile(const Work& job, Tile<T>& tile, int64_t problem, int64_t left, int width,
    double mean_share, double extra_variance) {
  const Settings& settings = job.settings;
  int64_t dimensions = settings.dimensions;
  const Selection& selection = job.selection[problem];
  int64_t offset = problem * kRows * dimensions + left;
  const T* distribution = static_cast<const T*>(job.distribution) + offset;
  const T* rows =
      static_cast<const T*>(job.candidates) + problem * settings.population * dimensions + left;
  tile.sum(rows, dimensions, width, job.index.data() + problem * job.places(),
      job.weights_of(problem), selection.usable, selection.best);
  const auto* floors = static_cast<const T*>(job.floors);
  const T* floor = floors ? floors + problem * settings.floor_stride + left : nullptr;
  for (int j = 0; j < width; ++j) {
    T old[kRows];
    for (int row = 0; row < kRows; ++row) old[row] = distribution[row * dimensions + j];
    double least_std = floor ? double(floor[j]) : -std::numeric_limits<double>::infinity();
    write_marginal(job, offset + j, selection.usable > 0, selection.weight, tile.moments(j),
        rows[selection.best * dimensions + j], selection.is_new_best, old, extra_variance,
        least_std, mean_share);
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

// Updates the marginals of all problems; threads share the tiles.
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
      int64_t left = item % tiles * kTile;
      int width = int(std::min<int64_t>(kTile, dimensions - left));
      update_tile(job, tile, item / tiles, left, width, mean_share, extra_variance);
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
