// The operator that computes the features of all placements, on the CPU. PyTorch's threads
// share the environments.
//
// This file is compiled once per feature set, like tetris/engine/rollout.cpp.
// tetris/envs/native.py calls the operator.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>

#include "fastest_lanes.h"
#include "placement_features.h"

namespace {

using namespace tetris;
using L = TallLanes;

// A thread gets at least this many environments, as in step.cpp. On a busy machine, threads
// that wait for each other lose the most time.
constexpr int64_t GRAIN = 1024;

// Writes the features of all placements in one environment, one row per action. The features
// are 0 for placements that end the game, and for actions that are not placements.
template <class List>
class Writer {
 public:
  // Loads the board of environment i, and initialises its results in the tensors: all features
  // become 0, and `ends_game` becomes 1 for every action that is a placement of the piece.
  // Later `write` computes the placements that do not end the game.
  //
  // all.columns has the shape (width, count). add_walls makes a board from a function that
  // returns column c.
  Writer(const FeatureTensors& all, const Geometry<L>& geometry, int64_t i)
      : rules_(all.rules),
        piece_(all.piece[i]),
        features_(all.features + i * actions() * List::COUNT),
        ends_game_(all.ends_game + i * actions()),
        board_(geometry,
            add_walls(geometry, [&](int c) { return all.columns[c * all.count + i]; })) {
    std::fill_n(features_, actions() * List::COUNT, 0.0f);
    // The set of the actions that are placements, one bit per action: the others would reach
    // beyond the board, or the piece has no such orientation. A game that is over has none.
    uint64_t mask = all.is_over(i) ? 0 : mask_bits(piece_, rules_.width);
    for (int action = 0; action < actions(); ++action) {
      ends_game_[action] = int8_t((mask >> action) & 1u);
    }
  }

  // Writes the features of all placements that do not end the game.
  void write() {
    const Plan<L>& plan = PLANS<L>[piece_];
    Ground<L> ground(board_);
    Prepared prepared(board_);
    write_groups(ground, prepared, plan.ones);
    write_groups(ground, prepared, plan.twos);
    write_groups(ground, prepared, plan.threes);
    write_groups(ground, prepared, plan.fours);
  }

 private:
  using Prepared = typename List::template Prepared<L>;

  int actions() const { return MAX_ORIENTATIONS * rules_.width; }

  template <class Groups>
  void write_groups(const Ground<L>& ground, const Prepared& prepared, const Groups& groups) {
    for (int i = 0; i < groups.count; ++i) write_group(ground, prepared, groups.group[i]);
  }

  // Writes the features of the placements in a group, one per lane, except for those that end
  // the game. A set of lanes is a bit mask: L::lanes returns the lanes in which a comparison is
  // true.
  template <int WIDTH>
  void write_group(
      const Ground<L>& ground, const Prepared& prepared, const Group<L, WIDTH>& group) {
    Drop<L, WIDTH> drop(ground, group.shapes);
    auto top = drop.top();
    // A piece fits if its top is below fitting_limit. Under the rule clear_on_overflow, the game
    // may also go on after a higher piece, because full rows are removed first.
    int fitting_limit = rules_.height + 1;
    int rows_above_top = rules_.clear_on_overflow ? MAX_PIECE_SIZE : 0;
    int survival_limit = fitting_limit + rows_above_top;
    unsigned unwritten = L::lanes(top < L::ints(survival_limit));  // the lanes that are left
    if constexpr (List::computable_from_drops) {
      // Placements that fit and complete no row are computed together.
      auto completes_no_row = drop.completed() == L::bits(0);
      auto fits = top < L::ints(fitting_limit);
      unsigned simple_lanes = L::lanes(completes_no_row & fits);
      if (simple_lanes != 0) {
        typename L::Ints numerators[List::COUNT];  // a vector of all lanes for each feature
        List::numerators(prepared, drop, numerators);
        store_lanes(group, simple_lanes, reinterpret_cast<const int32_t*>(numerators));
      }
      unwritten &= ~simple_lanes;
    }
    // The others are computed one by one. visit_after_state() skips those that end the game.
    for (; unwritten != 0; unwritten = without_lowest_bit(unwritten)) {
      int placement = placement_of(group, lowest_bit(unwritten));
      visit_after_state<List>(board_, piece_, placement,
          [&](const auto& numerators) { store(placement, numerators, /*stride=*/1); });
    }
  }

  // Stores the features of the placements in `lanes`. Number f * LANES + lane of `numerators`
  // belongs to feature f.
  template <int WIDTH>
  TETRIS_FUNCTION void store_lanes(
      const Group<L, WIDTH>& group, unsigned lanes, const int32_t* numerators) {
    for (; lanes != 0; lanes = without_lowest_bit(lanes)) {
      int lane = lowest_bit(lanes);
      store(placement_of(group, lane), numerators + lane, /*stride=*/L::LANES);
    }
  }

  template <int WIDTH>
  static int placement_of(const Group<L, WIDTH>& group, int lane) {
    return lowest_bit(group.placements_of_lanes(1u << lane));
  }

  // Writes the features of a placement, and marks that it does not end the game. Feature f is
  // numerators[f * stride] divided by the denominator of the feature. `stride` is the number of
  // lanes in which the numerators have been computed.
  void store(int placement, const int32_t* numerators, int stride) {
    int action = orientation_of(placement) * rules_.width + column_of(placement);
    float* row = features_ + action * List::COUNT;
    for (int f = 0; f < List::COUNT; ++f) {
      row[f] = float(numerators[f * stride]) * List::reciprocal(f);
    }
    ends_game_[action] = 0;
  }

  const GameRules& rules_;
  const int piece_;
  float* const features_;
  int8_t* const ends_game_;
  const Board<L> board_;
};

struct Cpu {
  template <class List>
  static void write(const Tensor&, const FeatureTensors& all) {
    parallel_for(0, all.count, GRAIN, [&](int64_t begin, int64_t end) {
      Geometry<L> geometry(all.rules);
      for (int64_t i = begin; i < end; ++i) {
        Writer<List> writer(all, geometry, i);
        if (!all.is_over(i)) writer.write();
      }
    });
  }
};

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(TETRIS_LIBRARY, m) { m.def(TETRIS_PLACEMENTS_SCHEMA); }

using Features = tetris::FeatureList<TETRIS_FEATURES>;
STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CPU, m) {
  m.impl("placements", TORCH_BOX(&(placements<Features, Cpu>)));
}
