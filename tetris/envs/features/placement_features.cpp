// The operator of the placements' features on the CPU: environments spread over torch's threads.
//
// Compiled once per feature set, as tetris/engine/rollout.cpp is. See tetris/envs/native.py, which calls it.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>

#include "fastest_lanes.h"
#include "placement_features.h"

namespace {

using namespace tetris;
using L = TallLanes;

// Environments a thread has at least, as in step.cpp: a busy machine takes more from threads that wait for each other.
constexpr int64_t GRAIN = 1024;

// One environment's placements.
template <class List>
class Writer {
 public:
  Writer(const FeatureTensors& all, const Geometry<L>& geometry, int64_t i)
      : rules_(all.rules),
        piece_(all.piece[i]),
        features_(all.features + i * actions() * List::COUNT),
        ends_game_(all.ends_game + i * actions()),
        board_(
            geometry, walled(geometry, [&](int c) { return all.columns[c * all.count + i]; })) {
    std::fill_n(features_, actions() * List::COUNT, 0.0f);
    const uint64_t mask = all.is_over(i) ? 0 : mask_bits(piece_, rules_.width);
    for (int action = 0; action < actions(); ++action)
      ends_game_[action] = static_cast<int8_t>(mask >> action & 1u);
  }

  void write() {
    const Plan<L>& plan = PLANS<L>[piece_];
    const Ground<L> ground(board_);
    const typename List::template Prepared<L> prepared(board_);
    const auto each = [&](const auto& groups) {
      for (int i = 0; i < groups.count; ++i) write_group(ground, prepared, groups.group[i]);
    };
    each(plan.ones);
    each(plan.twos);
    each(plan.threes);
    each(plan.fours);
  }

 private:
  int actions() const { return MAX_ORIENTATIONS * rules_.width; }

  // See Chooser::score.
  template <int WIDTH>
  void write_group(const Ground<L>& ground, const typename List::template Prepared<L>& prepared,
      const Group<L, WIDTH>& group) {
    const Drop<L, WIDTH> drop(ground, group.shapes);
    const auto end = drop.end();
    auto whole = L::lanes(
        end < L::ints(rules_.height + 1 + (rules_.clear_on_overflow ? MAX_PIECE_SIZE : 0)));
    if constexpr (List::all_follow_drops) {
      const auto plain =
          L::lanes((drop.completed() == L::bits(0)) & (end < L::ints(rules_.height + 1)));
      if (plain != 0) {
        typename L::Ints numerators[List::COUNT];
        List::numerators(prepared, drop, numerators);
        for (unsigned lanes = plain; lanes != 0; lanes &= lanes - 1) {
          const int lane = lowest_bit(lanes);
          store(place_of(group, lane), reinterpret_cast<const int32_t*>(numerators) + lane,
              L::LANES);
        }
      }
      whole &= ~plain;
    }
    for (unsigned lanes = whole; lanes != 0; lanes &= lanes - 1) {
      const int place = place_of(group, lowest_bit(lanes));
      visit_whole<List>(
          board_, piece_, place, [&](const auto& numerators) { store(place, numerators, 1); });
    }
  }

  template <int WIDTH>
  static int place_of(const Group<L, WIDTH>& group, int lane) {
    return lowest_bit(group.in_order(1u << lane));
  }

  // `stride`: from the numerator of a feature to that of the next one.
  void store(int place, const int32_t* numerators, int stride) {
    const int action = orientation_of(place) * rules_.width + column_of(place);
    float* row = features_ + action * List::COUNT;
    for (int f = 0; f < List::COUNT; ++f) {
      row[f] = static_cast<float>(numerators[f * stride]) * List::reciprocal(f);
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
    torch::stable::parallel_for(0, all.count, GRAIN, [&](int64_t begin, int64_t end) {
      const Geometry<L> geometry(all.rules);
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
