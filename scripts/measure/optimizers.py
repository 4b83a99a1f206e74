"""Compare the optimiser with evotorch, cmaes and pycma: quality on BBOB, and the speed of a generation.

python scripts/measure compare_optimizers --json optimizers.json
python scripts/measure compare_optimizers quality --searches cem pycma --dims 5
python scripts/measure compare_optimizers speed --device cuda

quality: the share of targets that are reached on the 24 noiseless functions of BBOB, after 200 and after
2,000 evaluations per dimension. Every run begins at 0 with a standard deviation of 2.5. "solved" is the share
of the 51 targets from f_opt + 100 down to f_opt + 1e-8, equal steps of the logarithm, over functions and
instances; below 10 dimensions, where runs are short, over twice as many instances. Searches choose their
population, but for evotorch's and the textbook's, which have 10 candidates per dimension; Optuna's sampler,
which takes ever longer, has 200 evaluations per dimension, up to 3 dimensions. The functions: N. Hansen, S.
Finck, R. Ros and A. Auger, Real-Parameter Black-Box Optimization Benchmarking 2009, INRIA RR-6829; their
code: coco-experiment.

speed: microseconds of a generation on the sphere; see the measurement generation. Peers that are not
installed are left out: pip install cma cmaes evotorch evox optuna scipy
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

from cem import CEMConfig, CrossEntropyMethod, minimize
from kernels.support.names import unknown_name
from measure import generation
from measure.provenance import Measured
from measure.table import PARTS
from tetris.commands.command_line import one_line_errors

FUNCTIONS = tuple(range(1, 25))
TARGETS = tuple(10 ** (2 - k / 5) for k in range(51))  # above the optimum
EVALUATIONS = (200, 2_000)  # in a run, per dimension, at which it is looked at
START_STD, POPULATION, HALF_WIDTH = 2.5, 10, 5.0
SMALL = 10  # with fewer dimensions there are more instances
RESTARTS = 50  # more than a budget has room for


class Spent(Exception):  # noqa: N818 - not an error: a search has reached its target or spent its budget
    """A search ends here."""


class Objective:
    """A function to minimise with a budget: it counts, and remembers the best values."""

    def __init__(self, function: Callable[[Any], Any], dim: int, target: float, most: int) -> None:
        """Set the function, (N, dim) to (N,), the value at which the search ends, and the evaluations."""
        self.dim, self.budget = dim, most * dim
        self.best = [math.inf] * len(EVALUATIONS)
        """The best value after so many evaluations."""
        self._function, self._target, self._made = function, target, 0

    def __call__(self, candidates: Any) -> Any:
        """Evaluate candidates, shape (N, dim), float64.

        It raises Spent at the target and at the end of the budget: candidates beyond it do not count.
        """
        counted = candidates[: self.budget - self._made]
        values = np.asarray(self._function(np.array(counted, dtype=np.float64, order="C")))
        for place, until in enumerate(EVALUATIONS):
            within = values[: max(0, until * self.dim - self._made)]
            self.best[place] = min(self.best[place], float(within.min(initial=math.inf)))
        self._made += len(counted)
        if self.best[-1] <= self._target or len(counted) < len(candidates):
            raise Spent
        return values

    def one(self, x: Any) -> float:
        """Evaluate one candidate."""
        return float(self(np.asarray(x)[None])[0])


def _textbook(objective: Objective, seed: int) -> None:
    """Ask and tell without end, one population."""
    start, population = np.zeros(objective.dim), POPULATION * objective.dim
    search = CrossEntropyMethod(start, START_STD, population, maximize=False, config=CEMConfig(), seed=seed)
    while True:
        candidates = search.ask()
        search.tell(candidates, objective(candidates))


def _minimize(objective: Objective, seed: int, **settings: Any) -> None:
    start = np.zeros(objective.dim)
    minimize(objective, start, START_STD, budget=objective.budget + 1, seed=seed, **settings)


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


def _cmaes(objective: Objective, seed: int, *, algorithm: str) -> None:
    import cmaes

    search = getattr(cmaes, algorithm)(mean=np.zeros(objective.dim), sigma=START_STD, seed=seed)
    while not search.should_stop():
        candidates = np.array([search.ask() for _ in range(search.population_size)])
        search.tell(list(zip(candidates, objective(candidates).tolist(), strict=True)))


def _pycma(objective: Objective, seed: int, **settings: Any) -> None:
    import cma

    options = {"maxfevals": objective.budget, "seed": seed, "verbose": -9, "verb_log": 0}
    cma.fmin2(objective.one, np.zeros(objective.dim), START_STD, options, **settings)


def _scipy(objective: Objective, seed: int, *, algorithm: str, **settings: Any) -> None:
    import scipy.optimize

    box = [(-HALF_WIDTH, HALF_WIDTH)] * objective.dim
    settings = {"x0": np.zeros(objective.dim), "maxiter": objective.budget, "rng": seed, **settings}
    getattr(scipy.optimize, algorithm)(objective.one, box, **settings)


def _optuna(objective: Objective, seed: int) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.enqueue_trial({str(i): 0.0 for i in range(objective.dim)})
    while True:
        trial = study.ask()
        x = [trial.suggest_float(str(i), -HALF_WIDTH, HALF_WIDTH) for i in range(objective.dim)]
        study.tell(trial, objective.one(x))


class Search(NamedTuple):
    """A way to minimise: what tables call it, how it runs with an objective and a seed, what it imports."""

    label: str
    run: Callable[[Objective, int], None]
    module: str = "cem"
    evaluations: int = EVALUATIONS[-1]  # the most, per dimension
    dims: float = math.inf  # the most


SEARCHES: Mapping[str, Search] = {
    "cem": Search("cem, the default", _minimize),
    "cem_diagonal": Search("cem, diagonal", partial(_minimize, config=CEMConfig.cma("diagonal"))),
    "cem_textbook": Search("cem, the textbook's update, one population", _textbook),
    "evotorch_cem": Search(
        "evotorch CEM, 20 % parents", partial(_evotorch, algorithm="CEM", parenthood_ratio=0.2), "evotorch"
    ),
    "evotorch_snes": Search("evotorch SNES", partial(_evotorch, algorithm="SNES"), "evotorch"),
    "cmaes_cma": Search("cmaes CMA", partial(_cmaes, algorithm="CMA"), "cmaes"),
    "cmaes_sepcma": Search("cmaes SepCMA", partial(_cmaes, algorithm="SepCMA"), "cmaes"),
    "pycma": Search("pycma", _pycma, "cma"),
    "pycma_bipop": Search("pycma, BIPOP restarts", partial(_pycma, restarts=RESTARTS, bipop=True), "cma"),
    "dual_annealing": Search(
        "SciPy dual annealing", partial(_scipy, algorithm="dual_annealing"), "scipy.optimize"
    ),
    "differential_evolution": Search(
        "SciPy differential evolution", partial(_scipy, algorithm="differential_evolution"), "scipy.optimize"
    ),
    "optuna_tpe": Search("Optuna TPE", _optuna, "optuna", EVALUATIONS[0], dims=3),
}
"""By name; peers with the population they choose themselves, but for evotorch's, which have to be told."""


