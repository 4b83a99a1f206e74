"""Constraints of a search: it ranks by an augmented Lagrangian, and keeps the best feasible.

With multipliers l, and with s the widths of the constraints g in a population, which has d
parameters, candidates are ranked by

    f + sum of l c + u c^2 / 2      c = max(g + k s, -l / u), of an equality c = g           (1)
    u = 3 iqr(f + sum of l c) / (d s^2)     with c = g + k s, of an equality c = g           (2)
    l' = max(l + u m / 5, 0), of an equality l + u m / 5; m the elites' weighted mean of c   (3)
    k' = k + 0.1 (0.15 - the share of candidates that are feasible), within 0.2 and 1        (4)

In (3) c is that of (2).

(1) and (3) are, with k = 0, those of A. Atamna, A. Auger and N. Hansen, Linearly Convergent
Evolution Strategies via Augmented Lagrangian Constraint Handling, FOGA 2017, as in pycma; see
P. Dufosse and N. Hansen, Augmented Lagrangian, Penalty Techniques and Surrogate Modeling for
Constrained Optimization with CMA-ES, GECCO 2021. They adapt u from generation to generation;
(2) keeps the square as wide as a dimension's share of the fitness. About the optimum half of
the candidates violate each active constraint, and of many constraints hardly one satisfies all:
the margin k s keeps the mean inside, and shrinks with the population.
"""

import math
from collections.abc import Callable, Mapping
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cem.core.bounds import ends_of
from cem.core.checks import as_real, check_real
from cem.core.evaluation import Evaluation, call_with_copies
from cem.core.snapshot import Snapshot
from cem.core.state import BEST, BEST_FITNESS, STD, with_integers
from cem.core.variance_schedule import describe_callable
from cem.optimizer import CrossEntropyMethod

TOLERANCE = 1e-6  # the most by which a constraint may be missed where no tolerance is given
_SQUARE_FACTOR = 3.0  # the 3 of equation (2)
_DAMPING = 5.0  # the 5 of equation (3)
_TINY = 1e-200  # the least divisor, against a division by 0
_LARGEST_MULTIPLIER = 1e100
# Equation (4): the rate of the margin k, the share of feasible candidates that it aims at, and
# its limits.
_MARGIN_RATE = 0.1
_FEASIBLE_SHARE = 0.15
_MIN_MARGIN = 0.2
_MAX_MARGIN = 1.0
# With fewer violations of a constraint its width cannot be estimated from them.
_MIN_VIOLATIONS = 3


class _Interval(NamedTuple):
    """Constraints low <= function(x) <= high, and the name by which they are reported."""

    function: Callable[[Any], Any]
    """Maps a population, shape (N, dim), to values of shape (N,) or (N, m)."""
    low: Any
    high: Any
    name: str


