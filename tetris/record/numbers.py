"""Numbers as text."""

from pathlib import Path

from kernels.support.printable import counted


def format_lines(value: float | None) -> str:
    """Return a number of lines, or another number, with three or four digits."""
    if value is None:
        return "-"
    if value < 100:
        return f"{value:.3g}"
    if value < 1e6:  # Round to four digits, and separate the thousands.
        return f"{float(f'{value:.4g}'):,.0f}"
    millions = float(f"{value:.3g}") / 1e6
    return f"{millions:,.0f} M" if millions >= 1000 else f"{millions:.3g} M"


def file_size(path: Path) -> str:
    """Return the size of a file as text: in kilobytes, or in bytes below one kilobyte."""
    size = path.stat().st_size
    return counted(size, "byte") if size < 1000 else f"{size / 1e3:,.0f} kB"
