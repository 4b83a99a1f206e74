"""Figures of matplotlib, an optional package, and their files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from kernels.support.files import write_bytes

ACROSS = {
    "generation": "generation",
    "decisions": "decisions",
    "seconds": "wall time of training [s]",
}
"""The quantities of a learning curve's x axis, with its label."""

PICTURE_SUFFIXES = (".png", ".svg", ".pdf")
"""The suffixes of the picture formats."""

COLORS = ("#000000", "#d55e00", "#0072b2", "#cc79a7", "#009e73", "#e69f00", "#56b4e9")
"""Black, vermilion, blue, purple, green, orange, sky: the colour-blind-safe palette of Okabe and Ito."""

# No dates and versions: the same data give the same file.
_METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of a size in inches; None if matplotlib is not installed."""
    try:
        # No pyplot: it keeps global state and looks for a display.
        from matplotlib.figure import Figure
    except ImportError:
        return None
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def check_picture(path: Path) -> None:
    """Raise ValueError where a suffix is none of `PICTURE_SUFFIXES`, or matplotlib is not installed."""
    if path.suffix.lower() not in PICTURE_SUFFIXES:
        raise ValueError(f"expected a picture whose name ends with {', '.join(PICTURE_SUFFIXES)}, got {path}")
    if new_figure(1.0, 1.0) is None:
        raise ValueError('expected matplotlib for a picture, found none: pip install -e ".[plot]"')


def save_figure(figure: Any, picture: Path) -> None:
    """Write a figure in the format of the suffix, atomically."""
    image = io.BytesIO()
    kind = picture.suffix.lower().removeprefix(".")
    figure.savefig(image, format=kind, metadata=_METADATA[kind])
    write_bytes(picture, image.getvalue())
