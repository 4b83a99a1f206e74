"""Constraints of a search, which ranks candidates by an augmented Lagrangian.

f is the objective, to be minimised, and d the number of parameters. Each constraint has values
g, which should be at most 0 (0 for an equality), a multiplier l, and the width s of g in the
population. Candidates are ranked by

    f + sum of l c + u c^2 / 2      c = max(g + k s, -l / u); for an equality c = g          (1)
    u = 3 iqr(f + sum of l c) / (d s^2)     with c = g + k s; for an equality c = g          (2)
    l' = max(l + u m / 5, 0); for an equality l + u m / 5                                    (3)
    k' = k + 0.1 (0.15 - the share of feasible candidates), clipped to 0.2 <= k' <= 1        (4)

In (3) m is the weighted mean over the elites of the c in (2). If the objective is constant and
l is 0, the interquartile range iqr in (2) is replaced by 1. The search keeps the best feasible
candidate.

With k = 0, (1) and (3) are the equations of A. Atamna, A. Auger and N. Hansen, Linearly
Convergent Evolution Strategies via Augmented Lagrangian Constraint Handling, FOGA 2017, as in
pycma; see P. Dufosse and N. Hansen, Augmented Lagrangian, Penalty Techniques and Surrogate
Modeling for Constrained Optimization with CMA-ES, GECCO 2021. They adapt u from generation to
generation. Here (2) keeps the quadratic term as wide as a dimension's share of the fitness.
Near the optimum half of the candidates violate each active constraint, so that with many
constraints hardly a candidate satisfies all of them. The margin k s keeps the mean inside the
feasible region, and shrinks with the population.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cem.core.bounds import ends_of
from cem.core.checks import as_real, check_real, mixes_rows, to_tensor, warn
from cem.core.evaluation import Evaluation, call_with_copies
from cem.core.snapshot import Snapshot
from cem.core.state import BEST, BEST_FITNESS, STD, with_integers
from cem.core.variance_schedule import describe_callable
from cem.optimizer import CrossEntropyMethod
from cem.run.evaluator import MOST_NUMBERS, on_host
from cem.run.remote import evaluate_constraints

TOLERANCE = 1e-6  # the default tolerance: a constraint may be violated by at most this much
_HINT = "functions of one candidate need vectorize=True or vectorize='loop'"
_SQUARE_FACTOR = 3.0  # the 3 of equation (2)
_DAMPING = 5.0  # the 5 of equation (3)
_TINY = 1e-200  # the smallest divisor; avoids a division by 0
_LARGEST_MULTIPLIER = 1e100
# Equation (4): the learning rate of the margin k, the share of feasible candidates that it is
# to reach, and the limits of k.
_MARGIN_RATE = 0.1
_FEASIBLE_SHARE = 0.15
_MIN_MARGIN = 0.2
_MAX_MARGIN = 1.0
# A width is estimated from the violations of a constraint if there are at least this many.
_MIN_VIOLATIONS = 3


class _Interval(NamedTuple):
    """Constraints low <= function(x) <= high, and the function's name for reports."""

    function: Callable[[Any], Any]
    """Maps a population, shape (N, dim), to values of shape (N,) or (N, m)."""
    low: Any
    high: Any
    name: str

    def evaluate(self, candidates: Any) -> Any:
        """Return the function's values of candidates, shape (N, m), float64."""
        values = _numbers(call_with_copies(self.function, candidates))
        if values.ndim not in (1, 2) or len(values) != len(candidates):
            raise ValueError(
                f"expected constraints of shape ({len(candidates)}, m) or "
                f"({len(candidates)},), got {values.shape}: {_HINT}"
            )
        return values.reshape(len(candidates), -1)

    def check_rows(self, candidates: Any, values: Any) -> None:
        """Raise an error if the function mixes candidates, shape (N, dim): see ``mixes_rows``.

        Args:
            candidates: The candidates.
            values: The function's values of them, shape (N, m).
        """

        def evaluate_first() -> Tensor:
            return torch.from_numpy(self.evaluate(candidates[:1]))

        if mixes_rows(torch.from_numpy(values), evaluate_first):
            raise ValueError(f"the constraints of a candidate depend on the others: {_HINT}")

    def split(self, values: Any) -> tuple[Any, Any]:
        """Return the columns g, and which are equalities; see ``Constraints.__call__``."""
        low = np.broadcast_to(self.low, values.shape[1])
        high = np.broadcast_to(self.high, values.shape[1])
        is_equality = low == high
        # The columns of the lower limits come first, then those of the upper limits.
        g = np.concatenate([low - values, values - high], axis=1)
        has_low = np.isfinite(low) & ~is_equality
        is_used = np.concatenate([has_low, np.isfinite(high)])
        return g[:, is_used], np.concatenate([is_equality, is_equality])[is_used]


