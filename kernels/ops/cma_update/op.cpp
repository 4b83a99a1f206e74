// The schemas, and the operators on the CPU: a problem, or a group of its samples, is the work of one thread.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "cem_update/cpu.h"
#include "op.h"

namespace cem_tetris::cma {
namespace {

struct One {
  static constexpr int thread = 0, threads = 1, lanes = 1;
  void sync() const {}
  void sync_lanes() const {}
  void wait() const {}
  bool all(bool good) const { return good; }
  // Calls store(i, k, load(i, k)) for i < rows and k < columns.
  template <int, typename Load, typename Store>
  void table(int rows, int columns, const Load& load, const Store& store) const {
    for (int i = 0; i < rows; ++i) {
      for (int k = 0; k < columns; ++k) store(i, k, load(i, k));
    }
  }
  // Calls f(slice, place, sum) for all sums, which are 0 at first.
  template <typename F> void tiles(const Plan& plan, double* sums, const F& f) const {
    for (int u = 0; u < plan.slices * plan.tiles; ++u) {
      f(u / plan.tiles, Place(u % plan.tiles), sums + u * kCells);
    }
  }
  // Puts them where place() says.
  void publish(const Plan&, double*) const {}
  int place(const Plan& plan, int slice, int tile, int cell) const {
    return (slice * plan.tiles + tile) * kCells + cell;
  }
  // Solves L white = y, for those who lead.
  void solve(
      const Plan& plan, const double* lower, const double* reciprocal, const double* y, double* white) const {
    whiten(plan, lower, reciprocal, y, white);
  }
  // Subtracts from the entries what the columns before theirs explain.
  void eliminate(const Plan& plan, double* lower) const {
    const int d = plan.dimensions, q = plan.stride;
    for (int j = 0; j < d; ++j) {
      const double* const column = lower + j * q;
      const double inverse = 1.0 / column[j];
      for (int k = j + 1; k < d; ++k) {
#pragma GCC ivdep
        for (int i = k; i < d; ++i) lower[k * q + i] -= column[i] * (column[k] * inverse);
      }
    }
  }
};

// Writes the candidates of a problem that did not fail, best first; returns how many they are.
int ranked(const Job& job, int64_t problem, std::vector<std::pair<uint64_t, uint16_t>>& keys,
    std::vector<uint16_t>& order) {
  const int64_t population = job.settings.population;
  keys.clear();
  update::visit_fitness(job.type, [&](auto kind) {
    using Type = decltype(kind);
    const auto* fitness = static_cast<const typename Type::Bits*>(job.fitness) + problem * population;
    for (int64_t i = 0; i < population; ++i) {
      const auto key = Type::key(fitness[i], job.settings.maximize);
      if (Type::kCanFail && key == static_cast<typename Type::Key>(-1)) continue;
      keys.emplace_back(key, static_cast<uint16_t>(i));
    }
  });
  std::sort(keys.begin(), keys.end());
  std::transform(keys.begin(), keys.end(), order.begin(), [](const auto& each) { return each.second; });
  return static_cast<int>(keys.size());
}

void run(const Call& call, ScalarType type, Device device) {
  update::run(call.job, type, device);
  const update::Settings& settings = call.job.settings;
  const int64_t work =
      (settings.population + settings.dimensions) * settings.dimensions * settings.dimensions;
  update::share(settings.problems, work, [&](int64_t begin, int64_t end) {
    const std::unique_ptr<double[]> memory(new double[call.plan.doubles()]);
    std::vector<uint16_t> order(settings.population);
    std::vector<std::pair<uint64_t, uint16_t>> keys;
    keys.reserve(settings.population);
    for (int64_t problem = begin; problem < end; ++problem) {
      const int usable = ranked(call.job, problem, keys, order);
      (type == ScalarType::Float ? adapt<float, One> : adapt<double, One>)(One{}, call, problem, order.data(),
          usable, memory.get());
    }
  });
}

void run(const Draw& call, ScalarType type, Device) {
  update::share(call.problems * call.groups, int64_t{kGroup} * call.dimensions * (call.dimensions + 16),
      [&](int64_t begin, int64_t end) {
        const std::unique_ptr<double[]> memory(new double[call.doubles()]);
        for (int64_t item = begin; item < end; ++item) {
          (type == ScalarType::Float ? draw<float, One> : draw<double, One>)(One{}, call, item, memory.get());
        }
      });
}

}  // namespace
}  // namespace cem_tetris::cma

STABLE_TORCH_LIBRARY_FRAGMENT(cem_tetris, m) {
  m.def(cem_tetris::cma::kUpdateSchema);
  m.def(cem_tetris::cma::kDrawSchema);
}

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CEM_TETRIS_DEVICE, m) {
  m.impl("cma_update", TORCH_BOX(&cem_tetris::cma::cma_update<cem_tetris::cma::run>));
  m.impl("draw_correlated", TORCH_BOX(&cem_tetris::cma::draw_correlated<cem_tetris::cma::run>));
}
