"""Points that were evaluated before: where a search begins, and what its model knows.

A search begins at the weighted mean m of the better half of the points, and is as wide as these
are about it. With the weights w_i of CMA-ES by rank, and the standard deviation s of the call,

    std^2 = sum of w_i (x_i - m)^2 + (0.1 s)^2

By the second term a search can leave points that lie close together. It is that of M. Nomura
et al., Warm Starting CMA-ES for Hyperparameter Optimization, AAAI 2021, who take the best tenth
of the points.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cem.core.bounds import ends_of
from cem.core.checks import as_real, outside
from cem.core.config import CEMConfig
from cem.run.constraints import Constraints
from cem.run.journal import read_evaluations
from cem.space import Float, Int, Space

_FORMS = "a pair (X, y), a Result, a study of Optuna, the path of a journal, or a list of these"
_BETTER = 0.5  # the share of the points that count for the start
_LEAST_WIDTH = 0.1  # of the standard deviation of the call


class Evaluations(NamedTuple):
    """Candidates that were evaluated, shape (n, dim), and their fitness, shape (n,), float64.

    The fitness of a candidate that failed is not finite.
    """

    candidates: Any
    fitness: Any

    def numbers(self, count: int) -> "Evaluations":
        """Return the first columns of the candidates, with the same fitness."""
        size = self.candidates.shape[1]
        if size < count:
            raise ValueError(
                f"expected evaluated points of {count} parameters, got points of {size}"
            )
        return Evaluations(self.candidates[:, :count], self.fitness)

    def if_feasible(self, constraints: Constraints) -> "Evaluations":
        """Return the same candidates; those that violate a constraint have no fitness."""
        g, is_equality = constraints(self.candidates)
        violation = np.where(is_equality, abs(g), g).max(axis=1, initial=0.0)
        is_feasible = violation <= constraints.tolerance
        if not is_feasible.any():
            raise ValueError("expected evaluated points that satisfy the constraints, got none")
        return Evaluations(self.candidates, np.where(is_feasible, self.fitness, math.nan))

    def best(self, maximize: bool) -> int:
        """Return the index of the fittest candidate."""
        return int(self.ranking(maximize)[0])

    def mean_and_std(self, maximize: bool, std: Any) -> tuple[Any, Any]:
        """Return where a search begins: mean and standard deviation, shapes (dim,).

        Args:
            maximize: Whether a greater fitness is better.
            std: The standard deviation of a search that knows no points. None: that of all
                these points.
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
        count = math.ceil(_BETTER * len(ranking))
        weights = math.log(count + 0.5) - np.log(np.arange(1, count + 1))
        weights /= weights.sum()
        better = self.candidates[ranking[:count]]
        # Rounding must not put the mean outside the bounds.
        mean = np.clip(weights @ better, better.min(0), better.max(0))
        variance = weights @ (better - mean) ** 2
        return mean, np.sqrt(variance + (_LEAST_WIDTH * std) ** 2)

    def ranking(self, maximize: bool) -> Any:
        """Return the indices of the candidates with a value, the fittest first."""
        is_known = np.isfinite(self.fitness)
        order = np.argsort(-self.fitness if maximize else self.fitness, kind="stable")
        return order[is_known[order]]


def read_evaluated(
    source: Any, space: Space | None, bounds: Any, integers: Any, maximize: bool
) -> Evaluations:
    """Return the evaluations of a source, or of a list of sources, as candidates.

    Points outside the bounds, or between integers or steps, are left out, with a warning.

    Args:
        source: A pair of points and their values, a ``Result``, a study of Optuna, the path of
            a journal or of the folder of a ``checkpoint``, or a list of these.
        space: The named parameters; None: points are vectors.
        bounds: The bounds of the candidates' numbers, or None.
        integers: The integers of vectors, as in ``CEMConfig``, or None.
        maximize: Whether a greater value is better in the search.

    Raises:
        TypeError: If a source is none of these.
        ValueError: If points have another shape or parameters than the search, or all of them
            lie outside the bounds.
    """
    sources = source if isinstance(source, list) else [source]
    parts = [_read_source(part, space, maximize) for part in sources]
    dims = {candidates.shape[1] for candidates, _ in parts if len(candidates)}
    if len(dims) != 1:
        raise ValueError(f"expected evaluated points of one size, got the sizes {sorted(dims)}")
    parts = [part for part in parts if len(part.fitness)]
    candidates = np.concatenate([part.candidates for part in parts])
    fitness = np.concatenate([part.fitness for part in parts])
    is_inside = np.isfinite(candidates).all(1)
    if bounds is not None:
        low, high = (np.asarray(end, dtype=np.float64) for end in ends_of(bounds))
        numbers = candidates[:, : low.size] if low.ndim else candidates
        is_inside &= ((numbers >= low) & (numbers <= high)).all(1)
    if space is None and integers is not None:
        columns = CEMConfig(integers=integers).integers_of(candidates.shape[1])
        is_inside &= (candidates[:, columns] == np.round(candidates[:, columns])).all(1)
    if not is_inside.any():
        raise ValueError(
            f"expected evaluated points within the bounds, on integers and steps, got none of "
            f"{len(fitness)}"
        )
    if not is_inside.all():
        warnings.warn(
            f"{(~is_inside).sum()} of {len(fitness)} evaluated points are outside the bounds, "
            "or between integers or steps",
            RuntimeWarning,
            stacklevel=outside(),
        )
    fitness = fitness[is_inside]
    if not np.isfinite(fitness).any():
        raise ValueError(
            f"expected evaluated points with a value, got {len(fitness)} that failed"
        )
    return Evaluations(candidates[is_inside], fitness)


