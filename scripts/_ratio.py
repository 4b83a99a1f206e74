"""How many times as good one controller is as another: the ratio of two scores, with an exact interval.

Games end at random, so many a line, and their numbers are Poisson. Given how many ended of both controllers
together, those of the first are binomial, with a probability that follows from the lines of both and the
ratio sought (Przyborowski and Wilenski, Biometrika 31, 1940); its interval is that of Clopper and Pearson
(Biometrika 26, 1934).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tetris import Score

METHOD = (
    "exact: games ended are Poisson, those of one controller binomial given those of both (Przyborowski & "
    "Wilenski 1940), with the interval of Clopper & Pearson (1934)"
)

_TAIL = 0.025


@dataclass(frozen=True)
class Ratio:
    """The lines per game of one controller in units of another's.

    Attributes:
        value: The estimate; None where a controller ended no game.
        ci95: Its 95 % interval; the upper end is None where the first controller ended no game.
    """

    value: float | None
    ci95: tuple[float, float | None]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, with the method."""
        return {"value": self.value, "ci95": list(self.ci95), "method": METHOD}


def ratio(score: Score, other: Score) -> Ratio:
    """Return how many times as many lines a game one score says as another.

    Args:
        score: Of the one, with at least one line.
        other: Of the other, measured on its own pieces or on the same ones; with at least one line.

    Raises:
        ValueError: If there is no line.
    """
    if min(score.lines, other.lines) < 1:
        raise ValueError(f"expected scores with lines, got {score.lines} and {other.lines}")
    low, high = binomial_interval(score.games, score.games + other.games)
    exposure = score.lines / other.lines
    value = exposure * other.games / score.games if score.games and other.games else None
    # A share p of the games: as many times the games a line as p / (1 - p) / exposure.
    return Ratio(value, (exposure * (1 - high) / high, exposure * (1 - low) / low if low else None))


def binomial_interval(successes: int, trials: int) -> tuple[float, float]:
    """Return the 95 % interval of Clopper and Pearson for a probability.

    Raises:
        ValueError: If there are more successes than trials.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"expected from 0 to {trials} successes, got {successes}")
    low = _where(lambda p: 1 - _at_most(successes - 1, trials, p) >= _TAIL) if successes else 0.0
    high = _where(lambda p: _at_most(successes, trials, p) <= _TAIL) if successes < trials else 1.0
    return low, high


def _at_most(successes: int, trials: int, probability: float) -> float:
    """Return the probability of at most so many successes."""
    yes, no = math.log(probability), math.log1p(-probability)
    ways = math.lgamma(trials + 1)
    return math.fsum(
        math.exp(ways - math.lgamma(k + 1) - math.lgamma(trials - k + 1) + k * yes + (trials - k) * no)
        for k in range(successes + 1)
    )


def _where(holds: Callable[[float], bool]) -> float:
    """Return from which probability on something holds, by bisection."""
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        if holds(middle):
            high = middle
        else:
            low = middle
    return high
