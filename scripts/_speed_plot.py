"""The picture of the engines' speeds: a mark each on a logarithmic scale, with the spread of its values."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tetris.report.figures import new_figure, save_figure

# Told apart by shape and filling, not by colour.
_MARKS = (("o", "0.0"), ("s", "1.0"), ("^", "0.5"), ("D", "0.8"))
_FILLED = 0.7  # share of an engine's place over which its marks are spread


@dataclass(frozen=True)
class Speed:
    """What was measured of an engine under a controller.

    Attributes:
        engine: What to call the engine.
        controller: What to call the controller.
        values: Decisions a second, at least one.
    """

    engine: str
    controller: str
    values: Sequence[float]


def draw_speeds(speeds: Sequence[Speed], picture: Path, title: str) -> bool:
    """Draw decisions a second: the median as a mark with its figure, least and most as a whisker.

    Args:
        speeds: At least one.
        picture: The file to write, whole or not at all: PNG, SVG or PDF by its name.
        title: What stands above it.

    Returns:
        False where matplotlib is not installed.

    Raises:
        OSError: If the file cannot be written.
    """
    engines = list(dict.fromkeys(speed.engine for speed in speeds))
    controllers = list(dict.fromkeys(speed.controller for speed in speeds))
    step = _FILLED / len(controllers)
    figure = new_figure(8.0, 1.2 + len(engines) * (0.25 + 0.2 * len(controllers)))
    if figure is None:
        return False
    axes = figure.add_subplot()
    for number, controller in enumerate(controllers):
        mark, shade = _MARKS[number % len(_MARKS)]
        mine = [speed for speed in speeds if speed.controller == controller]
        medians = [statistics.median(speed.values) for speed in mine]
        most = [max(speed.values) for speed in mine]
        least = [min(speed.values) for speed in mine]
        places = [engines.index(speed.engine) - _FILLED / 2 + (number + 0.5) * step for speed in mine]
        whiskers = [
            [median - low for median, low in zip(medians, least, strict=True)],
            [high - median for median, high in zip(medians, most, strict=True)],
        ]
        style = {"fmt": mark, "markerfacecolor": shade, "color": "0.0", "capsize": 3, "markersize": 6}
        axes.errorbar(medians, places, xerr=whiskers, label=controller, **style)
        for place, median, high in zip(places, medians, most, strict=True):
            axes.annotate(
                f"{float(f'{median:.3g}'):,.0f}",
                (high, place),
                xytext=(7, 0),
                textcoords="offset points",
                va="center",
                fontsize="small",
            )
    axes.set_xscale("log")
    everything = [value for speed in speeds for value in speed.values]
    axes.set_xlim(min(everything) / 3, max(everything) * 30)  # room for the figures on the right
    axes.set_yticks(range(len(engines)), engines)
    axes.set_ylim(len(engines) - 0.5, -0.5)
    axes.set_xlabel("decisions per second (log scale): median, least and most")
    axes.grid(color="0.9")
    axes.set_axisbelow(True)
    axes.set_title(title, loc="left", fontsize="medium")
    if len(controllers) > 1:
        figure.legend(loc="outside lower right", ncols=len(controllers), frameon=False)
    save_figure(figure, picture)
    return True
