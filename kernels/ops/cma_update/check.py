"""What ``python -m kernels check cma_update`` compares: one update of a search that has just begun."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from kernels.ops.check import Case
from kernels.ops.cma_update import cma_update, cma_update_reference

Updated = tuple[Tensor, ...]
RATES = (5.0, 0.3, 1.5, 0.2, 0.02, 0.1, 2.0)


def _first(update: Callable[..., Updated]) -> Callable[..., Updated]:
    """Return an update as a function of floating tensors alone; a third of the candidates are elites."""

    def first(fitness: Tensor, candidates: Tensor, distribution: Tensor, paths: Tensor) -> Updated:
        population, device = fitness.shape[-1], fitness.device
        record = torch.tensor([math.nan] * 4 + [0.0], dtype=torch.float64, device=device)
        generation = torch.zeros((), dtype=torch.int64, device=device)
        weights = 0.2 - torch.arange(population, dtype=torch.float64, device=device) * (0.6 / population)
        factor = torch.diag_embed(distribution[..., 1, :])
        return update(
            *(fitness, candidates, distribution, record, generation, factor, paths, (population + 2) // 3),
            maximize=False,
            rates=RATES,
            weights=weights,
        )

    return first


def _inputs(generator: Generator, population: int, dimensions: int) -> tuple[Tensor, ...]:
    """Fitness, of which a fifth has ties, candidates, distribution and paths."""
    candidates = torch.randn(population, dimensions, generator=generator, dtype=torch.float64)
    fitness = candidates.square().sum(dim=1)
    fitness[: population // 5] = fitness[0]
    return fitness, candidates, torch.ones(4, dimensions).double(), torch.zeros(2, dimensions).double()


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
