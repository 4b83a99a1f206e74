// Playing on a GPU, in two ways: many games, a thread each, 32 that wait for the same piece to a warp; or few, a warp each.
#pragma once

#include "philox.h"
#include "piece_queues.cuh"
#include "rollout.h"
#include "warp_lanes.h"

namespace tetris {

// What a game carries from one decision to the next: four accesses of 16 bytes.
struct alignas(16) Game {
    uint32_t columns[MAX_WIDTH];
    uint32_t made;  // decisions, in this launch
    uint32_t lines, games;
    uint32_t unused[3];
};

// A rollout, or a part of one. Game i is of candidate i / streams.
struct Job {
    GameRules rules;
    Pieces source;  // of no stream yet
    const float* weights;
    Game* state;
    int32_t* boards;                // (games, width) columns, row r is bit r
    int64_t *lines, *ended, *made;  // (games,), added to
    int64_t last_game;              // after so many a stream stops
    uint64_t first_stream, start;   // the first decision's number
    uint32_t total, streams, decisions;
    bool share_streams;
    int kept;  // bytes of shared memory for what a warp's lanes keep of their boards

    // Where the width is known when it is compiled, nothing is spent on the columns beside the board.
    template <int BOARD_WIDTH>
    __device__ Geometry<ThreadLanes> geometry() const {
        return Geometry<ThreadLanes>(BOARD_WIDTH > 0 ? BOARD_WIDTH : rules.width, rules.height);
    }
    __device__ uint32_t candidate_of(uint32_t game) const { return game / streams; }
    __device__ int piece(uint32_t game, uint32_t made) const {
        Pieces own = source;
        own.stream = first_stream + (share_streams ? game % streams : game);
        return own.piece(start + made);
    }
    // How many games may end on a stream from here on, up to more than there can be in a launch.
    __device__ uint32_t games_left(uint32_t game) const {
        const int64_t left = last_game - ended[game];
        return left > 0 ? (left < 0xFFFFFFFF ? static_cast<uint32_t>(left) : 0xFFFFFFFFu) : 0;
    }
};

// What Job::kept has to be.
template <class List>
int kept_bytes() {
    const Geometry<ThreadLanes> geometry(MAX_WIDTH, MAX_HEIGHT);
    const Board<ThreadLanes> board(geometry, geometry.walls);
    const typename Chooser<ThreadLanes, List>::Search search(board);
    return board.keeper.used;
}

// The shapes of WIDTH columns as the search wants them.
template <class L, int WIDTH>
struct ShapeConstants {
    ShapeLanes<L, WIDTH> shape[PIECES][MAX_ORIENTATIONS];
    constexpr ShapeConstants() {
        for (int piece = 0; piece < PIECES; ++piece) {
            for (int i = 0; i < ORIENTATIONS[piece]; ++i) {
                if (SHAPES.shape[piece][i].width == WIDTH) shape[piece][i].set(0, SHAPES.shape[piece][i], 0);
            }
        }
    }
};
template <class L, int WIDTH>
__constant__ const ShapeConstants<L, WIDTH> SHAPE_CONSTANTS = ShapeConstants<L, WIDTH>();

struct Widths {
    int count[PIECES];                            // orientations
    int width[PIECES][MAX_ORIENTATIONS];          // columns of each
    int of_width[PIECES][MAX_PIECE_SIZE + 1][2];  // the orientations of so many columns, or -1
    constexpr Widths() : count(), width(), of_width() {
        for (int piece = 0; piece < PIECES; ++piece) {
            count[piece] = ORIENTATIONS[piece];
            for (auto& orientations : of_width[piece]) orientations[0] = orientations[1] = -1;
            for (int i = 0; i < ORIENTATIONS[piece]; ++i) {
                const int columns = SHAPES.shape[piece][i].width;
                width[piece][i] = columns;
                auto& orientations = of_width[piece][columns];
                orientations[orientations[0] < 0 ? 0 : 1] = i;
            }
        }
    }
};
__constant__ const Widths WIDTHS = Widths();

// Whether the placements are scored right where they are; otherwise only whole after-states are (see ThreadLanes).
template <class List>
__device__ inline bool in_range(const float* weights) {
    bool all = true;
    TETRIS_UNROLL for (int i = 0; i < List::COUNT; ++i) all &= ThreadLanes::in_range(weights[i]);
    return all;
}

// All placements on a board of a width that need not fit its height, a bit a place in the order.
__device__ inline uint64_t all_places(int piece, int width) {
    uint64_t places = 0;
    for (int i = 0; i < WIDTHS.count[piece]; ++i) {
        places |= ((uint64_t(2) << (width - WIDTHS.width[piece][i])) - 1) << (i * ORDER_STRIDE);
    }
    return places;
}

// ---- a thread a game

// A board's columns with walls, from those of a game.
__device__ inline ThreadLanes::ColumnBits with_walls(const Geometry<ThreadLanes>& geometry,
                                                     const uint32_t (&columns)[MAX_WIDTH]) {
    ThreadLanes::ColumnBits cells = geometry.walls;
    TETRIS_UNROLL for (int i = 0; i < MAX_WIDTH; ++i) cells.slot[FIRST_COLUMN + i] |= columns[i];
    return cells;
}

// The landing of the choice; whether it ends the game.
__device__ inline bool land(const Board<ThreadLanes>& board, int piece, const Choice& choice, bool clear_on_overflow,
                            Game& game) {
    const Landing<ThreadLanes> landing(board, piece, choice.place == Choice::NONE ? 0 : choice.place, clear_on_overflow);
    game.lines += landing.lines;
    game.games += landing.over ? 1 : 0;
    TETRIS_UNROLL for (int i = 0; i < MAX_WIDTH; ++i) {
        const uint32_t inside = board.geometry.inside.slot[FIRST_COLUMN + i];
        game.columns[i] = landing.over ? 0 : landing.cells.slot[FIRST_COLUMN + i] & inside;
    }
    return landing.over;
}

__device__ inline Game first_state(const Job& job, uint32_t i) {
    Game game{};
    TETRIS_UNROLL for (int c = 0; c < MAX_WIDTH; ++c) {
        if (c < job.rules.width) game.columns[c] = __brev(job.boards[int64_t(i) * job.rules.width + c]);
    }
    return game;
}

__device__ inline void write_result(const Job& job, uint32_t i, const Game& game) {
    TETRIS_UNROLL for (int c = 0; c < MAX_WIDTH; ++c) {
        if (c < job.rules.width) job.boards[int64_t(i) * job.rules.width + c] = __brev(game.columns[c]);
    }
    job.lines[i] += game.lines;
    job.ended[i] += game.games;
    job.made[i] += game.made;
}

constexpr int POOL = 2048;     // games that a block has in hand at a time
constexpr int MAX_WARPS = 16;  // of a block

#if defined(__CUDACC__)
__device__ inline void* shared_memory() {
    extern __shared__ __align__(16) unsigned char bytes[];
    return bytes;
}
#endif

struct PoolMemory {
    PieceQueues<POOL> queues;
    struct alignas(16) Tasks {
        uint16_t task[WARP];  // lane and place
        float score[WARP];
    } tasks[MAX_WARPS];
    // What each warp keeps of its boards follows.
    __device__ unsigned char* kept(const Job& job) {
        return reinterpret_cast<unsigned char*>(this + 1) + static_cast<int>(threadIdx.x / WARP) * job.kept;
    }
};

template <class List, int BOARD_WIDTH>
struct PoolPlayer {
    using L = ThreadLanes;
    using Decision = Chooser<L, List>;
    const Job& job;
    PoolMemory& memory;
    const int lane = threadIdx.x % WARP;
    const Gang gang = {};

