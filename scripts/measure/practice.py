"""Count the evaluations that searches need to come within 1 % of the best known value.

python scripts/measure practice --jobs 12 --json practice.json

The problems are those of `practice_problems.py`. A problem is solved by the first feasible
candidate whose value is at most best + 0.01 |best|, where best is the best known value.
Constraints are feasible up to 1e-6; they are relative. An evaluation is that of the objective
and all constraints of a candidate. Every search begins nine times, at random points of the box
that are the same for all searches. A figure is the median of the nine numbers of evaluations;
a start that does not solve the problem counts as infinitely many. A figure is missing if the
median is infinite.

All searches see parameters between 0 and 1, and all get these bounds. The first standard
deviation is 0.25. Settings are otherwise defaults. `cem`, SciPy and Optuna get the constraints
as such. lq-CMA-ES has none: it gets the value plus 10 |best| times the sum of the violations.
SLSQP and lq-CMA-ES are restarted at random points. A search ends after 1,000 evaluations, but
after 500 of Optuna's TPE and 250 of its Gaussian process, whose trials take longer and longer,
or after 150 seconds.

Of the fits alone, `least_squares` of SciPy minimises the sum of squares, too. It sees more than
all others: every residual, not only their sum. It is restarted as SLSQP is.

pip install cma gymnasium optuna scipy
"""

import argparse
import contextlib
import itertools
import math
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from cem import minimize
from measure.coco import (
    Spent,
    pycma_lq,
    run_all,
    scipy_constraints,
    scipy_restarts,
    scipy_search,
)
from measure.practice_problems import PROBLEMS, Problem
from measure.provenance import Measured

STARTS = 9
WITHIN = 0.01
TOLERANCE = 1e-6
LIMIT_S = 150.0


class Objective:
    """A problem of practice on the unit cube, which counts evaluations until it is solved.

    It has the attributes of an objective of COCO that searches use.

    Attributes:
        evaluations: The number of evaluations so far.
        lowest: The lowest value of a feasible candidate.
        is_solved: Whether ``lowest`` is within 1 % of the best known value.
    """

    std = 0.25

    def __init__(self, problem: Problem, seed: int, budget: int, has_penalty: bool) -> None:
        """Draw the start of a search.

        Args:
            problem: The problem.
            seed: The seed of the start.
            budget: The maximum number of evaluations.
            has_penalty: Whether the values of infeasible candidates contain a penalty.
        """
        self._problem = problem
        # The weight of the violations in a value. It is 0 if there is no penalty.
        self._penalty = 10 * abs(problem.best) * has_penalty
        # The results (value, constraints) of evaluated candidates, by the bytes of a candidate.
        # A search asks for the value and for the constraints of a candidate in two calls, which
        # count as one evaluation.
        self._evaluated: dict[bytes, tuple[float, Any]] = {}
        self.budget = budget
        self._deadline = time.perf_counter() + LIMIT_S
        self.evaluations = 0
        self.lowest = math.inf
        self.is_solved = False
        # The lower and the upper bounds, shape (2, dim). A problem's `low` is a text with the
        # lower bounds of its parameters.
        self.box = np.array([[0.0], [1.0]]).repeat(len(problem.low.split()), 1)
        self.start = np.random.default_rng(seed).uniform(*self.box)
        self.has_constraints = problem.has_constraints

    def evaluate_one(self, x: Any) -> float:
        """Return the value of one candidate, shape (dim,), with the penalty if there is one."""
        value, constraints = self._evaluate(x)
        return value + self._penalty * float(np.maximum(constraints, 0).sum())

    def constraints(self, x: Any) -> Any:
        """Return the constraints of one candidate, which are at most 0 if it is feasible."""
        return self._evaluate(x)[1]

    def residuals(self, x: Any) -> Any:
        """Return the residuals of one candidate of a fit."""
        self._evaluate(x)
        return self._problem.call(x)

    def _evaluate(self, x: Any) -> tuple[float, Any]:
        """Return the value and the constraints of a candidate, and count the evaluation.

        Raises:
            Spent: If the problem is solved, or the budget or the time is spent.
        """
        # With constraints, a search asks for the value and for the constraints of a candidate
        # in two calls. The second call gets the stored result, and does not count.
        key = x.tobytes()
        if self.has_constraints and key in self._evaluated:
            return self._evaluated[key]
        is_late = time.perf_counter() > self._deadline
        if self.is_solved or is_late or self.evaluations == self.budget:
            raise Spent
        self.evaluations += 1
        value, constraints = self._problem.evaluate(x)
        self._evaluated[key] = (value, constraints)
        if (constraints <= TOLERANCE).all():  # The candidate is feasible.
            self.lowest = min(self.lowest, value)
        best = self._problem.best  # The best known value.
        self.is_solved = self.lowest <= best + WITHIN * abs(best)
        return value, constraints


def _cem(objective: Objective, seed: int) -> None:
    """Minimise an objective with `cem.minimize`, which calls it candidate by candidate."""
    constraints = objective.constraints if objective.has_constraints else None
    minimize(
        objective.evaluate_one,
        objective.start,
        objective.std,
        bounds=(0, 1),
        constraints=constraints,
        vectorize="loop",
        budget=objective.budget,
        seed=seed,
    )


