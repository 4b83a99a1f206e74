// Rollouts on a CPU, many games: sixteen that wait for the same piece are searched at a time (game_search.h).
#pragma once

#include <memory>

#include "cpu_rollout.h"
#include "game_search.h"

#if defined(__AVX2__)
namespace tetris {

// Streams in lanes V; one after the other in `Alone`, a StreamRollout, where few are left, and while a stack is too high for V.
template <class V, class Alone, class List> class PoolRollout {
  using Search = GameSearch<V, List>;
  using L = typename Search::L;
  using Word = typename V::Word;
  static constexpr int GAMES = Search::GAMES, FEW = 36, MOST = 128;  // fewer are as fast one after the other
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
    const int most = static_cast<int>(share < FEW ? 0 : share < MOST ? share : MOST);
    int in_hand = 0;
    while (in_hand < most && refill(games_[in_hand])) wait(in_hand++);
    while (in_hand >= FEW) {
      int piece = 0;
      for (int k = 1; k < PIECES; ++k) piece = waiting(k) > waiting(piece) ? k : piece;
      Game* games[GAMES];
      int chosen[GAMES], count = 0;
      for (; count < GAMES && waiting(piece) > 0; ++count) {
        chosen[count] = queue_[piece][first_[piece]++ % MOST];
        games[count] = &games_[chosen[count]];
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
      while (waiting(piece) > 0) {
        Game& game = games_[queue_[piece][first_[piece]++ % MOST]];
        leave(game);
        alone(game).play(game.board, game.pieces, game.goal, game.totals);
        done(game);
      }
    }
    for (std::optional<Stream> stream = next(); stream; stream = next()) {
      alone(*stream).play(stream->board, stream->pieces, stream->goal, stream->totals);
      done(*stream);
    }
  }

 private:
  static constexpr Word HIGH = (1 << (V::TOP + 1 - V::MAX_STACK)) - 1;  // the rows of stacks too high for V

  unsigned waiting(int piece) const { return last_[piece] - first_[piece]; }
  void wait(int i) {
    const int piece = games_[i].pieces.known;
    queue_[piece][last_[piece]++ % MOST] = static_cast<int16_t>(i);
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
  std::unique_ptr<Game[]> games_{new Game[MOST]};
  unsigned first_[PIECES] = {}, last_[PIECES] = {};  // of a queue of the games that wait for each piece
  int16_t queue_[PIECES][MOST];
};

}  // namespace tetris
#endif
