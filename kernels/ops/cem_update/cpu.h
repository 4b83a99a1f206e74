// The update on the CPU.
//
// First every problem selects its elites, by a bisection for the key of the last one, then
// every tile of kTile dimensions of a problem adds them up, in the order of update.h. Threads
// share the problems, then the tiles; no sum depends on their number.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
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

template <typename F> void share(int64_t items, int64_t work, const F& function) {
  if (items * work <= kGrain)
    return function(0, items);  // a parallel loop of one thread costs more
  torch::stable::parallel_for(
      0, items, std::max<int64_t>(1, kGrain / std::max<int64_t>(work, 1)), function);
}

// The candidates of a problem, best first: key and index.
template <typename Type>
std::vector<std::pair<typename Type::Key, int64_t>> ranking(const Job& job, int64_t problem) {
  std::vector<std::pair<typename Type::Key, int64_t>> ranked(job.settings.population);
  const auto* const fitness =
      static_cast<const typename Type::Bits*>(job.fitness) + problem * ranked.size();
  for (size_t i = 0; i < ranked.size(); ++i)
    ranked[i] = {Type::key(fitness[i], job.settings.maximize), i};
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
        weight(weights != nullptr ? settings.problems * places() : 0),
        selection(settings.problems) {}
  int64_t places() const { return settings.elites + 1; }
  const double* weights_of(int64_t problem) const {
    return weights != nullptr ? weight.data() + problem * places() : nullptr;
  }
};

