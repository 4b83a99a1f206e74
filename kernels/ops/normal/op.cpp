// The schemas of the sampler, and its CPU side.

#include "op.h"

#include <string>

STABLE_TORCH_LIBRARY_FRAGMENT(cem_tetris, m) {
  const std::string arguments =
      "(Tensor mean, Tensor std, SymInt num_samples, SymInt seed, SymInt generation, Tensor? seeds, "
      "Tensor? generations, bool shared_noise, bool antithetic, bool dim_first, ScalarType dtype, "
      "Tensor? low, Tensor? high) -> Tensor";
  m.def(("sample_normal" + arguments).c_str());
  // The same without a derivative: a formula for it puts Python into every call, some 40 us.
  m.def(("sample_normal_no_grad" + arguments).c_str());
  // The same again with what a plain call needs, of seeds below 2^63, and with what an optimiser needs, from
  // rows (..., R, d) of which the first two are mean and standard deviation, as (..., N, d): every argument
  // of a schema, passed or not, costs the host some 60 ns, and a view for one a microsecond.
  m.def(
      "sample_normal_seeded(Tensor mean, Tensor std, SymInt num_samples, SymInt seed, SymInt generation=0, "
      "bool dim_first=True) -> Tensor");
  m.def(
      "sample_normal_rows(Tensor rows, SymInt num_samples, Tensor seed, Tensor generation, Tensor? low=None, "
      "Tensor? high=None) -> Tensor");
  m.def(
      "sample_normal_backward(Tensor grad, SymInt seed, SymInt generation, Tensor? seeds, "
      "Tensor? generations, bool shared_noise, bool antithetic, bool dim_first) -> (Tensor, Tensor)");
}
