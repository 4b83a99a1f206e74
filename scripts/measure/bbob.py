"""Measure how well this project's searches and their peers optimise the 24 noiseless functions of BBOB.

python scripts/measure bbob --json bbob.json
python scripts/measure bbob cem_full_restarts pycma_ipop --dims 5 20 --instances 11 12 13

Every run begins at 0 with a standard deviation of 2.5 and has 2,000 evaluations a dimension. "solved" is the
share of the targets f_opt + {10, 1, 0.1, 1e-3, 1e-5, 1e-8} that are reached, over functions and instances.
"collapsed" is the share of runs that end with every standard deviation below 1e-6 while the best value is
more than 0.1 above the optimum; a search that restarts has none. The population is 10 candidates a dimension
where a search does not choose its own. The functions: N. Hansen, S. Finck, R. Ros and A. Auger,
Real-Parameter Black-Box Optimization Benchmarking 2009, INRIA RR-6829; their code: coco-experiment.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import multiprocessing
import statistics
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from measure.bbob_searches import SEARCHES, available
from measure.cli import measurement
from measure.objective import Objective, Spent
from measure.provenance import Measured
from tetris.commands.command_line import one_line_errors, one_of, positive_int

FUNCTIONS = tuple(range(1, 25))
TARGETS = (1e1, 1e0, 1e-1, 1e-3, 1e-5, 1e-8)
"""Above the optimum."""
EVALUATIONS = 2_000
"""In a run, for each dimension."""
COLLAPSED_STD, COLLAPSED_GAP = 1e-6, 0.1


class Run(NamedTuple):
    """How a run of a search ended.

    Attributes:
        function: 1 .. 24.
        instance: Its instance.
        gap: The best value found, above the optimum.
        collapsed: Whether it collapsed; None for a search that restarts.
        evaluations: The candidates evaluated: fewer than the budget where the last target was reached.
        seconds: Processor time.
    """

    function: int
    instance: int
    gap: float
    collapsed: bool | None
    evaluations: int
    seconds: float

    @property
    def solved(self) -> float:
        """The share of the targets that were reached."""
        return sum(self.gap <= target for target in TARGETS) / len(TARGETS)


def run(search: str, dim: int, budget: int, seed: int, function: int, instance: int) -> Run:
    """Run a search on a function until the last target or the end of its budget.

    Args:
        search: A name of `SEARCHES`.
        dim: Dimensions.
        budget: Evaluations.
        seed: With function, instance and dimension it is the seed of the search.
        function: 1 .. 24.
        instance: An instance of it.
    """
    from cocoex import BareProblem

    problem = BareProblem("bbob", function, dim, instance)
    optimum = problem.best_value()
    objective = Objective(problem, dim, budget, optimum + TARGETS[-1])
    began = time.process_time()
    with contextlib.suppress(Spent):
        SEARCHES[search].run(objective, 1_000_000 * seed + 10_000 * dim + 100 * function + instance)
    gap = objective.best - optimum
    std = objective.std
    collapsed = None if std is None else std < COLLAPSED_STD and gap > COLLAPSED_GAP
    return Run(function, instance, gap, collapsed, objective.evaluations, time.process_time() - began)


def run_all(
    search: str, dim: int, instances: Sequence[int], evaluations: int, seed: int, jobs: int
) -> list[Run]:
    """Run a search on all functions in ``jobs`` processes; ``evaluations`` are for a dimension. See `run`."""
    # A process imports what it needs: threads of a library do not survive a fork.
    pairs = [(function, instance) for function in FUNCTIONS for instance in instances]
    one = partial(run, search, dim, evaluations * dim, seed)
    if jobs == 1:
        return [one(*pair) for pair in pairs]
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        return pool.starmap(one, pairs, chunksize=1)


def summary(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the shares over all runs, by target and by function, and the time."""
    by_function = {
        str(function): statistics.fmean(each.solved for each in runs if each.function == function)
        for function in sorted({each.function for each in runs})
    }
    known = [each.collapsed for each in runs if each.collapsed is not None]
    return {
        "solved": statistics.fmean(each.solved for each in runs),
        "standard_error": _standard_error(runs),
        "collapsed": statistics.fmean(known) if known else None,
        "by_target": {f"{t:g}": statistics.fmean(each.gap <= t for each in runs) for t in TARGETS},
        "by_function": by_function,
        "gaps": {str(f): [each.gap for each in runs if each.function == f] for f in map(int, by_function)},
        "seconds": sum(each.seconds for each in runs),
    }


def _standard_error(runs: Sequence[Run]) -> float | None:
    """Return that of `Run.solved`, from the spread within each function; None for a single instance."""
    by_function: dict[int, list[float]] = {}
    for each in runs:
        by_function.setdefault(each.function, []).append(each.solved)
    if min(map(len, by_function.values())) < 2:
        return None
    return math.sqrt(sum(len(v) * statistics.variance(v) for v in by_function.values())) / len(runs)


def measure_searches(
    searches: Sequence[str] = (),
    dims: Sequence[int] = (5, 20),
    instances: Sequence[int] = (1, 2, 3),
    evaluations: int = EVALUATIONS,
    seed: int = 1,
    jobs: int = 1,
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the shares of every search in every dimension, as figures and with their details.

    Raises:
        ValueError: If coco-experiment is not installed, or the package of a search that is named.
    """
    found, missing = available(searches or list(SEARCHES))
    if not found or (searches and missing):
        raise ValueError(f"expected these packages: pip install {' '.join(missing)}")
    figures: dict[str, float] = {}
    details: dict[str, Any] = {}
    for dim in dims:
        for name in found:
            told = summary(run_all(name, dim, instances, evaluations, seed, jobs))
            details.setdefault(name, {"label": SEARCHES[name].label})[f"d{dim}"] = told
            figures[f"bbob.{name}.d{dim}.solved"] = told["solved"]
            if told["collapsed"] is not None:
                figures[f"bbob.{name}.d{dim}.collapsed"] = told["collapsed"]
            print(f"{name}, D = {dim}: {told['solved']:.3f} in {told['seconds']:.0f} s", flush=True)
    data = {
        "instances": list(instances),
        "evaluations_per_dimension": evaluations,
        "targets": TARGETS,
        "seed": seed,
        "not_installed": missing,
        "searches": details,
    }
    return figures, data


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return figures and details."""
    with one_line_errors():
        return *measure_searches(
            arguments.searches,
            arguments.dims,
            arguments.instances,
            arguments.evaluations,
            arguments.seed,
            arguments.jobs,
        ), {}


_SEARCH = {"type": one_of("search", SEARCHES), "nargs": "*", "metavar": "SEARCH"}
OPTIONS = {
    "searches": {**_SEARCH, "help": f"{', '.join(SEARCHES)} (default: all that are installed)"},
    "--dims": {"type": positive_int, "nargs": "+", "default": [5, 20], "help": "(default: 5 20)"},
    "--instances": {"type": positive_int, "nargs": "+", "default": [1, 2, 3], "help": "(default: 1 2 3)"},
    "--evaluations": {
        "type": positive_int,
        "default": EVALUATIONS,
        "help": f"a dimension (default: {EVALUATIONS})",
    },
    "--seed": {"type": positive_int, "default": 1, "help": "(default: 1)"},
    "--jobs": {"type": positive_int, "default": 1, "help": "processes (default: 1)"},
}
main = measurement(measure, __doc__, OPTIONS, "[SEARCH ...]", ("cpu",))
