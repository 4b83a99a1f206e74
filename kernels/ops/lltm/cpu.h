// The LLTM cell on the CPU. The memory bandwidth limits the speed of a pass over the elements,
// which reads the gates once.
#pragma once

#include "cell.h"
#include "small.h"
#include "vector_math.h"

namespace cem_tetris::lltm {
namespace {

// The largest small cell. Up to this size, the functions of small.h were measured to be faster
// than the BLAS.
constexpr int64_t kSmallMultiplyAdds = int64_t{1} << 22;
constexpr int64_t kSmallWeights = int64_t{1} << 20;
// The least work for which it is worth waking another thread.
constexpr int64_t kGrainMultiplyAdds = int64_t{1} << 19;
constexpr int64_t kGrainElements = 4096;

// A matrix of batch rows and states with any strides, which is read and written one vector at a
// time.
template <typename T>
struct Matrix {
  using A = compute_t<T>;

  T* data = nullptr;  // null if every element is 0
  int64_t row_stride = 0;
  int64_t column_stride = 0;

  explicit Matrix(const std::optional<Tensor>& tensor, int64_t first_column = 0) {
    if (!tensor) return;
    row_stride = tensor->stride(0);
    column_stride = tensor->stride(1);
    data = const_cast<T*>(const_data<T>(*tensor)) + first_column * column_stride;
  }

  // Returns `lanes` numbers of a row, from column `column` on, in the type of computation A.
  // The other lanes are 0.
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

  // Stores the first `lanes` numbers to a row, whose numbers are neighbours in memory.
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
// matrix. The vector begins at state `column`. Its first `lanes` states exist, which are fewer
// than kWide at the end of a row. The CPU threads share the vectors; the less work there is,
// the fewer threads take part.
template <int kWide, class F>
void for_each_vector(const CellSizes& sizes, const F& f) {
  int64_t row_vectors = divide_up(sizes.states, kWide);
  auto work = [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      int64_t column = i % row_vectors * kWide;
      f(i / row_vectors, column, int(std::min<int64_t>(kWide, sizes.states - column)));
    }
  };
  parallel_for(0, sizes.batch * row_vectors, kGrainElements / kWide, work);
}

// The forward pass of the LLTM cell over its elements. It computes the new h and cell, batch x
// states, from the sums that enter the gates, batch x (3 * states). The BLAS has computed these
// sums. Their first `states` columns belong to the input gate, the next ones to the output
// gate, and the last ones to the candidate.
//
// Matrix<T>(tensor, c) is a view of the columns of a tensor from column c on, or from column 0
// on if c is left out. for_each_vector() calls the lambda for every vector of neighbouring
// states. `position` stands for three arguments: the vector's row, its first column and its
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

// The backward pass of the LLTM cell over its elements. From the gradients of the new h and
// cell, it computes the gradients of the sums that enter the gates (d_gates, batch x (3 *
// states)) and of the old cell (batch x states). The first `states` columns of d_gates belong
// to the input gate, the next ones to the output gate, and the last ones to the candidate.
//
// Matrix<T>(tensor, c) is a view of the columns of a tensor from column c on, or from column 0
// on if c is left out. for_each_vector() calls the lambda for every vector of neighbouring
// states. `position` stands for three arguments: the vector's row, its first column and its
// number of lanes.
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
    const auto gradients = backward<VectorMath<A>>(input.load(position...),
        output.load(position...), candidate.load(position...), cell.load(position...),
        grad_h.load(position...), grad_cell.load(position...));
    for (int g = 0; g < kGates; ++g) d_gate[g].store(gradients.gate[g], position...);
    d_cell.store(gradients.old_cell, position...);
  });
}

// Returns whether a cell is small, so that it is computed without the BLAS. Cells of 16-bit
// types use the BLAS at any size.
bool is_small(const CellSizes& sizes, ScalarType type) {
  return (type == ScalarType::Float || type == ScalarType::Double) &&
         sizes.multiply_adds() <= kSmallMultiplyAdds &&
         sizes.gates() * sizes.columns() <= kSmallWeights;
}

// Returns the matrix [old_h, input] in less time than torch's concatenation takes. Both
// arguments are contiguous.
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

// Calls f(first, last) for ranges of items that together cover 0 to `count` - 1, on several
// threads if there is enough work. multiply_adds is the work of one item.
template <class F>
void split_work(int64_t count, int64_t multiply_adds, const F& f) {
  parallel_for(0, count, kGrainMultiplyAdds / (multiply_adds + 1) + 1, f);
}

