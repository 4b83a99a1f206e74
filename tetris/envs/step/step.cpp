// The step operators of the vector environment on the CPU: environments spread over torch's threads.
//
// TETRIS_LIBRARY is the namespace under torch.ops. See tetris/envs/native.py, which calls them.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <cstring>

#include "step_tensors.h"

namespace {

using namespace tetris;
using L = ScalarLanes;

// Below this many environments a thread, sharing them out costs more than it gains.
constexpr int64_t GRAIN = 256;

void write_board(const BoardBits& bits, int cells, int8_t* boards, int64_t i) {
    int8_t* board = boards + i * cells;
    int at = 0;
    for (; at + 4 <= cells; at += 4) {
        const uint32_t bytes = bytes_of(bits.word[at / 32] >> (at % 32));
        std::memcpy(board + at, &bytes, sizeof bytes);
    }
    for (; at < cells; ++at) board[at] = static_cast<int8_t>(bits.word[at / 32] >> (at % 32) & 1u);
}

// What is written of an environment's piece.
class Masks {
   public:
    explicit Masks(int width) : size_(MAX_ORIENTATIONS * width) {
        for (int piece = 0; piece < PIECES; ++piece) {
            const uint64_t bits = mask_bits(piece, width);
            for (int action = 0; action < size_; ++action) bytes_[piece][action] = static_cast<int8_t>(bits >> action & 1u);
        }
    }
    void write(const Environments& all, int64_t i, int piece) const {
        all.current[i] = static_cast<uint8_t>(piece);
        all.piece[i] = piece;
        std::memcpy(all.mask + i * size_, bytes_[piece], static_cast<size_t>(size_));
    }

   private:
    int size_;
    int8_t bytes_[PIECES][MAX_ORIENTATIONS * MAX_WIDTH];
};

struct Cpu {
    static void step(const Tensor&, const Environments& all, const StepTensors& tensors, const Task& task) {
        each(all, task, [&](const Geometry<L>& geometry, L::ColumnBits& columns, int64_t i) {
            L::ColumnBits shown;
            Episode episode{all.time[i], tensors.length[i], all.current[i], tensors.ended[i]};
            const Outcome outcome = tetris::step<L>(task, geometry, tensors.actions[i], all.seed[i], all.stream[i], episode,
                                                    columns, shown);
            store_columns(geometry, columns, all.columns + i, all.count);
            all.time[i] = episode.time;
            tensors.length[i] = episode.length;
            tensors.ended[i] = episode.ended;
            tensors.reward[i] = outcome.reward;
            tensors.terminated[i] = outcome.terminated;
            tensors.truncated[i] = outcome.truncated;
            if (tensors.final_board != nullptr) {
                write_board(board_bits<L>(shown, geometry.width, geometry.height), geometry.width * geometry.height,
                            tensors.final_board, i);
            }
            return static_cast<int>(episode.piece);
        });
    }

    static void observe(const Tensor&, const Environments& all, const Task& task) {
        each(all, task, [&](const Geometry<L>&, const L::ColumnBits&, int64_t i) {
            return task.piece(all.seed[i], all.stream[i], all.time[i]);
        });
    }

   private:
    // Calls `play(geometry, columns, i)` for every environment i and writes what is seen of it: its columns as they then
    // are, and the piece that was returned.
    template <class Play>
    static void each(const Environments& all, const Task& task, const Play& play) {
        const int width = task.rules.width, height = task.rules.height;
        const Geometry<L> geometry(width, height);
        const Masks masks(width);
        torch::stable::parallel_for(0, all.count, GRAIN, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                L::ColumnBits columns = load_columns(geometry, all.columns + i, all.count);
                masks.write(all, i, play(geometry, columns, i));
                write_board(board_bits<L>(columns, width, height), width * height, all.board, i);
            }
        });
    }
};

}  // namespace

STABLE_TORCH_LIBRARY(TETRIS_LIBRARY, m) {
    m.def(TETRIS_STEP_SCHEMA);
    m.def(TETRIS_OBSERVE_SCHEMA);
}

STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CPU, m) {
    m.impl("step", TORCH_BOX(&Operators<Cpu>::step));
    m.impl("observe", TORCH_BOX(&Operators<Cpu>::observe));
}
