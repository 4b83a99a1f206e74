// The operators of value iteration on any device, and the checks of their tensors.
#pragma once

#include "check_tensor.h"
#include "iteration.h"

namespace tetris {

inline Problem problem_of(
    int64_t width, int64_t height, bool clear_on_overflow, int64_t pieces) {
  STD_TORCH_CHECK(width >= 4 && height >= 4 && width * height <= MOST_CELLS,
      "expected a board of at most 32 cells, got ", width, "x", height);
  STD_TORCH_CHECK(pieces > 0 && pieces < 1 << PIECES, "expected a bit per piece");
  return Problem({int(width), int(height), clear_on_overflow}, uint32_t(pieces));
}

// Returns the number of known pieces, 1 or 2, which follows from the number of values.
inline int known_of(const Tensor& values, const Problem& problem) {
  int64_t boards = int64_t{1} << (problem.rules.width * problem.rules.height);
  STD_TORCH_CHECK(values.numel() == boards || values.numel() == boards * KNOWN_PIECES,
      "expected one value per board, or eight");
  return values.numel() == boards ? 1 : 2;
}

inline const uint32_t* boards_of(const Tensor& boards) {
  check_tensor(boards, ScalarType::Int, boards.numel(), boards, "boards");
  return words_of(boards);
}

inline uint8_t* marks_of(const Tensor& marks, const Problem& problem, const Tensor& boards) {
  check_tensor(marks, ScalarType::Byte,
      int64_t{1} << (problem.rules.width * problem.rules.height), boards, "marks");
  return marks.mutable_data_ptr<uint8_t>();
}

// The operators. Each of them calls a functor of iteration.h for every board, or for every
// game. Device::each(like, count, f) calls f(i) for every i from 0 to count - 1, on the device
// of `like`.
template <class Device>
struct Iteration {
  static void sweep(const Tensor& boards, const Tensor& values, const Tensor& to, int64_t width,
      int64_t height, bool clear_on_overflow, int64_t pieces) {
    Problem problem = problem_of(width, height, clear_on_overflow, pieces);
    check_tensor(values, ScalarType::Double, values.numel(), boards, "values");
    check_tensor(to, ScalarType::Double, values.numel(), boards, "new values");
    STD_TORCH_CHECK(
        to.const_data_ptr() != values.const_data_ptr(), "expected new values elsewhere");
    Device::each(boards, boards.numel(),
        Sweep{problem, known_of(values, problem), boards_of(boards),
            values.const_data_ptr<double>(), to.mutable_data_ptr<double>()});
  }

  static void expand(const Tensor& boards, const Tensor& marks, int64_t width, int64_t height,
      bool clear_on_overflow, int64_t pieces) {
    Problem problem = problem_of(width, height, clear_on_overflow, pieces);
    Device::each(boards, boards.numel(),
        Expand{problem, boards_of(boards), marks_of(marks, problem, boards)});
  }

  static void survive(const Tensor& boards, const Tensor& marks, const Tensor& changed,
      int64_t known, int64_t width, int64_t height, bool clear_on_overflow, int64_t pieces) {
    Problem problem = problem_of(width, height, clear_on_overflow, pieces);
    check_tensor(changed, ScalarType::Byte, 1, boards, "changed");
    STD_TORCH_CHECK(known == 1 || known == 2, "expected 1 or 2 known pieces");
    Device::each(boards, boards.numel(),
        Survive{problem, int(known), boards_of(boards), marks_of(marks, problem, boards),
            changed.mutable_data_ptr<uint8_t>()});
  }

  static void play(const Tensor& values, const Tensor& lines, int64_t seed, int64_t width,
      int64_t height, bool clear_on_overflow, int64_t pieces, int64_t packed, int64_t count) {
    Problem problem = problem_of(width, height, clear_on_overflow, pieces);
    check_tensor(values, ScalarType::Double, values.numel(), values, "values");
    check_tensor(lines, ScalarType::Long, lines.numel(), values, "lines");
    Device::each(values, lines.numel(),
        Play{problem, known_of(values, problem), PieceSource::of(packed, count, false), seed,
            values.const_data_ptr<double>(), lines.mutable_data_ptr<int64_t>()});
  }
};

}  // namespace tetris
