"""When a search has nothing more to gain: the reasons to stop it.

The tests are some of CMA-ES: N. Hansen, The CMA Evolution Strategy: A Tutorial, arXiv:1604.00772, 2023,
appendix B.3.

    "target"         the best fitness is as good as asked for
    "std"            no standard deviation is above its relative floor, or above a tiny share of the first one
    "fitness_range"  the fitness of the elites, and of the best of recent generations, spans next to nothing
    "stagnation"     the best fitness has not improved for many generations
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

STD = 1e-9
"""The least standard deviation, as a share of the first one."""
FITNESS_RANGE = 1e-9


@dataclass
class Termination:
    """The history of a search that the reasons need.

    Attributes:
        dim: d.
        population_size: N.
        maximize: Whether a greater fitness is better.
        target: The fitness asked for; None: none.
        least_std: The relative floor of the standard deviations, as a share of the first ones.
    """

    dim: int
    population_size: int
    maximize: bool
    target: float | None = None
    least_std: float = 0.0

    def __post_init__(self) -> None:
        """Start without history."""
        self._recent: deque[float] = deque(maxlen=10 + math.ceil(30 * self.dim / self.population_size))
        self._best = math.inf
        self._improved_at = 0
        self._patience = 100 + 50 * self.dim // self.population_size

    def reasons(
        self,
        generation: int,
        best: float,
        generation_best: float,
        threshold: float,
        std_share: float,
    ) -> tuple[str, ...]:
        """Return the reasons to stop after a generation, an empty tuple if there are none.

        Args:
            generation: The generations told.
            best: The best fitness so far.
            generation_best: The best fitness of the last generation.
            threshold: The worst fitness of its elites.
            std_share: The greatest standard deviation of a dimension, as a share of its first one.
        """
        sign = -1.0 if self.maximize else 1.0
        if sign * best < self._best:
            self._best, self._improved_at = sign * best, generation
        self._recent.append(generation_best)
        spread = max(*self._recent, threshold) - min(*self._recent, threshold)
        found = {
            "target": self.target is not None and sign * best <= sign * self.target,
            "std": std_share < max(STD, 1.001 * self.least_std),
            "fitness_range": len(self._recent) == self._recent.maxlen and spread < FITNESS_RANGE,
            "stagnation": generation - self._improved_at > max(self._patience, generation // 5),
        }
        return tuple(reason for reason, holds in found.items() if holds)
