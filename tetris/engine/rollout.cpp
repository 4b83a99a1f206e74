// The rollout operator on the CPU: every candidate's streams, spread over torch's threads.
//
// Compiled once a feature set: TETRIS_FEATURES is the list of feature structs in summation order, TETRIS_LIBRARY the
// namespace under torch.ops. See tetris/native.py, which calls it.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <atomic>

#include "arguments.h"
#include "fastest_lanes.h"
#include "player.h"

namespace {

using namespace tetris;
using torch::stable::Tensor;
using Features = FeatureList<TETRIS_FEATURES>;

// Rows of a stored column count from the least significant bit in tensors, from the most significant one in the engine.
uint32_t turned(uint32_t column) {
    column = (column >> 1 & 0x55555555u) | (column & 0x55555555u) << 1;
    column = (column >> 2 & 0x33333333u) | (column & 0x33333333u) << 2;
    column = (column >> 4 & 0x0F0F0F0Fu) | (column & 0x0F0F0F0Fu) << 4;
    return __builtin_bswap32(column);
}

// Plays decisions start .. start + decisions - 1 on every stream, fewer where `last_game` games have ended on it: there it
// stops for good. `boards` (population, streams, width) int32 columns; `lines`, `games` and `made`, the decisions,
// (population, streams) int64; all are carried on in place.
void advance(const Tensor& weights, Tensor boards, Tensor lines, Tensor games, Tensor made, int64_t height,
             bool clear_on_overflow, int64_t pieces, int64_t piece_count, bool bag, int64_t seed, int64_t first_stream,
             bool share_streams, int64_t start, int64_t decisions, int64_t last_game) {
    check_arguments<Features>(weights, boards, lines, games, made, height, start, decisions, last_game);
    const int64_t population = weights.size(0), streams = boards.size(1);
    const int width = static_cast<int>(boards.size(2));
    const float* weight = weights.const_data_ptr<float>();
    auto* columns = reinterpret_cast<uint32_t*>(boards.mutable_data_ptr<int32_t>());
    int64_t* line_totals = lines.mutable_data_ptr<int64_t>();
    int64_t* game_totals = games.mutable_data_ptr<int64_t>();
    int64_t* made_totals = made.mutable_data_ptr<int64_t>();
    const GameRules rules{width, static_cast<int>(height), clear_on_overflow};

    // Streams are handed out one by one: they take unequally long, and a fixed share would wait for the slowest.
    std::atomic<int64_t> next{0};
    const auto work = [&](int64_t, int64_t) {
        for (int64_t i = next++; i < population * streams; i = next++) {
            if (game_totals[i] >= last_game) continue;
            const int64_t candidate = i / streams;
            StreamPlayer<FastestLanes, TallLanes, Features> player(rules, weight + candidate * Features::COUNT);
            PieceSource source{};
            source.seed = static_cast<uint64_t>(seed);
            source.pieces = static_cast<uint32_t>(pieces);
            source.count = static_cast<int>(piece_count);
            source.bag = bag;
            source.start(static_cast<uint64_t>(first_stream + (share_streams ? i % streams : i)), static_cast<uint64_t>(start));
            StoredBoard board{};
            for (int c = 0; c < width; ++c) board.columns[c] = turned(columns[i * width + c]);
            Totals totals;
            player.play(board, source, {static_cast<uint64_t>(start + decisions), last_game - game_totals[i]}, totals);
            for (int c = 0; c < width; ++c) columns[i * width + c] = turned(board.columns[c]);
            line_totals[i] += totals.lines;
            game_totals[i] += totals.games;
            made_totals[i] += static_cast<int64_t>(source.t) - start;
        }
    };
    torch::stable::parallel_for(0, torch::stable::get_num_threads(), 1, work);
}

}  // namespace

STABLE_TORCH_LIBRARY(TETRIS_LIBRARY, m) {
    m.def(
        "advance(Tensor weights, Tensor(a!) boards, Tensor(b!) lines, Tensor(c!) games, Tensor(d!) made, int height, "
        "bool clear_on_overflow, int pieces, int piece_count, bool bag, int seed, int first_stream, bool share_streams, "
        "int start, int decisions, int last_game) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CPU, m) { m.impl("advance", TORCH_BOX(&advance)); }
