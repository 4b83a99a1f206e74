// The features of the surface: of the heights of the columns, and of the steps from each to the next (definitions in
// tetris/features.py; see feature_definitions.h).
#pragma once

#include "feature_definitions.h"

namespace tetris {

struct Diversity : WholeFeature {
    template <class L>
    struct Prepared {
        // The differences of each column and the next one.
        typename L::template Kept<uint8_t, typename L::ColumnBits> up_to, from;
    };
    template <class L>
    TETRIS_FUNCTION static auto flags(const Board<L>& board) {
        return L::step_flag(L::right(board.heights) - board.heights + L::ints_everywhere(STEP)) & board.geometry.pairs;
    }
    template <class L>
    TETRIS_FUNCTION static int of(const Board<L>& board) {
        return popcount(L::or_columns(flags(board)));
    }
    template <class L>
    TETRIS_FUNCTION static Prepared<L> prepare(const Board<L>& board) {
        const auto differences = flags(board);
        return {board.template keep<uint8_t>(L::or_up_to(differences)),
                board.template keep<uint8_t>(L::or_from(differences))};
    }
    // Differences inside the piece are the shape's; the two at its sides are new.
    template <class L, int WIDTH>
    TETRIS_FUNCTION static typename L::Ints after(const Prepared<L>& prepared, const Drop<L, WIDTH>& drop) {
        const auto sides = L::step_flag(drop.first_step()) | L::step_flag(drop.last_step());
        const auto outside = drop.at(prepared.up_to, -2) | drop.at(prepared.from, WIDTH);
        const auto all = outside | L::bits(drop.shape.inner_flags) | sides;
        return L::popcount_small(all);
    }
};

struct Bumpiness : BitCount<Bumpiness> {
    // The rows in which one column of a pair is filled and the other is not.
    template <class L>
    TETRIS_FUNCTION static auto words(const Board<L>& board) {
        return (board.filled ^ L::right(board.filled)) & board.geometry.pairs;
    }
    template <class L>
    struct Prepared {
        typename L::Ints total;
        // Of each column and the next one; of two such steps.
        typename L::template Kept<uint8_t, typename L::ColumnInts> steps, pairs;
    };
    template <class L>
    TETRIS_FUNCTION static Prepared<L> prepare(const Board<L>& board) {
        const auto steps = L::run_length(words(board));
        const auto pairs = steps + L::right(steps);
        return {L::total(steps), board.template keep<uint8_t>(steps), board.template keep<uint8_t>(pairs)};
    }
    template <class L, int WIDTH>
    TETRIS_FUNCTION static typename L::Ints after(const Prepared<L>& prepared, const Drop<L, WIDTH>& drop) {
        typename L::Ints sum = prepared.total + L::ints(drop.shape.inner_sum);
        sum = sum + size<L>(drop.first_step()) + size<L>(drop.last_step());
        TETRIS_UNROLL for (int k = -1; k < WIDTH - 1; k += 2) sum = sum - drop.at(prepared.pairs, k);
        if constexpr (WIDTH % 2 == 0) sum = sum - drop.at(prepared.steps, WIDTH - 1);
        return sum;
    }

   private:
    // Of a step + STEP; a step to a wall is none, and larger than any other.
    template <class L>
    TETRIS_FUNCTION static typename L::Ints size(typename L::Ints step) {
        const typename L::Ints difference = step - L::ints(STEP), size = L::maximum(difference, -difference);
        return L::where(size < L::ints(WALL_HEIGHT / 2), size);
    }
};

// The steps from each column to the next as sets of columns (see ScalarLanes::negative), each step standing at its left one.
// A wall is higher than any column.
template <class L>
struct Steps {
    static constexpr int SIZES = 3;
    using Bits = typename L::Bits;
    using Ints = typename L::Ints;
    Bits falls[SIZES], rises[SIZES];  // by at least 1, 2, 3
    Bits pairs;                       // those between two columns of the board

