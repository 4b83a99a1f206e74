// How the threads of a warp search: each has a board, and the same piece falls on all of them.
#pragma once

#include "placements.cuh"
#include "thread_game.cuh"
#include "warp.cuh"

namespace tetris {

// The shared memory of a warp: a batch of placements that its threads score for each other, and
// behind this struct the columns that they cache of their boards.
struct alignas(16) WarpMemory {
  uint16_t task[WARP];  // lane * 256 + placement
  int score[WARP];      // of the task with the same index
  __device__ unsigned char* cached_columns() {
    return reinterpret_cast<unsigned char*>(this + 1);
  }
};

// Returns the size of a warp's shared memory. A search without memory counts what it would
// cache.
template <class List>
int warp_bytes() {
  Geometry<ThreadLanes> geometry({MAX_WIDTH, MAX_HEIGHT, false});
  Board<ThreadLanes> board(geometry, geometry.walls);
  const int32_t weights[List::WEIGHTS_PER_CANDIDATE] = {};
  Chooser<ThreadLanes, List> chooser(geometry, weights);
  typename Chooser<ThreadLanes, List>::Search search(chooser, board);
  return int(sizeof(WarpMemory)) + board.column_cache.used;
}

template <class List, int BOARD_WIDTH>
struct ThreadSearch {
  using L = ThreadLanes;
  using Decision = Chooser<L, List>;
  const GameRules& rules;
  WarpMemory& memory;
  const int lane = threadIdx.x % WARP;

  // Returns the best placement of a piece on this thread's board. All threads of the warp have
  // to call this together, each with its own board and all with the same piece.
  __device__ __forceinline__ Choice choose(
      const Decision& decision, const Board<L>& board, int piece) {
    typename Decision::Search search(decision, board);
    return best_two(decision, search, piece).first;
  }
  // Returns the two best placements of a piece on the board of this thread's search. All
  // threads of a warp call it together: each has its own board, and all have the same piece.
  //
  // A thread scores the placements that complete no row on its own. The others are collected in
  // `unscored`, a bit mask of placement numbers, and are then scored by all threads of the warp
  // together, because threads have unequal numbers of them.
  __device__ __forceinline__ BestTwo best_two(
      const Decision& decision, typename Decision::Search& search, int piece) {
    // The compiler does not know that the piece is the same in all threads, and would keep the
    // constants of its shape in every thread's registers. It does know this of the result of a
    // reduction over the warp, and the bitwise OR of equal numbers is that number.
    piece = int(union_of_warp(unsigned(piece)));
    search.best.clear();
    uint64_t unscored = 0;
    for (int orientation = 0; orientation < WIDTHS.orientations[piece]; ++orientation) {
      switch (WIDTHS.width[piece][orientation]) {
        case 1: unscored |= score_orientation<1>(decision, search, piece, orientation); break;
        case 2: unscored |= score_orientation<2>(decision, search, piece, orientation); break;
        case 3: unscored |= score_orientation<3>(decision, search, piece, orientation); break;
        default: unscored |= score_orientation<4>(decision, search, piece, orientation); break;
      }
    }
    BestTwo best = search.best;
    score_together(search.ground, decision.weights, unscored, piece, best);
    return best;
  }

 private:
  // Scores the placements of one orientation of a piece that complete no row, column after
  // column, and records them in search.best. `WIDTH` is the width of the orientation.
  //
  // Returns the set of the placements that complete a row and may let the game go on, which
  // score_together has to score: a bit mask of placement numbers. score_drops returns 0 if
  // nothing is left to be scored.
  template <int WIDTH>
  __device__ __forceinline__ uint64_t score_orientation(
      const Decision& decision, typename Decision::Search& search, int piece, int orientation) {
    constexpr int LAST_COLUMN = (BOARD_WIDTH > 0 ? BOARD_WIDTH : MAX_WIDTH) - WIDTH;
    Group<L, WIDTH> group;
    group.shapes = SHAPE_CONSTANTS<L, WIDTH>.shape[piece][orientation];
    uint32_t unscored_columns = 0;
    uint32_t column_bit = 1;
    // The loop is not unrolled: a copy of its body for every column would be more code than the
    // instruction cache holds.
#pragma unroll 1
    for (int column = 0; column <= LAST_COLUMN; ++column, column_bit *= 2) {
      group.shapes.column.value = column;
      group.first_placement[0] = placement_number(orientation, column);
      bool is_unscored = decision.score_drops(search, group) != 0;
      if (is_unscored) unscored_columns |= column_bit;
    }
    return uint64_t(unscored_columns) << placement_number(orientation, 0);
  }

