"""The pictures of README and docs, drawn from the result files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from measure.sampling_methods import LABELS, median, speedups

from pages.literature_blocks import NOISES, experiments, searches_with
from pages.result_files import Result, load, load_all
from pages.score_blocks import PROCESSOR, median_run, median_time, reached, target_label, targets
from tetris import LinearController, Rules
from tetris.evaluation import DEFAULT_SEED
from tetris.evaluation.papers import LEARNED_SCORES
from tetris.explanation import decisions
from tetris.piece_stream import PieceStream
from tetris.report.figures import COLORS, new_figure, save_figure
from tetris.report.learning_curve import draw_learning_curve
from tetris.view.game_view import Scene, scenes
from tetris.view.movies import write_gif

AGENT_RULES = Rules(10, 10)
AGENT_PIECES, AGENT_SPEED = 120, 5.0
"""How many pieces the agent of README's picture places, and how many a second."""

_BLACK, _VERMILION, _BLUE, _PURPLE, _GREEN, _ORANGE = COLORS[:6]
_METHOD_STYLES: Mapping[str, dict[str, Any]] = {
    "compile": {"color": _VERMILION, "linestyle": "--", "marker": "s"},
    "eager": {"color": _ORANGE, "linestyle": "-.", "marker": "^"},
    "normal_": {"color": _GREEN, "linestyle": ":", "marker": "v"},
    "ours": {"color": _BLUE, "linestyle": "-", "marker": "o", "linewidth": 2.4},
    "fill": {"color": _BLACK, "linestyle": "-", "marker": "", "linewidth": 1.0},
}
_CLOCKS = (("latency", "idle device, as the article measures"), ("graph", "in a CUDA graph"))
_MACHINE_STYLES = ({"color": _VERMILION, "marker": "s"}, {"color": _BLUE, "marker": "o"})
_APART = 0.2  # of a row, between two machines
_NOISE_STYLES: Mapping[str, dict[str, Any]] = {
    "none": {"color": _VERMILION, "linestyle": ":", "marker": "s"},
    "constant": {"color": _GREEN, "linestyle": "--", "marker": "^"},
    "linear": {"color": _BLUE, "linestyle": "-", "marker": "o"},
}
_CELLS = 4  # of a piece: a game that goes on removes so many cells a decision


def draw_pictures(folder: Path) -> None:
    """Draw every picture into a folder."""
    result = load(f"{PROCESSOR}/training")
    run = median_run(result)
    write_gif(folder / "agent.gif", agent_scenes(run), "learned", AGENT_SPEED)
    metrics = result.series(f"-seed{run['seed']}")
    draw_learning_curve(metrics, folder / "learning_curve.png", f"preset quick, seed {run['seed']}")
    record = load("h200/record_training")
    draw_learning_curve(record.series(), folder / "record_learning_curve.png", "preset record, seed 1")
    draw_sampling(load("h200/sampling"), folder / "sampling.png")
    draw_targets(load_all("time_to_target"), folder / "time_to_target.png")
    for board in ("10x10", "10x20"):
        draw_searches(experiments(board), folder / f"noisy_ce_{board}.png")


def agent_scenes(run: Mapping[str, Any]) -> Iterator[Scene]:
    """Yield what is seen of the controller of a training run, at play from an empty board."""
    controller = LinearController(run["config"]["features"], tuple(run["weights"]), AGENT_RULES)
    pieces = PieceStream(AGENT_RULES, DEFAULT_SEED, 0)
    return scenes(AGENT_RULES, islice(decisions(controller, AGENT_RULES, pieces), AGENT_PIECES), pieces)


def draw_sampling(result: Result, picture: Path) -> None:
    """Draw the time of a call against the dimension, and below it how many times as fast ours is."""
    from matplotlib.ticker import LogLocator

    figure, sizes = new_figure(9.0, 7.0), result.data["article"]
    dimensions = [size["dim"] for size in sizes]
    above, below = figure.subplots(2, len(_CLOCKS), sharex=True, sharey="row")
    for axes, (clock, title) in zip(above, _CLOCKS, strict=True):
        for name, style in _METHOD_STYLES.items():
            times = [median(size, clock, name) for size in sizes]
            axes.plot(dimensions, times, label=LABELS[name], markersize=4, **style)
        axes.set_title(title, fontsize="medium")
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
        axes.grid(color="0.9")
    for axes, (clock, _) in zip(below, _CLOCKS, strict=True):
        for name in ("compile", "eager"):
            ratios = speedups(sizes, clock, name)
            axes.plot(dimensions, ratios, label=f"over {LABELS[name]}", markersize=4, **_METHOD_STYLES[name])
        axes.axhline(1.0, color=_BLACK, linewidth=1.0)
        axes.set_xlabel("dimensions d")
        axes.grid(color="0.9")
    below[0].set_ylim(0.0, 1.05 * max(max(speedups(sizes, clock, "eager")) for clock, _ in _CLOCKS))
    above[0].set_ylabel("time of a call [us, log scale]")
    below[0].set_ylabel("speed-up of sample_normal [times]")
    below[1].legend(fontsize="small", loc="lower right")
    figure.legend(
        *above[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize="small"
    )
    title = f"{result.data['samples']:,} samples, float32, {result.hardware}"
    figure.suptitle(title, x=0.01, ha="left", fontsize="medium")
    save_figure(figure, picture)


def draw_targets(results: Sequence[Result], picture: Path) -> None:
    """Draw the time to every target: a mark for the median, a line from the fastest to the slowest seed."""
    rows = targets(results)
    figure = new_figure(8.0, 1.2 + 0.7 * len(rows))
    axes = figure.add_subplot()
    for number, (result, style) in enumerate(zip(results, _MACHINE_STYLES, strict=True)):
        offset = _APART * (number - (len(results) - 1) / 2)
        for row, target in enumerate(rows):
            label = result.hardware if row == 0 else None
            _draw_target(axes, result, target["name"], row + offset, label, style)
    axes.set_xlim(left=0.0)
    axes.set_xlabel("wall time from the start of the process [s]")
    axes.set_yticks(range(len(rows)), [target_label(target) for target in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_ylabel("target, lines a game")
    axes.grid(axis="x", color="0.9")
    axes.set_title("median, fastest and slowest seed", loc="left", fontsize="medium")
    figure.legend(loc="outside lower center", ncols=2)
    save_figure(figure, picture)


def _draw_target(
    axes: Any, result: Result, target: str, y: float, label: str | None, style: Mapping[str, Any]
) -> None:
    """Draw one machine's times to a target; an arrow where some seeds missed it, nothing where most did."""
    value, found = median_time(result, target), [each["seconds"] for each in reached(result, target)]
    if value is None:
        return
    missed = len(found) < len(result.data["runs"])
    slowest = max(run["total_seconds"] for run in result.data["runs"]) if missed else found[-1]
    axes.plot([found[0], slowest], [y, y], color=style["color"], linewidth=1.6)
    if missed:
        axes.plot([slowest], [y], marker=">", color=style["color"], linestyle="")
    axes.plot([value], [y], markersize=8, linestyle="", label=label, zorder=3, **style)
    up = y < round(y)
    axes.annotate(
        f"{value:.3g} s",
        (value, y),
        xytext=(0, 7 if up else -7),
        textcoords="offset points",
        ha="center",
        va="bottom" if up else "top",
        fontsize="small",
    )


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
        axes.set_xlim(0, plan["generations"])
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel("generation")
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
