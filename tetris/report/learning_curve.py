"""Pictures of training with matplotlib: lines per game of one run or of several."""

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.support.files import StrPath, write_bytes
from kernels.support.printable import printable
from tetris.report.data import chart_values, with_distinct_names
from tetris.training.run_folder import RunRecord, load_run

ACROSS = {
    "generation": "generation",
    "decisions": "decisions",
    "seconds": "wall time of training [s]",
}
"""The quantities of a learning curve's x axis, with their labels."""

# Each format has a metadata entry with a date or a version. Without it, the same data give the
# same file.
_DATED = {".png": "Software", ".svg": "Date", ".pdf": "CreationDate"}

PICTURE_SUFFIXES = tuple(_DATED)
"""The suffixes of the picture formats."""

COLORS = ("#000000", "#d55e00", "#0072b2", "#cc79a7", "#009e73", "#e69f00", "#56b4e9")
"""Black and the colours of the colour-blind-safe palette of Okabe and Ito."""

_SIZE = (8.0, 4.5)  # inches
_RUN = [  # the curves of one run
    ("generation_best", "best candidate"),
    ("learned_mean_fitness", "learned mean"),
    ("elite_mean", "mean of the elites"),
]
_DASHES = (":", "-", "--", "-.")


def plot_learning_curve(
    runs: RunRecord | StrPath | Sequence[RunRecord | StrPath],
    axes: Any = None,
    across: str = "generation",
) -> Any:
    """Plot the lines per game of one training run, or of several for comparison.

    For one run the plot shows the best candidate, the elites and the learned mean of every
    generation. For several runs it shows the mean of the elites of each run.

    Args:
        runs: One run or several, as results of `load_run` or as folders.
        axes: The axes to plot on; None: the axes of a new pyplot figure.
        across: The x axis: ``"generation"``, ``"decisions"`` or ``"seconds"``.

    Returns:
        The axes.

    Raises:
        ImportError: If matplotlib is not installed.
        OSError: If a file of a run cannot be read.
        ValueError: If a folder holds no run, or ``across`` is unknown.
    """
    if isinstance(runs, RunRecord | str | os.PathLike):  # A single run.
        runs = [runs]
    records = [run if isinstance(run, RunRecord) else load_run(run) for run in runs]
    if across not in ACROSS:
        raise ValueError(f"expected across to be one of {', '.join(ACROSS)}, got {across!r}")
    if not records:
        raise ValueError("expected at least one run, got none")
    if axes is None:
        from matplotlib import pyplot

        _, axes = pyplot.subplots(figsize=_SIZE, layout="constrained")
    charts = list(map(chart_values, with_distinct_names(records)))
    if len(charts) == 1:
        title = records[0].recipe.title
        _plot_run(axes, charts[0], across)
    else:
        title = "mean of the elites"
        for number, chart in enumerate(charts):
            _plot_series(axes, chart, across, "elite_mean", chart["name"], number)
    axes.set_title(title, loc="left", fontsize="medium")
    _set_up_axes(axes, across)
    # A run trains in stages, on larger and larger boards. Mark the stages only if they begin at
    # the same positions in all runs.
    all_starts = [_stage_starts(chart, across) for chart in charts]
    have_same_stages = all_starts.count(all_starts[0]) == len(charts)
    if have_same_stages:
        _mark_stages(axes, charts[0], across)
    return axes


def _set_up_axes(axes: Any, across: str) -> None:
    """Set the scales, the labels, the grid and the legend of a plot."""
    # Generations and decisions have ticks at integers only.
    has_integer_ticks = across != "seconds"
    axes.xaxis.get_major_locator().set_params(integer=has_integer_ticks)
    # A logarithmic scale that is linear below 1, so that it can show 0.
    axes.set_yscale("symlog", linthresh=1.0)
    axes.set_ylim(bottom=0.0)
    axes.set(xlabel=ACROSS[across], ylabel="lines per game (in training, log scale)")
    axes.grid(axis="y", color="0.9")
    axes.legend(loc="lower right")


def _plot_run(axes: Any, chart: Mapping[str, Any], across: str) -> None:
    """Plot the curves of a single run, and a band from the worst to the best elite."""
    for number, (key, label) in enumerate(_RUN):
        _plot_series(axes, chart, across, key, label, number)
    x = _numbers(chart, across)
    low = _numbers(chart, "elite_threshold")
    high = _numbers(chart, "generation_best")
    label = "elites, from worst to best"
    axes.fill_between(x, low, high, label=label, color=COLORS[3], alpha=0.15)