  // Scores the placements in `unscored` by the features of the board after them, and updates
  // `best`, this lane's two best placements.
  //
  // Every lane has a set `unscored` of its own, a bit mask, and the sets have unequal sizes. So
  // that no lane idles, the placements of all lanes form one list, lane after lane, and the
  // warp scores them in batches of 32, one per lane. A lane thus also scores placements of
  // other lanes. Lanes exchange placements and scores in shared memory, hence the barriers.
  __device__ __forceinline__ void score_together(const Ground<L>& ground,
      const int32_t* weights, uint64_t unscored, int piece, BestTwo& best) {
    int count = __popcll(unscored);
    int end = inclusive_sum_of_warp(count);
    int total = __shfl_sync(~0u, end, WARP - 1);
    int next = end - count;  // the index in the list of this lane's next placement
    for (int batch = 0; batch < total; batch += WARP) {
      write_tasks(unscored, next - batch);
      __syncwarp();
      score_task(ground, weights, piece, batch + lane < total);
      __syncwarp();
      next = batch + read_scores(unscored, next - batch, best);
      __syncwarp();
    }
  }

  // Writes those placements of this lane that belong to the current batch into its list of
  // tasks. `index` is the place of the first one in the batch, which may be beyond its end.
  // `unscored` is a copy: read_scores removes the placements once their scores have been read.
  __device__ __forceinline__ void write_tasks(uint64_t unscored, int index) {
    for (; unscored != 0 && index < WARP; unscored &= unscored - 1, ++index) {
      memory.task[index] = uint16_t(lane << 8 | lowest_bit(unscored));
    }
  }

  // Scores one placement of the warp's current batch, task number `lane`, if it exists, and
  // writes the score to memory.score[lane]. NEVER means that the placement ends the game.
  //
  // A task is 256 * owner + placement. `owner` is the lane whose placement it is: the board is
  // read from the columns that the owner has cached in shared memory, and the weights are the
  // owner's.
  __device__ __forceinline__ void score_task(
      const Ground<L>& ground, const int32_t* weights, int piece, bool exists) {
    int task = exists ? memory.task[lane] : lane << 8;
    int owner = task >> 8;
    int placement = task & 255;
    // All lanes have to take part in the shuffle, which gets the address of the owner's
    // weights.
    auto own_address = reinterpret_cast<unsigned long long>(weights);
    auto address = __shfl_sync(~0u, own_address, owner);
    if (!exists) return;
    auto columns = ground.cells.of_neighbour(owner - lane);
    typename L::ColumnBits cells;
    TETRIS_UNROLL for (int i = 0; i < L::SLOTS; ++i) cells.slot[i] = columns[i];
    auto geometry = geometry_of<BOARD_WIDTH>(rules);
    Board<L> board(geometry, cells);
    const auto* owner_weights = reinterpret_cast<const int32_t*>(address);
    memory.score[lane] = after_state_score<List>(board, owner_weights, piece, placement).score;
  }

  // Reads the scores of this lane's placements in the batch, the first of which is at `index`,
  // updates `best` with them, and removes these placements from `unscored`. A score of NEVER
  // means that the placement ends the game. Returns the place in the batch after the last one.
  __device__ __forceinline__ int read_scores(uint64_t& unscored, int index, BestTwo& best) {
    for (; unscored != 0 && index < WARP; unscored &= unscored - 1, ++index) {
      int score = memory.score[index];
      if (score > NEVER) best.consider({score, lowest_bit(unscored)});
    }
    return index;
  }
};

}  // namespace tetris
