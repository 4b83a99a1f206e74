// The operators on the CPU. A thread updates one problem, or draws one group of samples of a
// problem.
#pragma once

#include <memory>
#include <vector>

#include "cem_update/cpu.h"
#include "draw.h"

namespace cem_tetris::cma {
namespace {

// A team of a single CPU thread, as adapt() and draw() expect it. In launch.cuh, Block is a
// team that consists of the threads of a CUDA block.
struct OneThread {
  static constexpr int thread = 0, threads = 1, lane = 0, lanes = 1, group = 0, groups = 1;
  void sync() const {}
  void sync_lanes() const {}
  bool all(bool good) const { return good; }
  // Calls store(i, k, load(i, k)) for all rows i < rows and columns k < columns.
  template <int, typename Load, typename Store>
  void copy_matrix(int rows, int columns, const Load& load, const Store& store) const {
    for (int i = 0; i < rows; ++i) {
      for (int k = 0; k < columns; ++k) store(i, k, load(i, k));
    }
  }
  // Factorises a symmetric d x d matrix a as L D L^T in place, by Gaussian elimination without
  // divisions. Entry a(i, k) is lower[k * stride + i]; only the entries with i >= k, on and
  // below the diagonal, are used. L has ones on its diagonal.
  //
  // Step j of the usual elimination updates every later column k > j:
  //
  //     a(i, k) = a(i, k) - a(i, j) a(k, j) / pivot, where pivot = a(j, j).
  //
  // The pivot is mantissa / scale, where scale is a power of two. To avoid the division, this
  // function computes the right-hand side times the mantissa:
  //
  //     a(i, k) = a(i, k) mantissa - a(i, j) a(k, j) scale.
  //
  // The usual elimination leaves column j of L D in column j. Here this column is products[j]
  // times as large; products[j] is the product of the mantissas of all earlier pivots.
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
        // The pragma promises that the two columns do not overlap.
#pragma GCC ivdep
        for (int i = k; i < d; ++i) later[i] = later[i] * pivot.mantissa - column[i] * multiple;
      }
    }
  }
};

// Updates the distribution of one problem (batch entry): ranks its candidates by fitness, the
// best one first, and calls adapt().
//
// `order` receives the candidates' indices by rank, and `value` their fitness. `memory` is
// scratch memory for adapt(). A CPU thread reuses these three buffers for all of its problems.
//
// A candidate fails if its fitness is NaN or infinitely bad; failed candidates come last, with
// the key Type::kFailed. Integers cannot fail, so Type::kCanFail is false for them.
void update_problem(const Call& call, int64_t problem, std::vector<uint16_t>& order,
    std::vector<double>& value, double* memory) {
  int valid_candidates = 0;
  // Write the candidates' indices and fitness by rank, and count those that did not fail.
  // visit_fitness() calls the lambda with an object of the class that describes the type of the
  // fitness: float, double or integer. ranking() returns the candidates as pairs of key and
  // index, the best one first. The key is an integer that is smaller for a better fitness.
  visit_fitness(call.job.fitness_type, [&](auto kind) {
    using Type = decltype(kind);
    const auto* fitness = fitness_of<Type>(call.job, problem);
    int rank = 0;
    for (const auto& [key, i] : ranking<Type>(call.job, problem)) {
      bool has_failed = Type::kCanFail && key == Type::kFailed;
      if (!has_failed) ++valid_candidates;
      order[rank] = uint16_t(i);
      value[rank] = Type::value(fitness[i]);
      ++rank;
    }
  });
  bool is_float = call.job.type == Number::Float;
  auto* adapt_problem = is_float ? adapt<float, OneThread> : adapt<double, OneThread>;
  adapt_problem(
      OneThread{}, call, problem, order.data(), value.data(), valid_candidates, memory);
}

// Updates the distributions of all problems (batch entries). The CPU threads share the
// problems, and each has scratch memory of its own. If there are no problems, only the
// generation advances.
void run(const Call& call, Device) {
  const Settings& settings = call.job.settings;
  if (settings.problems == 0) *call.job.new_generation = *call.job.generation + 1;
  int64_t rows = settings.population + settings.dimensions;
  int64_t problem_cost = rows * settings.dimensions * settings.dimensions;  // multiplications
  split_work(settings.problems, problem_cost, [&](int64_t begin, int64_t end) {
    const std::unique_ptr<double[]> memory(new double[call.plan.doubles()]);
    std::vector<uint16_t> order(settings.population);
    std::vector<double> value(settings.population);
    for (int64_t problem = begin; problem < end; ++problem) {
      update_problem(call, problem, order, value, memory.get());
    }
  });
}

// Draws the samples of all problems. The CPU threads share the groups of samples.
void run(const Draw& call, Device) {
  auto* draw_as =
      call.type == ScalarType::Float ? draw<float, OneThread> : draw<double, OneThread>;
  constexpr int64_t kNoiseCost = 16;  // multiplications that take as long as one random number
  int64_t group_cost = int64_t{kGroup} * call.dimensions * (call.dimensions + kNoiseCost);
  split_work(call.problems * call.groups, group_cost, [&](int64_t begin, int64_t end) {
    const std::unique_ptr<double[]> memory(new double[call.doubles()]);
    for (int64_t item = begin; item < end; ++item)
      draw_as(OneThread{}, call, item, memory.get());
  });
}

}  // namespace
}  // namespace cem_tetris::cma
