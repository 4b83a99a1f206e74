// The update on the CPU.
//
// First every problem selects its elites, then every tile of kTile dimensions of a problem adds them up.
// Threads share the problems, then the tiles; no sum depends on their number.
#pragma once

// Without errno a square root is one instruction, which has a vector form.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-math-errno")
#endif

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

template <typename F> void share(int64_t items, int64_t work, const F& function) {
  if (items * work <= kGrain) return function(0, items);  // a parallel loop of one thread costs more
  torch::stable::parallel_for(0, items, std::max<int64_t>(1, kGrain / std::max<int64_t>(work, 1)), function);
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

// Selects the elites of all problems; writes them and the records.
template <typename Type> void select(Work& job) {
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
      const auto value = [&](int64_t i) { return Type::value(fitness[i]); };
      const bool some = selector.usable > 0;
      const double top = some ? value(selector.best) : 0.0;
      selection.better = is_better(top, job.record[problem * kFigures + kBestFitness], settings.maximize);
      write_record(job, problem, selector.usable, top,
          ordered_sum(selector.usable, [&](int64_t p) { return value(index[p]); }),
          some ? value(index[selector.worst_place(index)]) : 0.0, *job.generation);
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
            const Marginal known{
                old[kMean * dimensions + j], old[kStd * dimensions + j], old[kAveragedMean * dimensions + j]};
            const Marginal found =
                updated(settings, selection.weight, tile.moments(j), tile.base[j], known, extra_variance,
                    floor != nullptr ? floor[j] : -std::numeric_limits<double>::infinity(), newest);
            next[kMean * dimensions + j] = rounded<T>(found.mean);
            next[kStd * dimensions + j] = rounded<T>(found.std);
            next[kAveragedMean * dimensions + j] = rounded<T>(found.averaged_mean);
            next[kBest * dimensions + j] = best[j];
          }
        }
      });
}

// The whole operator.
void run(const Job& given, ScalarType type, Device) {
  Work job(given);
  *job.new_generation = *job.generation + 1;
  visit_fitness(job.type, [&](auto kind) { select<decltype(kind)>(job); });
  (type == ScalarType::Float ? update<float> : update<double>)(job);
}

}  // namespace
}  // namespace cem_tetris::update
