// The decision: every placement of a piece scored, the first best one taken (see tetris/game.py, which it equals).
#pragma once

#include "feature_definitions.h"

namespace tetris {

// One feature's knowledge of the board before the drop.
template <class L, class F>
struct Slot {
    decltype(F::prepare(*static_cast<const Board<L>*>(nullptr))) prepared;
};

// A list of features with their weights. `Features...` are distinct.
template <class... Features>
struct FeatureList {
    static constexpr int COUNT = sizeof...(Features);
    static constexpr bool all_drop = (has_after<Features>::value && ...);

    template <class L>
    struct Prepared : Slot<L, Features>... {
        TETRIS_FUNCTION explicit Prepared(const Board<L>& board) : Slot<L, Features>{Features::prepare(board)}... {}
    };

    // The weighted sum over a whole board.
    template <class L>
    TETRIS_FUNCTION static float value(const float* weights, const Board<L>& board) {
        float sum = 0.0f;
        int i = 0;
        ((sum = add_product(sum, weights[i++], static_cast<float>(Features::of(board)) * Features::unit)), ...);
        return sum;
    }

    // The weighted sums of the after-states of a drop that completes no row.
    template <class L, int WIDTH>
    TETRIS_FUNCTION static typename L::Floats values(const float* weights, const Prepared<L>& prepared,
                                                     const Drop<L, WIDTH>& drop) {
        typename L::Floats sums = L::floats(0.0f);
        int i = 0;
        (add<Features>(sums, weights[i++], prepared, drop), ...);
        return sums;
    }

   private:
    template <class F, class L, int WIDTH>
    TETRIS_FUNCTION static void add(typename L::Floats& sums, float weight, const Prepared<L>& prepared,
                                    const Drop<L, WIDTH>& drop) {
        if constexpr (!F::zero_without_lines) {
            const auto value = L::to_floats(F::after(static_cast<const Slot<L, F>&>(prepared).prepared, drop));
            sums = L::add_product(sums, weight, F::unit == 1.0f ? value : L::scale(value, F::unit));
        }
    }
};

// Scores every placement of a piece on a board. `L` is the lanes, `List` the FeatureList.
template <class L, class List>
struct Chooser {
    using Prepared = typename List::template Prepared<L>;

    const Geometry<L>& geometry;
    const float* weights;
    bool clear_on_overflow;

    // NO_CHOICE where every placement ends the game (or none has a score above minus infinity).
    TETRIS_FUNCTION Choice choose(const Board<L>& board, int piece) const {
        Search search(board);
        const Plan<L>& plan = PLANS<L>[piece];
        for (int i = 0; i < plan.ones.count; ++i) score(search, plan.ones.group[i]);
        for (int i = 0; i < plan.fours.count; ++i) score(search, plan.fours.group[i]);
        for (int i = 0; i < plan.twos.count; ++i) score(search, plan.twos.group[i]);
        for (int i = 0; i < plan.threes.count; ++i) score(search, plan.threes.group[i]);
        Choice choice = L::first_best(search.best);
        for (uint64_t rest = search.rest; rest != 0; rest &= rest - 1) {
            choice.consider(score_whole(board, piece, lowest_bit(rest)));
        }
        return choice;
    }

   private:
    struct Search {
        const Board<L>& board;
        const Prepared prepared;
        const RowGaps<L> gaps;
        typename L::Best best;  // among the placements that complete no row
        uint64_t rest = 0;      // the placements to be scored by their whole after-state: a bit a place in the order
        TETRIS_FUNCTION explicit Search(const Board<L>& b) : board(b), prepared(b), gaps(b) {}
    };

    template <int WIDTH>
    TETRIS_FUNCTION void score(Search& search, const Group<L, WIDTH>& group) const {
        const Drop<L, WIDTH> drop(search.board, group.shapes);
        const auto allowed = drop.column() <= geometry.last_column[WIDTH - 1];
        const auto fits = drop.row + drop.piece_height() <= geometry.top;
        const auto completed = drop.completed(search.gaps);
        if constexpr (List::all_drop) {
            const auto plain = allowed & fits & (completed == L::bits(0));
            if (L::worthwhile(plain)) {
                L::consider(search.best, List::values(weights, search.prepared, drop), plain, group);
            }
        }
        const auto whole = List::all_drop ? completed != L::bits(0) : completed == completed;
        search.rest |= group.in_order(L::lanes(allowed & whole & (fits | L::mask(clear_on_overflow))));
    }

    // From the after-state itself, full rows removed.
    TETRIS_OUTLINE Choice score_whole(const Board<L>& board, int piece, int place) const {
        const Landing<L> landing(board, piece, place, clear_on_overflow);
        if (landing.over) return NO_CHOICE;
        Board<L> after(geometry, landing.cells);
        after.twice_landing_height = 2 * landing.row + SHAPES[piece][orientation_of(place)].height - 1;
        after.eroded_cells = landing.eroded_cells;
        return {List::value(weights, after), place};
    }
};

}  // namespace tetris
