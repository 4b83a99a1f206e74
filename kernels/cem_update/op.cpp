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
#include <utility>
#include <vector>

#include "arguments.h"

namespace cem_tetris::update {
namespace {

constexpr int kTile = 64;
constexpr int64_t kGrain = 1 << 15;  // elements that are worth a thread

// What selection leaves for the sums of a problem.
struct Selection {
  int64_t usable;  // elites that did not fail
  int64_t best;    // the index of the best one
  int64_t generation;
};

// The elites of one problem: their places 0 to K - 1 are those that did not fail in index order, then the
// first that did.
template <typename Type>
class Selector {
 public:
  using Key = typename Type::Key;

  Selector(const Settings& settings) : settings_(settings), keys_(settings.population) {}

  // index: K + 1 places, the last one is scratch. rank: K, unless nobody needs it.
  Selection select(const typename Type::Bits* fitness, int64_t* index, int64_t* rank) {
    const int64_t population = settings_.population, wanted = settings_.elites;
    Key least = ~Key(0), most = 0;
    Key failures = 0;  // wide enough: the population is below 2^31
    for (int64_t i = 0; i < population; ++i) {
      const Key key = Type::key(fitness[i], settings_.maximize);
      const bool failed = Type::kCanFail && key == kFailed;
      keys_[i] = key;
      least = std::min(least, key);
      most = std::max(most, failed ? Key(0) : key);
      failures += failed ? 1 : 0;
    }
    const int64_t usable = std::min(population - static_cast<int64_t>(failures), wanted);
    if (population - static_cast<int64_t>(failures) <= wanted) {
      take_usable(index, usable);
    } else {
      take(threshold(least, most), index);
    }
    const auto best = std::find(keys_.begin(), keys_.end(), least) - keys_.begin();
    if (rank != nullptr) set_ranks(index, usable, rank);
    return {usable, usable > 0 ? best : 0, 0};
  }

  // The place of the last elite in rank order.
  int64_t worst_place(const int64_t* index, int64_t usable) const {
    int64_t worst = 0;
    for (int64_t p = 1; p < usable; ++p) {
      if (keys_[index[p]] >= keys_[index[worst]]) worst = p;
    }
    return worst;
  }

 private:
  static constexpr Key kFailed = ~Key(0);

  Key count_to(Key limit) const {
    Key count = 0;
    for (const Key key : keys_) count += key <= limit ? 1 : 0;
    return count;
  }

