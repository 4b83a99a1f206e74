"""A search with a surrogate model, which chooses the candidates that are evaluated.

The model ranks the candidates of a population. The search evaluates them in this order until
the ranks of the model and of the objective agree. All other candidates get the values that the
model predicts, and the distribution moves: N. Hansen, A Global Surrogate Assisted CMA-ES, GECCO
2019.
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
from cem.core.checks import as_real, to_tensor
from cem.core.evaluation import Evaluation
from cem.core.state import MEAN, bounds_of, transformed_bounds, with_integers
from cem.optimizer import CrossEntropyMethod
from cem.run.constraints import Constraints
from cem.run.evaluator import Evaluator
from cem.run.stopping import Interrupted, StopRequest
from cem.search.descent import Descent, Visits
from cem.search.history import EVALUATIONS
from cem.search.plan import Known, Plan, Start
from cem.search.quadratic import QuadraticModel

_TRUSTED_CORRELATION = 0.85  # the least rank correlation (Kendall's) of a trusted model
_MIN_COMPARED = 15  # at least so many of the newest points are ranked to measure it
_GROWTH = 1.5  # the factor by which the evaluations of a generation grow, if they were too few
_STD_PER_STEP = 3.0  # the standard deviation after an unfinished descent, in last steps
_LEAST_SHARE = 0.1  # the least standard deviation after it, relative to the first one
_INSET = 1e-3  # the least distance of a known point from a bound, relative to the width


class Problem:
    """The objective of a search, as a function to minimise.

    A candidate is an argument of the objective, and a point is its position in the search
    space. With bounds by transform, a smooth map takes the points of an unbounded search space
    into the box. Otherwise a point and its candidate are equal.
    """

    def __init__(self, optimizer: CrossEntropyMethod, evaluator: Evaluator) -> None:
        """Use the bounds, dtype and array type of an optimizer, and an evaluator."""
        self.optimizer = optimizer
        self._evaluator = evaluator
        self._sign = -1.0 if optimizer.maximize else 1.0
        self._is_numpy = isinstance(optimizer.mean, np.ndarray)

    def points_of(self, candidates: Any) -> Any:
        """Return the points of candidates; both have shape (n, d) and dtype float64."""
        return self._map_by_bounds(out_of_box, candidates)

    def candidates_at(self, points: Any) -> Any:
        """Return the candidates of points, shape (n, d), rounded to the dtype of the search."""
        candidates = torch.from_numpy(self._map_by_bounds(into_box, points))
        candidates = candidates.to(self.optimizer.dtype)
        state = self.optimizer.state
        bounds = bounds_of(state)
        if bounds is not None:
            candidates = candidates.clamp(*bounds)
        return with_integers(state, candidates).double().numpy()

    def as_population(self, candidates: Any) -> Any:
        """Return candidates, shape (n, d), in the array type and dtype of the optimizer."""
        population = torch.from_numpy(candidates).to(self.optimizer.dtype)
        return population.numpy() if self._is_numpy else population

    def evaluate(self, candidates: Any, generation: int, first_index: int) -> Any:
        """Evaluate candidates, and return their values to minimise.

        Args:
            candidates: The candidates, shape (n, d).
            generation: The number of the generation.
            first_index: The index of the first candidate in the generation.

        Returns:
            The values, shape (n,), float64. NaN means that the candidate failed.

        Raises:
            ValueError: If the objective evaluated other candidates in their place. The model
                would assign their values to the wrong points.
        """
        population = self.as_population(candidates)
        evaluation = self._evaluator(population, generation, first_index)
        if evaluation.candidates is not None:
            raise ValueError(
                "expected fitness alone for model='quadratic', got other candidates"
            )
        return self.negate_if_maximizing(to_tensor(evaluation.fitness).double().numpy())

    def path_of(self, candidates: Any, values: Any) -> list[Known]:
        """Return evaluated candidates, shape (n, d), and their values as points of the search.

        With bounds by transform, a candidate at a bound would be a point at infinity. Its value
        is assigned to a point that is slightly inside.
        """
        inside = candidates
        if transformed_bounds(self.optimizer.state) is not None:
            low, high = _ends_of(self.optimizer)
            # Where there is only one bound, the unit of the map into the box is 1.
            width = np.where(np.isfinite(high - low), high - low, 1.0)
            inset = _INSET * width
            inside = np.clip(candidates, low + inset, high - inset)
        is_exact = (inside == candidates).all(axis=1)
        points = self.points_of(inside)
        # A row has the fields of ``Known`` for one point.
        rows = zip(points, values.tolist(), candidates, is_exact.tolist(), strict=True)
        return [Known(*row) for row in rows]

    def negate_if_maximizing(self, fitness: Any) -> Any:
        """Convert fitness to values to minimise, or such values back to fitness."""
        return self._sign * fitness

    def _map_by_bounds(self, map_points: Callable[..., Tensor], points: Any) -> Any:
        box = transformed_bounds(self.optimizer.state)
        if box is None:
            return np.array(points)
        low, high = (end.double().unsqueeze(-2) for end in box)
        # One by one, as a resumed search has them: torch rounds the same number differently at
        # another place of a larger array.
        return np.vstack([map_points(torch.from_numpy(x), low, high) for x in points])


@dataclass
class Generation:
    """The candidates of a generation, some of which have been evaluated.

    Attributes:
        number: The number of the generation.
        candidates: The candidates, shape (N, d).
        points: Their points in the search space, shape (N, d).
        values: Their values to minimise, shape (N,). NaN means that the candidate is not
            evaluated yet, and infinity that it failed.
    """

    number: int
    candidates: Any
    points: Any
    values: Any

    @property
    def size(self) -> int:
        """The number of candidates."""
        return len(self.values)

    @property
    def is_missing(self) -> Any:
        """Flags of the candidates that have not been evaluated, shape (N,)."""
        return np.isnan(self.values)

    @property
    def has_value(self) -> Any:
        """Flags of the candidates that have been evaluated and did not fail, shape (N,)."""
        return np.isfinite(self.values)


class ModelAssisted:
    """An objective that evaluates only the promising candidates of a population.

    Attributes:
        evaluations: The number of evaluations so far.
    """

    def __init__(
        self,
        optimizer: CrossEntropyMethod,
        evaluator: Evaluator,
        budget: int,
        path: Sequence[Known],
        *,
        in_batches: bool,
    ) -> None:
        """Add the known points to a new model.

        Args:
            optimizer: The optimizer of the search, before its first generation.
            evaluator: The evaluator of the promising candidates.
            budget: The maximum number of evaluations.
            path: The points that are known before the search, which starts at the best one.
            in_batches: Whether half of a population is evaluated at once, not one candidate.
        """
        self.evaluations = 0
        self._in_batches = in_batches
        self._problem = Problem(optimizer, evaluator)
        self._budget = budget
        self._model = QuadraticModel(optimizer.dim)
        self._path = path
        # The values of candidates by their keys: integers may be drawn again.
        self._values: dict[bytes, float] = {}
        for known in path:
            self._model.add(known.point, known.value)
            if known.is_exact:
                self._values[_key_of(known.candidate)] = known.value

    def restore(self, evaluated: Sequence[tuple[Any, float | None]]) -> None:
        """Add the candidates that a resumed search had evaluated, with their fitness.

        A fitness of None means that the candidate failed.
        """
        self.evaluations = len(evaluated)
        for candidate, fitness in evaluated:
            point = self._problem.points_of(np.array([candidate]))[0]
            value = math.nan if fitness is None else self._problem.negate_if_maximizing(fitness)
            self._add(candidate, point, value)

    def __call__(self, candidates: Any, generation: Any) -> Evaluation:
        """Return the fitness of a population, partly evaluated and partly predicted.

        Without a fitted model, all candidates are evaluated. With a model, its minimum replaces
        one of the candidates. The returned evaluation therefore also contains the candidates.
        """
        # If the search diverges, the values may overflow.
        with np.errstate(over="ignore", invalid="ignore"):
            population = self._start_generation(candidates, int(generation))
            if self._model.is_fitted:
                self._insert_minimum(population)
            self._use_known_values(population)
            if self._model.is_fitted:
                self._evaluate_until_trusted(population)
                self._predict_others(population)
            else:
                self._evaluate_up_to(population, population.size)
        fitness = self._problem.negate_if_maximizing(population.values)
        return Evaluation(
            torch.from_numpy(fitness),
            metrics={EVALUATIONS: self.evaluations},
            candidates=self._problem.as_population(population.candidates),
        )

    def _start_generation(self, drawn: Any, number: int) -> Generation:
        """Fit the model to all earlier points, and return a generation to be evaluated.

        In the first generation the best known point, if there is one, replaces the first
        candidate. Only this candidate has a value already.

        Args:
            drawn: The candidates that the optimizer drew, shape (N, d).
            number: The number of the generation, from 0.
        """
        candidates = to_tensor(drawn).double().numpy().copy()
        values = np.full(len(candidates), math.nan)  # NaN: not evaluated yet
        points = self._problem.points_of(candidates)
        best = min(self._path, key=lambda known: known.value, default=None)
        if number == 0 and best is not None and best.is_exact:
            candidates[0] = best.candidate
            points[0] = best.point
            values[0] = best.value
        state = self._problem.optimizer.state
        assert state.factor is not None, "a model needs a full covariance"
        center = state.distribution[MEAN].double().numpy()
        self._model.fit(center, factor=state.factor.double().numpy())
        return Generation(number, candidates, points, values)

    def _use_known_values(self, population: Generation) -> None:
        """Set the values of the candidates that were evaluated in earlier generations."""
        for index in np.flatnonzero(population.is_missing):
            key = _key_of(population.candidates[index])
            population.values[index] = self._values.get(key, math.nan)

    def _add(self, candidate: Any, point: Any, value: float) -> None:
        """Remember an evaluated candidate; a value of NaN means that it failed."""
        self._model.add(point, value)
        self._values[_key_of(candidate)] = math.inf if math.isnan(value) else value

    def _insert_minimum(self, population: Generation) -> None:
        """Replace the candidate with the worst prediction by the minimum of the model.

        The minimum is searched within sqrt(d) of the mean, in the model's coordinates. This is
        the typical distance of a candidate.
        """
        predictions = self._model.predict(population.points)
        # Only a candidate that has not been evaluated can be replaced.
        worst = int(np.argmax(np.where(population.is_missing, predictions, -math.inf)))
        radius = math.sqrt(population.points.shape[1])
        minimum = self._problem.candidates_at(self._model.minimum(radius)[None])
        is_integer = _integers_of(self._problem.optimizer)
        if is_integer.any():
            # Rounding the minimum alone may miss the best integers by far.
            ends = _ends_of(self._problem.optimizer)
            minimum = self._model.descend_integers(minimum[0], is_integer, *ends)[None]
            minimum = self._problem.candidates_at(minimum)
        population.candidates[worst] = minimum[0]
        population.points[worst] = self._problem.points_of(minimum)[0]

    def _evaluate_until_trusted(self, population: Generation) -> None:
        """Evaluate more and more candidates, until the model can be trusted.

        The model is trusted if it ranks the newest evaluated points almost like the objective.
        The evaluations also end if the budget or the population is used up.
        """
        size = population.size
        # Workers get half of the population at once, however many they are, so that their
        # number does not affect the result.
        num_known = size - int(population.is_missing.sum())
        target = min(size, num_known + (math.ceil(size / 2) if self._in_batches else 1))
        while True:
            self._evaluate_up_to(population, target)
            if self.evaluations >= self._budget or target >= size:
                return
            num_valid = int(population.has_value.sum())
            # Compare the model with the objective at the newest points, some of which may
            # belong to earlier generations. As in Hansen (2019), their number is 1.2 times the
            # number of points that this generation has evaluated, but at most 3/4 of a
            # population, and at least 15.
            num_compared = max(_MIN_COMPARED, min(int(1.2 * num_valid), int(0.75 * size)))
            if num_valid and self._model.agreement(num_compared) >= _TRUSTED_CORRELATION:
                return
            target = max(target + 1, math.ceil(_GROWTH * target))

    def _evaluate_up_to(self, population: Generation, target: int) -> None:
        """Evaluate candidates until ``target`` candidates of the population have values.

        Candidates with better predictions are evaluated first. Fewer candidates are evaluated
        if the budget is too small.
        """
        missing = np.flatnonzero(population.is_missing)
        num_done = population.size - len(missing)
        count = min(target - num_done, self._budget - self.evaluations)
        if count <= 0:
            return
        if self._model.is_fitted:
            predictions = self._model.predict(population.points[missing])
            missing = missing[np.argsort(predictions, kind="stable")]
        chosen = missing[:count]
        candidates = population.candidates[chosen]
        values = self._problem.evaluate(candidates, population.number, first_index=num_done)
        self.evaluations += len(chosen)
        # NaN marks a failed candidate in ``values``. In ``population.values`` infinity marks a
        # failed candidate, and NaN one that was not evaluated.
        population.values[chosen] = np.where(np.isnan(values), math.inf, values)
        rows = zip(candidates, population.points[chosen], values, strict=True)
        for candidate, point, value in rows:
            self._add(candidate, point, value)

    def _predict_others(self, population: Generation) -> None:
        """Set the values of candidates that were not evaluated to the model's predictions.

        All predictions are shifted by the same amount, so that the best prediction of an
        evaluated candidate equals the best value. No predicted value may be better than this
        one. If every evaluation of the generation failed, the limit is the best value of all
        generations, and nothing is shifted.
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
        limit = np.nextafter(best, math.inf)
        population.values[is_missing] = np.maximum(predictions[is_missing], limit)


