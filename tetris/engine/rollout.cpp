// The rollout operator on the CPU: every candidate's streams, spread over torch's threads; and the resampling operator.
//
// Compiled once per feature set and lookahead: TETRIS_FEATURES is the list of feature structs in their order,
// TETRIS_LOOKAHEAD one of `Lookahead`, TETRIS_LIBRARY the namespace under torch.ops. tetris/play/engines.py calls it.

#include <torch/csrc/stable/library.h>

#include <atomic>

#include "advance.h"
#include "cpu_rollout.h"
#include "fastest_lanes.h"
#include "resample.h"

namespace tetris {
using Features = FeatureList<TETRIS_FEATURES>;
extern template void play_apart(
    const LaneRollout<TallLanes, Features, Lookahead::TETRIS_LOOKAHEAD>&, StoredBoard&,
    PieceReader&, const Goal&, int, bool, Totals&);
}  // namespace tetris

namespace {

using namespace tetris;
template <class List>
using Games = StreamRollout<FastestLanes, TallLanes, List, Lookahead::TETRIS_LOOKAHEAD>;

struct Cpu {
  template <class List>
  static void play(const RolloutArguments& all, const Tensor&) {
    // Streams are handed out one by one: they take unequally long, and a fixed share would wait for the slowest.
    std::atomic<int64_t> next{0};
    // Those of a candidate follow one another, and its weights are prepared once on each thread.
    const auto work = [&](int64_t, int64_t) {
      std::optional<Games<List>> games;
      int64_t prepared = -1;
      for (int64_t i = next++; i < all.total; i = next++) {
        if (all.games_left(i) <= 0) continue;
        const int64_t candidate = all.candidate_of(i);
        if (candidate != prepared)
          games.emplace(all.rules, all.weights + candidate * List::ROW);
        prepared = candidate;
        play_stream<List>(all, i, *games);
      }
    };
    torch::stable::parallel_for(0, torch::stable::get_num_threads(), 1, work);
  }

  template <class List>
  static void play_stream(const RolloutArguments& all, int64_t i, Games<List>& games) {
    PieceReader pieces(all.pieces_of(i), all.start);
    if (all.known_in != nullptr) pieces.known = all.first_piece(i);
    uint32_t* columns = all.boards + i * all.rules.width;
    // Rows of a column count from the least significant bit in tensors, from the most significant one in the engine.
    StoredBoard board{};
    for (int c = 0; c < all.rules.width; ++c) board.columns[c] = reversed_bits(columns[c]);
    Totals totals;
    games.play(board, pieces,
        {all.start + static_cast<uint64_t>(all.decisions), all.games_left(i)}, totals);
    for (int c = 0; c < all.rules.width; ++c) columns[c] = reversed_bits(board.columns[c]);
    all.lines[i] += totals.lines;
    all.games[i] += totals.games;
    all.made[i] += static_cast<int64_t>(pieces.t - all.start);
  }

  static void launch(const Tensor&, const Resampling& job, unsigned population) {
    const int64_t few =
        1 + 4096 / job.streams;  // candidates, for which waking another thread takes longer
    torch::stable::parallel_for(0, population, few, [&](int64_t begin, int64_t end) {
      for (int64_t candidate = begin; candidate < end; ++candidate)
        resample_candidate(job.of(candidate));
    });
  }
};

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(TETRIS_LIBRARY, m) {
  m.def(TETRIS_ADVANCE_SCHEMA);
  m.def(TETRIS_RESAMPLE_SCHEMA);
}

STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CPU, m) {
  m.impl("advance", TORCH_BOX(&(advance<Features, Cpu>)));
  m.impl("resample", TORCH_BOX(&resample<Cpu>));
}