  // The least key that no fewer than K keys are at or below; of several limits with K keys, any one.
  Key threshold(Key low, Key high) const {
    while (low < high) {
      const Key middle = low + (high - low) / 2;
      const auto count = static_cast<int64_t>(count_to(middle));
      if (count == settings_.elites) return middle;
      if (count > settings_.elites) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  // All below the limit and the first at it.
  void take(Key limit, int64_t* index) const {
    const int64_t population = settings_.population, wanted = settings_.elites;
    const auto within = static_cast<int64_t>(count_to(limit));
    int64_t place = 0;
    if (within == wanted) {
      for (int64_t i = 0; i < population; ++i) {
        index[place] = i;
        place += keys_[i] <= limit ? 1 : 0;
      }
      return;
    }
    int64_t ties = wanted - static_cast<int64_t>(limit > 0 ? count_to(limit - 1) : 0);
    for (int64_t i = 0; i < population && place < wanted; ++i) {
      const bool tie = keys_[i] == limit && ties > 0;
      index[place] = i;
      place += keys_[i] < limit || tie ? 1 : 0;
      ties -= tie ? 1 : 0;
    }
  }

  void take_usable(int64_t* index, int64_t usable) const {
    int64_t place = 0, failed = usable;
    for (int64_t i = 0; i < settings_.population; ++i) {
      if (!Type::kCanFail || keys_[i] != kFailed) {
        index[place++] = i;
      } else if (failed < settings_.elites) {
        index[failed++] = i;
      }
    }
  }

  void set_ranks(const int64_t* index, int64_t usable, int64_t* rank) {
    for (int64_t p = usable; p < settings_.elites; ++p) rank[p] = p;
    order_.resize(usable);
    for (int64_t p = 0; p < usable; ++p) order_[p] = {keys_[index[p]], static_cast<uint32_t>(p)};
    std::sort(order_.begin(), order_.end());
    for (int64_t r = 0; r < usable; ++r) rank[order_[r].second] = r;
  }

  const Settings& settings_;
  std::vector<Key> keys_;
  std::vector<std::pair<Key, uint32_t>> order_;
};

// The sum of one number an elite in the order of update.h; number(p) is that of place p.
template <typename Number>
double ordered_sum(int64_t count, const Number& number) {
  double total = 0.0;
  for (int64_t first = 0; first < count; first += kChunk) {
    const int64_t last = std::min(count, first + kChunk);
    double part[kResidues] = {};
    for (int64_t p = first; p < last; ++p) part[p % kResidues] += number(p);
    for (int half = kResidues / 2; half > 0; half /= 2) {
      for (int r = 0; r < half; ++r) part[r] += part[r + half];
    }
    total += part[0];
  }
  return total;
}

// The moments of the elites in kTile or fewer dimensions.
template <typename T>
struct Tile {
  double base[kTile], first[kTile], second[kTile];
  double part[2][kResidues][kTile];

  // rows: the candidates of the problem at the tile's first dimension. weight: of each place, or null.
  void sum(const T* rows, int64_t stride, int width, const int64_t* index, const double* weight,
           const Selection& selected) {
    for (int j = 0; j < width; ++j) base[j] = rows[selected.best * stride + j];
    std::fill(first, first + width, 0.0);
    std::fill(second, second + width, 0.0);
    for (int64_t begin = 0; begin < selected.usable; begin += kChunk) {
      const int64_t end = std::min(selected.usable, begin + kChunk);
      const int residues = static_cast<int>(std::min<int64_t>(kResidues, end - begin));
      for (int r = 0; r < residues; ++r) {
        if (width == kTile) {
          add<kTile>(rows, stride, kTile, index, weight, begin + r, end, r);
        } else {
          add<0>(rows, stride, width, index, weight, begin + r, end, r);
        }
      }
      for (auto& sums : part) {
        for (int half = kResidues / 2; half > 0; half /= 2) {
          for (int r = 0; r < half && r + half < residues; ++r) {  // a sum that nothing was added to is 0
            for (int j = 0; j < width; ++j) sums[r][j] += sums[r + half][j];
          }
        }
      }
      for (int j = 0; j < width; ++j) first[j] += part[0][0][j];
      for (int j = 0; j < width; ++j) second[j] += part[1][0][j];
    }
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

// Copies or replaces the best candidate of a problem, and writes its record.
template <typename Type>
void write_record(const Settings& settings, const typename Type::Bits* fitness, const int64_t* index,
                  const Selection& selected, int64_t worst, int64_t generation, const double* old,
                  double* record) {
  std::copy(old, old + kFigures, record);
  if (selected.usable == 0) {
    std::fill(record + kGenerationBest, record + kEliteThreshold + 1, std::nan(""));
    record[kRefused] = static_cast<double>(generation + 1);
    return;
  }
  const double top = Type::value(fitness[selected.best]);
  if (is_better(top, old[kBestFitness], settings.maximize)) record[kBestFitness] = top;
  const double sum = ordered_sum(selected.usable, [&](int64_t p) { return Type::value(fitness[index[p]]); });
  record[kGenerationBest] = top;
  record[kEliteMean] = sum / static_cast<double>(selected.usable);
  record[kEliteThreshold] = Type::value(fitness[index[worst]]);
}

template <typename Type, typename T>
void run(Arguments& arguments) {
  const Settings& settings = arguments.settings;
  const int64_t wanted = settings.elites, dimensions = settings.dimensions, population = settings.population;
  const auto* fitness = static_cast<const typename Type::Bits*>(arguments.fitness.const_data_ptr());
  const auto* candidates = static_cast<const T*>(arguments.candidates.const_data_ptr());
  const auto* old = static_cast<const T*>(arguments.distribution.const_data_ptr());
  const auto* old_record = static_cast<const double*>(arguments.record.const_data_ptr());
  const auto* floors = Arguments::data<T>(arguments.std_floor);
  const double *weights = arguments.weight(), *extra = arguments.extra();
  const int64_t generation = *static_cast<const int64_t*>(arguments.generation.const_data_ptr());
  auto* next = static_cast<T*>(arguments.new_distribution.mutable_data_ptr());
  auto* record = static_cast<double*>(arguments.new_record.mutable_data_ptr());
  auto* elites = static_cast<int64_t*>(arguments.elites.mutable_data_ptr());

  const int64_t places = wanted + 1;
  const bool needs_rank = settings.ranked || weights != nullptr;
  std::vector<int64_t> index(settings.problems * places), rank(needs_rank ? index.size() : 0);
  std::vector<double> weight(weights != nullptr ? index.size() : 0);
  std::vector<Selection> selection(settings.problems);
  std::vector<Weight> total(settings.problems);

  const auto select = [&](int64_t begin, int64_t end) {
    Selector<Type> selector(settings);
    for (int64_t problem = begin; problem < end; ++problem) {
      int64_t* chosen = index.data() + problem * places;
      int64_t* ranks = needs_rank ? rank.data() + problem * places : nullptr;
      const auto* scores = fitness + problem * population;
      const Selection selected = selection[problem] = selector.select(scores, chosen, ranks);
      total[problem] = {static_cast<double>(selected.usable), static_cast<double>(selected.usable)};
      if (weights != nullptr) {
        double* mine = weight.data() + problem * places;
        for (int64_t p = 0; p < selected.usable; ++p) mine[p] = weights[ranks[p]];
        total[problem] = {ordered_sum(selected.usable, [&](int64_t p) { return mine[p]; }),
                          ordered_sum(selected.usable, [&](int64_t p) { return mine[p] * mine[p]; })};
      }
      int64_t* out = elites + problem * wanted;
      for (int64_t p = 0; p < wanted; ++p) out[settings.ranked ? ranks[p] : p] = chosen[p];
      write_record<Type>(settings, scores, chosen, selected, selector.worst_place(chosen, selected.usable),
                         generation, old_record + problem * kFigures, record + problem * kFigures);
    }
  };
  const int64_t tiles = (dimensions + kTile - 1) / kTile;
  const auto update = [&](int64_t begin, int64_t end) {
    Tile<T> tile;
    for (int64_t item = begin; item < end; ++item) {
      const int64_t problem = item / tiles, left = item % tiles * kTile;
      const int width = static_cast<int>(std::min<int64_t>(kTile, dimensions - left));
      const Selection& selected = selection[problem];
      const T* from = old + problem * kRows * dimensions + left;
      T* to = next + problem * kRows * dimensions + left;
      if (selected.usable == 0) {
        for (int row = 0; row < kRows; ++row) {
          std::copy(from + row * dimensions, from + row * dimensions + width, to + row * dimensions);
        }
        continue;
      }
      const T* rows = candidates + problem * population * dimensions + left;
      tile.sum(rows, dimensions, width, index.data() + problem * places,
               weights != nullptr ? weight.data() + problem * places : nullptr, selected);
      const double* figures = old_record + problem * kFigures;
      const bool better = is_better(Type::value(fitness[problem * population + selected.best]),
                                    figures[kBestFitness], settings.maximize);
      const T* best = better ? rows + selected.best * dimensions : from + kBest * dimensions;
      const T* floor = floors != nullptr ? floors + problem * settings.floor_stride + left : nullptr;
      for (int j = 0; j < width; ++j) {
        const Marginal known{from[kMean * dimensions + j], from[kStd * dimensions + j],
                             from[kAveragedMean * dimensions + j]};
        const double least = floor != nullptr ? floor[j] : 0.0;
        const Marginal found =
            updated(settings, total[problem], {tile.first[j], tile.second[j]}, tile.base[j], known, extra,
                    floor != nullptr ? &least : nullptr, generation);
        to[kMean * dimensions + j] = rounded<T>(found.mean);
        to[kStd * dimensions + j] = rounded<T>(found.std);
        to[kAveragedMean * dimensions + j] = rounded<T>(found.averaged_mean);
        to[kBest * dimensions + j] = best[j];
      }
    }
  };
  const auto shared = [](int64_t items, int64_t work, const auto& function) {
    if (items * work <= kGrain) return function(0, items);  // a parallel loop of one thread costs more
    torch::stable::parallel_for(0, items, std::max<int64_t>(1, kGrain / std::max<int64_t>(work, 1)), function);
  };
  shared(settings.problems, population, select);
  shared(settings.problems * tiles, wanted * std::min<int64_t>(kTile, dimensions), update);
  *static_cast<int64_t*>(arguments.new_generation.mutable_data_ptr()) = generation + 1;
}

Outputs cem_update_cpu(const Tensor& fitness, const Tensor& candidates, const Tensor& distribution,
                       const Tensor& record, const Tensor& generation, std::optional<Tensor> extra_variance,
                       std::optional<Tensor> weights, std::optional<Tensor> std_floor, int64_t num_elites,
                       bool maximize, int64_t variance_about, double smoothing, double std_smoothing,
                       double mean_averaging, bool ranked) {
  Arguments arguments = make_arguments(fitness, candidates, distribution, record, generation, extra_variance,
                                       weights, std_floor, num_elites, maximize, variance_about, smoothing,
                                       std_smoothing, mean_averaging, ranked);
  visit_fitness(arguments.fitness_type, [&](auto type) {
    using Type = decltype(type);
    if (arguments.type == ScalarType::Float) return run<Type, float>(arguments);
    run<Type, double>(arguments);
  });
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
