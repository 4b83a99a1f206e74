// The step operators of the vector environment on the CPU: environments spread over torch's threads.
//
// TETRIS_LIBRARY is the namespace under torch.ops. See tetris/envs/native.py, which calls them.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "step.h"

namespace {

using namespace tetris;
using L = ScalarLanes;

// Environments a thread has at least. They take a tenth of a millisecond; for less it is not worth waking a thread and
// waiting for it, least of all where the processors have other work.
constexpr int64_t GRAIN = 1024;
constexpr int ROW_BYTES = 16;

// Calls `write(row, store)` for all rows from the bottom. `store(to)` stores the row's cells in ROW_BYTES bytes; those beyond
// the width mean nothing.
template <class Write>
void each_row(
    const L::ColumnBits& columns, [[maybe_unused]] int width, int height, const Write& write) {
#if defined(__SSE2__)
  // Eight rows of all columns fit into a vector, a byte per column: the first bits of its bytes are the first row's cells.
  static_assert(FIRST_COLUMN + 12 == L::SLOTS && L::TOP == 31 && MAX_HEIGHT == 24);
  const auto* slots = reinterpret_cast<const __m128i*>(columns.slot + FIRST_COLUMN);
  const __m128i low_byte = _mm_set1_epi32(255), one = _mm_set1_epi8(1);
  TETRIS_UNROLL for (int first = 0; first < MAX_HEIGHT; first += 8) {
    const auto part = [&](int i) {
      return _mm_and_si128(_mm_srli_epi32(_mm_loadu_si128(slots + i), 24 - first), low_byte);
    };
    const __m128i eight =
        _mm_packus_epi16(_mm_packs_epi32(part(0), part(1)), _mm_packs_epi32(part(2), part(2)));
    TETRIS_UNROLL for (int row = first; row < first + 8; ++row) {
      if (row == height) return;
      const __m128i bytes = _mm_and_si128(_mm_srli_epi16(eight, 7 - (row - first)), one);
      write(row, [&](int8_t* to) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes); });
    }
  }
#else
  for (int row = 0; row < height; ++row) {
    const uint32_t bits = row_bits<L>(columns, row, width);
    write(row, [&](int8_t* to) {
      for (int at = 0; at < ROW_BYTES; at += 4) {
        const uint32_t bytes = bytes_of(bits >> at);
        std::memcpy(to + at, &bytes, sizeof bytes);
      }
    });
  }
#endif
}

// What is observed of environments on a board of WIDTH columns, or of any number for 0.
template <int WIDTH>
class View {
 public:
  View(const Environments& all, int width, int height)
      : all_(all), width_(width), height_(height) {
    for (int piece = 0; piece < PIECES; ++piece) {
      const uint64_t bits = mask_bits(piece, width);
      for (int action = 0; action < actions(); ++action) {
        masks_[piece][action] = static_cast<int8_t>(bits >> action & 1u);
      }
    }
  }

  void write(int64_t i, const L::ColumnBits& columns, int piece) const {
    all_.current[i] = static_cast<uint8_t>(piece);
    all_.piece[i] = piece;
    std::memcpy(all_.mask + i * actions(), masks_[piece], static_cast<size_t>(actions()));
    write_board(columns, board(all_.board, i));
  }
  // The board that an episode ended with, or the one that was written before.
  void write_final(int64_t i, const L::ColumnBits& shown, bool ended, int8_t* finals) const {
    if (ended) write_board(shown, board(finals, i));
    else std::memcpy(board(finals, i), board(all_.board, i), static_cast<size_t>(cells()));
  }

 private:
  int width() const { return WIDTH > 0 ? WIDTH : width_; }
  int actions() const { return MAX_ORIENTATIONS * width(); }
  int cells() const { return width() * height_; }
  int8_t* board(int8_t* boards, int64_t i) const { return boards + i * cells(); }

  void write_board(const L::ColumnBits& columns, int8_t* to) const {
    each_row(columns, width(), height_, [&](int row, const auto& store) {
      const int at = row * width();
      // What is stored beyond a row the next one overwrites; beyond the last ones there is another board.
      if (at + ROW_BYTES <= cells()) return store(to + at);
      int8_t bytes[ROW_BYTES];
      store(bytes);
      std::memcpy(to + at, bytes, static_cast<size_t>(width()));
    });
  }

  const Environments& all_;
  int width_, height_;
  int8_t masks_[PIECES][MAX_ORIENTATIONS * MAX_WIDTH];
};

struct Cpu {
  // Compiled for the usual width and for any.
  static void step(
      const Tensor&, const Environments& all, const StepTensors& tensors, const Task& task) {
    if (task.rules.width == MAX_WIDTH) step_on<MAX_WIDTH>(all, tensors, task);
    else step_on<0>(all, tensors, task);
  }

 private:
  template <int WIDTH>
  static void step_on(const Environments& all, const StepTensors& tensors, const Task& task) {
    const View<WIDTH> view(all, task.rules.width, task.rules.height);
    torch::stable::parallel_for(0, all.count, GRAIN, [&](int64_t begin, int64_t end) {
      const Geometry<L> geometry(task.rules);
      for (int64_t i = begin; i < end; ++i) {
        L::ColumnBits columns, shown;
        const int piece = tensors.actions == nullptr
                              ? observe_one(all, task, geometry, i, columns)
                              : step_one(all, tensors, task, geometry, i, columns, shown);
        view.write(i, columns, piece);
        if (tensors.final_board == nullptr) continue;
        view.write_final(
            i, shown, tensors.terminated[i] || tensors.truncated[i], tensors.final_board);
      }
    });
  }
};

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(TETRIS_LIBRARY, m) {
  m.def(TETRIS_STEP_SCHEMA);
  m.def(TETRIS_OBSERVE_SCHEMA);
}

STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CPU, m) {
  m.impl("step", TORCH_BOX(&Operators<Cpu>::step));
  m.impl("observe", TORCH_BOX(&Operators<Cpu>::observe));
}