// The elites of one problem: places 0 to K - 1 hold those that did not fail in index order,
// then the first that did.
template <typename Key> class Selector {
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
    for (const Key key : keys) {
      const bool failed = can_fail && key == kFailed;
      least = std::min(least, key);
      most = std::max(most, failed ? Key(0) : key);
      failures += failed ? 1 : 0;
    }
    const auto passed = static_cast<int64_t>(keys.size() - failures);
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
    for (int64_t p = 0; p < usable; ++p) order_[p] = {keys[index[p]], static_cast<uint32_t>(p)};
    std::sort(order_.begin(), order_.end());
    for (int64_t r = 0; r < usable; ++r) rank[order_[r].second] = r;
  }

 private:
  static constexpr Key kFailed = ~Key(0);

  int64_t count_to(Key limit) const {
    Key count = 0;
    for (const Key key : keys) count += key <= limit ? 1 : 0;
    return static_cast<int64_t>(count);
  }

  // The least key that no fewer than K keys are at or below; of several limits with K keys, any
  // one.
  Key threshold(Key low, Key high) const {
    while (low < high) {
      const Key middle = low + (high - low) / 2;
      const int64_t count = count_to(middle);
      if (count == wanted_) return middle;
      if (count > wanted_) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  // All below the limit and the first at it.
  void take(Key limit, int64_t* index) const {
    const auto population = static_cast<int64_t>(keys.size());
    int64_t place = 0, ties = wanted_ - (limit > 0 ? count_to(limit - 1) : 0);
    for (int64_t i = 0; i < population && place < wanted_; ++i) {
      const bool tie = keys[i] == limit && ties > 0;
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
template <int kColumns> void fold(double (*sums)[kColumns], int residues, int width) {
  for (int half = kResidues / 2; half > 0; half /= 2) {
    for (int r = 0; r < half && r + half < residues; ++r) {
      for (int j = 0; j < width; ++j) sums[r][j] += sums[r + half][j];
    }
  }
}

int residues_of(int64_t count) { return static_cast<int>(std::min<int64_t>(count, kResidues)); }

// The sum of one number an elite in the order of update.h; number(p) is that of place p.
template <typename Number> double ordered_sum(int64_t count, const Number& number) {
  double chunks[kResidues][1] = {};
  for (int64_t first = 0; first < count; first += kChunk) {
    const int64_t last = std::min(count, first + kChunk);
    double part[kResidues][1] = {};
    for (int64_t p = first; p < last; ++p) part[p % kResidues][0] += number(p);
    fold(part, kResidues, 1);
    chunks[first / kChunk % kResidues][0] += part[0][0];
  }
  fold(chunks, kResidues, 1);
  return chunks[0][0];
}

// The moments of the elites in kTile or fewer dimensions.
template <typename T> struct Tile {
  double base[kTile];
  double part[2][kResidues][kTile], chunks[2][kResidues][kTile];

  Moments moments(int j) const { return {chunks[0][0][j], chunks[1][0][j]}; }

  // rows: the candidates of the problem at the tile's first dimension. weight: of each place,
  // or null. usable: elites that did not fail. best: the index of the best one.
  void sum(const T* rows, int64_t stride, int width, const int64_t* index, const double* weight,
      int64_t usable, int64_t best) {
    for (int j = 0; j < width; ++j) base[j] = rows[best * stride + j];
    const int rounds = residues_of((usable + kChunk - 1) / kChunk);
    for (auto& sums : chunks) {
      for (int r = 0; r < rounds; ++r) std::fill(sums[r], sums[r] + width, 0.0);
    }
    for (int64_t begin = 0; begin < usable; begin += kChunk) {
      const int64_t end = std::min(usable, begin + kChunk);
      const int residues = residues_of(end - begin),
                chunk = static_cast<int>(begin / kChunk % kResidues);
      for (int r = 0; r < residues; ++r) {
        if (width == kTile) {
          add<kTile>(rows, stride, kTile, index, weight, begin + r, end, r);
        } else {
          add<0>(rows, stride, width, index, weight, begin + r, end, r);
        }
      }
      for (int i = 0; i < 2; ++i) {
        fold(part[i], residues, width);
        for (int j = 0; j < width; ++j) chunks[i][chunk][j] += part[i][0][j];
      }
    }
    for (auto& sums : chunks) fold(sums, rounds, width);
  }

 private:
  // The residue class r of a chunk. A width that the compiler knows keeps the sums in
  // registers.
  template <int kWidth> void add(const T* rows, int64_t stride, int width, const int64_t* index,
      const double* weight, int64_t p, int64_t end, int r) {
    const int count = kWidth > 0 ? kWidth : width;
    double sum1[kTile] = {}, sum2[kTile] = {};
    for (; p < end; p += kResidues) {
      const T* row = rows + index[p] * stride;
      if (weight == nullptr) {
        for (int j = 0; j < count; ++j) {
          const double x = static_cast<double>(row[j]) - base[j];
          sum1[j] += x;
          sum2[j] += x * x;
        }
      } else {
        for (int j = 0; j < count; ++j) {
          const double x = static_cast<double>(row[j]) - base[j], weighted = weight[p] * x;
          sum1[j] += weighted;
          sum2[j] += weighted * x;
        }
      }
    }
    std::copy(sum1, sum1 + count, part[0][r]);
    std::copy(sum2, sum2 + count, part[1][r]);
  }
};

// Selects the elites of all problems; writes them and the records.
template <typename Type> void select(Work& job) {
  const Settings& settings = job.settings;
  const int64_t population = settings.population, wanted = settings.elites;
  share(settings.problems, population, [&](int64_t begin, int64_t end) {
    Selector<typename Type::Key> selector(population, wanted);
    for (int64_t problem = begin; problem < end; ++problem) {
      const auto* fitness =
          static_cast<const typename Type::Bits*>(job.fitness) + problem * population;
      int64_t* index = job.index.data() + problem * job.places();
      for (int64_t i = 0; i < population; ++i)
        selector.keys[i] = Type::key(fitness[i], settings.maximize);
      selector.select(Type::kCanFail, index);
      Selection& selection = job.selection[problem];
      selection.usable = selector.usable;
      selection.best = selector.best;
      const double count = static_cast<double>(selector.usable);
      selection.weight = make_weight(settings, count, count);
      if (settings.ranked || job.weights != nullptr) selector.set_ranks(index);
      if (job.weights != nullptr) {
        double* mine = job.weight.data() + problem * job.places();
        for (int64_t p = 0; p < selector.usable; ++p) mine[p] = job.weights[selector.rank[p]];
        const double* w = job.weights;
        selection.weight =
            make_weight(settings, ordered_sum(selector.usable, [&](int64_t p) { return w[p]; }),
                ordered_sum(selector.usable, [&](int64_t p) { return w[p] * w[p]; }));
      }
      int64_t* out = job.elites + problem * wanted;
      for (int64_t p = 0; p < wanted; ++p)
        out[settings.ranked ? selector.rank[p] : p] = index[p];
      const auto value = [&](int64_t i) { return Type::value(fitness[i]); };
      const auto by_key = [&](int64_t a, int64_t b) {
        return selector.keys[a] < selector.keys[b];
      };
      const bool some = selector.usable > 0;
      const double top = some ? value(selector.best) : 0.0;
      selection.better =
          is_better(top, job.record[problem * kFigures + kBestFitness], settings.maximize);
      write_record(job, problem, selector.usable, top,
          ordered_sum(selector.usable, [&](int64_t p) { return value(index[p]); }),
          some ? value(*std::max_element(index, index + selector.usable, by_key)) : 0.0,
          *job.generation);
    }
  });
}

// Updates the marginals of all problems and dimensions.
template <typename T> void update(const Work& job) {
  const Settings& settings = job.settings;
  const int64_t dimensions = settings.dimensions, tiles = (dimensions + kTile - 1) / kTile;
  const auto* floors = static_cast<const T*>(job.floors);
  const double newest = newest_share(settings, *job.generation);
  const double extra_variance = extra_variance_of(job, *job.generation);
  share(settings.problems * tiles, settings.elites * std::min<int64_t>(kTile, dimensions),
      [&](int64_t begin, int64_t end) {
        Tile<T> tile;
        for (int64_t item = begin; item < end; ++item) {
          const int64_t problem = item / tiles, left = item % tiles * kTile;
          const int width = static_cast<int>(std::min<int64_t>(kTile, dimensions - left));
          const Selection& selection = job.selection[problem];
          const int64_t at = problem * kRows * dimensions + left;
          const T* rows = static_cast<const T*>(job.candidates) +
                          problem * settings.population * dimensions + left;
          tile.sum(rows, dimensions, width, job.index.data() + problem * job.places(),
              job.weights_of(problem), selection.usable, selection.best);
          const T* floor =
              floors != nullptr ? floors + problem * settings.floor_stride + left : nullptr;
          for (int j = 0; j < width; ++j) {
            T old[kRows];
            for (int row = 0; row < kRows; ++row) {
              old[row] = static_cast<const T*>(job.distribution)[at + row * dimensions + j];
            }
            write_marginal(job, at + j, selection.usable > 0, selection.weight, tile.moments(j),
                rows[selection.best * dimensions + j], selection.better, old, extra_variance,
                floor != nullptr ? static_cast<double>(floor[j])
                                 : -std::numeric_limits<double>::infinity(),
                newest);
          }
        }
      });
}

// The whole operator.
void run(const Job& given, Device) {
  Work job(given);
  *job.new_generation = *job.generation + 1;
  visit_fitness(job.fitness_type, [&](auto kind) { select<decltype(kind)>(job); });
  (job.type == Number::Float ? update<float> : update<double>)(job);
}

}  // namespace
}  // namespace cem_tetris::update
