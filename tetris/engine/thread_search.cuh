// The search by the threads of a warp. Each thread has a board of its own, and the same piece
// falls on all boards.
#pragma once

#include "placements.cuh"
#include "thread_game.cuh"
#include "warp.cuh"

namespace tetris {

// The shared memory of a warp: a batch of placements that its threads score for each other. The
// cached columns of the threads' boards follow this struct in memory.
struct alignas(16) WarpMemory {
  uint16_t task[WARP];  // lane * 256 + placement
  int score[WARP];      // the score of the task with the same index
  __device__ unsigned char* cached_columns() {
    return reinterpret_cast<unsigned char*>(this + 1);
  }
};

// Returns the size of a warp's shared memory in bytes. A search whose column cache has no
// memory only counts the bytes that it would cache.
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
  // threads of a warp call the function together, each with its own board and all with the same
  // piece.
  //
  // First, every thread scores the placements that complete no row on its own board. It
  // collects the others in `unscored`, a bit mask of placement numbers. The threads have
  // unequal numbers of these, so the threads of the warp share the work of scoring them.
  __device__ __forceinline__ BestTwo best_two(
      const Decision& decision, typename Decision::Search& search, int piece) {
    // The OR of equal numbers is the number itself. But it tells the compiler that the piece is
    // the same in all threads, so that it does not keep a copy of the shape in every thread.
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
  // Scores the placements of one orientation of a piece, which is WIDTH columns wide, and
  // records the scores in search.best. Returns the placements that are left to score_together,
  // as a bit mask of placement numbers: those that complete a row and may not end the game.
  template <int WIDTH>
  __device__ __forceinline__ uint64_t score_orientation(
      const Decision& decision, typename Decision::Search& search, int piece, int orientation) {
    // BOARD_WIDTH is 0 if the width of the board is known only at run time. Columns beyond the
    // board do no harm, because score_drops finds that the piece rests on the wall.
    constexpr int LAST_COLUMN = (BOARD_WIDTH > 0 ? BOARD_WIDTH : MAX_WIDTH) - WIDTH;
    Group<L, WIDTH> group;
    group.shapes = SHAPE_CONSTANTS<L, WIDTH>.shape[piece][orientation];
    uint32_t unscored_columns = 0;
    uint32_t column_bit = 1;
    // If the loop were unrolled, its code would not fit the instruction cache.
#pragma unroll 1
    for (int column = 0; column <= LAST_COLUMN; ++column, column_bit *= 2) {
      group.shapes.column.value = column;
      group.first_placement[0] = placement_number(orientation, column);
      bool is_unscored = decision.score_drops(search, group) != 0;
      if (is_unscored) unscored_columns |= column_bit;
    }
    // The placements of an orientation have consecutive numbers.
    return uint64_t(unscored_columns) << placement_number(orientation, 0);
  }

  // Scores the placements in `unscored` by the features of the boards after them, and updates
  // `best`, this lane's two best placements.
  //
  // Every lane has its own set `unscored`, a bit mask of placement numbers, and the sets have
  // unequal sizes. So that no lane is idle, the placements of all lanes form one list, which
  // the warp scores in batches of 32, one placement per lane. The lanes exchange placements and
  // scores in shared memory.
  __device__ __forceinline__ void score_together(const Ground<L>& ground,
      const int32_t* weights, uint64_t unscored, int piece, BestTwo& best) {
    int count = __popcll(unscored);
    int end = inclusive_sum_of_warp(count);  // where this lane's part of the list ends
    int total = __shfl_sync(~0u, end, WARP - 1);
    int next = end - count;  // the index of this lane's next unscored placement
    for (int first_of_batch = 0; first_of_batch < total; first_of_batch += WARP) {
      // next - first_of_batch is this lane's first index in the batch.
      write_tasks(unscored, next - first_of_batch);
      __syncwarp();
      score_task(ground, weights, piece, /*exists=*/first_of_batch + lane < total);
      __syncwarp();
      next = first_of_batch + read_scores(unscored, next - first_of_batch, best);
      __syncwarp();
    }
  }

  // Writes this lane's placements that belong to the current batch to memory.task, from `index`
  // on. An index of WARP or more means that they belong to later batches. The set `unscored` is
  // passed by value; read_scores removes the placements from the caller's set later.
  __device__ __forceinline__ void write_tasks(uint64_t unscored, int index) {
    for (; unscored != 0 && index < WARP; ++index) {
      memory.task[index] = uint16_t(lane << 8 | lowest_bit(unscored));
      unscored = without_lowest_bit(unscored);
    }
  }

  // Scores task number `lane` of the warp's current batch, and writes the score to
  // memory.score[lane]. The score NEVER means that the placement ends the game. `exists` is
  // false in the lanes beyond the last task.
  //
  // A task is the number 256 * owner + placement. The owner is the lane on whose board, and
  // with whose weights, the placement is scored.
  __device__ __forceinline__ void score_task(
      const Ground<L>& ground, const int32_t* weights, int piece, bool exists) {
    int task = exists ? memory.task[lane] : lane << 8;  // without a task, the owner is `lane`
    int owner = task >> 8;
    int placement = task & 255;
    // Get the address of the owner's weights. All lanes have to take part in the shuffle.
    auto own_address = reinterpret_cast<unsigned long long>(weights);
    auto address = __shfl_sync(~0u, own_address, owner);
    if (!exists) return;
    // The owner has cached the columns of its board in shared memory.
    auto columns = ground.cells.of_neighbour(owner - lane);
    typename L::ColumnBits cells;
    TETRIS_UNROLL for (int i = 0; i < L::SLOTS; ++i) cells.slot[i] = columns[i];
    auto geometry = geometry_of<BOARD_WIDTH>(rules);
    Board<L> board(geometry, cells);
    const auto* owner_weights = reinterpret_cast<const int32_t*>(address);
    memory.score[lane] = after_state_score<List>(board, owner_weights, piece, placement).score;
  }

  // Reads the scores of this lane's placements in the current batch, from `index` on, and
  // updates `best` with them. Removes these placements from `unscored`. The score NEVER means
  // that a placement ends the game. Returns the index after the last score that it has read.
  __device__ __forceinline__ int read_scores(uint64_t& unscored, int index, BestTwo& best) {
    for (; unscored != 0 && index < WARP; ++index) {
      int score = memory.score[index];
      if (score > NEVER) best.consider({score, lowest_bit(unscored)});
      unscored = without_lowest_bit(unscored);
    }
    return index;
  }
};

}  // namespace tetris
