// The step kernels: a thread per environment, a block of threads per stretch of neighbouring environments.
//
// A step is bound by memory: on a board of 10 x 20 it reads 82 bytes per environment and writes 312, 248 of them what is
// observed. An environment's state lies with a stride of the number of environments, so that a warp reads and writes
// whole lines. What is observed lies environment after environment, as PyTorch wants it; so each thread leaves its board in
// shared memory, a bit per cell, and the threads of the block write all their bytes together, four each at a time.
#pragma once

#include "step.h"
#include "thread_lanes.h"

namespace tetris {

constexpr int STEP_THREADS = 128;

// What the threads of a block leave for each other.
struct StepMemory {
  // A board is a string of bits, row after row from the bottom. It has one word more than it may need, so that any
  // stretch of four cells lies in two; an odd number, so that the threads of a warp write to different banks.
  static constexpr int STRIDE = (MAX_WIDTH * MAX_HEIGHT + 31) / 32 + 1;
  uint32_t board[STEP_THREADS * STRIDE];
  uint64_t mask[PIECES];
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

  __device__ StepBlock(const StepJob& j, StepMemory& m)
      : job(j),
        memory(m),
        first(int64_t{blockIdx.x} * STEP_THREADS),
        thread(static_cast<int>(threadIdx.x)) {
    const int64_t rest = job.all.count - first;
    count = rest < STEP_THREADS ? static_cast<int>(rest) : STEP_THREADS;
    if (thread < PIECES) memory.mask[thread] = mask_bits(thread, job.task.rules.width);
  }

  __device__ void leave_board(const L::ColumnBits& cells) {
    const int width = job.task.rules.width;
    uint32_t* words = memory.board + thread * StepMemory::STRIDE;
    uint64_t pending = 0;
    int bits = 0;
    for (int row = 0; row < job.task.rules.height; ++row) {
      pending |= static_cast<uint64_t>(row_bits<L>(cells, row, width)) << bits;
      bits += width;
      if (bits < 32) continue;
      *words++ = static_cast<uint32_t>(pending);
      pending >>= 32;
      bits -= 32;
    }
    *words = static_cast<uint32_t>(pending);
  }

  __device__ void leave_piece(int piece) {
    job.all.current[first + thread] = static_cast<uint8_t>(piece);
    job.all.piece[first + thread] = piece;
    memory.piece[thread] = static_cast<uint8_t>(piece);
  }

  // The bits from one cell on, of which those of this board count.
  __device__ uint32_t bits_from(int environment, int cell) const {
    const uint32_t* words = memory.board + environment * StepMemory::STRIDE + cell / 32;
    return static_cast<uint32_t>(
        (static_cast<uint64_t>(words[1]) << 32 | words[0]) >> (cell % 32));
  }

  __device__ void write_boards(int8_t* boards) const {
    const int cells = job.task.rules.width * job.task.rules.height, bytes = count * cells;
    // A block's environments have a multiple of 128 bytes before them: the address is one of whole words.
    int8_t* out = boards + first * cells;
    for (int at = 4 * thread; at < bytes; at += 4 * STEP_THREADS) {
      const int environment = at / cells, cell = at - environment * cells, left = cells - cell;
      uint32_t bits = bits_from(environment, cell);
      if (left < 4 && environment + 1 < count) {
        bits = (bits & ((1u << left) - 1)) | bits_from(environment + 1, 0) << left;
      }
      if (bytes - at >= 4) {
        *reinterpret_cast<uint32_t*>(out + at) = bytes_of(bits);
      } else {
        for (int i = 0; i < bytes - at; ++i) out[at + i] = static_cast<int8_t>(bits >> i & 1u);
      }
    }
  }

  __device__ void write_masks() const {
    const int words = job.task.rules.width;  // of four actions, an environment
    auto* out = reinterpret_cast<uint32_t*>(job.all.mask + first * MAX_ORIENTATIONS * words);
    for (int at = thread; at < count * words; at += STEP_THREADS) {
      const int environment = at / words, word = at - environment * words;
      out[at] =
          bytes_of(static_cast<uint32_t>(memory.mask[memory.piece[environment]] >> (4 * word)));
    }
  }
};

template <bool OBSERVES>
__global__ void __launch_bounds__(STEP_THREADS)
    step_kernel(const __grid_constant__ StepJob job) {
  using L = ThreadLanes;
  const Environments& all = job.all;
  const StepTensors& tensors = job.tensors;
  StepBlock block(job, step_memory());
  const Geometry<L> geometry(job.task.rules);
  L::ColumnBits shown = geometry.walls;
  if (block.thread < block.count) {
    const int64_t i = block.first + block.thread;
    L::ColumnBits cells;
    const int piece = OBSERVES ? observe_one(all, job.task, geometry, i, cells)
                               : step_one(all, tensors, job.task, geometry, i, cells, shown);
    block.leave_board(cells);
    block.leave_piece(piece);
  }
  __syncthreads();
  block.write_boards(all.board);
  block.write_masks();
  if (OBSERVES || tensors.final_board == nullptr) return;
  __syncthreads();
  if (block.thread < block.count) block.leave_board(shown);
  __syncthreads();
  block.write_boards(tensors.final_board);
}

inline unsigned step_blocks(int64_t count) {
  return static_cast<unsigned>((count + STEP_THREADS - 1) / STEP_THREADS);
}

}  // namespace tetris
