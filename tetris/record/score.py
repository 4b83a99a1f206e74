"""Scores: lines per game with its interval.

A stream of games starts a new game when one ends. The quotient of all lines and the number of
games that ended estimates the mean lines per game. The lengths of long games are very nearly
exponentially distributed. So the number N of games that end within a fixed number of decisions
is nearly a Poisson variable, whose mean is the number of lines divided by the mean lines per
game. The interval is Garwood's ("Fiducial Limits for the Poisson Distribution", Biometrika 28,
1936), which Epstein ("Estimation from Life Test Data", Technometrics 2, 1960) gives for life
tests that stop at a fixed time. The upper end of the lines per game comes from the chi-square
quantile with 2N degrees of freedom, the lower end from the one with 2N + 2. If sampling stops
at the N-th game instead, the lower end is conservative. Short games vary less than exponential
ones. So N and the lines are divided by the dispersion that is estimated from the streams, the
usual quasi-Poisson correction (McCullagh and Nelder, Generalized Linear Models, 1989).
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
        lines: The number of lines removed, including those of unfinished games.
        games: The number of games that ended.
        decisions: The number of pieces placed.
        dispersion: The variance of the estimate, divided by its variance for exponential games;
            see `dispersion`.
    """

    lines: int
    games: int
    decisions: int
    dispersion: float = 1.0

    @property
    def lines_per_game(self) -> float | None:
        """The estimate of the mean lines per game; None if no game has ended."""
        return self.lines / self.games if self.games else None

    @property
    def ci95(self) -> tuple[float, float | None]:
        """The 95 % confidence interval of the mean lines per game.

        Its upper end is None if no game has ended. Then its lower end is one-sided. So is its
        upper end if games have ended, all without a line.
        """
        if not self.games:
            return 2 * self.lines / chi2_quantile(0.95, 2), None
        if not self.lines:
            return 0.0, math.expm1(chi2_quantile(0.95, 2) / (2 * self.games))
        lines = self.lines / self.dispersion
        games = self.games / self.dispersion
        low = 2 * lines / chi2_quantile(0.975, 2 * games + 2)
        high = 2 * lines / chi2_quantile(0.025, 2 * games)
        return low, high


def dispersion(counts: torch.Tensor) -> float:
    """Return the variance of the estimated lines per game, relative to exponential games.

    The result is the variance of lines / games, divided by the variance that this ratio has if
    the lengths of games are exponentially distributed. The variance is estimated from the
    differences between the streams. A factor corrects it for a small number of streams: the
    squared ratio of Student's quantile to the quantile of the normal distribution, to the
    second order (Cornish and Fisher 1938). One game with the variance of an exponential game is
    added, so that the result is defined if no game has ended.

    Args:
        counts: The lines and the ended games of each stream, shape (streams, 2), int64, on the
            CPU.

    Returns:
        The ratio of the variances. For fewer than four streams it is that of games whose lines
        have a geometric distribution: the exponential one in whole lines, which is far wider if
        most games have none. It does not depend on the order of the streams, or on the machine.
    """
    streams = len(counts)
    lines, games = map(int, counts.sum(0).tolist())
    if streams < 4:
        return 1.0 + games / max(lines, 1)
    # The number of games that would end on a stream if it had the ratio of games to lines of
    # all streams together, minus the number that ended.
    residuals = counts[:, 0].double() * (games / max(lines, 1)) - counts[:, 1].double()
    student = 1 + 2.42 / (streams - 2.7)  # The squared ratio of the quantiles.
    variance = math.fsum(residuals.square().tolist()) * streams / (streams - 1) * student
    return (variance + 1) / (games + 1)


def chi2_quantile(probability: float, degrees: float) -> float:
    """Return the quantile of the chi-square distribution for a probability.

    The quantile is the x with P(X < x) = ``probability``. For this distribution P(X < x) is
    gammainc(degrees / 2, x / 2). Bisection finds x to the last bits of a double.

    Args:
        probability: A number above 0 and below 1.
        degrees: The degrees of freedom, a number above 0 that need not be an integer.
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
    # The loop ends when no double lies between low and high, so that the middle is rounded to
    # one of them. Then high is the smallest double with at least the probability.
    while low < middle < high:
        if probability_below(middle) < probability:
            low = middle
        else:
            high = middle
        middle = (low + high) / 2
    return high
