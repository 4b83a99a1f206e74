// The engine of a web page: decisions, landings and features of one board at a time, compiled to WebAssembly by
// scripts/pages/wasm.py. TETRIS_FEATURES is the list of all feature structs. tetris/view/play_page.js calls it: it writes weights
// and a board to where `weights_at` and `board_at` say, and calls `prepare` after the former.

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

alignas(Engine) unsigned char place_of_engine[sizeof(Engine)];
Engine* engine;
int32_t weights[List::ROW];
uint32_t columns[MAX_WIDTH];  // bit y is row y
int numerators[List::COUNT];
PieceStream pieces;

Board<L> board() {
  return {engine->geometry,
      walled(engine->geometry, [](int c) { return reversed_bits(columns[c]); })};
}

// Once in the library, however often they are called for.
TETRIS_OUTLINE Choice best(const Board<L>& on, int piece) {
  return engine->chooser.choose(on, piece);
}
TETRIS_OUTLINE Landing<L> landed(const Board<L>& on, int piece, int place) {
  return {on, piece, place};
}
TETRIS_OUTLINE int value(const Board<L>& after) {
  return List::value<L>(weights, after, Nothing());
}

// Adds the features of a first placement to those of the pair that it begins.
template <class... Features>
void add_first(FeatureList<Features...>, const Board<L>& first) {
  int i = 0;
  ((numerators[i++] += Features::of_placement ? Features::of(first) : 0), ...);
}

}  // namespace

TETRIS_EXPORT(weights_at) int32_t* weights_at() { return weights; }
TETRIS_EXPORT(board_at) uint32_t* board_at() { return columns; }
TETRIS_EXPORT(numerators_at) int* numerators_at() { return numerators; }

// `rule`: see GameRules::of. The pieces: see PieceSource; the seed in two halves.
TETRIS_EXPORT(prepare)
void prepare(int width, int height, int rule, uint32_t packed, int count, int bag, uint32_t low,
    uint32_t high) {
  engine = new (place_of_engine) Engine(GameRules::of(width, height, rule), weights);
  pieces = {{packed, count, bag != 0}, static_cast<uint64_t>(high) << 32 | low, 0};
}

TETRIS_EXPORT(piece_at) int piece_at(double t) {
  return pieces.piece(static_cast<uint64_t>(t));
}

// The placement of a piece that is chosen, by its place in the order; `lookahead` is one of `Lookahead`.
TETRIS_EXPORT(choose) int choose(int piece, int next, int lookahead) {
  const Board<L> now = board();
  if (lookahead == static_cast<int>(Lookahead::preview))
    return choose_by_pairs<List>(now, weights, piece, next, best).made();
  if (lookahead == static_cast<int>(Lookahead::none)) return best(now, piece).made();
  const auto score = [&](int place) { return engine->chooser.score_whole(now, piece, place); };
  return choose_by_prospects<List>(
      now, weights, piece, pieces.source, score, [](const Board<L>& on) { return &on; },
      [](const Board<L>* on, int falls) { return best(*on, falls); })
      .made();
}

// Places a piece, of which `next` is the one after it. Returns the row of its bottom, and from bit 8 on the lines that it
// completes, from bit 16 on whether the game is over; the board is empty then.
TETRIS_EXPORT(land) int land(int piece, int place, int next) {
  const Geometry<L>& geometry = engine->geometry;
  const Landing<L> landing = landed(board(), piece, place);
  const bool over = landing.over || ends_by_next(geometry, landing.cells, next);
  L::Word slots[16];
  L::store(over ? geometry.walls : landing.cells, slots);
  for (int c = 0; c < geometry.width; ++c)
    columns[c] = reversed_bits(slots[FIRST_COLUMN + c]) >> (31 - L::TOP);
  return landing.row | landing.lines << 8 | (over ? 1 << 16 : 0);
}

// The score of a placement, with the numerators of its features: of the best pair that it begins with the `next` piece, of it
// alone where that is negative. NEVER where the game ends.
TETRIS_EXPORT(score) int score(int piece, int place, int next) {
  const Board<L> now = board();
  const Landing<L> landing = landed(now, piece, place);
  if (landing.over || (next >= 0 && ends_by_next(engine->geometry, landing.cells, next)))
    return NEVER;
  const AfterState<L> after(now, landing, piece, place);
  const Choice second = next < 0 ? Choice{value(after), 0} : best(after, next);
  if (second.place == Choice::NONE) return NEVER;
  if (next < 0) return List::numerators(after, numerators), second.score;
  List::numerators(
      AfterState<L>(after, landed(after, next, second.place), next, second.place), numerators);
  add_first(List(), after);
  return second.score + List::placement_value<L>(weights, after);
}
