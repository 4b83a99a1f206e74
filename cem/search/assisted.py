"""A search that asks a model of the function which candidates are worth an evaluation.

N. Hansen, A Global Surrogate Assisted CMA-ES, GECCO 2019. The model ranks the population; the
candidates that it ranks first are evaluated, until the ranks of model and function agree. The
distribution then moves by the values of those and by the model's for all others.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem.core.bounds import into_box, out_of_box
from cem.core.evaluation import Evaluation
from cem.core.state import MEAN, State, transformed_bounds
from cem.optimizer import CrossEntropyMethod
from cem.run.evaluator import Evaluator
from cem.run.stopping import Interrupted, StopRequest
from cem.search.descent import descend
from cem.search.history import EVALUATIONS
from cem.search.plan import Plan, Start
from cem.search.quadratic import QuadraticModel

_AGREEMENT = 0.85  # Kendall's rank correlation from which on the model is trusted
_COMPARED = 15  # the least number of the newest points by which it is measured
_GROWTH = 1.5  # evaluations of a generation so far, if they were too few
_DESCENT = 50  # the most evaluations of the descent, for each parameter
_NOISY = 1e-12  # the difference of two values of one point, as a share of them, that is noise


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
        self._optimizer = optimizer
        self._evaluator = evaluator
        self._budget = budget
        self._sign = -1.0 if optimizer.maximize else 1.0
        self._model = QuadraticModel(optimizer.dim)
        self._first: tuple[Any, float] | None = None
        for point, value in path:
            self._model.add(point, value)
        if path:
            self._first = min(path, key=lambda pair: pair[1])

    def restore(self, evaluated: Sequence[tuple[Any, float | None]]) -> None:
        """Take up the candidates that a search had evaluated by its checkpoint."""
        state = self._optimizer.state
        self.evaluations = len(evaluated)
        for x, value in evaluated:
            point = _map_by_bounds(out_of_box, state, np.array([x]))[0]
            self._model.add(point, math.nan if value is None else self._sign * value)

    def __call__(self, candidates: Any, generation: Any) -> Evaluation:
        """Return candidates with values of the function, or of the model, as fitness."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self._evaluate_population(candidates, generation)

    def _evaluate_population(self, candidates: Any, generation: Any) -> Evaluation:
        state = self._optimizer.state
        x = _as_numbers(candidates).copy()
        points = _map_by_bounds(out_of_box, state, x)
        values = np.full(len(x), math.nan)
        if generation == 0 and self._first is not None:
            points[0], values[0] = self._first
            x[0] = _map_by_bounds(into_box, state, points[:1])[0]
        assert state.factor is not None, "a model needs a full covariance"
        center = state.distribution[MEAN].double().numpy()
        model = self._model
        model.fit(center, state.factor.double().numpy())
        if not model.is_fitted:
            self._evaluate(x, points, values, len(x), generation)
            return self._as_evaluation(x, values)
        # The candidate that is predicted to be the worst makes room for the model's minimum.
        worst = int(np.argmax(np.where(np.isnan(values), model.predict(points), -math.inf)))
        minimum = _map_by_bounds(into_box, state, model.minimum(math.sqrt(len(center)))[None])
        x[worst] = _as_numbers(_as_population(self._optimizer, minimum))[0]  # rounded
        points[worst] = _map_by_bounds(out_of_box, state, x[worst][None])[0]
        wanted = max(1, self._evaluator.workers)
        while True:
            self._evaluate(x, points, values, wanted, generation)
            count = int(np.isfinite(values).sum())
            if self.evaluations >= self._budget or wanted >= len(x):
                break
            compared = max(_COMPARED, min(int(1.2 * count), int(0.75 * len(x))))
            if count and model.agreement(compared) >= _AGREEMENT:
                break
            wanted = max(wanted + 1, math.ceil(_GROWTH * wanted))
        self._predict_others(points, values)
        return self._as_evaluation(x, values)

    def _evaluate(self, x: Any, points: Any, values: Any, wanted: int, generation: Any) -> None:
        """Evaluate candidates, the best by the model first, until so many have a value."""
        is_missing = np.isnan(values)
        done = len(values) - int(is_missing.sum())
        count = min(wanted - done, self._budget - self.evaluations)
        if count <= 0:
            return
        missing = np.flatnonzero(is_missing)
        if self._model.is_fitted:
            predictions = self._model.predict(points[missing])
            missing = missing[np.argsort(predictions, kind="stable")]
        chosen = missing[:count]
        population = _as_population(self._optimizer, x[chosen])
        fitness = _fitness_of(self._evaluator(population, generation, done))
        self.evaluations += len(chosen)
        for index, value in zip(chosen, self._sign * fitness, strict=True):
            # A failure is infinitely bad, and still evaluated.
            values[index] = math.inf if math.isnan(value) else value
            self._model.add(points[index], value)

    def _predict_others(self, points: Any, values: Any) -> None:
        """Give candidates that were not evaluated the values of the model.

        These are shifted so that the model has the best value of this generation, and none of
        them is better than that. If nothing succeeded, the best value of all is taken.
        """
        is_missing = np.isnan(values)
        if not is_missing.any():
            return
        is_known = np.isfinite(values)
        predictions = self._model.predict(points)
        best = min(self._model.values)
        if is_known.any():
            best = values[is_known].min()
            predictions += best - predictions[is_known].min()
        least = np.nextafter(best, math.inf)
        values[is_missing] = np.maximum(predictions[is_missing], least)

    def _as_evaluation(self, x: Any, values: Any) -> Evaluation:
        fitness = torch.from_numpy(self._sign * values)
        metrics = {EVALUATIONS: self.evaluations}
        return Evaluation(fitness, metrics, _as_population(self._optimizer, x))


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
    state = optimizer.state
    if plan.options["checkpoint"] is not None:
        folder = Path(plan.options["checkpoint"])
        folder.mkdir(parents=True, exist_ok=True)
        search = {"objective": plan.name, "code": plan.code, "mean": plan.first.tolist()}
        search["std"] = optimizer.std.tolist()
        evaluator.open_journal(folder / "descent.jsonl", search)
    sign = -1.0 if plan.maximize else 1.0
    target = plan.termination_options["target"]
    path: list[tuple[Any, float]] = []
    evaluations = 0

    def evaluate(points: Any) -> Any:
        nonlocal evaluations
        stop.check()
        x = _as_population(optimizer, _map_by_bounds(into_box, state, points))
        values = sign * _fitness_of(evaluator(x, 0, evaluations))
        evaluations += len(points)
        if target is not None and (values <= sign * target).any():
            best = int(np.nanargmin(values))
            path.append((points[best], values[best]))
            raise Interrupted("the target is reached")
        return values

    mean = state.distribution[MEAN].double().numpy()
    with suppress(Interrupted):
        first, second = evaluate(np.stack([mean, mean]))
        if not math.isfinite(first):
            return plan, evaluations
        if abs(first - second) > _NOISY * max(abs(first), abs(second)):
            return replace(plan, uses_model=False), evaluations
        path.append((mean, first))
        width = state.std.double().numpy()
        budget = min(plan.budget // 2, _DESCENT * len(mean))
        precision = torch.finfo(optimizer.dtype).eps
        with np.errstate(over="ignore", invalid="ignore"):
            descend(evaluate, mean, first, width, budget, path, precision)
    if stop.due[0]:
        # The next call continues the descent, so that no search may be saved before its end.
        plan = replace(plan, options={**plan.options, "checkpoint": None})
    if not path:
        return plan, evaluations
    best = min(path, key=lambda pair: pair[1])[0]
    x = _as_population(optimizer, _map_by_bounds(into_box, state, best[None]))[0]
    return replace(plan, start=Start(x, plan.start.std), path=path), evaluations


def _as_population(optimizer: CrossEntropyMethod, x: Any) -> Any:
    """Return candidates, float64, as the kind and dtype of those that an optimizer draws."""
    candidates = torch.from_numpy(x).to(optimizer.dtype)
    return candidates.numpy() if isinstance(optimizer.mean, np.ndarray) else candidates


def _fitness_of(evaluation: Evaluation) -> Any:
    """Return the fitness of candidates as an array, float64.

    Raises:
        ValueError: If other candidates were evaluated, to which the model would give the place
            of those that were drawn.
    """
    if evaluation.candidates is not None:
        raise ValueError("expected fitness alone for model='quadratic', got other candidates")
    return _as_numbers(evaluation.fitness)


def _as_numbers(fitness: Any) -> Any:
    """Return fitness as an array, float64."""
    return torch.as_tensor(fitness).double().numpy()


def _map_by_bounds(map_points: Callable[..., Tensor], state: State, points: Any) -> Any:
    """Map points, shape (n, d), by one of the maps of bounds that are transformed."""
    box = transformed_bounds(state)
    if box is None:
        return np.array(points)
    low, high = (end.double().unsqueeze(-2) for end in box)
    return map_points(torch.from_numpy(points), low, high).numpy()
