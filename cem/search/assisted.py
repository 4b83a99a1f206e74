"""A search that asks a model of the function which candidates are worth an evaluation.

N. Hansen, A Global Surrogate Assisted CMA-ES, GECCO 2019. The model ranks the population; the
candidates that it ranks first are evaluated, until the ranks of model and function agree. The
distribution then moves by the values of those and by the model's for all others.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem.core.bounds import into_box, out_of_box
from cem.core.checks import as_real
from cem.core.evaluation import Evaluation
from cem.core.state import MEAN, bounds_of, transformed_bounds, with_integers
from cem.optimizer import CrossEntropyMethod
from cem.run.evaluator import Evaluator
from cem.run.stopping import Interrupted, StopRequest
from cem.search.descent import Descent
from cem.search.evaluated import Evaluations
from cem.search.history import EVALUATIONS
from cem.search.plan import Plan, Start
from cem.search.quadratic import QuadraticModel

_AGREEMENT = 0.85  # Kendall's rank correlation from which on the model is trusted
_COMPARED = 15  # the least number of the newest points by which it is measured
_GROWTH = 1.5  # evaluations of a generation so far, if they were too few
_DESCENT = 50  # the most evaluations of the descent, for each parameter
_AFTER_STEP = 3.0  # the standard deviation beside the last step of a descent that goes on
_NOISY = 1e-12  # the difference of two values of one point, as a share of them, that is noise


class Problem:
    """The function of a search as one to minimise.

    A candidate is what the function gets. With bounds the distribution moves in a space without
    them, and a smooth map takes its points into the box; without bounds both are the same.
    """

    def __init__(self, optimizer: CrossEntropyMethod, evaluator: Evaluator) -> None:
        """Take the optimizer's bounds, dtype and kind of candidates, and who evaluates them."""
        self.optimizer = optimizer
        self.workers = evaluator.workers
        self._evaluator = evaluator
        self._sign = -1.0 if optimizer.maximize else 1.0
        self._is_numpy = isinstance(optimizer.mean, np.ndarray)

    def points_of(self, candidates: Any) -> Any:
        """Return candidates as points of the search space; both have shape (n, d), float64."""
        return self._map_by_bounds(out_of_box, candidates)

    def candidates_at(self, points: Any) -> Any:
        """Return the candidates of points, (n, d), rounded to the dtype of the search."""
        candidates = torch.from_numpy(self._map_by_bounds(into_box, points))
        candidates = candidates.to(self.optimizer.dtype)
        state = self.optimizer.state
        bounds = bounds_of(state)
        if bounds is not None:
            candidates = candidates.clamp(*bounds)
        return with_integers(state, candidates).double().numpy()

    def as_population(self, candidates: Any) -> Any:
        """Return candidates, (n, d), as the kind and dtype that the optimizer draws."""
        population = torch.from_numpy(candidates).to(self.optimizer.dtype)
        return population.numpy() if self._is_numpy else population

    def evaluate(self, candidates: Any, generation: int, first_index: int) -> Any:
        """Return the values to minimise of candidates, shape (n,), float64; NaN for a failure.

        Raises:
            ValueError: If other candidates were evaluated in their place, of which the model
                would not know.
        """
        population = self.as_population(candidates)
        evaluation = self._evaluator(population, generation, first_index)
        if evaluation.candidates is not None:
            raise ValueError(
                "expected fitness alone for model='quadratic', got other candidates"
            )
        return self.value_of(torch.as_tensor(evaluation.fitness).double().numpy())

    def path_of(self, known: Evaluations | None) -> list[tuple[Any, float]]:
        """Return evaluations from before as points and their values to minimise."""
        if known is None:
            return []
        values = self.value_of(known.fitness)
        values = np.where(np.isfinite(values), values, math.inf)
        return [*zip(self.points_of(known.candidates), values.tolist(), strict=True)]

    def value_of(self, fitness: Any) -> Any:
        """Return the value to minimise of a fitness, and the fitness of such a value."""
        return self._sign * fitness

    def _map_by_bounds(self, map_points: Callable[..., Tensor], points: Any) -> Any:
        box = transformed_bounds(self.optimizer.state)
        if box is None:
            return np.array(points)
        low, high = (end.double().unsqueeze(-2) for end in box)
        return map_points(torch.from_numpy(points), low, high).numpy()


@dataclass
class Generation:
    """The candidates of a generation, of which some have been evaluated.

    Attributes:
        number: The number of the generation.
        candidates: The candidates, shape (N, d).
        points: The same as points of the search space.
        values: Their values to minimise, shape (N,): NaN: not evaluated; infinity: failed.
    """

    number: int
    candidates: Any
    points: Any
    values: Any

    @property
    def is_missing(self) -> Any:
        """Which candidates have not been evaluated, flags of shape (N,)."""
        return np.isnan(self.values)

    @property
    def has_value(self) -> Any:
        """Which candidates have been evaluated with success, flags of shape (N,)."""
        return np.isfinite(self.values)