class Walk:
    """Evaluates points for a descent, until a stop is requested or the target is reached.

    The outcome of a point is its value to minimise, followed by its m constraints, shape
    (1 + m,).

    Attributes:
        evaluations: The number of evaluations.
        path: A list of one pair: the point at which the target was reached, and its outcome. It
            is empty before that.
        is_equality: Which constraints are equalities, shape (m,). It is empty before the first
            evaluation.
    """

    def __init__(
        self,
        problem: Problem,
        constraints: Constraints | None,
        stop: StopRequest,
        target: float | None,
    ) -> None:
        """Start without an evaluation.

        Args:
            problem: The objective.
            constraints: The constraints; None: there are none.
            stop: A request to stop, which ends the descent.
            target: A fitness that ends the descent; None: there is no target.
        """
        self.evaluations = 0
        self.path: Visits = []
        self.is_equality: Any = ()
        self._problem = problem
        self._constraints = constraints
        self._stop = stop
        self._target = -math.inf if target is None else problem.negate_if_maximizing(target)

    def __call__(self, points: Any) -> Any:
        """Return the outcomes of points of shape (n, d). The result has the shape (n, 1 + m).

        Raises:
            Interrupted: If a stop is requested, or a feasible point reaches the target.
        """
        self._stop.check()
        candidates = self._problem.candidates_at(points)
        values = self._problem.evaluate(candidates, 0, self.evaluations)
        self.evaluations += len(points)
        outcomes = values[:, None]
        reaches_target = values <= self._target
        if self._constraints is not None:
            population = self._problem.as_population(candidates)
            judged = self._constraints.judge(population, values)
            self.is_equality = judged.is_equality
            # ``g`` are the values of the constraints, shape (n, m).
            outcomes = np.column_stack([values, judged.g])
            reaches_target &= judged.is_feasible
        if reaches_target.any():
            best = np.argmin(np.where(reaches_target, values, math.inf))
            self.path.append((points[best], outcomes[best]))
            raise Interrupted("the target is reached")
        return outcomes


