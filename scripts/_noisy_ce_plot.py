"""The picture of the classical experiment: how good the mean of a search is after each generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _noisy_ce import NOISES, searches_with

from tetris import Rules
from tetris.evaluation.papers import LEARNED_SCORES
from tetris.report.figures import new_figure, save_figure

LABELS: Mapping[str, str] = dict(zip(NOISES, ("no noise", "constant 4", "max(5 - t / 10, 0)"), strict=True))
"""What the noise schedules are called in pictures and tables."""

# Told apart by dashes and shade, not by colour.
_STYLES: Mapping[str, dict[str, Any]] = {
    NOISES[0]: {"color": "0.6", "linestyle": ":"},
    NOISES[1]: {"color": "0.4", "linestyle": "--"},
    NOISES[2]: {"color": "0.0", "linestyle": "-"},
}

_CELLS = 4  # of a piece: a game that goes on removes so many cells a decision


def quartiles(experiment: dict[str, Any], noise: str) -> np.ndarray[Any, Any]:
    """Return lower quartile, median and upper quartile over the seeds, shape (3, generations + 1)."""
    curves = np.array([search["mean_lines"] for search in searches_with(experiment, noise)])
    return np.quantile(curves, (0.25, 0.5, 0.75), axis=0)


def draw_noisy_ce(experiments: Sequence[dict[str, Any]], picture: Path) -> bool:
    """Draw learning curves: a panel for each experiment, a curve for each noise schedule.

    Args:
        experiments: What `_noisy_ce.run_experiment` returned, at least one.
        picture: The PNG to write, whole or not at all.

    Returns:
        False where matplotlib is not installed.

    Raises:
        OSError: If the file cannot be written.
    """
    figure = new_figure(4.6 * len(experiments) + 0.6, 4.4)
    if figure is None:
        return False
    panels = figure.subplots(1, len(experiments), squeeze=False)[0]
    for axes, experiment in zip(panels, experiments, strict=True):
        _draw_panel(axes, experiment)
    save_figure(figure, picture)
    return True


def _draw_panel(axes: Any, experiment: dict[str, Any]) -> None:
    plan = experiment["plan"]
    generations = np.arange(plan["generations"] + 1)
    for noise in NOISES:
        low, median, high = quartiles(experiment, noise)
        style = _STYLES[noise]
        axes.fill_between(generations, low, high, color=style["color"], alpha=0.18, linewidth=0)
        axes.plot(generations, median, label=LABELS[noise], linewidth=1.6, **style)
    paper = LEARNED_SCORES.get((plan["features"], plan["board"]))
    if paper is not None:
        _mark_level(axes, paper.middle, f"{paper.source}: {paper}")
    if any(sum(search["mean_games_cut"]) for search in experiment["searches"]):
        width, _ = Rules.parse_board(plan["board"])
        _mark_level(axes, _CELLS / width * plan["limit"], f"cut off after {plan['limit']:,} decisions")
    axes.set_yscale("symlog", linthresh=1.0)
    axes.set_ylim(0.0, 3 * axes.get_ylim()[1])  # room for what is written over the highest level
    axes.set_xlim(0, plan["generations"])
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("generation")
    axes.set_ylabel(f"lines per game of the mean, {plan['board']} (log scale)")
    axes.grid(axis="y", color="0.9")
    title = f"{plan['features']}: median and quartiles of {plan['seeds']} searches"
    axes.set_title(title, loc="left", fontsize="medium")
    axes.legend(loc="lower right", framealpha=0.9)


def _mark_level(axes: Any, lines: float, text: str) -> None:
    axes.axhline(lines, color="0.3", linewidth=0.8, dashes=(8, 4))
    axes.annotate(
        text,
        (1.0, lines),
        xycoords=("axes fraction", "data"),
        xytext=(-4, 3),
        textcoords="offset points",
        ha="right",
        fontsize="x-small",
    )
