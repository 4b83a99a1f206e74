// The update: schema and the CPU kernel.
//
// First every problem selects its elites, then every tile of kTile dimensions of a problem adds them up.
// Threads share the problems, then the tiles; no sum depends on their number.

// Without errno a square root is one instruction, which has a vector form.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-math-errno")
#endif

#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "arguments.h"

namespace cem_tetris::update {
namespace {

constexpr int kTile = 64;
constexpr int64_t kGrain = 1 << 15;  // elements that are worth a thread

// What selection leaves for the sums of a problem.
struct Selection {
  int64_t usable = 0, best = 0;  // the elites that did not fail, and the index of the best one
  bool better = false;           // than the best candidate so far
  Weight weight{};
};

// The elites of one problem: places 0 to K - 1 hold those that did not fail in index order, then the first
// that did.
template <typename Key>
class Selector {
 public:
  std::vector<Key> keys;
  std::vector<int64_t> rank;  // of each place, where set_ranks was called
  int64_t usable = 0, best = 0;

  Selector(int64_t population, int64_t wanted) : keys(population), rank(wanted), wanted_(wanted) {}

  // index: K + 1 places, the last one is scratch. can_fail: whether the greatest key says that one failed.
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
    if (passed <= wanted_) {
      take_usable(can_fail, index);
    } else {
      take(threshold(least, most), index);
    }
  }

  // Sets the ranks of all places.
  void set_ranks(const int64_t* index) {
    for (int64_t p = usable; p < wanted_; ++p) rank[p] = p;
    order_.resize(usable);
    for (int64_t p = 0; p < usable; ++p) order_[p] = {keys[index[p]], static_cast<uint32_t>(p)};
    std::sort(order_.begin(), order_.end());
    for (int64_t r = 0; r < usable; ++r) rank[order_[r].second] = r;
  }

  // The place of an elite of the greatest key.
  int64_t worst_place(const int64_t* index) const {
    int64_t worst = 0;
    for (int64_t p = 1; p < usable; ++p) {
      if (keys[index[p]] > keys[index[worst]]) worst = p;
    }
    return worst;
  }

 private:
  static constexpr Key kFailed = ~Key(0);

  int64_t count_to(Key limit) const {
    Key count = 0;
    for (const Key key : keys) count += key <= limit ? 1 : 0;
    return static_cast<int64_t>(count);
  }

  // The least key that no fewer than K keys are at or below; of several limits with K keys, any one.
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
    int64_t place = 0;
    if (count_to(limit) == wanted_) {
      for (int64_t i = 0; i < population; ++i) {
        index[place] = i;
        place += keys[i] <= limit ? 1 : 0;
      }
      return;
    }
    int64_t ties = wanted_ - (limit > 0 ? count_to(limit - 1) : 0);
    for (int64_t i = 0; i < population && place < wanted_; ++i) {
      const bool tie = keys[i] == limit && ties > 0;
      index[place] = i;
      place += keys[i] < limit || tie ? 1 : 0;
      ties -= tie ? 1 : 0;
    }
  }

  void take_usable(bool can_fail, int64_t* index) const {
    int64_t place = 0, failed = usable;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!can_fail || keys[i] != kFailed) {
        index[place++] = static_cast<int64_t>(i);
      } else if (failed < wanted_) {
        index[failed++] = static_cast<int64_t>(i);
      }
    }
  }

  int64_t wanted_;
  std::vector<std::pair<Key, uint32_t>> order_;
};

// Adds the residues that numbers were added to as a tree, for each of `width` columns; the others are 0.
inline void fold(double (*sums)[kTile], int residues, int width) {
  for (int half = kResidues / 2; half > 0; half /= 2) {
    for (int r = 0; r < half && r + half < residues; ++r) {
      for (int j = 0; j < width; ++j) sums[r][j] += sums[r + half][j];
    }
  }
}

inline int residues_of(int64_t count) { return static_cast<int>(std::min<int64_t>(count, kResidues)); }

// The sum of one number an elite in the order of update.h; number(p) is that of place p.
template <typename Number>
double ordered_sum(int64_t count, const Number& number) {
  double chunks[kResidues] = {};
  const auto folded = [](double* sums) {
    for (int half = kResidues / 2; half > 0; half /= 2) {
      for (int r = 0; r < half; ++r) sums[r] += sums[r + half];
    }
    return sums[0];
  };
  for (int64_t first = 0; first < count; first += kChunk) {
    const int64_t last = std::min(count, first + kChunk);
    double part[kResidues] = {};
    for (int64_t p = first; p < last; ++p) part[p % kResidues] += number(p);
    chunks[first / kChunk % kResidues] += folded(part);
  }
  return folded(chunks);
}

// The moments of the elites in kTile or fewer dimensions.
template <typename T>
struct Tile {
  double base[kTile];
  double part[2][kResidues][kTile], chunks[2][kResidues][kTile];