class Constraints:
    """Constraints of any form that ``minimize`` takes, as one function of a population.

    Attributes:
        described: What tells them from others, but for their code.
        functions: The functions of a population.
        tolerance: The most by which one may be missed.
    """

    def __init__(
        self,
        constraints: Any,
        *,
        by_one: bool,
        vmap: bool,
        named: Callable[..., Any] | None = None,
        tolerance: float | None = None,
    ) -> None:
        """Read one constraint, or a list or tuple of them, in the forms of ``minimize``.

        Args:
            constraints: A function that is feasible where its values are <= 0, a dict of
                SciPy, or SciPy's LinearConstraint or NonlinearConstraint; or several.
            by_one: Whether functions take one candidate, shape (dim,).
            vmap: Whether they do so and are vectorised by ``torch.func.vmap``. If neither,
                they take the population, shape (N, dim).
            named: Turns a function of a dict of parameters into one of candidates. None:
                the functions take candidates.
            tolerance: The most by which a constraint may be missed. None: ``TOLERANCE``.
        """
        self.tolerance = TOLERANCE
        if tolerance is not None:
            self.tolerance = check_real("tolerance", tolerance, 0.0)
        if not isinstance(constraints, (list, tuple)):
            constraints = [constraints]
        self._intervals = [
            _read_constraint(constraint, by_one, vmap, named) for constraint in constraints
        ]
        self.functions = [interval.function for interval in self._intervals]
        self.described = [
            f"{interval.low.tolist()} <= {interval.name} <= {interval.high.tolist()}"
            for interval in self._intervals
        ]

    def __call__(self, candidates: Any) -> tuple[Any, Any]:
        """Return the constraints as g(x) <= 0 or g(x) = 0 for candidates, shape (N, dim).

        low <= f(x) <= high becomes g = low - f and g = f - high, without those of an infinite
        limit. Where low equals high, f - high is an equality.

        Returns:
            The values g, float64, shape (N, m), and flags of the equalities, shape (m,).
        """
        columns = []
        equalities = []
        for function, low, high, _ in self._intervals:
            values = _numbers(call_with_copies(function, candidates))
            if values.ndim not in (1, 2) or len(values) != len(candidates):
                raise ValueError(
                    f"expected constraints of shape ({len(candidates)}, m) or "
                    f"({len(candidates)},), got {values.shape}: functions of one candidate "
                    "need vectorize=True or vectorize='loop'"
                )
            values = values.reshape(len(values), -1)
            low = np.broadcast_to(low, values.shape[1])
            high = np.broadcast_to(high, values.shape[1])
            is_equality = low == high
            # An equality has one column, f - high, so its lower limit is left out.
            has_low = np.isfinite(low) & ~is_equality
            is_used = np.concatenate([has_low, np.isfinite(high)])
            g = np.concatenate([low - values, values - high], axis=1)
            columns.append(g[:, is_used])
            equalities.append(np.concatenate([is_equality, is_equality])[is_used])
        return np.concatenate(columns, axis=1), np.concatenate(equalities)


def _read_constraint(
    constraint: Any, by_one: bool, vmap: bool, named: Callable[..., Any] | None
) -> _Interval:
    """Return a constraint of any form as low <= function(population) <= high.

    See ``Constraints`` for the arguments.
    """
    if isinstance(constraint, Mapping):
        # SciPy's dict: 0 <= fun(x, *args), or with type "eq" 0 == fun(x, *args).
        fun = constraint["fun"]
        args = constraint.get("args", ())
        upper = 0.0 if constraint["type"] == "eq" else math.inf
        constraint = SimpleNamespace(fun=lambda x: fun(x, *args), lb=0.0, ub=upper)
    # SciPy's objects have limits lb and ub; a plain function has to be at most 0.
    low = np.asarray(getattr(constraint, "lb", -math.inf), dtype=np.float64)
    high = np.asarray(getattr(constraint, "ub", 0.0), dtype=np.float64)
    if hasattr(constraint, "A"):
        # SciPy's LinearConstraint: low <= A x <= high.
        if named is not None:
            raise TypeError(
                "expected functions or NonlinearConstraint for a dict of parameters, "
                f"of which a matrix does not know the names, got {constraint!r}"
            )
        matrix = constraint.A
        return _Interval(lambda x: (matrix @ _numbers(x).T).T, low, high, str(matrix))
    if hasattr(constraint, "fun"):
        # SciPy's NonlinearConstraint, whose function takes one candidate as an array.
        name = describe_callable(constraint.fun)
        scipy_function = constraint.fun
        if named is not None:
            scipy_function = named(scipy_function, by_column=False)
        return _Interval(lambda x: _map_rows(scipy_function, _numbers(x)), low, high, name)
    function = constraint if named is None else named(constraint)

    def of_population(x: Any) -> Any:
        # vmap only takes tensors; candidates that are an array are evaluated one by one.
        if by_one or (vmap and isinstance(x, np.ndarray)):
            return _map_rows(function, x)
        if vmap:
            return torch.func.vmap(function, randomness="different")(x)
        return function(x)

    return _Interval(of_population, low, high, describe_callable(constraint))


def _map_rows(function: Callable[[Any], Any], rows: Any) -> Any:
    """Return the values of a function of one candidate for every row, shape (N, m)."""
    return np.stack([_numbers(function(row)).reshape(-1) for row in rows])


