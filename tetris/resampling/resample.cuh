// A draw of importance splitting: tetris/splitting.py's `Masses.draw`, a block of threads a candidate.
//
// Roofline: some 150 bytes a stream and a dozen barriers. On an H200 the draws of 513 candidates with 264 streams each
// would take 5 us by their bytes and take 13 us, bound by latency, beside 800 to 1,100 us for the four decisions between
// two draws. As 70 launches of operations on whole tensors they took 230 us, and 150 us in which the GPU idled.
//
// Sums are of whole numbers and all else is done number by number, in the order of the Python, so that every engine draws
// the same.
#pragma once

#include <cstdint>

#include "warp.cuh"

namespace tetris {

constexpr int LEVELS = WARP;
constexpr int MOST_DRAW_WARPS = 16;
constexpr double ALL_MASS = 1125899906842624.0;  // 2^50, of all streams of a candidate, about
constexpr double COPIES = 1048576.0;             // asked for a stream that holds all that its level does
constexpr int RANDOM_BITS = 12;

// The streams of all candidates. Scratch is of shape (population, streams), too.
struct Draw {
    int streams, width;
    const uint32_t* columns;  // (population, streams, width): bit y is row y
    const int64_t* games;     // that have ended on each stream
    int64_t* before;          // as many as those were at the last draw; carried on
    int64_t* mass;            // carried on
    double* held;             // (population, LEVELS): what the levels held in all the draws; carried on
    double* ends;             // (population): shares of the mass that ended; carried on
    double count;             // draws, this one included
    bool counts;              // whether what ended counts
    int64_t bits, own;        // of which stream is drawn first: bits + own * candidate
    int64_t* source;          // result: from which stream each goes on
    int64_t *level, *order, *until, *after;  // scratch
};

// What the threads of a block leave for each other.
struct DrawMemory {
    unsigned long long now[LEVELS];  // mass
    double most[LEVELS];             // the mass that a stream's is a share of
    int place[LEVELS];               // of a level's next stream, in the order of the levels
    int warp_place[MOST_DRAW_WARPS][LEVELS];
    int64_t warp_sum[MOST_DRAW_WARPS];
};

#if defined(__CUDACC__)
__device__ inline DrawMemory& draw_memory() {
    __shared__ DrawMemory memory;
    return memory;
}
#endif

// How high a wall is: 0.6 rows to the highest cell + 0.9 rows to the highest cell of a column, in the mean - 6.
__device__ inline int wall_level(const uint32_t* columns, int width) {
    int highest = 0, sum = 0;
    for (int c = 0; c < width; ++c) {
        const int height = 32 - __clz(static_cast<int>(columns[c]));
        highest = height > highest ? height : highest;
        sum += height;
    }
    const int level = 3 * (2 * width * highest + 3 * sum) / (10 * width) - 6;
    return level < 0 ? 0 : level < LEVELS ? level : LEVELS - 1;
}

// One candidate's draw.
struct DrawBlock {
    Draw draw;
    DrawMemory& memory;
    int thread, threads, lane, warp;

    __device__ DrawBlock(const Draw& all, DrawMemory& m)
        : draw(all), memory(m), thread(static_cast<int>(threadIdx.x)), threads(static_cast<int>(blockDim.x)),
          lane(thread % WARP), warp(thread / WARP) {
        const int64_t candidate = blockIdx.x, first = candidate * draw.streams;
        draw.columns += first * draw.width;
        draw.games += first;
        draw.ends += candidate;
        draw.held += candidate * LEVELS;
        draw.bits += candidate * draw.own;
        for (int64_t** each : {&draw.before, &draw.mass, &draw.source, &draw.level, &draw.order, &draw.until, &draw.after}) {
            *each += first;
        }
    }

    // The sum of a number of every thread, for all of them.
    __device__ int64_t sum(int64_t value) {
        for (int step = WARP / 2; step > 0; step /= 2) value += __shfl_down_sync(~0u, value, step);
        __syncthreads();  // the last one's sum is read
        if (lane == 0) memory.warp_sum[warp] = value;
        __syncthreads();
        int64_t result = 0;
        for (int w = 0; w < threads / WARP; ++w) result += memory.warp_sum[w];
        return result;
    }

    // The sum of the numbers of all threads up to this one.
    __device__ int64_t running_sum(int64_t value) {
        for (int step = 1; step < WARP; step *= 2) {
            const int64_t lower = __shfl_up_sync(~0u, value, step);
            if (lane >= step) value += lower;
        }
        __syncthreads();
        if (lane == WARP - 1) memory.warp_sum[warp] = value;
        __syncthreads();
        for (int w = 0; w < warp; ++w) value += memory.warp_sum[w];
        return value;
    }

