"""Compare searches on the suites of COCO: bbob, bbob-noisy, bbob-constrained and bbob-mixint.

python scripts/measure coco --dims 2 5 --searches cem pycma
python scripts/measure coco --suite bbob-mixint --dims 5 --jobs 14

Every function has 51 targets from f_opt + 100 down to f_opt + 1e-8, in equal steps of the
logarithm. "solved" is the share of the targets of all functions and instances that candidates
reach: within the budget, and within a tenth of it. Candidates are compared with the targets

bbob, bbob-mixint    by their value
bbob-noisy           by their value without the noise, which searches do not see
bbob-constrained     if they are feasible; an objective and its constraints are one evaluation

The start of a search and its standard deviation are

bbob, bbob-noisy     0, and 2.5
bbob-constrained     the suite's feasible candidate, and 2
bbob-mixint          the middle of the bounds, and a quarter of their range

Searches have their default settings. evotorch has no default population: it gets 10 candidates
per dimension. Optuna's TPE takes longer with every trial: it gets a tenth of the budget, and
only up to 3 dimensions. Peers that are not installed are left out:
pip install cma cmaes evotorch optuna scipy. The suites are those of coco-experiment (Hansen et
al., COCO, Optimization Methods and Software 36, 2021).
"""

import argparse
import contextlib
import itertools
import logging
import math
import multiprocessing
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch

from cem import minimize
from kernels.support.names import unknown_name
from kernels.support.progress import progress
from measure.cluster import InstantEngine
from measure.provenance import Measured
from tetris.commands.command_line import one_line_errors

TARGETS = tuple(10 ** (2 - k / 5) for k in range(51))  # Differences from the optimal value.
FUNCTIONS = {"bbob": 24, "bbob-noisy": 30, "bbob-constrained": 54, "bbob-mixint": 24}
POPULATION = 10  # Candidates per dimension.
RESTARTS = 50  # More than fit into a budget.


class Spent(Exception):  # noqa: N818 - it is no error
    """A search has reached the last target or spent its budget."""