def _read_source(source: Any, space: Space | None, maximize: bool) -> Evaluations:
    """Return the evaluations of one source."""
    if isinstance(source, (str, Path)):
        return _read_journals(Path(source), space)
    if hasattr(source, "trials"):
        points, values = _read_study(source, space)
        _check_direction("study", source.directions[0].name == "MAXIMIZE", maximize)
    elif hasattr(type(source), "evaluated"):
        _check_direction("result", source._maximize, maximize)
        points, values = source.evaluated
    elif isinstance(source, tuple) and len(source) == 2:
        points, values = source
    else:
        raise TypeError(f"expected {_FORMS} for evaluated, got {source!r}")
    candidates = encode_points(points, space)
    if hasattr(values, "to_numpy"):  # a Series, whose index may be any
        values = values.to_numpy()
    fitness = as_real("evaluated values", values).double().cpu().numpy()
    if fitness.shape != candidates.shape[:1]:
        raise ValueError(
            f"expected a value for each of {len(candidates)} evaluated points, "
            f"got values of shape {fitness.shape}"
        )
    return Evaluations(candidates, fitness)


def encode_points(points: Any, space: Space | None) -> Any:
    """Return points as candidates, shape (n, dim); NaN where a number is out of its range.

    Named parameters are dicts, or a table of columns: a dict of sequences, or a DataFrame.
    """
    if space is None:
        if hasattr(points, "to_numpy"):
            points = points.to_numpy()
        elif isinstance(points, (list, tuple)):
            points = np.array(points)
        candidates = as_real("evaluated points", points).double().cpu().numpy()
        if candidates.ndim != 2:
            raise ValueError(
                f"expected evaluated points of shape (n, dim), got {candidates.shape}"
            )
        return candidates
    if hasattr(points, "keys"):
        columns = dict(points)
        points = [
            dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
        ]
    rows = [_encode_point(point, space) for point in points]
    return np.array(rows, dtype=np.float64).reshape(len(rows), space.dim)


def _encode_point(point: Any, space: Space) -> Any:
    """Return the candidate of named parameters, NaN if a number cannot be one of them."""
    if not isinstance(point, Mapping) or not point.keys() >= space.columns.keys():
        names = ", ".join(space.columns)
        raise ValueError(f"expected evaluated points with a value for {names}, got {point!r}")
    for name in space.columns:
        number = space.parameters[name]
        is_number = isinstance(number, (Float, Int))
        if is_number and not number.low <= point[name] <= number.high:
            return np.full(space.dim, math.nan)
    candidate = space.encode({name: point[name] for name in space.columns})
    # Encoding rounds a number between two integers or steps to the nearer one.
    rounded = space.decode(candidate)
    for name in space.columns:
        is_number = isinstance(space.parameters[name], (Float, Int))
        if is_number and not math.isclose(
            point[name], rounded[name], rel_tol=1e-6, abs_tol=1e-12
        ):
            return np.full(space.dim, math.nan)
    return candidate


def _read_study(study: Any, space: Space | None) -> tuple[Any, Any]:
    """Return the parameters and values of the trials of a study that have ended.

    A trial without a value has failed. Trials that do not have all parameters are left out, and
    so are parameters that are not searched.
    """
    if space is None:
        raise ValueError("expected a dict of parameters with a study, got a mean")
    points: list[dict[str, Any]] = []
    values: list[float] = []
    for trial in study.trials:
        if trial.state.is_finished() and trial.params.keys() >= space.columns.keys():
            points.append({name: trial.params[name] for name in space.columns})
            results: Sequence[float] = [math.nan]
            # A trial that was pruned has an intermediate value.
            if trial.state.name == "COMPLETE":
                results = trial.values
            if len(results) != 1:
                raise ValueError(f"expected a study of one objective, got {len(results)}")
            values += results
    return points, values


def _check_direction(source: str, is_maximum: bool, maximize: bool) -> None:
    """Raise ValueError if the values of a source are not those that the search optimises."""
    if is_maximum != maximize:
        names = ("minimised", "maximised")
        raise ValueError(
            f"expected a {source} that is {names[maximize]}, got one that is "
            f"{names[is_maximum]}"
        )


def _read_journals(path: Path, space: Space | None) -> Evaluations:
    """Return the evaluations of a journal, or of all journals in the folder of a checkpoint.

    Raises:
        ValueError: If there are none, or they are of other named parameters.
    """
    files = [path]
    if path.is_dir():
        files = sorted(path.rglob("*.journal"))
    read = [read_evaluations(file) for file in files]
    if not sum(len(fitness) for _, _, fitness in read):
        raise ValueError(f"{path}: expected evaluations, got none")
    names, candidates, fitness = zip(*read, strict=True)
    parameters = "" if space is None else f" of {space!r}"
    if any(not name.endswith(parameters) for name in names):
        raise ValueError(f"{path}: expected evaluations{parameters}, got {names[0]}")
    return Evaluations(np.concatenate(candidates), np.concatenate(fitness))
