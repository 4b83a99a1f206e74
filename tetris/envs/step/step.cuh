// The step kernels, with a thread per environment. A block of threads handles neighbouring
// environments.
//
// Memory limits the speed of a step: on a board of 10 x 20 it reads 82 bytes per environment
// and writes 312 bytes, 248 of them for the observation. In the tensors of the state, the last
// dimension is the environment, so a warp reads and writes full cache lines. In the tensors of
// the observations, it is the first dimension. So each thread stores its board in shared
// memory, one bit per cell. Then the threads of the block write the bytes of all boards
// together, four bytes per thread at a time.
#pragma once

#include "step.h"
#include "thread_lanes.h"

namespace tetris {

constexpr int STEP_THREADS = 128;

// The shared memory of a block.
struct StepMemory {
  // A board is a string of bits in STRIDE words, row after row from the bottom. It has one more
  // word than it needs, so that any four cells lie in two words of the same board. STRIDE is
  // odd, so that the threads of a warp write to different banks.
  static constexpr int STRIDE = (MAX_WIDTH * MAX_HEIGHT + 31) / 32 + 1;
  uint32_t board[STEP_THREADS * STRIDE];
  uint64_t mask[PIECES];  // mask_bits of each piece
  uint8_t piece[STEP_THREADS];
};
static_assert(StepMemory::STRIDE % 2 == 1);

#if defined(__CUDACC__)
__device__ inline StepMemory& step_memory() {
  __shared__ StepMemory memory;
  return memory;
}
#endif

struct StepJob {
  Environments all;
  StepTensors tensors;
  Task task;
};

// The environments of one block.
struct StepBlock {
  using L = ThreadLanes;
  const StepJob& job;
  StepMemory& memory;
  int64_t first_environment;  // the first environment of the block
  int count;                  // the number of environments of the block
  int thread;                 // the thread of environment first_environment + thread

  __device__ StepBlock(const StepJob& step_job, StepMemory& block_memory)
      : job(step_job),
        memory(block_memory),
        first_environment(int64_t{blockIdx.x} * STEP_THREADS),
        thread(int(threadIdx.x)) {
    int64_t rest = job.all.count - first_environment;
    count = rest < STEP_THREADS ? int(rest) : STEP_THREADS;
    if (thread < PIECES) memory.mask[thread] = mask_bits(thread, job.task.rules.width);
  }

  // Writes the board of this thread's environment to shared memory as a string of bits: one bit
  // per cell, row after row from the bottom, without gaps between rows.
  __device__ void stage_board(const L::ColumnBits& cells) {
    int width = job.task.rules.width;
    uint32_t* word = memory.board + thread * StepMemory::STRIDE;
    uint64_t pending = 0;  // the bits that do not fill a word yet
    int pending_bits = 0;
    for (int row = 0; row < job.task.rules.height; ++row) {
      pending |= uint64_t(row_bits<L>(cells, row, width)) << pending_bits;
      pending_bits += width;
      if (pending_bits < 32) continue;
      *word++ = uint32_t(pending);
      pending >>= 32;
      pending_bits -= 32;
    }
    *word = uint32_t(pending);  // the rest of the last row
  }

  // Writes the piece of this thread's environment to the tensors and to shared memory.
  __device__ void stage_piece(int piece) {
    job.all.current[first_environment + thread] = uint8_t(piece);
    job.all.piece[first_environment + thread] = piece;
    memory.piece[thread] = uint8_t(piece);
  }

  // Returns 32 cells of a board, beginning with `cell`, one bit per cell. `environment` is
  // counted from the first environment of the block. Bits after the end of the board are
  // meaningless.
  __device__ uint32_t bits_from(int environment, int cell) const {
    const uint32_t* words = memory.board + environment * StepMemory::STRIDE + cell / 32;
    uint64_t both = uint64_t(words[1]) << 32 | words[0];
    return uint32_t(both >> (cell % 32));
  }

