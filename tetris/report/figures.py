"""Figures of matplotlib, where it is installed, and the files they go to."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from kernels.files import write_bytes
from tetris.report import PICTURE_SUFFIXES

COLORS = ("#000000", "#d55e00", "#0072b2", "#cc79a7", "#009e73", "#e69f00", "#56b4e9")
"""Black, vermilion, blue, purple, green, orange, sky: the colour-blind-safe palette of Okabe and Ito."""

# Without what changes from day to day and from one version to the next: the same data give the same file.
_METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of so many inches; None where matplotlib is not installed."""
    try:
        # Not pyplot: it keeps global state and looks for a display.
        from matplotlib.figure import Figure
    except ImportError:
        return None
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def check_picture(path: Path) -> None:
    """Make sure before any work is done that a picture can be drawn, as what its name says.

    Raises:
        ValueError: If it ends with none of `PICTURE_SUFFIXES`, or matplotlib is not installed.
    """
    if path.suffix.lower() not in PICTURE_SUFFIXES:
        raise ValueError(f"expected a picture whose name ends with {', '.join(PICTURE_SUFFIXES)}, got {path}")
    if new_figure(1.0, 1.0) is None:
        raise ValueError('expected matplotlib for a picture, found none: pip install -e ".[plot]"')


def save_figure(figure: Any, picture: Path) -> None:
    """Write a figure as its file's name says, whole or not at all.

    Raises:
        OSError: If it cannot be written.
    """
    image = io.BytesIO()
    kind = picture.suffix.lower().removeprefix(".")
    figure.savefig(image, format=kind, metadata=_METADATA[kind])
    write_bytes(picture, image.getvalue())