@dataclass(frozen=True)
class _Population:
    """The values of N candidates, and how well they satisfy the m constraints.

    Attributes:
        values: The objective, to be minimised, shape (N,); not finite if it has no value.
        g: The constraints, shape (N, m); they should be <= 0, or 0 for an equality.
        is_equality: Which constraints are equalities, shape (m,).
        violations: The largest violation of each candidate, shape (N,); infinite if the
            candidate failed.
        needs_tolerance: Which candidates are feasible only within the tolerance, shape (N,).
    """

    values: Any
    g: Any
    is_equality: Any
    violations: Any
    needs_tolerance: Any

    @property
    def is_feasible(self) -> Any:
        """Which candidates satisfy all constraints without the tolerance, shape (N,)."""
        return (self.violations == 0) & ~self.needs_tolerance

    @property
    def known(self) -> Any:
        """The indices of the candidates that have a value and have not failed."""
        return np.flatnonzero(np.isfinite(self.values) & np.isfinite(self.violations))

    def mark_failed(self) -> None:
        """Set the violations of failed candidates to infinity.

        A feasible candidate has failed if its value is infinite. An infeasible one has not,
        because the objective may be undefined there.
        """
        has_no_value = (self.values == np.inf) & (self.violations == 0)
        self.violations[np.isnan(self.violations) | has_no_value] = np.inf

    def measure_widths(self, is_typical: Any) -> Any:
        """Return the widths s of the constraints, shape (m,), measured on typical candidates.

        If too few of the known candidates are typical, all known ones are used. So they are if
        typical candidates do not differ in a constraint, unless they satisfy it narrowly.
        """
        known = self.known
        chosen = known[is_typical[known]]
        if len(chosen) < _MIN_VIOLATIONS:
            chosen = known
        widths = self._measure(chosen)
        if (widths > 0).all():
            return widths
        # The width of a constraint of integers and choices alone is 0 among typical candidates.
        # Its multiplier would not change then, which is right only if they satisfy it narrowly.
        of_all = self._measure(known)
        is_satisfied = self.violations[chosen, None] == 0
        is_narrow = (is_satisfied & (self.g[chosen] >= -of_all)).all(axis=0)
        return np.where((widths > 0) | is_narrow, widths, of_all)

    def _measure(self, chosen: Any) -> Any:
        """Return the widths of the constraints among candidates with these indices."""
        measured = self.g[chosen]
        return np.where(self.is_equality, measured.std(axis=0), _widths(measured))

    def find_best(self) -> Any:
        """Return the index of the best candidate."""
        # ``lexsort`` sorts by its last argument first.
        return np.lexsort((self.values, self.needs_tolerance, self.violations))[0]

    def rank(self, index: int) -> tuple[float, bool, float]:
        """Return the rank of a candidate; a better candidate has a smaller tuple."""
        return (
            float(self.violations[index]),
            bool(self.needs_tolerance[index]),
            float(self.values[index]),
        )