class ModelAssisted:
    """An objective that evaluates the promising candidates of a population.

    Attributes:
        evaluations: The candidates that were evaluated.
    """

    def __init__(
        self,
        optimizer: CrossEntropyMethod,
        evaluator: Evaluator,
        budget: int,
        path: Sequence[tuple[Any, float]],
    ) -> None:
        """Begin a search.

        Args:
            optimizer: The optimizer, at its start.
            evaluator: Evaluates some candidates of a generation.
            budget: The most evaluations.
            path: Points of the search space that are known already, with their values. The
                mean is the best one.
        """
        self.evaluations = 0
        self._problem = Problem(optimizer, evaluator)
        self._budget = budget
        self._model = QuadraticModel(optimizer.dim)
        self._path = path
        for point, value in path:
            self._model.add(point, value)

    def restore(self, evaluated: Sequence[tuple[Any, float | None]]) -> None:
        """Take up the candidates that a search had evaluated by its checkpoint."""
        self.evaluations = len(evaluated)
        for candidate, fitness in evaluated:
            point = self._problem.points_of(np.array([candidate]))[0]
            value = math.nan if fitness is None else self._problem.value_of(fitness)
            self._model.add(point, value)

    def __call__(self, candidates: Any, generation: Any) -> Evaluation:
        """Return candidates with values of the function, or of the model, as fitness."""
        with np.errstate(over="ignore", invalid="ignore"):
            population = self._begin(candidates, int(generation))
            if self._model.is_fitted:
                self._insert_minimum(population)
                self._evaluate_until_trusted(population)
                self._predict_others(population)
            else:
                self._evaluate(population, len(population.values))
        return Evaluation(
            torch.from_numpy(self._problem.value_of(population.values)),
            metrics={EVALUATIONS: self.evaluations},
            candidates=self._problem.as_population(population.candidates),
        )

    def _begin(self, drawn: Any, number: int) -> Generation:
        """Return a generation before its first evaluation, and fit the model for it."""
        candidates = torch.as_tensor(drawn).double().numpy().copy()
        values = np.full(len(candidates), math.nan)
        population = Generation(number, candidates, self._problem.points_of(candidates), values)
        if number == 0 and self._path:
            # The start of the search is known, and one of its candidates.
            population.points[0], values[0] = min(self._path, key=lambda pair: pair[1])
            candidates[0] = self._problem.candidates_at(population.points[:1])[0]
        state = self._problem.optimizer.state
        assert state.factor is not None, "a model needs a full covariance"
        center = state.distribution[MEAN].double().numpy()
        self._model.fit(center, state.factor.double().numpy())
        return population

    def _insert_minimum(self, population: Generation) -> None:
        """Put the model's minimum in the place of the candidate that it predicts the worst.

        The minimum is sought within the radius that a candidate has on average.
        """
        predictions = self._model.predict(population.points)
        worst = int(np.argmax(np.where(population.is_missing, predictions, -math.inf)))
        radius = math.sqrt(population.points.shape[1])
        minimum = self._problem.candidates_at(self._model.minimum(radius)[None])
        population.candidates[worst] = minimum[0]
        population.points[worst] = self._problem.points_of(minimum)[0]

    def _evaluate_until_trusted(self, population: Generation) -> None:
        """Evaluate more and more candidates, until the model ranks new points rightly."""
        size = len(population.values)
        wanted = max(1, self._problem.workers)
        while True:
            self._evaluate(population, wanted)
            if self.evaluations >= self._budget or wanted >= size:
                return
            count = int(population.has_value.sum())
            compared = max(_COMPARED, min(int(1.2 * count), int(0.75 * size)))
            if count and self._model.agreement(compared) >= _AGREEMENT:
                return
            wanted = max(wanted + 1, math.ceil(_GROWTH * wanted))

    def _evaluate(self, population: Generation, wanted: int) -> None:
        """Evaluate candidates, the best by the model first, until ``wanted`` of them are."""
        missing = np.flatnonzero(population.is_missing)
        done = len(population.values) - len(missing)
        count = min(wanted - done, self._budget - self.evaluations)
        if count <= 0:
            return
        if self._model.is_fitted:
            predictions = self._model.predict(population.points[missing])
            missing = missing[np.argsort(predictions, kind="stable")]
        chosen = missing[:count]
        values = self._problem.evaluate(population.candidates[chosen], population.number, done)
        self.evaluations += len(chosen)
        population.values[chosen] = np.where(np.isnan(values), math.inf, values)
        for point, value in zip(population.points[chosen], values, strict=True):
            self._model.add(point, value)

    def _predict_others(self, population: Generation) -> None:
        """Give candidates that were not evaluated the values of the model.

        These are shifted so that the model has the best value of this generation, and none of
        them is better than that. If nothing succeeded, the best value of all is taken.
        """
        is_missing = population.is_missing
        if not is_missing.any():
            return
        has_value = population.has_value
        predictions = self._model.predict(population.points)
        best = min(self._model.values)
        if has_value.any():
            best = population.values[has_value].min()
            predictions += best - predictions[has_value].min()
        least = np.nextafter(best, math.inf)
        population.values[is_missing] = np.maximum(predictions[is_missing], least)


