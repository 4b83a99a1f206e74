// Rollouts on a GPU, many games: a thread a game, and 32 games that wait for the same piece to a warp.
#pragma once

#include "piece_queues.cuh"
#include "placements.cuh"
#include "rollout_arguments.h"

namespace tetris {

// What a game carries from one decision to the next: four accesses of 16 bytes.
struct alignas(16) GameState {
    uint32_t columns[MAX_WIDTH];
    uint32_t made;  // decisions, in this launch
    uint32_t lines, games;
    uint32_t unused[3];
};

struct PoolJob : RolloutArguments {
    GameState* states;
    int kept;  // bytes of shared memory for what a warp's lanes keep of their boards
};

// What PoolJob::kept is.
template <class List>
int kept_bytes() {
    const Geometry<ThreadLanes> geometry(MAX_WIDTH, MAX_HEIGHT);
    const Board<ThreadLanes> board(geometry, geometry.walls);
    const typename Chooser<ThreadLanes, List>::Search search(board);
    return board.keeper.used;
}

// Where the width is known when it is compiled, nothing is spent on the columns beside the board.
template <int BOARD_WIDTH>
__device__ inline Geometry<ThreadLanes> geometry_of(const GameRules& rules) {
    return Geometry<ThreadLanes>(BOARD_WIDTH > 0 ? BOARD_WIDTH : rules.width, rules.height);
}

// A board's columns with side walls, from those of a game.
__device__ inline ThreadLanes::ColumnBits with_walls(const Geometry<ThreadLanes>& geometry,
                                                     const uint32_t (&columns)[MAX_WIDTH]) {
    ThreadLanes::ColumnBits cells = geometry.walls;
    TETRIS_UNROLL for (int i = 0; i < MAX_WIDTH; ++i) cells.slot[FIRST_COLUMN + i] |= columns[i];
    return cells;
}

// The landing of the choice; whether it ends the game.
__device__ inline bool land(const Board<ThreadLanes>& board, int piece, const Choice& choice, bool clear_on_overflow,
                            GameState& game) {
    const Landing<ThreadLanes> landing(board, piece, choice.place == Choice::NONE ? 0 : choice.place, clear_on_overflow);
    game.lines += landing.lines;
    game.games += landing.over ? 1 : 0;
    TETRIS_UNROLL for (int i = 0; i < MAX_WIDTH; ++i) {
        const uint32_t inside = board.geometry.inside.slot[FIRST_COLUMN + i];
        game.columns[i] = landing.over ? 0 : landing.cells.slot[FIRST_COLUMN + i] & inside;
    }
    return landing.over;
}

// Ends the game if the next piece does not appear inside the board; whether it did.
template <int BOARD_WIDTH>
__device__ inline bool end_unless_it_appears(const GameRules& rules, int next, GameState& game) {
    const auto geometry = geometry_of<BOARD_WIDTH>(rules);
    if (appears(geometry, with_walls(geometry, game.columns), next)) return false;
    ++game.games;
    TETRIS_UNROLL for (uint32_t& column : game.columns) column = 0;
    return true;
}

__device__ inline GameState first_state(const PoolJob& job, uint32_t i) {
    GameState game{};
    TETRIS_UNROLL for (int c = 0; c < MAX_WIDTH; ++c) {
        if (c < job.rules.width) game.columns[c] = __brev(job.boards[int64_t(i) * job.rules.width + c]);
    }
    return game;
}

__device__ inline void write_result(const PoolJob& job, uint32_t i, const GameState& game) {
    TETRIS_UNROLL for (int c = 0; c < MAX_WIDTH; ++c) {
        if (c < job.rules.width) job.boards[int64_t(i) * job.rules.width + c] = __brev(game.columns[c]);
    }
    job.lines[i] += game.lines;
    job.games[i] += game.games;
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
    __device__ unsigned char* kept(const PoolJob& job) {
        return reinterpret_cast<unsigned char*>(this + 1) + static_cast<int>(threadIdx.x / WARP) * job.kept;
    }
};

template <class List, int BOARD_WIDTH>
struct PoolRollout {
    using L = ThreadLanes;
    using Decision = Chooser<L, List>;
    const PoolJob& job;
    PoolMemory& memory;
    const int lane = threadIdx.x % WARP;
    const WarpGroup warps = {};

    __device__ int piece_of(uint32_t game, uint32_t made) const { return job.pieces_of(game).piece(job.start + made); }

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
                const auto geometry = geometry_of<BOARD_WIDTH>(job.rules);
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
    __device__ __forceinline__ bool decide(GameState& game, uint32_t index, int piece) {
        const float* weights = job.weights + int64_t(job.candidate_of(index)) * List::COUNT;
        const auto geometry = geometry_of<BOARD_WIDTH>(job.rules);
        const Decision decision(geometry, weights, job.rules);
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
            const bool stopped = exists && job.games_left(first + i) <= 0;
            const bool plays = exists && !stopped;
            if (plays) job.states[first + i] = first_state(job, first + i);
            memory.queues.put(plays, static_cast<int>(i), plays ? job.first_piece(first + i) : 0);
            __syncwarp();
            memory.queues.finish(__popc(__ballot_sync(~0u, stopped)));
        }
        const auto decisions = static_cast<uint32_t>(job.decisions);
        int slot, piece;
        while (memory.queues.take(warps, slot, piece)) {
            const bool exists = slot >= 0;
            if (!__any_sync(~0u, exists)) continue;
            slot = __shfl_sync(~0u, slot, exists ? lane : 0);  // lanes without a game of their own play along
            const uint32_t index = first + slot;
            GameState game = job.states[index];
            bool over = decide(game, index, piece);
            const int next = piece_of(index, game.made);
            if (job.rules.original && end_unless_it_appears<BOARD_WIDTH>(job.rules, next, game)) over = true;
            // The stream's games are looked up where one has ended, and not kept at hand during all decisions.
            const bool finished =
                game.made == decisions || (over && exists && game.games >= job.games_left(index));
            if (exists && !finished) job.states[index] = game;
            if (exists && finished) write_result(job, index, game);
            memory.queues.put(exists && !finished, slot, next);
            __syncwarp();
            memory.queues.finish(__popc(__ballot_sync(~0u, exists && finished)));
        }
    }
};

template <class List, int BOARD_WIDTH>
__global__ void __launch_bounds__(MAX_WARPS * WARP, 1) rollout_pool(const __grid_constant__ PoolJob job) {
    PoolRollout<List, BOARD_WIDTH> rollout{job, *static_cast<PoolMemory*>(shared_memory())};
    // Every block has as many games as the others, but for one, in as few and as equal batches as its memory allows.
    const uint32_t begin = uint64_t(job.total) * blockIdx.x / gridDim.x,
                   end = uint64_t(job.total) * (blockIdx.x + 1) / gridDim.x;
    const uint32_t batches = (end - begin + POOL - 1) / POOL;
    for (uint32_t i = 0; i < batches; ++i) {
        const uint32_t from = begin + uint64_t(end - begin) * i / batches,
                       to = begin + uint64_t(end - begin) * (i + 1) / batches;
        rollout.play(from, to - from);
    }
}

}  // namespace tetris
