// The step operators of the vector environment on the CPU. PyTorch's threads share the
// environments.
//
// TETRIS_LIBRARY is the namespace under torch.ops. tetris/envs/native.py calls the operators.

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

// A thread gets at least this many environments, whose steps take a tenth of a millisecond. For
// less work it is not worthwhile to wake a thread and to wait for it, especially while the
// processors have other work.
constexpr int64_t GRAIN = 1024;
constexpr int ROW_BYTES = 16;

#if defined(__SSE2__)
// Packs rows `first` to `first + 7` of a board into a vector of bytes: byte c holds these rows
// of column c, row `first` in its highest bit. A column of the board is a 32-bit word in which
// row r is bit 31 - r.
TETRIS_FUNCTION __m128i pack_eight_rows(const L::ColumnBits& columns, int first) {
  static_assert(FIRST_COLUMN + 12 == L::SLOTS && L::TOP == 31);
  const auto* slots = reinterpret_cast<const __m128i*>(columns.slot + FIRST_COLUMN);
  // Returns the rows of columns 4 i to 4 i + 3, as four 32-bit numbers.
  auto rows_of_four_columns = [&](int i) {
    __m128i words = _mm_loadu_si128(slots + i);
    return _mm_and_si128(_mm_srli_epi32(words, 24 - first), _mm_set1_epi32(255));
  };
  // Pack the numbers to 16 bits, and then to bytes. There are only 12 columns, so the last four
  // are used twice.
  __m128i columns_8_to_11 = rows_of_four_columns(2);
  __m128i columns_0_to_7 = _mm_packs_epi32(rows_of_four_columns(0), rows_of_four_columns(1));
  __m128i columns_8_to_11_twice = _mm_packs_epi32(columns_8_to_11, columns_8_to_11);
  return _mm_packus_epi16(columns_0_to_7, columns_8_to_11_twice);
}

// Unpacks a board of bits to bytes with SSE2, from the bottom row up. Calls write(row, store)
// for every row; store(to) then writes the row to an address, one byte per column, 0 or 1. It
// always writes 16 bytes; the bytes after the last column are meaningless.
//
// The outer loop takes eight rows at a time, as a vector with one byte per column. The inner
// loop extracts a row, which is one bit of every byte of this vector.
template <class Write>
void for_each_row(const L::ColumnBits& columns, int, int height, const Write& write) {
  static_assert(MAX_HEIGHT % 8 == 0);
  __m128i one = _mm_set1_epi8(1);
  TETRIS_UNROLL for (int first = 0; first < MAX_HEIGHT; first += 8) {
    __m128i eight_rows = pack_eight_rows(columns, first);
    TETRIS_UNROLL for (int row = first; row < first + 8; ++row) {
      if (row == height) return;  // all rows of the board have been written
      int row_bit = 7 - (row - first);
      // SSE2 has no shift of bytes. This one shifts numbers of 16 bits, and the mask `one`
      // keeps only the lowest bit of every byte.
      __m128i shifted = _mm_srli_epi16(eight_rows, row_bit);
      __m128i bytes = _mm_and_si128(shifted, one);
      write(row, [&](int8_t* to) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes); });
    }
  }
}
#else
// Unpacks a board of bits to bytes, from the bottom row up. Calls write(row, store) for every
// row; store(to) then writes the row to an address, one byte per column, 0 or 1. It always
// writes ROW_BYTES = 16 bytes; the bytes after the last column are meaningless.
template <class Write>
void for_each_row(const L::ColumnBits& columns, int width, int height, const Write& write) {
  for (int row = 0; row < height; ++row) {
    uint32_t bits = row_bits<L>(columns, row, width);  // one bit per column
    write(row, [&](int8_t* to) {
      for (int i = 0; i < ROW_BYTES; i += 4) {
        uint32_t bytes = bytes_of(bits >> i);  // the lowest four bits, one in each byte
        std::memcpy(to + i, &bytes, sizeof bytes);
      }
    });
  }
}
#endif

// Writes the observations of environments whose boards are WIDTH columns wide; 0 means any
// width.
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
  // Writes the final board of environment i: the last board of its episode if the step has
  // ended it, otherwise a copy of the observed board.
  void write_final(
      int64_t i, const L::ColumnBits& final_cells, bool ended, int8_t* final_boards) const {
    if (ended) write_board(final_cells, board(final_boards, i));
    else std::memcpy(board(final_boards, i), board(all_.board, i), size_t(cells()));
  }

 private:
  int width() const { return WIDTH > 0 ? WIDTH : width_; }
  int actions() const { return MAX_ORIENTATIONS * width(); }
  int cells() const { return width() * height_; }
  int8_t* board(int8_t* boards, int64_t i) const { return boards + i * cells(); }

  // Writes a board to the address `to`, one byte per cell, 0 or 1, row after row from the
  // bottom up.
  //
  // for_each_row calls the function for every row, and store(address) writes the row to that
  // address. It writes ROW_BYTES = 16 bytes, which is more than a row has. The next row
  // overwrites the rest.
  void write_board(const L::ColumnBits& columns, int8_t* to) const {
    for_each_row(columns, width(), height_, [&](int row, const auto& store) {
      int first = row * width();
      // At the end of the board, 16 bytes would reach into the next board, which another thread
      // may have written. So only the bytes of the row are copied.
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
  // Makes one step of all environments. The usual width has a compiled version of its own; 0
  // means any width.
  static void step(
      const Tensor&, const Environments& all, const StepTensors& tensors, const Task& task) {
    if (task.rules.width == MAX_WIDTH) step_on<MAX_WIDTH>(all, tensors, task);
    else step_on<0>(all, tensors, task);
  }

 private:
  // Makes one step of all environments, and writes their observations. PyTorch's threads share
  // the environments. If `tensors.actions` is null, it makes no step, and only writes the
  // observations. WIDTH is the width of the boards, or 0 for any width.
  template <int WIDTH>
  static void step_on(const Environments& all, const StepTensors& tensors, const Task& task) {
    View<WIDTH> view(all, task.rules.width, task.rules.height);
    // Make the steps of the environments `begin` to `end - 1`. A step that ends an episode may
    // also begin the next one. Then observed.cells is the first board of the new episode, and
    // observed.final_cells is the last board of the old one.
    parallel_for(0, all.count, GRAIN, [&](int64_t begin, int64_t end) {
      Geometry<L> geometry(task.rules);
      bool only_observes = tensors.actions == nullptr;
      for (int64_t i = begin; i < end; ++i) {
        Observed<L> observed = only_observes ? observe_one(all, task, geometry, i)
                                             : step_one(all, tensors, task, geometry, i);
        view.write(i, observed.cells, observed.piece);
        if (tensors.final_board == nullptr) continue;  // no final boards are wanted
        bool has_ended = tensors.terminated[i] || tensors.truncated[i];
        view.write_final(i, observed.final_cells, has_ended, tensors.final_board);
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