class Objective:
    """A function to minimise, which counts evaluations and records the smallest gaps.

    The gap of a candidate is its value without noise minus the optimal value.

    Attributes:
        best: ``best[n]`` is the smallest gap in the first n evaluations.
    """

    def __init__(
        self, suite: str, dim: int, function: int, instance: int, checkpoints: Sequence[int]
    ) -> None:
        """Load a function of a suite of COCO, and choose the start of searches.

        Args:
            suite: The name of the suite, such as "bbob".
            dim: The number of parameters.
            function: The number of the function in the suite, from 1.
            instance: The number of the instance, which shifts and rotates the function.
            checkpoints: The keys of `best`: numbers of evaluations, in increasing order. The
                last one is the budget.
        """
        problem = _load_problem(suite, dim, function, instance)
        self._problem = problem
        self._noiseless = problem  # The problem that `_noiseless_value` evaluates.
        self.dim = dim
        self.budget = checkpoints[-1]
        self.evaluations = 0
        self.best = dict.fromkeys(checkpoints, math.inf)
        # The indices of the integer parameters, which come before the continuous ones.
        self.integers = range(problem.number_of_integer_variables)
        # The lower and the upper bounds, shape (2, dim).
        self.box = np.array([problem.lower_bounds, problem.upper_bounds], dtype=np.float64)
        self.has_constraints = problem.number_of_constraints > 0
        # Searches start from this candidate and with this standard deviation.
        self.start, self.std = self._choose_start()
        if suite == "bbob-noisy":
            # Functions 3k - 2, 3k - 1 and 3k are the same function with normal, uniform and
            # Cauchy noise. Cauchy noise is rare: most evaluations of function 3k have none, so
            # values without noise are taken from it.
            cauchy_function = 3 * math.ceil(function / 3)
            self._noiseless = _load_problem(suite, dim, cauchy_function, instance)
        # `_noiseless_value` rejects values far below `_optimum`. While it computes the optimum
        # itself, it must not reject any.
        self._optimum = -math.inf
        self._optimum = self._noiseless_value(_best_candidate(problem))
        # The results (value, constraints) of evaluated candidates, by the bytes of a candidate.
        # They are stored only if the problem has constraints.
        self._evaluated: dict[bytes, tuple[float, Any]] = {}

    def _choose_start(self) -> tuple[Any, Any]:
        """Return the first candidate of searches, and their first standard deviation."""
        if self.has_constraints:
            return np.array(self._problem.initial_solution), 2.0
        if self.integers:
            return self.box.mean(0), np.diff(self.box, axis=0)[0] / 4
        return np.zeros(self.dim), 2.5

    def __call__(self, candidates: Any) -> Any:
        """Return the values of candidates, shape (N, dim); raise Spent as `_evaluate` does."""
        return np.array(
            [self.evaluate_one(x) for x in np.array(candidates, dtype=np.float64, order="C")]
        )

    def evaluate_one(self, x: Any) -> float:
        """Return the value of one candidate, shape (dim,)."""
        return self._evaluate(x)[0]

    def constraints(self, x: Any) -> Any:
        """Return the constraints of one candidate, which are at most 0 if it is feasible."""
        return self._evaluate(x)[1]

    def _evaluate(self, x: Any) -> tuple[float, Any]:
        """Return the objective and the constraints of a candidate, and count the evaluation.

        If the candidate is feasible, its gap is recorded.

        Raises:
            Spent: If the budget is spent, or the last target has been reached.
            RuntimeError: If the value is below the optimum.
        """
        # With constraints, a search asks for the value and for the constraints of a candidate
        # in two calls. Only the first call counts; the second one gets the stored result.
        key = x.tobytes()
        if key in self._evaluated:
            return self._evaluated[key]
        is_spent = self.evaluations == self.budget
        # `best` has the smallest gap so far. Targets are gaps, too, in decreasing order.
        is_solved = self.best[self.budget] <= TARGETS[-1]
        if is_spent or is_solved:
            raise Spent
        self.evaluations += 1
        value = float(self._problem(x))
        constraints = self._problem.constraint(x)
        if self.has_constraints:
            self._evaluated[key] = (value, constraints)
        is_feasible = not self.has_constraints or (constraints <= 0).all()
        if is_feasible:
            self._record_gap(x, value)
        return value, constraints

    def _record_gap(self, x: Any, value: float) -> None:
        """Update `best` with the gap of the candidate that has just been evaluated.

        The gap is the candidate's value without noise minus the optimal value. `best` maps a
        number of evaluations to the smallest gap until then.
        """
        if self._noiseless is not self._problem:  # The problem is noisy.
            value = self._noiseless_value(x)
        gap = value - self._optimum
        # Rounding errors can make a gap slightly negative.
        if gap < -1e-6:
            raise RuntimeError(
                f"expected no value below the optimum of {self._problem.id}, got {gap:g}"
            )
        for checkpoint in self.best:
            if self.evaluations <= checkpoint:
                self.best[checkpoint] = min(self.best[checkpoint], max(gap, 0.0))

    def _noiseless_value(self, x: Any) -> float:
        """Return the value of a candidate without noise: evaluate it until a value repeats.

        Noise is a random number, so a value that occurs twice has no noise. A repeated value
        below the optimum is an exception, and does not count. The values of a noisy function
        include a constant. The optimum includes the same constant.
        """
        values = set[float]()
        while True:
            value = float(self._noiseless(x))
            if value in values and value >= self._optimum - 1.0:
                return value
            values.add(value)


def _load_problem(suite: str, dim: int, function: int, instance: int) -> Any:
    """Return a problem of `cocoex`; raise ValueError if the suite does not have the dimension.

    Without the check `cocoex` would return a problem of another dimension.
    """
    import cocoex

    selection = f"dimensions:{dim} function_indices:{function}"
    problem = cocoex.Suite(suite, f"instances:{instance}", selection).get_problem(0)
    if (problem.dimension, problem.id_instance) != (dim, instance):
        raise ValueError(f"expected a dimension of {suite}, got {dim}")
    return problem


