// The LLTM cell on the CPU. Small cells are computed in one go (small.h); for the others torch's BLAS makes
// the gates, and one pass over them makes the cell: bound by the bytes of the gates, which it reads once.

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "host.h"
#include "product.h"
#include "small.h"
#include "vector_math.h"

namespace cem_tetris::lltm {
namespace {

// Measured: up to here a cell is faster in one go than through the BLAS.
constexpr int64_t kSmallMultiplyAdds = int64_t{1} << 22;
constexpr int64_t kSmallWeights = int64_t{1} << 20;
// The least work that is worth waking another thread for.
constexpr int64_t kGrainMultiplyAdds = int64_t{1} << 19;
constexpr int64_t kGrainElements = 4096;

template <typename T>
using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;

// A matrix of batch rows and states with any strides, read and written a vector at a time.
template <typename T>
struct Matrix {
  using A = Accumulator<T>;
  static constexpr int kWide = kLanes<A>;

  T* data = nullptr;  // none: every element is 0
  int64_t row_stride = 0;
  int64_t column_stride = 0;

  Matrix() = default;
  explicit Matrix(const std::optional<Tensor>& tensor, int64_t first_column = 0) {
    if (!tensor) return;
    row_stride = tensor->stride(0);
    column_stride = tensor->stride(1);
    data = const_cast<T*>(lltm::data<T>(*tensor)) + first_column * column_stride;
  }

  Vector<A> load(int64_t row, int64_t column, int lanes) const {
    Vector<A> values = {};
    if (data == nullptr) return values;
    const T* from = data + row * row_stride + column * column_stride;
    if constexpr (std::is_same_v<T, A>) {
      if (column_stride == 1 && lanes == kWide) {
        std::memcpy(&values, from, sizeof values);
        return values;
      }
    }
    for (int lane = 0; lane < lanes; ++lane) values[lane] = static_cast<A>(from[lane * column_stride]);
    return values;
  }

