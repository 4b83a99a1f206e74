// The launches of the rollout operator on a GPU. Every launch has its own source file, so that
// nvcc compiles them at the same time.
#pragma once

#include "launcher.cuh"
#include "rollout_arguments.h"

namespace tetris {

using cem_tetris::Launcher;

constexpr int64_t STATE_WORDS = 16;  // 32-bit words of a StreamState

// Plays all streams of games with one warp per stream. Returns false, and does nothing, if
// there are too many streams for that.
bool play_few(const RolloutArguments& all, const Launcher& gpu);
// Plays all streams on boards that are BOARD_WIDTH columns wide; 0 means any width. `states` is
// memory for the StreamStates of all streams.
template <int BOARD_WIDTH>
void play_side_by_side(const RolloutArguments& all, void* states, const Launcher& gpu);

}  // namespace tetris
