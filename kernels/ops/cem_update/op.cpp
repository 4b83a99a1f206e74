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
#include <vector>

#include "arguments.h"
#include "moments.h"
#include "select.h"

namespace cem_tetris::update {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements that are worth a thread

// What selection leaves for the sums of a problem.
struct Selection {
  int64_t usable = 0, best = 0;  // the elites that did not fail, and the index of the best one
  bool better = false;           // than the best candidate so far
  Weight weight{};
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
  std::vector<int64_t> index;  // K + 1 places a problem
  std::vector<double> weight;  // of each place, where there are weights
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
  const double newest = newest_share(settings, job.generation);
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
            const T* rows =
                static_cast<const T*>(job.candidates) + problem * settings.population * dimensions + left;
            tile.sum(rows, dimensions, width, job.index.data() + problem * job.places(),
                     job.weights_of(problem), selection.usable, selection.best);
            const T* best = selection.better ? rows + selection.best * dimensions : old + kBest * dimensions;
            const T* floor = floors != nullptr ? floors + problem * settings.floor_stride + left : nullptr;
            for (int j = 0; j < width; ++j) {
              const Marginal known{old[kMean * dimensions + j], old[kStd * dimensions + j],
                                   old[kAveragedMean * dimensions + j]};
              const Marginal found = updated(
                  settings, selection.weight, tile.moments(j), tile.base[j], known, job.extra_variance,
                  floor != nullptr ? floor[j] : -std::numeric_limits<double>::infinity(), newest);
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
