// The operators on the CPU: a problem, or a group of its samples, is the work of one thread.
#pragma once

#include <memory>
#include <vector>

#include "cem_update/cpu.h"
#include "draw.h"

namespace cem_tetris::cma {
namespace {

// One thread as a team.
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
  // Factorises a matrix, `lower` by columns, as L D L^T: subtracts from every column what the
  // columns before it explain. The numbers of column j end up multiplied by products[j], the
  // pivots' mantissas before it.
  void eliminate(const Plan& plan, double* lower, double* products) const {
    int d = plan.dimensions;
    int stride = plan.stride;
    double product = 1.0;
    for (int j = 0; j < d; ++j) {
      const double* column = lower + j * stride;
      Pivot pivot(column[j]);
      products[j] = product;
      product *= pivot.mantissa;
      for (int k = j + 1; k < d; ++k) {
        double scaled = column[k] * pivot.scale;
        double* other = lower + k * stride;
#pragma GCC ivdep
        for (int i = k; i < d; ++i) other[i] = other[i] * pivot.mantissa - column[i] * scaled;
      }
    }
  }
};

// Updates one problem. order, value, memory: room for adapt().
void update_problem(const Call& call, int64_t problem, std::vector<uint16_t>& order,
    std::vector<double>& value, double* memory) {
  int usable = 0;
  update::visit_fitness(call.job.fitness_type, [&](auto kind) {
    using Type = decltype(kind);
    const auto* fitness = update::fitness_of<Type>(call.job, problem);
    int rank = 0;
    for (const auto& [key, i] : update::ranking<Type>(call.job, problem)) {
      bool failed = Type::kCanFail && key == typename Type::Key(-1);
      usable += failed ? 0 : 1;
      order[rank] = uint16_t(i);
      value[rank++] = Type::value(fitness[i]);
    }
  });
  bool is_float = call.job.type == update::Number::Float;
  auto* adapt_as = is_float ? adapt<float, One> : adapt<double, One>;
  adapt_as(One{}, call, problem, order.data(), value.data(), usable, memory);
}

void run(const Call& call, Device) {
  const update::Settings& settings = call.job.settings;
  if (settings.problems == 0) *call.job.new_generation = *call.job.generation + 1;
  int64_t rows = settings.population + settings.dimensions;
  int64_t work = rows * settings.dimensions * settings.dimensions;
  update::share(settings.problems, work, [&](int64_t begin, int64_t end) {
    const std::unique_ptr<double[]> memory(new double[call.plan.doubles()]);
    std::vector<uint16_t> order(settings.population);
    std::vector<double> value(settings.population);
    for (int64_t problem = begin; problem < end; ++problem) {
      update_problem(call, problem, order, value, memory.get());
    }
  });
}

void run(const Draw& call, Device) {
  auto* draw_as = call.type == ScalarType::Float ? draw<float, One> : draw<double, One>;
  constexpr int64_t kNoise = 16;  // work for a number of the noise, in multiplications
  int64_t work = int64_t{kGroup} * call.dimensions * (call.dimensions + kNoise);
  update::share(call.problems * call.groups, work, [&](int64_t begin, int64_t end) {
    const std::unique_ptr<double[]> memory(new double[call.doubles()]);
    for (int64_t item = begin; item < end; ++item) draw_as(One{}, call, item, memory.get());
  });
}

}  // namespace
}  // namespace cem_tetris::cma
