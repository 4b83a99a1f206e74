// The rollout operator and the resampling operator on the CPU. PyTorch's threads share the
// streams of all candidates.
//
// This file is compiled once per feature set and lookahead. TETRIS_FEATURES is the list of
// feature structs in their order, TETRIS_LOOKAHEAD is a value of `Lookahead`, and
// TETRIS_LIBRARY is the namespace under torch.ops. tetris/play/engines.py calls the operators.

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
  // Plays all streams with PyTorch's threads.
  template <class List>
  static void play(const RolloutArguments& all, const Tensor&) {
    std::atomic<int64_t> next_stream{0};
    // Run play_streams once on every thread. The arguments of the function are a range of
    // numbers, which is not used.
    parallel_for(0, get_num_threads(), 1,
        [&](int64_t, int64_t) { play_streams<List>(all, next_stream); });
  }

  // Plays one stream after another until none is left. A stream is a sequence of games on one
  // board; stream i is played by the candidate (agent) candidate_of(i). All threads run this
  // function, and share the counter next_stream. It is atomic, so two threads never get the
  // same stream.
  //
  // `games` holds the weights of a candidate, prepared for play. They are prepared again only
  // if the next stream belongs to another candidate.
  template <class List>
  static void play_streams(const RolloutArguments& all, std::atomic<int64_t>& next_stream) {
    std::optional<Games<List>> games;
    int64_t prepared_candidate = -1;
    for (int64_t i = next_stream++; i < all.all_streams; i = next_stream++) {
      if (all.games_left(i) <= 0) continue;  // this stream has reached its limit of games
      int64_t candidate = all.candidate_of(i);
      if (candidate != prepared_candidate) {
        games.emplace(all.rules, all.weights_of<List>(i));
        prepared_candidate = candidate;
      }
      play_stream<List>(all, i, *games);
    }
  }

  // Plays stream i, a sequence of games on one board, until it has made all decisions or has
  // reached its limit of ended games. Then writes its board to the tensors, and adds its lines,
  // ended games and decisions to them.
  //
  // Row r of a column is bit r in tensors, and bit 31 - r in the engine. pieces.t is the number
  // of the next piece, and pieces.known is this piece.
  template <class List>
  static void play_stream(const RolloutArguments& all, int64_t i, Games<List>& games) {
    PieceReader pieces(all.pieces_of(i), all.start);
    // The first piece may come from another stream.
    if (all.first_piece_from != nullptr) pieces.known = all.first_piece(i);
    uint32_t* columns = all.boards + i * all.rules.width;
    StoredBoard board{};
    for (int c = 0; c < all.rules.width; ++c) board.columns[c] = reversed_bits(columns[c]);
    Goal goal{all.start + uint64_t(all.decisions), all.games_left(i)};
    Totals totals;
    games.play(board, pieces, goal, totals);
    for (int c = 0; c < all.rules.width; ++c) columns[c] = reversed_bits(board.columns[c]);
    all.lines[i] += totals.lines;
    all.games[i] += totals.games;
    all.decisions_made[i] += int64_t(pieces.t - all.start);
  }

  // Resamples the streams of every candidate with PyTorch's threads. A thread gets at least
  // `grain` candidates, because it takes longer to wake a thread than to resample a few
  // candidates.
  static void launch(const Tensor&, const Resampling& job, unsigned population) {
    int64_t grain = 1 + 4096 / job.streams;
    parallel_for(0, population, grain, [&](int64_t begin, int64_t end) {
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
