"""Compare searches on the suites of COCO: bbob, bbob-noisy, bbob-constrained and bbob-mixint.

python scripts/measure coco --dims 2 5 --searches cem pycma
python scripts/measure coco --suite bbob-mixint --dims 5 --jobs 14

"solved" is the share of the 51 targets from f_opt + 100 down to f_opt + 1e-8, equal steps of the logarithm,
over functions and instances, that candidates reach within the budget, and within a tenth of it. They count

bbob, bbob-mixint    as they are evaluated
bbob-noisy           by their value without the noise, which searches do not see
bbob-constrained     where feasible; an objective and its constraints are one evaluation

Runs begin at 0 with a standard deviation of 2.5; with constraints at the suite's feasible start with 2; with
integers in the middle of the bounds with a quarter of their range. All have settings of their own, but
evotorch's 10 candidates per dimension. Optuna's TPE, which takes ever longer, has a tenth of the budget, up
to 3 dimensions. Peers that are not installed are left out: pip install cma cmaes evotorch optuna scipy. The
suites are those of coco-experiment (Hansen et al., COCO, Optimization Methods and Software 36, 2021).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import logging
import math
import multiprocessing
import os
import statistics
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch

from cem import minimize
from kernels.support.names import unknown_name
from kernels.support.progress import progress
from measure.provenance import Measured
from tetris.commands.command_line import one_line_errors

TARGETS = tuple(10 ** (2 - k / 5) for k in range(51))  # above the optimum
FUNCTIONS = {"bbob": 24, "bbob-noisy": 30, "bbob-constrained": 54, "bbob-mixint": 24}
POPULATION, RESTARTS = 10, 50  # per dimension; more than a budget has room for


class Spent(Exception):  # noqa: N818 - not an error: a search has reached the last target or spent its budget
    """A search ends here."""


class Objective:
    """A function to minimise with a budget: it counts, and remembers how close candidates came."""

    def __init__(self, suite: str, dim: int, function: int, instance: int, looks: Sequence[int]) -> None:
        """Take a function of a suite by its number, from 1, and when it is looked at; the last is the end."""
        self._problem = self._truth = problem = _problem(suite, dim, function, instance)
        self.dim, self.budget, self.made = dim, looks[-1], 0
        self.integers = range(problem.number_of_integer_variables)
        self.box = np.array([problem.lower_bounds, problem.upper_bounds], dtype=np.float64)
        self.has_constraints = problem.number_of_constraints > 0
        self.start: Any = np.zeros(dim)
        self.std: Any = 2.5
        if self.has_constraints:
            self.start, self.std = np.array(problem.initial_solution), 2.0
        elif self.integers:
            self.start, self.std = self.box.mean(0), np.diff(self.box, axis=0)[0] / 4
        elif suite == "bbob-noisy":
            # Three in a row are one function with normal, uniform and Cauchy noise. The last adds a constant,
            # and noise now and then: a value that comes twice is without, if it is not below the optimum's.
            self._truth = _problem(suite, dim, function + -function % 3, instance)
        self._optimum = -math.inf
        self._optimum = self._value(_optimal(problem))
        self._known: dict[bytes, tuple[float, Any]] = {}
        self.best = dict.fromkeys(looks, math.inf)
        """How far from the optimum the best one is after so many evaluations."""

    def __call__(self, candidates: Any) -> Any:
        """Evaluate candidates, shape (N, dim); Spent at the last target and at the end of the budget."""
        return np.array([self.one(x) for x in np.array(candidates, dtype=np.float64, order="C")])

    def one(self, x: Any) -> float:
        """Evaluate one candidate."""
        return self._evaluated(x)[0]

    def constraints(self, x: Any) -> Any:
        """Return the constraints of one candidate, which are at most 0 where it is feasible."""
        return self._evaluated(x)[1]

    def _evaluated(self, x: Any) -> tuple[float, Any]:
        """Return objective and constraints; where there are any, again for nothing."""
        if (key := x.tobytes()) in self._known:
            return self._known[key]
        if self.made == self.budget or self.best[self.budget] <= TARGETS[-1]:
            raise Spent
        self.made += 1
        found = value, constraints = float(self._problem(x)), self._problem.constraint(x)
        if self.has_constraints:
            self._known[key] = found
        if not self.has_constraints or (constraints <= 0).all():
            gap = (value if self._truth is self._problem else self._value(x)) - self._optimum
            if gap < -1e-6:
                raise RuntimeError(f"expected no value below the optimum of {self._problem.id}, got {gap:g}")
            for until in (each for each in self.best if self.made <= each):
                self.best[until] = min(self.best[until], max(gap, 0.0))
        return found

    def _value(self, x: Any) -> float:
        """Return the value without noise, and for noisy functions a constant more."""
        seen = set[float]()
        while (value := float(self._truth(x))) not in seen or value < self._optimum - 1.0:
            seen.add(value)
        return value


def _problem(suite: str, dim: int, function: int, instance: int) -> Any:
    import cocoex

    chosen = f"dimensions:{dim} function_indices:{function}"
    problem = cocoex.Suite(suite, f"instances:{instance}", chosen).get_problem(0)
    if (problem.dimension, problem.id_instance) != (dim, instance):
        raise ValueError(f"expected a dimension of {suite}, got {dim}")
    return problem


def _optimal(problem: Any) -> Any:
    """Return the best candidate, which the suite writes to a file of the working folder."""
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        problem._best_parameter("print")
        os.chdir(here)
        return np.loadtxt(os.path.join(folder, "._bbob_problem_best_parameter.txt"))


def _cem(objective: Objective, seed: int) -> None:
    function: Any = objective
    options: dict[str, Any] = {"budget": objective.budget + 1, "seed": seed}
    if objective.has_constraints:
        function, options["constraints"], options["vectorize"] = objective.one, objective.constraints, "loop"
    if objective.integers:
        options |= {"bounds": objective.box.T, "integers": [*objective.integers]}
    minimize(function, objective.start, objective.std, **options)


def _evotorch(objective: Objective, seed: int, *, algorithm: str, **settings: Any) -> None:
    logging.disable(logging.INFO)  # evotorch sets the level of its loggers itself
    import evotorch.algorithms

    space = {"solution_length": objective.dim, "initial_bounds": (-5.0, 5.0), "dtype": torch.float64}
    function = lambda x: torch.from_numpy(objective(x.numpy()))  # noqa: E731
    problem = evotorch.Problem("min", function, vectorized=True, seed=seed, **space)
    start = torch.from_numpy(objective.start)
    settings = {"popsize": POPULATION * objective.dim, "stdev_init": objective.std, **settings}
    searcher = getattr(evotorch.algorithms, algorithm)(problem, center_init=start, **settings)
    while True:
        searcher.step()


def _cmaes(objective: Objective, seed: int, *, algorithm: str) -> None:
    import cmaes

    search = getattr(cmaes, algorithm)(mean=objective.start, sigma=objective.std, seed=seed)
    while not search.should_stop():
        candidates = np.array([search.ask() for _ in range(search.population_size)])
        search.tell(list(zip(candidates, objective(candidates).tolist(), strict=True)))


def _cmawm(objective: Objective, seed: int) -> None:
    """Restart from anywhere, each time with twice the population."""
    import cmaes

    steps = [1.0 if i in objective.integers else 0.0 for i in range(objective.dim)]
    options: dict[str, Any] = {"sigma": 1.0, "bounds": objective.box.T, "cov": np.diag(objective.std**2)}
    options["steps"] = np.array(steps)
    mean, size = objective.start, 4 + int(3 * math.log(objective.dim))
    while True:
        search = cmaes.CMAwM(mean=mean, population_size=size, seed=seed, **options)
        while not search.should_stop():
            asked = [search.ask() for _ in range(size)]
            search.tell([(told, objective.one(x)) for x, told in asked])
        seed, size = seed + 1, 2 * size
        mean = np.random.default_rng(seed).uniform(*objective.box)


def _pycma(objective: Objective, seed: int, **settings: Any) -> None:
    import cma

    options: dict[str, Any] = {"maxfevals": objective.budget, "seed": seed, "verbose": -9, "verb_log": 0}
    std = objective.std
    if objective.integers:
        edge = 0.4999 * np.isin(range(objective.dim), objective.integers)
        bounds = [objective.box[0] - edge, objective.box[1] + edge]
        options |= {"integer_variables": [*objective.integers], "bounds": bounds, "CMA_stds": std}
        std = 1.0
    cma.fmin2(objective.one, objective.start, std, options, **settings)


def _pycma_noise(objective: Objective, seed: int) -> None:
    """Evaluate a candidate up to 30 times, as often as the ranking needs it."""
    from cma import NoiseHandler

    handler = NoiseHandler(objective.dim, maxevals=[1, 1, 30])
    _pycma(objective, seed, restarts=RESTARTS, bipop=True, noise_handler=handler)


def _pycma_constrained(objective: Objective, seed: int) -> None:
    """Restart with twice the population and new multipliers."""
    import cma

    for restart in itertools.count():
        both = objective.one, objective.constraints
        fitness = cma.ConstrainedFitnessAL(*both, archives=False, logging=0)
        options = {"seed": seed + restart, "verbose": -9, "verb_log": 0, "tolstagnation": 0}
        options["popsize"] = (4 + int(3 * math.log(objective.dim))) << restart
        cma.fmin2(fitness, objective.start, objective.std, options, callback=fitness.update)


def _scipy(objective: Objective, seed: int, *, algorithm: str, **settings: Any) -> None:
    import scipy.optimize

    settings = {"x0": objective.start, "maxiter": objective.budget, "rng": seed, **settings}
    getattr(scipy.optimize, algorithm)(objective.one, objective.box.T, **settings)


def _optuna(objective: Objective, seed: int) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.enqueue_trial({str(i): 0.0 for i in range(objective.dim)})
    while True:
        trial = study.ask()
        x = [trial.suggest_float(str(i), *bounds) for i, bounds in enumerate(objective.box.T.tolist())]
        study.tell(trial, objective.one(np.array(x)))


class Search(NamedTuple):
    """A way to minimise: what tables call it, how it runs with an objective and a seed, what it imports."""

    label: str
    run: Callable[[Objective, int], None]
    module: str = "cem"
    looks: int = 2  # 1: it has a tenth of the budget
    dims: float = math.inf  # the most


_CEM = Search("cem, the default", _cem)
_BIPOP = Search("pycma, BIPOP restarts", partial(_pycma, restarts=RESTARTS, bipop=True), "cma")
_PARENTS = partial(_evotorch, algorithm="CEM", parenthood_ratio=0.2)
SEARCHES: Mapping[str, Mapping[str, Search]] = {
    "bbob": {
        "cem": _CEM,
        "evotorch_cem": Search("evotorch CEM, 20 % parents", _PARENTS, "evotorch"),
        "evotorch_snes": Search("evotorch SNES", partial(_evotorch, algorithm="SNES"), "evotorch"),
        "cmaes_cma": Search("cmaes CMA", partial(_cmaes, algorithm="CMA"), "cmaes"),
        "cmaes_sepcma": Search("cmaes SepCMA", partial(_cmaes, algorithm="SepCMA"), "cmaes"),
        "pycma": Search("pycma", _pycma, "cma"),
        "pycma_bipop": _BIPOP,
        **{
            name: Search(f"SciPy {name.replace('_', ' ')}", partial(_scipy, algorithm=name), "scipy")
            for name in ("dual_annealing", "differential_evolution")
        },
        "optuna_tpe": Search("Optuna TPE", _optuna, "optuna", 1, dims=3),
    },
    "bbob-noisy": {
        "cem": _CEM,
        "pycma_bipop": _BIPOP,
        "pycma_noise": Search("pycma, BIPOP restarts, noise handling", _pycma_noise, "cma"),
    },
    "bbob-constrained": {
        "cem": _CEM,
        "pycma": Search("pycma, augmented Lagrangian", _pycma_constrained, "cma"),
    },
    "bbob-mixint": {
        "cem": _CEM,
        "pycma_bipop": _BIPOP._replace(label="pycma, integer variables, BIPOP restarts"),
        "cmaes_cmawm": Search("cmaes CMAwM", _cmawm, "cmaes"),
    },
}
"""By suite and name."""


class Run(NamedTuple):
    """A search on an instance of a function."""

    suite: str
    search: str
    evaluations: tuple[int, ...]  # per dimension, after which it is looked at
    dim: int
    function: int
    instance: int


def gaps_of(one: Run) -> list[float]:
    """Return how far from the optimum a search is whenever it is looked at."""
    search = SEARCHES[one.suite][one.search]
    looks = [one.dim * each for each in one.evaluations[: search.looks]]
    objective = Objective(one.suite, one.dim, one.function, one.instance, looks)
    with contextlib.suppress(Spent), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.run(objective, 1_000_000 + 10_000 * one.dim + 100 * one.function + one.instance)
    return list(objective.best.values())


def summary(gaps: Sequence[Sequence[float]], functions: int, evaluations: Sequence[int]) -> dict[str, Any]:
    """Return shares of targets over runs, function by function; the standard error is from their spread."""
    found: dict[str, Any] = {"gaps": gaps}
    for place, until in enumerate(evaluations[: len(gaps[0])]):
        solved = np.array([statistics.fmean(each[place] <= x for x in TARGETS) for each in gaps])
        each = solved.reshape(functions, -1)
        found[str(until)] = {"solved": float(solved.mean()), "standard_error": None}
        if each.shape[1] > 1:
            error = math.sqrt(each.var(1, ddof=1).sum() / each.shape[1]) / functions
            found[str(until)]["standard_error"] = error
    return found


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return the shares of targets of every search in every dimension."""
    suite, known = arguments.suite, SEARCHES[arguments.suite]
    evaluations = (max(1, arguments.budget // 10), arguments.budget)
    functions = arguments.functions or range(1, 1 + FUNCTIONS[suite])
    instances = [*itertools.chain(*arguments.instances)]
    with one_line_errors():
        if unknown := next((name for name in arguments.searches or () if name not in known), None):
            raise unknown_name("search", unknown, known)
        found = arguments.searches or [name for name in known if find_spec(known[name].module)]
        for dim in arguments.dims:
            _problem(suite, dim, functions[0], instances[0])
    cells = [(name, dim) for dim in sorted(arguments.dims) for name in found if dim <= known[name].dims]
    kinds = [*itertools.product(functions, instances)]
    runs = [Run(suite, name, evaluations, dim, *kind) for name, dim in cells for kind in kinds]
    spawn, pool = multiprocessing.get_context("spawn"), None  # threads of a library do not survive a fork
    if arguments.jobs > 1:
        pool = spawn.Pool(arguments.jobs, torch.set_num_threads, (1,))
    with pool or contextlib.nullcontext():
        done = (pool.imap if pool else map)(gaps_of, runs[::-1])  # what takes long comes first
        gaps = list(progress(done, total=len(runs), desc=suite, unit=" runs"))[::-1]
    details: dict[str, dict[str, Any]] = {name: {"label": known[name].label} for name in found}
    figures: dict[str, float] = {}
    for place, (name, dim) in enumerate(cells):
        own = gaps[place * len(kinds) : (place + 1) * len(kinds)]
        cell = details[name][f"d{dim}"] = summary(own, len(functions), evaluations)
        for until in map(str, evaluations[: known[name].looks]):
            figures[f"{suite}.{name}.d{dim}.{until}.solved"] = cell[until]["solved"]
    data = {"suite": suite, "functions": [*functions], "instances": instances}
    data |= {"evaluations_per_dimension": evaluations, "targets": TARGETS}
    return Measured(figures, {**data, "searches": details})
