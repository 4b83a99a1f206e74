// What a rollout is made of on all processors: the pieces of a stream, and the rules.
#pragma once

#include "philox.h"
#include "decision.h"

namespace tetris {

// The pieces of one stream: a pure function of (seed, stream, t); see tetris/stream.py.
struct Pieces {
    uint64_t seed, stream;
    uint32_t pieces;  // four-bit fields, the pieces to draw from
    int count;
    bool bag;

    // Piece t.
    TETRIS_FUNCTION int piece(uint64_t t) const {
        if (bag) return nth(bag_of(t / PIECES), static_cast<int>(t % PIECES));
        const philox::Block block = block_of(t / 4);
        // Chosen, not indexed, so that the block can lie in registers.
        const int at = static_cast<int>(t % 4);
        const uint32_t early = at == 0 ? block.word[0] : block.word[1], late = at == 2 ? block.word[2] : block.word[3];
        return drawn_by(at < 2 ? early : late);
    }

   protected:
    TETRIS_FUNCTION philox::Block block_of(uint64_t number) const { return philox::block(number, stream, seed); }
    TETRIS_FUNCTION int drawn_by(uint32_t word) const {
        return nth(pieces, static_cast<int>((static_cast<uint64_t>(count) * word) >> 32));
    }
    TETRIS_FUNCTION static int nth(uint32_t fields, int index) { return static_cast<int>(fields >> (4 * index)) & 15; }
    // The order of a bag, four-bit fields: Fisher-Yates with the first six words of two blocks.
    TETRIS_FUNCTION uint32_t bag_of(uint64_t number) const {
        const philox::Block one = block_of(2 * number), two = block_of(2 * number + 1);
        const uint32_t words[6] = {one.word[0], one.word[1], one.word[2], one.word[3], two.word[0], two.word[1]};
        uint32_t order = 0x6543210;
        TETRIS_UNROLL for (int i = PIECES - 1; i >= 1; --i) {
            const int j = static_cast<int>((static_cast<uint64_t>(i + 1) * words[PIECES - 1 - i]) >> 32);
            const uint32_t differ = ((order >> (4 * i)) ^ (order >> (4 * j))) & 15u;
            order ^= (differ << (4 * i)) | (differ << (4 * j));
        }
        return order;
    }
};

// The same pieces one after the other: what several have in common is computed once.
struct PieceSource : Pieces {
    uint64_t t;
    philox::Block block;  // t's
    uint32_t order;       // the bag of t

    TETRIS_FUNCTION void start(uint64_t stream_index, uint64_t first_t) {
        stream = stream_index;
        t = first_t;
        if (position() != 0) refill();
    }

    TETRIS_FUNCTION int next() {
        if (position() == 0) refill();
        const int piece = bag ? nth(order, position()) : drawn_by(block.word[position()]);
        ++t;
        return piece;
    }

   private:
    TETRIS_FUNCTION int position() const { return static_cast<int>(t % (bag ? PIECES : 4)); }
    TETRIS_FUNCTION void refill() {
        if (bag) order = bag_of(t / PIECES);
        else block = block_of(t / 4);
    }
};

// The rules of a game, as far as they are not the pieces'.
struct GameRules {
    int width, height;
    bool clear_on_overflow;
};

}  // namespace tetris
