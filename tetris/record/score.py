"""Scores: lines per game with its interval.

Streams of games restart when a game ends; lines over games ended estimates the mean. Long games
are very nearly exponentially distributed, so the number N of games that end within a fixed
number of decisions is a Poisson variable with mean lines / mean. The interval is Garwood's
("Fiducial Limits for the Poisson Distribution", Biometrika 28, 1936), which Epstein
("Estimation from Life Test Data", Technometrics 2, 1960) gives for life tests that stop at a
fixed time: chi-square quantiles with 2N degrees of freedom for the upper end of the lines per
game, with 2N + 2 for the lower end. Where sampling stops at the N-th game instead, the lower
end is conservative. Short games vary less, and their lines are few: N and the lines are divided
by the dispersion that the streams show, the usual quasi-Poisson correction (McCullagh and
Nelder, Generalized Linear Models, 1989).
"""

import math
from dataclasses import dataclass

import torch

ESTIMATOR = (
    "lines / games ended, Poisson interval (Garwood 1936) with the dispersion of the streams"
)


@dataclass(frozen=True)
class Score:
    """Lines, games and decisions of one controller, and the estimate of its lines per game.

    Attributes:
        lines: Lines removed, those of unfinished games included.
        games: Games ended.
        decisions: Pieces placed.
        dispersion: Variance of the estimate divided by that of exponential games; see
            `dispersion`.
    """

    lines: int
    games: int
    decisions: int
    dispersion: float = 1.0

    @property
    def lines_per_game(self) -> float | None:
        """The estimate of the mean; None if no game has ended."""
        return self.lines / self.games if self.games else None

    @property
    def ci95(self) -> tuple[float, float | None]:
        """The 95 % interval of the mean; its upper end is None if no game has ended."""
        if not self.games:
            return 2 * self.lines / chi2_quantile(0.95, 2), None
        lines = self.lines / self.dispersion
        games = self.games / self.dispersion
        low = 2 * lines / chi2_quantile(0.975, 2 * games + 2)
        high = 2 * lines / chi2_quantile(0.025, 2 * games)
        return low, high


def dispersion(counts: torch.Tensor) -> float:
    """Return the variance of lines / games ended, divided by that of exponential games.

    The variance of the ratio is estimated from the differences between streams. It is corrected
    for a small number of streams by the squared ratio of Student's quantile to the normal
    distribution's, to the second order (Cornish and Fisher 1938). One game with the variance of
    an exponential one is added, so that the result is defined if no game has ended.

    Args:
        counts: Lines and games ended of each stream, shape (streams, 2), int64, on the CPU.

    Returns:
        The quotient of variances; 1 for fewer than four streams. It does not depend on the
        order of the streams, or on the machine.
    """
    streams = len(counts)
    lines, games = counts.sum(0).tolist()
    if streams < 4:
        return 1.0
    # How many more games would end on a stream if it had the common ratio of games to lines.
    residuals = counts[:, 0].double() * (games / max(lines, 1)) - counts[:, 1].double()
    student = 1 + 2.42 / (streams - 2.7)  # The squared ratio of the quantiles.
    variance = math.fsum(residuals.square().tolist()) * streams / (streams - 1) * student
    return (variance + 1) / (int(games) + 1)


def chi2_quantile(probability: float, degrees: float) -> float:
    """Return the quantile of the chi-square distribution for a probability.

    The distribution function, P(X < x) = gammainc(degrees / 2, x / 2), is inverted by
    bisection, to the last bits of a double.

    Args:
        probability: Above 0 and below 1.
        degrees: Degrees of freedom, above 0; they need not be an integer.
    """
    half_degrees = torch.tensor(degrees / 2, dtype=torch.float64)

    def probability_below(value: float) -> float:
        half_value = torch.tensor(value / 2, dtype=torch.float64)
        return float(torch.special.gammainc(half_degrees, half_value))

    # Double the upper end until the quantile is between low and high.
    low = 0.0
    high = float(degrees)
    while probability_below(high) < probability:
        low = high
        high *= 2
    middle = (low + high) / 2
    # In the end no double lies between low and high, and the middle equals one of them.
    while low < middle < high:
        if probability_below(middle) < probability:
            low = middle
        else:
            high = middle
        middle = (low + high) / 2
    return high
