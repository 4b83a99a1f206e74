"""When a search has nothing more to gain: the reasons to stop it.

The tests are some of CMA-ES: N. Hansen, The CMA Evolution Strategy: A Tutorial,
arXiv:1604.00772, 2023, appendix B.3.

    "target"         the best fitness is as good as asked for
    "xtol"           every standard deviation is below the precision that was asked for; those
                     of integers do not count, because they keep a margin
    "ftol"           the fitness of the elites, and of the best of recent generations, spans no
                     more than was asked for
    "std"            no standard deviation is above its relative floor, or above a tiny share of
                     the first one
    "fitness_range"  the fitness of the elites, and of the best of recent generations, spans a
                     negligible range, or one negligible beside what the best lacks to that of
                     an earlier search
    "stagnation"     the best fitness has not improved for many generations
    "diverged"       with constraints: the standard deviations are thousands of times the first
                     ones

Without evolution paths a search can collapse: its standard deviations have shrunk to next to
nothing while its mean still moves as on a slope, for its elites lay on one side of the
distribution, which shrank before it arrived. A RuntimeWarning says so.
"""

import math
import warnings
from collections import deque
from itertools import compress
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem.core.adaptation import effective, rank_weights
from cem.core.checks import outside
from cem.core.reasons import Reason
from cem.core.snapshot import GenerationRecord
from cem.core.state import Settings

STD = 1e-9  # the least standard deviation, as a share of the first one
# the least range of the fitness, as a share of the widest one seen where that is below 1
_RANGE = 1e-9
_BEHIND = 1e-2  # the same, as a share of what the best lacks to that of an earlier search
_SHRUNK = 1e-4  # the std at which a collapse is looked for, as a share of the first one
_SLOPE = 0.7  # of the move on a slope: the least move of a search that has collapsed
_NEWEST = 0.1  # the weight of a generation's move in the average one
# the mean standard deviation of a search that has diverged, as a share of the first ones
_DIVERGED = 1e4
_PATIENCE = (
    3  # times as many generations without a better candidate where it also has to be feasible
)
_EVERY = 8  # generations from one look for a collapse to the next
# The reasons that are tested, by priority. Reading a member of an enumeration takes time.
_TESTED = (
    Reason.TARGET,
    Reason.XTOL,
    Reason.FTOL,
    Reason.STD,
    Reason.FITNESS_RANGE,
    Reason.STAGNATION,
    Reason.DIVERGED,
)


