// Rollouts on a GPU of many streams of games, with a thread per stream. A warp takes 32 streams
// that wait for the same piece.
#pragma once

#include <algorithm>

#include "piece_queues.cuh"
#include "thread_game.cuh"
#include "thread_search.cuh"

namespace tetris {

struct PoolJob : RolloutArguments {
  StreamState* states;
  int warp_bytes;
  int groups;    // the number of groups of warps of a block
  int capacity;  // the number of streams that a block plays at a time, a power of two
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
  const WarpGroup group{job.groups};
  // The number of threads of a stream. For expectimax there are two: each of them searches
  // after one of the two best placements.
  static constexpr int THREADS = LOOKAHEAD == Lookahead::none ? 1 : 2;

  // Returns the piece that falls in a stream after `decisions` decisions of this launch.
  __device__ int piece_of(uint32_t index, uint32_t decisions) const {
    return job.pieces_of(index).piece(job.start + decisions);
  }

  // Returns the shared memory of this warp. The memory of a block holds the queues, and after
  // them `warp_bytes` bytes for each warp.
  __device__ WarpMemory& warp_memory() {
    unsigned char* first =
        reinterpret_cast<unsigned char*>(&queues) + PieceQueues::bytes(job.capacity);
    int warp = int(threadIdx.x / WARP);
    return *reinterpret_cast<WarpMemory*>(first + warp * job.warp_bytes);
  }

  // Makes one decision in stream `index`: chooses a placement of the falling piece and plays
  // it. Sets `state` to the state after the decision, and returns whether the placement ends
  // the game.
  //
  // `piece` is the piece of the queue from which this warp took its streams. Only expectimax,
  // which has two threads per stream, takes streams for which another piece falls from this
  // queue, too. Their two best placements are known, so choose_ahead() does not use `piece`.
  //
  // state.best_two becomes the two best placements of the next piece, or 0 if they are not
  // known.
  __device__ __forceinline__ bool decide(StreamState& state, uint32_t index, int piece) {
    uint32_t next_best_two = 0;
    Choice choice;
    if constexpr (LOOKAHEAD == Lookahead::none) choice = choose(index, piece);
    else choice = choose_ahead(index, piece, next_best_two);
    // The state is read only after the search, because the search needs all registers.
    state = job.states[index];
    auto geometry = geometry_of<BOARD_WIDTH>(job.rules);
    Board<L> board(geometry, with_walls(geometry, state.columns));
    ++state.decisions;
    state.best_two = next_best_two;
    // With two threads per stream, the state says which piece falls.
    int falling_piece = THREADS > 1 ? int(state.piece) : piece;
    return land(board, falling_piece, choice, state);
  }

  // Returns the best placement of a piece on the board of stream `index`. All threads of a warp
  // call this function together, each with its own stream and all with the same piece.
  __device__ __forceinline__ Choice choose(uint32_t index, int piece) {
    auto geometry = geometry_of<BOARD_WIDTH>(job.rules);
    Decision decision(geometry, job.weights_of<List>(index));
    WarpMemory& memory = warp_memory();
    StreamState state = job.states[index];  // copying the whole struct takes only four reads
    Board<L> board(
        geometry, with_walls(geometry, state.columns), {memory.cached_columns(), lane});
    return ThreadSearch<List, BOARD_WIDTH>{job.rules, memory}.choose(decision, board, piece);
  }

  // Packs two placements into a number that is not 0: bits 8 to 15 hold the first placement
  // plus 1, and bits 0 to 7 the second placement plus 1. `unpack` returns the first placement
  // (which = 0) or the second one (1).
  __device__ static uint32_t pack(const BestTwo& best) {
    return 1u << 16 | (best.first.placement + 1) << 8 | (best.second.placement + 1);
  }
  __device__ static int unpack(uint32_t best_two, int which) {
    return int(best_two >> (which == 0 ? 8 : 0) & 255) - 1;
  }

  // What the searches of an expectimax decision find out. Two placements are packed into a
  // number, which is 0 if they are not known; see `pack`.
  struct Foresight {
    uint32_t best_two;           // the two best placements of the falling piece
    uint32_t next_best_two = 0;  // those of the next piece, after this thread's placement
    Prospect prospect{0};        // the prospect of this thread's placement
  };

