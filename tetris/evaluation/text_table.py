"""Numbers and tables as text."""

from __future__ import annotations

from collections.abc import Sequence


def lines(value: float | None) -> str:
    """Return a number of lines as a person reads it: three or four digits."""
    if value is None:
        return "-"
    if value < 1e6:
        return f"{float(f'{value:.4g}'):,.0f}"
    millions = float(f"{value:.3g}") / 1e6
    return f"{millions:,.0f} M" if millions >= 1000 else f"{millions:.3g} M"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as text: the first column flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if index else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
