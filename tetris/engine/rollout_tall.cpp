// Stacks too high for the fastest lanes, compiled at the same time as rollout.cpp.
#include "cpu_rollout.h"
#include "fastest_lanes.h"

namespace tetris {
template void play_tall(
    const LaneRollout<TallLanes, FeatureList<TETRIS_FEATURES>, Lookahead::TETRIS_LOOKAHEAD>&, StoredBoard&,
    PieceReader&, const Goal&, int, Totals&);
}  // namespace tetris
