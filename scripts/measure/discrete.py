"""Measure searches of discrete parameters: evaluations to the optimum.

python scripts/measure discrete --json discrete.json

40 parameters of 10 values in 20 pairs. A pair costs 1, 0.6 if one of its values is right, and 0 if both are.
Peers, with settings of their own and where installed: cmaes' CatCMAwM and Optuna's TPE.
"""

from __future__ import annotations

import argparse
import statistics
from importlib.util import find_spec
from typing import Any

import numpy as np

from cem import Choice, minimize
from measure.provenance import Measured

PAIRS, VALUES, COSTS = 20, 10, np.array([1.0, 0.6, 0.0])
SEEDS, LOOK, MOST = 10, 1000, 100_000
FEW, TRIALS = 3, 1000  # seeds and evaluations of TPE, which takes minutes


class Pairs:
    """The objective of a seed; it keeps the costs."""

    def __init__(self, seed: int) -> None:
        """Draw pairs and right values."""
        rng = np.random.default_rng(seed)
        self.pairs = rng.permutation(2 * PAIRS).reshape(-1, 2)
        self.right = rng.integers(0, VALUES, 2 * PAIRS)
        self.costs: list[float] = []

    def __call__(self, x: Any) -> Any:
        """Map values, shape (N, 2 PAIRS), to costs, shape (N,)."""
        costs = COSTS[(x == self.right)[:, self.pairs].sum(-1)].sum(-1)
        self.costs += costs.tolist()
        return costs


def _cem(problem: Pairs, seed: int, most: int) -> None:
    space = {str(number): Choice(*range(VALUES)) for number in range(2 * PAIRS)}
    function = lambda p: problem(np.stack(list(p.values()), axis=-1))  # noqa: E731
    minimize(function, space, vectorize=False, target=0.0, budget=most, seed=seed)


def _catcma(problem: Pairs, seed: int, most: int) -> None:
    from cmaes import CatCMAwM

    search = CatCMAwM(c_space=[VALUES] * (2 * PAIRS), seed=seed)
    while min(problem.costs, default=1.0) > 0.0 and len(problem.costs) < most:
        asked = [search.ask() for _ in range(search.population_size)]
        costs = problem(np.array([each.c.argmax(1) for each in asked]))
        search.tell(list(zip(asked, costs.tolist(), strict=True)))


def _tpe(problem: Pairs, seed: int, most: int) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    while min(problem.costs, default=1.0) > 0.0 and len(problem.costs) < most:
        trial = study.ask()
        x = [trial.suggest_categorical(str(number), range(VALUES)) for number in range(2 * PAIRS)]
        study.tell(trial, float(problem(np.array([x]))[0]))


SEARCHES = {"cem": (_cem, "cem"), "catcma": (_catcma, "cmaes"), "tpe": (_tpe, "optuna")}
"""Functions, and what they import."""


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return of each search the runs that find the optimum, the evaluations for it, and its best early."""
    figures: dict[str, float] = {}
    for name, (search, _) in ((x, each) for x, each in SEARCHES.items() if find_spec(each[1])):
        seeds, most = (FEW, TRIALS) if name == "tpe" else (SEEDS, MOST)
        runs = [Pairs(1000 + seed) for seed in range(seeds)]
        for seed, problem in enumerate(runs):
            search(problem, seed, most)
        needed = [each.costs.index(0.0) + 1 for each in runs if 0.0 in each.costs]
        figures |= {f"discrete.{name}.runs": len(runs), f"discrete.{name}.solved": len(needed)}
        figures[f"discrete.{name}.early"] = statistics.fmean(min(each.costs[:LOOK]) for each in runs)
        if needed:
            figures[f"discrete.{name}.median"] = statistics.median(needed)
            figures |= {f"discrete.{name}.least": min(needed), f"discrete.{name}.most": max(needed)}
    return Measured(figures, {"early": LOOK})