// The forward pass of a small LLTM cell. It multiplies X = [old_h, input] with the weights, and
// computes the new h and cell from the products. The CPU threads share the states, a block at a
// time. A block is as many neighbouring states as a vector register has numbers.
//
// A cell of 16-bit numbers is never small, see is_small(). So nothing has to be compiled for
// these types T, whose type of computation compute_t<T> is float instead of T.
template <typename T>
void forward_small(const CellSizes& sizes, const Forward& pass) {
  if constexpr (std::is_same_v<T, compute_t<T>>) {
    Tensor joined = join<T>(sizes, pass.input, pass.old_h);
    const SmallCell<T> cell{
        sizes.batch,
        sizes.columns(),
        sizes.states,
        /*joined=*/const_data<T>(joined),
        /*weights=*/const_data<T>(pass.weights),
        /*bias=*/const_data<T>(pass.bias),
        /*old_cell=*/const_data<T>(pass.old_cell),
        /*new_h=*/mutable_data<T>(pass.new_h),
        /*new_cell=*/mutable_data<T>(pass.new_cell),
        /*gates=*/mutable_data<T>(pass.gates),
    };
    int64_t blocks = divide_up(sizes.states, kLanes<T>);
    split_work(blocks, sizes.multiply_adds() / blocks,
        [&](int64_t first, int64_t last) { cell.forward_blocks(first, last); });
  }
}

// The backward pass of a small LLTM cell. First it computes the gradients of the sums that
// enter the gates (d_gates, batch x gates) and of the old cell. Then it computes the gradients
// of the parameters, of old_h and of the input, if they are wanted, as products with d_gates.
// The weights are gates x columns, and X = [old_h, input] is batch x columns.
//
// A Product describes the matrix product result = left * right, and the CPU threads share its
// rows. `left` is rows x depth, and `right` is depth x columns. `left` has two strides, so that
// it can be the transpose of a matrix in memory.
//
// A cell of 16-bit numbers is never small, see is_small(). So nothing has to be compiled for
// these types T, whose type of computation compute_t<T> is float instead of T.
template <typename T>
void backward_small(const CellSizes& sizes, const Backward& pass) {
  backward_elements<T>(sizes, pass);
  if constexpr (std::is_same_v<T, compute_t<T>>) {
    int64_t batch = sizes.batch;
    int64_t gates = sizes.gates();
    int64_t columns = sizes.columns();
    const T* d_gates = const_data<T>(pass.d_gates);
    const T* weights = const_data<T>(pass.weights);
    auto multiply = [](const Product<T>& product) {
      split_work(product.rows, product.columns * product.depth,
          [&](int64_t first, int64_t last) { product.compute_rows(first, last); });
    };
    // The gradient of the weights is d_gates^T X. The gradient of the bias is the sum of the
    // rows of d_gates.
    if (pass.wants_parameters) {
      Tensor joined = join<T>(sizes, pass.input, pass.old_h);
      T* d_weights = mutable_data<T>(pass.d_weights);
      T* d_bias = mutable_data<T>(pass.d_bias);
      multiply({/*rows=*/gates, /*columns=*/columns, /*depth=*/batch, /*left=*/d_gates,
          /*left_row_stride=*/1, /*left_depth_stride=*/gates, /*right=*/const_data<T>(joined),
          /*right_row_stride=*/columns, /*result=*/d_weights, /*result_row_stride=*/columns});
      std::fill_n(d_bias, gates, T(0));
      for (int64_t row = 0; row < batch; ++row) {
        for (int64_t gate = 0; gate < gates; ++gate)
          d_bias[gate] += d_gates[row * gates + gate];
      }
    }
    // Writes d_gates times the columns `first` to `first` + `count` - 1 of the weights. The
    // first `states` columns belong to old_h, the others to the input.
    auto multiply_columns = [&](const Tensor& result, int64_t first, int64_t count) {
      multiply({/*rows=*/batch, /*columns=*/count, /*depth=*/gates, /*left=*/d_gates,
          /*left_row_stride=*/gates, /*left_depth_stride=*/1, /*right=*/weights + first,
          /*right_row_stride=*/columns, /*result=*/mutable_data<T>(result),
          /*result_row_stride=*/count});
    };
    if (pass.wants_old_h) multiply_columns(pass.d_old_h, /*first=*/0, sizes.states);
    if (pass.wants_input) multiply_columns(pass.d_input, /*first=*/sizes.states, sizes.inputs);
  }
}

}  // namespace
}  // namespace cem_tetris::lltm
