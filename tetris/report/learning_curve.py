"""Pictures of training with matplotlib: lines per game of one run, stage by stage, or of several runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
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
_SERIES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    # Curves differ in dashes and markers as well as in colour.
    ("generation_best", "best candidate", {"color": COLORS[1], "linestyle": ":", "marker": "^"}),
    ("elite_mean", "mean of the elites", {"color": COLORS[4], "linestyle": "--", "marker": "s"}),
    (
        "learned_mean_fitness",
        "learned mean",
        {"color": COLORS[2], "linestyle": "-", "marker": "o", "zorder": 1.9},
    ),
)
_DASHES = ("-", "--", ":", "-.")
_MARKERS = "osv^DP"
_MARKS = 10  # markers on a curve, about
_LEAST_LABEL = 0.07  # of the axis, from one label of a stage to the next


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


def draw_learning_curve(metrics: Sequence[Metrics], picture: Path, title: str) -> bool:
    """Draw the best candidate, the elites and the mean of a run; return whether matplotlib is there to do it.

    The picture is written atomically, as PNG, SVG or PDF by its suffix.
    """
    return _draw(picture, lambda axes: _plot_run(axes, metrics, title, "generation"))


def draw_runs(runs: Sequence[RunRecord], picture: Path, across: str) -> bool:
    """Draw the learning curve of one or several runs; see `draw_learning_curve`."""
    return _draw(picture, lambda axes: _plot(axes, runs, across))


def _draw(picture: Path, plot: Callable[[Any], None]) -> bool:
    figure = new_figure(*_SIZE)
    if figure is None:
        return False
    plot(figure.add_subplot())
    save_figure(figure, picture)
    return True


def _plot(axes: Any, runs: Sequence[RunRecord], across: str) -> None:
    if len(runs) == 1:
        return _plot_run(axes, runs[0].metrics, runs[0].recipe.title, across)
    stages = []
    for number, (name, run) in enumerate(zip(distinct_names(runs), runs, strict=True)):
        x, every = _across(run.metrics, across), max(1, len(run.metrics) // _MARKS)
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
        stages.append(_stages(run.metrics, x))
    common = stages[0] if all(each == stages[0] for each in stages) else []
    return _finish(axes, "mean of the elites", across, common)


def _plot_run(axes: Any, metrics: Sequence[Metrics], title: str, across: str) -> None:
    x, every = _across(metrics, across), max(1, len(metrics) // _MARKS)
    for name, label, style in _SERIES:
        values = _values(metrics, name)
        axes.plot(x, values, label=label, linewidth=1.4, markersize=4, markevery=every, **style)
    if any(record.get("elite_threshold") is not None for record in metrics):
        edges = (_values(metrics, name) for name in ("elite_threshold", "generation_best"))
        style = {"color": COLORS[4], "alpha": 0.15, "linewidth": 0}
        axes.fill_between(x, *edges, label="elites, from worst to best", **style)
    _finish(axes, title, across, _stages(metrics, x))
    if across == "generation":
        axes.set_xlim(0.5, max(len(metrics), 2) + 0.5)


def _across(metrics: Sequence[Metrics], across: str) -> list[float]:
    if across == "decisions":
        return list(accumulate(record["decisions"] for record in metrics))
    return [record["elapsed_s" if across == "seconds" else across] for record in metrics]


def _values(metrics: Sequence[Metrics], name: str) -> list[float]:
    values = (record.get(name) for record in metrics)
    return [float("nan") if value is None else value for value in values]


def _finish(axes: Any, title: str, across: str, stages: Sequence[tuple[str, float, float]]) -> None:
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
    for boards, begin, end in _labels(stages):
        axes.annotate(
            boards,
            ((begin + end) / 2, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            fontsize="small",
        )
    axes.legend(loc="lower right", framealpha=0.9)


def _stages(metrics: Sequence[Metrics], x: Sequence[float]) -> list[tuple[str, float, float]]:
    """Return the stages: board, left and right edge, half-way to the neighbours."""
    places = {record["generation"]: place for place, record in enumerate(metrics)}
    firsts = [(board, places[first]) for board, first, _ in stages_of(metrics)]
    begins = [(x[place - 1] + x[place]) / 2 if place else x[0] for _, place in firsts]
    return [(board, *ends) for (board, _), ends in zip(firsts, pairwise([*begins, x[-1]]), strict=True)]


def _labels(stages: Sequence[tuple[str, float, float]]) -> list[tuple[str, float, float]]:
    """Return the labels above the stages; narrow stages share one."""
    least = _LEAST_LABEL * (stages[-1][2] - stages[0][1]) if stages else 0.0
    labels: list[tuple[str, float, float]] = []
    for board, begin, end in stages:
        boards = labels[-1][0].count(",") + 1 if labels else 0
        if labels and (begin + end) / 2 - sum(labels[-1][1:]) / 2 < least * (boards + 1) / 2:
            together, first, _ = labels.pop()
            labels.append((f"{together}, {board}", first, end))
        else:
            labels.append((board, begin, end))
    return labels
