// Rollouts on a GPU, many games: a thread per game, and 32 games that wait for the same piece
// to a warp.
#pragma once

#include <algorithm>

#include "piece_queues.cuh"
#include "thread_game.cuh"
#include "thread_search.cuh"

namespace tetris {

struct PoolJob : RolloutArguments {
  GameState* states;
  int warp_bytes;
  int groups;    // groups of warps of a block
  int capacity;  // games that a block has in its queues at a time, a power of two
};

constexpr int LEAST_CAPACITY = 1024;
constexpr int MOST_CAPACITY = 4096;

template <class List, int BOARD_WIDTH, Lookahead LOOKAHEAD>
struct PoolRollout {
  using L = ThreadLanes;
  using Decision = Chooser<L, List>;
  const PoolJob& job;
  PieceQueues& queues;
  const int lane = threadIdx.x % WARP;
  const WarpGroup warps{job.groups};
  // The number of threads of a game. For expectimax each of two threads looks behind one of the
  // two best placements.
  static constexpr int THREADS = LOOKAHEAD == Lookahead::none ? 1 : 2;

  __device__ int piece_of(uint32_t game, uint32_t made) const {
    return job.pieces_of(game).piece(job.start + made);
  }

  // The memory of a block: its queues, then a stretch of `warp_bytes` for each warp.
  __device__ WarpMemory& warp_memory() {
    unsigned char* first =
        reinterpret_cast<unsigned char*>(&queues) + PieceQueues::bytes(job.capacity);
    int warp = int(threadIdx.x / WARP);
    return *reinterpret_cast<WarpMemory*>(first + warp * job.warp_bytes);
  }

  // Makes one decision in game `index`: chooses a placement of the falling piece and plays it.
  // Sets `game` to the state after it, and returns whether the placement ends the game.
  //
  // `piece` is the piece that the games of this warp wait for. `best_two` of a state are the
  // two best placements of the next piece, packed in one number, if the search has computed
  // them, and 0 otherwise. The state is read after the search, because the search needs all
  // registers.
  __device__ __forceinline__ bool decide(GameState& game, uint32_t index, int piece) {
    uint32_t next_best_two = 0;
    Choice choice;
    if constexpr (LOOKAHEAD == Lookahead::none) choice = choose(index, piece);
    else choice = choose_ahead(index, piece, next_best_two);
    game = job.states[index];
    auto geometry = geometry_of<BOARD_WIDTH>(job.rules);
    Board<L> board(geometry, with_walls(geometry, game.columns));
    ++game.made;
    game.best_two = next_best_two;
    // With expectimax (two threads per game) a game may have waited in the queue of another
    // piece. Its state says which piece falls.
    int falling_piece = THREADS > 1 ? int(game.piece) : piece;
    return land(board, falling_piece, choice, game);
  }

  // Returns the best placement of a piece, by all threads of a warp, each for its own game.
  __device__ __forceinline__ Choice choose(uint32_t index, int piece) {
    auto geometry = geometry_of<BOARD_WIDTH>(job.rules);
    Decision decision(geometry, job.weights_of<List>(index));
    WarpMemory& memory = warp_memory();
    GameState game = job.states[index];  // all of it, in few reads
    Board<L> board(
        geometry, with_walls(geometry, game.columns), {memory.cached_columns(), lane});
    return ThreadSearch<List, BOARD_WIDTH>{job.rules, memory}.choose(decision, board, piece);
  }

  // Two placements as a number that is not 0: bits 8 to 15 are the first one plus 1, bits 0 to
  // 7 the second one plus 1.
  __device__ static uint32_t pack(const BestTwo& best) {
    return 1u << 16 | (best.first.placement + 1) << 8 | (best.second.placement + 1);
  }
  __device__ static int unpack(uint32_t best_two, int which) {
    return int(best_two >> (which == 0 ? 8 : 0) & 255) - 1;
  }

  // Chooses as choose_by_prospects of decision.h does, by two threads a game, lanes 2 n and 2 n
  // + 1: each looks at all pieces that may come next behind one of the two best placements.
  //
  // The search behind the chosen placement also yields the two best placements of the piece
  // that does come next. They are returned in `next_best_two` and stored with the game, and the
  // next decision begins with them. A game that has just begun has none. If the warp has such a
  // game, all its threads first search the boards as they are, for `piece`, and then behind the
  // two placements of each game.
  __device__ __forceinline__ Choice choose_ahead(
      uint32_t index, int piece, uint32_t& next_best_two) {
    int next = piece_of(index, job.states[index].made + 1);
    uint32_t best_two = job.states[index].best_two;
    Prospect prospect{0, 0};
    // One loop with one call, so that the code of the search exists once.
    bool all_have_two = !__any_sync(~0u, best_two == 0);
    for (bool is_behind = all_have_two;; is_behind = true) {
      if (search_once(index, piece, next, is_behind, best_two, next_best_two, prospect)) break;
    }
    return better_of_two(best_two, next_best_two, prospect);
  }

