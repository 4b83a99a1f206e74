// The step operators of the vector environment on the CPU: environments spread over torch's
// threads.
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

// A thread has at least so many environments. They take a tenth of a millisecond; for less it
// is not worth waking a thread and waiting for it, least of all while the processors have other
// work.
constexpr int64_t GRAIN = 1024;
constexpr int ROW_BYTES = 16;

// for_each_row calls write(row, store) for every row of a board, from the bottom. `write` has
// to call store(to) with the address of the row: this stores ROW_BYTES bytes there, first one
// byte per column, 0 or 1, and behind them bytes without a meaning.
#if defined(__SSE2__)
// Unpacks a board of bits to bytes, row by row, with SSE2: calls write(row, store) for every
// row from the bottom up, where store(to) writes the row's bytes to the address `to`, one byte
// per column, 0 or 1. It always writes 16 bytes; those after the last column mean nothing.
//
// A column is a 32-bit word with row r in bit 31 - r, so its top byte holds rows 0 to 7, the
// next byte rows 8 to 15, and the third one rows 16 to 23. For eight rows at a time, these
// bytes of all columns are packed into the vector `eight_rows`, one byte per column. Row `first
// + n` is bit 7 - n of every byte, and a shift and a mask extract it.
template <class Write>
void for_each_row(const L::ColumnBits& columns, int, int height, const Write& write) {
  static_assert(FIRST_COLUMN + 12 == L::SLOTS && L::TOP == 31 && MAX_HEIGHT == 24);
  const auto* slots = reinterpret_cast<const __m128i*>(columns.slot + FIRST_COLUMN);
  __m128i low_byte = _mm_set1_epi32(255);
  __m128i one = _mm_set1_epi8(1);
  TETRIS_UNROLL for (int first = 0; first < MAX_HEIGHT; first += 8) {
    // Returns the rows first to first + 7 of the four columns from 4 i on, as 32-bit numbers.
    auto rows_of_four_columns = [&](int i) {
      __m128i words = _mm_loadu_si128(slots + i);
      return _mm_and_si128(_mm_srli_epi32(words, 24 - first), low_byte);
    };
    // Pack the numbers to 16 bits and then to bytes. There are 12 columns with those behind the
    // board, and packing takes 16, so the last four are taken twice.
    __m128i columns_8_to_11 = rows_of_four_columns(2);
    __m128i columns_0_to_7 = _mm_packs_epi32(rows_of_four_columns(0), rows_of_four_columns(1));
    __m128i eight_rows =
        _mm_packus_epi16(columns_0_to_7, _mm_packs_epi32(columns_8_to_11, columns_8_to_11));
    TETRIS_UNROLL for (int row = first; row < first + 8; ++row) {
      if (row == height) return;
      int row_bit = 7 - (row - first);
      // SSE2 shifts numbers of 16 bits; the mask removes the bits from the neighbouring byte.
      __m128i shifted = _mm_srli_epi16(eight_rows, row_bit);
      __m128i bytes = _mm_and_si128(shifted, one);
      write(row, [&](int8_t* to) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes); });
    }
  }
}
#else
// Unpacks a board of bits to bytes, row by row: calls write(row, store) for every row from the
// bottom up, where store(to) writes the row's bytes to the address `to`, one byte per column, 0
// or 1.
//
// It always writes ROW_BYTES = 16 bytes; those after the last column mean nothing. row_bits
// returns a row with one bit per column, and bytes_of turns the lowest four bits of a number
// into four bytes.
template <class Write>
void for_each_row(const L::ColumnBits& columns, int width, int height, const Write& write) {
  for (int row = 0; row < height; ++row) {
    uint32_t bits = row_bits<L>(columns, row, width);
    write(row, [&](int8_t* to) {
      for (int i = 0; i < ROW_BYTES; i += 4) {
        uint32_t bytes = bytes_of(bits >> i);
        std::memcpy(to + i, &bytes, sizeof bytes);
      }
    });
  }
}
#endif

// Writes the observations of environments on a board of WIDTH columns, or of any number for 0.
template <int WIDTH>
class View {
 public:
  View(const Environments& all, int width, int height)
      : all_(all), width_(width), height_(height) {
    for (int piece = 0; piece < PIECES; ++piece) {
      uint64_t bits = mask_bits(piece, width);
      for (int action = 0; action < actions(); ++action) {
        masks_[piece][action] = int8_t(bits >> action & 1u);
      }
    }
  }

  // Writes the observation of environment i.
  void write(int64_t i, const L::ColumnBits& columns, int piece) const {
    all_.current[i] = uint8_t(piece);
    all_.piece[i] = piece;
    std::memcpy(all_.mask + i * actions(), masks_[piece], size_t(actions()));
    write_board(columns, board(all_.board, i));
  }
  // Writes the board that an episode has ended with, or copies the observed one.
  void write_final(int64_t i, const L::ColumnBits& shown, bool ended, int8_t* finals) const {
    if (ended) write_board(shown, board(finals, i));
    else std::memcpy(board(finals, i), board(all_.board, i), size_t(cells()));
  }

 private:
  int width() const { return WIDTH > 0 ? WIDTH : width_; }
  int actions() const { return MAX_ORIENTATIONS * width(); }
  int cells() const { return width() * height_; }
  int8_t* board(int8_t* boards, int64_t i) const { return boards + i * cells(); }

  void write_board(const L::ColumnBits& columns, int8_t* to) const {
    for_each_row(columns, width(), height_, [&](int row, const auto& store) {
      int first = row * width();
      // ROW_BYTES bytes are stored, more than the row has; the next row overwrites the rest. At
      // the end of the board they would reach into the next board, which another thread may
      // have written, so that only the bytes of the row are copied.
      if (first + ROW_BYTES <= cells()) return store(to + first);
      int8_t bytes[ROW_BYTES];
      store(bytes);
      std::memcpy(to + first, bytes, size_t(width()));
    });
  }

  const Environments& all_;
  int width_, height_;
  int8_t masks_[PIECES][MAX_ORIENTATIONS * MAX_WIDTH];
};

struct Cpu {
  // It is compiled for the usual width, and for any.
  static void step(
      const Tensor&, const Environments& all, const StepTensors& tensors, const Task& task) {
    if (task.rules.width == MAX_WIDTH) step_on<MAX_WIDTH>(all, tensors, task);
    else step_on<0>(all, tensors, task);
  }

 private:
  // Makes one step of all environments and writes their observations, spread over torch's
  // threads. If there are no actions, it makes no step and only writes the observations.
  // `WIDTH` is the width of the boards, or 0 for any width.
  template <int WIDTH>
  static void step_on(const Environments& all, const StepTensors& tensors, const Task& task) {
    View<WIDTH> view(all, task.rules.width, task.rules.height);
    // One thread's work: steps the environments `begin` to `end` - 1. `observed.cells` is the
    // board to be observed. If the step has ended an episode and begun the next one,
    // `observed.shown` is the last board of the old episode, which goes to final_board.
    torch::stable::parallel_for(0, all.count, GRAIN, [&](int64_t begin, int64_t end) {
      Geometry<L> geometry(task.rules);
      bool only_observes = tensors.actions == nullptr;
      for (int64_t i = begin; i < end; ++i) {
        Observed<L> observed = only_observes ? observe_one(all, task, geometry, i)
                                             : step_one(all, tensors, task, geometry, i);
        view.write(i, observed.cells, observed.piece);
        if (tensors.final_board == nullptr) continue;
        bool has_ended = tensors.terminated[i] || tensors.truncated[i];
        view.write_final(i, observed.shown, has_ended, tensors.final_board);
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