  // Chooses a placement in stream `index` by expectimax, and returns it. Sets `next_best_two`
  // to the two best placements of the next piece after it.
  //
  // Two neighbouring threads share a stream. Each of them plays one of the two best placements
  // of the falling piece, and searches the board after it for all pieces that may come next.
  // One of these pieces does come next, so the search also finds the two best placements for
  // the next decision. So usually those for this decision, `best_two`, are known already; at
  // the beginning of a game they are 0.
  __device__ __forceinline__ Choice choose_ahead(
      uint32_t index, int piece, uint32_t& next_best_two) {
    int next = piece_of(index, job.states[index].decisions + 1);
    Foresight foresight{job.states[index].best_two};
    // If `best_two` is unknown in some thread of the warp, all threads first search their
    // present boards. Then they search the boards after a placement. Both searches are one call
    // in a loop, so that the kernel contains the code of the search only once.
    bool is_unknown = __any_sync(~0u, foresight.best_two == 0);
#pragma unroll 1
    for (int searches_left = is_unknown ? 2 : 1; searches_left > 0; --searches_left) {
      bool is_after = searches_left == 1;
      search_once(index, piece, next, is_after, foresight);
    }
    next_best_two = foresight.next_best_two;
    return better_of_two(foresight.best_two, next_best_two, foresight.prospect);
  }

  // Makes one of the two searches of an expectimax decision in stream `index`. Two threads
  // share a stream, one for each of the two best placements of the falling piece.
  //
  //     is_after = false    searches the present board for the two best placements of `piece`,
  //                         and sets foresight.best_two to them if it is still 0
  //     is_after = true     plays this thread's placement of best_two, and searches the board
  //                         after it for every piece that may come next. Adds the results to
  //                         `foresight`; `next` is the piece that does come next.
  __device__ __forceinline__ void search_once(
      uint32_t index, int piece, int next, bool is_after, Foresight& foresight) {
    auto geometry = geometry_of<BOARD_WIDTH>(job.rules);
    Decision decision(geometry, job.weights_of<List>(index));
    ThreadSearch<List, BOARD_WIDTH> search{job.rules, warp_memory()};
    auto cells = with_walls(geometry, job.states[index].columns);
    FirstPlacement first{};
    if (is_after) {
      // The even thread has the first placement of `best_two`.
      int placement = Choice{0, unpack(foresight.best_two, lane % 2)}.placement_to_play();
      first = play_first(decision, geometry, job.states[index].piece, placement, cells);
    }
    Board<L> board(geometry, cells, {search.memory.cached_columns(), lane});
    typename Decision::Search board_search(decision, board);
    int searched_pieces = is_after ? job.pieces.source.count : 1;
    for (int k = 0; k < searched_pieces; ++k) {
      int searched_piece = is_after ? job.pieces.source.at(k) : piece;
      BestTwo best = search.best_two(decision, board_search, searched_piece);
      if (is_after) {
        if (searched_piece == next) foresight.next_best_two = pack(best);
        add_next_piece(best.first, searched_piece, first, foresight.prospect);
      } else if (foresight.best_two == 0) {
        foresight.best_two = pack(best);
      }
    }
  }

  // What the first of two placements means for the second one.
  struct FirstPlacement {
    int value = 0;               // the weighted features that describe the first placement
    uint32_t ending_pieces = 0;  // the set of the pieces that cannot appear after it
  };

  // Adds a piece that may come next to the prospect of the first placement. `second` is the
  // best placement of this piece, or NO_CHOICE if every placement ends the game.
  __device__ __forceinline__ static void add_next_piece(
      const Choice& second, int piece, const FirstPlacement& first, Prospect& prospect) {
    bool can_appear = (first.ending_pieces >> piece & 1) == 0;
    bool survives = second.placement != Choice::NONE && can_appear;
    if (survives) prospect.add(second.score + first.value);
  }

  // Returns the set of the pieces that end the game if they come next, because they cannot
  // appear. There are such pieces only under the rule `original`.
  __device__ __forceinline__ static uint32_t find_ending_pieces(
      const Geometry<L>& geometry, const L::ColumnBits& cells) {
    uint32_t pieces = 0;
    for (int i = 0; geometry.original && i < PIECES; ++i) {
      pieces |= (appears(geometry, cells, i) ? 0u : 1u) << i;
    }
    return pieces;
  }

