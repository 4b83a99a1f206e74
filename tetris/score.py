"""Scores: lines per game with an exact interval.

The length of a game is very nearly exponentially distributed. Streams of games restart when a game ends;
lines over games ended estimates the mean. The number of decisions is fixed, and the number N of games ended
is a Poisson variable with mean lines / mean. The interval is Garwood's ("Fiducial Limits for the Poisson
Distribution", Biometrika 28, 1936), which Epstein ("Estimation from Life Test Data", Technometrics 2, 1960)
gives for life tests that stop at a fixed time: chi-square quantiles with 2N degrees of freedom for the upper
end of the lines per game, with 2N + 2 for the lower end. Where sampling stops at the N-th game instead, the
lower end is conservative.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.support.checks import check_integer

ESTIMATOR = "lines / games ended, exact Poisson interval (Garwood 1936)"


@dataclass(frozen=True)
class Score:
    """Lines, games ended and decisions of one controller, and the estimate of its lines per game.

    Attributes:
        lines: Lines removed, those of unfinished games included.
        games: Games ended.
        decisions: Pieces placed.

    Raises:
        TypeError: If a count is no int.
        ValueError: If a count is negative, or no signed 64-bit integer.
    """

    lines: int
    games: int
    decisions: int

    def __post_init__(self) -> None:
        """Validate the counts."""
        for name in ("lines", "games", "decisions"):
            object.__setattr__(self, name, check_integer(name, getattr(self, name), 0, (1 << 63) - 1))

    @property
    def lines_per_game(self) -> float | None:
        """The estimate of the mean; None where no game has ended."""
        return self.lines / self.games if self.games else None

    @property
    def ci95(self) -> tuple[float, float | None]:
        """The 95 % interval of the mean; where no game has ended it is one-sided, and its upper end None."""
        if not self.games:
            return 2 * self.lines / chi2_quantile(0.95, 2), None
        low = 2 * self.lines / chi2_quantile(0.975, 2 * self.games + 2)
        return low, 2 * self.lines / chi2_quantile(0.025, 2 * self.games)

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