  Moments moments(int j) const { return {chunks[0][0][j], chunks[1][0][j]}; }

  // rows: the candidates of the problem at the tile's first dimension. weight: of each place, or null.
  void sum(const T* rows, int64_t stride, int width, const int64_t* index, const double* weight,
           const Selection& selected) {
    for (int j = 0; j < width; ++j) base[j] = rows[selected.best * stride + j];
    const int rounds = residues_of((selected.usable + kChunk - 1) / kChunk);
    for (auto& sums : chunks) {
      for (int r = 0; r < rounds; ++r) std::fill(sums[r], sums[r] + width, 0.0);
    }
    for (int64_t begin = 0; begin < selected.usable; begin += kChunk) {
      const int64_t end = std::min(selected.usable, begin + kChunk);
      const int residues = residues_of(end - begin), chunk = static_cast<int>(begin / kChunk % kResidues);
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
  // The residue class r of a chunk. A width that the compiler knows keeps the sums in registers.
  template <int kWidth>
  void add(const T* rows, int64_t stride, int width, const int64_t* index, const double* weight, int64_t p,
           int64_t end, int r) {
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

template <typename F>
void share(int64_t items, int64_t work, const F& function) {
  if (items * work <= kGrain) return function(0, items);  // a parallel loop of one thread costs more
  torch::stable::parallel_for(0, items, std::max<int64_t>(1, kGrain / std::max<int64_t>(work, 1)), function);
}

// The work of a call: pointers, and what passes from selection to the sums.
struct Job {
  const Settings& settings;
  const void *fitness, *candidates, *distribution, *floors;
  const double *record, *weights;
  double extra_variance;
  int64_t generation;
  void* new_distribution;
  double* new_record;
  int64_t* elites;
  std::vector<int64_t> index;   // K + 1 places a problem
  std::vector<double> weight;   // of each place, where there are weights
  std::vector<Selection> selection;

  int64_t places() const { return settings.elites + 1; }
  const double* weights_of(int64_t problem) const {
    return weights != nullptr ? weight.data() + problem * places() : nullptr;
  }
};

// The record of a problem; value(i) is the fitness of a candidate.
template <typename Key, typename Value>
void write_record(const Job& job, const Selector<Key>& selector, const int64_t* index, const Value& value,
                  Selection& selection, const double* old, double* record) {
  std::copy(old, old + kFigures, record);
  if (selector.usable == 0) {
    std::fill(record + kGenerationBest, record + kEliteThreshold + 1, std::nan(""));
    record[kRefused] = static_cast<double>(job.generation + 1);
    return;
  }
  const double top = value(selector.best) + 0.0;  // -0 becomes 0: equals may stand in for each other
  selection.better = is_better(top, old[kBestFitness], job.settings.maximize);
  if (selection.better) record[kBestFitness] = top;
  const double sum = ordered_sum(selector.usable, [&](int64_t p) { return value(index[p]); });
  record[kGenerationBest] = top;
  record[kEliteMean] = sum / static_cast<double>(selector.usable);
  record[kEliteThreshold] = value(index[selector.worst_place(index)]) + 0.0;
}

// Selects the elites of all problems; writes them and the records.
template <typename Type>
void select(Job& job) {
  const Settings& settings = job.settings;
  const int64_t population = settings.population, wanted = settings.elites;
  share(settings.problems, population, [&](int64_t begin, int64_t end) {
    Selector<typename Type::Key> selector(population, wanted);
    for (int64_t problem = begin; problem < end; ++problem) {
      const auto* fitness = static_cast<const typename Type::Bits*>(job.fitness) + problem * population;
      int64_t* index = job.index.data() + problem * job.places();
      for (int64_t i = 0; i < population; ++i) selector.keys[i] = Type::key(fitness[i], settings.maximize);
      selector.select(Type::kCanFail, index);
      Selection& selection = job.selection[problem];
      selection.usable = selector.usable;
      selection.best = selector.best;
      selection.weight = {static_cast<double>(selector.usable), static_cast<double>(selector.usable)};
      if (settings.ranked || job.weights != nullptr) selector.set_ranks(index);
      if (job.weights != nullptr) {
        double* mine = job.weight.data() + problem * job.places();
        for (int64_t p = 0; p < selector.usable; ++p) mine[p] = job.weights[selector.rank[p]];
        selection.weight = {ordered_sum(selector.usable, [&](int64_t p) { return mine[p]; }),
                            ordered_sum(selector.usable, [&](int64_t p) { return mine[p] * mine[p]; })};
      }
      int64_t* out = job.elites + problem * wanted;
      for (int64_t p = 0; p < wanted; ++p) out[settings.ranked ? selector.rank[p] : p] = index[p];
      write_record(
          job, selector, index, [&](int64_t i) { return Type::value(fitness[i]); }, selection,
          job.record + problem * kFigures, job.new_record + problem * kFigures);
    }
  });
}

// Updates the marginals of all problems and dimensions.
template <typename T>
void update(const Job& job) {
  const Settings& settings = job.settings;
  const int64_t dimensions = settings.dimensions, tiles = (dimensions + kTile - 1) / kTile;
  const auto* floors = static_cast<const T*>(job.floors);
  share(settings.problems * tiles, settings.elites * std::min<int64_t>(kTile, dimensions),
        [&](int64_t begin, int64_t end) {
    Tile<T> tile;
    for (int64_t item = begin; item < end; ++item) {
      const int64_t problem = item / tiles, left = item % tiles * kTile;
      const int width = static_cast<int>(std::min<int64_t>(kTile, dimensions - left));
      const Selection& selection = job.selection[problem];
      const T* old = static_cast<const T*>(job.distribution) + problem * kRows * dimensions + left;
      T* next = static_cast<T*>(job.new_distribution) + problem * kRows * dimensions + left;
      if (selection.usable == 0) {
        for (int row = 0; row < kRows; ++row) {
          std::copy(old + row * dimensions, old + row * dimensions + width, next + row * dimensions);
        }
        continue;
      }
      const T* rows = static_cast<const T*>(job.candidates) + problem * settings.population * dimensions + left;
      tile.sum(rows, dimensions, width, job.index.data() + problem * job.places(), job.weights_of(problem),
               selection);
      const T* best = selection.better ? rows + selection.best * dimensions : old + kBest * dimensions;
      const T* floor = floors != nullptr ? floors + problem * settings.floor_stride + left : nullptr;
      for (int j = 0; j < width; ++j) {
        const Marginal known{old[kMean * dimensions + j], old[kStd * dimensions + j],
                             old[kAveragedMean * dimensions + j]};
        const Marginal found =
            updated(settings, selection.weight, tile.moments(j), tile.base[j], known, job.extra_variance,
                    floor != nullptr ? floor[j] : -std::numeric_limits<double>::infinity(), job.generation);
        next[kMean * dimensions + j] = rounded<T>(found.mean);
        next[kStd * dimensions + j] = rounded<T>(found.std);
        next[kAveragedMean * dimensions + j] = rounded<T>(found.averaged_mean);
        next[kBest * dimensions + j] = best[j];
      }
    }
  });
}

Outputs cem_update_cpu(const Tensor& fitness, const Tensor& candidates, const Tensor& distribution,
                       const Tensor& record, const Tensor& generation, std::optional<Tensor> extra_variance,
                       std::optional<Tensor> weights, std::optional<Tensor> std_floor, int64_t num_elites,
                       bool maximize, int64_t variance_about, double smoothing, double std_smoothing,
                       double mean_averaging, bool ranked) {
  Arguments arguments = make_arguments(fitness, candidates, distribution, record, generation, extra_variance,
                                       weights, std_floor, num_elites, maximize, variance_about, smoothing,
                                       std_smoothing, mean_averaging, ranked);
  const Settings& settings = arguments.settings;
  const auto* extra = Arguments::data<double>(arguments.extra_variance);
  const int64_t t = *static_cast<const int64_t*>(arguments.generation.const_data_ptr());
  const int64_t places = settings.problems * (num_elites + 1);
  Job job{settings,
          arguments.fitness.const_data_ptr(),
          arguments.candidates.const_data_ptr(),
          arguments.distribution.const_data_ptr(),
          Arguments::data<void>(arguments.std_floor),
          static_cast<const double*>(arguments.record.const_data_ptr()),
          Arguments::data<double>(arguments.weights),
          extra != nullptr ? extra[table_place(t, settings.table)] : 0.0,
          t,
          arguments.new_distribution.mutable_data_ptr(),
          static_cast<double*>(arguments.new_record.mutable_data_ptr()),
          static_cast<int64_t*>(arguments.elites.mutable_data_ptr()),
          std::vector<int64_t>(places),
          std::vector<double>(weights.has_value() ? places : 0),
          std::vector<Selection>(settings.problems)};
  visit_fitness(arguments.fitness_type, [&](auto type) { select<decltype(type)>(job); });
  if (arguments.type == ScalarType::Float) {
    update<float>(job);
  } else {
    update<double>(job);
  }
  *static_cast<int64_t*>(arguments.new_generation.mutable_data_ptr()) = t + 1;
  return {arguments.new_distribution, arguments.new_record, arguments.new_generation, arguments.elites};
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(cem_tetris, m) {
  m.def(
      "cem_update(Tensor fitness, Tensor candidates, Tensor distribution, Tensor record, Tensor generation, "
      "Tensor? extra_variance, Tensor? weights, Tensor? std_floor, SymInt num_elites, bool maximize, "
      "int variance_about, float smoothing, float std_smoothing, float mean_averaging, bool ranked) "
      "-> (Tensor, Tensor, Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CPU, m) { m.impl("cem_update", TORCH_BOX(&cem_update_cpu)); }

}  // namespace cem_tetris::update
