"""An objective with a budget and a target, for any optimiser: it counts and remembers the best."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np


class Spent(Exception):  # noqa: N818 - not an error: a search has reached its target or spent its budget
    """A search ends here."""


class Objective:
    """A function to minimise, of populations in NumPy.

    Attributes:
        dim: Dimensions.
        budget: The most evaluations.
        evaluations: Those made.
        best: The least value found.
        std: The greatest standard deviation of the search, which sets it; None: not told.
    """

    def __init__(
        self, function: Callable[[Any], Any], dim: int, budget: float = math.inf, target: float = -math.inf
    ) -> None:
        """Set the function, (N, dim) to (N,); ``target`` is a value at which the search ends."""
        self.dim = dim
        self.budget = budget
        self.evaluations = 0
        self.best = math.inf
        self.std: float | None = None
        self._function = function
        self._target = target

    def __call__(self, candidates: Any) -> Any:
        """Evaluate candidates, shape (N, dim), float64.

        Raises:
            Spent: If the target is reached or the budget is at its end: candidates beyond it do not count.
        """
        left = self.budget - self.evaluations
        counted = candidates if len(candidates) <= left else candidates[: int(left)]
        values = np.asarray(self._function(np.array(counted, dtype=np.float64, order="C")))
        self.evaluations += len(counted)
        self.best = min(self.best, float(values.min(initial=math.inf)))
        if self.best <= self._target or len(counted) < len(candidates):
            raise Spent
        return values