  // Makes one of the two searches of an expectimax decision in game `index`, and returns
  // `is_behind`. The first search finds the two best placements of the piece that falls; the
  // second one looks at all pieces that may come next behind both of them. Two threads share a
  // game, one for each of the two placements.
  //
  // If `is_behind` is false, it searches the present board for the best placements of `piece`,
  // and stores them in `best_two`, packed in one number, unless that is known already (not 0).
  //
  // If `is_behind` is true, it searches the board after this thread's placement of `best_two`,
  // for every piece that may come next, and adds the results to `prospect`. The best placements
  // of `next`, the piece that will in fact come, become `next_best_two`, so that the next
  // decision can skip the first search.
  __device__ __forceinline__ bool search_once(uint32_t index, int piece, int next,
      bool is_behind, uint32_t& best_two, uint32_t& next_best_two, Prospect& prospect) {
    auto geometry = geometry_of<BOARD_WIDTH>(job.rules);
    Decision decision(geometry, job.weights_of<List>(index));
    ThreadSearch<List, BOARD_WIDTH> search{job.rules, warp_memory()};
    auto cells = with_walls(geometry, job.states[index].columns);
    uint32_t ending_pieces =
        0;                // bit p: next piece p finds no room to appear and ends the game
    int first_value = 0;  // the features that describe the first placement, weighted
    if (is_behind) {
      // Play this thread's placement.
      Board<L> before(geometry, cells);
      int placement = Choice{0, unpack(best_two, lane % 2)}.placement_to_play();
      int falling_piece = job.states[index].piece;
      Landing<L> landing(before, falling_piece, placement);
      AfterState<L> after(before, landing, falling_piece, placement);
      first_value = List::placement_value(decision.weights, after);
      cells = landing.cells;
      for (int i = 0; geometry.original && i < PIECES; ++i) {
        ending_pieces |= (appears(geometry, cells, i) ? 0u : 1u) << i;
      }
    }
    Board<L> board(geometry, cells, {search.memory.cached_columns(), lane});
    typename Decision::Search board_search(decision, board);
    int count = is_behind ? job.pieces.source.count : 1;
    for (int k = 0; k < count; ++k) {
      int falling_piece = is_behind ? job.pieces.source.at(k) : piece;
      BestTwo best = search.best_two(decision, board_search, falling_piece);
      if (!is_behind && best_two == 0) best_two = pack(best);
      if (is_behind && falling_piece == next) next_best_two = pack(best);
      bool can_appear = (ending_pieces >> falling_piece & 1) == 0;
      bool survives = best.first.placement != Choice::NONE && can_appear;
      if (is_behind && survives) {
        ++prospect.survived;
        prospect.sum += best.first.score + first_value;
      }
    }
    return is_behind;
  }

  // Returns the placement of `best_two` with the better prospect, in both threads of a game.
  // `own` is the prospect of this thread's placement; the even thread has the first placement.
  // In both threads `next_best_two` becomes that of the thread whose placement is chosen.
  // choose_ahead calls this after its searches. Only the placement of the result is set, not
  // its score.
  __device__ __forceinline__ Choice better_of_two(
      uint32_t best_two, uint32_t& next_best_two, const Prospect& own) {
    int partner = lane ^ 1;
    Prospect other{__shfl_sync(~0u, own.survived, partner), __shfl_sync(~0u, own.sum, partner)};
    bool is_second_better = lane % 2 == 1 ? own.exceeds(other) : other.exceeds(own);
    bool has_second = unpack(best_two, 1) != Choice::NONE;
    int chosen = is_second_better && has_second ? 1 : 0;
    int first_thread = lane & ~1;
    next_best_two = __shfl_sync(~0u, next_best_two, first_thread + chosen);
    return {0, unpack(best_two, chosen)};
  }

  // Plays games first to first + count - 1 to their ends, by all threads of a block. Each warp
  // takes games that wait for the same piece from the queues, makes one decision of each, and
  // puts them back, until all games are finished.
  __device__ void play(uint32_t first, uint32_t count) {
    __syncthreads();
    queues.clear(job.capacity, count);
    __syncthreads();
    queue_games(first, count);
    int slot, piece;
    while (queues.template take<THREADS>(warps, slot, piece)) {
      bool has_game = slot >= 0;
      if (__any_sync(~0u, has_game)) advance(first, slot, piece, has_game);
    }
  }

