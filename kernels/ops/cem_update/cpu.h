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
  bool better = false;           // than the best candidate so far
  Weight weight{};
};

// Calls function(begin, end) for ranges of items, of some work each, on as many threads as it
// is worth.
template <typename F>
void share(int64_t items, int64_t work, const F& function) {
  // A parallel loop of one thread costs more than a call.
  if (items * work <= kGrain) return function(0, items);
  int64_t grain = kGrain / std::max<int64_t>(work, 1);
  parallel_for(0, items, std::max<int64_t>(1, grain), function);
}

// Returns the fitness of a problem's candidates.
template <typename Type>
const typename Type::Bits* fitness_of(const Job& job, int64_t problem) {
  return static_cast<const typename Type::Bits*>(job.fitness) +
         problem * job.settings.population;
}

// Returns the candidates of a problem, best first: key and index.
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

// The work of a call: pointers, and what passes from selection to the sums.
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

  // index: K + 1 places, the last one is scratch. can_fail: whether the largest key says that
  // one failed.
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

  // Sets the ranks of all places. Not inlined: next to the bisection, the compiler sorts more
  // slowly.
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

  // The least key that no fewer than K keys are at or below; of several limits with K keys, any
  // one.
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

  // Lists the candidates below the limit, and the first ones at it.
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

// Adds the residues that numbers were added to as a tree, for each of `width` columns; the
// others are 0.
template <int kColumns>
void fold(double (*sums)[kColumns], int residues, int width) {
  for (int half = kResidues / 2; half > 0; half /= 2) {
    for (int r = 0; r < half && r + half < residues; ++r) {
      for (int j = 0; j < width; ++j) sums[r][j] += sums[r + half][j];
    }
  }
}

int residues_of(int64_t count) { return int(std::min<int64_t>(count, kResidues)); }

// Returns the sum of number(p) over the places p, in the order of update.h.
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

// The moments of the elites in kTile or fewer dimensions, and the room to compute them.
template <typename T>
struct Tile {
  double base[kTile];
  double part[2][kResidues][kTile], chunks[2][kResidues][kTile];

  Moments moments(int j) const { return {chunks[0][0][j], chunks[1][0][j]}; }

  // Computes the moments. rows: the candidates of the problem, at the tile's first dimension.
  // index, weight: of each place; weight may be null. usable: elites that did not fail. best:
  // the index of the best one.
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
  // The residue class r of a chunk. A width that the compiler knows keeps the sums in
  // registers.
  template <int kWidth>
  void add(const T* rows, int64_t stride, int width, const int64_t* index, const double* weight,
      int64_t p, int64_t end, int r) {
    int count = kWidth > 0 ? kWidth : width;
    double sum1[kTile] = {}, sum2[kTile] = {};
    for (; p < end; p += kResidues) {
      const T* row = rows + index[p] * stride;
      if (!weight) {
        for (int j = 0; j < count; ++j) {
          double x = double(row[j]) - base[j];
          sum1[j] += x;
          sum2[j] += x * x;
        }
      } else {
        for (int j = 0; j < count; ++j) {
          double x = double(row[j]) - base[j];
          double weighted = weight[p] * x;
          sum1[j] += weighted;
          sum2[j] += weighted * x;
        }
      }
    }
    std::copy(sum1, sum1 + count, part[0][r]);
    std::copy(sum2, sum2 + count, part[1][r]);
  }
};

// Selects the elites of a problem; writes them and the record, and sets what the sums need.
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
  selection.better = is_better(top, known, settings.maximize);
  double sum = ordered_sum(usable, [&](int64_t p) { return value(index[p]); });
  write_record(job, problem, usable, top, sum, threshold, *job.generation);
}

// Updates the marginals of a tile: dimensions `left` to `left` + `width` - 1 of a problem.
template <typename T>
void update_tile(const Work& job, Tile<T>& tile, int64_t problem, int64_t left, int width,
    double newest, double extra_variance) {
  const Settings& settings = job.settings;
  int64_t dimensions = settings.dimensions;
  const Selection& selection = job.selection[problem];
  int64_t place = problem * kRows * dimensions + left;
  const T* distribution = static_cast<const T*>(job.distribution) + place;
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
    write_marginal(job, place + j, selection.usable > 0, selection.weight, tile.moments(j),
        rows[selection.best * dimensions + j], selection.better, old, extra_variance, least_std,
        newest);
  }
}

// Selects the elites of all problems.
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

// Updates the marginals of all problems and dimensions.
template <typename T>
void update(const Work& job) {
  const Settings& settings = job.settings;
  int64_t dimensions = settings.dimensions;
  int64_t tiles = divide_up(dimensions, kTile);
  double newest = newest_share(settings, *job.generation);
  double extra_variance = extra_variance_of(job, *job.generation);
  int64_t work = settings.elites * std::min<int64_t>(kTile, dimensions);
  share(settings.problems * tiles, work, [&](int64_t begin, int64_t end) {
    Tile<T> tile;
    for (int64_t item = begin; item < end; ++item) {
      int64_t left = item % tiles * kTile;
      int width = int(std::min<int64_t>(kTile, dimensions - left));
      update_tile(job, tile, item / tiles, left, width, newest, extra_variance);
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