def _best_candidate(problem: Any) -> Any:
    """Return the best candidate of a problem of `cocoex`, shape (dim,)."""
    # The suite writes it to a file in the working folder, so change to a temporary folder.
    working_folder = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        problem._best_parameter("print")
        os.chdir(working_folder)
        return np.loadtxt(os.path.join(folder, "._bbob_problem_best_parameter.txt"))


def _cem(
    objective: Objective, seed: int, *, one_at_a_time: bool = False, **settings: Any
) -> None:
    """Minimise an objective by `cem.minimize`, until the objective raises `Spent`.

    Args:
        objective: The objective.
        seed: The seed of the search.
        one_at_a_time: Whether the search calls the objective with one candidate at a time, so
            that by default it has a model. It always does if there are constraints.
        settings: Other arguments of `minimize`.
    """
    function: Any = objective
    # The objective ends the search, so the search itself never reaches its budget.
    options: dict[str, Any] = {"budget": objective.budget + 1, "seed": seed, **settings}
    if objective.has_constraints:
        options["constraints"] = objective.constraints
    if one_at_a_time or objective.has_constraints:
        function = objective.evaluate_one
        options["vectorize"] = "loop"
    if objective.integers:
        options |= {"bounds": objective.box.T, "integers": [*objective.integers]}
    minimize(function, objective.start, objective.std, **options)


def _evotorch(objective: Objective, seed: int, *, algorithm: str, **settings: Any) -> None:
    """Minimise an objective with an algorithm of the package evotorch.

    The loop has no end of its own: the objective raises `Spent` when its budget is spent or its
    last target has been reached.

    Args:
        objective: The objective. Its ``start`` and ``std`` are the first mean and standard
            deviation of the search.
        seed: The seed of the search.
        algorithm: The name of a class in `evotorch.algorithms`.
        settings: Other arguments of the class.
    """
    # evotorch's loggers set their own levels, so only `disable` silences them.
    logging.disable(logging.INFO)
    import evotorch.algorithms

    problem = evotorch.Problem(
        "min",
        lambda x: torch.from_numpy(objective(x.numpy())),  # Candidates (N, dim) to values (N,).
        vectorized=True,
        seed=seed,
        solution_length=objective.dim,
        initial_bounds=(-5.0, 5.0),
        dtype=torch.float64,
    )
    searcher_class = getattr(evotorch.algorithms, algorithm)
    searcher = searcher_class(
        problem,
        center_init=torch.from_numpy(objective.start),
        popsize=POPULATION * objective.dim,
        stdev_init=objective.std,
        **settings,
    )
    while True:
        searcher.step()


def _cmaes(objective: Objective, seed: int, *, algorithm: str) -> None:
    """Minimise an objective with a class of the package cmaes, such as "CMA"."""
    import cmaes

    search = getattr(cmaes, algorithm)(mean=objective.start, sigma=objective.std, seed=seed)
    while not search.should_stop():
        candidates = np.array([search.ask() for _ in range(search.population_size)])
        search.tell(list(zip(candidates, objective(candidates).tolist(), strict=True)))


def _cmawm(objective: Objective, seed: int) -> None:
    """Minimise an objective with integer parameters by the search CMAwM of the package cmaes.

    Whenever a search has converged, the next one starts from a random point with twice the
    population. The loop has no end of its own: the objective raises `Spent` when its budget is
    spent or its last target has been reached.
    """
    import cmaes

    # CMAwM rounds a parameter to multiples of its step: 1 for integers, and 0 for continuous
    # parameters, which are not rounded.
    steps = np.isin(range(objective.dim), objective.integers).astype(float)
    mean = objective.start
    population = 4 + int(3 * math.log(objective.dim))  # The default of CMA-ES.
    while True:
        search = cmaes.CMAwM(
            mean=mean,
            population_size=population,
            seed=seed,
            sigma=1.0,
            bounds=objective.box.T,  # A row (lower, upper) for each parameter.
            cov=np.diag(objective.std**2),
            steps=steps,
        )
        _run_cmawm(search, objective)
        seed += 1
        population *= 2
        mean = np.random.default_rng(seed).uniform(*objective.box)


