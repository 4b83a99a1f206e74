"""The picture of the time from nothing to given scores: a row for each goal, a mark for each machine."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _markdown import Report
from _time_to_quality_pages import all_goals, goal_label, machine_name, reached

from kernels.files import write_bytes

# Told apart by shape and filling, not by colour.
_STYLES: tuple[dict[str, Any], ...] = (
    {"color": "0.45", "marker": "s", "markerfacecolor": "1.0"},
    {"color": "0.0", "marker": "o", "markerfacecolor": "0.0"},
)
_APART = 0.2  # of a row between two machines


def draw_time_to_quality(results: Sequence[Report], picture: Path) -> bool:
    """Draw the median, and the range over the seeds, of every goal and machine.

    Args:
        results: What `time_to_quality.measure` returned, one or two of them.
        picture: The PNG to write, whole or not at all.

    Returns:
        False where matplotlib is not installed.

    Raises:
        OSError: If the file cannot be written.
    """
    try:
        # Not pyplot: it keeps global state and looks for a display.
        from matplotlib.figure import Figure
        from matplotlib.ticker import LogLocator
    except ImportError:
        return False
    goals = all_goals(results)
    figure = Figure(figsize=(8, 1.2 + 0.7 * len(goals)), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for number, (result, style) in enumerate(zip(results, _STYLES, strict=False)):
        _draw_machine(axes, result, goals, _APART * (number - (len(results) - 1) / 2), style)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.set_xlabel("wall time from the start of the process [s] (log scale)")
    axes.set_yticks(range(len(goals)), [goal_label(goal) for goal in goals])
    axes.set_ylim(len(goals) - 0.5, -0.5)
    axes.set_ylabel("goal: lines a game")
    axes.grid(axis="x", which="both", color="0.9")
    axes.set_title("median of the seeds, line from the fastest to the slowest", loc="left", fontsize="medium")
    figure.legend(loc="outside lower center", ncols=2)
    image = io.BytesIO()
    figure.savefig(image, format="png", metadata={"Software": None})
    write_bytes(picture, image.getvalue())
    return True


def _draw_machine(
    axes: Any, result: Report, goals: Sequence[Any], offset: float, style: dict[str, Any]
) -> None:
    """Draw a machine; a goal that some seeds missed ends in an arrow, one that most missed is a remark."""
    label: str | None = machine_name(result)
    longest = max(run["total_seconds"] for run in result["runs"])
    measured = {each["name"] for each in result["goals"]}
    for row, goal in enumerate(goals):
        if goal["name"] not in measured:
            continue
        y = row + offset
        median = result["figures"].get(f"time_to_quality.{goal['name']}.seconds")
        if median is None:
            remark = f"{machine_name(result)}: not within {longest:.0f} s"
            place = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "center"}
            axes.annotate(remark, (0.99, y), fontsize="small", color=style["color"], **place)
            continue
        found = [each["seconds"] for each in reached(result, goal["name"])]
        missed = len(found) < len(result["runs"])
        axes.plot([found[0], longest if missed else found[-1]], [y, y], color=style["color"], linewidth=1.6)
        if missed:
            axes.plot([longest], [y], marker=">", color=style["color"], linestyle="")
        axes.plot([median], [y], markersize=8, linestyle="", label=label, zorder=3, **style)
        away = {"xytext": (0, 7 if offset <= 0 else -7), "va": "bottom" if offset <= 0 else "top"}
        axes.annotate(
            f"{median:.3g} s", (median, y), textcoords="offset points", ha="center", fontsize="small", **away
        )
        label = None