    TETRIS_FUNCTION Bits flat() const { return L::without(pairs, falls[0] | rises[0]); }
    // Between two columns of the board, too, for they do not fall or rise further.
    TETRIS_FUNCTION Bits falls_by(int n) const { return L::without(falls[n - 1], falls[n]); }
    TETRIS_FUNCTION Bits rises_by(int n) const { return L::without(rises[n - 1], rises[n]); }
    // The left one of two successive steps.
    TETRIS_FUNCTION static Bits followed(Bits left, Bits right) { return left & (right >> 1); }
    TETRIS_FUNCTION Bits flat_pairs() const { return followed(flat(), flat()); }
    TETRIS_FUNCTION Bits rising_pairs() const { return followed(flat(), rises_by(1)); }
    TETRIS_FUNCTION Bits falling_pairs() const { return followed(falls_by(1), flat()); }
    // Where pieces rest on every column below them, by the bottoms of their orientations.
    TETRIS_FUNCTION Bits fits_o() const { return flat(); }
    TETRIS_FUNCTION Bits fits_t() const { return falls_by(1) | rises_by(1) | flat_pairs(); }
    TETRIS_FUNCTION Bits fits_z() const { return rises_by(1) | falling_pairs(); }
    TETRIS_FUNCTION Bits fits_s() const { return falls_by(1) | rising_pairs(); }
    TETRIS_FUNCTION Bits fits_j() const { return flat() | rises_by(2); }
    TETRIS_FUNCTION Bits fits_l() const { return flat() | falls_by(2); }
    // 1 if there is none, else 0.
    TETRIS_FUNCTION static Ints none(Bits set) { return L::count(set == L::bits(0)); }
};

// Features of these sets. `Self::value(steps)` is the feature.
struct StepSets {
    template <class L>
    TETRIS_FUNCTION static Steps<ScalarLanes> sets(const Board<L>& board) {
        const auto step = L::right(board.heights) - board.heights;
        Steps<ScalarLanes> steps;
        TETRIS_UNROLL for (int n = 0; n < Steps<L>::SIZES; ++n) {
            const auto less = L::ints_everywhere(n);
            steps.falls[n] = L::negative(step + less);
            steps.rises[n] = L::negative(less - step);
        }
        steps.pairs = L::negative(L::as_ints(board.geometry.pairs));
        return steps;
    }
    template <class L>
    TETRIS_FUNCTION static Steps<L> prepare(const Board<L>& board) {
        const Steps<ScalarLanes> steps = sets(board);
        const auto each = [](uint32_t set) { return L::bits(static_cast<typename L::Word>(set)); };
        Steps<L> prepared;
        TETRIS_UNROLL for (int n = 0; n < Steps<L>::SIZES; ++n) {
            prepared.falls[n] = each(steps.falls[n]);
            prepared.rises[n] = each(steps.rises[n]);
        }
        prepared.pairs = each(steps.pairs);
        return prepared;
    }
    // Steps inside the piece are the shape's; the two at its sides are new.
    template <class L, int WIDTH>
    TETRIS_FUNCTION static Steps<L> after(const Steps<L>& before, const Drop<L, WIDTH>& drop) {
        using Bits = typename L::Bits;
        const Bits touched = L::template in_columns<(2u << WIDTH) - 1>(drop.shape);
        const Bits first = L::template in_columns<1u>(drop.shape), last = L::template in_columns<1u << WIDTH>(drop.shape);
        const auto first_step = drop.first_step(), last_step = drop.last_step();
        Steps<L> steps;
        TETRIS_UNROLL for (int n = 0; n < Steps<L>::SIZES; ++n) {
            const auto fall = L::ints(STEP - n), rise = L::ints(STEP + n);
            steps.falls[n] = L::without(before.falls[n], touched) | L::bits_where(first_step < fall, first) |
                             L::bits_where(last_step < fall, last);
            steps.rises[n] = L::without(before.rises[n], touched) | L::bits_where(first_step > rise, first) |
                             L::bits_where(last_step > rise, last);
            if (WIDTH > 1 && n < INNER_STEPS) {
                steps.falls[n] = steps.falls[n] | L::in_columns(drop.shape.inner_falls[n], drop.shape);
                steps.rises[n] = steps.rises[n] | L::in_columns(drop.shape.inner_rises[n], drop.shape);
            }
        }
        steps.pairs = before.pairs;
        return steps;
    }
};

template <class Self>
struct StepFeature : WholeFeature {
    using Source = StepSets;
    template <class L>
    TETRIS_FUNCTION static int of(const Board<L>& board) {
        return Self::value(StepSets::sets(board));
    }
    template <class L, int WIDTH>
    TETRIS_FUNCTION static typename L::Ints after(const Steps<L>& before, const Drop<L, WIDTH>& drop) {
        return Self::value(StepSets::after(before, drop));
    }
};

template <int DEPTH>
struct DeepWells : StepFeature<DeepWells<DEPTH>> {
    template <class L>
    TETRIS_FUNCTION static typename L::Ints value(const Steps<L>& steps) {
        return L::popcount(Steps<L>::followed(steps.falls[DEPTH - 1], steps.rises[DEPTH - 1]));
    }
};

struct FlatSteps : StepFeature<FlatSteps> {
    template <class L>
    TETRIS_FUNCTION static typename L::Ints value(const Steps<L>& steps) {
        return L::popcount(steps.flat());
    }
};

struct SingleSteps : StepFeature<SingleSteps> {
    template <class L>
    TETRIS_FUNCTION static typename L::Ints value(const Steps<L>& steps) {
        return L::popcount(steps.falls_by(1) | steps.rises_by(1));
    }
};

struct DoubleSteps : StepFeature<DoubleSteps> {
    template <class L>
    TETRIS_FUNCTION static typename L::Ints value(const Steps<L>& steps) {
        return L::popcount(steps.falls_by(2) | steps.rises_by(2));
    }
};

struct FlatPairs : StepFeature<FlatPairs> {
    template <class L>
    TETRIS_FUNCTION static typename L::Ints value(const Steps<L>& steps) {
        return L::popcount(steps.flat_pairs());
    }
};

struct RisingPairs : StepFeature<RisingPairs> {
    template <class L>
    TETRIS_FUNCTION static typename L::Ints value(const Steps<L>& steps) {
        return L::popcount(steps.rising_pairs());
    }
};

struct FallingPairs : StepFeature<FallingPairs> {
    template <class L>
    TETRIS_FUNCTION static typename L::Ints value(const Steps<L>& steps) {
        return L::popcount(steps.falling_pairs());
    }
};

// The upright I rests on any column.
struct FittingPieces : StepFeature<FittingPieces> {
    template <class L>
    TETRIS_FUNCTION static typename L::Ints value(const Steps<L>& steps) {
        using S = Steps<L>;
        const auto missing = S::none(steps.fits_o()) + S::none(steps.fits_t()) + S::none(steps.fits_z()) +
                             S::none(steps.fits_s()) + S::none(steps.fits_j()) + S::none(steps.fits_l());
        return L::ints(PIECES) - missing;
    }
};

struct FitsS : StepFeature<FitsS> {
    template <class L>
    TETRIS_FUNCTION static typename L::Ints value(const Steps<L>& steps) {
        return L::ints(1) - Steps<L>::none(steps.fits_s());
    }
};

struct FitsZ : StepFeature<FitsZ> {
    template <class L>
    TETRIS_FUNCTION static typename L::Ints value(const Steps<L>& steps) {
        return L::ints(1) - Steps<L>::none(steps.fits_z());
    }
};

template <int COLUMN>
struct ColumnHeight : WholeFeature {
    template <class L>
    TETRIS_FUNCTION static int of(const Board<L>& board) {
        return board.heights[FIRST_COLUMN + COLUMN];
    }
    template <class L, int WIDTH>
    TETRIS_FUNCTION static typename L::Ints after(int, const Drop<L, WIDTH>& drop) {
        return drop.column_height(COLUMN);
    }
};

template <int COLUMN>
struct HeightDifference : WholeFeature {
    template <class L>
    TETRIS_FUNCTION static int of(const Board<L>& board) {
        const int difference = board.heights[FIRST_COLUMN + COLUMN + 1] - board.heights[FIRST_COLUMN + COLUMN];
        return difference < 0 ? -difference : difference;
    }
    template <class L, int WIDTH>
    TETRIS_FUNCTION static typename L::Ints after(int, const Drop<L, WIDTH>& drop) {
        const auto difference = drop.column_height(COLUMN + 1) - drop.column_height(COLUMN);
        return L::maximum(difference, -difference);
    }
};

struct MaxHeight : WholeFeature {
    template <class L>
    TETRIS_FUNCTION static int of(const Board<L>& board) {
        return popcount(L::or_columns(board.filled & board.geometry.inside));
    }
    template <class L>
    TETRIS_FUNCTION static typename L::Ints prepare(const Board<L>& board) {
        return L::popcount(L::or_all(board.filled & board.geometry.inside));
    }
    template <class L, int WIDTH>
    TETRIS_FUNCTION static typename L::Ints after(typename L::Ints before, const Drop<L, WIDTH>& drop) {
        return L::maximum(before, drop.end());
    }
};

}  // namespace tetris