  void store(const Vector<A>& values, int64_t row, int64_t column, int lanes) const {
    T* to = data + row * row_stride + column;
    if constexpr (std::is_same_v<T, A>) {
      if (lanes == kWide) {
        std::memcpy(to, &values, sizeof values);
        return;
      }
    }
    for (int lane = 0; lane < lanes; ++lane) to[lane] = static_cast<T>(values[lane]);
  }
};

// Calls f(row, column, lanes) for every vector of a batch x states matrix, on as many threads as it is worth.
template <int kWide, class F>
void for_each_vector(const Sizes& sizes, const F& f) {
  const int64_t in_row = (sizes.states + kWide - 1) / kWide;
  const auto work = [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t column = i % in_row * kWide;
      f(i / in_row, column, static_cast<int>(std::min<int64_t>(kWide, sizes.states - column)));
    }
  };
  torch::stable::parallel_for(0, sizes.batch * in_row, kGrainElements / kWide, work);
}

template <typename T>
void forward_elements(const Sizes& sizes, const Tensor& gates, const Tensor& old_cell, const Tensor& new_h,
                      const Tensor& new_cell) {
  using A = Accumulator<T>;
  const Matrix<T> input(gates), output(gates, sizes.states), candidate(gates, 2 * sizes.states);
  const Matrix<T> before(old_cell), h(new_h), cell(new_cell);
  for_each_vector<kLanes<A>>(sizes, [&](int64_t row, int64_t column, int lanes) {
    const auto next =
        forward<VectorMath<A>>(input.load(row, column, lanes), output.load(row, column, lanes),
                               candidate.load(row, column, lanes), before.load(row, column, lanes));
    h.store(next.h, row, column, lanes);
    cell.store(next.cell, row, column, lanes);
  });
}

template <typename T>
void backward_elements(const Sizes& sizes, const std::optional<Tensor>& grad_h,
                       const std::optional<Tensor>& grad_cell, const Tensor& new_cell, const Tensor& gates,
                       const Tensor& d_gates, const Tensor& d_old_cell) {
  using A = Accumulator<T>;
  const Matrix<T> input(gates), output(gates, sizes.states), candidate(gates, 2 * sizes.states);
  const Matrix<T> cell(new_cell), of_h(grad_h), of_cell(grad_cell), d_cell(d_old_cell);
  const Matrix<T> d_gate[kGates] = {Matrix<T>(d_gates), Matrix<T>(d_gates, sizes.states),
                                    Matrix<T>(d_gates, 2 * sizes.states)};
  for_each_vector<kLanes<A>>(sizes, [&](int64_t row, int64_t column, int lanes) {
    const auto d = backward<VectorMath<A>>(input.load(row, column, lanes), output.load(row, column, lanes),
                                           candidate.load(row, column, lanes), cell.load(row, column, lanes),
                                           of_h.load(row, column, lanes), of_cell.load(row, column, lanes));
    for (int g = 0; g < kGates; ++g) d_gate[g].store(d.gate[g], row, column, lanes);
    d_cell.store(d.old_cell, row, column, lanes);
  });
}

// [old_h, input], for less than torch's concatenation costs.
template <typename A>
Tensor join(const Sizes& sizes, const Tensor& input, const Tensor& old_h) {
  const Tensor x = dense(input), h = dense(old_h);
  const Tensor joined = empty(input, {sizes.batch, sizes.columns()});
  const A *from_h = data<A>(h), *from_x = data<A>(x);
  A* to = mutable_data<A>(joined);
  for (int64_t row = 0; row < sizes.batch; ++row) {
    to = std::copy_n(from_h + row * sizes.states, sizes.states, to);
    to = std::copy_n(from_x + row * sizes.inputs, sizes.inputs, to);
  }
  return joined;
}

template <typename A>
void forward_small(const Sizes& sizes, const Tensor& input, const Tensor& weights, const Tensor& bias,
                   const Tensor& old_h, const Tensor& old_cell, const Tensor& new_h, const Tensor& new_cell,
                   const Tensor& gates) {
  const Tensor joined = join<A>(sizes, input, old_h);
  const Tensor w = dense(weights), b = dense(bias), c = dense(old_cell);
  const SmallCell<A> cell{sizes.batch,
                          sizes.columns(),
                          sizes.states,
                          data<A>(joined),
                          data<A>(w),
                          data<A>(b),
                          data<A>(c),
                          mutable_data<A>(new_h),
                          mutable_data<A>(new_cell),
                          mutable_data<A>(gates)};
  const int64_t blocks = (sizes.states + kLanes<A> - 1) / kLanes<A>;
  const int64_t work = sizes.multiply_adds() / blocks + 1;
  torch::stable::parallel_for(0, blocks, kGrainMultiplyAdds / work + 1,
                              [&](int64_t first, int64_t last) { cell.forward_blocks(first, last); });
}

// Computes a product on as many threads as it is worth.
template <typename A>
void multiply(const Product<A>& product) {
  const int64_t work = product.columns * product.depth + 1;
  torch::stable::parallel_for(0, product.rows, kGrainMultiplyAdds / work + 1,
                              [&](int64_t first, int64_t last) { product.compute_rows(first, last); });
}

// What `products` computes, without the BLAS.
template <typename A>
Backward products_small(const Sizes& sizes, const Tensor& d_gates, const Tensor& d_old_cell,
                        const Tensor& input, const Tensor& weights, const Tensor& old_h,
                        const Wanted& wanted) {
  const Tensor w = dense(weights);
  const auto result = [&](bool is_wanted, const Tensor& like) {
    return is_wanted ? empty_as(like) : nothing(like);
  };
  const Tensor d_input = result(wanted.input, input), d_old_h = result(wanted.old_h, old_h);
  const Tensor d_weights = result(wanted.parameters, w);
  const Tensor d_bias = empty(input, {wanted.parameters ? sizes.gates() : 0});
  const int64_t rows = sizes.batch, gates = sizes.gates(), columns = sizes.columns();
  const A* d = data<A>(d_gates);
  if (wanted.parameters) {
    const Tensor joined = join<A>(sizes, input, old_h);
    A *to = mutable_data<A>(d_weights), *sum = mutable_data<A>(d_bias);
    multiply<A>({gates, columns, rows, d, 1, gates, data<A>(joined), columns, to, columns});
    std::fill_n(sum, gates, A(0));
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t gate = 0; gate < gates; ++gate) sum[gate] += d[row * gates + gate];
    }
  }
  if (wanted.old_h) {
    A* to = mutable_data<A>(d_old_h);
    multiply<A>({rows, sizes.states, gates, d, gates, 1, data<A>(w), columns, to, sizes.states});
  }
  if (wanted.input) {
    A* to = mutable_data<A>(d_input);
    const A* from = data<A>(w) + sizes.states;
    multiply<A>({rows, sizes.inputs, gates, d, gates, 1, from, columns, to, sizes.inputs});
  }
  return {d_input, d_weights, d_bias, d_old_h, d_old_cell};
}

