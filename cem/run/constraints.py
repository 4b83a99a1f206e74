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
from typing import Any

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
_SHARE, _DAMPING, _TINY, _HUGE = 3.0, 5.0, 1e-200, 1e100  # of (2), (3)
_FEWEST = (
    3  # the violations of a constraint by which its width is estimated: fewer say too little
)
_RATE, _AIM, _LEAST, _MOST = 0.1, 0.15, 0.2, 1.0  # of (4)


class Constraints:
    """Constraints of any form that ``minimize`` takes, as one function of a population.

    Attributes:
        described: What tells them from others, but for their code.
        functions: The functions of a population.
        tolerance: The most by which one may be missed.
    """

    def __init__(
        self,
        given: Any,
        *,
        by_one: bool,
        vmap: bool,
        named: Callable[..., Any] | None = None,
        tolerance: float | None = None,
    ) -> None:
        """Take them; functions of our form are called candidate by candidate, by vmap, or once.

        ``named`` makes a function of named parameters one of candidates; None: they are
        functions of these.
        """
        self.tolerance = TOLERANCE
        if tolerance is not None:
            self.tolerance = check_real("tolerance", tolerance, 0.0)
        several = given if isinstance(given, (list, tuple)) else [given]
        self._parts = [_part(each, by_one, vmap, named) for each in several]
        self.functions = [function for function, *_ in self._parts]
        self.described = [
            f"{low.tolist()} <= {name} <= {high.tolist()}" for _, low, high, name in self._parts
        ]

    def __call__(self, candidates: Any) -> tuple[Any, Any]:
        """Return g, shape (N, m), float64, and whether each is an equality, shape (m,)."""
        columns, equal = [], []
        for function, low, high, _ in self._parts:
            values = _numbers(call_with_copies(function, candidates))
            if values.ndim not in (1, 2) or len(values) != len(candidates):
                raise ValueError(
                    f"expected constraints of shape ({len(candidates)}, m) or "
                    f"({len(candidates)},), got {values.shape}: functions of one candidate "
                    "need vectorize=True or vectorize='loop'"
                )
            values = values.reshape(len(values), -1)
            low, high = (
                np.broadcast_to(low, values.shape[1]),
                np.broadcast_to(high, values.shape[1]),
            )
            used = np.isfinite(np.concatenate([np.where(low == high, -np.inf, low), high]))
            columns.append(np.concatenate([low - values, values - high], axis=1)[:, used])
            equal.append(np.tile(low == high, 2)[used])
        return np.concatenate(columns, axis=1), np.concatenate(equal)


def _part(
    given: Any, by_one: bool, vmap: bool, named: Callable[..., Any] | None
) -> tuple[Callable[[Any], Any], Any, Any, str]:
    """Return a function of a population, the ends of its values, and its name."""
    if isinstance(given, Mapping):  # one of SciPy: 0 <= fun(x), or 0 == fun(x)
        fun, args = given["fun"], given.get("args", ())
        most = 0.0 if given["type"] == "eq" else math.inf
        given = SimpleNamespace(fun=lambda x: fun(x, *args), lb=0.0, ub=most)
    ends = getattr(given, "lb", -math.inf), getattr(given, "ub", 0.0)
    low, high = (np.asarray(end, dtype=np.float64) for end in ends)
    if hasattr(given, "A"):
        if named is not None:
            raise TypeError(
                "expected functions or NonlinearConstraint for a dict of parameters, "
                f"of which a matrix does not know the names, got {given!r}"
            )
        return lambda x: (given.A @ _numbers(x).T).T, low, high, str(given.A)
    if hasattr(given, "fun"):
        one = given.fun if named is None else named(given.fun, by_column=False)
        return lambda x: _each(one, _numbers(x)), low, high, describe_callable(given.fun)
    of_x = given if named is None else named(given)

    def function(x: Any) -> Any:
        if by_one or (vmap and isinstance(x, np.ndarray)):
            return _each(of_x, x)
        return (torch.func.vmap(of_x, randomness="different") if vmap else of_x)(x)

    return function, low, high, describe_callable(given)


