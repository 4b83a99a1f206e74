// Rollouts on a GPU, few games: a warp a game, a thread a placement and a column.
#pragma once

#include "placements.cuh"
#include "rollout_arguments.h"
#include "warp_lanes.h"

namespace tetris {

// PIECES_KNOWN: 1, the piece that falls, or 2, the next one, too.
template <class List, int PIECES_KNOWN>
struct WarpRollout {
    using L = WarpLanes;
    using Decision = Chooser<L, List>;
    const RolloutArguments& job;

    // Scores the placements of all orientations of one width, one a thread; whether this thread's completes a row.
    template <int WIDTH>
    __device__ __forceinline__ bool score(const Decision& decision, typename Decision::Search& search, int piece) {
        constexpr int PLACES = MAX_WIDTH - WIDTH + 1;
        const int nth = L::lane() / PLACES;
        const int orientation = nth < 2 ? WIDTHS.of_width[piece][WIDTH][nth] : -1;
        // Threads without a placement have one that is too high, over the first column.
        Group<L, WIDTH> group;
        if (orientation >= 0) {
            group.shapes = SHAPE_CONSTANTS<L, WIDTH>.shape[piece][orientation];
            group.shapes.column.value = L::lane() % PLACES;
        }
        group.order[0] = place = orientation * ORDER_STRIDE + group.shapes.column.value;
        return decision.score(search.ground, search.prepared, search.best, group) != 0;
    }

    // Of the threads' placements, those whose flag is set, one after the other: all threads work on one.
    __device__ __forceinline__ void score_rest(const Board<L>& board, const float* weights, bool flag, int piece,
                                               Choice& choice) {
        for (unsigned rest = __ballot_sync(~0u, flag); rest != 0; rest &= rest - 1) {
            const int each = __shfl_sync(~0u, place, __ffs(rest) - 1);
            choice.consider(whole_score<List>(board, weights, piece, each, job.rules.clear_on_overflow));
        }
    }

    template <int WIDTH>
    __device__ __forceinline__ void score_all(const Decision& decision, typename Decision::Search& search, int piece,
                                              Choice& choice) {
        const bool completes = score<WIDTH>(decision, search, piece);
        if (scored_in_place) score_rest(search.board, decision.weights, completes, piece, choice);
    }

    // The best of what each thread found: the highest score, and of equals the first place.
    __device__ __forceinline__ Choice best_of_all(const Choice& own) {
        const bool found = own.score > NEVER;
        const auto bits = static_cast<unsigned>(__float_as_int(own.score + 0.0f));  // -0 becomes 0
        const unsigned key = found ? (bits >> 31 != 0 ? ~bits : bits | 0x80000000u) : 0u;
        const unsigned highest = greatest_of_warp(key);
        if (highest == 0) return NO_CHOICE;
        const auto first = static_cast<int>(~greatest_of_warp(key == highest ? ~static_cast<unsigned>(own.place) : 0u));
        const unsigned score = highest >> 31 != 0 ? highest & 0x7FFFFFFFu : ~highest;
        return {__int_as_float(static_cast<int>(score)), first};
    }

    __device__ __forceinline__ Choice choose(const Decision& decision, const Board<L>& board, int piece) {
        typename Decision::Search search(board);
        Choice choice = NO_CHOICE;
        const auto has = [&](int width) { return WIDTHS.of_width[piece][width][0] >= 0; };
        if (has(1)) score_all<1>(decision, search, piece, choice);
        if (has(2)) score_all<2>(decision, search, piece, choice);
        if (has(3)) score_all<3>(decision, search, piece, choice);
        if (has(4)) score_all<4>(decision, search, piece, choice);
        if (scored_in_place) {
            choice.consider(best_of_all(search.best.choice));
        } else {
            for (uint64_t places = all_places(piece, job.rules.width); places != 0; places &= places - 1) {
                choice.consider(
                    whole_score<List>(board, decision.weights, piece, lowest_bit(places), job.rules.clear_on_overflow));
            }
        }
        return choice;
    }

    __device__ void play(uint32_t index) {
        const int64_t games_left = job.games_left(index);
        if (games_left <= 0) return;
        const PieceStream stream = job.pieces_of(index);
        const Geometry<L> geometry(job.rules.width, job.rules.height);
        const Decision decision(geometry, job.weights + int64_t(job.candidate_of(index)) * List::COUNT,
                                job.rules);
        scored_in_place = in_range<List>(decision.weights);
        const int column = L::lane() - FIRST_COLUMN;
        const bool inside = column >= 0 && column < job.rules.width;
        uint32_t* stored = job.boards + int64_t(index) * job.rules.width + column;
        L::ColumnBits cells = geometry.walls;
        if (inside) cells.own = __brev(*stored);
        uint32_t made = 0, lines = 0, ended = 0;
        int pieces = 0;
        for (; made < job.decisions && ended < games_left; ++made) {
            // Each thread knows the piece of one of 32 decisions.
            if (made % WARP == 0) {
                pieces = stream.piece(job.start + made + L::lane());
                if (made == 0 && L::lane() == 0) pieces = job.first_piece(index);
            }
            const int piece = __shfl_sync(~0u, pieces, static_cast<int>(made % WARP));
            const Board<L> board(geometry, cells);
            Choice choice;
            const int next = PIECES_KNOWN == 2 || job.rules.original ? stream.piece(job.start + made + 1) : 0;
            if constexpr (PIECES_KNOWN == 2) {
                choice = choose_by_pairs<List>(board, decision.weights, piece, next, job.rules,
                                               [&](const Board<L>& on, int falls) { return choose(decision, on, falls); });
            } else {
                choice = choose(decision, board, piece);
            }
            const Landing<L> landing(board, piece, choice.place == Choice::NONE ? 0 : choice.place,
                                     job.rules.clear_on_overflow);
            lines += landing.lines;
            ended += landing.over ? 1 : 0;
            cells = landing.over ? geometry.walls : landing.cells;
            if (job.rules.original && !appears(geometry, cells, next)) {
                ++ended;
                cells = geometry.walls;
            }
        }
        if (inside) *stored = __brev(cells.own);
        if (L::lane() == 0) {
            job.lines[index] += lines;
            job.games[index] += ended;
            job.made[index] += made;
        }
    }

    bool scored_in_place = true;
    int place = 0;
};

template <class List, int PIECES_KNOWN>
__global__ void __launch_bounds__(WARP) rollout_warp(const __grid_constant__ RolloutArguments job) {
    WarpRollout<List, PIECES_KNOWN>{job}.play(blockIdx.x);
}

}  // namespace tetris
