// Plays streams of games with the lanes of the processor it is compiled for, and with scalar ones, and prints what became of them.

#include <cstdio>

#include "cpu_rollout.h"
#include "fastest_lanes.h"

namespace {

using namespace tetris;

// Numbers of a whole board and of columns, of rows, of steps between columns, and those that loop.
using List = FeatureList<LandingHeight, ErodedCells, RowTransitions, ColumnTransitions, Holes,
    Wells, WellsFast, HoleDepth, RowsWithHoles, Diversity, MaxHeight, DeepWells<2>, Bumpiness,
    FittingPieces, NearlyFullRows, ThinCovers, ColumnsWithHoles, GapsOverHoles, ColumnHeight<0>,
    ColumnHeight<3>, HeightDifference<2>>;
constexpr uint64_t DECISIONS = 2000;

template <class L, class Tall, Lookahead LOOKAHEAD>
void play(const GameRules& rules, uint64_t stream, uint64_t decisions) {
  // Weights that keep stacks low, or let them grow: lanes of 16 bits hand over to others.
  int32_t weights[List::COUNT] = {
      -1350, 1400, -2400, -6300, 2000, -500, -2700, -400, -9500, 900};
  if (stream % 2 == 1) weights[0] = 50, weights[2] = -200, weights[10] = 400;
  for (int i = 10; i < List::COUNT; ++i) weights[i] += 31 * ((7 * i) % 11 - 5);
  StreamRollout<L, Tall, List, LOOKAHEAD> games(rules, weights);
  StoredBoard board{};
  PieceReader pieces(
      PieceStream{PieceSource::of(0x6543210, PIECES, stream % 3 == 2), 1, stream}, 0);
  Totals totals;
  games.play(board, pieces, {decisions, int64_t{1} << 60}, totals);
  std::printf("%lld lines, %lld games", static_cast<long long>(totals.lines),
      static_cast<long long>(totals.games));
  for (const uint32_t column : board.columns) std::printf(" %08x", column);
  std::printf("\n");
}

template <class L, class Tall>
void play_all() {
  for (const GameRules rules : {GameRules{10, 20, false}, GameRules{10, 10, true},
           GameRules{6, 12, false}, GameRules{10, 24, true}, GameRules{10, 17, false, true}}) {
    for (uint64_t stream = 0; stream < 6; ++stream)
      play<L, Tall, Lookahead::none>(rules, stream, DECISIONS);
    play<L, Tall, Lookahead::preview>(rules, 0, DECISIONS / 20);
    play<L, Tall, Lookahead::expectimax>(rules, 0, DECISIONS / 20);
  }
}

}  // namespace

int main() {
  play_all<FastestLanes, TallLanes>();
  std::printf("--\n");
  play_all<ScalarLanes, ScalarLanes>();
}