def _run_cmawm(search: Any, objective: Objective) -> None:
    """Run a search of the class CMAwM until it has converged."""
    while not search.should_stop():
        # `ask` returns a candidate in two forms: the rounded one is evaluated, and the sampled
        # one is for `tell`.
        evaluations = []
        for _ in range(search.population_size):
            rounded, sampled = search.ask()
            evaluations.append((sampled, objective.evaluate_one(rounded)))
        search.tell(evaluations)


def _pycma(objective: Objective, seed: int, **settings: Any) -> None:
    """Minimise an objective with `cma.fmin2` of the package pycma.

    The search ends when the budget of the objective is spent.

    Args:
        objective: The objective. Its ``start`` and ``std`` are the first mean and standard
            deviation of the search. If it has integer parameters, it also has bounds, and
            ``std`` is an array with one value per parameter.
        seed: The seed of the search.
        settings: Other arguments of `fmin2`.
    """
    import cma

    options: dict[str, Any] = {
        "maxfevals": objective.budget,
        "seed": seed,
        "verbose": -9,
        "verb_log": 0,
    }
    std = objective.std
    if objective.integers:
        # pycma samples real numbers and rounds integer parameters. From 1 to 3, for example,
        # only numbers up to 1.5 round to 1, but those from 1.5 to 2.5 round to 2. If the bounds
        # are widened by almost 0.5, every integer has an interval of about the same length.
        is_integer = np.isin(range(objective.dim), objective.integers)
        margin = 0.4999 * is_integer
        lower_bounds, upper_bounds = objective.box
        options["integer_variables"] = list(objective.integers)
        options["bounds"] = [lower_bounds - margin, upper_bounds + margin]
        # `fmin2` takes a single standard deviation, here 1. The option "CMA_stds" multiplies it
        # by one factor per parameter.
        options["CMA_stds"] = std
        std = 1.0
    cma.fmin2(objective.evaluate_one, objective.start, std, options, **settings)


def _pycma_noise(objective: Objective, seed: int) -> None:
    """Minimise with pycma's noise handler, which evaluates candidates up to 30 times."""
    from cma import NoiseHandler

    handler = NoiseHandler(objective.dim, maxevals=[1, 1, 30])
    _pycma(objective, seed, restarts=RESTARTS, bipop=True, noise_handler=handler)


def _pycma_constrained(objective: Objective, seed: int) -> None:
    """Minimise with pycma's augmented Lagrangian; each restart doubles the population.

    The loop has no end of its own: the objective raises `Spent` when its budget is spent.
    """
    import cma

    for restart in itertools.count():
        fitness = cma.ConstrainedFitnessAL(
            objective.evaluate_one, objective.constraints, archives=False, logging=0
        )
        options = {"seed": seed + restart, "verbose": -9, "verb_log": 0, "tolstagnation": 0}
        # The default population of CMA-ES, doubled in every restart.
        options["popsize"] = (4 + int(3 * math.log(objective.dim))) << restart
        cma.fmin2(fitness, objective.start, objective.std, options, callback=fitness.update)


def scipy_search(objective: Any, seed: int, *, algorithm: str, **settings: Any) -> None:
    """Minimise an objective with a global search of `scipy.optimize`."""
    import scipy.optimize

    settings = {"x0": objective.start, "maxiter": objective.budget, "rng": seed, **settings}
    getattr(scipy.optimize, algorithm)(objective.evaluate_one, objective.box.T, **settings)


def scipy_constraints(objective: Any) -> Any:
    """Return the constraints of an objective in the form of `scipy.optimize`."""
    import scipy.optimize

    if not objective.has_constraints:
        return ()
    return scipy.optimize.NonlinearConstraint(objective.constraints, -math.inf, 0)


