// The loop for the CPU, and the schemas of the operators.
#include "my_sigmoid.h"

namespace {

template <typename T, typename F, typename... In>
void map(F f, const Tensor& out, const In&... in) {
  T* to = static_cast<T*>(out.mutable_data_ptr());
  constexpr int64_t kGrain = 32768;  // the least number of elements that is worth a thread
  torch::stable::parallel_for(0, out.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      to[i] = f(static_cast<const T*>(in.const_data_ptr())[i]...);
  });
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(tutorial, m) {
  m.def("my_sigmoid(Tensor x) -> Tensor");
  m.def("my_sigmoid_backward(Tensor grad, Tensor y) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(tutorial, CPU, m) {
  m.impl("my_sigmoid", TORCH_BOX(&forward));
  m.impl("my_sigmoid_backward", TORCH_BOX(&backward));
}
