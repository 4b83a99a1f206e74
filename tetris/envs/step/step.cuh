// The step kernels: a thread per environment, a block of threads per stretch of neighbouring
// environments.
//
// A step is bound by memory: on a board of 10 x 20 it reads 82 bytes per environment and writes
// 312, 248 of them the observation. The numbers of an environment's state lie as many numbers
// apart as there are environments, so that a warp reads and writes whole lines. Observations
// lie environment after environment, as PyTorch wants them. So each thread leaves its board in
// shared memory, a bit per cell, and the threads of the block write the bytes of all boards
// together, four each at a time.
#pragma once

#include "step.h"
#include "thread_lanes.h"

namespace tetris {

constexpr int STEP_THREADS = 128;

// The shared memory of a block.
struct StepMemory {
  // A board is a string of bits, row after row from the bottom, in STRIDE words. There is one
  // word more than it needs, so that any four cells lie in two words that exist. The number is
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
  int64_t first;
  int count, thread;

  __device__ StepBlock(const StepJob& step_job, StepMemory& block_memory)
      : job(step_job),
        memory(block_memory),
        first(int64_t{blockIdx.x} * STEP_THREADS),
        thread(int(threadIdx.x)) {
    int64_t rest = job.all.count - first;
    count = rest < STEP_THREADS ? int(rest) : STEP_THREADS;
    if (thread < PIECES) memory.mask[thread] = mask_bits(thread, job.task.rules.width);
  }

  // Writes the board of this thread's environment to shared memory as a string of bits, one bit
  // per cell, row after row from the bottom without gaps. The bits of a row are appended to
  // `pending`, whose lowest 32 bits are written as a word when they are complete.
  __device__ void stage_board(const L::ColumnBits& cells) {
    int width = job.task.rules.width;
    uint32_t* word = memory.board + thread * StepMemory::STRIDE;
    uint64_t pending = 0;
    int pending_bits = 0;
    for (int row = 0; row < job.task.rules.height; ++row) {
      pending |= uint64_t(row_bits<L>(cells, row, width)) << pending_bits;
      pending_bits += width;
      if (pending_bits < 32) continue;
      *word++ = uint32_t(pending);
      pending >>= 32;
      pending_bits -= 32;
    }
    *word = uint32_t(pending);
  }

  // Writes this thread's piece, and leaves it in shared memory.
  __device__ void stage_piece(int piece) {
    job.all.current[first + thread] = uint8_t(piece);
    job.all.piece[first + thread] = piece;
    memory.piece[thread] = uint8_t(piece);
  }

  // Returns 32 cells of the board of the block's environment number `environment`, from a cell
  // on, one bit each. Bits beyond the end of the board mean nothing.
  __device__ uint32_t bits_from(int environment, int cell) const {
    const uint32_t* words = memory.board + environment * StepMemory::STRIDE + cell / 32;
    uint64_t both = uint64_t(words[1]) << 32 | words[0];
    return uint32_t(both >> (cell % 32));
  }

  // Copies the boards of all environments of the block from shared memory, where a cell is a
  // bit, to a tensor, where a cell is a byte, 0 or 1.
  //
  // A thread writes four bytes as one word, even if they belong to two boards. The words are
  // aligned, because a block begins at a multiple of 128 environments. Only the last bytes of
  // the last block may be fewer than four, and are written one by one. bits_from(environment,
  // cell) returns the bits of a board from a cell on.
  __device__ void write_boards(int8_t* boards) const {
    int cells = job.task.rules.width * job.task.rules.height;  // of one board
    int bytes = count * cells;                                 // of the boards of this block
    int8_t* out = boards + first * cells;
    for (int byte = 4 * thread; byte < bytes; byte += 4 * STEP_THREADS) {
      int environment = byte / cells;
      int cell = byte - environment * cells;
      int cells_left = cells - cell;
      uint32_t bits = bits_from(environment, cell);
      if (cells_left < 4 && environment + 1 < count) {
        // The four bytes reach into the next environment's board.
        uint32_t own_bits = bits & ((1u << cells_left) - 1);
        bits = own_bits | bits_from(environment + 1, 0) << cells_left;
      }
      if (bytes - byte >= 4) {
        *reinterpret_cast<uint32_t*>(out + byte) = bytes_of(bits);
      } else {
        for (int i = 0; i < bytes - byte; ++i) out[byte + i] = int8_t(bits >> i & 1u);
      }
    }
  }

  // Writes the masks of all environments of the block, one byte per action, four bytes at a
  // time. An environment has 4 * width actions, which are `width` words of four bytes.
  __device__ void write_masks() const {
    int words = job.task.rules.width;
    auto* out = reinterpret_cast<uint32_t*>(job.all.mask + first * MAX_ORIENTATIONS * words);
    for (int i = thread; i < count * words; i += STEP_THREADS) {
      int environment = i / words;
      int word = i - environment * words;
      uint64_t mask = memory.mask[memory.piece[environment]];
      out[i] = bytes_of(uint32_t(mask >> (4 * word)));
    }
  }
};

// Kernel: makes one step of every environment and writes its observation, a thread per
// environment. With OBSERVES it makes no step, and only writes the observations.
//
// A thread computes its environment and writes the board to shared memory, one bit per cell.
// After a barrier all threads of the block write the boards to the tensors together, one byte
// per cell. final_board gets the boards that the placements led to, even where the next episode
// has begun.
template <bool OBSERVES>
__global__ void __launch_bounds__(STEP_THREADS)
    step_kernel(const __grid_constant__ StepJob job) {
  using L = ThreadLanes;
  const Environments& all = job.all;
  const StepTensors& tensors = job.tensors;
  StepBlock block(job, step_memory());
  Geometry<L> geometry(job.task.rules);
  bool has_environment = block.thread < block.count;
  L::ColumnBits shown = geometry.walls;
  if (has_environment) {
    int64_t i = block.first + block.thread;
    Observed<L> observed = OBSERVES ? observe_one(all, job.task, geometry, i)
                                    : step_one(all, tensors, job.task, geometry, i);
    shown = observed.shown;
    block.stage_board(observed.cells);
    block.stage_piece(observed.piece);
  }
  __syncthreads();
  block.write_boards(all.board);
  block.write_masks();
  if (OBSERVES || tensors.final_board == nullptr) return;
  // After this barrier all threads have read the boards in shared memory, and the boards that
  // the placements led to replace them.
  __syncthreads();
  if (has_environment) block.stage_board(shown);
  __syncthreads();
  block.write_boards(tensors.final_board);
}

inline unsigned step_blocks(int64_t count) {
  return unsigned((count + STEP_THREADS - 1) / STEP_THREADS);
}

}  // namespace tetris
