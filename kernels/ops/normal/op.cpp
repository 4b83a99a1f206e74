// The schemas of the sampler, and its CPU side.

#include "op.h"

#include <string>

STABLE_TORCH_LIBRARY_FRAGMENT(cem_tetris, m) {
  const std::string arguments =
      "(Tensor mean, Tensor std, SymInt num_samples, SymInt seed, SymInt generation, Tensor? seeds, "
      "Tensor? generations, bool shared_noise, bool antithetic, bool dim_first, ScalarType dtype, "
      "Tensor? low, Tensor? high) -> Tensor";
  m.def(("sample_normal" + arguments).c_str());
  // Without a derivative, whose formula puts Python into every call, some 40 us.
  m.def(("sample_normal_no_grad" + arguments).c_str());
  // What a plain call needs, of seeds below 2^63, and what an optimiser needs, of rows (..., R, d) as (...,
  // N, d): an argument of a schema costs the host some 60 ns, passed or not, and a view for one a
  // microsecond.
  m.def("sample_normal_seeded(Tensor mean, Tensor std, SymInt num_samples, SymInt seed, SymInt generation=0, "
        "bool dim_first=True) -> Tensor");
  m.def(
      "sample_normal_rows(Tensor rows, SymInt num_samples, Tensor seed, Tensor generation, Tensor? low=None, "
      "Tensor? high=None) -> Tensor");
}