class Walk:
    """Evaluates points for a descent, until a stop is due or the target is reached.

    Attributes:
        evaluations: The points that were evaluated.
        path: The point at which the target was reached, and its value; empty before that.
    """

    def __init__(self, problem: Problem, stop: StopRequest, target: float | None) -> None:
        """Begin; ``target`` is a fitness, or None."""
        self.evaluations = 0
        self.path: list[tuple[Any, float]] = []
        self._problem = problem
        self._stop = stop
        self._target = -math.inf if target is None else problem.value_of(target)

    def __call__(self, points: Any) -> Any:
        """Return the values of points, shape (n, d); raise Interrupted at the end."""
        self._stop.check()
        candidates = self._problem.candidates_at(points)
        values = self._problem.evaluate(candidates, 0, self.evaluations)
        self.evaluations += len(points)
        if (values <= self._target).any():
            best = int(np.nanargmin(values))
            self.path.append((points[best], values[best]))
            raise Interrupted("the target is reached")
        return values


def begin_with_descent(plan: Plan, evaluator: Evaluator, stop: StopRequest) -> tuple[Plan, int]:
    """Descend from the start of a plan, which then begins at the best point.

    The start is evaluated twice. If its values differ, or there is none, nothing else is done;
    if they differ the plan goes on without a model. A plan without a model stays as it is.

    Returns:
        The plan of the first search, and the number of evaluations.
    """
    if not plan.uses_model:
        return plan, 0
    optimizer = plan.build_optimizer(plan.start, plan.population_size, 0)
    if plan.options["checkpoint"] is not None:
        _open_journal(plan, optimizer, evaluator)
    problem = Problem(optimizer, evaluator)
    plan = replace(plan, path=problem.path_of(plan.known))
    walk = Walk(problem, stop, plan.termination_options["target"])
    mean = optimizer.state.distribution[MEAN].double().numpy()
    descent: Descent | None = None
    with suppress(Interrupted):
        first, second = walk(np.stack([mean, mean]))
        if not math.isfinite(first):
            return plan, walk.evaluations
        if abs(first - second) > _NOISY * max(abs(first), abs(second)):
            return replace(plan, uses_model=False), walk.evaluations
        width = optimizer.state.std.double().numpy()
        if optimizer.state.integers is not None:
            # Slopes say nothing about integers, which stay as they are.
            width = np.where(optimizer.state.integers[0].isnan(), width, 0.0)
        precision = torch.finfo(optimizer.dtype).eps
        descent = Descent(walk, mean, first, width, precision)
        with np.errstate(over="ignore", invalid="ignore"):
            descent.run(min(plan.budget // 2, _DESCENT * len(mean)))
    if stop.due[0]:
        # The next call continues the descent, so that no search may be saved before its end.
        plan = replace(plan, options={**plan.options, "checkpoint": None})
    path = walk.path if descent is None else walk.path + descent.path
    if not path:
        return plan, walk.evaluations
    path = [*plan.path, *path]
    best, _ = min(path, key=lambda pair: pair[1])
    start = problem.as_population(problem.candidates_at(best[None]))[0]
    std = as_real("std", plan.start.std)
    if not plan.config.integers_of(len(mean)):
        std = std * _share_of_std(descent)
    return replace(plan, start=Start(start, std), path=path), walk.evaluations


def _share_of_std(descent: Descent | None) -> float:
    """Return how wide the search after a descent is, as a share of the first width.

    A descent that the budget ended would have gone on by steps like its last one. About its end
    candidates are searched within a sphere whose radius is the first standard deviation.
    """
    if descent is None or descent.last_length == 0:
        return 1.0
    if descent.is_unfinished:
        return min(1.0, _AFTER_STEP * descent.last_length)
    return 1 / math.sqrt(len(descent.path[0][0]))


def _open_journal(plan: Plan, optimizer: CrossEntropyMethod, evaluator: Evaluator) -> None:
    """Let a call that is repeated take the evaluations of its descent from a file."""
    folder = Path(plan.options["checkpoint"])
    folder.mkdir(parents=True, exist_ok=True)
    search = {
        "objective": plan.name,
        "code": plan.code,
        "mean": plan.first.tolist(),
        "std": optimizer.std.tolist(),
    }
    evaluator.open_journal(folder / "descent.journal", search)