def _each(function: Callable[[Any], Any], rows: Any) -> Any:
    return np.stack([_numbers(function(row)).reshape(-1) for row in rows])


def _widths(g: Any) -> Any:
    """Return s of equations (1) and (2), shape (m,), for constraints of shape (N, m).

    That is the standard deviation, or where it is less that of the normal distribution with as
    many violations whose mean square is as great. Where parameters span orders of magnitude,
    feasible candidates are a thousand times as far from the boundary as others are: a square as
    wide as that would be too flat to call the search back.
    """
    count = len(g)
    width = g.std(axis=0)
    violated = (g > 0).sum(axis=0)
    mean_square = (np.maximum(g, 0.0) ** 2).sum(axis=0) / np.maximum(violated, 1)
    share = np.clip(violated / count, 0.5 / count, 1 - 0.5 / count)
    normal = NormalDist()
    mean = np.array([normal.inv_cdf(float(x)) for x in share])
    density = np.array([normal.pdf(x) for x in mean])
    # The mean square of the positive values of N(mean, 1).
    unit = 1 + mean**2 + mean * density / share
    estimate = np.sqrt(mean_square / unit)
    return np.where(violated < _FEWEST, width, np.minimum(width, estimate))


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

        ``steepness`` multiplies u of equation (2): a steep search converges more slowly, but
        returns from where the objective falls faster than violations grow.
        """
        super().__init__(*arguments, **options)
        self._share = steepness * _SHARE
        self._constraints, self._sign = constraints, -1.0 if self.maximize else 1.0
        self._normal = self._state.settings.normal
        self._chosen = first[self._normal :].to(self._state.distribution)
        self._margin = _LEAST  # k
        # One for each constraint: the first call shows how many there are.
        self._multipliers = np.zeros(0)
        self.within_tolerance = True
        # The best candidate's violation and its fitness, with the sign of minimisation.
        self.violation = self._value = math.inf
        weights, elites = self._state.weights, self.num_elites
        self._widest = self._widest_std(options.get("bounds"))
        self._weights = np.ones(elites) if weights is None else _numbers(weights[:elites])

    @property
    def best_fitness(self) -> float:
        """The fitness of ``best``."""
        return self._sign * self._value

    def ask(self, count: int | None = None) -> Any:
        """Draw candidates of this generation."""
        candidates = super().ask(count)
        if self._generation == 0:
            first = torch.cat([self._state.mean[: self._normal], self._chosen])
            candidates[0] = self._copy(with_integers(self._state, first))
        return candidates

    def tell(self, candidates: Any, fitness: Any, *, _are_asked: bool = False) -> None:
        """Move the distribution by the values of the objective for a population, shape (N,)."""
        values = self._sign * _numbers(fitness)
        g, equal = self._constraints(candidates)
        distances = np.where(equal, abs(g), np.maximum(g, 0.0))
        missed = np.where(distances > self._constraints.tolerance, distances, 0.0)
        violations = missed.max(axis=1, initial=0.0)
        narrowly = (violations == 0) & (~equal & (g > 0)).any(axis=1)
        values[np.isnan(values)] = np.inf
        has_failed = np.isnan(violations) | ((values == np.inf) & (violations == 0))
        violations[has_failed] = np.inf
        best = self._state.best
        feasible = (violations == 0) & ~narrowly
        ranked = self._augmented(
            values, g, equal, violations, feasible, self._typical(candidates)
        )
        super().tell(candidates, self._sign * ranked, _are_asked=_are_asked)
        first = np.lexsort((values, narrowly, violations))[0]
        found = float(violations[first]), bool(narrowly[first]), float(values[first])
        if found < (self.violation, self.within_tolerance, self._value):
            self.violation, self.within_tolerance, self._value = found
            best = torch.as_tensor(candidates[first])
        state = self._state
        distribution = state.distribution.clone()
        record = state.record.clone()
        distribution[BEST, : self._normal] = best[: self._normal]
        record[BEST_FITNESS] = self._sign * (math.inf if self.violation else self._value)
        excess = (distribution[STD] / self._widest).clamp(min=1.0)
        # Through the smooth map of bounds the mean may be far outside, where the objective does
        # not depend on a parameter: then its excess is its own. Otherwise the distribution
        # keeps its shape.
        if self.config.bound_handling != "transform":
            excess = excess.max().expand_as(excess)
        distribution[STD] /= excess
        factor = state.factor
        if factor is not None:
            factor = factor / excess.unsqueeze(-1)
        tables = state.discrete
        if tables is not None:
            columns = best[self._normal :].to(tables)
            tables = torch.cat([tables[: -len(columns)], columns])
        self._state = state._replace(
            distribution=distribution, record=record, factor=factor, discrete=tables
        )
        self._snapshot = None

    def _widest_std(self, bounds: Any) -> Tensor:
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
        self, values: Any, g: Any, equal: Any, violations: Any, feasible: Any, typical: Any
    ) -> Any:
        """Return what is ranked, (N,), and move multipliers and margin by (1) to (4)."""
        known = np.flatnonzero(np.isfinite(values) & np.isfinite(violations))
        if not len(known):
            return violations
        factors = self._multipliers if len(self._multipliers) else np.zeros(g.shape[1])
        near = known[typical[known]]
        measured = g[near if len(near) >= _FEWEST else known]
        spread = np.where(equal, measured.std(axis=0), _widths(measured))
        shifted = g + np.where(equal, 0.0, self._margin * spread)
        lagrangian = np.sort((values + (factors * shifted).sum(axis=1))[known])
        middle = lagrangian[3 * len(known) // 4] - lagrangian[len(known) // 4]
        square = self._share * middle / (self.dim * np.maximum(spread**2, _TINY)) * (spread > 0)
        least = np.where(equal, -np.inf, -factors / np.maximum(square, _TINY))
        c = np.maximum(shifted, least)
        ranked = values + (factors * c + square * c * c / 2).sum(axis=1)
        order = known[np.argsort(ranked[known], kind="stable")][: self.num_elites]
        weights = self._weights[: len(order), None]
        moved = (
            factors + square * (weights * shifted[order]).sum(axis=0) / weights.sum() / _DAMPING
        )
        self._multipliers = np.clip(moved, np.where(equal, -_HUGE, 0.0), _HUGE)
        share = feasible.mean()
        self._margin = min(max(self._margin + _RATE * (_AIM - share), _LEAST), _MOST)
        # Where the objective has no value outside, what is nearer to the inside is better.
        outside = ~np.isfinite(values) & (violations > 0)
        return np.where(outside, ranked[known].max() + violations, ranked)

    def snapshot(
        self, evaluation: Evaluation | None = None, *, copied: bool = True
    ) -> Snapshot:
        """Start a copy of the state, with the multipliers."""
        found = super().snapshot(evaluation, copied=copied)
        mine = (
            self.violation,
            self.within_tolerance,
            self._value,
            self._margin,
            *self._multipliers,
        )
        found.more = {"constraints": torch.tensor(mine, dtype=torch.float64)}
        return found

    def rewind(self, snapshot: Snapshot) -> None:
        """Restore the state of a snapshot of this search."""
        super().rewind(snapshot)
        self._take(snapshot.more)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state of ``state_dict``."""
        super().load_state_dict(state)
        self._take(state)

    def _take(self, state: Mapping[str, Any]) -> None:
        self.violation, narrowly, self._value, self._margin, *multipliers = state[
            "constraints"
        ].tolist()
        self.within_tolerance = bool(narrowly)
        self._multipliers = np.array(multipliers)
