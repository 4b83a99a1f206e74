"""Numbers as text."""

from __future__ import annotations


def format_lines(value: float | None) -> str:
    """Return a number of lines with three or four digits."""
    if value is None:
        return "-"
    if value < 1e6:
        return f"{float(f'{value:.4g}'):,.0f}"
    millions = float(f"{value:.3g}") / 1e6
    return f"{millions:,.0f} M" if millions >= 1000 else f"{millions:.3g} M"
