"""What the literature says of controllers on ten columns, by the published rule.

All are quoted from memory of the papers, which round them and give no intervals: cite them as approximate.
They are lines removed in a game of simplified Tetris; who published which weights stands in
`tetris.controller`. Left out is Fahey's 660,000 for Dellacherie's controller: it was played by other rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SZITA_LORINCZ = "Szita & Lőrincz 2006"
THIERY_SCHERRER = "Thiery & Scherrer 2009"
GABILLON = "Gabillon, Ghavamzadeh & Scherrer 2013"


@dataclass(frozen=True)
class PaperFigure:
    """Lines a game as papers state them, approximately.

    Attributes:
        low: The lowest that a paper says.
        high: The highest; the same where there is one figure.
        source: The papers.
    """

    low: float
    high: float
    source: str

    def __str__(self) -> str:
        """Return it as a person reads it: ``4,300``, ``31-36 M``."""
        if self.high < 1e6:
            return f"{self.low:,.0f}" if self.low == self.high else f"{self.low:,.0f}-{self.high:,.0f}"
        ends = dict.fromkeys(f"{value / 1e6:g}" for value in (self.low, self.high))
        return f"{'-'.join(ends)} M"

    @property
    def middle(self) -> float:
        """The middle of what the papers say."""
        return (self.low + self.high) / 2


def _figure(value: float, source: str) -> PaperFigure:
    return PaperFigure(value, value, source)


_BOTH = f"{THIERY_SCHERRER}; {GABILLON}"

PUBLISHED_SCORES: Mapping[str, Mapping[str, PaperFigure]] = {
    "dellacherie": {"10x20": _figure(5.2e6, THIERY_SCHERRER)},
    "bcts": {"10x10": _figure(3800, _BOTH), "10x20": PaperFigure(31e6, 36e6, _BOTH)},
    "bdu": {"10x10": _figure(4200, _BOTH), "10x20": _figure(36e6, _BOTH)},
    "dt10": {"10x10": _figure(5000, GABILLON), "10x20": _figure(29e6, GABILLON)},
    "dt20": {"10x10": _figure(4300, GABILLON), "10x20": _figure(51e6, GABILLON)},
}
"""The published controllers by name and board."""

LEARNED_SCORES: Mapping[tuple[str, str], PaperFigure] = {
    ("bertsekas", "10x20"): _figure(348_895, SZITA_LORINCZ),
    ("bcts", "10x20"): PaperFigure(31e6, 36e6, THIERY_SCHERRER),
}
"""The best that noisy cross-entropy searches came to, by features and board."""