    // Scores the placements of one orientation; those that complete a row, a bit a place in the order.
    template <int WIDTH>
    __device__ __forceinline__ uint64_t score(const Decision& decision, typename Decision::Search& search, int piece,
                                              int orientation) {
        Group<L, WIDTH> group;
        group.shapes = SHAPE_CONSTANTS<L, WIDTH>.shape[piece][orientation];
        uint32_t rest = 0, bit = 1;
#pragma unroll 1  // written out for every column the code does not fit the instruction cache
        for (int x = 0; x <= (BOARD_WIDTH > 0 ? BOARD_WIDTH : MAX_WIDTH) - WIDTH; ++x, bit *= 2) {
            group.shapes.column.value = x;
            group.order[0] = orientation * ORDER_STRIDE + x;
            if (decision.score(search.ground, search.prepared, search.best, group) != 0) rest |= bit;
        }
        return static_cast<uint64_t>(rest) << (orientation * ORDER_STRIDE);
    }

    // The placements that complete a row: those of all lanes, one a lane.
    __device__ __forceinline__ void score_rest(const Ground<L>& ground, const float* weights, uint64_t rest, int piece,
                                               Choice& choice) {
        auto& tasks = memory.tasks[threadIdx.x / WARP];
        const int count = __popcll(rest);
        int before = count;
        TETRIS_UNROLL for (int step = 1; step < WARP; step *= 2) {
            const int other = __shfl_up_sync(~0u, before, step);
            before += lane >= step ? other : 0;
        }
        const int total = __shfl_sync(~0u, before, WARP - 1);
        before -= count;
        for (int base = 0; base < total; base += WARP) {
            const uint64_t unscored = rest;
            int at = before;
            for (uint64_t mine = rest; mine != 0 && at < base + WARP; mine &= mine - 1, ++at) {
                tasks.task[at - base] = static_cast<uint16_t>(lane << 8 | lowest_bit(mine));
            }
            __syncwarp();
            const bool busy = base + lane < total;
            const int task = busy ? tasks.task[lane] : lane << 8;
            const int owner = task >> 8;
            const auto address = __shfl_sync(~0u, reinterpret_cast<unsigned long long>(weights), owner);
            if (busy) {
                const auto theirs = ground.cells.of_lane(owner - lane);
                typename L::ColumnBits cells;
                TETRIS_UNROLL for (int i = 0; i < L::SLOTS; ++i) cells.slot[i] = theirs[i];
                const auto geometry = job.geometry<BOARD_WIDTH>();
                const Board<L> board(geometry, cells);
                tasks.score[lane] = whole_score<List>(board, reinterpret_cast<const float*>(address), piece, task & 255,
                                                      job.rules.clear_on_overflow)
                                        .score;
            }
            __syncwarp();
            at = before;
            for (rest = unscored; rest != 0 && at < base + WARP; rest &= rest - 1, ++at) {
                const float score = tasks.score[at - base];
                if (score > NEVER) choice.consider({score, lowest_bit(rest)});
            }
            before = at;
            __syncwarp();
        }
    }

