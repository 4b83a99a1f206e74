"""Generations of CMA-ES libraries on the sphere, with diagonal covariance, for the comparison of speeds."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import numpy as np

Run = Callable[[int], object]
"""Runs a number of generations, and waits for none of them."""

_LONGEST = 50  # generations of one search: one that goes on after it has converged drifts off to infinity


def cmaes_generations(population: int, dim: int) -> Run | None:
    """Return generations of SepCMA of cmaes; None where it is not installed."""
    if importlib.util.find_spec("cmaes") is None:
        return None
    from cmaes import SepCMA

    def run(count: int) -> None:
        for generation in range(count):
            if generation % _LONGEST == 0:
                search = SepCMA(np.ones(dim), 1.0, population_size=population, seed=1)
            candidates = np.array([search.ask() for _ in range(population)])
            fitness = (candidates * candidates).sum(-1)
            search.tell(list(zip(candidates, fitness.tolist(), strict=True)))

    return run


def pycma_generations(population: int, dim: int) -> Run | None:
    """Return generations of pycma with a diagonal covariance; None where it is not installed."""
    if importlib.util.find_spec("cma") is None:
        return None
    import cma

    options = {"popsize": population, "seed": 1, "CMA_diagonal": True, "verbose": -9, "verb_log": 0}

    def run(count: int) -> None:
        for generation in range(count):
            if generation % _LONGEST == 0:
                search = cma.CMAEvolutionStrategy(np.ones(dim), 1.0, options)
            candidates = search.ask()
            fitness = (np.asarray(candidates) ** 2).sum(-1)
            search.tell(candidates, fitness.tolist())

    return run