class Constraints:
    """All constraints of a search, as one function of a population.

    Attributes:
        described: A description of each constraint, which identifies it except for its code.
        functions: All that the constraints call, for a digest of its code.
        of_one: The constraints of one candidate: see ``evaluate_constraints``.
        tolerance: A constraint may be violated by at most this much.
    """

    def __init__(
        self,
        constraints: Any,
        *,
        vectorize: Any,
        from_named: Callable[..., Any] | None = None,
        tolerance: float | None = None,
        catch: tuple[type[BaseException], ...] = (),
    ) -> None:
        """Read one constraint, or a list or tuple of constraints.

        Args:
            constraints: Each constraint is a function whose values should be <= 0, a dict as
                for ``scipy.optimize.minimize``, or SciPy's LinearConstraint or
                NonlinearConstraint.
            vectorize: "loop": functions take one candidate, shape (dim,), and are called for
                each. True: ``torch.func.vmap`` vectorises such functions. False or None:
                functions take a population, shape (N, dim).
            from_named: Converts a function of a dict of parameters into a function of
                candidates. None: the functions already take candidates.
            tolerance: A constraint may be violated by at most this much. None: ``TOLERANCE``.
            catch: The exceptions of functions of one candidate that mean that it failed.
        """
        self.tolerance = TOLERANCE
        if tolerance is not None:
            self.tolerance = check_real("tolerance", tolerance, 0.0)
        if not isinstance(constraints, (list, tuple)):
            constraints = [constraints]
        self.of_one: list[tuple[Any, ...]] = []
        self._catch = catch
        # The values of the constraints of one candidate, by its bytes: an array for each
        # constraint, or nothing if the candidate failed.
        self._remembered: dict[bytes, list[Any]] = {}
        self._intervals = [
            _read_constraint(constraint, vectorize, from_named, self._map_rows)
            for constraint in constraints
        ]
        # Functions of one candidate cannot mix candidates.
        self._are_checked = bool(vectorize)
        self.functions = [*self.of_one, *[interval.function for interval in self._intervals]]
        self.described = [
            f"{interval.low.tolist()} <= {interval.name} <= {interval.high.tolist()}, "
            f"tolerance {self.tolerance}"
            for interval in self._intervals
        ]

    def __call__(self, candidates: Any) -> tuple[Any, Any]:
        """Return the constraints of candidates, shape (N, dim), as g(x) <= 0 or g(x) = 0.

        A constraint low <= f(x) <= high becomes two columns: g = low - f and g = f - high. The
        column of an infinite limit is left out. Where low equals high, the only column is
        g = f - high, an equality.

        Returns:
            g: The values, float64, shape (N, m).
            is_equality: Which of the m columns are equalities, shape (m,).
        """
        columns = []
        equalities = []
        for interval in self._intervals:
            values = interval.evaluate(candidates)
            if not self._are_checked:
                interval.check_rows(candidates, values)
            g, is_equality = interval.split(values)
            columns.append(g)
            equalities.append(is_equality)
        self._are_checked = True
        # What these candidates needed may be forgotten now.
        if len(self._remembered) * candidates.shape[1] > MOST_NUMBERS:
            self._remembered.clear()
        return np.concatenate(columns, axis=1), np.concatenate(equalities)

    def remember(self, row: Any, values: Sequence[Any]) -> list[Any]:
        """Remember the values of a candidate's constraints, and return them as arrays.

        Args:
            row: The candidate, an array of shape (dim,).
            values: The values of each constraint of ``of_one``. None at all: it failed, but
                the values of an equal candidate remain.
        """
        key = row.tobytes()
        arrays = [_numbers(numbers).flatten() for numbers in values]
        self._remembered[key] = arrays or self._remembered.get(key, [])
        return self._remembered[key]

    def _map_rows(self, like: Any, *of_one: Any) -> Callable[[Any], Any]:
        """Add a constraint to ``of_one``, and return it as a function of a population.

        The function returns the values that are remembered. Other candidates it evaluates. The
        values of a candidate that failed are NaN.

        Args:
            like: An array of the shape of the constraint's limits.
            *of_one: The item of ``of_one``.
        """
        index = len(self.of_one)
        self.of_one.append(of_one)

        def of_rows(candidates: Any) -> Any:
            nonlocal like
            rows, device = on_host(candidates)
            known = [self._recall(row, device) for row in rows]
            # NaN gets the shape of the other values, also of those of earlier calls.
            like = next((values[index] for values in known if values), like)
            failed = np.full(like.shape, math.nan)
            return np.stack([values[index] if values else failed for values in known])

        return of_rows

    def _recall(self, row: Any, device: Any) -> list[Any]:
        """Return the remembered values of a candidate's constraints, or evaluate them."""
        values = self._remembered.get(row.tobytes())
        if values is not None:
            return values
        try:
            outcomes = evaluate_constraints(self.of_one, row, device)
        except self._catch:
            outcomes = []
        return self.remember(row, outcomes)

    def judge(self, candidates: Any, values: Any) -> _Population:
        """Return candidates' values and how well they satisfy the constraints."""
        g, is_equality = self(candidates)
        return _Population(values, g, is_equality, *self.measure_violations(g, is_equality))

    def measure_violations(self, g: Any, is_equality: Any) -> tuple[Any, Any]:
        """Return the largest violation of each candidate, and which need the tolerance.

        A violation within the tolerance counts as 0. It is NaN if a constraint is NaN. Both
        results have shape (N,).
        """
        distances = np.where(is_equality, abs(g), np.maximum(g, 0.0))
        missed = np.where(distances <= self.tolerance, 0.0, distances)
        violations = missed.max(axis=1, initial=0.0)
        # An equality is hardly ever met exactly, so only inequalities matter here.
        needs_tolerance = (violations == 0) & (~is_equality & (g > 0)).any(axis=1)
        return violations, needs_tolerance