  // Copies the boards of all environments of the block from shared memory to a tensor. In
  // shared memory a cell is a bit, and in the tensor it is a byte, 0 or 1. All threads of the
  // block call this function.
  //
  // The boards follow each other without gaps, and a thread writes four bytes at a time, which
  // may belong to two boards.
  __device__ void write_boards(int8_t* boards) const {
    int board_cells = job.task.rules.width * job.task.rules.height;
    int block_bytes = count * board_cells;  // the bytes of all boards of this block
    int8_t* out = boards + first_environment * board_cells;
    for (int byte = 4 * thread; byte < block_bytes; byte += 4 * STEP_THREADS) {
      int environment = byte / board_cells;
      int cell = byte - environment * board_cells;
      int cells_left = board_cells - cell;
      uint32_t bits = bits_from(environment, cell);  // the lowest bit is this cell
      if (cells_left < 4 && environment + 1 < count) {
        // The four bytes reach into the next environment's board.
        uint32_t bits_of_board = bits & ((1u << cells_left) - 1);
        bits = bits_of_board | bits_from(environment + 1, 0) << cells_left;
      }
      int bytes_left = block_bytes - byte;
      if (bytes_left >= 4) {
        // The words are aligned, because first_environment is a multiple of 128.
        *reinterpret_cast<uint32_t*>(out + byte) = bytes_of(bits);
      } else {
        for (int i = 0; i < bytes_left; ++i) out[byte + i] = int8_t(bits >> i & 1u);
      }
    }
  }

  // Writes the action masks of all environments of the block, one byte per action, 0 or 1. A
  // thread writes four bytes as one word. An environment has 4 * width actions, which are
  // `width` words. bytes_of spreads the lowest four bits of a number over the four bytes of a
  // word.
  __device__ void write_masks() const {
    int words = job.task.rules.width;
    auto* out = reinterpret_cast<uint32_t*>(
        job.all.mask + first_environment * MAX_ORIENTATIONS * words);
    for (int i = thread; i < count * words; i += STEP_THREADS) {
      int environment = i / words;
      int word = i - environment * words;
      uint64_t mask = memory.mask[memory.piece[environment]];
      out[i] = bytes_of(uint32_t(mask >> (4 * word)));
    }
  }
};

// Kernel: makes one step of every environment and writes its observation, with a thread per
// environment. If OBSERVES is true, it makes no step, and only writes the observations.
//
// A thread writes the board of its environment to shared memory, one bit per cell. Then all
// threads of the block write the boards to the tensors together, one byte per cell. The last
// block may have threads without an environment, which only take part in this writing.
//
// Up to two boards of an environment are written. If the step ends an episode and begins the
// next one, the final board is the last one of the old episode, and `all.board` is the empty
// board of the new episode. Otherwise both are the same board.
template <bool OBSERVES>
__global__ void __launch_bounds__(STEP_THREADS)
    step_kernel(const __grid_constant__ StepJob job) {
  using L = ThreadLanes;
  const Environments& all = job.all;
  const StepTensors& tensors = job.tensors;
  StepBlock block(job, step_memory());
  Geometry<L> geometry(job.task.rules);
  bool has_environment = block.thread < block.count;
  L::ColumnBits final_cells = geometry.walls;
  if (has_environment) {
    int64_t i = block.first_environment + block.thread;
    Observed<L> observed = OBSERVES ? observe_one(all, job.task, geometry, i)
                                    : step_one(all, tensors, job.task, geometry, i);
    final_cells = observed.final_cells;
    block.stage_board(observed.cells);
    block.stage_piece(observed.piece);
  }
  __syncthreads();
  block.write_boards(all.board);
  block.write_masks();
  if (OBSERVES || tensors.final_board == nullptr) return;
  // After this barrier, all threads have read the boards in shared memory, and the final boards
  // replace them.
  __syncthreads();
  if (has_environment) block.stage_board(final_cells);
  __syncthreads();
  block.write_boards(tensors.final_board);
}

inline unsigned step_blocks(int64_t count) {
  return unsigned((count + STEP_THREADS - 1) / STEP_THREADS);
}

}  // namespace tetris