  // Places a piece on the board `cells`, and sets `cells` to the board after it. Returns what
  // the search for a second placement needs to know of this one.
  __device__ __forceinline__ FirstPlacement play_first(const Decision& decision,
      const Geometry<L>& geometry, int piece, int placement, L::ColumnBits& cells) const {
    Board<L> before(geometry, cells);
    Landing<L> landing(before, piece, placement);
    AfterState<L> after(before, landing, piece, placement);
    cells = landing.cells;
    int value = List::placement_value(decision.weights, after);
    return {value, find_ending_pieces(geometry, cells)};
  }

  // Returns the placement of `best_two` with the better prospect. All threads of a warp call
  // the function, and both threads of a stream get the same result. Only the placement of the
  // result is set; its score is 0.
  //
  // The two threads of a stream are neighbours: the even lane has searched after the first
  // placement of `best_two`, and the odd lane after the second one. `own` is the prospect of
  // this thread's placement. `next_best_two` holds the two best placements of the next piece
  // after this thread's placement. Both threads get the value of the thread whose placement is
  // chosen.
  __device__ __forceinline__ Choice better_of_two(
      uint32_t best_two, uint32_t& next_best_two, const Prospect& own) {
    int partner = lane ^ 1;
    Prospect other{__shfl_sync(~0u, own.survived, partner),
        __shfl_sync(~0u, own.worst, partner), __shfl_sync(~0u, own.sum, partner)};
    bool is_second_better = lane % 2 == 1 ? own.exceeds(other) : other.exceeds(own);
    bool has_second = unpack(best_two, 1) != Choice::NONE;
    int chosen = is_second_better && has_second ? 1 : 0;
    int first_thread = lane & ~1;
    next_best_two = __shfl_sync(~0u, next_best_two, first_thread + chosen);
    return {0, unpack(best_two, chosen)};
  }

  // Plays the streams `first` to `first + count - 1` with all threads of a block, until all of
  // them are finished. Each warp repeats three steps: it takes streams that wait for the same
  // piece out of the queues, makes one decision in each of them, and puts them back.
  __device__ void play(uint32_t first, uint32_t count) {
    __syncthreads();
    queues.clear(job.capacity, count);
    __syncthreads();
    queue_streams(first, count);
    int slot, piece;
    while (queues.template take<THREADS>(group, slot, piece)) {
      bool has_stream = slot >= 0;
      if (__any_sync(~0u, has_stream)) advance(first, slot, piece, has_stream);
    }
  }

 private:
  // Puts the streams `first` to `first + count - 1` of the job into the queues of their first
  // pieces, and stores their initial states. In the queues they are numbered from 0. A stream
  // that has already reached its limit of ended games counts as finished.
  //
  // All threads of a block call this function. A thread handles one stream per round.
  __device__ __forceinline__ void queue_streams(uint32_t first, uint32_t count) {
    for (uint32_t base = 0; base < count; base += blockDim.x) {
      uint32_t i = base + threadIdx.x;
      bool exists = i < count;
      bool is_stopped = exists && job.games_left(first + i) <= 0;
      bool plays = exists && !is_stopped;
      int piece = plays ? job.first_piece(first + i) : 0;
      if (plays) {
        job.states[first + i] = initial_state(job, first + i);
        // Only expectimax, which has two threads per stream, reads the piece from the state.
        if (THREADS > 1) job.states[first + i].piece = piece;
      }
      queues.put(plays, int(i), piece);
      __syncwarp();  // the lanes have diverged in put()
      // Count the warp's stopped streams as finished.
      queues.finish(__popc(__ballot_sync(~0u, is_stopped)));
    }
  }