def _read_constraint(
    constraint: Any,
    vectorize: Any,
    from_named: Callable[..., Any] | None,
    map_rows: Callable[..., Callable[[Any], Any]],
) -> _Interval:
    """Return a constraint of any form as low <= function(population) <= high.

    A candidate is an array, shape (dim,), and a population has one candidate per row.

    Args:
        constraint: A plain function whose values should be <= 0, a SciPy dict, or SciPy's
            LinearConstraint or NonlinearConstraint.
        vectorize: How a plain function is called, as for ``Constraints``.
        from_named: If the user's functions take dicts of named parameters, it converts such a
            function into one that takes arrays. None: the functions take arrays.
        map_rows: Returns a function of one candidate as one of a population, see
            ``Constraints._map_rows``.
    """
    if isinstance(constraint, Mapping):
        # The result has the same fields as a NonlinearConstraint.
        constraint = _read_scipy_dict(constraint)

    if np.any(getattr(constraint, "keep_feasible", False)):
        warn("keep_feasible of constraints is ignored: infeasible candidates are evaluated")

    # SciPy's objects have the limits lb and ub. A plain function has no such attributes. Its
    # limits are -inf and 0.
    low = np.asarray(getattr(constraint, "lb", -math.inf), dtype=np.float64)
    high = np.asarray(getattr(constraint, "ub", 0.0), dtype=np.float64)

    if hasattr(constraint, "A"):
        # SciPy's LinearConstraint: low <= A x <= high.
        if from_named is not None:
            raise TypeError(
                "expected functions or NonlinearConstraint with a dict of parameters, got "
                f"{constraint!r}: a matrix does not know the parameters' names"
            )
        matrix = constraint.A
        # Candidates are rows, and the matrix takes columns.
        return _Interval(lambda x: (matrix @ _numbers(x).T).T, low, high, str(matrix))
    if hasattr(constraint, "fun"):
        # The function of SciPy's NonlinearConstraint always takes one candidate.
        of_candidate = constraint.fun
        if from_named is not None:
            # The dict has the values of one candidate, not the columns of a population.
            of_candidate = from_named(of_candidate, by_column=False)
        name = describe_callable(constraint.fun)
        of_rows = map_rows(low == high, of_candidate, True, *getattr(constraint, "args", ()))
        return _Interval(of_rows, low, high, name)
    if not callable(constraint):
        raise TypeError(
            "expected constraints that are functions, dicts, LinearConstraint or "
            f"NonlinearConstraint, got {type(constraint).__name__}"
        )
    function = constraint if from_named is None else from_named(constraint)
    if vectorize:
        of_rows = map_rows(low == high, function, False)
        function = of_rows if vectorize == "loop" else _vectorize(function, of_rows)
    return _Interval(function, low, high, describe_callable(constraint))