    // One decision; whether it ends the game.
    __device__ __forceinline__ bool decide(Game& game, uint32_t index, int piece) {
        const float* weights = job.weights + int64_t(job.candidate_of(index)) * List::COUNT;
        const auto geometry = job.geometry<BOARD_WIDTH>();
        const Decision decision(geometry, weights, job.rules.clear_on_overflow);
        const Board<L> board(geometry, with_walls(geometry, game.columns), {memory.kept(job), lane});
        typename Decision::Search search(board);
        uint64_t rest = 0;
        for (int orientation = 0; orientation < WIDTHS.count[piece]; ++orientation) {
            switch (WIDTHS.width[piece][orientation]) {
                case 1: rest |= score<1>(decision, search, piece, orientation); break;
                case 2: rest |= score<2>(decision, search, piece, orientation); break;
                case 3: rest |= score<3>(decision, search, piece, orientation); break;
                default: rest |= score<4>(decision, search, piece, orientation); break;
            }
        }
        Choice choice = L::first_best(search.best);
        if (!in_range<List>(weights)) {
            choice = NO_CHOICE;
            rest = all_places(piece, job.rules.width);
        }
        score_rest(search.ground, weights, rest, piece, choice);
        ++game.made;
        return land(board, piece, choice, job.rules.clear_on_overflow, game);
    }

