// What the rollout operator asks of its arguments, on any device.
#pragma once

#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include "lanes_scalar.h"

namespace tetris {

// `boards` (population, streams, width) int32 columns; `lines`, `games` and `made` (population, streams) int64.
template <class List>
void check_arguments(const torch::stable::Tensor& weights, const torch::stable::Tensor& boards,
                     const torch::stable::Tensor& lines, const torch::stable::Tensor& games,
                     const torch::stable::Tensor& made, int64_t height, int64_t start, int64_t decisions,
                     int64_t last_game) {
    using torch::headeronly::ScalarType;
    const auto check = [](bool condition, const char* message) { STD_TORCH_CHECK(condition, message); };
    check(weights.scalar_type() == ScalarType::Float && boards.scalar_type() == ScalarType::Int &&
              lines.scalar_type() == ScalarType::Long && games.scalar_type() == ScalarType::Long &&
              made.scalar_type() == ScalarType::Long,
          "expected float32 weights, int32 boards, int64 lines, games and made");
    check(weights.is_contiguous() && boards.is_contiguous() && lines.is_contiguous() && games.is_contiguous() &&
              made.is_contiguous(),
          "expected contiguous tensors");
    check(weights.dim() == 2 && weights.size(1) == List::COUNT, "expected weights of shape (population, features)");
    check(boards.dim() == 3 && boards.size(0) == weights.size(0), "expected boards of shape (population, streams, width)");
    check(boards.size(2) >= 4 && boards.size(2) <= MAX_WIDTH && height >= 4 && height <= MAX_HEIGHT,
          "expected a board of 4..10 x 4..24");
    check(lines.numel() == weights.size(0) * boards.size(1) && games.numel() == lines.numel() &&
              made.numel() == lines.numel(),
          "expected lines, games and made of shape (population, streams)");
    check(decisions >= 0 && start >= 0, "expected decisions and start not to be negative");
    check(last_game >= 1, "expected last_game to be at least 1");
}

}  // namespace tetris
