"""Numbers, scores and tables for readers, in Markdown."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tetris.record.numbers import format_lines

_UNITS = ((1e9, "G"), (1e6, "M"))


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(
        "| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows]
    )


def count(value: float) -> str:
    """Return a number with three digits, such as ``3,670``, ``8.77 M`` or ``3.16 G``."""
    rounded = float(f"{value:.3g}")
    for size, unit in _UNITS:
        if rounded >= size:
            return f"{rounded / size:,.3g} {unit}"
    return f"{rounded:,.0f}"


def digits(value: float) -> str:
    """Return a number with three digits, or rounded to an integer from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def span(low: float, high: float) -> str:
    """Return a range of numbers of lines, such as ``8,992-10,740`` or ``953-1,540 M``."""
    first = format_lines(low)
    last = format_lines(high)
    if low >= 1e6:  # Both ends are in millions, and only the last one says so.
        first = first.removesuffix(" M")
    return f"{first}-{last}"


def score(measurement: Mapping[str, Any]) -> str:
    """Return the text of a score: lines per game and their 95 % interval.

    If no game ended, the text is only the lower bound.
    """
    low, high = measurement["ci95"]
    if high is None:
        return f"> {format_lines(low)}"
    return f"{format_lines(measurement['lines_per_game'])} ({span(low, high)})"


def in_words(value: float) -> str:
    """Return a number with three digits, such as ``51 million`` or ``1.38 billion``."""
    if value >= 1e9:
        return f"{value / 1e9:.3g} billion"
    return f"{value / 1e6:.3g} million"