def _cem_asynchronous(objective: Objective, seed: int, *, workers: int) -> None:
    """Minimise an objective with workers that evaluate candidates for random times.

    Candidates that are running when the budget is spent count as evaluated.
    """
    # Until the objective is spent, there is always budget for a candidate per worker.
    minimize(
        objective.evaluate_one,
        objective.start,
        objective.std,
        budget=objective.budget + workers,
        seed=seed,
        workers=InstantEngine(workers),
        asynchronous=True,
    )


def _descend(objective: Any, start: Any, method: str = "SLSQP") -> Any:
    """Minimise an objective with a descent of SciPy, and return the best candidate.

    BFGS ignores the bounds.
    """
    import scipy.optimize

    return scipy.optimize.minimize(
        objective.evaluate_one,
        start,
        method=method,
        bounds=objective.box.T,
        constraints=scipy_constraints(objective),
        options={"maxiter": objective.budget},
    ).x


def scipy_restarts(objective: Any, seed: int, *, method: str = "SLSQP") -> None:
    """Minimise with a descent, which is restarted at random points of the box without end."""
    generator = np.random.default_rng(seed)
    start = objective.start
    while True:
        _descend(objective, start, method)
        start = generator.uniform(*objective.box)


def pycma_lq(objective: Any, seed: int, *, descends: bool = False, **settings: Any) -> None:
    """Minimise with lq-CMA-ES of pycma, which is restarted at random points without end.

    Args:
        objective: The objective.
        seed: The seed of the first search. Each restart adds 1.
        descends: Whether the first start is the result of SLSQP.
        settings: Other options of `cma`.
    """
    import cma

    generator = np.random.default_rng(seed)
    start = objective.start
    if descends:
        start = _descend(objective, start)
    for restart in itertools.count():
        options = {"seed": seed + restart, "verbose": -9, "verb_log": 0, **settings}
        options["maxfevals"] = objective.budget
        cma.fmin_lq_surr2(objective.evaluate_one, start, objective.std, options=options)
        start = generator.uniform(*objective.box)


def _optuna(objective: Objective, seed: int) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.enqueue_trial({str(i): 0.0 for i in range(objective.dim)})  # The start.
    while True:  # Until the objective raises `Spent`.
        trial = study.ask()
        bounds = enumerate(objective.box.T.tolist())
        x = [trial.suggest_float(str(i), low, high) for i, (low, high) in bounds]
        study.tell(trial, objective.evaluate_one(np.array(x)))


class Search(NamedTuple):
    """A search that is compared.

    Attributes:
        label: The name of the search in tables.
        run: Minimises an objective with a seed.
        module: The module that the search imports.
        checkpoints: The number of checkpoints of its runs. The budget is the last of them. None
            stands for all checkpoints.
        max_dims: The largest number of dimensions of its objectives.
    """

    label: str
    run: Callable[[Objective, int], None]
    module: str = "cem"
    checkpoints: int | None = None
    max_dims: float = math.inf


_CEM = Search("cem, the default", _cem)
_CEM_WITH_MODEL = Search(
    "cem, called candidate by candidate", partial(_cem, one_at_a_time=True)
)
_BIPOP = Search("pycma, BIPOP restarts", partial(_pycma, restarts=RESTARTS, bipop=True), "cma")

