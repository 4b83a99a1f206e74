"""The picture of docs/performance.md, from its result file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from measure.sampling import LABELS, median, speedups

from pages.result_files import load
from tetris.report.learning_curve import COLORS, new_figure, save_figure

_BLACK, _VERMILION, _BLUE, _, _GREEN, _ORANGE = COLORS[:6]
_METHOD_STYLES: Mapping[str, dict[str, Any]] = {
    "compile": {"color": _VERMILION, "linestyle": "--", "marker": "s"},
    "eager": {"color": _ORANGE, "linestyle": "-.", "marker": "^"},
    "normal_": {"color": _GREEN, "linestyle": ":", "marker": "v"},
    "ours": {"color": _BLUE, "linestyle": "-", "marker": "o", "linewidth": 2.4},
    "fill": {"color": _BLACK, "linestyle": "-", "marker": "", "linewidth": 1.0},
}
_CLOCKS = (("latency", "idle device, as the article measures"), ("graph", "in a CUDA graph"))


def draw_sampling(picture: Path) -> None:
    """Draw the time of a call against the dimension, and below it how many times as fast ours is."""
    from matplotlib.ticker import LogLocator

    figure, result = new_figure(9.0, 7.0), load("h200/sampling")
    sizes = result.data["article"]
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
