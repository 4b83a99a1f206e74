"""The figure of a result: progress, importance of parameters, and a slice along each."""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cem.space import Choice, Int

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 4  # plots side by side
_MOST_SLICES = 8
_RESOLUTION = 200  # points of a curve
_WIDE = 100.0  # the least ratio of two values for which the axis is logarithmic
_SHOWN = 0.9  # the share of the values that a linear axis shows, the best ones
_POINTS: dict[str, Any] = {"s": 10, "color": "0.6", "linewidths": 0, "rasterized": True}
_LINE: dict[str, Any] = {"color": "tab:blue", "linewidth": 1.5}


class _Slice(NamedTuple):
    """The evaluations and the model as functions of one parameter.

    Attributes:
        name: The name of the parameter.
        parameter: A ``Float``, ``Int``, ``Choice`` or ``Bool``; None: a component of a vector.
        positions: The values of the parameter in the evaluations, shape (n,); the values of a
            choice are its indices.
        best: The position of the fittest candidate.
        grid: The positions at which the model is drawn, shape (k,).
        curve: The model at these positions, shape (k,). All other parameters are those of the
            fittest candidate.
    """

    name: str
    parameter: Any
    positions: Any
    best: float
    grid: Any
    curve: Any

    @property
    def is_discrete(self) -> bool:
        """Whether the parameter has no values between two neighbouring ones."""
        return isinstance(self.parameter, (Choice, Int))


def draw_result(result: Any) -> "Figure":
    """Return the figure of a ``Result``; see its method ``plot``.

    The progress of the search is at the top. If there is a model, the importance of the
    parameters is on its right. Below are slices along the most important parameters: the model
    as a function of one parameter.
    """
    import matplotlib.figure

    has_model = result.model is not None
    # By the name of a parameter, the most important one first.
    importance = result._ranked_importance() if has_model else {}
    all_slices = [_slice_along(result, name) for name in importance]
    # There is no slice along a permutation.
    slices = [part for part in all_slices if part is not None][:_MOST_SLICES]
    rows = math.ceil(len(slices) / _COLUMNS)
    figure = matplotlib.figure.Figure(figsize=(11, 3.2 + 2.5 * rows), layout="constrained")
    # The top row is higher than the rows of slices.
    grid = figure.add_gridspec(1 + rows, _COLUMNS, height_ratios=[1.3] + rows * [1.0])
    # Without a model the progress takes the full width.
    history_cell = grid[0, :-1] if has_model else grid[0, :]
    _draw_history(figure.add_subplot(history_cell), result)
    if has_model:
        _draw_importance(figure.add_subplot(grid[0, -1]), importance, result.model.r2)
    for number, part in enumerate(slices):
        # Slices fill the rows of the grid from left to right, below the top row.
        row, column = divmod(number, _COLUMNS)
        axes = figure.add_subplot(grid[1 + row, column])
        _draw_slice(axes, part, result)
        if number == 0:  # All slices have the same legend.
            axes.legend(frameon=False)
    return figure


def _slice_along(result: Any, name: str) -> _Slice | None:
    """Return the model and the evaluations as functions of one parameter.

    Args:
        result: A result with a model.
        name: The name of the parameter, or "x[2]" for component 2 of a vector.

    Returns:
        The slice of the model through the fittest candidate. None for a permutation, which has
        several columns.
    """
    evaluations = result._evaluations
    parameter = None
    column: Any  # An index, or a slice of columns for a permutation.
    if result._space is None:  # The parameters are a vector, so they have no names.
        column = int(name.strip("x[]"))
    else:
        parameter = result._space.parameters[name]
        column = result._space.columns[name]
    if not isinstance(column, int):
        return None
    observed = evaluations.candidates[:, column]
    best_index = evaluations.best(result._maximize)
    grid = np.unique(observed)
    if not isinstance(parameter, (Choice, Int)):  # The parameter is continuous.
        grid = np.linspace(grid[0], grid[-1], _RESOLUTION)
    # Each row is the fittest candidate with another number in this column.
    candidates = np.tile(evaluations.candidates[best_index], (len(grid), 1))
    candidates[:, column] = grid
    curve = result.model.predict(candidates)
    if parameter is not None:
        # Candidates contain the logarithms of some parameters, or their numbers of steps.
        # Convert them to values.
        observed = parameter.values_of(observed)
        grid = parameter.values_of(grid)
    return _Slice(name, parameter, observed, observed[best_index], grid, curve)


