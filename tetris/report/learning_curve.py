"""Pictures of training with matplotlib: lines per game of one run, stage by stage, or of several runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from kernels.support.printable import printable
from tetris.report.data import distinct_names
from tetris.report.figures import ACROSS, COLORS, new_figure, save_figure
from tetris.training.run_record import Metrics, RunRecord, load_run, stages_of

HINT = "no learning_curve.png without matplotlib: pip install matplotlib draws one next time"

_SIZE = (8.0, 4.5)  # inches
_Y_TITLE = "lines per game (in training, log scale)"
# Curves differ in dashes and markers as well as in colour.
_SERIES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("generation_best", "best candidate", {"color": COLORS[1], "linestyle": ":", "marker": "^"}),
    ("elite_mean", "mean of the elites", {"color": COLORS[4], "linestyle": "--", "marker": "s"}),
    ("learned_mean_fitness", "learned mean", {"color": COLORS[2], "marker": "o", "zorder": 1.9}),
)
_DASHES = ("-", "--", ":", "-.")
_MARKERS = "osv^DP"
_MARKS = 10  # markers on a curve, about
_LEAST_LABEL = 0.07  # of the axis: what the board of a stage takes

Stages = list[tuple[str, float, float]]
"""Board, left and right edge of each."""


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
    _plot(axes, loaded, across)
    return axes


def draw_runs(runs: Sequence[RunRecord], picture: Path, across: str = "generation") -> bool:
    """Draw the learning curve of runs into a file, atomically; return whether matplotlib is there to do it.

    It is a PNG, SVG or PDF by its suffix.
    """
    figure = new_figure(*_SIZE)
    if figure is None:
        return False
    _plot(figure.add_subplot(), runs, across)
    save_figure(figure, picture)
    return True


def _plot(axes: Any, runs: Sequence[RunRecord], across: str) -> None:
    xs = [_across(run.metrics, across) for run in runs]
    stages = [_stages(run.metrics, x) for run, x in zip(runs, xs, strict=True)]
    if len(runs) == 1:
        title, metrics, x = runs[0].recipe.title, runs[0].metrics, xs[0]
        every = max(1, len(x) // _MARKS)
        for name, label, style in _SERIES:
            values = _values(metrics, name)
            axes.plot(x, values, label=label, linewidth=1.4, markersize=4, markevery=every, **style)
        if any(record.get("elite_threshold") is not None for record in metrics):
            edges = (_values(metrics, name) for name in ("elite_threshold", "generation_best"))
            shade = {"color": COLORS[4], "alpha": 0.15, "linewidth": 0}
            axes.fill_between(x, *edges, label="elites, from worst to best", **shade)
    else:
        title = "mean of the elites"
        for number, (name, run, x) in enumerate(zip(distinct_names(runs), runs, xs, strict=True)):
            every = max(1, len(x) // _MARKS)
            axes.plot(
                x,
                _values(run.metrics, "elite_mean"),
                label=printable(name).replace("$", r"\$"),  # no formula
                linewidth=1.6,
                color=COLORS[number % len(COLORS)],
                linestyle=_DASHES[number % len(_DASHES)],
                marker=_MARKERS[number % len(_MARKERS)],
                markevery=(number * every // len(runs), every),  # not one above the other
                markersize=4,
            )
    _finish(axes, title, across, stages[0] if all(each == stages[0] for each in stages) else [])
    if len(runs) == 1 and across == "generation":
        axes.set_xlim(0.5, max(len(xs[0]), 2) + 0.5)


def _across(metrics: Sequence[Metrics], across: str) -> list[float]:
    if across == "decisions":
        return list(accumulate(record["decisions"] for record in metrics))
    return [record["elapsed_s" if across == "seconds" else across] for record in metrics]


def _values(metrics: Sequence[Metrics], name: str) -> list[float]:
    values = (record.get(name) for record in metrics)
    return [float("nan") if value is None else value for value in values]


def _finish(axes: Any, title: str, across: str, stages: Stages) -> None:
    from matplotlib.ticker import EngFormatter

    axes.set_yscale("symlog", linthresh=1.0)
    axes.yaxis.set_major_formatter(EngFormatter(sep=" "))
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel(ACROSS[across])
    axes.set_ylabel(_Y_TITLE)
    if across == "decisions":
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if across == "generation":
        axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(axis="y", color="0.9")
    axes.set_axisbelow(True)
    axes.set_title(title, loc="left", fontsize="medium", pad=18)
    for _, begin, _ in stages[1:]:
        axes.axvline(begin, color="0.3", linewidth=0.8)
    above = {"xycoords": ("data", "axes fraction"), "xytext": (0, 3), "textcoords": "offset points"}
    for board, begin, end in stages:
        if end - begin >= _LEAST_LABEL * (stages[-1][2] - stages[0][1]):
            axes.annotate(board, ((begin + end) / 2, 1.0), ha="center", fontsize="small", **above)
    axes.legend(loc="lower right", framealpha=0.9)


def _stages(metrics: Sequence[Metrics], x: Sequence[float]) -> Stages:
    """Return the stages, their edges half-way to the neighbours."""
    places = {record["generation"]: place for place, record in enumerate(metrics)}
    firsts = [(board, places[first]) for board, first, _ in stages_of(metrics)]
    begins = [(x[place - 1] + x[place]) / 2 if place else x[0] for _, place in firsts]
    return [(board, *ends) for (board, _), ends in zip(firsts, pairwise([*begins, x[-1]]), strict=True)]
