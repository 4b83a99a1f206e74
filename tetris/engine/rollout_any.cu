// The games of boards of any width.
#include "side_by_side.cuh"

template void tetris::play_side_by_side<0>(
    const tetris::RolloutArguments&, void*, const tetris::Launcher&);
