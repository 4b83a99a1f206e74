// The rollout operator on the CPU: every candidate's streams, spread over torch's threads.
//
// Compiled once per feature set and lookahead: TETRIS_FEATURES is the list of feature structs in their order,
// TETRIS_LOOKAHEAD one of `Lookahead`, TETRIS_LIBRARY the namespace under torch.ops. tetris/play/engines.py calls it.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <atomic>
#include <optional>

#include "cpu_pool.h"
#include "fastest_lanes.h"
#include "rollout_arguments.h"

namespace {

using namespace tetris;

template <class List> using Games = StreamRollout<FastestLanes, TallLanes, List, Lookahead::TETRIS_LOOKAHEAD>;

struct Cpu {
  template <class List> static void play(const RolloutArguments& all, const Tensor&) {
    // Streams are handed out one by one: they take unequally long, and a fixed share would wait for the slowest.
    std::atomic<int64_t> handed_out{0};
    const auto next = [&]() -> std::optional<Stream> {
      for (int64_t i = handed_out++; i < all.total; i = handed_out++) {
        if (all.games_left(i) > 0) return begin<List>(all, i);
      }
      return std::nullopt;
    };
    const auto done = [&](const Stream& stream) { end(all, stream); };
    const int64_t threads = torch::stable::get_num_threads();
    const auto work = [&](int64_t, int64_t) {
#if defined(__AVX2__)
      if constexpr (Lookahead::TETRIS_LOOKAHEAD == Lookahead::none && List::has_game_lanes) {
        PoolRollout<ShortLanes, Games<List>, List>(all.rules).play(next, done, all.total / threads);
      } else
#endif
      {
        std::optional<Games<List>> games;  // of a candidate, whose streams follow one another
        const int32_t* weights = nullptr;
        for (auto stream = next(); stream; stream = next()) {
          if (stream->weights != weights) games.emplace(all.rules, stream->weights);
          weights = stream->weights;
          games->play(stream->board, stream->pieces, stream->goal, stream->totals);
          done(*stream);
        }
      }
    };
    torch::stable::parallel_for(0, threads, 1, work);
  }

  template <class List> static Stream begin(const RolloutArguments& all, int64_t i) {
    Stream stream{i, all.weights + all.candidate_of(i) * List::ROW, {},
        PieceReader(all.pieces_of(i), all.start),
        {all.start + static_cast<uint64_t>(all.decisions), all.games_left(i)}, {}};
    stream.pieces.known = all.first_piece(i);
    // Rows of a column count from the least significant bit in tensors, from the most significant one in the engine.
    for (int c = 0; c < all.rules.width; ++c) {
      stream.board.columns[c] = reversed_bits(all.boards[i * all.rules.width + c]);
    }
    return stream;
  }

  static void end(const RolloutArguments& all, const Stream& stream) {
    const int64_t i = stream.index;
    for (int c = 0; c < all.rules.width; ++c) {
      all.boards[i * all.rules.width + c] = reversed_bits(stream.board.columns[c]);
    }
    all.lines[i] += stream.totals.lines;
    all.games[i] += stream.totals.games;
    all.made[i] += static_cast<int64_t>(stream.pieces.t - all.start);
  }
};

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(TETRIS_LIBRARY, m) { m.def(TETRIS_ADVANCE_SCHEMA); }

using Features = tetris::FeatureList<TETRIS_FEATURES>;
STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CPU, m) { m.impl("advance", TORCH_BOX(&(advance<Features, Cpu>))); }
