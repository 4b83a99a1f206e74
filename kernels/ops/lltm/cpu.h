// The LLTM cell on the CPU. A pass over the elements is bound by the bytes of the gates, which
// it reads once.
#pragma once

#include "cell.h"
#include "small.h"
#include "vector_math.h"

namespace cem_tetris::lltm {
namespace {

// The largest small cell, as measured: it is faster in one go than through the BLAS.
constexpr int64_t kSmallMultiplyAdds = int64_t{1} << 22;
constexpr int64_t kSmallWeights = int64_t{1} << 20;
// The least work that is worth waking another thread for.
constexpr int64_t kGrainMultiplyAdds = int64_t{1} << 19;
constexpr int64_t kGrainElements = 4096;

// A matrix of batch rows and states with any strides, read and written a vector at a time.
template <typename T>
struct Matrix {
  using A = compute_t<T>;

  T* data = nullptr;  // none: every element is 0
  int64_t row_stride = 0;
  int64_t column_stride = 0;

  explicit Matrix(const std::optional<Tensor>& tensor, int64_t first_column = 0) {
    if (!tensor) return;
    row_stride = tensor->stride(0);
    column_stride = tensor->stride(1);
    data = const_cast<T*>(const_data<T>(*tensor)) + first_column * column_stride;
  }

  // Returns `lanes` numbers of a row, from `column` on, in the type of computation; the other
  // lanes are 0.
  Vector<A> load(int64_t row, int64_t column, int lanes) const {
    Vector<A> values = {};
    if (!data) return values;
    const T* from = data + row * row_stride + column * column_stride;
    if constexpr (std::is_same_v<T, A>) {
      if (column_stride == 1) return load_lanes(from, lanes);
    }
    for (int lane = 0; lane < lanes; ++lane) values[lane] = A(from[lane * column_stride]);
    return values;
  }