    // Plays games first .. first + count - 1.
    __device__ void play(uint32_t first, uint32_t count) {
        __syncthreads();
        memory.queues.clear(count);
        __syncthreads();
        for (uint32_t base = 0; base < count; base += blockDim.x) {
            const uint32_t i = base + threadIdx.x;
            const bool exists = i < count;
            const bool stopped = exists && job.games_left(first + i) == 0;
            const bool plays = exists && !stopped;
            if (plays) job.state[first + i] = first_state(job, first + i);
            memory.queues.put(plays, static_cast<int>(i), plays ? job.piece(first + i, 0) : 0);
            __syncwarp();
            memory.queues.finish(__popc(__ballot_sync(~0u, stopped)));
        }
        int slot, piece;
        while (memory.queues.take(gang, slot, piece)) {
            const bool exists = slot >= 0;
            if (!__any_sync(~0u, exists)) continue;
            slot = __shfl_sync(~0u, slot, exists ? lane : 0);  // lanes without a game of their own play along
            const uint32_t index = first + slot;
            Game game = job.state[index];
            const bool over = decide(game, index, piece);
            // The stream's games are looked up where one has ended, and not kept at hand during all decisions.
            const bool finished =
                game.made == job.decisions || (over && exists && game.games == job.games_left(index));
            if (exists && !finished) job.state[index] = game;
            if (exists && finished) write_result(job, index, game);
            memory.queues.put(exists && !finished, slot, job.piece(index, game.made));
            __syncwarp();
            memory.queues.finish(__popc(__ballot_sync(~0u, exists && finished)));
        }
    }
};

template <class List, int BOARD_WIDTH>
__global__ void __launch_bounds__(MAX_WARPS * WARP, 1) play_pool(const __grid_constant__ Job job) {
    PoolPlayer<List, BOARD_WIDTH> player{job, *static_cast<PoolMemory*>(shared_memory())};
    // Every block has as many games as the others, but for one, in as few and as equal portions as its memory allows.
    const uint32_t begin = uint64_t(job.total) * blockIdx.x / gridDim.x,
                   end = uint64_t(job.total) * (blockIdx.x + 1) / gridDim.x;
    const uint32_t portions = (end - begin + POOL - 1) / POOL;
    for (uint32_t i = 0; i < portions; ++i) {
        const uint32_t from = begin + uint64_t(end - begin) * i / portions,
                       to = begin + uint64_t(end - begin) * (i + 1) / portions;
        player.play(from, to - from);
    }
}

// ---- a warp a game

template <class List>
struct WarpPlayer {
    using L = WarpLanes;
    using Decision = Chooser<L, List>;
    const Job& job;

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

    __device__ void play(uint32_t index) {
        const uint32_t games_left = job.games_left(index);
        if (games_left == 0) return;
        const Geometry<L> geometry(job.rules.width, job.rules.height);
        const Decision decision(geometry, job.weights + int64_t(job.candidate_of(index)) * List::COUNT,
                                job.rules.clear_on_overflow);
        scored_in_place = in_range<List>(decision.weights);
        const int column = L::lane() - FIRST_COLUMN;
        const bool inside = column >= 0 && column < job.rules.width;
        int32_t* stored = job.boards + int64_t(index) * job.rules.width + column;
        L::ColumnBits cells = geometry.walls;
        if (inside) cells.own = __brev(*stored);
        uint32_t made = 0, lines = 0, ended = 0;
        int pieces = 0;
        for (; made < job.decisions && ended < games_left; ++made) {
            // Each thread knows the piece of one of 32 decisions.
            if (made % WARP == 0) pieces = job.piece(index, made + L::lane());
            const int piece = __shfl_sync(~0u, pieces, static_cast<int>(made % WARP));
            const Board<L> board(geometry, cells);
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
            const Landing<L> landing(board, piece, choice.place == Choice::NONE ? 0 : choice.place,
                                     job.rules.clear_on_overflow);
            lines += landing.lines;
            ended += landing.over ? 1 : 0;
            cells = landing.over ? geometry.walls : landing.cells;
        }
        if (inside) *stored = __brev(cells.own);
        if (L::lane() == 0) {
            job.lines[index] += lines;
            job.ended[index] += ended;
            job.made[index] += made;
        }
    }

    bool scored_in_place = true;
    int place = 0;
};

template <class List>
__global__ void __launch_bounds__(WARP) play_warp(const __grid_constant__ Job job) {
    WarpPlayer<List>{job}.play(blockIdx.x);
}

}  // namespace tetris