def _differential_evolution(objective: Objective, seed: int) -> None:
    scipy_search(
        objective,
        seed,
        algorithm="differential_evolution",
        constraints=scipy_constraints(objective),
    )


def _optuna(objective: Objective, seed: int, *, sampler: str) -> None:
    """Minimise an objective with a sampler of Optuna. The first trial is the start.

    The loop has no end of its own: the objective raises `Spent`.

    Args:
        objective: The objective, whose parameters are between 0 and 1.
        seed: The seed of the sampler.
        sampler: The name of a class in `optuna.samplers`.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    settings: dict[str, Any] = {"seed": seed}
    if objective.has_constraints:
        # The sampler reads the constraints of a finished trial from its attribute.
        settings["constraints_func"] = lambda trial: trial.user_attrs["constraints"]
    study = optuna.create_study(sampler=getattr(optuna.samplers, sampler)(**settings))
    study.enqueue_trial({str(i): value for i, value in enumerate(objective.start.tolist())})
    while True:
        trial = study.ask()
        x = np.array([trial.suggest_float(str(i), 0, 1) for i in range(len(objective.start))])
        trial.set_user_attr("constraints", objective.constraints(x).tolist())
        study.tell(trial, objective.evaluate_one(x))


def _least_squares(objective: Objective, seed: int) -> None:
    """Minimise the squares of residuals, with restarts at random points without end."""
    import scipy.optimize

    generator = np.random.default_rng(seed)
    start = objective.start
    while True:
        scipy.optimize.least_squares(objective.residuals, start, bounds=(0, 1))
        start = generator.uniform(*objective.box)


class Search(NamedTuple):
    """A search that is compared.

    Attributes:
        label: The name of the search in tables.
        run: Minimises an objective with a seed.
        module: The module that the search imports.
        budget: The maximum number of evaluations.
    """

    label: str
    run: Callable[[Any, int], None]
    module: str
    budget: int = 1000


SEARCHES = {
    "cem": Search("cem", _cem, "cem"),
    "slsqp": Search("SciPy SLSQP", scipy_restarts, "scipy"),
    "pycma_lq": Search("pycma lq", partial(pycma_lq, bounds=[0, 1]), "cma"),
    "differential_evolution": Search("SciPy DE", _differential_evolution, "scipy"),
    "optuna_tpe": Search("Optuna TPE", partial(_optuna, sampler="TPESampler"), "optuna", 500),
    "optuna_gp": Search("Optuna GP", partial(_optuna, sampler="GPSampler"), "optuna", 250),
}
# Searches of fits, which see residuals.
FIT_SEARCHES = {"least_squares": Search("SciPy least_squares", _least_squares, "scipy")}


def run_search(run: tuple[str, str, int]) -> dict[str, Any]:
    """Run a search of a problem from a start.

    Args:
        run: The name of the problem, the name of the search, and the seed of both.

    Returns:
        The number of evaluations, whether the last one is a solution, and the lowest value.
    """
    problem, name, seed = run
    search = (SEARCHES | FIT_SEARCHES)[name]
    has_penalty = name == "pycma_lq"  # This search takes no constraints.
    objective = Objective(PROBLEMS[problem], seed, search.budget, has_penalty)
    with contextlib.suppress(Spent), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.run(objective, seed)
    return {
        "evaluations": objective.evaluations,
        "is_solved": objective.is_solved,
        "lowest": objective.lowest,
    }


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Run all searches of all problems, and return the medians of their evaluations.

    An example of a figure's name is "practice.beam.slsqp.evaluations". A search has no figure
    for a problem that most of its runs have not solved.
    """
    names = [name for name, search in SEARCHES.items() if find_spec(search.module)]
    # A cell is a problem and a search. It has `STARTS` runs, which follow each other.
    cells = [*itertools.product(arguments.problems or PROBLEMS, names)]
    fits = [name for name in arguments.problems or PROBLEMS if PROBLEMS[name].is_fit]
    if find_spec("scipy"):
        cells += itertools.product(fits, FIT_SEARCHES)
    # pycma does not accept 0 as a seed.
    runs = [(*cell, seed) for cell in cells for seed in range(1, STARTS + 1)]
    results = run_all(run_search, runs, arguments.jobs, "practice")
    figures = {}
    details: dict[str, Any] = {}
    for index, (problem, name) in enumerate(cells):
        first_run = index * STARTS
        cell_runs = results[first_run : first_run + STARTS]
        # A run that has not solved the problem counts as infinitely many evaluations.
        counts = [run["evaluations"] if run["is_solved"] else math.inf for run in cell_runs]
        median = float(np.median(counts))
        if median < math.inf:
            figures[f"practice.{problem}.{name}.evaluations"] = median
        details.setdefault(problem, {})[name] = cell_runs
    labels = {name: SEARCHES[name].label for name in names}
    return Measured(figures, {"labels": labels, "problems": details})