def run(search: str, dim: int, function: int, instance: int) -> dict[str, Any]:
    """Run a search on an instance of a function until the last target or the end of its budget."""
    from cocoex import BareProblem

    problem = BareProblem("bbob", function, dim, instance)
    optimum = problem.best_value()
    most = SEARCHES[search].evaluations
    objective = Objective(problem, dim, optimum + TARGETS[-1], most)
    with contextlib.suppress(Spent):
        SEARCHES[search].run(objective, 1_000_000 + 10_000 * dim + 100 * function + instance)
    looked_at = [best for best, until in zip(objective.best, EVALUATIONS, strict=True) if until <= most]
    gaps = [max(best - optimum, 0.0) for best in looked_at]
    return {"function": function, "gaps": gaps, "solved": [_solved(gap) for gap in gaps]}


def _solved(gap: float) -> float:
    return statistics.fmean(gap <= target for target in TARGETS)


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the shares over all runs; the standard error is from the spread within each function."""
    found = {}
    for place, until in enumerate(EVALUATIONS[: len(runs[0]["gaps"])]):
        solved = [[x["solved"][place] for x in runs if x["function"] == each] for each in FUNCTIONS]
        error = None
        if min(map(len, solved)) > 1:
            error = math.sqrt(sum(len(x) * statistics.variance(x) for x in solved)) / len(runs)
        share = statistics.fmean(x["solved"][place] for x in runs)
        found[str(until)] = {"solved": share, "standard_error": error}
    return {**found, "gaps": [x["gaps"] for x in runs]}


def quality(searches: Sequence[str], dims: Sequence[int], instances: Sequence[int], jobs: int) -> Measured:
    """Return the shares of every search in every dimension; ValueError where a search is not there."""
    if unknown := next((name for name in searches if name not in SEARCHES), None):
        raise unknown_name("search", unknown, SEARCHES)
    found = [name for name in searches or SEARCHES if find_spec(SEARCHES[name].module)]
    if not find_spec("cocoex") or len(found) < len(searches):
        raise ValueError("expected the searches to be there: pip install coco-experiment cma cmaes evotorch")
    details: dict[str, dict[str, Any]] = {name: {"label": SEARCHES[name].label} for name in found}
    # A process imports what it needs: threads of a library do not survive a fork.
    with multiprocessing.get_context("spawn").Pool(jobs) if jobs > 1 else contextlib.nullcontext() as pool:
        for dim in dims:
            for name in (name for name in found if dim <= SEARCHES[name].dims):
                is_quick = dim < SMALL and SEARCHES[name].dims >= SMALL
                some = range(instances[0], instances[0] + 2 * len(instances)) if is_quick else instances
                pairs = [(function, instance) for function in FUNCTIONS for instance in some]
                one = partial(run, name, dim)
                runs = pool.starmap(one, pairs, 1) if pool else [one(*pair) for pair in pairs]
                reached = details[name][f"d{dim}"] = summary(runs)
                shares = " and ".join(f"{x['solved']:.3f}" for x in reached.values() if isinstance(x, dict))
                print(f"{name}, D = {dim}: {shares}", flush=True)
    figures = {
        f"bbob.{name}.d{dim}.{until}.solved": reached[str(until)]["solved"]
        for dim in dims
        for name in found
        for until in EVALUATIONS
        if str(until) in (reached := details[name].get(f"d{dim}", {}))
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
