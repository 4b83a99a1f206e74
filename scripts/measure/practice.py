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
SLSQP and lq-CMA-ES are restarted at random points. The budget is 2,000 evaluations, but 500 for
Optuna's TPE and 150 for its Gaussian process, whose trials take longer and longer.

pip install cma gymnasium optuna scipy
"""

import argparse
import contextlib
import itertools
import math
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
    scipy_search,
    slsqp_restarts,
)
from measure.practice_problems import PROBLEMS, Problem
from measure.provenance import Measured

STARTS = 9
WITHIN = 0.01
TOLERANCE = 1e-6


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
        self._penalty = 10 * abs(problem.best) * has_penalty
        # The results (value, constraints) by the bytes of the candidate. A search asks for the
        # value and for the constraints of a candidate in two calls: they are one evaluation.
        self._evaluated: dict[bytes, tuple[float, Any]] = {}
        self.budget = budget
        self.evaluations = 0
        self.lowest = math.inf
        self.is_solved = False
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

    def _evaluate(self, x: Any) -> tuple[float, Any]:
        """Return the value and the constraints of a candidate, and count the evaluation.

        Raises:
            Spent: If the problem is solved or the budget is spent.
        """
        key = x.tobytes()
        if self.has_constraints and key in self._evaluated:
            return self._evaluated[key]
        if self.is_solved or self.evaluations == self.budget:
            raise Spent
        self.evaluations += 1
        value, constraints = self._problem.evaluate(x)
        self._evaluated[key] = (value, constraints)
        if (constraints <= TOLERANCE).all():
            self.lowest = min(self.lowest, value)
        best = self._problem.best
        self.is_solved = self.lowest <= best + WITHIN * abs(best)
        return value, constraints


def _cem(objective: Objective, seed: int) -> None:
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
    """Minimise an objective with a sampler of Optuna, whose first trial is the start."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    settings: dict[str, Any] = {"seed": seed}
    if objective.has_constraints:
        settings["constraints_func"] = lambda trial: trial.user_attrs["constraints"]
    study = optuna.create_study(sampler=getattr(optuna.samplers, sampler)(**settings))
    study.enqueue_trial({str(i): value for i, value in enumerate(objective.start.tolist())})
    while True:
        trial = study.ask()
        x = np.array([trial.suggest_float(str(i), 0, 1) for i in range(len(objective.start))])
        trial.set_user_attr("constraints", objective.constraints(x).tolist())
        study.tell(trial, objective.evaluate_one(x))


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
    budget: int = 2000


SEARCHES = {
    "cem": Search("cem", _cem, "cem"),
    "slsqp": Search("SciPy SLSQP", slsqp_restarts, "scipy"),
    "pycma_lq": Search("pycma lq", partial(pycma_lq, bounds=[0, 1]), "cma"),
    "differential_evolution": Search("SciPy DE", _differential_evolution, "scipy"),
    "optuna_tpe": Search("Optuna TPE", partial(_optuna, sampler="TPESampler"), "optuna", 500),
    "optuna_gp": Search("Optuna GP", partial(_optuna, sampler="GPSampler"), "optuna", 150),
}


def run_search(run: tuple[str, str, int]) -> tuple[int | None, float]:
    """Run a search of a problem from a start.

    Args:
        run: The name of the problem, the name of the search, and the seed of both.

    Returns:
        The number of evaluations until the problem was solved, or None, and the lowest value.
    """
    problem, name, seed = run
    search = SEARCHES[name]
    has_penalty = name == "pycma_lq"
    objective = Objective(PROBLEMS[problem], seed, search.budget, has_penalty)
    with contextlib.suppress(Spent), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.run(objective, seed)
    return objective.evaluations if objective.is_solved else None, objective.lowest


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Run all searches of all problems, and return the medians of their evaluations."""
    names = [name for name, search in SEARCHES.items() if find_spec(search.module)]
    problems = arguments.problems or [*PROBLEMS]
    # pycma does not accept 0 as a seed.
    runs = [*itertools.product(problems, names, range(1, STARTS + 1))]
    ends = dict(zip(runs, run_all(run_search, runs, arguments.jobs, "practice"), strict=True))
    figures = {}
    details = {}
    for problem in problems:
        counts = {}
        for name in names:
            counts[name] = [ends[problem, name, seed][0] for seed in range(1, STARTS + 1)]
            median = np.median([math.inf if n is None else n for n in counts[name]])
            if median < math.inf:
                figures[f"practice.{problem}.{name}.evaluations"] = float(median)
        lowest = min(low for run, (_, low) in ends.items() if run[0] == problem)
        details[problem] = {"lowest": lowest, "evaluations": counts}
    budgets = {name: SEARCHES[name].budget for name in names}
    labels = {name: SEARCHES[name].label for name in names}
    return Measured(figures, {"labels": labels, "budgets": budgets, "problems": details})