def _widths(g: Any) -> Any:
    """Return the width of every constraint in a population: s of equations (1) and (2).

    ``g`` has shape (N, m), a candidate violates where it is positive; the widths have shape
    (m,). A width is the standard deviation of g, or a smaller estimate from the violations
    alone: the standard deviation of the normal distribution that is positive as often, and
    whose positive values have the same mean square. Where parameters span orders of magnitude,
    feasible candidates are a thousand times as far from the boundary as infeasible ones, and a
    penalty as wide as that would be too flat to call the search back.
    """
    count = len(g)
    std = g.std(axis=0)
    violated = (g > 0).sum(axis=0)
    mean_square = (np.maximum(g, 0.0) ** 2).sum(axis=0) / np.maximum(violated, 1)
    # A share of 0 or 1 has no quantile; half a candidate is the least that a population shows.
    share = np.clip(violated / count, 0.5 / count, 1 - 0.5 / count)
    normal = NormalDist()
    # N(mean, 1) is positive with the probability ``share``.
    mean = np.array([normal.inv_cdf(float(probability)) for probability in share])
    density = np.array([normal.pdf(x) for x in mean])
    # The mean square of the positive values of N(mean, 1).
    standard_mean_square = 1 + mean**2 + mean * density / share
    estimate = np.sqrt(mean_square / standard_mean_square)
    return np.where(violated < _MIN_VIOLATIONS, std, np.minimum(std, estimate))


def _numbers(values: Any) -> Any:
    """Return a tensor, an array or a sequence as an array, float64, not to be changed."""
    return as_real("constraints", values).double().cpu().numpy()


