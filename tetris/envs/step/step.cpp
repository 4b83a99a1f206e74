// The step operators of the vector environment on the CPU: environments spread over torch's threads.
//
// TETRIS_LIBRARY is the namespace under torch.ops. See tetris/envs/native.py, which calls them.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "step_tensors.h"

namespace {

using namespace tetris;
using L = ScalarLanes;

// Below this many environments a thread, sharing them out costs more than it gains.
constexpr int64_t GRAIN = 256;

struct Rows {
    uint32_t row[MAX_HEIGHT];  // as `row_bits` says
};

Rows rows_of(const L::ColumnBits& cells, int width) {
    Rows rows;
#if defined(__SSE2__)
    // Eight rows of all columns fit into a vector, a byte a column; its bytes' first bits are a row.
    static_assert(FIRST_COLUMN + 12 == L::SLOTS && L::TOP == 31 && MAX_HEIGHT == 24);
    const auto* slots = reinterpret_cast<const __m128i*>(cells.slot + FIRST_COLUMN);
    const __m128i eight = _mm_set1_epi32(255);
    const int board = (1 << width) - 1;
    for (int first = 0; first < MAX_HEIGHT; first += 8) {
        const auto part = [&](int i) {
            return _mm_and_si128(_mm_srl_epi32(_mm_loadu_si128(slots + i), _mm_cvtsi32_si128(24 - first)), eight);
        };
        const __m128i high = _mm_packs_epi32(part(2), _mm_setzero_si128());
        __m128i columns = _mm_packus_epi16(_mm_packs_epi32(part(0), part(1)), high);
        for (int row = first; row < first + 8; ++row) {
            rows.row[row] = static_cast<uint32_t>(_mm_movemask_epi8(columns) & board);
            columns = _mm_add_epi8(columns, columns);
        }
    }
#else
    for (int row = 0; row < MAX_HEIGHT; ++row) rows.row[row] = row_bits<L>(cells, row, width);
#endif
    return rows;
}

// Twelve cells a row are written, and what does not belong to it is overwritten by the next one.
void write_board(const L::ColumnBits& columns, int width, int height, int8_t* boards, int64_t i) {
    constexpr int GROUPS = 3;
    const Rows rows = rows_of(columns, width);
    int8_t cells[MAX_WIDTH * MAX_HEIGHT + 4 * GROUPS];
    for (int row = 0; row < height; ++row) {
        for (int group = 0; group < GROUPS; ++group) {
            const uint32_t bytes = bytes_of(rows.row[row] >> (4 * group));
            std::memcpy(cells + row * width + 4 * group, &bytes, sizeof bytes);
        }
    }
    const int size = width * height;
    std::memcpy(boards + i * size, cells, static_cast<size_t>(size));
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
                write_board(shown, geometry.width, geometry.height, tensors.final_board, i);
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
                write_board(columns, width, height, all.board, i);
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
