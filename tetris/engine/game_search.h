// The search of sixteen games at a time, which wait for the same piece: a game a lane, one placement after the other.
#pragma once

#include "decision.h"
#include "lanes_games.h"

#if defined(__AVX2__)
namespace tetris {

// A byte for each column of each orientation of a piece: the pattern of its rows, its first row, its height.
struct alignas(32) PieceBytes {
  uint8_t pattern[PIECES][32], bottom[PIECES][32], height[PIECES][32];
  constexpr PieceBytes() : pattern(), bottom(), height() {
    for (int piece = 0; piece < PIECES; ++piece) {
      for (int i = 0; i < 32; ++i) {
        const Shape& shape = SHAPES.shape[piece][i % 16 / 4];
        const int k = i % 4;
        pattern[piece][i] = static_cast<uint8_t>(nth_field(shape.patterns, k));
        bottom[piece][i] = static_cast<uint8_t>(k < shape.width ? shape.bottom(k) : NO_ROW);
        height[piece][i] = static_cast<uint8_t>(shape.height);
      }
    }
  }
};
inline PieceBytes piece_bytes;

// A placement in each lane, of the same piece, come to rest; full rows are removed.
template <class L> struct Landings {
  using Ints = typename L::Ints;
  using Bits = typename L::Bits;
  using Word = typename L::Word;
  typename L::ColumnBits dropped, cells;
  Ints row, end, lines, eroded_cells;
  Ints over;  // all ones where the game has ended

  TETRIS_FUNCTION Landings(const Board<L>& board, int piece, Ints place) {
    const Geometry<L>& geometry = board.geometry;
    const auto byte_at = [&](const uint8_t (&bytes)[PIECES][32], Ints index) TETRIS_INLINE {
      return map(
          [&](auto x)
              TETRIS_INLINE { return bytes_at(*reinterpret_cast<const decltype(x)*>(bytes[piece]), x); },
          index);
    };
    const Ints orientation = (place >> 4) << 2, column = place & L::ints(15);
    Ints pattern[MAX_WIDTH];
    row = L::ints(0);
    const Ints low = L::ints(0xFF);
    TETRIS_UNROLL for (int c = 0; c < MAX_WIDTH; ++c) {
      const Ints k = L::ints(c) - column, index = orientation + k;
      const Ints inside = ((k & L::ints(~3)) == L::ints(0)) & low;
      pattern[c] = byte_at(piece_bytes.pattern, index) & inside;
      const Ints bottom = (byte_at(piece_bytes.bottom, index) | ~inside) & low;  // 255 beside the piece
      row = L::maximum(row, board.heights.slot[FIRST_COLUMN + c] - bottom);
    }
    const Ints height = byte_at(piece_bytes.height, orientation) & low;
    end = row + height;
    const auto unit = L::row_unit(row);
    TETRIS_UNROLL for (int i = 0; i < L::SLOTS; ++i) {
      const int c = i - FIRST_COLUMN;
      dropped.slot[i] = c >= 0 && c < MAX_WIDTH ? as<Word>(pattern[c]) * unit : Bits{};
    }
    cells = board.cells | dropped;
    Bits full = ~L::or_all(L::without(geometry.inside, cells));
    over = end > L::ints(geometry.height);
    if (!geometry.clear_on_overflow) full = L::without(full, as<Word>(over));
    lines = L::popcount(full);
    eroded_cells = L::ints(0);
    TETRIS_UNROLL for (int c = 0; c < MAX_WIDTH; ++c) eroded_cells =
        eroded_cells + L::popcount(dropped.slot[FIRST_COLUMN + c] & full);
    eroded_cells = eroded_cells * lines;
    while (L::any(full)) {
      // As in remove_rows; a lane without full rows has none above.
      const Bits below = full & -full,
                 above = (below - L::bits(Word(1))) & as<Word>(full != L::bits(Word(0)));
      TETRIS_UNROLL for (int i = FIRST_COLUMN; i < FIRST_COLUMN + MAX_WIDTH; ++i) {
        cells.slot[i] = (cells.slot[i] - below) + (cells.slot[i] & above);
      }
      full = full & (full - L::bits(Word(1)));
    }
    cells = cells & geometry.inside;
    if (geometry.clear_on_overflow) over = L::nonzero(L::or_all(cells & L::bits_everywhere(geometry.above)));
    cells = cells | geometry.walls;
  }
};

// The placements of sixteen games that wait for the same piece, a game a lane.
template <class V, class List> class GameSearch {
 public:
  using L = GameLanes<V>;
  using Scores = typename L::Scores;
  using Ints = typename L::Ints;
  using Word = typename L::Word;
  static constexpr int GAMES = L::GAMES, MOST_PLACES = 34;

  // A game that takes part: its board, and the weights of its candidate (FeatureList::pack_weights).
  struct Game {
    alignas(32) Word cells[16];
    const int32_t* weights;
    bool bounds;  // see FeatureList
    int32_t pairs[List::LANE_PAIRS];
  };
  using Games = const Game* [GAMES];
  using Weights = typename L::Weights[List::LANE_PAIRS];

  TETRIS_FUNCTION explicit GameSearch(const GameRules& rules)
      : geometry(rules),
        too_high_(L::ints(rules.height + 1)),
        too_high_to_survive_(L::ints(rules.height + 1 + (rules.clear_on_overflow ? MAX_PIECE_SIZE : 0))) {}
  const Geometry<L> geometry;

  // The places that the games choose, of which `count` are in use.
  TETRIS_OUTLINE Ints choose(const Board<L>& board, const Games& games, int count, int piece) const {
    // Before all else: what has been stored in parts is long there when it is loaded whole.
    Weights weights;
    bool alike = true, bounds = true;
    for (const Game* game : games) alike &= game->weights == games[0]->weights, bounds &= game->bounds;
    load_weights(games, alike, weights);
    Search search(board, weights, alike, bounds, (1u << count) - 1);
    const Plan<L>& plan = plan_of<L>(piece);
    score(search, plan.ones);
    score(search, plan.twos);
    score(search, plan.threes);
    score(search, plan.fours);
    const Scores best = tetris::load<Scores>(search.chosen);
    if (search.bounds) {
      // A lane without a placement has any.
      const Scores rest = rest_values(board, games, alike, piece, L::maximum(packed(best), L::ints(0)));
      tetris::store(
          tetris::load<Scores>(search.score) + (rest & (best > L::scores(Choice::NONE))), search.score);
    }
    settle<true>(search, games, piece);
    if (search.bounds) {
      // Seldom another bound is as high as the score.
      const Scores most = tetris::load<Scores>(search.score), chosen = tetris::load<Scores>(search.chosen);
      for (int k = 0; k < search.places; ++k) {
        const Scores here = L::scores(search.order[k]);
        search.add(k,
            L::lanes_of((tetris::load<Scores>(search.bound[k]) > most + (chosen > here)) & (best != here)));
      }
      settle<false>(search, games, piece);
    }
    return L::maximum(packed(tetris::load<Scores>(search.chosen)), L::ints(0));
  }
  TETRIS_FUNCTION static typename L::ColumnBits cells_of(const Games& games) {
    const Word* rows[GAMES];
    for (int i = 0; i < GAMES; ++i) rows[i] = games[i]->cells;
    return L::columns_of(rows);
  }

 private:
  struct Search {
    const Ground<L> ground;
    const typename List::template Prepared<L> prepared;
    const Weights& weights;
    const bool alike, bounds;  // whether all weights are, and whether there are bounds in place of scores
    const unsigned games;      // in use, a bit each
    alignas(64) int score[GAMES], chosen[GAMES];  // the best one of those that complete no row
    // Of the placements so far: the scores or bounds of all games, of those that complete no row.
    alignas(64) int bound[MOST_PLACES][GAMES];
    int order[MOST_PLACES], places = 0;
    // Placements of some games that have to be looked at on their own.
    struct {
      int place;
      unsigned games;
    } apart[MOST_PLACES + 1];
    int parts = 0;
    TETRIS_FUNCTION Search(const Board<L>& board, const Weights& w, bool same, bool bounded, unsigned in_use)
        : ground(board), prepared(board), weights(w), alike(same), bounds(bounded), games(in_use) {
      tetris::store(L::scores(NEVER), score);
      tetris::store(L::scores(Choice::NONE), chosen);
    }
    TETRIS_FUNCTION void add(int k, unsigned of) {
      apart[parts] = {k, of & games};
      parts += (of & games) != 0;
    }
  };

  template <int WIDTH, int CAPACITY>
  TETRIS_OUTLINE void score(Search& search, const Groups<L, WIDTH, CAPACITY>& groups) const {
    Scores best = tetris::load<Scores>(search.score), chosen = tetris::load<Scores>(search.chosen);
    for (int i = 0; i < groups.count; ++i) {
      const Drop<L, WIDTH> drop(search.ground, groups.group[i].shapes);
      const int at = groups.group[i].order[0];
      const auto end = drop.end();
      const auto incomplete = drop.completed() == L::bits(Word(0));
      const auto plain = incomplete & (end < too_high_);
      search.add(search.places, L::lanes(L::without(end < too_high_to_survive_, incomplete)));
      const Scores sums = where(plain, List::values(search.weights, search.prepared, drop, search.bounds));
      tetris::store(sums, search.bound[search.places]);
      search.order[search.places++] = at;
      chosen = tetris::choose(sums > best, L::scores(at), chosen);
      best = greater_of(best, sums);
    }
    tetris::store(best, search.score);
    tetris::store(chosen, search.chosen);
  }

  // Scores the placements apart by their whole after-states, or adds to their bounds what these leave out.
  template <bool WHOLE> TETRIS_FUNCTION void settle(Search& search, const Games& games, int piece) const {
    int16_t game[(MOST_PLACES + 1) * GAMES], from[(MOST_PLACES + 1) * GAMES];
    int count = 0;
    for (int k = 0; k < search.parts; ++k) {
      for (unsigned left = search.apart[k].games; left != 0; left &= left - 1) {
        game[count] = static_cast<int16_t>(lowest_bit(left));
        from[count++] = static_cast<int16_t>(search.apart[k].place);
      }
    }
    search.parts = 0;
    for (int i = 0; i < GAMES; ++i) game[count + i] = from[count + i] = 0;
    for (int first = 0; first < count; first += GAMES) {
      Games apart;
      alignas(64) typename L::Number place[GAMES];
      for (int i = 0; i < GAMES; ++i) {
        apart[i] = games[game[first + i]];
        place[i] = static_cast<typename L::Number>(search.order[from[first + i]]);
      }
      const Board<L> board(geometry, cells_of(apart));
      const auto places = tetris::load<Ints>(place);
      alignas(64) int values[GAMES];
      tetris::store(WHOLE ? whole_values(board, apart, search.alike, piece, places)
                          : rest_values(board, apart, search.alike, piece, places),
          values);
      for (int i = 0; i < GAMES && first + i < count; ++i) {
        const int at = L::score_of(game[first + i]);
        const int bound = WHOLE ? 0 : search.bound[from[first + i]][at];
        const int now = bound + values[L::score_of(i)];
        const auto rank = [](int score, int place) { return score * (int64_t{1} << 32) - place; };
        const int better = -static_cast<int>(rank(now, place[i]) > rank(search.score[at], search.chosen[at]));
        // Without a branch, which nobody could foresee.
        search.score[at] ^= (search.score[at] ^ now) & better;
        search.chosen[at] ^= (search.chosen[at] ^ place[i]) & better;
      }
    }
  }
  TETRIS_OUTLINE Scores whole_values(
      const Board<L>& board, const Games& games, bool alike, int piece, Ints place) const {
    Weights weights;
    load_weights(games, alike, weights);
    const Landings<L> landings(board, piece, place);
    const Board<L> after(geometry, landings.cells);
    return where(landings.over == L::ints(0), List::template whole_values<L>(weights, after, landings));
  }
  TETRIS_OUTLINE Scores rest_values(
      const Board<L>& board, const Games& games, bool alike, int piece, Ints place) const {
    Weights weights;
    load_weights(games, alike, weights);
    const Landings<L> landings(board, piece, place);
    const auto under = mapped([](auto x) TETRIS_INLINE { return as<Word>(V::nonzero(x)); }, landings.dropped);
    const auto touched = (L::left(under) | under | L::right(under)) & geometry.inside;
    return List::template rest_values<L>(
        weights, Board<L>(geometry, board.cells | landings.dropped), touched);
  }
  TETRIS_FUNCTION static void load_weights(const Games& games, bool alike, Weights& to) {
    TETRIS_UNROLL for (int k = 0; k < List::LANE_PAIRS; ++k) {
      if (alike) {
        to[k] = L::scores(games[0]->pairs[k]);
      } else {
        for (int i = 0; i < GAMES; ++i)
          reinterpret_cast<int32_t*>(&to[k])[L::score_of(i)] = games[i]->pairs[k];
      }
    }
  }
  TETRIS_FUNCTION static Scores where(Ints candidate, Scores scores) {
    const auto never = L::scores(NEVER);
    return map([](auto c, auto x, auto y) TETRIS_INLINE { return c < 0 ? x : y; },
        interleaved(candidate, candidate), scores, never);
  }

  const Ints too_high_, too_high_to_survive_;  // as those of Chooser
};

}  // namespace tetris
#endif
