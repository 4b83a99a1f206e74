"""A picture of a result: the progress, the importance of parameters, a slice along each."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from cem.search.response import ResponseSurface
from cem.search.result import Result, name_shares
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


def draw_result(result: Result[Any]) -> "Figure":
    """Return the figure of a result; see ``Result.plot``."""
    import matplotlib.figure

    names = [] if result.importance is None else [*name_shares(result.importance)]
    slices = [name for name in names if _column_of(result, name) is not None][:_MOST_SLICES]
    rows = math.ceil(len(slices) / _COLUMNS)
    figure = matplotlib.figure.Figure(figsize=(11, 3.2 + 2.5 * rows), layout="constrained")
    grid = figure.add_gridspec(1 + rows, _COLUMNS, height_ratios=[1.3] + rows * [1.0])
    history = figure.add_subplot(grid[0, :3] if names else grid[0, :])
    _draw_history(history, result)
    if names:
        _draw_importance(figure.add_subplot(grid[0, 3]), result)
    for number, name in enumerate(slices):
        axes = figure.add_subplot(grid[1 + number // _COLUMNS, number % _COLUMNS])
        _draw_slice(axes, result, name)
        if number % _COLUMNS == 0:
            axes.set_ylabel("value")
        if number == 0:
            axes.legend(frameon=False)
    return figure


def _draw_history(axes: "Axes", result: Result[Any]) -> None:
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


def _draw_importance(axes: "Axes", result: Result[Any]) -> None:
    """Draw the importance of the parameters, the greatest first."""
    shares = name_shares(result.importance)
    names = [*shares][:_MOST_SLICES]
    axes.barh(names, [100 * shares[name] for name in names], color="tab:blue")
    axes.invert_yaxis()
    r2 = result.model.r2 if result.model is not None else math.nan
    title = "Importance" if math.isnan(r2) else f"Importance (R² {r2:.2f})"
    axes.set(title=title, xlabel="% of the model's variance")


def _draw_slice(axes: "Axes", result: Result[Any], name: str) -> None:
    """Draw the values along a parameter, and the model through the best point."""
    evaluations = result._evaluations
    model = result.model
    column = _column_of(result, name)
    assert evaluations is not None, "there is no model without them"
    assert model is not None
    assert column is not None
    parameter = None if result._space is None else result._space.parameters[name]
    numbers = evaluations.candidates[:, column]
    axes.scatter(_values_of(parameter, numbers), evaluations.fitness, **_POINTS)
    is_discrete = isinstance(parameter, (Choice, Int))
    grid = np.unique(numbers)
    if not is_discrete:
        grid = np.linspace(grid[0], grid[-1], _RESOLUTION)
    curve = _predict_along(model, result, column, grid)
    style: dict[str, Any] = {"marker": "o", "linestyle": ""} if is_discrete else {}
    axes.plot(_values_of(parameter, grid), curve, label="model", **_LINE, **style)
    best = evaluations.best(result._maximize)
    best_number = _values_of(parameter, numbers[best : best + 1])
    axes.plot(best_number, evaluations.fitness[best], "o", color="tab:red", label="best")
    _scale_values(axes, evaluations.fitness, result._maximize, least=curve.min())
    if isinstance(parameter, Choice):
        axes.set_xticks(range(len(parameter.values)), map(str, parameter.values))
    elif getattr(parameter, "log", False):
        axes.set_xscale("log")
    axes.set_xlabel(name)


def _predict_along(model: ResponseSurface, result: Result[Any], column: int, grid: Any) -> Any:
    """Return the model at the best point, but with the numbers of a grid in one column."""
    evaluations = result._evaluations
    assert evaluations is not None
    best = evaluations.candidates[evaluations.best(result._maximize)]
    candidates = np.tile(best, (len(grid), 1))
    candidates[:, column] = grid
    return model.predict(candidates)


def _column_of(result: Result[Any], name: str) -> int | None:
    """Return the column of a parameter; None for a permutation, which has several."""
    if result._space is None:
        return int(name[2:-1])  # of x[3]
    column = result._space.columns[name]
    return column if isinstance(column, int) else None


def _values_of(parameter: Any, numbers: Any) -> Any:
    """Return the numbers of a column as values of its parameter; of a choice its index."""
    if parameter is None or isinstance(parameter, Choice):
        return numbers
    return parameter.values_of(numbers)


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
