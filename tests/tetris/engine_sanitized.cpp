// Games of the C++ engine without torch, to be compiled with sanitizers: TETRIS_FEATURES as for rollout.cpp.
#include <cstdio>

#include "cpu_rollout.h"
#include "fastest_lanes.h"

namespace {

using namespace tetris;
using Features = FeatureList<TETRIS_FEATURES>;

// Rows 0 to `rows` - 1 full and one cell above them: what is left is that cell, in row 0.
template <class L>
bool removes_full_rows(int width, int rows) {
    using Word = typename L::Word;
    const Geometry<L> geometry(width, 8);
    Word slots[16] = {};
    const int above = L::TOP + 1 - rows;  // a bit for each row above the full ones
    for (int c = 0; c < width; ++c) slots[FIRST_COLUMN + c] = static_cast<Word>(~((Word(1) << above) - 1));
    slots[FIRST_COLUMN] = static_cast<Word>(slots[FIRST_COLUMN] | Word(1) << (above - 1));
    const auto cells = L::load(slots) | geometry.walls;
    Word left[16];
    L::store(remove_rows(geometry, cells, full_rows(geometry, cells)) & geometry.inside, left);
    bool right = left[FIRST_COLUMN] == static_cast<Word>(Word(1) << L::TOP);
    for (int c = 1; c < width; ++c) right = right && left[FIRST_COLUMN + c] == 0;
    return right;
}

template <class L>
bool removes_full_rows() {
    bool right = true;
    for (int width = 4; width <= MAX_WIDTH; ++width) {
        for (int rows = 1; rows <= 4; ++rows) right = right && removes_full_rows<L>(width, rows);
    }
    return right;
}

// A controller that avoids holes on each kind of board, one that prefers them, and equal scores.
template <class L, class Tall, Sight SIGHT>
Totals play() {
    Totals all;
    for (const int64_t rule : {0, 1, 2}) {
        for (int height = 4; height <= MAX_HEIGHT; height += 5) {
            for (int width = 4; width <= MAX_WIDTH; width += 3) {
                for (const int scale : {-6553, 0, 6553}) {  // weights as great as they get
                    int32_t weights[Features::COUNT];
                    for (int i = 0; i < Features::COUNT; ++i) weights[i] = scale * (1 + i % 5);
                    const GameRules rules = GameRules::of(width, height, rule);
                    StreamRollout<L, Tall, Features, SIGHT> games(rules, weights);
                    const PieceSource source{0x6543210, PIECES, rule == 1};
                    PieceReader pieces({source, ~uint64_t{0}, static_cast<uint64_t>(width * height)}, 0);
                    StoredBoard board{};
                    games.play(board, pieces, {SIGHT == Sight::PIECE ? 200 : 50, int64_t{1} << 62}, all);
                }
            }
        }
    }
    return all;
}

}  // namespace

int main() {
    const bool right = removes_full_rows<FastestLanes>() && removes_full_rows<TallLanes>() && removes_full_rows<ScalarLanes>();
    std::printf("%d", right);
    for (const Totals& all : {play<FastestLanes, TallLanes, Sight::PIECE>(), play<ScalarLanes, ScalarLanes, Sight::PIECE>(),
                              play<FastestLanes, TallLanes, Sight::NEXT_PIECE>(),
                              play<ScalarLanes, ScalarLanes, Sight::NEXT_PIECE>(),
                              play<FastestLanes, TallLanes, Sight::ANY_NEXT_PIECE>(),
                              play<ScalarLanes, ScalarLanes, Sight::ANY_NEXT_PIECE>()}) {
        std::printf(" %lld %lld", static_cast<long long>(all.lines), static_cast<long long>(all.games));
    }
    std::printf("\n");
}
