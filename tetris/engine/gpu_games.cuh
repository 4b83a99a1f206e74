// What the rollout operator launches on a GPU, each in a source of its own: nvcc compiles them at the same time.
#pragma once

#include "launcher.cuh"
#include "rollout_arguments.h"

namespace tetris {

using cem_tetris::Launcher;

constexpr int64_t STATE_WORDS = 16;  // of 32 bits, for each game side by side

// A warp a game; false where there are too many of them.
bool play_few(const RolloutArguments& all, const Launcher& gpu);
// The games of a board BOARD_WIDTH columns wide, of any width where that is 0. `states`: room for those of all games.
template <int BOARD_WIDTH>
void play_side_by_side(const RolloutArguments& all, void* states, const Launcher& gpu);

}  // namespace tetris
