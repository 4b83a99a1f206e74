// The operators on the CPU: a problem, or a group of its samples, is the work of one thread.
#pragma once

#include <memory>
#include <vector>

#include "cem_update/cpu.h"
#include "draw.h"

namespace cem_tetris::cma {
namespace {

// A team of one thread, as adapt() and draw() expect it; Block in launch.cuh is a team of a
// block.
struct OneThread {
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
  // Factorises a symmetric d x d matrix as L D L^T in place, by Gaussian elimination without
  // divisions. `lower` holds the columns from the diagonal down, column k at lower + k *
  // stride. Step j subtracts a multiple of column j from every later column. In place of a
  // division by the pivot, the later columns are multiplied by the pivot's mantissa, so that in
  // the end column j is too large by products[j], the product of the mantissas of all earlier
  // pivots. A pivot is mantissa / scale, and scale is a power of two.
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
        double multiple = column[k] * pivot.scale;
        double* later = lower + k * stride;
#pragma GCC ivdep
        for (int i = k; i < d; ++i) later[i] = later[i] * pivot.mantissa - column[i] * multiple;
      }
    }
  }
};

// Ranks the candidates of one problem (an entry of the batch) by fitness, best first, and
// updates its distribution by adapt(). order and value receive the candidates' indices and
// fitness by rank; memory is scratch. A CPU thread reuses these buffers for all its problems. A
// failed candidate (its fitness is NaN or the worst infinity) comes last and is not usable.
void update_problem(const Call& call, int64_t problem, std::vector<uint16_t>& order,
    std::vector<double>& value, double* memory) {
  int usable = 0;
  // Writes the candidates' indices and fitness by rank, best first, and counts those that did
  // not fail. `kind` stands for the type of the fitness: float, double or integer.
  update::visit_fitness(call.job.fitness_type, [&](auto kind) {
    using Type = decltype(kind);
    const auto* fitness = update::fitness_of<Type>(call.job, problem);
    int rank = 0;
    for (const auto& [key, i] : update::ranking<Type>(call.job, problem)) {
      bool has_failed = Type::kCanFail && key == Type::kFailed;
      if (!has_failed) ++usable;
      order[rank] = uint16_t(i);
      value[rank] = Type::value(fitness[i]);
      ++rank;
    }
  });
  bool is_float = call.job.type == update::Number::Float;
  auto* adapt_as = is_float ? adapt<float, OneThread> : adapt<double, OneThread>;
  adapt_as(OneThread{}, call, problem, order.data(), value.data(), usable, memory);
}

// Updates the distributions of all problems (entries of the batch), which the threads of the
// CPU share. If there are none, only the generation is counted.
void run(const Call& call, Device) {
  const update::Settings& settings = call.job.settings;
  if (settings.problems == 0) *call.job.new_generation = *call.job.generation + 1;
  int64_t rows = settings.population + settings.dimensions;
  int64_t problem_cost = rows * settings.dimensions * settings.dimensions;  // multiplications
  update::share(settings.problems, problem_cost, [&](int64_t begin, int64_t end) {
    const std::unique_ptr<double[]> memory(new double[call.plan.doubles()]);
    std::vector<uint16_t> order(settings.population);
    std::vector<double> value(settings.population);
    for (int64_t problem = begin; problem < end; ++problem) {
      update_problem(call, problem, order, value, memory.get());
    }
  });
}

// Draws the samples of all problems; threads share the groups of samples.
void run(const Draw& call, Device) {
  auto* draw_as =
      call.type == ScalarType::Float ? draw<float, OneThread> : draw<double, OneThread>;
  constexpr int64_t kNoiseCost = 16;  // of a number of the noise, in multiplications
  int64_t group_cost = int64_t{kGroup} * call.dimensions * (call.dimensions + kNoiseCost);
  update::share(call.problems * call.groups, group_cost, [&](int64_t begin, int64_t end) {
    const std::unique_ptr<double[]> memory(new double[call.doubles()]);
    for (int64_t item = begin; item < end; ++item)
      draw_as(OneThread{}, call, item, memory.get());
  });
}

}  // namespace
}  // namespace cem_tetris::cma
