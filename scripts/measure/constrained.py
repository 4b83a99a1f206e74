"""Compare searches with constraints on the 54 functions of bbob-constrained: the share of targets reached.

python scripts/measure constrained --dims 5 10 --instances 4 5

"solved" is the share of the 51 targets from f_opt + 100 down to f_opt + 1e-8, equal steps of the logarithm,
that feasible candidates reach within 2,000 evaluations per dimension, of objective and constraints as one.
Every run begins at the suite's start, which is feasible, with a standard deviation of 2. f_opt is the value
at the optimum that the suite tells. pycma: cma.ConstrainedFitnessAL, and after each search another with twice
the population and new multipliers. The suite is that of coco-experiment.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import statistics
import warnings
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from cem import minimize
from measure.optimizers import EVALUATIONS, TARGETS, Spent
from measure.provenance import Measured

FUNCTIONS, START_STD, SEARCHES = "1-54", 2.0, ("cem", "pycma")
_OPTIMUM = Path("._bbob_problem_best_parameter.txt")


class _Problem:
    """An objective and its constraints with a budget; the gap is that of the best feasible candidate."""

    def __init__(self, problem: Any) -> None:
        self._problem, self.gap = problem, math.inf
        problem._best_parameter("print")  # to a file of the working folder
        self._optimum = problem(np.loadtxt(_OPTIMUM))
        _OPTIMUM.unlink()
        self._known: dict[bytes, tuple[float, Any]] = {}

    def evaluated(self, x: Any) -> tuple[float, Any]:
        """Return f and g of a candidate; Spent at the last target and the end of the budget."""
        if x.tobytes() not in self._known:
            if self.gap <= TARGETS[-1] or len(self._known) == EVALUATIONS[-1] * len(x):
                raise Spent
            f, g = self._known[x.tobytes()] = self._problem(x), np.array(self._problem.constraint(x))
            self.gap = min(self.gap, f - self._optimum) if (g <= 0).all() else self.gap
        return self._known[x.tobytes()]

    def search(self, name: str, seed: int) -> None:
        """Search for the optimum without an end."""
        f, g = lambda x: self.evaluated(x)[0], lambda x: self.evaluated(x)[1]
        start = np.array(self._problem.initial_solution)
        if name == "cem":
            options: Any = {"vectorize": "loop", "budget": EVALUATIONS[-1] * len(start) + 1, "seed": seed}
            minimize(f, start, START_STD, constraints=g, **options)
            return
        import cma

        for restart in count():
            fitness = cma.ConstrainedFitnessAL(f, g, archives=False, logging=0)
            options = {"seed": seed + restart, "verbose": -9, "verb_log": 0, "tolstagnation": 0}
            options["popsize"] = (4 + int(3 * math.log(len(start)))) << restart
            cma.fmin2(fitness, start, START_STD, options, callback=fitness.update)


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return the share of targets of each search in each dimension, and the gaps."""
    import cocoex

    gaps: dict[str, list[float]] = {}
    chosen = f"instance_indices:{','.join(map(str, arguments.instances))} function_indices:{FUNCTIONS}"
    for dim in arguments.dims:
        for name in arguments.searches or SEARCHES:
            found = gaps[f"constrained.{name}.d{dim}.solved"] = []
            for each in cocoex.Suite("bbob-constrained", "", f"dimensions:{dim} {chosen}"):
                problem = _Problem(each)
                with contextlib.suppress(Spent), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    problem.search(name, 1_000 * each.id_function + 100 * each.id_instance)
                found.append(float(problem.gap))
    shares = {name: statistics.fmean(x <= y for x in found for y in TARGETS) for name, found in gaps.items()}
    return Measured(shares, {"instances": arguments.instances, "gaps": gaps})
