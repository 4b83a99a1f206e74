// Playing on and on, on the CPU: landings, game over, and as many decisions or games as asked for.
#pragma once

#include <optional>

#include "decision.h"
#include "rollout.h"

namespace tetris {

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

    // Plays until the goal is reached, while a column is higher than `limit` if `above`, and otherwise while none is.
    TETRIS_FUNCTION void play(StoredBoard& stored, PieceSource& pieces, const Goal& goal, int limit, bool above,
                              Totals& totals) const {
        const Word high = limit >= ROWS ? Word(0) : static_cast<Word>((Word(1) << (ROWS - limit)) - 1);
        const typename L::ColumnBits higher = L::bits_everywhere(high) & geometry_.inside;
        typename L::ColumnBits cells = load(stored);
        while (!goal.reached(pieces, totals) && L::any(cells & higher) == above) {
            cells = decide(cells, pieces.next(), totals);
        }
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

// Plays one stream of one candidate in lanes L, and in lanes Tall while the wall is too high for those.
template <class L, class Tall, class List, bool ANY_WALL = L::MAX_WALL >= MAX_HEIGHT>
class StreamPlayer {
   public:
    StreamPlayer(const GameRules& rules, const float* weights) : rules_(rules), weights_(weights) {}

    // Plays until the goal is reached.
    void play(StoredBoard& board, PieceSource& pieces, const Goal& goal, Totals& totals) {
        while (!goal.reached(pieces, totals)) {
            if (is_tall(board)) made(tall_).play(board, pieces, goal, L::MAX_WALL, true, totals);
            else made(low_).play(board, pieces, goal, L::MAX_WALL, false, totals);
        }
    }

   private:
    static bool is_tall(const StoredBoard& board) {
        uint32_t any = 0;
        for (const uint32_t column : board.columns) any |= column;
        return (any & ((1u << (32 - L::MAX_WALL)) - 1)) != 0;
    }

    // A player takes as long to make as some decisions, and few streams come to need both.
    template <class Played>
    const Played& made(std::optional<Played>& player) {
        return player ? *player : player.emplace(rules_, weights_);
    }

    const GameRules& rules_;
    const float* weights_;
    std::optional<Player<L, List>> low_;
    std::optional<Player<Tall, List>> tall_;
};

template <class L, class Tall, class List>
class StreamPlayer<L, Tall, List, true> {
   public:
    StreamPlayer(const GameRules& rules, const float* weights) : player_(rules, weights) {}
    void play(StoredBoard& board, PieceSource& pieces, const Goal& goal, Totals& totals) {
        player_.play(board, pieces, goal, NO_LIMIT, false, totals);
    }

   private:
    static constexpr int NO_LIMIT = MAX_HEIGHT + MAX_PIECE_SIZE;  // no column is higher

    Player<L, List> player_;
};

}  // namespace tetris
