"""Pictures of training with matplotlib: lines per game of one run, stage by stage, or of several runs."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.support.files import write_bytes
from kernels.support.printable import printable
from tetris.report.data import chart_values, distinct_names
from tetris.training.run_folder import RunRecord, load_run

ACROSS = {"generation": "generation", "decisions": "decisions", "seconds": "wall time of training [s]"}
"""The quantities of a learning curve's x axis, with its label."""

# Without dates and versions the same data give the same file.
_DATED = {".png": "Software", ".svg": "Date", ".pdf": "CreationDate"}

PICTURE_SUFFIXES = tuple(_DATED)
"""The suffixes of the picture formats."""

COLORS = ("#000000", "#d55e00", "#0072b2", "#cc79a7", "#009e73", "#e69f00", "#56b4e9")
"""Black, vermilion, blue, purple, green, orange, sky: the colour-blind-safe palette of Okabe and Ito."""

_SIZE = (8.0, 4.5)  # inches
_RUN = [  # the curves of one run
    ("generation_best", "best candidate"),
    ("learned_mean_fitness", "learned mean"),
    ("elite_mean", "mean of the elites"),
]
_DASHES = (":", "-", "--", "-.")


def plot_learning_curve(
    runs: RunRecord | str | os.PathLike[str] | Sequence[RunRecord | str | os.PathLike[str]],
    axes: Any = None,
    across: str = "generation",
) -> Any:
    """Plot the best candidate, the elites and the mean of a run, or the elites of several, by matplotlib.

    Args:
        runs: A run, or several: what `load_run` returned, or folders of runs.
        axes: The axes to plot on; None: those of a new figure of pyplot.
        across: The x axis: ``"generation"``, ``"decisions"`` or ``"seconds"``.

    Returns:
        The axes.

    Raises:
        ImportError: If matplotlib is not installed.
        OSError: If a file of a run cannot be read.
        ValueError: If a folder holds no run, or ``across`` is unknown.
    """
    given = [runs] if isinstance(runs, RunRecord | str | os.PathLike) else list(runs)
    loaded = [run if isinstance(run, RunRecord) else load_run(run) for run in given]
    if across not in ACROSS:
        raise ValueError(f"expected across to be one of {', '.join(ACROSS)}, got {across!r}")
    if not loaded:
        raise ValueError("expected a run at least, got none")
    if axes is None:
        from matplotlib import pyplot

        _, axes = pyplot.subplots(figsize=_SIZE, layout="constrained")
    charted = [chart_values(run, name) for run, name in zip(loaded, distinct_names(loaded), strict=True)]
    one = len(loaded) == 1
    curves = _RUN if one else [("elite_mean", values["name"]) for values in charted]
    for n, (key, label) in enumerate(curves):
        values, text = charted[0 if one else n], printable(label).replace("$", r"\$")  # no formula
        look = {"color": COLORS[(n + 1) % len(COLORS)], "linestyle": _DASHES[n % len(_DASHES)]}
        axes.plot(_numbers(values, across), _numbers(values, key), label=text, **look)
    if one:
        x, low, high = (_numbers(charted[0], key) for key in (across, "elite_threshold", "generation_best"))
        axes.fill_between(x, low, high, label="elites, from worst to best", color=COLORS[3], alpha=0.15)
    axes.xaxis.get_major_locator().set_params(integer=across != "seconds")
    axes.set_yscale("symlog", linthresh=1.0)
    axes.set_ylim(bottom=0.0)
    axes.set(xlabel=ACROSS[across], ylabel="lines per game (in training, log scale)")
    axes.set_title(loaded[0].recipe.title if one else "mean of the elites", loc="left", fontsize="medium")
    axes.grid(axis="y", color="0.9")
    axes.legend(loc="lower right")
    stages = [_stages(values, across) for values in charted]
    if all(each == stages[0] for each in stages):
        for begin in stages[0][1:]:
            axes.axvline(begin, color="0.3", linewidth=0.8)
        above = axes.secondary_xaxis("top")
        boards: dict[float, str] = {}  # by where their stage begins; those without room join the one before
        room, last = 0.08 * (charted[0][across][-1] - charted[0][across][0]), -np.inf
        for begin, stage in zip(stages[0], charted[0]["stages"], strict=True):
            joins = begin - last < room * boards.get(last, "").count("x")
            last = last if joins else begin
            boards[last] = f"{boards[last]}, {stage['board']}" if joins else stage["board"]
        above.set_xticks(list(boards), list(boards.values()), ha="left")
        above.tick_params(length=0)
    return axes


def draw_runs(runs: Sequence[RunRecord], picture: Path) -> None:
    """Draw the learning curve of runs into a PNG, SVG or PDF, by its suffix, atomically; see `new_figure`."""
    figure = new_figure(*_SIZE)
    plot_learning_curve(runs, figure.add_subplot(), first_axis(runs))
    save_figure(figure, picture)


def first_axis(runs: Sequence[RunRecord]) -> str:
    """Return the x axis of a learning curve at first: runs are compared by what they have played."""
    return "generation" if len(runs) == 1 else "decisions"


def _numbers(values: Mapping[str, Any], key: str) -> npt.NDArray[np.float64]:
    """Return a series with a gap where the board changes: scores on two boards are no line."""
    changes = [stage["place"] for stage in values["stages"][1:]]
    return np.insert(np.array(values[key], dtype=np.float64), changes, np.nan)  # None is not a number


def _stages(values: Mapping[str, Any], across: str) -> list[float]:
    """Return where each stage begins, half-way from the generation before."""
    x, places = values[across], [stage["place"] for stage in values["stages"]]
    return [(x[place - 1] + x[place]) / 2 if place else x[0] for place in places]


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of a size in inches; ValueError if matplotlib is not installed."""
    try:
        # No pyplot: it keeps global state and looks for a display.
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError('expected matplotlib, found none: pip install -e ".[plot]"') from error
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def save_figure(figure: Any, picture: Path) -> None:
    """Write a figure in the format of the suffix, atomically."""
    image, suffix = io.BytesIO(), picture.suffix.lower()
    figure.savefig(image, format=suffix[1:], metadata={_DATED[suffix]: None})
    write_bytes(picture, image.getvalue())