  // Makes one decision in each stream of a warp, and puts the streams that are not finished
  // back into the queues. All streams of the warp wait for `piece`.
  //
  // If `has_stream` is true, this thread has the stream `slot` of the queues, which is stream
  // `first + slot` of the job. THREADS neighbouring threads share a stream.
  __device__ __forceinline__ void advance(
      uint32_t first, int slot, int piece, bool has_stream) {
    // All threads have to take part in the search. Those without a stream compute the first
    // stream of the warp, too, but write nothing.
    int source_lane = has_stream ? lane : lane % THREADS;
    slot = __shfl_sync(~0u, slot, source_lane);
    uint32_t index = first + slot;
    StreamState state;
    bool over = decide(state, index, piece);
    int next = piece_of(index, state.decisions);
    auto geometry = geometry_of<BOARD_WIDTH>(job.rules);
    if (end_game_if_blocked(geometry, next, state)) over = true;
    if (over) state.best_two = 0;  // these were placements on the board of the ended game
    bool has_made_all_decisions = state.decisions == uint32_t(job.decisions);
    // The limit of ended games is read only after a game has ended.
    bool has_ended_all_games = over && has_stream && state.ended_games >= job.games_left(index);
    bool is_finished = has_made_all_decisions || has_ended_all_games;
    __syncwarp();  // every thread has read the old state of the stream
    state.piece = next;
    put_back(slot, index, state, is_finished, has_stream);
  }

  // Puts a stream back into the queues, or writes its result if it is finished. All threads of
  // the warp call the function. Those without a stream, and all but the first of the threads
  // that share a stream, write nothing.
  __device__ __forceinline__ void put_back(
      int slot, uint32_t index, const StreamState& state, bool is_finished, bool has_stream) {
    bool writes = has_stream && lane % THREADS == 0;
    bool goes_on = writes && !is_finished;
    bool ends = writes && is_finished;
    if (goes_on) job.states[index] = state;
    if (ends) write_result(job, index, state);
    // A stream whose two best placements are known is searched for all pieces, so it may wait
    // in any queue. Other streams wait in the queue of their next piece.
    int queue = state.best_two != 0 ? 0 : int(state.piece);
    queues.put(goes_on, slot, queue);
    __syncwarp();
    queues.finish(__popc(__ballot_sync(~0u, ends)));
  }
};

// Whether a list has so many features that their code is long. A block then has fewer warps
// with more registers per warp. Its warps form one group, so that each instruction is fetched
// once for all of them. With few features it would cost more to make warps wait for each other.
template <class List>
constexpr bool LONG_CODE = List::NOT_BY_COLUMN > 16;
template <class List, Lookahead LOOKAHEAD>
constexpr int POOL_WARPS = LONG_CODE<List> ? 12 : (LOOKAHEAD == Lookahead::none ? 20 : 16);
struct BlockWarps {
  int count, groups;
};
// Returns how many warps a block has, at most `warps`, and how many groups of equal size they
// form. `streams` is the number of streams per multiprocessor.
template <class List>
BlockWarps block_warps(int warps, int64_t streams) {
  if (streams < 1536)
    warps = std::min(warps, 16);  // then sixteen warps are as fast as twenty or faster
  int groups = LONG_CODE<List> ? 1 : MAX_WARP_GROUPS;
  if (warps < groups) return {warps, warps};
  return {warps / groups * groups, groups};
}

// Divides `count` elements into `parts` parts, whose sizes differ by at most 1, and returns
// where part `i` begins.
__device__ __forceinline__ uint32_t begin_of_part(uint64_t count, uint32_t i, uint32_t parts) {
  return count * i / parts;
}

// Kernel: plays all streams of a job, with one block per multiprocessor, as the launch bounds
// say. The streams are divided evenly among the blocks. The queues of a block hold at most
// `capacity` streams, so a block divides its streams into batches of nearly equal size and
// plays one batch after the other.
template <class List, int BOARD_WIDTH, Lookahead LOOKAHEAD>
__global__ void __launch_bounds__(POOL_WARPS<List, LOOKAHEAD>* WARP, 1)
    rollout_pool(const __grid_constant__ PoolJob job) {
  PoolRollout<List, BOARD_WIDTH, LOOKAHEAD> rollout{
      job, *static_cast<PieceQueues*>(shared_memory())};
  uint32_t begin = begin_of_part(job.all_streams, blockIdx.x, gridDim.x);
  uint32_t end = begin_of_part(job.all_streams, blockIdx.x + 1, gridDim.x);
  uint32_t count = end - begin;
  uint32_t batches = (count + job.capacity - 1) / job.capacity;
  for (uint32_t i = 0; i < batches; ++i) {
    uint32_t first = begin + begin_of_part(count, i, batches);
    uint32_t last = begin + begin_of_part(count, i + 1, batches);
    rollout.play(first, last - first);
  }
}

}  // namespace tetris