  void store(const Vector<A>& values, int64_t row, int64_t column, int lanes) const {
    T* to = data + row * row_stride + column;
    if constexpr (std::is_same_v<T, A>) {
      store_lanes(values, to, lanes);
    } else {
      for (int lane = 0; lane < lanes; ++lane) to[lane] = T(values[lane]);
    }
  }
};

// Calls f(row, column, lanes) for every vector of kWide neighbouring states in a batch x states
// matrix; `lanes` says how many of them exist, fewer than kWide at the end of a row. The
// vectors are shared by as many threads as the work is worth.
template <int kWide, class F>
void for_each_vector(const CellSizes& sizes, const F& f) {
  int64_t row_vectors = (sizes.states + kWide - 1) / kWide;
  auto work = [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      int64_t column = i % row_vectors * kWide;
      f(i / row_vectors, column, int(std::min<int64_t>(kWide, sizes.states - column)));
    }
  };
  parallel_for(0, sizes.batch * row_vectors, kGrainElements / kWide, work);
}

// The forward pass of the LLTM cell over its elements: computes the new h and cell, batch x
// states, from the sums that enter the gates, batch x (3 * states), which the BLAS has
// computed. The states of the input gate come first, then those of the output gate and of the
// candidate. A step computes a vector of neighbouring states; `position` is its row, column and
// number of lanes.
template <typename T>
void forward_elements(const CellSizes& sizes, const Forward& pass) {
  using A = compute_t<T>;
  int64_t states = sizes.states;
  Matrix<T> input(pass.gates, kInput * states);
  Matrix<T> output(pass.gates, kOutput * states);
  Matrix<T> candidate(pass.gates, kCandidate * states);
  Matrix<T> old_cell(pass.old_cell);
  Matrix<T> h(pass.new_h);
  Matrix<T> cell(pass.new_cell);
  for_each_vector<kLanes<A>>(sizes, [&](auto... position) {
    const auto next = forward<VectorMath<A>>(input.load(position...), output.load(position...),
        candidate.load(position...), old_cell.load(position...));
    h.store(next.h, position...);
    cell.store(next.cell, position...);
  });
}

// The backward pass of the LLTM cell over its elements: computes the gradients of the sums that
// enter the gates (d_gates, batch x (3 * states)) and of the old cell (batch x states), from
// the gradients of the new h and cell. The columns of the input gate come first, then those of
// the output gate and of the candidate. A step computes a vector of neighbouring states;
// `position` is its row, column and number of lanes.
template <typename T>
void backward_elements(const CellSizes& sizes, const Backward& pass) {
  using A = compute_t<T>;
  int64_t states = sizes.states;
  Matrix<T> input(pass.gates, kInput * states);
  Matrix<T> output(pass.gates, kOutput * states);
  Matrix<T> candidate(pass.gates, kCandidate * states);
  Matrix<T> cell(pass.new_cell);
  Matrix<T> grad_h(pass.grad_h);
  Matrix<T> grad_cell(pass.grad_cell);
  Matrix<T> d_cell(pass.d_old_cell);
  const Matrix<T> d_gate[kGates] = {Matrix<T>(pass.d_gates, kInput * states),
      Matrix<T>(pass.d_gates, kOutput * states), Matrix<T>(pass.d_gates, kCandidate * states)};
  for_each_vector<kLanes<A>>(sizes, [&](auto... position) {
    const auto d = backward<VectorMath<A>>(input.load(position...), output.load(position...),
        candidate.load(position...), cell.load(position...), grad_h.load(position...),
        grad_cell.load(position...));
    for (int g = 0; g < kGates; ++g) d_gate[g].store(d.gate[g], position...);
    d_cell.store(d.old_cell, position...);
  });
}

// Whether a cell is computed in one go. The BLAS makes the products of 16-bit types of any
// size.
bool is_small(const CellSizes& sizes, ScalarType type) {
  return (type == ScalarType::Float || type == ScalarType::Double) &&
         sizes.multiply_adds() <= kSmallMultiplyAdds &&
         sizes.gates() * sizes.columns() <= kSmallWeights;
}

// Returns [old_h, input], for less than torch's concatenation costs; both are contiguous.
template <typename A>
Tensor join(const CellSizes& sizes, const Tensor& input, const Tensor& old_h) {
  Tensor joined = empty(input, {sizes.batch, sizes.columns()});
  const A *from_h = const_data<A>(old_h), *from_x = const_data<A>(input);
  A* to = mutable_data<A>(joined);
  for (int64_t row = 0; row < sizes.batch; ++row) {
    to = std::copy_n(from_h + row * sizes.states, sizes.states, to);
    to = std::copy_n(from_x + row * sizes.inputs, sizes.inputs, to);
  }
  return joined;
}

// Calls f(first, last) for ranges that together cover `count` items, on as many threads as the
// work is worth. multiply_adds: the work of an item.
template <class F>
void share(int64_t count, int64_t multiply_adds, const F& f) {
  parallel_for(0, count, kGrainMultiplyAdds / (multiply_adds + 1) + 1, f);
}

// The forward pass of a small LLTM cell in one go: the products of X = [old_h, input] with the
// weights, and the new h and cell that follow from them. Threads share the blocks of
// neighbouring states. Small cells have float32 or float64 numbers; for the 16-bit types this
// is never called.
template <typename T>
void forward_small(const CellSizes& sizes, const Forward& pass) {
  if constexpr (std::is_same_v<T, compute_t<T>>) {
    Tensor joined = join<T>(sizes, pass.input, pass.old_h);
    const SmallCell<T> cell{sizes.batch, sizes.columns(), sizes.states, const_data<T>(joined),
        const_data<T>(pass.weights), const_data<T>(pass.bias), const_data<T>(pass.old_cell),
        mutable_data<T>(pass.new_h), mutable_data<T>(pass.new_cell),
        mutable_data<T>(pass.gates)};
    int64_t blocks = divide_up(sizes.states, kLanes<T>);
    share(blocks, sizes.multiply_adds() / blocks,
        [&](int64_t first, int64_t last) { cell.forward_blocks(first, last); });
  }
}

// The backward pass of a small LLTM cell: first the gradients of the elements (gates and old
// cell), then those of the parameters, of old_h and of the input, each only if it is wanted.
// These are products with d, the gradients of the sums that enter the gates, batch x gates; the
// weights are gates x columns, and X = [old_h, input] is batch x columns. Small cells have
// float32 or float64 numbers; for the 16-bit types this is never called.
//
// A Product{rows, columns, depth, left, left_row, left_depth, right, right_depth, result,
// result_row} is result = left * right, where the names after `left` are its strides.
template <typename T>
void backward_small(const CellSizes& sizes, const Backward& pass) {
  backward_elements<T>(sizes, pass);
  if constexpr (std::is_same_v<T, compute_t<T>>) {
    int64_t rows = sizes.batch;
    int64_t gates = sizes.gates();
    int64_t columns = sizes.columns();
    const T* d = const_data<T>(pass.d_gates);
    const T* weights = const_data<T>(pass.weights);
    auto multiply = [](const Product<T>& product) {
      share(product.rows, product.columns * product.depth,
          [&](int64_t first, int64_t last) { product.compute_rows(first, last); });
    };
    // The gradient of the weights is d^T X, and that of the bias the sum of d's rows.
    if (pass.wants_parameters) {
      Tensor joined = join<T>(sizes, pass.input, pass.old_h);
      T* d_weights = mutable_data<T>(pass.d_weights);
      T* d_bias = mutable_data<T>(pass.d_bias);
      multiply({gates, columns, rows, d, 1, gates, const_data<T>(joined), columns, d_weights,
          columns});
      std::fill_n(d_bias, gates, T(0));
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t gate = 0; gate < gates; ++gate) d_bias[gate] += d[row * gates + gate];
      }
    }
    // Writes d times the weights' columns `first` to `first` + `count` - 1, which belong to
    // old_h (the first `states` columns) or to the input.
    auto multiply_columns = [&](const Tensor& result, int64_t first, int64_t count) {
      multiply({rows, count, gates, d, gates, 1, weights + first, columns,
          mutable_data<T>(result), count});
    };
    if (pass.wants_old_h) multiply_columns(pass.d_old_h, 0, sizes.states);
    if (pass.wants_input) multiply_columns(pass.d_input, sizes.states, sizes.inputs);
  }
}

}  // namespace
}  // namespace cem_tetris::lltm