SEARCHES = {
    "bbob": {
        "cem": _CEM,
        "cem_model": _CEM_WITH_MODEL,
        "cem_population_16": Search(
            "cem, populations of 16", partial(_cem, population_size=16)
        ),
        "cem_asynchronous_8": Search(
            "cem, asynchronous, 8 workers", partial(_cem_asynchronous, workers=8)
        ),
        "cem_asynchronous_16": Search(
            "cem, asynchronous, 16 workers", partial(_cem_asynchronous, workers=16)
        ),
        "pycma_lq": Search("pycma, lq-CMA-ES", pycma_lq, "cma"),
        "slsqp": Search("SciPy SLSQP, restarts", scipy_restarts, "scipy"),
        "bfgs": Search("SciPy BFGS, restarts", partial(scipy_restarts, method="BFGS"), "scipy"),
        "slsqp_lq": Search(
            "SciPy SLSQP, then lq-CMA-ES", partial(pycma_lq, descends=True), "cma"
        ),
        "evotorch_cem": Search(
            "evotorch CEM, 20 % parents",
            partial(_evotorch, algorithm="CEM", parenthood_ratio=0.2),
            "evotorch",
        ),
        "evotorch_snes": Search(
            "evotorch SNES", partial(_evotorch, algorithm="SNES"), "evotorch"
        ),
        "cmaes_cma": Search("cmaes CMA", partial(_cmaes, algorithm="CMA"), "cmaes"),
        "cmaes_sepcma": Search("cmaes SepCMA", partial(_cmaes, algorithm="SepCMA"), "cmaes"),
        "pycma": Search("pycma", _pycma, "cma"),
        "pycma_bipop": _BIPOP,
        "dual_annealing": Search(
            "SciPy dual annealing", partial(scipy_search, algorithm="dual_annealing"), "scipy"
        ),
        "differential_evolution": Search(
            "SciPy differential evolution",
            partial(scipy_search, algorithm="differential_evolution"),
            "scipy",
        ),
        "optuna_tpe": Search("Optuna TPE", _optuna, "optuna", 1, max_dims=3),
    },
    "bbob-noisy": {
        "cem": _CEM,
        "pycma_bipop": _BIPOP,
        "pycma_noise": Search("pycma, BIPOP restarts, noise handling", _pycma_noise, "cma"),
    },
    "bbob-constrained": {
        "cem": _CEM,
        "pycma": Search("pycma, augmented Lagrangian", _pycma_constrained, "cma"),
        "slsqp": Search("SciPy SLSQP, restarts", scipy_restarts, "scipy"),
    },
    "bbob-mixint": {
        "cem": _CEM,
        "cem_model": _CEM_WITH_MODEL,
        "pycma_bipop": _BIPOP._replace(label="pycma, integer variables, BIPOP restarts"),
        "cmaes_cmawm": Search("cmaes CMAwM", _cmawm, "cmaes"),
    },
}
"""The searches of each suite by name."""


class Run(NamedTuple):
    """A search on an instance of a function.

    Attributes:
        checkpoints: Numbers of evaluations per dimension. The smallest gap until then is
            recorded.
    """

    suite: str
    search: str
    checkpoints: tuple[int, ...]
    dim: int
    function: int
    instance: int


def gaps_of(run: Run) -> list[float]:
    """Run a search, and return the smallest gap to the optimum at each of its checkpoints."""
    search = SEARCHES[run.suite][run.search]
    per_dimension = run.checkpoints[: search.checkpoints]
    checkpoints = [run.dim * evaluations for evaluations in per_dimension]
    objective = Objective(run.suite, run.dim, run.function, run.instance, checkpoints)
    seed = 1_000_000 + 10_000 * run.dim + 100 * run.function + run.instance
    with contextlib.suppress(Spent), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.run(objective, seed)
    return list(objective.best.values())


def summary(
    gaps: Sequence[Sequence[float]], functions: int, checkpoints: Sequence[int]
) -> dict[str, Any]:
    """Return the share of the targets that the runs of a search reached by each checkpoint.

    A search runs once on every instance of every function. The gap of a run is the difference
    between its best value so far and the optimum. The targets are gaps, too: a run has reached
    a target if the run's gap is at most the target.

    Args:
        gaps: One row per run, with its gap at each checkpoint. Rows are sorted by function.
        functions: The number of functions.
        checkpoints: Numbers of evaluations per dimension. The runs of a search with a smaller
            budget have gaps only for the first checkpoints.

    Returns:
        gaps: The argument.
        One key per checkpoint, such as "200": a dictionary with the share of the reached
            targets ("solved") and its standard error ("standard_error"). The error is estimated
            from the variance between the instances of a function. It is None if there is only
            one instance.
    """
    result: dict[str, Any] = {"gaps": gaps}
    reached_checkpoints = checkpoints[: len(gaps[0])]
    for index, evaluations in enumerate(reached_checkpoints):
        gaps_then = np.array([run_gaps[index] for run_gaps in gaps])
        # Compare every run with every target, shape (runs, targets), and take the share of each
        # run.
        shares = (gaps_then[:, None] <= TARGETS).mean(1)
        by_function = shares.reshape(functions, -1)  # Shape (functions, instances).
        instances = by_function.shape[1]
        error = None
        if instances > 1:
            # The mean share of a function has the variance of its shares, divided by their
            # number. The mean over all functions has the sum of these variances, divided by the
            # squared number of functions.
            error = math.sqrt(by_function.var(1, ddof=1).sum() / instances) / functions
        result[str(evaluations)] = {"solved": float(shares.mean()), "standard_error": error}
    return result


