// A rollout's tensors as a kernel wants them.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include "play.cuh"

namespace tetris {

// The arguments are those of the operator in rollout.cpp. `state`: room for every game where a thread plays it, or null.
inline Job make_job(const torch::stable::Tensor& weights, torch::stable::Tensor& boards, torch::stable::Tensor& lines,
                    torch::stable::Tensor& games, torch::stable::Tensor& made, int64_t height, bool clear_on_overflow,
                    int64_t pieces, int64_t piece_count, bool bag, int64_t seed, int64_t first_stream, bool share_streams,
                    int64_t start, int64_t decisions, int64_t last_game, Game* state) {
    const int64_t streams = boards.size(1);
    Job job{};
    job.rules = {static_cast<int>(boards.size(2)), static_cast<int>(height), clear_on_overflow};
    job.source.seed = static_cast<uint64_t>(seed);
    job.source.pieces = static_cast<uint32_t>(pieces);
    job.source.count = static_cast<int>(piece_count);
    job.source.bag = bag;
    job.weights = weights.const_data_ptr<float>();
    job.state = state;
    job.boards = boards.mutable_data_ptr<int32_t>();
    job.lines = lines.mutable_data_ptr<int64_t>();
    job.ended = games.mutable_data_ptr<int64_t>();
    job.made = made.mutable_data_ptr<int64_t>();
    job.last_game = last_game;
    job.first_stream = static_cast<uint64_t>(first_stream);
    job.start = static_cast<uint64_t>(start);
    job.total = static_cast<uint32_t>(weights.size(0) * streams);
    job.streams = static_cast<uint32_t>(streams);
    job.decisions = static_cast<uint32_t>(decisions);
    job.share_streams = share_streams;
    return job;
}

}  // namespace tetris