def begin_with_descent(plan: Plan, evaluator: Evaluator, stop: StopRequest) -> tuple[Plan, int]:
    """Run a descent from the start of a plan, if the plan begins with one.

    If the outcome of the start is not finite, there is no descent. If the descent finds that
    the objective is noisy, the first search begins at the start of the plan, without a model.

    Returns:
        The plan of the first search. After a descent, the search starts at the best point.
        The number of evaluations.
    """
    if not plan.descends:
        return plan, 0
    # The points of a search may be positions in an unbounded space. Those of a descent are
    # candidates, because its quadratic programs contain the bounds.
    clamped = replace(plan, config=replace(plan.config, bound_handling="clamp"))
    problem = first_problem(clamped, evaluator)
    plan_without_descent = replace(plan, descends=False)
    if plan.uses_model and plan.options["config"] is None:
        # A function that is quadratic between the bounds would not be quadratic in an unbounded
        # space, where the model would fit it badly.
        plan = clamped
    search = first_problem(plan, evaluator)
    optimizer = problem.optimizer
    if plan.options["checkpoint"] is not None:
        # A resumed call reads the evaluations of the descent from this journal.
        journal = Path(plan.options["checkpoint"]) / "descent.journal"
        evaluator.open_journal(journal, plan.describe(optimizer))
    if plan.constraints is None and plan.known is not None:
        # The points that are known before the search. The descent adds more.
        values = search.negate_if_maximizing(plan.known.fitness)
        values = np.where(np.isfinite(values), values, math.inf)
        plan = replace(plan, path=search.path_of(plan.known.candidates, values))
    walk = Walk(problem, plan.constraints, stop, plan.termination_options["target"])
    mean = optimizer.state.distribution[MEAN].double().numpy()
    if plan.descent_budget < 0:
        return plan, 0
    descent: Descent | None = None
    # ``walk`` evaluates points. It raises Interrupted to end the descent if a stop is
    # requested, or if a point reaches the target.
    with suppress(Interrupted):
        outcome = walk(mean[None])[0]
        if not np.isfinite(outcome).all():
            return plan, walk.evaluations
        precision = torch.finfo(optimizer.dtype).eps
        width = _descent_width(optimizer)
        bounds = _ends_of(optimizer)
        descent = Descent(walk, mean, outcome, width, precision, walk.is_equality, bounds)
        with np.errstate(over="ignore", invalid="ignore"):
            descent.run(plan.descent_budget)
        if descent.has_seen_noise:
            return plan_without_descent, walk.evaluations
    stop_reason, _ = stop.due  # 0 if no stop was requested
    if stop_reason:
        # A resumed call will continue the descent, and start its search at a better point. The
        # search of this call therefore saves no checkpoint that a resumed call would find.
        plan = replace(plan, options={**plan.options, "checkpoint": None})
    # If a point reached the target, the exception kept the descent from adding this point to
    # its path. It is in ``walk.path``.
    path = walk.path if descent is None else walk.path + descent.path
    if path:
        if plan.constraints is not None:
            # Only the fittest point is used, because there is no model.
            path = [path[_find_fittest(path, walk, plan.constraints)]]
        candidates = problem.candidates_at(np.stack([point for point, _ in path]))
        values = np.stack([outcome[0] for _, outcome in path])
        plan = replace(plan, path=[*plan.path, *search.path_of(candidates, values)])
        start, start_of_restarts = _starts_after(descent, plan, search)
        plan = replace(plan, start=start, start_of_restarts=start_of_restarts)
    return plan, walk.evaluations


