"""What ``python -m kernels check cem_update`` compares: one update of a search that has just begun."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from kernels.ops.cem_update import cem_update, cem_update_reference
from kernels.ops.check import Case

Updated = tuple[Tensor, ...]


def first(update: Callable[..., Updated]) -> Callable[..., Updated]:
    """Return an update as a function of floating tensors alone: record and generation are the first ones."""

    def first(fitness: Tensor, candidates: Tensor, distribution: Tensor, num_elites: int) -> Updated:
        record = torch.tensor([math.nan] * 4 + [0.0], dtype=torch.float64, device=fitness.device)
        generation = torch.zeros((), dtype=torch.int64, device=fitness.device)
        return update(fitness, candidates, distribution, record, generation, num_elites, maximize=False)

    return first


def inputs(generator: Generator, population: int, dimensions: int) -> tuple[Tensor, ...]:
    """Fitness, of which a fifth has ties, candidates and distribution."""
    candidates = torch.randn(population, dimensions, generator=generator, dtype=torch.float64)
    fitness = candidates.square().sum(dim=1)
    fitness[: population // 5] = fitness[0]
    return fitness, candidates, torch.ones(4, dimensions, dtype=torch.float64)


CASES = {
    "cem_update": Case(
        reference=first(cem_update_reference),
        operator=first(cem_update),
        inputs=inputs,
        small=(10, 3),
        large=(5000, 301),
        arguments={"num_elites": 4},
        gradients=False,
    )
}
