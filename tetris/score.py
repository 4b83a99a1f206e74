"""How good a controller is: lines per game, with an exact interval.

The length of a game is very nearly exponentially distributed, so a score needs no finished game after game:
play streams of games that restart when a game ends, count lines and games ended, and the ratio estimates the
mean. For an exponential mean, 2 x lines / mean has the chi-square distribution with 2 x games degrees of
freedom (Epstein and Sobel, "Life Testing", JASA 48, 1953).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

ESTIMATOR = "lines / games ended, exact chi-square interval for an exponential mean"


@dataclass(frozen=True)
class Score:
    """Lines, games ended and decisions of one controller, and what they say about its lines per game.

    Attributes:
        lines: Lines removed, those of unfinished games included.
        games: Games ended.
        decisions: Pieces placed.

    Raises:
        ValueError: If a count is negative.
    """

    lines: int
    games: int
    decisions: int

    def __post_init__(self) -> None:
        """Validate the counts."""
        if min(self.lines, self.games, self.decisions) < 0:
            raise ValueError(f"expected counts of at least 0, got {self}")

    @property
    def lines_per_game(self) -> float | None:
        """The estimate of the mean; None where no game has ended."""
        return self.lines / self.games if self.games else None

    @property
    def ci95(self) -> tuple[float, float | None]:
        """The 95 % interval of the mean; where no game has ended it is one-sided, and its upper end None."""
        if not self.games:
            return 2 * self.lines / chi2_quantile(0.95, 2), None
        degrees = 2 * self.games
        return 2 * self.lines / chi2_quantile(0.975, degrees), 2 * self.lines / chi2_quantile(0.025, degrees)

    def __add__(self, other: Score) -> Score:
        """Pool two independent measurements of the same controller."""
        return Score(self.lines + other.lines, self.games + other.games, self.decisions + other.decisions)


def chi2_quantile(probability: float, degrees: int) -> float:
    """Return the value below which a chi-square variable lies with the given probability.

    Inverts the regularised incomplete gamma function by bisection, to the last bits of a double.

    Args:
        probability: Between 0 and 1, ends excluded.
        degrees: Degrees of freedom, at least 1.

    Raises:
        ValueError: If an argument is out of range.
    """
    if not 0 < probability < 1:
        raise ValueError(f"expected a probability between 0 and 1, got {probability}")
    if degrees < 1:
        raise ValueError(f"expected at least 1 degree of freedom, got {degrees}")
    half_degrees = torch.tensor(degrees / 2, dtype=torch.float64)

    def below(value: float) -> float:
        return float(torch.special.gammainc(half_degrees, torch.tensor(value / 2, dtype=torch.float64)))

    low, high = 0.0, float(degrees)
    while below(high) < probability:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        if below(middle) < probability:
            low = middle
        else:
            high = middle
    return high
