// Single steps of the C++ engine, for tests: which placement it chooses, what becomes of the board, every feature's value.
// TETRIS_FEATURES and TETRIS_LIBRARY as for rollout.cpp.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>

#include "decision.h"
#include "fastest_lanes.h"

namespace {

using namespace tetris;
using torch::stable::Tensor;

// Rows count from the least significant bit outside the engine.
uint32_t turned(uint32_t column) {
    uint32_t result = 0;
    for (int row = 0; row < 32; ++row) result |= (column >> row & 1u) << (31 - row);
    return result;
}

template <class L>
typename L::ColumnBits columns_of(const Geometry<L>& geometry, const int32_t* board) {
    using Word = typename L::Word;
    Word slots[16] = {};
    for (int c = 0; c < geometry.width; ++c) {
        slots[FIRST_COLUMN + c] = static_cast<Word>(turned(static_cast<uint32_t>(board[c])) >> (31 - L::TOP));
    }
    return L::load(slots) | geometry.walls;
}

template <class L, class... Features>
struct Steps {
    using List = FeatureList<Features...>;

    // One step from `board`, with the placement of `place` where it is not negative and else the one that is chosen.
    static void play(const int32_t* weights, int width, int height, bool clear_on_overflow, const int32_t* board, int piece,
                     int32_t& place, int32_t* after, int32_t* result, float* values) {
        const Geometry<L> geometry(width, height);
        const Chooser<L, List> chooser(geometry, weights, {width, height, clear_on_overflow});
        const Board<L> before(geometry, columns_of<L>(geometry, board));
        if (place < 0) {
            const Choice choice = chooser.choose(before, piece);
            place = choice.place == Choice::NONE ? 0 : choice.place;
        }
        const Landing<L> landing(before, piece, place, clear_on_overflow);
        typename L::Word slots[16];
        L::store(landing.cells, slots);
        for (int c = 0; c < width; ++c) {
            after[c] = static_cast<int32_t>(turned(static_cast<uint32_t>(slots[FIRST_COLUMN + c]) << (31 - L::TOP)));
        }
        result[0] = landing.lines;
        result[1] = landing.row;
        result[2] = landing.over;
        if (landing.over) return;
        const AfterState<L> state(before, landing, piece, place);
        int i = 0;
        ((values[i++] = static_cast<float>(Features::of(state)) / Features::denominator), ...);
    }
};

// From `boards[i]` (steps, width) int32 columns play `pieces[i]`, with `places[i]` = orientation * 16 + column where that is
// not negative; `chain`: every step goes on from the one before, or from an empty board where its game has ended.
// `lanes`: 0 the fastest that hold the stack, 1 those of tall stacks, 2 scalar ones.
// Out: `places`, `boards` after each step, `results` (steps, 3) lines, landing row, game over, `values` (steps, features).
void steps(const Tensor& weights, const Tensor& pieces, Tensor places, Tensor boards, Tensor results, Tensor values,
           int64_t height, bool clear_on_overflow, bool chain, int64_t lanes) {
    const int width = static_cast<int>(boards.size(1));
    const int64_t features = values.size(1);
    int32_t* board = boards.mutable_data_ptr<int32_t>();
    int32_t* place = places.mutable_data_ptr<int32_t>();
    int32_t* result = results.mutable_data_ptr<int32_t>();
    float* value = values.mutable_data_ptr<float>();
    const int32_t* piece = pieces.const_data_ptr<int32_t>();
    constexpr decltype(&Steps<ScalarLanes, TETRIS_FEATURES>::play) PLAYS[] = {
        Steps<FastestLanes, TETRIS_FEATURES>::play,
        Steps<TallLanes, TETRIS_FEATURES>::play,
        Steps<ScalarLanes, TETRIS_FEATURES>::play,
    };
    int32_t from[MAX_WIDTH] = {};
    for (int64_t i = 0; i < pieces.numel(); ++i) {
        bool low = true;
        for (int c = 0; c < width; ++c) {
            if (!chain) from[c] = board[i * width + c];
            low = low && (from[c] >> FastestLanes::MAX_STACK) == 0;
        }
        PLAYS[low ? lanes : std::max<int64_t>(lanes, 1)](
            weights.const_data_ptr<int32_t>(), width, static_cast<int>(height), clear_on_overflow, from, piece[i], place[i],
            board + i * width, result + 3 * i, value + features * i);
        for (int c = 0; c < width; ++c) from[c] = result[3 * i + 2] != 0 ? 0 : board[i * width + c];
    }
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(TETRIS_LIBRARY, m) {
    m.def(
        "steps(Tensor weights, Tensor pieces, Tensor(a!) places, Tensor(b!) boards, Tensor(c!) results, Tensor(d!) values, "
        "int height, bool clear_on_overflow, bool chain, int lanes) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CPU, m) { m.impl("steps", TORCH_BOX(&steps)); }
