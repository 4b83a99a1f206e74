// The operators on the CPU: a problem, or a group of its samples, is the work of one thread.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "cem_update/cpu.h"
#include "draw.h"

namespace cem_tetris::cma {
namespace {

struct One {
  static constexpr int thread = 0, threads = 1, lane = 0, lanes = 1, group = 0, groups = 1;
  void sync() const {}
  void sync_lanes() const {}
  bool all(bool good) const { return good; }
  // Calls store(i, k, load(i, k)) for i < rows and k < columns.
  template <int, typename Load, typename Store>
  void table(int rows, int columns, const Load& load, const Store& store) const {
    for (int i = 0; i < rows; ++i) {
      for (int k = 0; k < columns; ++k) store(i, k, load(i, k));
    }
  }
  // Subtracts from every column what those before it explain. The numbers of column j end up
  // multiplied by products[j].
  void eliminate(const Plan& plan, double* lower, double* products) const {
    const int d = plan.dimensions, q = plan.stride;
    double product = 1.0;
    for (int j = 0; j < d; ++j) {
      const double* const column = lower + j * q;
      const Pivot pivot(column[j]);
      products[j] = product;
      product *= pivot.mantissa;
      for (int k = j + 1; k < d; ++k) {
        const double of_row = column[k] * pivot.scale;
#pragma GCC ivdep
        for (int i = k; i < d; ++i)
          lower[k * q + i] = lower[k * q + i] * pivot.mantissa - column[i] * of_row;
      }
    }
  }
};

void run(const Call& call, Device) {
  const update::Settings& settings = call.job.settings;
  if (settings.problems == 0) *call.job.new_generation = *call.job.generation + 1;
  const int64_t work =
      (settings.population + settings.dimensions) * settings.dimensions * settings.dimensions;
  update::share(settings.problems, work, [&](int64_t begin, int64_t end) {
    const std::unique_ptr<double[]> memory(new double[call.plan.doubles()]);
    std::vector<uint16_t> order(settings.population);
    std::vector<double> value(settings.population);
    for (int64_t problem = begin; problem < end; ++problem) {
      int usable = 0, place = 0;
      update::visit_fitness(call.job.fitness_type, [&](auto kind) {
        using Type = decltype(kind);
        const auto* fitness = static_cast<const typename Type::Bits*>(call.job.fitness) +
                              problem * settings.population;
        for (const auto& [key, i] : update::ranking<Type>(call.job, problem)) {
          usable += Type::kCanFail && key == static_cast<typename Type::Key>(-1) ? 0 : 1;
          order[place] = static_cast<uint16_t>(i);
          value[place++] = Type::value(fitness[i]);
        }
      });
      (call.job.type == update::Number::Float ? adapt<float, One> : adapt<double, One>)(One{},
          call, problem, order.data(), value.data(), usable, memory.get());
    }
  });
}

void run(const Draw& call, Device) {
  update::share(call.problems * call.groups,
      int64_t{kGroup} * call.dimensions * (call.dimensions + 16),
      [&](int64_t begin, int64_t end) {
        const std::unique_ptr<double[]> memory(new double[call.doubles()]);
        for (int64_t item = begin; item < end; ++item) {
          (call.type == ScalarType::Float ? draw<float, One> : draw<double, One>)(One{}, call,
              item, memory.get());
        }
      });
}

}  // namespace
}  // namespace cem_tetris::cma
