"""Compare the optimiser with evotorch, cmaes and pycma: quality on BBOB, and the speed of a generation.

python scripts/measure compare_optimizers --json optimizers.json
python scripts/measure compare_optimizers quality --searches cem pycma --dims 5
python scripts/measure compare_optimizers speed --device cuda

quality: the share of targets that are reached on the 24 noiseless functions of BBOB. Every run begins at 0
with a standard deviation of 2.5 and has 2,000 evaluations a dimension. "solved" is the share of the targets
f_opt + {10, 1, 0.1, 1e-3, 1e-5, 1e-8} that are reached, over functions and instances. "collapsed" is the
share of runs that end with every standard deviation below 1e-6 while the best value is more than 0.1 above
the optimum; a search that restarts has none. The population is 10 candidates a dimension where a search does
not choose its own. The functions: N. Hansen, S. Finck, R. Ros and A. Auger, Real-Parameter Black-Box
Optimization Benchmarking 2009, INRIA RR-6829; their code: coco-experiment.

speed: microseconds of a generation on the sphere; see the measurement generation. Peers that are not
installed are left out: pip install cma cmaes evotorch
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import math
import multiprocessing
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch

from cem import CrossEntropyMethod, minimize
from kernels.support.names import unknown_name
from measure import generation
from measure.provenance import Measured
from measure.table import PARTS
from tetris.commands.command_line import one_line_errors

FUNCTIONS = tuple(range(1, 25))
TARGETS = (1e1, 1e0, 1e-1, 1e-3, 1e-5, 1e-8)  # above the optimum
EVALUATIONS = 2_000  # in a run, for each dimension
COLLAPSED_STD, COLLAPSED_GAP = 1e-6, 0.1
START_STD, POPULATION = 2.5, 10
RESTARTS = 50  # more than a budget has room for


class Spent(Exception):  # noqa: N818 - not an error: a search has reached its target or spent its budget
    """A search ends here."""


class Objective:
    """A function to minimise, with a budget and a target: it counts, and remembers the best value."""

    def __init__(self, function: Callable[[Any], Any], dim: int, budget: int, target: float) -> None:
        """Set the function, (N, dim) to (N,); ``target`` is a value at which the search ends."""
        self.dim, self.budget, self.best = dim, budget, math.inf
        self.std: float | None = None  # the greatest one of the search, which sets it
        self._function, self._target, self._left = function, target, budget

    def __call__(self, candidates: Any) -> Any:
        """Evaluate candidates, shape (N, dim), float64.

        It raises Spent at the target and at the end of the budget: candidates beyond it do not count.
        """
        counted = candidates[: self._left]
        values = np.asarray(self._function(np.array(counted, dtype=np.float64, order="C")))
        self._left -= len(counted)
        self.best = min(self.best, float(values.min(initial=math.inf)))
        if self.best <= self._target or len(counted) < len(candidates):
            raise Spent
        return values


def _generations(objective: Objective, seed: int, **settings: Any) -> None:
    """Ask and tell without end, one population."""
    start, population = np.zeros(objective.dim), POPULATION * objective.dim
    search = CrossEntropyMethod(start, START_STD, population, maximize=False, seed=seed, **settings)
    while True:
        search.tell(objective(search.ask()))
        objective.std = float(search.std.max())


def _restarts(objective: Objective, seed: int, **settings: Any) -> None:
    settings = {"budget": objective.budget, "seed": seed, "restarts": RESTARTS, **settings}
    minimize(objective, np.zeros(objective.dim), START_STD, **settings)


def _evotorch(objective: Objective, seed: int, *, algorithm: str, **settings: Any) -> None:
    logging.disable(logging.INFO)  # evotorch sets the level of its loggers itself
    import evotorch.algorithms

    space = {"solution_length": objective.dim, "initial_bounds": (-5.0, 5.0), "dtype": torch.float64}
    function = lambda x: torch.from_numpy(objective(x.numpy()))  # noqa: E731
    problem = evotorch.Problem("min", function, vectorized=True, seed=seed, **space)
    start = torch.zeros(objective.dim, dtype=torch.float64)
    settings = {"popsize": POPULATION * objective.dim, "stdev_init": START_STD, **settings}
    searcher = getattr(evotorch.algorithms, algorithm)(problem, center_init=start, **settings)
    while True:
        searcher.step()
        objective.std = float(searcher.status["stdev"].max())


def _cmaes(objective: Objective, seed: int, *, algorithm: str) -> None:
    import cmaes

    search = getattr(cmaes, algorithm)(mean=np.zeros(objective.dim), sigma=START_STD, seed=seed)
    while not search.should_stop():
        candidates = np.array([search.ask() for _ in range(search.population_size)])
        search.tell(list(zip(candidates, objective(candidates).tolist(), strict=True)))
        variances = np.diag(search._C) if algorithm == "CMA" else search._C
        objective.std = float(search._sigma * math.sqrt(variances.max()))


def _pycma(objective: Objective, seed: int, *, restarts: int) -> None:
    import cma

    options = {"maxfevals": objective.budget, "seed": seed, "verbose": -9, "verb_log": 0}
    function = lambda x: objective(np.asarray(x)).tolist()  # noqa: E731
    start = np.zeros(objective.dim)
    cma.fmin2(None, start, START_STD, options, restarts=restarts, parallel_objective=function)


class Search(NamedTuple):
    """A way to minimise: what tables call it, how it runs with an objective and a seed, what it imports."""

    label: str
    run: Callable[[Objective, int], None]
    module: str = "cem"


SEARCHES: Mapping[str, Search] = {
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
        "evotorch CEM, 20 % parents", partial(_evotorch, algorithm="CEM", parenthood_ratio=0.2), "evotorch"
    ),
    "evotorch_snes": Search("evotorch SNES", partial(_evotorch, algorithm="SNES"), "evotorch"),
    "cmaes_cma": Search("cmaes CMA", partial(_cmaes, algorithm="CMA"), "cmaes"),
    "cmaes_sepcma": Search("cmaes SepCMA", partial(_cmaes, algorithm="SepCMA"), "cmaes"),
    "pycma": Search("pycma", partial(_pycma, restarts=0), "cma"),
    "pycma_ipop": Search("pycma, IPOP restarts", partial(_pycma, restarts=RESTARTS), "cma"),
}
"""By name; peers with the population they choose themselves, but for evotorch's, which have to be told."""


