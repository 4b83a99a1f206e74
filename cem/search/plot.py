"""A picture of a result: the progress, the importance of parameters, a slice along each."""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cem.space import Choice, Int

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 4
_MOST_SLICES = 8
_RESOLUTION = 200  # points of a curve
_WIDE = 100.0  # the ratio of values from which on their axis is logarithmic
_SHOWN = 0.9  # the share of the values within a linear axis
_POINTS: dict[str, Any] = {"s": 10, "color": "0.6", "linewidths": 0, "rasterized": True}
_LINE: dict[str, Any] = {"color": "tab:blue", "linewidth": 1.5}


class _Slice(NamedTuple):
    """Values along one parameter.

    Attributes:
        name: The name of the parameter.
        parameter: What it may be; None: a number of a vector.
        positions: Its values in the evaluations, of a choice their indices, shape (n,).
        best: The position of the fittest candidate.
        grid: Positions, shape (k,).
        curve: The model there, with all other parameters as in the fittest candidate.
    """

    name: str
    parameter: Any
    positions: Any
    best: float
    grid: Any
    curve: Any

    @property
    def is_discrete(self) -> bool:
        """Whether there is nothing between two values."""
        return isinstance(self.parameter, (Choice, Int))


def draw_result(result: Any) -> "Figure":
    """Return the figure of a ``Result``; see its method ``plot``."""
    import matplotlib.figure

    shares = {} if result.model is None else result._ranked_importance()
    slices = [part for name in shares if (part := _slice_along(result, name)) is not None]
    slices = slices[:_MOST_SLICES]
    rows = math.ceil(len(slices) / _COLUMNS)
    figure = matplotlib.figure.Figure(figsize=(11, 3.2 + 2.5 * rows), layout="constrained")
    grid = figure.add_gridspec(1 + rows, _COLUMNS, height_ratios=[1.3] + rows * [1.0])
    _draw_history(figure.add_subplot(grid[0, :3] if shares else grid[0, :]), result)
    if result.model is not None:
        _draw_importance(figure.add_subplot(grid[0, 3]), shares, result.model.r2)
    for number, part in enumerate(slices):
        axes = figure.add_subplot(grid[1 + number // _COLUMNS, number % _COLUMNS])
        _draw_slice(axes, part, result)
        if number == 0:
            axes.legend(frameon=False)
    return figure


def _slice_along(result: Any, name: str) -> _Slice | None:
    """Return the slice along a parameter; None for a permutation, which has many columns."""
    evaluations = result._evaluations
    assert evaluations is not None, "the model is fitted to them"
    assert result.model is not None
    parameter = None
    column: Any
    if result._space is None:
        column = int(name.strip("x[]"))
    else:
        parameter = result._space.parameters[name]
        column = result._space.columns[name]
    if not isinstance(column, int):
        return None
    numbers = evaluations.candidates[:, column]
    best = evaluations.best(result._maximize)
    grid = np.unique(numbers)
    if not isinstance(parameter, (Choice, Int)):
        grid = np.linspace(grid[0], grid[-1], _RESOLUTION)
    candidates = np.tile(evaluations.candidates[best], (len(grid), 1))
    candidates[:, column] = grid
    curve = result.model.predict(candidates)
    if parameter is not None:
        numbers = parameter.values_of(numbers)
        grid = parameter.values_of(grid)
    return _Slice(name, parameter, numbers, numbers[best], grid, curve)


def _draw_history(axes: "Axes", result: Any) -> None:
    """Draw all values, or the best of every generation, and the best so far."""
    evaluations: Any = np.array(result.history["evaluations"])
    values = np.array(result.history["generation_best"])
    best = np.array(result.history["best_fitness"])
    label = "best of a generation"
    if result._evaluations is not None:
        values = result._evaluations.fitness
        evaluations = np.arange(1, len(values) + 1)
        accumulate = np.fmax.accumulate if result._maximize else np.fmin.accumulate
        best = accumulate(np.where(np.isfinite(values), values, math.nan))
        label = "evaluation"
    axes.scatter(evaluations, values, label=label, **_POINTS)
    axes.step(evaluations, best, where="post", label="best so far", **_LINE)
    _scale_values(axes, values, result._maximize)
    axes.set(title="Progress", xlabel="evaluations", ylabel="value")
    axes.legend(frameon=False)


def _draw_importance(axes: "Axes", shares: dict[str, float], r2: float) -> None:
    """Draw the importance of the parameters, the greatest first."""
    names = [*shares][:_MOST_SLICES]
    axes.barh(names, [100 * shares[name] for name in names], color="tab:blue")
    axes.invert_yaxis()
    title = "Importance" if math.isnan(r2) else f"Importance (R² {r2:.2f})"
    axes.set(title=title, xlabel="% of the model's variance")


def _draw_slice(axes: "Axes", part: _Slice, result: Any) -> None:
    """Draw the values along a parameter, and the model through the best point."""
    assert result._evaluations is not None
    fitness = result._evaluations.fitness
    axes.scatter(part.positions, fitness, **_POINTS)
    style: dict[str, Any] = {"marker": "o", "linestyle": ""} if part.is_discrete else {}
    axes.plot(part.grid, part.curve, label="model", **_LINE, **style)
    best = result._evaluations.best(result._maximize)
    axes.plot(part.best, fitness[best], "o", color="tab:red", label="best")
    _scale_values(axes, fitness, result._maximize, least=part.curve.min())
    if isinstance(part.parameter, Choice):
        axes.set_xticks(range(len(part.parameter.values)), map(str, part.parameter.values))
    elif getattr(part.parameter, "log", False):
        axes.set_xscale("log")
    axes.set_xlabel(part.name)


def _scale_values(axes: "Axes", values: Any, maximize: bool, least: float = math.inf) -> None:
    """Choose the axis of values: logarithmic if they span it, or without the worst tenth.

    ``least`` is the least value of a curve, which has no logarithm below 0.
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return
    low, high = finite.min(), finite.max()
    if min(low, least) > 0 and high > _WIDE * low:
        axes.set_yscale("log")
        axes.set_ylim(low / 2, high * 2)
        return
    if maximize:
        low = np.quantile(finite, 1 - _SHOWN)
    else:
        high = np.quantile(finite, _SHOWN)
    margin = 0.05 * (high - low) or 1.0
    axes.set_ylim(low - margin, high + margin)
