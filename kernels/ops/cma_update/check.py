"""What ``python -m kernels check cma_update`` compares: one update of a search that has just begun."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernels.ops.cem_update.check import Updated, first, inputs
from kernels.ops.check import Case
from kernels.ops.cma_update import cma_update, cma_update_reference


def _first(update: Callable[..., Updated]) -> Callable[..., Updated]:
    """Return an update as a function of floating tensors alone; weights fall from 0.2 to -0.4."""

    def with_paths(
        fitness: Tensor, candidates: Tensor, distribution: Tensor, *rest: Any, **given: Any
    ) -> Any:
        weights = torch.linspace(0.2, -0.4, len(fitness), dtype=torch.float64, device=fitness.device)
        *state, num_elites = rest
        state += [torch.diag_embed(distribution[1]), 0 * distribution[:2]]
        given |= {"weights": weights, "rates": (5.0, 0.3, 1.5, 0.2, 0.02, 0.1, 2.0)}
        return update(fitness, candidates, distribution, *state, num_elites, **given)

    return first(with_paths)


CASES = {
    "cma_update": Case(
        reference=_first(cma_update_reference),
        operator=_first(cma_update),
        inputs=inputs,
        small=(10, 3),
        large=(300, 20),
        arguments={"num_elites": 3},
        gradients=False,
        prototype=False,
    )
}