def _plot_series(
    axes: Any, chart: Mapping[str, Any], across: str, key: str, label: str, number: int
) -> None:
    """Plot one series of a run, such as ``elite_mean``, over the quantity of the x axis.

    Args:
        axes: The Matplotlib axes.
        chart: The series of the run by name, from `chart_values`.
        across: The name of the series on the x axis.
        key: The name of the series on the y axis.
        label: The text of the legend.
        number: The index of the line, which chooses its colour and its dashes.
    """
    # Matplotlib would read text between two dollars as a formula.
    legend_text = printable(label).replace("$", r"\$")
    axes.plot(
        _numbers(chart, across),
        _numbers(chart, key),
        label=legend_text,
        color=COLORS[(number + 1) % len(COLORS)],
        linestyle=_DASHES[number % len(_DASHES)],
    )


def _mark_stages(axes: Any, chart: Mapping[str, Any], across: str) -> None:
    """Draw a vertical line where each stage of the training begins, and label the stages.

    A stage is a part of the training on one board. Its label, above the axes, is the size of
    the board, such as "10x20". If the next stage begins before the end of the label's text, the
    two stages share the label, such as "10x8, 10x10".

    Args:
        axes: The Matplotlib axes.
        chart: A dictionary from `chart_values`, which contains the stages of a run and series.
        across: The key of the series on the x axis.
    """
    starts = _stage_starts(chart, across)  # Positions on the x axis.
    for start in starts[1:]:
        axes.axvline(start, color="0.3", linewidth=0.8)
    x = chart[across]
    width_per_board = 0.08 * (x[-1] - x[0])  # About the width of the text "10x20, ".
    boards = [stage["board"] for stage in chart["stages"]]
    labels = _group_boards(starts, boards, width_per_board)
    top = axes.secondary_xaxis("top")
    texts = [", ".join(boards_of_label) for boards_of_label in labels.values()]
    top.set_xticks(list(labels), texts, ha="left")
    top.tick_params(length=0)


def _group_boards(
    starts: Sequence[float], boards: Sequence[str], width_per_board: float
) -> dict[float, list[str]]:
    """Return the boards in each label of stages, by the position of the label's left end.

    A board gets a new label if it starts after the end of the last label. Otherwise it is added
    to the last label.
    """
    labels: dict[float, list[str]] = {starts[0]: []}
    label_start = starts[0]
    for start, board in zip(starts, boards, strict=True):
        label_width = width_per_board * len(labels[label_start])
        if start - label_start >= label_width:
            label_start = start
        labels.setdefault(label_start, []).append(board)
    return labels


def draw_runs(runs: Sequence[RunRecord], picture: Path) -> None:
    """Draw the learning curve of runs into a file, atomically, in the format of its suffix."""
    figure = new_figure(*_SIZE)
    plot_learning_curve(runs, figure.add_subplot(), first_axis(runs))
    save_figure(figure, picture)


def first_axis(runs: Sequence[RunRecord]) -> str:
    """Return the x axis that a learning curve shows by default.

    Several runs are compared by decisions, because their generations need not be alike.
    """
    return "generation" if len(runs) == 1 else "decisions"


def _numbers(values: Mapping[str, Any], key: str) -> npt.NDArray[np.float64]:
    """Return a series of a chart's data, with a NaN inserted where the board changes.

    The NaN leaves a gap in the line there.
    """
    changes = [stage["place"] for stage in values["stages"][1:]]
    series = np.array(values[key], dtype=np.float64)  # None becomes NaN.
    return np.insert(series, changes, np.nan)


def _stage_starts(values: Mapping[str, Any], across: str) -> list[float]:
    """Return where each stage begins on the x axis: half-way between two generations."""
    x = values[across]
    places = [stage["place"] for stage in values["stages"]]
    return [(x[place - 1] + x[place]) / 2 if place else x[0] for place in places]


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of a size in inches.

    Raises:
        ValueError: If Matplotlib is not installed.
    """
    try:
        # pyplot is not used, because it has global state and looks for a display.
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError('expected matplotlib, found none: pip install -e ".[plot]"') from error
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def save_figure(figure: Any, picture: Path) -> None:
    """Write a figure in the format that the suffix of the path stands for, atomically."""
    image = io.BytesIO()
    suffix = picture.suffix.lower()
    figure.savefig(image, format=suffix[1:], metadata={_DATED[suffix]: None})
    write_bytes(picture, image.getvalue())
