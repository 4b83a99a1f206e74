"""The pictures of docs/what_kills.md: pieces, runs and stacks before the end of a game."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pages.kills_blocks import measured
from pages.result_files import Result, load_all
from tetris.report.figures import COLORS, new_figure, save_figure

_BLACK, _VERMILION, _BLUE, _PURPLE, _GREEN, _ORANGE, _SKY = COLORS
_STYLES: Mapping[tuple[str, str], dict[str, Any]] = {
    ("10x10", "dt20"): {"color": _VERMILION, "linestyle": "--"},
    ("10x10", "best"): {"color": _ORANGE, "linestyle": "--"},
    ("10x20", "dt20"): {"color": _BLUE, "linestyle": "-"},
    ("10x20", "best"): {"color": _GREEN, "linestyle": "-"},
}
_AVERAGED = 5  # neighbouring pieces that make a point


def draw_kills_pictures(folder: Path) -> None:
    """Draw every picture of the page into a folder."""
    for result in load_all("kills"):
        draw_last_pieces(result, folder / "kills_pieces.png")
        draw_last_stacks(result, folder / "kills_stacks.png")
        draw_runs(result, folder / "kills_runs.png")


def draw_last_pieces(result: Result, picture: Path) -> None:
    """Draw the share of S and Z against the pieces before the end, and how many more than usual they are."""
    figure = new_figure(10.0, 3.9)
    shares, excess = figure.subplots(1, 2)
    for (board, name), style in _STYLES.items():
        each = measured(result, board, name)
        at, error = (np.array(each["at"][part]) for part in ("mean", "error"))
        back = np.arange(1, len(at) + 1)
        # The last piece decides and stands alone, those before it in groups.
        groups = np.split(np.arange(1, len(at)), range(_AVERAGED, len(at) - 1, _AVERAGED))
        places = [1.0, *(back[group].mean() for group in groups)]
        means = [at[0], *(at[group].mean() for group in groups)]
        shares.plot(places, means, label=f"{name} on {board}", **style)
        summed, error = (np.array(each["excess"][part]) for part in ("mean", "error"))
        excess.plot(back, summed, **style)
        excess.fill_between(
            back, summed - 2 * error, summed + 2 * error, color=style["color"], alpha=0.2, linewidth=0
        )
    shares.axhline(2 / 7, color=_BLACK, linewidth=1.0)
    shares.annotate("usual: 2/7", (2, 2 / 7), xytext=(0, -11), textcoords="offset points", fontsize="small")
    shares.set(xlabel="pieces before the end, 1 is the last one", ylabel="share of S and Z")
    excess.set(xlabel="last pieces of a game", ylabel="S and Z among them, more than usual")
    excess.axhline(0.0, color=_BLACK, linewidth=1.0)
    for axes in (shares, excess):
        axes.set_xlim(0, 160)
        axes.grid(color="0.9")
    figure.legend(*shares.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize="small")
    save_figure(figure, picture)


def draw_last_stacks(result: Result, picture: Path) -> None:
    """Draw the highest cell and the holes against the pieces before the end."""
    figure = new_figure(10.0, 3.9)
    heights, holes = figure.subplots(1, 2)
    before: Sequence[int] = result.data["before"]
    for (board, name), style in _STYLES.items():
        each = measured(result, board, name)
        for axes, part, usual in ((heights, "heights", 0), (holes, "holes", 1)):
            axes.plot(
                before, each[part]["mean"], marker="o", markersize=3, label=f"{name} on {board}", **style
            )
            axes.plot([225], [each["usual"]["mean"][usual]], marker="D", markersize=5, color=style["color"])
    for axes in (heights, holes):
        axes.set(xlim=(232, 0), ylim=(0, None), xlabel="pieces before the end; diamonds: usual stacks")
        axes.grid(color="0.9")
    heights.set_yticks(range(0, 21, 5))
    heights.set_ylabel("rows to the highest cell, mean")
    holes.set_ylabel("holes, mean")
    figure.legend(*heights.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize="small")
    save_figure(figure, picture)


def draw_runs(result: Result, picture: Path) -> None:
    """Draw how long the longest run of S and Z is among the last pieces, and the longest alternation."""
    figure = new_figure(10.0, 3.6)
    for axes, part, title in zip(
        figure.subplots(1, 2, sharey=True),
        ("runs", "alternations"),
        ("longest run of S and Z only", "longest run of alternating S and Z"),
        strict=True,
    ):
        usual = np.array(result.data["anywhere"]["uniform"][part])
        axes.plot(_reached(usual), color=_BLACK, linewidth=2.4, label="any 40 pieces")
        for (board, name), style in _STYLES.items():
            axes.plot(
                _reached(np.array(measured(result, board, name)[part]["mean"])),
                **{**style, "marker": "o", "markersize": 3, "label": f"{name} on {board}"},
            )
        axes.set(xlim=(1, 12), ylim=(1e-3, 1.2), yscale="log", xlabel=f"{title}, pieces")
        axes.grid(color="0.9")
    axes.figure.axes[0].set_ylabel("share of the last 40 pieces with\na run of at least that [log scale]")
    handles = axes.get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=5, fontsize="small")
    save_figure(figure, picture)


def _reached(shares: Any) -> Any:
    """Return the probability to be at least 0, 1, 2, ... of a distribution."""
    return shares[::-1].cumsum()[::-1]
