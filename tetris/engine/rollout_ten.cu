// The games of boards ten columns wide.
#include "side_by_side.cuh"

template void tetris::play_side_by_side<tetris::MAX_WIDTH>(
    const tetris::RolloutArguments&, void*, const tetris::Launcher&);
