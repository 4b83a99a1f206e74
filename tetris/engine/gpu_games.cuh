// The launches of the rollout operator on a GPU. Each has a source of its own, so that nvcc
// compiles them at the same time.
#pragma once

#include "launcher.cuh"
#include "rollout_arguments.h"

namespace tetris {

using cem_tetris::Launcher;

constexpr int64_t STATE_WORDS = 16;  // 32-bit words of the state of a game

// Plays with a warp per game. Returns false, and does nothing, if there are too many games for
// that.
bool play_few(const RolloutArguments& all, const Launcher& gpu);
// Plays on boards BOARD_WIDTH columns wide, or of any width for 0. `states` has room for the
// states of all games.
template <int BOARD_WIDTH>
void play_side_by_side(const RolloutArguments& all, void* states, const Launcher& gpu);

}  // namespace tetris
