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

  // Return the best placement, or the two best ones, on this thread's board. All threads of the
  // warp take part, with the same piece.
  __device__ __forceinline__ Choice choose(
      const Decision& decision, const Board<L>& board, int piece) {
    typename Decision::Search search(decision, board);
    return best_two(decision, search, piece).first;
  }
  // The two best placements of a piece on the board of a search. Placements that complete no
  // row are scored by each thread on its own, the others by all threads together.
  __device__ __forceinline__ BestTwo best_two(
      const Decision& decision, typename Decision::Search& search, int piece) {
    // The compiler does not know that the piece is the same in all threads, and would keep the
    // constants of a shape for each of them. The union of equal numbers tells it.
    piece = int(union_of_warp(unsigned(piece)));
    search.best.clear();
    uint64_t unscored = 0;
    for (int orientation = 0; orientation < WIDTHS.orientations[piece]; ++orientation) {
      switch (WIDTHS.width[piece][orientation]) {
        case 1: unscored |= score<1>(decision, search, piece, orientation); break;
        case 2: unscored |= score<2>(decision, search, piece, orientation); break;
        case 3: unscored |= score<3>(decision, search, piece, orientation); break;
        default: unscored |= score<4>(decision, search, piece, orientation); break;
      }
    }
    BestTwo best = search.best;
    score_together(search.ground, decision.weights, unscored, piece, best);
    return best;
  }

 private:
  // Scores the placements of one orientation that complete no row. Returns the set of the
  // others.
  template <int WIDTH>
  __device__ __forceinline__ uint64_t score(
      const Decision& decision, typename Decision::Search& search, int piece, int orientation) {
    constexpr int LAST_COLUMN = (BOARD_WIDTH > 0 ? BOARD_WIDTH : MAX_WIDTH) - WIDTH;
    Group<L, WIDTH> group;
    group.shapes = SHAPE_CONSTANTS<L, WIDTH>.shape[piece][orientation];
    uint32_t unscored_columns = 0, bit = 1;
#pragma unroll 1  // Written out for every column the code would not fit the instruction cache.
    for (int column = 0; column <= LAST_COLUMN; ++column, bit *= 2) {
      group.shapes.column.value = column;
      group.first_placement[0] = placement_number(orientation, column);
      if (decision.score_drops(search, group) != 0) unscored_columns |= bit;
    }
    return uint64_t(unscored_columns) << placement_number(orientation, 0);
  }

  // Scores the sets of placements `unscored` of all lanes by their after-states, and takes
  // those of this lane into `best`. Lanes have unequal numbers of them, so that they are
  // listed, lane after lane, and spread over the warp: in batches of 32 each thread scores one,
  // be it another lane's.
  __device__ __forceinline__ void score_together(const Ground<L>& ground,
      const int32_t* weights, uint64_t unscored, int piece, BestTwo& best) {
    int count = __popcll(unscored);
    int end = inclusive_sum_of_warp(count);
    int total = __shfl_sync(~0u, end, WARP - 1);
    int first = end - count;  // index in the list of this lane's next placement
    for (int batch = 0; batch < total; batch += WARP) {
      write_tasks(unscored, first - batch);
      __syncwarp();
      score_task(ground, weights, piece, batch + lane < total);
      __syncwarp();
      first = batch + read_scores(unscored, first - batch, best);
      __syncwarp();
    }
  }

  // Writes the placements of this lane that fall into the batch; the first one has index
  // `index` in it.
  __device__ __forceinline__ void write_tasks(uint64_t unscored, int index) {
    for (; unscored != 0 && index < WARP; unscored &= unscored - 1, ++index) {
      memory.task[index] = uint16_t(lane << 8 | lowest_bit(unscored));
    }
  }

  // Scores the task of this thread's index in the batch, if there is one. The board is read
  // from the shared memory of the lane that it belongs to, which also lends its weights.
  __device__ __forceinline__ void score_task(
      const Ground<L>& ground, const int32_t* weights, int piece, bool exists) {
    int task = exists ? memory.task[lane] : lane << 8;
    int owner = task >> 8;
    int placement = task & 255;
    auto address = __shfl_sync(~0u, reinterpret_cast<unsigned long long>(weights), owner);
    if (!exists) return;
    auto columns = ground.cells.of_neighbour(owner - lane);
    typename L::ColumnBits cells;
    TETRIS_UNROLL for (int i = 0; i < L::SLOTS; ++i) cells.slot[i] = columns[i];
    auto geometry = geometry_of<BOARD_WIDTH>(rules);
    Board<L> board(geometry, cells);
    const auto* owner_weights = reinterpret_cast<const int32_t*>(address);
    memory.score[lane] = after_state_score<List>(board, owner_weights, piece, placement).score;
  }

  // Takes the scores of this lane's placements in the batch into `best`, and removes these from
  // `unscored`. Returns the index in the batch after the last of them.
  __device__ __forceinline__ int read_scores(uint64_t& unscored, int index, BestTwo& best) {
    for (; unscored != 0 && index < WARP; unscored &= unscored - 1, ++index) {
      int score = memory.score[index];
      if (score > NEVER) best.consider({score, lowest_bit(unscored)});
    }
    return index;
  }
};

}  // namespace tetris
