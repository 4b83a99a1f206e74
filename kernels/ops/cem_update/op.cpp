// The schema of the update, and its CPU side.

#include "op.h"

STABLE_TORCH_LIBRARY_FRAGMENT(cem_tetris, m) {
  m.def(
      "cem_update(Tensor fitness, Tensor candidates, Tensor distribution, Tensor record, Tensor generation, "
      "Tensor? extra_variance, Tensor? weights, Tensor? std_floor, SymInt num_elites, bool maximize, "
      "int variance_about, float smoothing, float std_smoothing, float mean_averaging, bool ranked) "
      "-> (Tensor, Tensor, Tensor, Tensor)");
}