    // Where the streams are, what the levels hold, and what has ended since the last draw.
    __device__ void weigh() {
        if (thread < LEVELS) {
            memory.now[thread] = 0;
            memory.place[thread] = 0;
        }
        __syncthreads();
        int64_t all = 0, ended = 0;
        for (int i = thread; i < draw.streams; i += threads) {
            const int level = wall_level(draw.columns + int64_t{i} * draw.width, draw.width);
            draw.level[i] = level;
            atomicAdd(&memory.now[level], static_cast<unsigned long long>(draw.mass[i]));
            atomicAdd(&memory.place[level], 1);
            all += draw.mass[i];
            ended += draw.mass[i] * (draw.games[i] - draw.before[i]);
            draw.before[i] = draw.games[i];
        }
        all = sum(all);
        ended = sum(ended);
        if (thread == 0) {
            if (draw.counts) *draw.ends += static_cast<double>(ended) / static_cast<double>(all);
            int below = 0;
            for (int level = 0; level < LEVELS; ++level) {
                const int here = memory.place[level];
                memory.place[level] = below;
                below += here;
            }
        }
        if (thread < LEVELS) {
            const auto now = static_cast<double>(memory.now[thread]);
            draw.held[thread] += now;
            const double usual = draw.held[thread] / draw.count;
            memory.most[thread] = usual > now ? usual : now;
        }
        __syncthreads();
    }

    // Puts the streams in the order of their levels, and sums up how many copies are asked for until each of them.
    __device__ void sort() {
        for (int first = 0; first < draw.streams; first += threads) {
            const int i = first + thread;
            const bool there = i < draw.streams;
            const int level = there ? static_cast<int>(draw.level[i]) : LEVELS;
            memory.warp_place[warp][lane] = 0;
            __syncthreads();
            const unsigned alike = __match_any_sync(~0u, level);
            const int rank = __popc(alike & ((1u << lane) - 1u));
            if (there && rank == 0) memory.warp_place[warp][level] = __popc(alike);
            __syncthreads();
            if (thread < LEVELS) {
                int place = memory.place[thread];
                for (int w = 0; w < threads / WARP; ++w) {
                    const int here = memory.warp_place[w][thread];
                    memory.warp_place[w][thread] = place;
                    place += here;
                }
                memory.place[thread] = place;
            }
            __syncthreads();
            if (there) {
                const int place = memory.warp_place[warp][level] + rank;
                const auto copies = static_cast<int64_t>(static_cast<double>(draw.mass[i]) / memory.most[level] * COPIES);
                draw.order[place] = i;
                draw.until[place] = copies > 1 ? copies : 1;
            }
            __syncthreads();
        }
        int64_t before = 0;
        for (int first = 0; first < draw.streams; first += threads) {
            const int i = first + thread;
            const bool there = i < draw.streams;
            const int64_t until = before + running_sum(there ? draw.until[i] : 0);
            if (there) draw.until[i] = until;
            __syncthreads();
            before = draw.until[(first + threads < draw.streams ? first + threads : draw.streams) - 1];
        }
    }

    // Draws as many streams as there are, as often as they are asked for, and shares out the mass.
    __device__ void take() {
        const int64_t total = draw.until[draw.streams - 1];
        const int64_t begin = total * (draw.bits & ((1 << RANDOM_BITS) - 1)) >> RANDOM_BITS;
        int64_t all = 0;
        for (int i = thread; i < draw.streams; i += threads) {
            const int64_t wanted = i * total + begin;
            int low = 0, high = draw.streams - 1;
            while (low < high) {
                const int middle = (low + high) / 2;
                if (draw.until[middle] * draw.streams > wanted) high = middle;
                else low = middle + 1;
            }
            const int64_t source = draw.order[low], copies = draw.until[low] - (low > 0 ? draw.until[low - 1] : 0);
            // It is drawn copies / total x streams times in the mean, and so much less is its mass.
            const auto mass = static_cast<int64_t>(static_cast<double>(draw.mass[source]) * static_cast<double>(total) /
                                                   static_cast<double>(copies * draw.streams));
            draw.source[i] = source;
            draw.after[i] = mass;
            all += mass;
        }
        const double scale = ALL_MASS / static_cast<double>(sum(all));
        for (int i = thread; i < draw.streams; i += threads) {
            const auto mass = static_cast<int64_t>(static_cast<double>(draw.after[i]) * scale);
            draw.mass[i] = mass > 1 ? mass : 1;
        }
    }
};

// A block a candidate, of whole warps.
__global__ void __launch_bounds__(MOST_DRAW_WARPS * WARP) draw_streams(const __grid_constant__ Draw all) {
    DrawBlock block(all, draw_memory());
    block.weigh();
    block.sort();
    block.take();
}

// The threads of a block: one a stream, as far as there are so many.
inline int draw_threads(int64_t streams) {
    const int64_t warps = (streams + WARP - 1) / WARP;
    return static_cast<int>(warps < MOST_DRAW_WARPS ? warps : MOST_DRAW_WARPS) * WARP;
}

}  // namespace tetris
