"""Scores of the literature on ten columns by the published rule: lines a game of simplified Tetris.

They are quoted from memory. The papers round them and give no intervals: cite them as approximate.
`tetris.published` names the sources of the weights. Fahey's 660,000 for Dellacherie's controller is left
out: it has other rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SZITA_LORINCZ = "Szita & Lőrincz 2006"
THIERY_SCHERRER = "Thiery & Scherrer 2009"
GABILLON = "Gabillon, Ghavamzadeh & Scherrer 2013"


@dataclass(frozen=True)
class PaperFigure:
    """Lines a game from the lowest to the highest figure of the papers that are its source, approximate."""

    low: float
    high: float
    source: str

    def __str__(self) -> str:
        """Return the figures as text: ``4,300``, ``31-36 M``."""
        if self.high < 1e6:
            return f"{self.low:,.0f}" if self.low == self.high else f"{self.low:,.0f}-{self.high:,.0f}"
        ends = dict.fromkeys(f"{value / 1e6:g}" for value in (self.low, self.high))
        return f"{'-'.join(ends)} M"

    @property
    def middle(self) -> float:
        """The middle of the range."""
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
"""Scores of the published controllers by name and board."""

LEARNED_SCORES: Mapping[tuple[str, str], PaperFigure] = {
    ("bertsekas", "10x20"): _figure(348_895, SZITA_LORINCZ),
    ("bcts", "10x20"): PaperFigure(31e6, 36e6, THIERY_SCHERRER),
}
"""Best scores of noisy cross-entropy searches by features and board."""
