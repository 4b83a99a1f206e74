// Playing on and on: pieces, landings, game over, and as many decisions or games as asked for.
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

struct Totals {
    int64_t lines = 0, games = 0;
};

// Where playing stops: before a decision, or as soon as so many games have ended.
struct Goal {
    uint64_t decision;
    int64_t games;
    TETRIS_FUNCTION bool reached(const PieceSource& pieces, const Totals& totals) const {
        return pieces.t == decision || totals.games == games;
    }
};

// The rules of a game, as far as they are not the pieces'.
struct GameRules {
    int width, height;
    bool clear_on_overflow;
};

// A board of ScalarLanes' columns, without walls.
struct StoredBoard {
    uint32_t columns[MAX_WIDTH];
};

// A game that restarts when it ends, played in lanes L.
template <class L, class List>
class Player {
   public:
    using Word = typename L::Word;
    static constexpr int ROWS = L::TOP + 1;
    TETRIS_FUNCTION Player(const GameRules& rules, const float* weights)
        : geometry_(rules.width, rules.height), chooser_(geometry_, weights, rules.clear_on_overflow) {}
    Player(const Player&) = delete;  // the chooser refers to the geometry
    Player& operator=(const Player&) = delete;

    // Plays until the goal is reached, or until a column is higher than `limit` (than any can be, for no limit).
    TETRIS_FUNCTION void play(StoredBoard& stored, PieceSource& pieces, const Goal& goal, int limit, Totals& totals) const {
        const Word tall = limit >= ROWS ? Word(0) : static_cast<Word>((Word(1) << (ROWS - limit)) - 1);
        const typename L::ColumnBits too_high = L::bits_everywhere(tall) & geometry_.inside;
        typename L::ColumnBits cells = load(stored);
        while (!goal.reached(pieces, totals) && !L::any(cells & too_high)) cells = decide(cells, pieces.next(), totals);
        store(cells, stored);
    }

   private:
    // One decision; the new columns.
    TETRIS_FUNCTION typename L::ColumnBits decide(const typename L::ColumnBits& cells, int piece, Totals& totals) const {
        const Board<L> board(geometry_, cells);
        const Choice choice = chooser_.choose(board, piece);
        const int place = choice.place == Choice::NONE ? 0 : choice.place;
        const Landing<L> landing(board, piece, place, chooser_.clear_on_overflow);
        totals.lines += landing.lines;
        totals.games += landing.over ? 1 : 0;
        return landing.over ? geometry_.walls : landing.cells;
    }

    TETRIS_FUNCTION typename L::ColumnBits load(const StoredBoard& stored) const {
        Word slots[16] = {};
        for (int i = 0; i < geometry_.width; ++i) {
            slots[FIRST_COLUMN + i] = static_cast<Word>(stored.columns[i] >> (32 - ROWS));
        }
        return L::load(slots) | geometry_.walls;
    }

    TETRIS_FUNCTION void store(const typename L::ColumnBits& cells, StoredBoard& stored) const {
        Word slots[16];
        L::store(cells, slots);
        for (int i = 0; i < geometry_.width; ++i) {
            stored.columns[i] = static_cast<uint32_t>(slots[FIRST_COLUMN + i]) << (32 - ROWS);
        }
    }

    const Geometry<L> geometry_;
    const Chooser<L, List> chooser_;
};

// Plays one stream of one candidate in lanes L, and in the scalar ones while the wall is too high for those.
template <class L, class List, bool ANY_WALL = L::MAX_WALL >= MAX_HEIGHT>
class StreamPlayer {
   public:
    StreamPlayer(const GameRules& rules, const float* weights) : low_(rules, weights), tall_(rules, weights) {}

    // Plays until the goal is reached.
    void play(StoredBoard& board, PieceSource& pieces, const Goal& goal, Totals& totals) const {
        // Back only when the wall is well below the limit, not to go to and fro.
        constexpr int LIMIT = L::MAX_WALL, LOW = LIMIT - 2;
        while (!goal.reached(pieces, totals)) {
            if (board_is_within(board, LIMIT)) low_.play(board, pieces, goal, LIMIT, totals);
            while (!goal.reached(pieces, totals) && !board_is_within(board, LOW)) {
                tall_.play(board, pieces, {pieces.t + 1, goal.games}, NO_LIMIT, totals);
            }
        }
    }

   private:
    static constexpr int NO_LIMIT = MAX_HEIGHT + MAX_PIECE_SIZE;

    static bool board_is_within(const StoredBoard& board, int limit) {
        uint32_t any = 0;
        for (const uint32_t column : board.columns) any |= column;
        return (any & ((1u << (32 - limit)) - 1)) == 0;
    }

    Player<L, List> low_;
    Player<ScalarLanes, List> tall_;
};

template <class L, class List>
class StreamPlayer<L, List, true> {
   public:
    StreamPlayer(const GameRules& rules, const float* weights) : player_(rules, weights) {}
    void play(StoredBoard& board, PieceSource& pieces, const Goal& goal, Totals& totals) const {
        player_.play(board, pieces, goal, MAX_HEIGHT + MAX_PIECE_SIZE, totals);
    }

   private:
    Player<L, List> player_;
};

}  // namespace tetris
