// The rollout operator on the CPU: every candidate's streams, spread over torch's threads; and
// the resampling operator.
//
// Compiled once per feature set and lookahead: TETRIS_FEATURES is the list of feature structs
// in their order, TETRIS_LOOKAHEAD one of `Lookahead`, TETRIS_LIBRARY the namespace under
// torch.ops. tetris/play/engines.py calls it.

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
  // Plays all streams, spread over torch's threads.
  template <class List>
  static void play(const RolloutArguments& all, const Tensor&) {
    // Streams are handed out one by one: they take unequally long, and a fixed share would wait
    // for the slowest. Streams of a candidate follow one another, so that a thread prepares its
    // weights once.
    // `next_stream++` is one atomic operation, so that no two threads get the same stream.
    std::atomic<int64_t> next_stream{0};
    auto play_streams = [&](int64_t, int64_t) {
      std::optional<Games<List>> games;
      int64_t prepared_candidate = -1;
      for (int64_t i = next_stream++; i < all.total; i = next_stream++) {
        if (all.games_left(i) <= 0) continue;  // this stream may not begin another game
        int64_t candidate = all.candidate_of(i);
        if (candidate != prepared_candidate) {
          games.emplace(all.rules, all.weights_of<List>(i));
        }
        prepared_candidate = candidate;
        play_stream<List>(all, i, *games);
      }
    };
    torch::stable::parallel_for(0, torch::stable::get_num_threads(), 1, play_streams);
  }

  // Plays stream i, writes its board back, and adds its lines, games and decisions to the tensors.
  // In tensors row r of a column is bit r, in the engine it is bit 31 - r; hence reversed_bits.
  template <class List>
  static void play_stream(const RolloutArguments& all, int64_t i, Games<List>& games) {
    PieceReader pieces(all.pieces_of(i), all.start);
    if (all.known_in != nullptr) pieces.known = all.first_piece(i);
    uint32_t* columns = all.boards + i * all.rules.width;
    StoredBoard board{};
    for (int c = 0; c < all.rules.width; ++c) board.columns[c] = reversed_bits(columns[c]);
    Goal goal{all.start + uint64_t(all.decisions), all.games_left(i)};
    Totals totals;
    games.play(board, pieces, goal, totals);
    for (int c = 0; c < all.rules.width; ++c) columns[c] = reversed_bits(board.columns[c]);
    all.lines[i] += totals.lines;
    all.games[i] += totals.games;
    all.made[i] += int64_t(pieces.t - all.start);
  }

  // Resamples every candidate, spread over torch's threads. A thread gets at least `grain`
  // candidates, because waking a thread takes longer than resampling a few of them.
  static void launch(const Tensor&, const Resampling& job, unsigned population) {
    int64_t grain = 1 + 4096 / job.streams;
    torch::stable::parallel_for(0, population, grain, [&](int64_t begin, int64_t end) {
      for (int64_t candidate = begin; candidate < end; ++candidate) {
        resample_candidate(job.of_candidate(candidate));
      }
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
