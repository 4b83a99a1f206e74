"""Points that were evaluated before the call: they determine the start of the search.

The first mean is the weighted mean m of the better half of the points x_i. The first standard
deviation is their weighted deviation from it. With the rank weights w_i of CMA-ES and the
standard deviation s of the call,

    std^2 = sum of w_i (x_i - m)^2 + (0.1 s)^2

The second term lets the search leave points that lie close together. The method is that of M.
Nomura et al., Warm Starting CMA-ES for Hyperparameter Optimization, AAAI 2021, who use the best
tenth of the points.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cem.core.bounds import ends_of
from cem.core.checks import as_real, warn
from cem.core.config import CEMConfig
from cem.run.constraints import Constraints
from cem.run.journal import read_evaluations
from cem.space import Space

_FORMS = "a pair (X, y), a Result, a study of Optuna, the path of a journal, or a list of these"
_BETTER = 0.5  # the share of the points that determine the start
_LEAST_WIDTH = 0.1  # the least standard deviation, relative to that of the call


class Evaluations(NamedTuple):
    """Candidates that were evaluated, and their fitness.

    Attributes:
        candidates: The candidates, shape (n, dim).
        fitness: Their fitness, shape (n,), float64. The candidates whose fitness is not finite
            have failed.
    """

    candidates: Any
    fitness: Any

    def numbers(self, count: int) -> "Evaluations":
        """Return the evaluations with the first ``count`` columns of the candidates only."""
        size = self.candidates.shape[1]
        if size < count:
            raise ValueError(
                f"expected evaluated points of {count} parameters, got points of {size}"
            )
        return Evaluations(self.candidates[:, :count], self.fitness)

    def if_feasible(self, constraints: Constraints, mean: Any) -> "Evaluations":
        """Return the evaluations with NaN as the fitness of infeasible candidates.

        A candidate that needs the tolerance is one of them if another does not: the search
        prefers any of the latter to it.

        The constraints get arrays or tensors, whichever the first mean of the call is.

        Raises:
            ValueError: If every candidate violates a constraint.
        """
        population = self.candidates
        if isinstance(mean, Tensor):
            population = torch.from_numpy(population).to(mean)
        judged = constraints.judge(population, self.fitness)
        is_feasible = judged.violations == 0
        is_strict = judged.is_feasible & np.isfinite(self.fitness)
        if is_strict.any():
            is_feasible = is_strict
        if not is_feasible.any():
            raise ValueError("expected evaluated points that satisfy the constraints, got none")
        return Evaluations(self.candidates, np.where(is_feasible, self.fitness, math.nan))

    def best(self, maximize: bool) -> int:
        """Return the index of the fittest candidate."""
        return int(self.ranking(maximize)[0])

    def mean_and_std(self, maximize: bool, std: Any) -> tuple[Any, Any]:
        """Return the mean and the standard deviation of a search that starts at these points.

        Both have shape (dim,). With weights w_i of the better half of the points x_i, they are

            m = sum of w_i x_i,    s^2 = sum of w_i (x_i - m)^2 + (0.1 std)^2

        Args:
            maximize: Whether a greater fitness is better.
            std: The standard deviation of the call. None: that of all points.

        Raises:
            ValueError: If ``std`` is None, and all points agree in a parameter.
        """
        ranking = self.ranking(maximize)
        if std is None:
            std = self.candidates[ranking].std(0)
            if not (std > 0).all():
                equal = np.flatnonzero(std == 0).tolist()
                raise ValueError(
                    f"expected std: evaluated points do not differ in the parameters {equal}"
                )
        std = np.asarray(std, dtype=np.float64)
        # The better half of the points, from best to worst.
        count = math.ceil(_BETTER * len(ranking))
        better = self.candidates[ranking[:count]]
        # The weights of CMA-ES decrease with the logarithm of the rank.
        weights = math.log(count + 0.5) - np.log(np.arange(1, count + 1))
        weights /= weights.sum()
        # Clip, because rounding errors must not move the mean out of the bounds.
        mean = np.clip(weights @ better, better.min(0), better.max(0))
        variance = weights @ (better - mean) ** 2
        least_std = _LEAST_WIDTH * std
        return mean, np.sqrt(variance + least_std**2)

    def ranking(self, maximize: bool) -> Any:
        """Return the indices of the candidates with finite fitness, the fittest first."""
        is_known = np.isfinite(self.fitness)
        order = np.argsort(-self.fitness if maximize else self.fitness, kind="stable")
        return order[is_known[order]]


def read_evaluated(
    source: Any,
    space: Space | None,
    bounds: Any,
    integers: Any,
    maximize: bool,
    dtype: torch.dtype,
) -> Evaluations:
    """Return the evaluations that the caller passed as the option ``evaluated``.

    Points that the search cannot reach are left out, with a warning. These are points outside
    the bounds, between two integers or steps, or with other values of fixed parameters.

    Args:
        source: A pair of points and their values, a ``Result``, a study of Optuna, the path of
            a journal or of a checkpoint folder, or a list of these.
        space: The named parameters. None: points are vectors.
        bounds: The bounds of the call, or None.
        integers: The integer parameters of vectors, as in ``CEMConfig``, or None.
        maximize: Whether the search maximises.
        dtype: The dtype of the search.

    Raises:
        TypeError: If a source has another type.
        ValueError: If the points have other parameters than the search, if the search cannot
            reach any of them, or if all of them failed.
    """
    sources = source if isinstance(source, list) else [source]
    candidates, fitness = _join([_read_source(part, space, maximize) for part in sources])
    if space is not None:
        # ``encode_points`` has already set points between two integers to NaN. A point of NaN
        # is not reachable.
        integers = None
    is_reachable = _are_reachable(candidates, bounds, integers, dtype)
    _warn_of_unreachable(is_reachable)
    fitness = fitness[is_reachable]
    if not np.isfinite(fitness).any():
        raise ValueError(
            f"expected evaluated points with a value, got {len(fitness)} that failed"
        )
    return Evaluations(candidates[is_reachable], fitness)


def _join(parts: Sequence[Evaluations]) -> Evaluations:
    """Return the evaluations of several sources together; empty sources are ignored."""
    parts = [part for part in parts if len(part.fitness)]
    if not parts:
        raise ValueError("expected evaluated points, got none")
    sizes = {part.candidates.shape[1] for part in parts}
    if len(sizes) != 1:
        raise ValueError(f"expected evaluated points of one size, got sizes {sorted(sizes)}")
    candidates, fitness = zip(*parts, strict=True)
    return Evaluations(np.concatenate(candidates), np.concatenate(fitness))


def _warn_of_unreachable(is_reachable: Any) -> None:
    """Warn if a search cannot reach some points; raise ValueError if it can reach none."""
    count = len(is_reachable)
    if not is_reachable.any():
        raise ValueError(
            f"expected evaluated points within the bounds, on integers and steps, got none of "
            f"{count}"
        )
    if not is_reachable.all():
        warn(
            f"{(~is_reachable).sum()} of {count} evaluated points are outside the bounds, "
            "between integers or steps, or have other values of fixed parameters"
        )


def _are_reachable(candidates: Any, bounds: Any, integers: Any, dtype: torch.dtype) -> Any:
    """Return flags of the candidates that a search can reach, shape (n,).

    A candidate is reachable if it is finite, within the bounds, and an integer where the search
    has integers. A search of float32 rounds its bounds, so that 0.7 becomes less than 0.7.
    """
    is_reachable = np.isfinite(candidates).all(1)
    if bounds is not None:
        low, high, rounded = (
            as_real("bounds", numbers).to(dtype).double().cpu().numpy()
            for numbers in (*ends_of(bounds), candidates)
        )
        # Bounds are two numbers for all columns, or belong to the first columns.
        bounded = rounded[:, : low.size] if low.ndim else rounded
        is_reachable &= ((bounded >= low) & (bounded <= high)).all(1)
    if integers is not None:
        columns = CEMConfig(integers=integers).integers_of(candidates.shape[1])
        is_reachable &= (candidates[:, columns] == np.round(candidates[:, columns])).all(1)
    return is_reachable


def _read_source(source: Any, space: Space | None, maximize: bool) -> Evaluations:
    """Return the evaluations of a single source, which is not a list.

    Raises:
        TypeError: If the source has another type than those of ``read_evaluated``.
        ValueError: If the source was optimised in the other direction, or does not have one
            value per point.
    """
    if isinstance(source, (str, Path)):
        return _read_journals(Path(source), space, maximize)
    if hasattr(source, "trials"):  # a study of Optuna
        points, values = _read_study(source, space)
        is_maximum = source.directions[0].name == "MAXIMIZE"
        _check_direction("study", is_maximum, maximize)
    elif hasattr(type(source), "evaluated"):  # a ``Result``
        _check_direction("result", source._maximize, maximize)
        points, values = source.evaluated
    elif isinstance(source, tuple) and len(source) == 2:
        points, values = source
    else:
        raise TypeError(f"expected {_FORMS} for evaluated, got {source!r}")
    candidates = encode_points(points, space)
    fitness = as_real("evaluated values", values).double().cpu().numpy()
    if fitness.shape != candidates.shape[:1]:
        raise ValueError(
            f"expected a value for each of {len(candidates)} evaluated points, "
            f"got values of shape {fitness.shape}"
        )
    return Evaluations(candidates, fitness)


def encode_points(points: Any, space: Space | None) -> Any:
    """Return points as candidates, an array of shape (n, dim), float64.

    Args:
        points: Without a space, anything that converts to an array of shape (n, dim). With a
            space, a list of dicts, or a table: a dict of columns, or a DataFrame.
        space: The named parameters. A point that the space does not contain becomes a row of
            NaN. None: points are vectors.
    """
    if space is None:
        if isinstance(points, (list, tuple)):
            points = np.array(points)
        candidates = as_real("evaluated points", points).double().cpu().numpy()
        if candidates.ndim != 2:
            raise ValueError(
                f"expected evaluated points of shape (n, dim), got {candidates.shape}"
            )
        return candidates
    if hasattr(points, "keys"):
        # The points are a table. Make one dict per row from its columns, by their names.
        columns = dict(points)
        rows = zip(*columns.values(), strict=True)
        points = [dict(zip(columns, row, strict=True)) for row in rows]
    encoded = [_encode_point(point, space) for point in points]
    return np.array(encoded, dtype=np.float64).reshape(len(encoded), space.dim)


def _encode_point(point: Any, space: Space) -> Any:
    """Return the candidate of one point, shape (dim,).

    If some value of the point is out of range, between two integers or steps, or differs from
    that of a fixed parameter, the whole candidate is NaN.
    """
    if not isinstance(point, Mapping) or not point.keys() >= space.columns.keys():
        names = ", ".join(space.columns)
        raise ValueError(f"expected evaluated points with a value for {names}, got {point!r}")
    # Fixed parameters have no column, and a point may lack them.
    values = {name: point[name] for name in space.parameters if name in point}
    try:
        return space.encode(values)
    except ValueError:  # The space does not contain a value.
        return np.full(space.dim, math.nan)


def _read_study(study: Any, space: Space | None) -> tuple[list[dict[str, Any]], list[float]]:
    """Return the points and values of the finished trials of an Optuna study.

    The value of a failed or pruned trial is NaN. Trials that lack a parameter of the search are
    left out. So are the parameters of a trial that are not part of the search.
    """
    if space is None:
        raise ValueError("expected a dict of parameters with a study, got a mean")
    points: list[dict[str, Any]] = []
    values: list[float] = []
    for trial in study.trials:
        has_all_parameters = trial.params.keys() >= space.columns.keys()
        if not (trial.state.is_finished() and has_all_parameters):
            continue
        known = trial.params.keys() & space.parameters.keys()
        points.append({name: trial.params[name] for name in known})
        # A trial has one value per objective of the study. A pruned trial has intermediate
        # values, which are not used.
        values_of_trial: Sequence[float] = [math.nan]
        if trial.state.name == "COMPLETE":
            values_of_trial = trial.values
        if len(values_of_trial) != 1:
            raise ValueError(f"expected a study of one objective, got {len(values_of_trial)}")
        values += values_of_trial
    return points, values


def _check_direction(source: str, is_maximum: bool, maximize: bool) -> None:
    """Raise ValueError if a source was minimised and the search maximises, or vice versa."""
    if is_maximum != maximize:
        names = ("minimised", "maximised")
        raise ValueError(
            f"expected a {source} that is {names[maximize]}, got one that is "
            f"{names[is_maximum]}"
        )


def _read_journals(path: Path, space: Space | None, maximize: bool) -> Evaluations:
    """Return the evaluations of a journal, or of all journals in a checkpoint folder.

    Raises:
        ValueError: If there are no evaluations, or they have other named parameters, or were
            optimised in the other direction.
    """
    files = [path]
    if path.is_dir():
        files = sorted(path.rglob("*.journal"))
    # Each journal is a tuple: the name of its objective, whether it was maximised, the
    # candidates and their fitness.
    journals = [read_evaluations(file) for file in files]
    if not any(len(fitness) for *_, fitness in journals):
        raise ValueError(f"{path}: expected evaluations, got none")
    objectives, are_maxima, candidates, fitness = zip(*journals, strict=True)
    for is_maximum in are_maxima:
        _check_direction("journal", is_maximum, maximize)
    # The name of an objective ends with the named parameters, if there are any.
    parameters = "" if space is None else f" of {space!r}"
    if not all(objective.endswith(parameters) for objective in objectives):
        raise ValueError(f"{path}: expected evaluations{parameters}, got {objectives[0]}")
    return Evaluations(np.concatenate(candidates), np.concatenate(fitness))
