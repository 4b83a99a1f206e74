"""The pictures of README and docs, drawn from the result files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from measure.sampling import LABELS, median, speedups

from pages.literature_blocks import NOISES, experiments, searches_with
from pages.result_files import Result, load
from tetris import Rules
from tetris.evaluation.papers import LEARNED_SCORES
from tetris.report.figures import COLORS, new_figure, save_figure

_BLACK, _VERMILION, _BLUE, _PURPLE, _GREEN, _ORANGE = COLORS[:6]
_METHOD_STYLES: Mapping[str, dict[str, Any]] = {
    "compile": {"color": _VERMILION, "linestyle": "--", "marker": "s"},
    "eager": {"color": _ORANGE, "linestyle": "-.", "marker": "^"},
    "normal_": {"color": _GREEN, "linestyle": ":", "marker": "v"},
    "ours": {"color": _BLUE, "linestyle": "-", "marker": "o", "linewidth": 2.4},
    "fill": {"color": _BLACK, "linestyle": "-", "marker": "", "linewidth": 1.0},
}
_CLOCKS = (("latency", "idle device, as the article measures"), ("graph", "in a CUDA graph"))
_NOISE_STYLES: Mapping[str, dict[str, Any]] = {
    "none": {"color": _VERMILION, "linestyle": ":", "marker": "s"},
    "constant": {"color": _GREEN, "linestyle": "--", "marker": "^"},
    "linear": {"color": _BLUE, "linestyle": "-", "marker": "o"},
}
_CELLS = 4  # of a piece: a game that goes on removes four cells a decision


def draw_pictures(folder: Path) -> None:
    """Draw every picture into a folder."""
    draw_sampling(load("h200/sampling"), folder / "sampling.png")
    for board in ("10x10", "10x20"):
        draw_searches(experiments(board), folder / f"noisy_ce_{board}.png")


def draw_sampling(result: Result, picture: Path) -> None:
    """Draw the time of a call against the dimension, and below it how many times as fast ours is."""
    from matplotlib.ticker import LogLocator

    figure, sizes = new_figure(9.0, 7.0), result.data["article"]
    dimensions = [size["dim"] for size in sizes]
    above, below = figure.subplots(2, len(_CLOCKS), sharex=True, sharey="row")
    for times, ratios, (clock, title) in zip(above, below, _CLOCKS, strict=True):
        for name, style in _METHOD_STYLES.items():
            medians, marked = [median(size, clock, name) for size in sizes], {**style, "markersize": 4}
            times.plot(dimensions, medians, label=LABELS[name], **marked)
            if name in ("compile", "eager"):
                ratios.plot(dimensions, speedups(sizes, clock, name), label=f"over {LABELS[name]}", **marked)
        times.set_title(title, fontsize="medium")
        times.set_yscale("log")
        times.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        times.yaxis.set_major_formatter("{x:g}")
        times.yaxis.set_minor_formatter("")
        times.grid(color="0.9")
        ratios.axhline(1.0, color=_BLACK, linewidth=1.0)
        ratios.set_xlabel("dimensions d")
        ratios.grid(color="0.9")
    below[0].set_ylim(0.0, 1.05 * max(max(speedups(sizes, clock, "eager")) for clock, _ in _CLOCKS))
    above[0].set_ylabel("time of a call [us, log scale]")
    below[0].set_ylabel("speed-up of sample_normal [times]")
    below[1].legend(fontsize="small", loc="lower right")
    handles = above[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=5, fontsize="small")
    size = f"{result.data['samples']:,} samples, float32, {result.hardware}"
    figure.suptitle(size, x=0.01, ha="left", fontsize="medium")
    save_figure(figure, picture)


def draw_searches(results: Sequence[Result], picture: Path) -> None:
    """Draw the learning curves of noisy searches: a panel for each feature set, a curve for each schedule."""
    figure = new_figure(4.6 * len(results) + 0.6, 4.4)
    for axes, result in zip(figure.subplots(1, len(results), squeeze=False)[0], results, strict=True):
        plan, searches = result.data["plan"], result.series()
        generations = np.arange(plan["generations"] + 1)
        for noise, style in _NOISE_STYLES.items():
            curves = np.array([search["mean_lines"] for search in searches_with(searches, noise)])
            low, middle, high = np.quantile(curves, (0.25, 0.5, 0.75), axis=0)
            axes.fill_between(generations, low, high, color=style["color"], alpha=0.15, linewidth=0)
            every = max(1, plan["generations"] // 10)
            axes.plot(generations, middle, label=NOISES[noise], markevery=every, markersize=4, **style)
        paper = LEARNED_SCORES.get((plan["features"], plan["board"]))
        if paper is not None:
            _draw_level(axes, paper.middle, f"{paper.source}: {paper}")
        if any(sum(search["mean_games_cut"]) for search in searches):
            width, _ = Rules.parse_board(plan["board"])
            _draw_level(axes, _CELLS / width * plan["limit"], f"cut off after {plan['limit']:,} decisions")
        axes.set_yscale("symlog", linthresh=1.0)
        axes.set_ylim(0.0, 3 * axes.get_ylim()[1])  # room for the text above the highest level
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set(xlim=(0, plan["generations"]), xlabel="generation")
        axes.set_ylabel(f"lines a game of the mean on {plan['board']} (log scale)")
        axes.grid(axis="y", color="0.9")
        title = f"{plan['features']}: median and quartiles of {plan['seeds']} searches"
        axes.set_title(title, loc="left", fontsize="medium")
        axes.legend(loc="lower right", framealpha=0.9)
    save_figure(figure, picture)


def _draw_level(axes: Any, lines: float, text: str) -> None:
    axes.axhline(lines, color="0.3", linewidth=0.8, dashes=(8, 4))
    place = {"xycoords": ("axes fraction", "data"), "xytext": (-4, 3), "textcoords": "offset points"}
    axes.annotate(text, (1.0, lines), ha="right", fontsize="x-small", **place)
