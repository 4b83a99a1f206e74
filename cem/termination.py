"""When a search has nothing more to gain: the reasons to stop it.

The tests are some of CMA-ES: N. Hansen, The CMA Evolution Strategy: A Tutorial, arXiv:1604.00772, 2023,
appendix B.3.

    "target"         the best fitness is as good as asked for
    "std"            no standard deviation is above its relative floor, or above a tiny share of the first one
    "fitness_range"  the fitness of the elites, and of the best of recent generations, spans next to nothing
    "stagnation"     the best fitness has not improved for many generations

A search whose standard deviations have shrunk to next to nothing while its mean still moves as on a slope
has collapsed: its elites lay on one side of the distribution, which shrank before it arrived. A
RuntimeWarning says so.
"""

from __future__ import annotations

import math
import warnings
from collections import deque
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from torch import Tensor

from cem._checks import outside
from cem.adaptation import effective

STD = 1e-9
"""The least standard deviation, as a share of the first one."""
FITNESS_RANGE = 1e-9
"""The least range of the fitness, as a share of the widest one seen where that is below 1."""
COLLAPSE_STD, COLLAPSE_MOVE = 1e-4, 0.7
"""The std at which a collapse is looked for, of the first one; the move that tells it, of that on a slope."""
_NEWEST = 0.1  # the weight of a generation's move in the average one


@dataclass
class Termination:
    """The history of a search that the reasons need.

    Attributes:
        dim: d.
        population_size: N.
        maximize: Whether a greater fitness is better.
        target: The fitness asked for; None: none.
        least_std: The relative floor of the standard deviations, as a share of the first ones.
        elite_fraction: The share of the population that are elites.
        effective_elites: ``(sum w)^2 / sum w^2`` over the elites' weights; None: they are equal.
    """

    dim: int
    population_size: int
    maximize: bool
    target: float | None = None
    least_std: float = 0.0
    elite_fraction: float = 0.2
    effective_elites: float | None = None

    @classmethod
    def of(cls, search: Any, target: float | None = None) -> Termination:
        """Return the history of a search that begins, a ``CrossEntropyMethod``."""
        weights = search.state.weights
        return cls(
            search.dim,
            search.population_size,
            search.maximize,
            target,
            search.relative_std_floor,
            search.num_elites / search.population_size,
            None if weights is None else effective(weights.tolist()),
        )

    def __post_init__(self) -> None:
        """Start without history."""
        normal = NormalDist()
        # The mean of the best share of a normal distribution: how far a generation moves on a slope.
        share = min(self.elite_fraction, 0.999)
        self._slope = normal.pdf(normal.inv_cdf(1.0 - share)) / share
        self._recent: deque[float] = deque(maxlen=10 + math.ceil(30 * self.dim / self.population_size))
        self._best = math.inf
        self._widest = 0.0
        self._improved_at = 0
        self._move, self._shrunk = 0.0, False  # the mean's squared move, averaged; below COLLAPSE_STD
        self._last = (0, 1.0)  # generation and std_share of the last call
        self._patience = 100 + 50 * self.dim // self.population_size

    def reasons(
        self,
        generation: int,
        best: float,
        generation_best: float,
        threshold: float,
        std_share: float,
        shift: float = 0.0,
    ) -> tuple[str, ...]:
        """Return the reasons to stop after a generation, an empty tuple if there are none.

        Args:
            generation: The generations told.
            best: The best fitness so far.
            generation_best: The best fitness of the last generation.
            threshold: The worst fitness of its elites.
            std_share: The greatest standard deviation of a dimension, as a share of its first one.
            shift: The move of the mean since the last call, in standard deviations of then; see
                ``shift_of``.
        """
        sign = -1.0 if self.maximize else 1.0
        if sign * best < self._best:
            self._best, self._improved_at = sign * best, generation
        self._recent.append(generation_best)
        spread = max(*self._recent, threshold) - min(*self._recent, threshold)
        self._widest = max(self._widest, spread)
        found = {
            "target": self.target is not None and sign * best <= sign * self.target,
            "std": std_share < max(STD, 1.001 * self.least_std),
            "fitness_range": len(self._recent) == self._recent.maxlen
            and spread <= FITNESS_RANGE * min(1.0, self._widest),
            "stagnation": generation - self._improved_at > max(self._patience, generation // 5),
        }
        # Of elites that say nothing the mean has a variance of 1 / elites in every dimension. Several
        # generations add up their moves, which shrink as the standard deviation did.
        elites = self.effective_elites or self.elite_fraction * self.population_size
        (before, share), self._last = self._last, (generation, std_share)
        count = max(1, generation - before)
        shrink = min(1.0, (std_share / share) ** (1 / count)) if 0 < share < math.inf else 1.0
        lengths = [shrink**i for i in range(count)]
        excess = (shift**2 - self.dim / elites * sum(x * x for x in lengths)) / sum(lengths) ** 2
        self._move += (1 - (1 - _NEWEST) ** count) * (excess - self._move)
        if std_share < COLLAPSE_STD and not self._shrunk:
            self._shrunk = True
            if self._move > (COLLAPSE_MOVE * self._slope) ** 2:
                self._warn(generation)
        return tuple(reason for reason, holds in found.items() if holds)

    def _warn(self, generation: int) -> None:
        warnings.warn(
            f"the search has collapsed: after {generation} generations its standard deviation is next to "
            f"nothing, but its mean still moves by {math.sqrt(self._move):.1f} of it each time; start with "
            "a greater std or population, restart, or take the default variance_about and std_smoothing",
            RuntimeWarning,
            stacklevel=outside(),
        )


def share_of(std: Tensor, first: Tensor) -> float:
    """Return the greatest standard deviation as a share of the first one.

    Args:
        std: The standard deviations, shape (dim,).
        first: Those at the start. The share of a dimension of 0 that was given an extra variance is infinite.
    """
    moving = std > 0
    return float((std[moving] / first[moving]).max()) if bool(moving.any()) else 0.0


def shift_of(before: tuple[Tensor, Tensor] | None, mean: Tensor) -> float:
    """Return the length of a move of the mean, in standard deviations of before.

    Args:
        before: Mean and standard deviation before, shape (dim,); None: no move.
        mean: The mean.
    """
    if before is None:
        return 0.0
    old, std = before
    moving = std > 0
    return float(((mean - old)[moving] / std[moving]).norm())