def first_problem(plan: Plan, evaluator: Evaluator) -> Problem:
    """Return the problem of a plan's first search.

    Its optimizer draws no candidates. It only provides the dtype, the bounds and the width.
    """
    optimizer = plan.build_optimizer(plan.start, plan.population_size, seed=0)
    return Problem(optimizer, evaluator)


def _find_fittest(path: Visits, walk: Walk, constraints: Constraints) -> Any:
    """Return the index of the fittest point: the best one among the smallest violations."""
    outcomes = np.array([outcome for _, outcome in path])
    violations = constraints.measure_violations(outcomes[:, 1:], walk.is_equality)
    # ``lexsort`` sorts by its last argument first.
    return np.lexsort((outcomes[:, 0], *reversed(violations)))[0]


def _descent_width(optimizer: CrossEntropyMethod) -> Any:
    """Return the standard deviations of a search, but 0 for integers, shape (d,).

    A descent follows slopes, which do not exist between integers. It keeps these constant.
    """
    return np.where(_integers_of(optimizer), 0.0, optimizer.state.std.double().numpy())


def _key_of(candidate: Any) -> bytes:
    """Return bytes that are equal for equal candidates: the sum turns -0.0 into 0.0."""
    key: bytes = (candidate + 0.0).tobytes()
    return key