def _read_scipy_dict(constraint: Mapping[str, Any]) -> Any:
    """Return a constraint dict of SciPy as an object with the fields of NonlinearConstraint.

    The constraint is 0 <= fun(x, *args), or with type "eq" 0 == fun(x, *args).
    """
    kind = str(constraint.get("type")).lower()
    if kind not in ("eq", "ineq") or "fun" not in constraint:
        raise ValueError(
            f"expected a constraint with fun and a type of 'eq' or 'ineq', got {constraint!r}"
        )
    upper = 0.0 if kind == "eq" else math.inf
    args = constraint.get("args", ())
    return SimpleNamespace(fun=constraint["fun"], args=args, lb=0.0, ub=upper)


def _vectorize(
    function: Callable[[Any], Any], of_rows: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """Return a function of one candidate as one of a population, shape (N, dim).

    vmap only accepts tensors. ``of_rows`` evaluates the rows of an array.
    """
    vectorized = torch.func.vmap(function, randomness="different")
    return lambda x: of_rows(x) if isinstance(x, np.ndarray) else vectorized(x)


def _widths(g: Any) -> Any:
    """Return the width of every constraint in a population: s of equations (1) and (2).

    A width is the smaller of two numbers: the standard deviation of g, and an estimate from
    the violations alone. The estimate is the standard deviation of a normal distribution whose
    values are positive as often as those of g, and whose positive values have the same mean
    square. If there are fewer than ``_MIN_VIOLATIONS``, there is no estimate.

    The estimate is needed if the parameters span orders of magnitude. Then the distance of
    feasible candidates from the boundary can be a thousand times that of infeasible ones. With
    the standard deviation as its width, a penalty would be too flat to bring the search back.

    Args:
        g: The constraints, shape (N, m); a candidate violates those that are positive.

    Returns:
        The widths, shape (m,).
    """
    count = len(g)
    std = g.std(axis=0)
    num_violations = (g > 0).sum(axis=0)
    mean_square = (np.maximum(g, 0.0) ** 2).sum(axis=0) / np.maximum(num_violations, 1)

    # The normal quantiles of 0 and 1 are infinite, so the share of violations stays half a
    # candidate away from both.
    share = np.clip(num_violations / count, 0.5 / count, 1 - 0.5 / count)

    normal = NormalDist()
    # A variable x of N(mean, 1) is positive with the probability ``share``.
    mean = np.array([normal.inv_cdf(float(probability)) for probability in share])
    density = np.array([normal.pdf(x) for x in mean])
    # The mean square of the positive values of this variable, E(x^2 | x > 0). With the
    # standard deviation s, it would be s^2 times as large.
    standard_mean_square = 1 + mean**2 + mean * density / share
    estimate = np.sqrt(mean_square / standard_mean_square)
    return np.where(num_violations < _MIN_VIOLATIONS, std, np.minimum(std, estimate))


def _numbers(values: Any) -> Any:
    """Return a tensor, array or sequence as a float64 array, which must not be modified."""
    return as_real("constraints", values).double().cpu().numpy()


class Constrained(CrossEntropyMethod):
    """A single search with constraints.

    Its first candidate is the mean; the columns of families are those of ``first``.

    ``tell`` takes the values of the objective. ``best`` is the fittest feasible candidate. If
    there is none yet, ``best`` is the fittest candidate that is feasible within the tolerance.
    If there is none of those either, it is the candidate with the smallest violation, and the
    best fitness in the records is infinite.

    Attributes:
        violation: The largest violation of a constraint by ``best``; 0.0 if that is within the
            tolerance.
        within_tolerance: Whether ``best`` is feasible only because of the tolerance.
    """

    def __init__(
        self,
        *arguments: Any,
        constraints: Constraints,
        first: Tensor,
        steepness: float = 1.0,
        **options: Any,
    ) -> None:
        """Start a search.

        Args:
            *arguments: The positional arguments of ``CrossEntropyMethod``.
            constraints: The constraints.
            first: The first candidate, shape (dim,). Only its discrete columns, which families
                such as ``Categorical`` draw, are used.
            steepness: A factor of u in equation (2) of the module, the weight of squared
                violations. With a larger factor the search converges more slowly. But it then
                returns from regions in which the objective falls faster than violations grow.
            **options: The keyword arguments of ``CrossEntropyMethod``.
        """
        super().__init__(*arguments, **options)
        self._constraints = constraints
        self._square_factor = steepness * _SQUARE_FACTOR
        # A candidate begins with this many columns of the normal distribution. The columns of
        # families follow.
        self._num_normal = self._state.settings.normal
        # The distribution begins at some distance from bounds, where the mean may be.
        numbers = as_real("mean", arguments[0]).to(self._state.distribution)
        self._first = torch.cat([numbers, first[self._num_normal :].to(numbers)])
        self._margin = _MIN_MARGIN
        # There will be one multiplier per constraint. Their number is known only after the
        # first evaluation.
        self._multipliers = np.zeros(0)
        # The rank of the best candidate. There is no candidate yet, so this is the worst rank.
        self.violation = math.inf
        self.within_tolerance = True
        self._best_value = math.inf
        self._max_std = self._find_max_std(options.get("bounds"))
        # The weights of the elites, the best first.
        self._weights = np.ones(self.num_elites)
        if self._state.weights is not None:
            self._weights = _numbers(self._state.weights[: self.num_elites])

    @property
    def best_fitness(self) -> float:
        """The fitness of ``best``."""
        return float(self._negate_if_maximizing(self._best_value))

    def _negate_if_maximizing(self, fitness: Any) -> Any:
        """Convert fitness to values to minimise, or such values back to fitness."""
        return -fitness if self.maximize else fitness

    def ask(self, count: int | None = None) -> Any:
        """Draw candidates of this generation; the very first candidate is fixed."""
        candidates = super().ask(count)
        if self._generation == 0:
            candidates[0] = self._copy(with_integers(self._state, self._first))
        return candidates

    def tell(self, candidates: Any, fitness: Any, *, _check_candidates: bool = True) -> None:
        """Update the search with the fitness of a population.

        The update ranks candidates by the augmented Lagrangian. ``best`` is the candidate with
        the smallest violation. Among equal violations, candidates that are within the limits
        come before those that need the tolerance, and then a better fitness decides.

        Args:
            candidates: The population, shape (N, dim).
            fitness: The objective's values, shape (N,).
            _check_candidates: Whether to check the candidates. This is not necessary if they
                are those of ``ask``.
        """
        # The values are minimised. Infinity means that a candidate has none.
        values = self._negate_if_maximizing(_numbers(fitness))
        values = np.where(np.isnan(values), np.inf, values)
        population = self._constraints.judge(candidates, values)
        population.mark_failed()
        lagrangian = self._augmented(population, self._typical(candidates))

        # The base class ranks candidates by the Lagrangian in place of the fitness. It also
        # stores the candidate of the best Lagrangian as the best one, which the call of
        # ``_correct_state`` undoes.
        best = self._state.best
        ranked_fitness = self._negate_if_maximizing(lagrangian)
        super().tell(candidates, ranked_fitness, _check_candidates=_check_candidates)
        fittest = population.find_best()
        if self._improves_rank(population.rank(fittest)):
            best = to_tensor(candidates[fittest])
        self._correct_state(best)

    def start_from(self, candidate: Any, value: float) -> None:
        """Make a candidate, shape (dim,), the best one so far if it is better.

        It is an array or tensor of any dtype. ``value`` is its value to minimise.
        """
        x = to_tensor(candidate).to(self._state.distribution)
        # The constraints get a population in the type of the first mean.
        judged = self._constraints.judge(self._copy(x[None]), [value])
        if self._improves_rank(judged.rank(0)):
            self._correct_state(x)

    def _improves_rank(self, rank: tuple[float, bool, float]) -> bool:
        """Return whether a rank is better than that of the best candidate; if so, store it."""
        # The violation of a failed candidate is infinite, and it is never the best one.
        best_rank = self.violation, self.within_tolerance, self._best_value
        is_better = rank < best_rank and rank[0] < math.inf
        if is_better:
            self.violation, self.within_tolerance, self._best_value = rank
        return is_better

    def _correct_state(self, best: Tensor) -> None:
        """Store the best candidate and its fitness, and limit the standard deviations.

        ``super().tell`` has stored the candidate with the best Lagrangian instead. ``best`` has
        shape (dim,): first the columns of the normal distribution, then those of families.
        """
        state = self._state
        distribution = state.distribution.clone()
        record = state.record.clone()
        distribution[BEST, : self._num_normal] = best[: self._num_normal]
        best_value = math.inf if self.violation else self._best_value
        record[BEST_FITNESS] = self._negate_if_maximizing(best_value)

        # How many times its limit each standard deviation is, but at least 1.
        excess = self._find_excess(distribution[STD])
        distribution[STD] /= excess
        factor = state.factor
        if factor is not None:
            factor = factor / excess.unsqueeze(-1)
        tables = state.discrete
        if tables is not None:
            # The tables of the families end with the discrete columns of the best candidate.
            best_columns = best[self._num_normal :].to(tables)
            tables = torch.cat([tables[: -len(best_columns)], best_columns])

        self._state = state._replace(
            distribution=distribution, record=record, factor=factor, discrete=tables
        )
        # The cached snapshot is that of the state before this correction, so drop it.
        self._snapshot = None

    def _find_excess(self, std: Tensor) -> Tensor:
        """Return the divisors that bring the standard deviations to their limits, shape (d,).

        All are divided by the largest excess, so that the distribution keeps its shape. With
        transformed bounds each is divided by its own excess. There the mean of a parameter may
        be so far outside that the objective does not depend on it.
        """
        excess = (std / self._max_std).clamp(min=1.0)
        if self.config.bound_handling == "transform":
            return excess
        return excess.max().expand_as(excess)

    def _find_max_std(self, bounds: Any) -> Tensor:
        """Return the largest allowed standard deviations, shape (dim,).

        They are a quarter of the width of the bounds, or the initial standard deviations if
        these are larger. A wider distribution would have most candidates on the faces of the
        box, where nothing makes it shrink.
        """
        widest = first = self._state.distribution[STD]
        if bounds is None:
            return torch.full_like(first, math.inf)
        if self._num_normal:
            low, high = (to_tensor(end).to(first) for end in ends_of(bounds))
            widest = torch.maximum(first, (high - low) / 4)
        # A standard deviation of 0 needs no limit, and must not become a divisor.
        return torch.where(widest > 0, widest, math.inf)

    def _typical(self, candidates: Any) -> Any:
        """Return which candidates have the most likely integers and choices, shape (N,).

        Near the optimum a step of one integer may change a constraint by more than all other
        parameters do together.
        """
        middle = with_integers(self._state, self._state.mean)
        is_discrete = torch.ones(self.dim, dtype=torch.bool, device="cpu")
        is_discrete[: self._num_normal] = False
        if self._state.integers is not None:
            # NaN marks a real parameter.
            is_real = self._state.integers[0, : self._num_normal].isnan().cpu()
            is_discrete[: self._num_normal] = ~is_real
        rows = to_tensor(candidates).cpu()
        return (rows == middle.cpu())[:, is_discrete].all(dim=1).numpy()

    def _augmented(self, population: _Population, is_typical: Any) -> Any:
        """Return the augmented Lagrangian of N candidates; update the multipliers and margin.

        With the objective f, the constraints g, the multipliers l, the margin k, the widths s
        of the constraints, and the penalties u, it is

            f + sum of l c + u c^2 / 2      c = max(g + k s, -l / u); for an equality c = g

        This is equation (1) of the module, which has the others.

        Args:
            population: The candidates' values and constraints.
            is_typical: Which candidates have the most likely discrete parameters, shape (N,).
        """
        known = population.known  # the indices of the candidates that have a value
        if not len(known):
            # No candidate has a value, so they are ranked by their violation.
            return population.violations
        if not len(self._multipliers):
            self._multipliers = np.zeros(population.g.shape[1])
        widths = population.measure_widths(is_typical)
        # The margin moves inequalities inwards: g + k s.
        margins = np.where(population.is_equality, 0.0, self._margin * widths)
        shifted = population.g + margins
        lagrangian = population.values + (self._multipliers * shifted).sum(axis=1)
        # Equation (2): the penalties are proportional to the range of the Lagrangian.
        penalty = self._find_penalty(lagrangian[known], widths)
        terms = self._penalise(shifted, penalty, population.is_equality)
        augmented = population.values + terms

        # Equation (3): the multipliers grow if the elites violate a constraint.
        ranking = known[np.argsort(augmented[known], kind="stable")]
        elites = shifted[ranking[: self.num_elites]]
        self._move_multipliers(penalty, elites, population.is_equality)
        # Equation (4): the margin grows while few candidates are feasible.
        feasible_share = population.is_feasible.mean()
        margin = self._margin + _MARGIN_RATE * (_FEASIBLE_SHARE - feasible_share)
        self._margin = min(max(margin, _MIN_MARGIN), _MAX_MARGIN)
        # Infeasible candidates without a value rank after all others, sorted by violation.
        has_no_value = ~np.isfinite(population.values) & (population.violations > 0)
        last = augmented[known].max() + population.violations
        return np.where(has_no_value, last, augmented)

    def _penalise(self, shifted: Any, penalty: Any, is_equality: Any) -> Any:
        """Return what equation (1) adds to f, sum of l c + u c^2 / 2, shape (N,).

        There c = max(g + k s, -l / u), or for an equality c = g. ``shifted`` is g + k s.
        """
        multipliers = self._multipliers
        # Below ``lower``, the term of an inequality remains constant.
        lower = np.where(is_equality, -np.inf, -multipliers / np.maximum(penalty, _TINY))
        c = np.maximum(shifted, lower)
        return (multipliers * c + penalty * c * c / 2).sum(axis=1)

    def _find_penalty(self, lagrangian: Any, widths: Any) -> Any:
        """Return the weights u of the squared violations by equation (2), shape (m,).

        Args:
            lagrangian: f + sum of l c of all candidates with a value.
            widths: The widths s of the constraints, shape (m,). The weight of a constraint of
                width 0 is 0.
        """
        ascending = np.sort(lagrangian)
        count = len(ascending)
        iqr = ascending[3 * count // 4] - ascending[count // 4]
        if ascending[0] == ascending[-1] and not self._multipliers.any():
            iqr = 1.0  # The penalties of a constant objective may have any scale.
        squared_widths = np.maximum(widths**2, _TINY)
        return self._square_factor * iqr / (self.dim * squared_widths) * (widths > 0)

    def _move_multipliers(self, penalty: Any, elites: Any, is_equality: Any) -> None:
        """Move the multipliers by equation (3).

        ``elites`` are the values g + k s of the elites, the best first, shape (num_elites, m).
        """
        weights = self._weights[: len(elites), None]
        mean = (weights * elites).sum(axis=0)
        moved = self._multipliers + penalty * mean / weights.sum() / _DAMPING
        # The multiplier of an inequality is not negative.
        lowest = np.where(is_equality, -_LARGEST_MULTIPLIER, 0.0)
        self._multipliers = np.clip(moved, lowest, _LARGEST_MULTIPLIER)

    def snapshot(
        self, evaluation: Evaluation | None = None, *, copied: bool = True
    ) -> Snapshot:
        """Start to copy the state to the host, and add the numbers of this class.

        They form one vector: the rank of ``best`` (its violation, whether it needs the
        tolerance, and its fitness), the margin and the multipliers. The arguments are those of
        ``CrossEntropyMethod.snapshot``.
        """
        snapshot = super().snapshot(evaluation, copied=copied)
        numbers = [
            self.violation,
            self.within_tolerance,
            self._best_value,
            self._margin,
            *self._multipliers,
        ]
        snapshot.more_entries = {
            "constraints": torch.tensor(numbers, dtype=torch.float64, device="cpu")
        }
        return snapshot

    def rewind(self, snapshot: Snapshot) -> None:
        """Restore the state of a snapshot of this search."""
        super().rewind(snapshot)
        self._take(snapshot.more_entries)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state of ``state_dict``."""
        super().load_state_dict(state)
        self._take(state)

    def _take(self, state: Mapping[str, Any]) -> None:
        """Restore the numbers that ``snapshot`` has added to a state, in the same order."""
        numbers = state["constraints"].tolist()
        self.violation, needs_tolerance, self._best_value, self._margin = numbers[:4]
        self.within_tolerance = bool(needs_tolerance)
        self._multipliers = np.array(numbers[4:])