def run(search: str, dim: int, function: int, instance: int) -> dict[str, Any]:
    """Run a search on an instance of a function until the last target or the end of its budget."""
    from cocoex import BareProblem

    problem = BareProblem("bbob", function, dim, instance)
    optimum = problem.best_value()
    objective = Objective(problem, dim, EVALUATIONS * dim, optimum + TARGETS[-1])
    with contextlib.suppress(Spent):
        SEARCHES[search].run(objective, 1_000_000 + 10_000 * dim + 100 * function + instance)
    gap, std = objective.best - optimum, objective.std
    collapsed = None if std is None else std < COLLAPSED_STD and gap > COLLAPSED_GAP
    solved = statistics.fmean(gap <= target for target in TARGETS)
    return {"function": function, "solved": solved, "collapsed": collapsed, "gap": gap}


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the shares over all runs; the standard error is from the spread within each function."""
    by_function = [[x["solved"] for x in runs if x["function"] == function] for function in FUNCTIONS]
    known, error = [x["collapsed"] for x in runs if x["collapsed"] is not None], None
    if min(map(len, by_function)) > 1:
        error = math.sqrt(sum(len(each) * statistics.variance(each) for each in by_function)) / len(runs)
    return {
        "solved": statistics.fmean(x["solved"] for x in runs),
        "standard_error": error,
        "collapsed": statistics.fmean(known) if known else None,
        "gaps": [x["gap"] for x in runs],
    }


def quality(searches: Sequence[str], dims: Sequence[int], instances: Sequence[int], jobs: int) -> Measured:
    """Return the shares of every search in every dimension; ValueError where a search is not there."""
    if unknown := next((name for name in searches if name not in SEARCHES), None):
        raise unknown_name("search", unknown, SEARCHES)
    found = [name for name in searches or SEARCHES if find_spec(SEARCHES[name].module)]
    if not find_spec("cocoex") or len(found) < len(searches):
        raise ValueError("expected the searches to be there: pip install coco-experiment cma cmaes evotorch")
    details: dict[str, dict[str, Any]] = {name: {"label": SEARCHES[name].label} for name in found}
    pairs = [(function, instance) for function in FUNCTIONS for instance in instances]
    # A process imports what it needs: threads of a library do not survive a fork.
    with multiprocessing.get_context("spawn").Pool(jobs) if jobs > 1 else contextlib.nullcontext() as pool:
        for dim in dims:
            for name in found:
                one = partial(run, name, dim)
                runs = pool.starmap(one, pairs, 1) if pool else [one(*pair) for pair in pairs]
                reached = details[name][f"d{dim}"] = summary(runs)
                print(f"{name}, D = {dim}: {reached['solved']:.3f}", flush=True)
    figures = {
        f"bbob.{name}.d{dim}.{key}": details[name][f"d{dim}"][key]
        for dim in dims
        for name in found
        for key in ("solved", "collapsed")
        if details[name][f"d{dim}"][key] is not None
    }
    data = {"instances": instances, "evaluations_per_dimension": EVALUATIONS, "targets": TARGETS}
    return Measured(figures, {**data, "searches": details})


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return figures and details of the parts, one after the other."""
    found = {}
    for name in arguments.parts or PARTS:
        with one_line_errors():
            asked = (arguments.searches or (), arguments.dims, arguments.instances, arguments.jobs)
            found[name] = quality(*asked) if name == "quality" else generation.measure(arguments, device)
    figures = {key: value for each in found.values() for key, value in each.figures.items()}
    return Measured(figures, {name: each.data for name, each in found.items()})
