// The engine's shared headers in device code: a game a thread, in scalar lanes. Compiled by a test, never run.
#include "rollout.h"

namespace {
using namespace tetris;
using Features = FeatureList<TETRIS_FEATURES>;
}  // namespace

__global__ void play(const float* weights, StoredBoard* boards, Totals* totals, uint64_t decisions) {
    const int game = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const Player<ScalarLanes, Features> player({10, 20, false}, weights);
    PieceSource pieces{};
    pieces.pieces = 0x6543210;
    pieces.count = 7;
    pieces.start(static_cast<uint64_t>(game), 0);
    player.play(boards[game], pieces, decisions, MAX_HEIGHT + MAX_PIECE_SIZE, totals[game]);
}