class Constrained(CrossEntropyMethod):
    """A single search with constraints.

    Its first candidate is the mean; the columns of families are those of ``first``.

    ``tell`` takes the values of the objective. ``best`` is the fittest of the feasible
    candidates. While there is none it is the fittest of those that miss inequalities by no more
    than the tolerance, or else that of the least violation, and a record has an infinity as its
    best fitness.

    Attributes:
        violation: The most by which ``best`` violates a constraint; 0.0 where that is within
            the tolerance.
        within_tolerance: Whether ``best`` is feasible by the tolerance of an inequality alone.
    """

    def __init__(
        self,
        *arguments: Any,
        constraints: Constraints,
        first: Tensor,
        steepness: float = 1.0,
        **options: Any,
    ) -> None:
        """Start a search; the other arguments are those of ``CrossEntropyMethod``.

        ``first`` is the first candidate, shape (dim,), of which only the columns of families
        are used. ``steepness`` multiplies the weight u of squared violations in equation (2) of
        the module: a steep search converges more slowly, but returns from where the objective
        falls faster than violations grow.
        """
        super().__init__(*arguments, **options)
        self._constraints = constraints
        self._square_factor = steepness * _SQUARE_FACTOR
        # Fitness times this sign is minimised.
        self._sign = -1.0 if self.maximize else 1.0
        # The columns of a candidate: those of the normal distribution, then those of families.
        self._normal = self._state.settings.normal
        self._first_families = first[self._normal :].to(self._state.distribution)
        self._margin = _MIN_MARGIN
        # One for each constraint: the first call shows how many there are.
        self._multipliers = np.zeros(0)
        # The best candidate's violation and fitness; there is no candidate yet.
        self.violation = math.inf
        self.within_tolerance = True
        self._best_value = math.inf
        self._max_std = self._find_max_std(options.get("bounds"))
        self._weights = np.ones(self.num_elites)
        if self._state.weights is not None:
            self._weights = _numbers(self._state.weights[: self.num_elites])

    @property
    def best_fitness(self) -> float:
        """The fitness of ``best``."""
        return self._sign * self._best_value

    def ask(self, count: int | None = None) -> Any:
        """Draw candidates of this generation."""
        candidates = super().ask(count)
        if self._generation == 0:
            first = torch.cat([self._state.mean[: self._normal], self._first_families])
            candidates[0] = self._copy(with_integers(self._state, first))
        return candidates

    def tell(self, candidates: Any, fitness: Any, *, _check_candidates: bool = True) -> None:
        """Update the search with the objective's values, shape (N,), of a population (N, dim).

        The update ranks candidates by the augmented Lagrangian. The best candidate is the first
        by violation, then by whether it needs the tolerance, then by fitness. Values are
        minimised here: those to maximise have their sign changed. ``_check_candidates`` is
        that of ``CrossEntropyMethod.tell``.
        """
        values = self._sign * _numbers(fitness)
        g, is_equality = self._constraints(candidates)
        distances = np.where(is_equality, abs(g), np.maximum(g, 0.0))
        missed = np.where(distances > self._constraints.tolerance, distances, 0.0)
        violations = missed.max(axis=1, initial=0.0)
        needs_tolerance = (violations == 0) & (~is_equality & (g > 0)).any(axis=1)
        values[np.isnan(values)] = np.inf
        # A feasible candidate without a value has failed. Outside the constraints an objective
        # may have no value.
        has_failed = np.isnan(violations) | ((values == np.inf) & (violations == 0))
        violations[has_failed] = np.inf
        is_feasible = (violations == 0) & ~needs_tolerance

        old_best = self._state.best
        is_typical = self._typical(candidates)
        lagrangian = self._augmented(
            values, g, is_equality, violations, is_feasible, is_typical
        )
        super().tell(candidates, self._sign * lagrangian, _check_candidates=_check_candidates)

        index = np.lexsort((values, needs_tolerance, violations))[0]
        rank = (float(violations[index]), bool(needs_tolerance[index]), float(values[index]))
        best = old_best
        if rank < (self.violation, self.within_tolerance, self._best_value):
            self.violation, self.within_tolerance, self._best_value = rank
            best = torch.as_tensor(candidates[index])
        self._correct_state(best)

    def _correct_state(self, best: Tensor) -> None:
        """Store the best candidate by feasibility, and limit the standard deviations.

        ``super().tell`` stored the best by the Lagrangian, which is no fitness. ``best`` has
        shape (dim,): the columns of the normal distribution, then those of families.
        """
        state = self._state
        distribution = state.distribution.clone()
        record = state.record.clone()
        distribution[BEST, : self._normal] = best[: self._normal]
        best_value = math.inf if self.violation else self._best_value
        record[BEST_FITNESS] = self._sign * best_value
        excess = (distribution[STD] / self._max_std).clamp(min=1.0)
        # With the transform of bounds the mean may be far outside, where the objective does not
        # depend on a parameter: then every parameter is divided by its own excess. Otherwise
        # all are divided by the largest, so that the distribution keeps its shape.
        if self.config.bound_handling != "transform":
            excess = excess.max().expand_as(excess)
        distribution[STD] /= excess
        factor = state.factor
        if factor is not None:
            factor = factor / excess.unsqueeze(-1)
        tables = state.discrete
        if tables is not None:
            # After the tables of families come their columns of the best candidate.
            best_columns = best[self._normal :].to(tables)
            tables = torch.cat([tables[: -len(best_columns)], best_columns])
        self._state = state._replace(
            distribution=distribution, record=record, factor=factor, discrete=tables
        )
        # This is a cached copy of the state before this generation.
        self._snapshot = None

    def _find_max_std(self, bounds: Any) -> Tensor:
        """Return the greatest standard deviations: a quarter of the width, or the first.

        A wider distribution has most candidates at the faces of the box, where nothing tells it
        to shrink.
        """
        widest = first = self._state.distribution[STD]
        if bounds is None:
            return torch.full_like(first, math.inf)
        if self._normal:
            low, high = (torch.as_tensor(end).to(first) for end in ends_of(bounds))
            widest = torch.maximum(first, (high - low) / 4)
        return torch.where(widest > 0, widest, math.inf)  # one that is 0 stays so

    def _typical(self, candidates: Any) -> Any:
        """Return which candidates have the likeliest integers and choices, shape (N,).

        A step of an integer may move a constraint by more than all other parameters do near the
        optimum.
        """
        middle = with_integers(self._state, self._state.mean)
        discrete = torch.ones(self.dim, dtype=torch.bool)
        discrete[: self._normal] = False
        if self._state.integers is not None:
            discrete[: self._normal] = ~self._state.integers[0, : self._normal].isnan().cpu()
        rows = torch.as_tensor(candidates).cpu()
        return (rows == middle.cpu())[:, discrete].all(dim=1).numpy()

    def _augmented(
        self,
        values: Any,
        g: Any,
        is_equality: Any,
        violations: Any,
        is_feasible: Any,
        is_typical: Any,
    ) -> Any:
        """Return the augmented Lagrangian of N candidates, and update multipliers and margin.

        Args:
            values: The objective, to be minimised, (N,); not finite where it has no value.
            g: The constraints, (N, m), whose values should be <= 0, or 0 for an equality.
            is_equality: Which constraints are equalities, (m,).
            violations: The worst violation of every candidate, (N,), infinite if it failed.
            is_feasible: Which satisfy all constraints, (N,); their share moves the margin.
            is_typical: Which have the likeliest discrete parameters, (N,): the constraints'
                widths are measured on these if they are enough.

        The equations (1) to (4) are those of the module's docstring.
        """
        known = np.flatnonzero(np.isfinite(values) & np.isfinite(violations))
        if not len(known):
            return violations
        multipliers = self._multipliers
        if not len(multipliers):
            multipliers = np.zeros(g.shape[1])
        typical = known[is_typical[known]]
        measured = g[typical if len(typical) >= _MIN_VIOLATIONS else known]
        widths = np.where(is_equality, measured.std(axis=0), _widths(measured))
        # Inequalities are moved inwards by the margin: g + k s.
        shifted = g + np.where(is_equality, 0.0, self._margin * widths)

        # Equation (2): the weights u of the squares, from the interquartile range.
        lagrangian = np.sort((values + (multipliers * shifted).sum(axis=1))[known])
        count = len(known)
        iqr = lagrangian[3 * count // 4] - lagrangian[count // 4]
        squared_widths = np.maximum(widths**2, _TINY)
        penalty = self._square_factor * iqr / (self.dim * squared_widths) * (widths > 0)

        # Equation (1): an inequality that is satisfied by far has a constant share.
        least = np.where(is_equality, -np.inf, -multipliers / np.maximum(penalty, _TINY))
        c = np.maximum(shifted, least)
        augmented = values + (multipliers * c + penalty * c * c / 2).sum(axis=1)

        # Equation (3): the multipliers move by the elites' weighted mean of g + k s.
        ranking = known[np.argsort(augmented[known], kind="stable")]
        elites = shifted[ranking[: self.num_elites]]
        weights = self._weights[: len(elites), None]
        moved = (
            multipliers + penalty * (weights * elites).sum(axis=0) / weights.sum() / _DAMPING
        )
        least_multipliers = np.where(is_equality, -_LARGEST_MULTIPLIER, 0.0)
        self._multipliers = np.clip(moved, least_multipliers, _LARGEST_MULTIPLIER)

        # Equation (4): with few feasible candidates the margin grows.
        margin = self._margin + _MARGIN_RATE * (_FEASIBLE_SHARE - is_feasible.mean())
        self._margin = min(max(margin, _MIN_MARGIN), _MAX_MARGIN)

        # Infeasible candidates without a value come last, those nearer to feasibility first.
        has_no_value = ~np.isfinite(values) & (violations > 0)
        return np.where(has_no_value, augmented[known].max() + violations, augmented)

    def snapshot(
        self, evaluation: Evaluation | None = None, *, copied: bool = True
    ) -> Snapshot:
        """Start a copy of the state to the host, with the multipliers and the best's rank.

        ``_take`` reads the vector: violation, tolerance needed, fitness, margin, multipliers.
        """
        snapshot = super().snapshot(evaluation, copied=copied)
        numbers = [
            self.violation,
            self.within_tolerance,
            self._best_value,
            self._margin,
            *self._multipliers,
        ]
        snapshot.more = {"constraints": torch.tensor(numbers, dtype=torch.float64)}
        return snapshot

    def rewind(self, snapshot: Snapshot) -> None:
        """Restore the state of a snapshot of this search."""
        super().rewind(snapshot)
        self._take(snapshot.more)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state of ``state_dict``."""
        super().load_state_dict(state)
        self._take(state)

    def _take(self, state: Mapping[str, Any]) -> None:
        """Restore the numbers that ``snapshot`` adds to a state."""
        numbers = state["constraints"].tolist()
        self.violation, needs_tolerance, self._best_value, self._margin = numbers[:4]
        self.within_tolerance = bool(needs_tolerance)
        self._multipliers = np.array(numbers[4:])