def _integers_of(optimizer: CrossEntropyMethod) -> Any:
    """Return which parameters are integers, shape (d,)."""
    integers = optimizer.state.integers
    if integers is None:
        return np.zeros(optimizer.state.std.shape, dtype=bool)
    return ~integers[0].isnan().numpy()


def _ends_of(optimizer: CrossEntropyMethod) -> tuple[Any, Any]:
    """Return the lower and upper bounds of candidates; infinite numbers if there are none."""
    bounds = bounds_of(optimizer.state)
    if bounds is None:
        return -math.inf, math.inf
    low, high = bounds
    return low.double().numpy(), high.double().numpy()


def _starts_after(descent: Descent | None, plan: Plan, problem: Problem) -> tuple[Start, Start]:
    """Return the start of the first search, and the start of restarts.

    The mean of both is the best known candidate. If the descent reached a minimum, candidates
    are drawn around it, at a typical distance of one first standard deviation. If the budget
    ended the descent, the first search continues it: with the covariance of its curvature, or
    at least with steps like its last one.

    Args:
        descent: The descent; None if it did not begin.
        plan: The plan of the call, whose path contains the known candidates.
        problem: The problem of the first search.
    """
    best = min(plan.path, key=lambda known: known.value)
    mean = problem.as_population(best.candidate[None])[0]
    std = as_real("std", plan.start.std)
    dim = len(best.candidate)
    # A descent keeps integers constant, so it has not searched them.
    has_integers = bool(plan.config.integers_of(dim))
    if descent is None or descent.last_length == 0 or has_integers:
        return Start(mean, std), Start(mean, std)
    # The typical length of a sample of N(0, I) is the root of its dimension.
    around_minimum = Start(mean, std / math.sqrt(dim))
    if not descent.is_unfinished:
        return around_minimum, around_minimum
    factor = descent.covariance_factor() if plan.uses_model else None
    if factor is not None:
        # The lengths of the rows are the standard deviations.
        return Start(mean, np.linalg.norm(factor, axis=1), factor), around_minimum
    share = min(1.0, max(_LEAST_SHARE, _STD_PER_STEP * descent.last_length))
    return Start(mean, std * share), around_minimum