def _draw_history(axes: "Axes", result: Any) -> None:
    """Draw the best value so far, and the value of every evaluation.

    If the result does not contain its evaluations, draw the best value of every generation
    instead.
    """
    evaluations: Any = np.array(result.history["evaluations"])
    values = np.array(result.history["generation_best"])
    best = np.array(result.history["best_fitness"])
    label = "best of a generation"
    if result._evaluations is not None:
        values = result._evaluations.fitness
        evaluations = np.arange(1, len(values) + 1)
        # Failed evaluations become NaN, which ``fmax`` and ``fmin`` ignore.
        accumulate = np.fmax.accumulate if result._maximize else np.fmin.accumulate
        best = accumulate(np.where(np.isfinite(values), values, math.nan))
        label = "evaluation"
    axes.scatter(evaluations, values, label=label, **_POINTS)
    axes.step(evaluations, best, where="post", label="best so far", **_LINE)
    _scale_values(axes, values, result._maximize)
    axes.set(title="Progress", xlabel="evaluations", ylabel="value")
    axes.legend(frameon=False)


def _draw_importance(axes: "Axes", importance: dict[str, float], r2: float) -> None:
    """Draw a bar for the importance of each parameter, the most important one at the top."""
    names = [*importance][:_MOST_SLICES]
    axes.barh(names, [100 * importance[name] for name in names], color="tab:blue")
    axes.invert_yaxis()
    title = "Importance" if math.isnan(r2) else f"Importance (R² {r2:.2f})"
    axes.set(title=title, xlabel="% of the model's variance")


def _draw_slice(axes: "Axes", part: _Slice, result: Any) -> None:
    """Draw the model, all evaluations and the fittest candidate as functions of one parameter.

    Args:
        axes: The axes.
        part: The slice to draw.
        result: The result, which contains the evaluations.
    """
    fitness = result._evaluations.fitness
    axes.scatter(part.positions, fitness, **_POINTS)
    # A discrete parameter has no curve between its values: draw points.
    style: dict[str, Any] = {"marker": "o", "linestyle": ""} if part.is_discrete else {}
    axes.plot(part.grid, part.curve, label="model", **_LINE, **style)
    best_index = result._evaluations.best(result._maximize)
    axes.plot(part.best, fitness[best_index], "o", color="tab:red", label="best")
    _scale_values(axes, fitness, result._maximize, lowest_curve=part.curve.min())
    parameter = part.parameter
    if isinstance(parameter, Choice):
        axes.set_xticks(range(len(parameter.values)), map(str, parameter.values))
    elif getattr(parameter, "log", False):
        axes.set_xscale("log")
    axes.set_xlabel(part.name)


def _scale_values(
    axes: "Axes", values: Any, maximize: bool, lowest_curve: float = math.inf
) -> None:
    """Set the scale and the limits of the y-axis.

    The axis is logarithmic if all values and the curve are positive, and if the largest value
    is more than 100 times the smallest. Otherwise the axis is linear, and its limits leave out
    the worst tenth of the values.

    Args:
        axes: The axes.
        values: The values on the y-axis. Those that are not finite do not count.
        maximize: Whether greater values are better.
        lowest_curve: The lowest value of a curve on the same axes.
    """
    finite = values[np.isfinite(values)]
    if not len(finite):  # Leave the axis as it is.
        return
    low = finite.min()
    high = finite.max()
    if min(low, lowest_curve) > 0 and high > _WIDE * low:
        axes.set_yscale("log")
        axes.set_ylim(low / 2, high * 2)
        return
    if maximize:
        low = np.quantile(finite, 1 - _SHOWN)
    else:
        high = np.quantile(finite, _SHOWN)
    margin = 0.05 * (high - low) or 1.0  # If all values are equal, the margin is 1.
    axes.set_ylim(low - margin, high + margin)
