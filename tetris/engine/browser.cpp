// The engine of a web page: it computes decisions, landings and features for one board at a
// time. scripts/pages/wasm.py compiles it to WebAssembly; TETRIS_FEATURES is the list of all
// feature structs. tetris/view/play_page.js writes the weights and a board to the addresses
// that `weights_at` and `board_at` return. It calls `prepare` after it has written the weights.

#include <new>

#include "decision.h"

#define TETRIS_EXPORT(name) extern "C" __attribute__((export_name(#name)))

namespace {

using namespace tetris;
using L = ScalarLanes;
using List = FeatureList<TETRIS_FEATURES>;

struct Engine {
  Geometry<L> geometry;
  Chooser<L, List> chooser;
  Engine(const GameRules& rules, const int32_t* weights)
      : geometry(rules), chooser(geometry, weights) {}
};

alignas(Engine) unsigned char engine_memory[sizeof(Engine)];
Engine* engine;
int32_t weights[List::WEIGHTS_PER_CANDIDATE];
uint32_t columns[MAX_WIDTH];  // bit y is row y
int numerators[List::COUNT];
PieceStream pieces;

Board<L> board() {
  return {engine->geometry,
      add_walls(engine->geometry, [](int c) { return reversed_bits(columns[c]); })};
}

// These functions are not inlined, so that the library contains their code only once.
TETRIS_OUTLINE Choice best(const Board<L>& board, int piece) {
  return engine->chooser.choose(board, piece);
}
TETRIS_OUTLINE Landing<L> landed(const Board<L>& board, int piece, int placement) {
  return {board, piece, placement};
}
TETRIS_OUTLINE int value(const Board<L>& after) {
  return List::value(weights, after, Nothing());
}

// Adds the features of the first placement to the numerators of a pair of placements. A feature
// that describes a placement, not a board, counts for both placements of a pair, but
// `numerators` includes only the second placement so far. `after_first` is the board after the
// first placement.
template <class... Features>
void add_first_placement(FeatureList<Features...>, const Board<L>& after_first) {
  int i = 0;
  ((numerators[i++] += Features::of_placement ? Features::of(after_first) : 0), ...);
}

}  // namespace

TETRIS_EXPORT(weights_at) int32_t* weights_at() { return weights; }
TETRIS_EXPORT(board_at) uint32_t* board_at() { return columns; }
TETRIS_EXPORT(numerators_at) int* numerators_at() { return numerators; }

// Makes the engine. `rule` is the argument of GameRules::of. `packed`, `count` and `bag`
// describe a PieceSource. `low` and `high` are the lower and the upper 32 bits of the seed.
TETRIS_EXPORT(prepare)
void prepare(int width, int height, int rule, uint32_t packed, int count, int bag, uint32_t low,
    uint32_t high) {
  engine = new (engine_memory) Engine(GameRules::of(width, height, rule), weights);
  pieces = {{packed, count, bag != 0}, uint64_t(high) << 32 | low, 0};
}

// Returns piece t of the stream.
TETRIS_EXPORT(piece_at) int piece_at(double t) { return pieces.piece(uint64_t(t)); }

// Returns the number of the placement that the agent chooses for `piece` on the page's board.
// `lookahead` is a value of the enum Lookahead: a decision considers only the piece itself
// (none), also the next piece (preview), or all pieces that may come next (expectimax).
TETRIS_EXPORT(choose) int choose(int piece, int next, int lookahead) {
  Board<L> now = board();
  if (lookahead == int(Lookahead::preview)) {
    return choose_by_pairs<List>(now, weights, piece, next, best).placement_to_play();
  }
  if (lookahead == int(Lookahead::none)) return best(now, piece).placement_to_play();

  auto score_alone = [&](int placement) {
    return engine->chooser.score_after_state(now, piece, placement);
  };
  // choose_by_prospects makes a search once per board, and uses it for all next pieces. Here a
  // search is only the address of the board, which keeps the library small.
  auto make_search = [](const Board<L>& after) { return &after; };
  auto choose_next = [](const Board<L>* after, int next_piece) {
    return best(*after, next_piece);
  };
  return choose_by_prospects<List>(
      now, weights, piece, pieces.source, score_alone, make_search, choose_next)
      .placement_to_play();
}

// Places a piece on the page's board; `next` is the piece after it. If this ends the game, the
// board becomes empty. Returns three facts in one number:
//
//     bits 0 to 7   the row in which the bottom of the piece comes to rest
//     bits 8 to 15  the number of rows that the piece completes
//     bit 16        whether the game is over
TETRIS_EXPORT(land) int land(int piece, int placement, int next) {
  const Geometry<L>& geometry = engine->geometry;
  Landing<L> landing = landed(board(), piece, placement);
  bool over = landing.over || next_piece_ends_game(geometry, landing.cells, next);
  L::Word slots[MOST_SLOTS];
  L::store(over ? geometry.walls : landing.cells, slots);
  for (int c = 0; c < geometry.width; ++c) {
    // Row r is bit 31 - r of a slot, and bit r of the page's columns.
    columns[c] = reversed_bits(slots[FIRST_COLUMN + c]);
  }
  return landing.row | landing.lines << 8 | (over ? 1 << 16 : 0);
}

// Returns the score of a placement of `piece` on the page's board, or NEVER if the placement
// ends the game. Writes the values of its features to `numerators`, as integers: each value is
// multiplied by a constant of the feature.
//
// `next` is the next piece, or negative if it is not known. If it is known, the score and the
// values belong to two placements: this one, and the best placement of `next` after it.
TETRIS_EXPORT(score) int score(int piece, int placement, int next) {
  bool has_next = next >= 0;
  Board<L> now = board();
  Landing<L> landing = landed(now, piece, placement);
  if (landing.over) return NEVER;
  if (has_next && next_piece_ends_game(engine->geometry, landing.cells, next)) return NEVER;
  AfterState<L> after(now, landing, piece, placement);
  if (!has_next) {
    List::numerators(after, numerators);
    return value(after);
  }
  Choice second = best(after, next);
  if (second.placement == Choice::NONE) return NEVER;  // every placement ends the game
  Landing<L> second_landing = landed(after, next, second.placement);
  AfterState<L> after_second(after, second_landing, next, second.placement);
  List::numerators(after_second, numerators);
  // Some features describe a placement, not a board, and count for both placements. So far the
  // numerators and second.score include only the second placement.
  add_first_placement(List(), after);
  return second.score + List::placement_value(weights, after);
}

// Plays a game of at most `most` pieces, and returns its lines. It begins on an empty board with
// piece `first` of the stream, and considers no later piece.
TETRIS_EXPORT(play) int play(double first, int most) {
  auto cells = engine->geometry.walls;
  int lines = 0;
  for (uint64_t t = uint64_t(first), end = t + most; t < end; ++t) {
    Board<L> now = {engine->geometry, cells};
    int piece = pieces.piece(t), next = pieces.piece(t + 1);
    Landing<L> landing = landed(now, piece, best(now, piece).placement_to_play());
    cells = landing.cells;
    lines += landing.lines;
    if (landing.over || next_piece_ends_game(engine->geometry, cells, next)) break;
  }
  return lines;
}