class Termination:
    """What a search remembers to find the reasons; its windows are numbers of generations."""

    def __init__(
        self,
        settings: Settings,
        first_std: Tensor,
        target: float | None = None,
        noisy: bool = False,
        earlier: float | None = None,
        xtol: float = 0.0,
        ftol: float = 0.0,
        constrained: bool = False,
    ) -> None:
        """Begin with the first standard deviation, shape (dim,).

        ``earlier`` is the best fitness of earlier searches; None: there is none.

        With noise nothing stagnates. With constraints a search may diverge: where the objective
        falls faster outside than multipliers grow, nothing calls it back. ``xtol`` and ``ftol``
        are the precision that is asked for; 0: none.
        """
        self._xtol, self._ftol = xtol, ftol
        integers = settings.config.integers_of(settings.normal)
        self._real = np.delete(np.arange(settings.normal), integers)
        self.target = target
        self._sign = -1.0 if settings.maximize else 1.0
        self._earlier = math.inf if earlier is None else self._sign * earlier
        self._first = torch.where(first_std > 0, first_std, 1.0).cpu().numpy()
        self._widest_std = float(self._first.max())
        dim, size = len(first_std), settings.population_size
        self._least = max(STD, 1.001 * settings.config.floor_share)
        self._window = 10 + math.ceil(30 * dim / size)
        self._patience = math.inf if noisy else 100 + 50 * dim // size
        self._most = math.inf
        if constrained:
            self._patience *= _PATIENCE
            self._most = _DIVERGED * self._widest_std
        self._recent: deque[float] = deque()  # the best of the generations of the window
        self._seen: deque[int] = deque()  # and these
        self._best, self._improved_at, self._widest = math.inf, 0, 0.0
        self._collapse = None if settings.config.paths else _Collapse(settings, dim)

    def reasons(self, record: GenerationRecord) -> tuple[Reason, ...]:
        """Return the reasons to stop after a generation, an empty tuple if there are none."""
        generation, threshold = record.generation, record.elite_threshold
        if not generation:
            return ()
        sign = self._sign
        best = sign * record.best_fitness
        if best < self._best:
            self._best = best
            self._improved_at = generation
        recent, seen, begun = self._recent, self._seen, generation - self._window + 1
        recent.append(record.generation_best)
        seen.append(generation)
        while len(seen) > 2 and seen[1] <= begun:
            recent.popleft()
            seen.popleft()
        spread = max(max(recent), threshold) - min(min(recent), threshold)
        self._widest = max(self._widest, spread)
        full = len(seen) > 1 and seen[0] <= begun
        share = math.inf  # where the mean alone shows that it is above the least one
        looks = (
            self._collapse is not None
            and generation // _EVERY > self._collapse.before[0] // _EVERY
        )
        if looks or record.std_mean <= 2 * self._least * self._widest_std:
            share = float((record.std.numpy() / self._first).max())
        if self._collapse is not None and looks:
            self._collapse.look(record, share)
        has_real = self._xtol and len(self._real)
        behind = best - self._earlier  # -inf for a first search
        negligible = max(_RANGE * min(1.0, self._widest), _BEHIND * behind)
        is_precise = has_real and record.std.numpy()[self._real].max() < self._xtol
        stagnates_after = max(self._patience, generation // 5)
        # In the order of _TESTED.
        tests = (
            self.target is not None and best <= sign * self.target,
            is_precise,
            full and spread <= self._ftol > 0.0,
            share < self._least,
            full and spread <= negligible,
            generation - self._improved_at > stagnates_after,
            record.std_mean > self._most,
        )
        return tuple(compress(_TESTED, tests))


class _Collapse:
    """The average move of the mean, in standard deviations, beside that on a slope."""

    def __init__(self, settings: Settings, dim: int) -> None:
        # The mean of the best share of a normal distribution: how far a generation moves on a
        # slope.
        share = min(settings.num_elites / settings.population_size, 0.999)
        normal = NormalDist()
        self._slope = normal.pdf(normal.inv_cdf(1.0 - share)) / share
        # Of elites that say nothing the mean has a variance of 1 / elites in every dimension.
        self._chance = dim / effective(
            rank_weights(settings.num_elites, settings.config.weights)
        )
        self._move = 0.0  # the squared move, averaged
        self._shrunk = False  # whether it was compared
        self.before: tuple[int, Any, Any, float] = 0, None, None, 0.0  # what the last look saw

    def look(self, record: GenerationRecord, share: float) -> None:
        """Follow a generation; warn, once, if the search has collapsed."""
        generation, mean, std = record.generation, record.mean.numpy(), record.std.numpy()
        last, old, width, old_share = self.before
        self.before = (generation, mean, std, share)
        if old is None or self._shrunk:
            return
        moves = np.zeros(len(mean))  # none in a dimension of no width
        np.divide(mean - old, width, out=moves, where=width > 0)
        square = float(moves @ moves)
        square = square if math.isfinite(square) else 0.0
        # Several generations add up their moves, which shrink as the standard deviation did.
        count = max(1, generation - last)
        shrink = (
            min(1.0, (share / old_share) ** (1 / count)) if 0 < old_share < math.inf else 1.0
        )
        lengths = [shrink**i for i in range(count)]
        excess = (square - self._chance * sum(x * x for x in lengths)) / sum(lengths) ** 2
        self._move += (1 - (1 - _NEWEST) ** count) * (excess - self._move)
        if share < _SHRUNK:
            self._shrunk = True
            if self._move > (_SLOPE * self._slope) ** 2:
                warnings.warn(
                    f"the search has collapsed: after {generation} generations its standard "
                    "deviation is next to nothing, but its mean still moves by "
                    f"{math.sqrt(self._move):.1f} of it; "
                    "take CEMConfig.cma(), or start with a greater std or population",
                    RuntimeWarning,
                    stacklevel=outside(),
                )
