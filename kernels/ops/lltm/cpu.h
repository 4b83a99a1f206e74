// The LLTM cell on the CPU, where torch's BLAS makes the products of any size. A pass over the elements is bound
// by the bytes of the gates, which it reads once.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "cell.h"
#include "vector_math.h"

namespace cem_tetris::lltm {
namespace {

// Where the work is done, which on a GPU is more.
struct Place {
  explicit Place(const Tensor&) {}
};

constexpr int64_t kGrainElements = 4096;  // that are worth waking another thread for

// A matrix of batch rows and states with any strides, read and written a vector at a time.
template <typename T> struct Matrix {
  using A = compute_t<T>;
  static constexpr int kWide = kLanes<A>;

  T* data = nullptr;  // none: every element is 0
  int64_t row_stride = 0;
  int64_t column_stride = 0;

  Matrix() = default;
  explicit Matrix(const std::optional<Tensor>& tensor, int64_t first_column = 0) {
    if (!tensor) return;
    row_stride = tensor->stride(0);
    column_stride = tensor->stride(1);
    data = const_cast<T*>(const_data<T>(*tensor)) + first_column * column_stride;
  }

  Vector<A> load(int64_t row, int64_t column, int lanes) const {
    Vector<A> values = {};
    if (data == nullptr) return values;
    const T* from = data + row * row_stride + column * column_stride;
    if (std::is_same_v<T, A> && column_stride == 1 && lanes == kWide) {
      std::memcpy(&values, from, sizeof values);
    } else {
      for (int lane = 0; lane < lanes; ++lane) values[lane] = static_cast<A>(from[lane * column_stride]);
    }
    return values;
  }

  void store(const Vector<A>& values, int64_t row, int64_t column, int lanes) const {
    T* to = data + row * row_stride + column;
    if (std::is_same_v<T, A> && lanes == kWide) {
      std::memcpy(to, &values, sizeof values);
    } else {
      for (int lane = 0; lane < lanes; ++lane) to[lane] = static_cast<T>(values[lane]);
    }
  }
};

// Calls f(row, column, lanes) for every vector of a batch x states matrix, on as many threads as it is worth.
template <int kWide, class F> void for_each_vector(const CellSizes& sizes, const F& f) {
  const int64_t in_row = (sizes.states + kWide - 1) / kWide;
  const auto work = [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t column = i % in_row * kWide;
      f(i / in_row, column, static_cast<int>(std::min<int64_t>(kWide, sizes.states - column)));
    }
  };
  torch::stable::parallel_for(0, sizes.batch * in_row, kGrainElements / kWide, work);
}

template <typename T> void forward_elements(const Place&, const CellSizes& sizes, const Forward& pass) {
  using A = compute_t<T>;
  const int64_t states = sizes.states;
  const Matrix<T> input(pass.gates), output(pass.gates, states), candidate(pass.gates, 2 * states);
  const Matrix<T> before(pass.old_cell), h(pass.new_h), cell(pass.new_cell);
  for_each_vector<kLanes<A>>(sizes, [&](auto... at) {
    const auto next = forward<VectorMath<A>>(
        input.load(at...), output.load(at...), candidate.load(at...), before.load(at...));
    h.store(next.h, at...);
    cell.store(next.cell, at...);
  });
}

template <typename T> void backward_elements(const Place&, const CellSizes& sizes, const Backward& pass) {
  using A = compute_t<T>;
  const int64_t states = sizes.states;
  const Matrix<T> input(pass.gates), output(pass.gates, states), candidate(pass.gates, 2 * states);
  const Matrix<T> cell(pass.new_cell), of_h(pass.grad_h), of_cell(pass.grad_cell), d_cell(pass.d_old_cell);
  const Matrix<T> d_gate[kGates] = {
      Matrix<T>(pass.d_gates), Matrix<T>(pass.d_gates, states), Matrix<T>(pass.d_gates, 2 * states)};
  for_each_vector<kLanes<A>>(sizes, [&](auto... at) {
    const auto d = backward<VectorMath<A>>(input.load(at...), output.load(at...), candidate.load(at...),
        cell.load(at...), of_h.load(at...), of_cell.load(at...));
    for (int g = 0; g < kGates; ++g) d_gate[g].store(d.gate[g], at...);
    d_cell.store(d.old_cell, at...);
  });
}

bool is_small(const CellSizes&, ScalarType) { return false; }
template <typename T> constexpr auto forward_small = forward_elements<T>;
template <typename T> constexpr auto backward_small = backward_elements<T>;

}  // namespace
}  // namespace cem_tetris::lltm
