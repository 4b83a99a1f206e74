"""The searches that are compared on BBOB: this project's settings, and its peers where they are installed."""

from __future__ import annotations

import importlib.util
import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from cem import CrossEntropyMethod, minimize
from measure.objective import Objective

START_STD = 2.5
"""Of every search, in every dimension; the first mean is 0."""
POPULATION = 10
"""Candidates for each dimension."""
RESTARTS = 50  # more than a budget has room for


class Search(NamedTuple):
    """A way to minimise: ``run`` evaluates candidates until the objective ends it.

    Attributes:
        label: What tables call it.
        run: Called with the objective and a seed.
        package: The distribution it needs.
        module: The module it imports.
    """

    label: str
    run: Callable[[Objective, int], None]
    package: str = ""
    module: str = ""


def _generations(objective: Objective, seed: int, **settings: Any) -> None:
    """Ask and tell without end, one population."""
    settings = {"population_size": POPULATION * objective.dim, **settings}
    optimizer = CrossEntropyMethod(np.zeros(objective.dim), START_STD, maximize=False, seed=seed, **settings)
    while True:
        optimizer.tell(objective(optimizer.ask()))
        objective.std = float(optimizer.std.max())


def _restarts(objective: Objective, seed: int, **settings: Any) -> None:
    budget = int(objective.budget)
    minimize(
        objective, np.zeros(objective.dim), START_STD, budget=budget, seed=seed, restarts=RESTARTS, **settings
    )


def _evotorch(objective: Objective, seed: int, *, algorithm: str, **settings: Any) -> None:
    logging.disable(logging.INFO)  # evotorch sets the level of its loggers itself
    import evotorch.algorithms
    from evotorch import Problem

    problem = Problem(
        "min",
        lambda x: torch.from_numpy(objective(x.numpy())),
        solution_length=objective.dim,
        initial_bounds=(-5.0, 5.0),
        dtype=torch.float64,
        vectorized=True,
        seed=seed,
    )
    searcher = getattr(evotorch.algorithms, algorithm)(
        problem,
        popsize=POPULATION * objective.dim,
        stdev_init=START_STD,
        center_init=torch.zeros(objective.dim, dtype=torch.float64),
        **settings,
    )
    while True:
        searcher.step()
        objective.std = float(searcher.status["stdev"].max())


def _cmaes(objective: Objective, seed: int, *, algorithm: str) -> None:
    import cmaes

    optimizer = getattr(cmaes, algorithm)(mean=np.zeros(objective.dim), sigma=START_STD, seed=seed)
    while not optimizer.should_stop():
        candidates = np.array([optimizer.ask() for _ in range(optimizer.population_size)])
        optimizer.tell(list(zip(candidates, objective(candidates).tolist(), strict=True)))
        variances = np.diag(optimizer._C) if algorithm == "CMA" else optimizer._C
        objective.std = float(optimizer._sigma * math.sqrt(variances.max()))


def _pycma(objective: Objective, seed: int, restarts: int) -> None:
    import cma

    options = {"maxfevals": objective.budget, "seed": seed, "verbose": -9, "verb_log": 0}
    start = np.zeros(objective.dim)
    cma.fmin2(
        None,
        start,
        START_STD,
        options,
        restarts=restarts,
        parallel_objective=lambda x: objective(np.asarray(x)).tolist(),
    )


_EVOTORCH, _CMAES, _PYCMA = ("evotorch", "evotorch"), ("cmaes", "cmaes"), ("cma", "cma")
SEARCHES = {
    "cem": Search("cem, the default", _generations),
    "cem_full": Search("cem, full covariance", partial(_generations, covariance="full")),
    "cem_paths_restarts": Search("cem, diagonal with paths, restarts", partial(_restarts, paths=True)),
    "cem_full_paths": Search(
        "cem, full covariance with paths", partial(_generations, covariance="full", paths=True)
    ),
    "cem_full_restarts": Search(
        "cem, full covariance with paths, restarts", partial(_restarts, covariance="full", paths=True)
    ),
    "evotorch_cem": Search(
        "evotorch CEM, 20 % parents",
        partial(_evotorch, algorithm="CEM", parenthood_ratio=0.2),
        *_EVOTORCH,
    ),
    "evotorch_snes": Search("evotorch SNES", partial(_evotorch, algorithm="SNES"), *_EVOTORCH),
    "cmaes_cma": Search("cmaes CMA", partial(_cmaes, algorithm="CMA"), *_CMAES),
    "cmaes_sepcma": Search("cmaes SepCMA", partial(_cmaes, algorithm="SepCMA"), *_CMAES),
    "pycma": Search("pycma", partial(_pycma, restarts=0), *_PYCMA),
    "pycma_ipop": Search("pycma, IPOP restarts", partial(_pycma, restarts=RESTARTS), *_PYCMA),
}
"""By name; peers with the population they choose themselves, but for evotorch's, which have to be told."""


def available(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names of searches whose packages are installed, and the packages that are not."""
    needed = {"coco-experiment": "cocoex"}
    needed |= {SEARCHES[name].package: SEARCHES[name].module for name in names if SEARCHES[name].package}
    missing = [package for package, module in needed.items() if importlib.util.find_spec(module) is None]
    if "coco-experiment" in missing:
        return [], missing
    return [name for name in names if SEARCHES[name].package not in missing], missing
