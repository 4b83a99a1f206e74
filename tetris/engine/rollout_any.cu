// The games of boards of any width.
#include "side_by_side.cuh"

template void tetris::play_side_by_side<tetris::Features, 0>(
    const tetris::RolloutArguments&, const tetris::Tensor&, int, cudaStream_t);
