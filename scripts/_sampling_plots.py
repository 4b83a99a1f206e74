"""The two pictures of the sampling benchmark: time against dimension, and how many times as fast ours is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from _sampling_tables import LABELS, OURS, median, speedups

from tetris.report.figures import new_figure, save_figure

HINT = "no pictures without matplotlib: run pip install matplotlib"
TIME, SPEEDUP = "sampling_time.png", "sampling_speedup.png"

# Told apart by dashes, markers and shade, not by colour.
_STYLES: dict[str, dict[str, Any]] = {
    "compile": {"color": "0.0", "linestyle": "--", "marker": "s"},
    "eager": {"color": "0.35", "linestyle": "-.", "marker": "^"},
    "normal_": {"color": "0.55", "linestyle": ":", "marker": "v"},
    "ours": {"color": "0.0", "linestyle": "-", "marker": "o", "linewidth": 2.4},
    "fill": {"color": "0.6", "linestyle": "-", "marker": "", "linewidth": 1.0},
}
_CLOCKS = (
    ("latency", "device idle before (the article's method)"),
    ("event", "device busy before"),
    ("graph", "in a CUDA graph"),
)


def draw_sampling_plots(result: Mapping[str, Any], folder: Path) -> bool:
    """Draw a result measured on a GPU into two PNG files.

    Args:
        result: What benchmark_sampling.py writes.
        folder: Where they go; whole or not at all.

    Returns:
        False where matplotlib is not installed.

    Raises:
        OSError: If a picture cannot be written.
    """
    for name, draw in ((TIME, _times), (SPEEDUP, _speedups)):
        figure = new_figure(12.0, 4.2)
        if figure is None:
            return False
        draw(figure, result)
        title = f"{result['samples']} samples, float32, {result['machine']['gpu']}"
        figure.suptitle(title, x=0.01, ha="left", fontsize="medium")
        save_figure(figure, folder / name)
    return True


def _times(figure: Any, result: Mapping[str, Any]) -> None:
    from matplotlib.ticker import LogLocator

    sizes = result["article"]
    panels = figure.subplots(1, len(_CLOCKS), sharey=True)
    for axes, (clock, title) in zip(panels, _CLOCKS, strict=True):
        for name, style in _STYLES.items():
            times = [median(size, clock, name) for size in sizes]
            axes.plot([size["dim"] for size in sizes], times, label=LABELS[name], markersize=4, **style)
        _finish(axes, title)
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
    panels[0].set_ylabel("time of a call [us]")
    panels[0].legend(fontsize="small", framealpha=0.9)


def _speedups(figure: Any, result: Mapping[str, Any]) -> None:
    sizes = result["article"]
    panels = figure.subplots(1, len(_CLOCKS), sharey=True)
    greatest = 1.0
    for axes, (clock, title) in zip(panels, _CLOCKS, strict=True):
        for name in ("compile", "eager"):
            ratios = speedups(sizes, clock, name)
            greatest = max(greatest, *ratios)
            label = f"over {LABELS[name]}"
            style = _STYLES[name]
            axes.plot(
                [size["dim"] for size in sizes],
                ratios,
                label=label,
                markersize=4,
                **style,
            )
        axes.axhline(1.0, color="0.6", linewidth=1.0)
        _finish(axes, title)
    panels[0].set_ylim(0.0, 1.05 * greatest)
    panels[0].set_ylabel(f"speed-up of {LABELS[OURS]} [times]")
    panels[0].legend(fontsize="small", framealpha=0.9)


def _finish(axes: Any, title: str) -> None:
    axes.set_title(title, fontsize="small")
    axes.set_xlabel("dimensions d")
    axes.grid(color="0.9")
