// The play of stacks of any height. It is a source file of its own, so that it is compiled at
// the same time as rollout.cpp.
#include "cpu_rollout.h"
#include "fastest_lanes.h"

namespace tetris {
template void play_apart(
    const LaneRollout<TallLanes, FeatureList<TETRIS_FEATURES>, Lookahead::TETRIS_LOOKAHEAD>&,
    StoredBoard&, PieceReader&, const Goal&, int, bool, Totals&);
}  // namespace tetris
