"""The picture of a run: lines per game over the generations, stage by stage."""

from __future__ import annotations

import io
import json
from itertools import groupby
from pathlib import Path
from typing import Any

from cem.checkpoint import write_atomically

HINT = "no learning_curve.png without matplotlib: pip install matplotlib draws one next time"

_SERIES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    # Told apart by dashes and shade, not by colour.
    ("generation_best", "best candidate", {"color": "0.65", "linestyle": ":"}),
    ("elite_mean", "mean of the elites", {"color": "0.45", "linestyle": "--"}),
    ("mean_fitness", "mean of the distribution", {"color": "0.0", "linestyle": "-"}),
)


def draw_learning_curve(metrics: Path, picture: Path, title: str) -> bool:
    """Draw a metrics file.

    Args:
        metrics: A ``metrics.jsonl`` with at least one line.
        picture: The PNG to write, whole or not at all.
        title: What stands above it.

    Returns:
        False where matplotlib is not installed.

    Raises:
        OSError: If a file cannot be read or written.
    """
    try:
        # Not pyplot: it keeps global state and looks for a display.
        from matplotlib.figure import Figure
    except ImportError:
        return False
    records = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    figure = Figure(figsize=(8, 4.5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    generations = [record["generation"] for record in records]
    for name, label, style in _SERIES:
        axes.plot(generations, [record[name] for record in records], label=label, linewidth=1.6, **style)
    axes.set_yscale("symlog", linthresh=1.0)
    axes.set_ylim(bottom=0.0)
    axes.set_xlim(0.5, max(len(records), 2) + 0.5)
    axes.set_xlabel("generation")
    axes.set_ylabel("lines per game (in training, log scale)")
    axes.grid(axis="y", color="0.9")
    axes.set_title(title, loc="left", fontsize="medium", pad=18)
    _mark_stages(axes, records)
    axes.legend(loc="lower right", framealpha=0.9)
    image = io.BytesIO()
    figure.savefig(image, format="png")
    write_atomically(picture, image.getvalue())
    return True


def _mark_stages(axes: Any, records: list[dict[str, Any]]) -> None:
    def stage(record: dict[str, Any]) -> tuple[int, str]:
        return record["stage"], f"{record['board_width']}x{record['board_height']}"

    for (_, board), group in groupby(records, stage):
        generations = [record["generation"] for record in group]
        if generations[0] > 1:
            axes.axvline(generations[0] - 0.5, color="0.3", linewidth=0.8)
        middle = (generations[0] + generations[-1]) / 2
        axes.annotate(
            board,
            (middle, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            fontsize="small",
        )