 private:
  // Puts the games `first` to `first + count - 1` of the job into the queues of the pieces that
  // they wait for, by all threads of a block. In the queues the games are numbered from 0. A
  // game that may not be played, because its stream has reached the limit of ended games,
  // counts as finished.
  __device__ __forceinline__ void queue_games(uint32_t first, uint32_t count) {
    for (uint32_t base = 0; base < count; base += blockDim.x) {
      uint32_t i = base + threadIdx.x;
      bool exists = i < count;
      bool is_stopped = exists && job.games_left(first + i) <= 0;
      bool plays = exists && !is_stopped;
      int piece = plays ? job.first_piece(first + i) : 0;
      if (plays) {
        job.states[first + i] = first_state(job, first + i);
        if (THREADS > 1) job.states[first + i].piece = piece;
      }
      queues.put(plays, int(i), piece);
      __syncwarp();
      queues.finish(__popc(__ballot_sync(~0u, is_stopped)));
    }
  }

  // Makes one decision in each game of a warp, and puts the games that go on back into the
  // queues of the pieces that they now wait for. All games of the warp wait for `piece`.
  //
  // `slot` is the number of this thread's game in the queues, which count from game `first` of
  // the job. It is valid only if `has_game` is true. THREADS neighbouring threads share a game,
  // and the first of them writes its state.
  __device__ __forceinline__ void advance(uint32_t first, int slot, int piece, bool has_game) {
    // Threads without a game compute the first game of the warp too, but write nothing.
    int source_lane = has_game ? lane : lane % THREADS;
    slot = __shfl_sync(~0u, slot, source_lane);
    uint32_t index = first + slot;
    GameState game;
    bool over = decide(game, index, piece);
    int next = piece_of(index, game.made);
    auto geometry = geometry_of<BOARD_WIDTH>(job.rules);
    if (end_if_next_does_not_appear(geometry, next, game)) over = true;
    if (over) game.best_two = 0;  // those were placements on the old board
    // games_left is read only when a game has ended, and not before the search, where it would
    // take a register.
    bool is_finished = game.made == uint32_t(job.decisions) ||
                       (over && has_game && game.games >= job.games_left(index));
    __syncwarp();  // The threads without a game have read the state that is now overwritten.
    bool writes = has_game && lane % THREADS == 0;
    bool goes_on = writes && !is_finished;
    bool ends = writes && is_finished;
    game.piece = next;
    if (goes_on) job.states[index] = game;
    if (ends) write_result(job, index, game);
    // With expectimax, a game whose two best placements are known needs searches for all
    // pieces, so it may wait in any queue. Other games wait in the queue of their next piece.
    int queue = game.best_two != 0 ? 0 : next;
    queues.put(goes_on, slot, queue);
    __syncwarp();
    queues.finish(__popc(__ballot_sync(~0u, ends)));
  }
};

// Many features are much code. Fewer warps then have more registers each, and form one group,
// so that each instruction is fetched once for all of them. With few features it costs more to
// wait for each other.
template <class List>
constexpr bool LONG_CODE = List::NOT_BY_COLUMN > 16;
template <class List, Lookahead LOOKAHEAD>
constexpr int POOL_WARPS = LONG_CODE<List> ? 12 : (LOOKAHEAD == Lookahead::none ? 20 : 16);
struct BlockWarps {
  int count, groups;
};
// Returns how many warps a block has, at most `warps`, and how many groups of equal size they
// form. `games` is the number of games that one multiprocessor plays.
template <class List>
BlockWarps block_warps(int warps, int64_t games) {
  if (games < 1536)
    warps = std::min(warps, 16);  // sixteen are then as fast as twenty, or faster
  int groups = LONG_CODE<List> ? 1 : MAX_WARP_GROUPS;
  if (warps < groups) return {warps, warps};
  return {warps / groups * groups, groups};
}

// Returns where part `i` of `parts` of `count` begins, if all are of equal size but for one.
__device__ __forceinline__ uint32_t begin_of_part(uint64_t count, uint32_t i, uint32_t parts) {
  return count * i / parts;
}

// Kernel: plays all games of a job, one block per multiprocessor. The games are divided evenly
// among the blocks. A block plays its share in batches of nearly equal size, because its queues
// hold at most `capacity` games.
template <class List, int BOARD_WIDTH, Lookahead LOOKAHEAD>
__global__ void __launch_bounds__(POOL_WARPS<List, LOOKAHEAD>* WARP, 1)
    rollout_pool(const __grid_constant__ PoolJob job) {
  PoolRollout<List, BOARD_WIDTH, LOOKAHEAD> rollout{
      job, *static_cast<PieceQueues*>(shared_memory())};
  uint32_t begin = begin_of_part(job.total, blockIdx.x, gridDim.x);
  uint32_t end = begin_of_part(job.total, blockIdx.x + 1, gridDim.x);
  uint32_t count = end - begin;
  uint32_t batches = (count + job.capacity - 1) / job.capacity;
  for (uint32_t i = 0; i < batches; ++i) {
    uint32_t first = begin + begin_of_part(count, i, batches);
    uint32_t last = begin + begin_of_part(count, i + 1, batches);
    rollout.play(first, last - first);
  }
}

}  // namespace tetris
