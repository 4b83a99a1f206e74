"""What the literature says of controllers on ten columns, by the published rule.

All are quoted from memory of the papers, which round them and give no intervals: cite them as approximate.
They are lines removed in a game of simplified Tetris; who published which weights stands in
`tetris.controller`. Left out is Fahey's 660,000 for Dellacherie's controller: it was played by other rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True)
class ReferenceScore:
    """A score of the reference simulator, measured for this project.

    Attributes:
        lines_per_game: The estimate.
        margin: To both sides of it the 95 % interval reaches.
        games: How many were played.
    """

    lines_per_game: float
    margin: float
    games: int

    def __str__(self) -> str:
        """Return it as a person reads it."""
        return f"{self.lines_per_game:,.0f} ± {self.margin:,.0f}, {self.games:,} games"

    @property
    def interval(self) -> PaperFigure:
        """The ends of its interval, as a figure to compare with."""
        low, high = (self.lines_per_game + sign * self.margin for sign in (-1, 1))
        return PaperFigure(low, high, "MDPTetris, measured for this project")


MDPTETRIS: Mapping[tuple[str, str], ReferenceScore] = {("bcts", "10x10"): ReferenceScore(3887.0, 83.0, 2000)}
"""MDPTetris, the simulator of Thiery & Scherrer, by controller and board; the published rule."""


@dataclass(frozen=True)
class Effort:
    """What a paper says of the effort of learning; none of these gives a wall time in its abstract.

    Attributes:
        source: The paper.
        statement: What it says, in short.
        where: The version and the place.
    """

    source: str
    statement: str
    where: str


EFFORTS: Sequence[Effort] = (
    Effort(
        GABILLON,
        "CBMPI, best on both boards, takes almost 1/10 of the samples of the cross-entropy method",
        "NIPS 26, pages 1754-1762, abstract",
    ),
    Effort(GABILLON, "the same: almost 1/6 of the samples", "authors' version on HAL, abstract"),
    Effort(
        "Boumaza 2011",
        "evolution strategy with racing: players as good as the best at a third of the cost",
        "Reducing the Learning Time of Tetris in Evolution Strategies, LNCS 7401, abstract",
    ),
)
"""How papers compare the effort of learning; checked against their abstracts."""