def run_all(run: Callable[[Any], Any], runs: Sequence[Any], jobs: int, name: str) -> list[Any]:
    """Return the results of runs, which several processes share, in the order of the runs.

    Args:
        run: Returns the result of a run.
        runs: The runs. The last ones take longest, so they start first.
        jobs: The number of processes.
        name: The name that the progress bar shows.
    """
    pool = None
    if jobs > 1:
        # Processes are spawned, since the threads of a library do not survive a fork. Each of
        # them begins with the call `torch.set_num_threads(1)`.
        spawn = multiprocessing.get_context("spawn")
        pool = spawn.Pool(jobs, torch.set_num_threads, (1,))
    with pool or contextlib.nullcontext():
        results = (pool.imap if pool else map)(run, runs[::-1])
        return list(progress(results, total=len(runs), desc=name, unit=" runs"))[::-1]


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Run the searches in every dimension, and return the shares of targets that they reach.

    An example of a figure's name is "bbob.cem.d5.200.solved": the suite, the search, the number
    of dimensions, and the number of evaluations per dimension.
    """
    suite = arguments.suite
    searches = SEARCHES[suite]
    # Numbers of evaluations per dimension, after which the share is computed.
    checkpoints = (max(1, arguments.budget // 10), arguments.budget)
    if arguments.checkpoints:
        checkpoints = tuple(sorted(arguments.checkpoints))
    functions = arguments.functions or range(1, 1 + FUNCTIONS[suite])
    instances = [*itertools.chain(*arguments.instances)]  # The arguments are ranges.
    # Wrong arguments end the program with a message of one line.
    with one_line_errors():
        for name in arguments.searches or ():
            if name not in searches:
                raise unknown_name("search", name, searches)
        for dim in arguments.dims:
            # It raises an error if the suite does not have this dimension.
            _load_problem(suite, dim, functions[0], instances[0])
    installed = [name for name in searches if find_spec(searches[name].module)]
    names = arguments.searches or installed
    # A cell of the results is a search in a dimension. It has a run for each problem.
    cells = []
    for dim in sorted(arguments.dims):
        cells += [(name, dim) for name in names if dim <= searches[name].max_dims]
    problems = [*itertools.product(functions, instances)]
    runs = []
    for name, dim in cells:
        runs += [Run(suite, name, checkpoints, dim, *problem) for problem in problems]
    # The gaps of every run, cell by cell.
    gaps = run_all(gaps_of, runs, arguments.jobs, suite)
    details: dict[str, Any] = {name: {"label": searches[name].label} for name in names}
    figures = {}
    for number, (name, dim) in enumerate(cells):
        gaps_of_cell = gaps[number * len(problems) : (number + 1) * len(problems)]
        cell = summary(gaps_of_cell, len(functions), checkpoints)
        details[name][f"d{dim}"] = cell
        for evaluations in checkpoints[: searches[name].checkpoints]:
            figure = f"{suite}.{name}.d{dim}.{evaluations}.solved"
            figures[figure] = cell[str(evaluations)]["solved"]
    data = {
        "suite": suite,
        "functions": [*functions],
        "instances": instances,
        "evaluations_per_dimension": checkpoints,
        "targets": TARGETS,
        "searches": details,
    }
    return Measured(figures, data)