bool is_small(const Sizes& sizes, ScalarType type) {
  return (type == ScalarType::Float || type == ScalarType::Double) &&
         sizes.multiply_adds() <= kSmallMultiplyAdds && sizes.gates() * sizes.columns() <= kSmallWeights;
}

Forward forward_cpu(const Tensor& input, const Tensor& weights, const Tensor& bias, const Tensor& old_h,
                    const Tensor& old_cell) {
  const Sizes sizes = check_cell(input, weights, bias, old_h, old_cell);
  const Tensor new_h = empty(input, {sizes.batch, sizes.states});
  const Tensor new_cell = empty(input, {sizes.batch, sizes.states});
  const bool small = is_small(sizes, input.scalar_type());
  const Tensor gates =
      small ? empty(input, {sizes.batch, sizes.gates()}) : linear(input, weights, bias, old_h);
  if (new_h.numel() == 0) return {new_h, new_cell, gates};
  with_type(input.scalar_type(), [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (std::is_same_v<T, Accumulator<T>>) {
      if (small) {
        return forward_small<T>(sizes, input, weights, bias, old_h, old_cell, new_h, new_cell, gates);
      }
    }
    forward_elements<T>(sizes, gates, old_cell, new_h, new_cell);
  });
  return {new_h, new_cell, gates};
}

Backward backward_cpu(const std::optional<Tensor>& grad_h, const std::optional<Tensor>& grad_cell,
                      const Tensor& input, const Tensor& weights, const Tensor& old_h, const Tensor& new_cell,
                      const Tensor& gates, bool of_input, bool of_parameters, bool of_old_h) {
  const Sizes sizes = check_saved(grad_h, grad_cell, input, weights, old_h, new_cell, gates);
  const Tensor d_gates = empty(input, {sizes.batch, sizes.gates()});
  const Tensor d_old_cell = empty(input, {sizes.batch, sizes.states});
  const Wanted wanted{of_input, of_parameters, of_old_h};
  const bool small = is_small(sizes, input.scalar_type());
  std::optional<Backward> result;
  with_type(input.scalar_type(), [&](auto type) {
    using T = typename decltype(type)::type;
    backward_elements<T>(sizes, grad_h, grad_cell, new_cell, gates, d_gates, d_old_cell);
    if constexpr (std::is_same_v<T, Accumulator<T>>) {
      if (small) result = products_small<T>(sizes, d_gates, d_old_cell, input, weights, old_h, wanted);
    }
  });
  return small ? *result : products(d_gates, d_old_cell, input, weights, old_h, wanted);
}

}  // namespace
}  // namespace cem_tetris::lltm

// `lltm` has an autograd formula (op.py); `lltm_forward` is the same function without one.
STABLE_TORCH_LIBRARY_FRAGMENT(cem_tetris, m) {
  m.def(
      "lltm(Tensor input, Tensor weights, Tensor bias, Tensor old_h, Tensor old_cell) -> "
      "(Tensor new_h, Tensor new_cell, Tensor gates)");
  m.def(
      "lltm_forward(Tensor input, Tensor weights, Tensor bias, Tensor old_h, Tensor old_cell) -> "
      "(Tensor new_h, Tensor new_cell, Tensor gates)");
  m.def(
      "lltm_backward(Tensor? grad_h, Tensor? grad_cell, Tensor input, Tensor weights, Tensor old_h, "
      "Tensor new_cell, Tensor gates, bool of_input, bool of_parameters, bool of_old_h) -> "
      "(Tensor d_input, Tensor d_weights, Tensor d_bias, Tensor d_old_h, Tensor d_old_cell)");
}

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CPU, m) {
  m.impl("lltm", TORCH_BOX(&cem_tetris::lltm::forward_cpu));
  m.impl("lltm_forward", TORCH_BOX(&cem_tetris::lltm::forward_cpu));
  m.impl("lltm_backward", TORCH_BOX(&cem_tetris::lltm::backward_cpu));
}
