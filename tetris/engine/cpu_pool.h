// Rollouts on a CPU, many games: sixteen that wait for the same piece are searched at a time (game_search.h).
#pragma once

#include <vector>

#include "cpu_rollout.h"
#include "game_search.h"

#if defined(__AVX2__)
namespace tetris {

// Streams in lanes V; one after the other in `Alone`, a StreamRollout, where few are left, and while a stack is too high for V.
template <class V, class Alone, class List> class PoolRollout {
  using Search = GameSearch<V, List>;
  using L = typename Search::L;
  using Word = typename V::Word;
  static constexpr int GAMES = Search::GAMES, FEW = GAMES + GAMES / 2, MOST = 8 * GAMES;
  struct Game : Stream {
    typename Search::Game lane;
  };

 public:
  explicit PoolRollout(const GameRules& rules)
      : rules_(rules), geometry_(rules), search_(rules), higher_(V::bits(HIGH) & geometry_.inside) {}

  // Plays the streams that `next()` returns, at most `share` at a time, until there are no more; `done(stream)` takes them back.
  template <class Next, class Done> void play(const Next& next, const Done& done, int64_t share) {
    const auto refill = [&](Game& game) {
      for (std::optional<Stream> stream = next(); stream; stream = next()) {
        static_cast<Stream&>(game) = *stream;
        if (start(game)) return true;
        done(game);
      }
      return false;
    };
    games_.reserve(MOST);
    for (std::optional<Stream> stream;
        games_.size() < MOST && static_cast<int64_t>(games_.size()) < share && (stream = next());) {
      games_.push_back({*stream, {}});
      if (start(games_.back())) wait(static_cast<int>(games_.size()) - 1);
      else done(games_.back()), games_.pop_back();
    }
    for (size_t in_hand = games_.size(); in_hand >= FEW;) {
      int piece = 0;
      for (int k = 1; k < PIECES; ++k) piece = waiting_[k] > waiting_[piece] ? k : piece;
      Game* games[GAMES];
      int chosen[GAMES], count = 0;
      for (; count < GAMES && waiting_[piece] > 0; ++count) {
        chosen[count] = queue_[piece][--waiting_[piece]];
        games[count] = &games_[static_cast<size_t>(chosen[count])];
      }
      decide(games, count, piece);
      for (int i = 0; i < count; ++i) {
        bool goes_on = still(*games[i]);
        if (!goes_on) done(*games[i]), goes_on = refill(*games[i]);
        if (goes_on) wait(chosen[i]);
        else --in_hand;
      }
    }
    for (int piece = 0; piece < PIECES; ++piece) {
      while (waiting_[piece] > 0) {
        Game& game = games_[static_cast<size_t>(queue_[piece][--waiting_[piece]])];
        leave(game);
        alone(game).play(game.board, game.pieces, game.goal, game.totals);
        done(game);
      }
    }
    for (std::optional<Stream> stream = next(); stream; stream = next()) {
      alone(*stream).play(stream->board, stream->pieces, stream->goal, stream->totals);
      done(*stream);
    }
    games_.clear();
  }

 private:
  static constexpr Word HIGH = (1 << (V::TOP + 1 - V::MAX_STACK)) - 1;  // the rows of stacks too high for V

  void wait(int i) {
    const int piece = games_[static_cast<size_t>(i)].pieces.known;
    queue_[piece][waiting_[piece]++] = static_cast<int16_t>(i);
  }
  // Each makes the board ready for lanes or for `done`, and returns whether the game goes on in lanes.
  bool start(Game& game) {
    List::pack_weights(game.weights, game.lane.pairs);
    game.lane.weights = game.weights;
    game.lane.bounds = List::has_bounds && List::bounds(game.weights);
    return enter(game);
  }
  bool enter(Game& game) {
    alone(game).play_down(game.board, game.pieces, game.goal, V::MAX_STACK, game.totals);
    if (game.reached()) return false;
    V::store(walled(geometry_, [&](int c) { return game.board.columns[c]; }), game.lane.cells);
    return true;
  }
  bool still(Game& game) {
    const bool tall = V::any(V::load(game.lane.cells) & higher_), reached = game.reached();
    if (tall || reached) leave(game);
    return tall ? enter(game) : !reached;
  }
  void leave(Game& game) const {
    for (int c = 0; c < geometry_.width; ++c) {
      game.board.columns[c] = static_cast<uint32_t>(game.lane.cells[FIRST_COLUMN + c]) << (31 - V::TOP);
    }
  }
  Alone& alone(const Stream& stream) {
    if (!alone_ || alone_weights_ != stream.weights) alone_.emplace(rules_, stream.weights);
    alone_weights_ = stream.weights;
    return *alone_;
  }

  // A decision of each game.
  void decide(Game* const (&games)[GAMES], int count, int piece) {
    const typename Search::Game* lanes[GAMES];
    Word* cells[GAMES];
    Word unused[16];
    for (int i = 0; i < GAMES; ++i) {
      lanes[i] = &games[i < count ? i : 0]->lane;
      cells[i] = i < count ? games[i]->lane.cells : unused;
    }
    const Board<L> board(search_.geometry, Search::cells_of(lanes));
    const auto places = search_.choose(board, lanes, count, piece);
    const Landings<L> landings(board, piece, places);
    alignas(64) typename L::Number lines[GAMES], over[GAMES];
    tetris::store(landings.lines, lines);
    tetris::store(landings.over, over);
    L::to_games(landings.cells, cells);
    for (int i = 0; i < count; ++i) {
      Game& game = *games[i];
      game.totals.lines += lines[i];
      game.pieces.next();
      if (over[i] != 0 || ends_by_next(geometry_, V::load(game.lane.cells), game.pieces.known)) {
        ++game.totals.games;
        V::store(geometry_.walls, game.lane.cells);
      }
    }
  }

  const GameRules& rules_;
  const Geometry<V> geometry_;
  const Search search_;
  const typename V::ColumnBits higher_;
  std::optional<Alone> alone_;
  const int32_t* alone_weights_ = nullptr;
  std::vector<Game> games_;
  int waiting_[PIECES] = {};
  int16_t queue_[PIECES][MOST];
};

}  // namespace tetris
#endif
