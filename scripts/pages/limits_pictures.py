"""The picture of docs/limits.md: lines a game against the height of the board."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pages.kills_blocks import alternating_bound
from pages.limits_blocks import COLUMNS, lines_by_height
from pages.result_files import load_all
from tetris import Rules
from tetris.report.figures import COLORS, new_figure, save_figure

_BLACK, _VERMILION, _BLUE, _PURPLE, _GREEN, _ORANGE, _SKY = COLORS
_STYLES: Mapping[tuple[str, str], dict[str, Any]] = {
    ("dt20", "unknown"): {"color": _VERMILION, "marker": "o", "linestyle": "-"},
    ("best", "unknown"): {"color": _BLUE, "marker": "s", "linestyle": "-"},
    ("dt20", "looks ahead"): {"color": _PURPLE, "marker": "D", "linestyle": "-."},
    ("best", "looks ahead"): {"color": _SKY, "marker": "P", "linestyle": "-."},
    ("dt20", "known"): {"color": _ORANGE, "marker": "^", "linestyle": "--"},
    ("best", "known"): {"color": _GREEN, "marker": "v", "linestyle": "--"},
}
_WIDTHS = {4: _BLUE, 5: _VERMILION, 6: _GREEN}
_NARROW: Mapping[str, dict[str, Any]] = {
    "bound": {"label": "bound by runs of S and Z, one piece known", "marker": "v", "linestyle": ":"},
    "perfect2": {"label": "perfect play, the next piece known", "marker": "*", "linestyle": ""},
    "perfect1": {"label": "perfect play, one piece known", "marker": "s", "linestyle": "-"},
    "dt20": {"label": "dt20", "marker": "o", "linestyle": "--"},
}


def draw_limits_pictures(folder: Path) -> None:
    """Draw every picture of the page into a folder."""
    draw_heights(folder / "limits_heights.png")


def narrow_boards() -> dict[str, dict[tuple[int, int], float]]:
    """Return lines a game on narrow boards by width and height: bound, perfect play and dt20."""
    found: dict[str, dict[tuple[int, int], float]] = {name: {} for name in _NARROW}
    for result in load_all("worst_pieces"):
        for each in result.data["measurements"]:
            board = Rules.parse_board(each["board"])
            found["bound"][board] = each["bound"]
            found["perfect1"][board] = each["perfect"]
    for result in load_all("heights"):
        for each in result.data["measurements"]:
            if each["controller"] == "dt20" and not each["board"].startswith("10x"):
                found["dt20"][Rules.parse_board(each["board"])] = each["lines_per_game"]
    names = {"known1": "perfect1", "known2": "perfect2", "dt20": "dt20"}
    for result in [*load_all("limits"), *load_all("limits_large")]:
        for key, lines in result.figures.items():
            _, size, who, *what = key.split(".")
            if what == ["lines_per_game"] and who in names:
                found[names[who]][Rules.parse_board(size)] = lines
    return found


def draw_heights(picture: Path) -> None:
    """Draw lines a game against the height: of controllers on ten columns, of perfect play on few."""
    figure = new_figure(11.0, 5.4)
    wide, narrow = figure.subplots(1, 2, width_ratios=(1.35, 1.0))
    _draw_wide(wide)
    _draw_narrow(narrow)
    for axes in (wide, narrow):
        axes.set(yscale="log", xlabel="rows of the board")
        axes.grid(color="0.9")
        axes.set_axisbelow(True)
    wide.set_ylabel("lines a game [log scale]")
    save_figure(figure, picture)


def _draw_wide(axes: Any) -> None:
    for who, (played, estimated) in lines_by_height().items():
        style = _STYLES[who]
        color, shape = style["color"], style["marker"]
        drawn = {height: each["lines_per_game"] for height, each in sorted({**played, **estimated}.items())}
        axes.plot(list(drawn), list(drawn.values()), linewidth=1.2, color=color, linestyle=style["linestyle"])
        for scores, filled in ((estimated, "white"), (played, color)):
            for height, each in scores.items():
                axes.plot([height], [each["lines_per_game"]], shape, color=color, mfc=filled, markersize=5)
                low, high = each["ci95"]
                axes.vlines([height], [low], [high or axes.get_ylim()[1]], color=color, linewidth=1.4)
        axes.plot([], [], label=COLUMNS[who], markersize=5, **style)
    axes.set_xticks(range(4, 21, 2))
    axes.set_yticks(10.0 ** np.arange(1, 14))
    axes.set_title(
        "ten columns; filled: played, hollow: estimated,\nbars: 95 % intervals", loc="left", fontsize="medium"
    )
    axes.legend(fontsize="small", loc="upper left")
    power = f"{alternating_bound():,}".replace(",", "{,}")
    text = f"S and Z would bound any player on 10x20\nat $10^{{{power}}}$ lines: far off the picture"
    axes.text(0.98, 0.02, text, transform=axes.transAxes, ha="right", fontsize="small")


def _draw_narrow(axes: Any) -> None:
    for name, lines in narrow_boards().items():
        style = {each: value for each, value in _NARROW[name].items() if each != "label"}
        for width, color in _WIDTHS.items():
            line = {height: value for (w, height), value in sorted(lines.items()) if w == width}
            axes.plot(list(line), list(line.values()), color=color, markersize=5, **style)
        axes.plot([], [], color=_BLACK, **_NARROW[name])
    for width, color in _WIDTHS.items():
        axes.plot([], [], color=color, linewidth=4, label=f"{width} columns")
    axes.set_xticks(range(4, 9))
    axes.set_title(
        "few columns; bound and perfect play: exactly,\ndt20: played", loc="left", fontsize="medium"
    )
    axes.set_ylim(4, 1e9)
    axes.legend(fontsize="small", loc="upper right")
