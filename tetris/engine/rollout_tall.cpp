// The lanes that hold every stack, compiled at the same time as rollout.cpp.
#include "cpu_rollout.h"
#include "fastest_lanes.h"

namespace tetris {
template void play_apart(
    const LaneRollout<TallLanes, FeatureList<TETRIS_FEATURES>, Lookahead::TETRIS_LOOKAHEAD>&,
    StoredBoard&, PieceReader&, const Goal&, int, bool, Totals&);
}  // namespace tetris
