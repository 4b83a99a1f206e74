"""What ``python -m kernels check cma_update`` compares: one update of a search that has just begun."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from kernels.ops.check import Case
from kernels.ops.cma_update import cma_update, cma_update_reference

Updated = tuple[Tensor, ...]


def _first(update: Callable[..., Updated]) -> Callable[..., Updated]:
    """Return an update as a function of floating tensors alone; weights fall from 0.2 to -0.4."""

    def first(fitness: Tensor, candidates: Tensor, distribution: Tensor) -> Updated:
        population, factor = fitness.shape[-1], torch.diag_embed(distribution[1])
        record = torch.tensor([math.nan] * 4 + [0.0], dtype=torch.float64, device=fitness.device)
        generation = torch.zeros((), dtype=torch.int64, device=fitness.device)
        weights = torch.linspace(0.2, -0.4, population, dtype=torch.float64, device=fitness.device)
        return update(
            *(fitness, candidates, distribution, record, generation, factor, 0 * distribution[:2]),
            population // 3,
            maximize=False,
            rates=(5.0, 0.3, 1.5, 0.2, 0.02, 0.1, 2.0),
            weights=weights,
        )

    return first


def _inputs(generator: Generator, population: int, dimensions: int) -> tuple[Tensor, ...]:
    candidates = torch.randn(population, dimensions, generator=generator, dtype=torch.float64)
    return candidates.square().sum(dim=1), candidates, torch.ones(4, dimensions, dtype=torch.float64)


CASES = {
    "cma_update": Case(
        reference=_first(cma_update_reference),
        operator=_first(cma_update),
        inputs=_inputs,
        small=(10, 3),
        large=(300, 20),
        gradients=False,
        prototype=False,
    )
}
