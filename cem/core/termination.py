"""Decides when a search has nothing more to gain, and for which reasons it stops.

The tests are some of CMA-ES: N. Hansen, The CMA Evolution Strategy: A Tutorial,
arXiv:1604.00772, 2023, appendix B.3.

    "target"         the best fitness is as good as asked for
    "xtol"           every standard deviation is below the requested precision; those of
                     integers do not count, because they have a lower limit
    "ftol"           the fitness of the elites, and the best fitness of recent generations,
                     differ by no more than the requested precision
    "std"            every standard deviation is at its relative floor, or is a tiny fraction of
                     the first one
    "fitness_range"  the fitness of the elites, and the best fitness of recent generations,
                     differ by a negligible amount; the difference is also negligible if it is
                     small compared with the gap to the best fitness of an earlier search
    "stagnation"     the best fitness has not improved for many generations
    "diverged"       with constraints: the standard deviations are thousands of times the first
                     ones

Without evolution paths a search can collapse: on a slope all elites lie on one side of the
distribution, which may shrink before it arrives at an optimum. The standard deviations are then
negligible, but the mean still moves. In this case a RuntimeWarning is issued.
"""

import math
from collections import deque
from itertools import compress
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from cem.core.adaptation import effective, rank_weights
from cem.core.checks import warn
from cem.core.reasons import Reason
from cem.core.snapshot import GenerationRecord
from cem.core.state import Settings

STD = 1e-9  # the smallest standard deviation, as a fraction of the first one
# A range of fitness is negligible if it is at most _NEGLIGIBLE_RANGE times the widest range so
# far (at most 1), or _NEGLIGIBLE_BEHIND times the gap to the best fitness of an earlier search.
_NEGLIGIBLE_RANGE = 1e-9
_NEGLIGIBLE_BEHIND = 1e-2
# A search with constraints has diverged if its mean standard deviation is this many times the
# largest of the first ones.
_DIVERGED = 1e4
# With constraints a better candidate must also be feasible. So the search may go this many
# times as many generations without an improvement.
_CONSTRAINED_PATIENCE = 3
_CHECK_EVERY = 8  # generations between two checks for a collapse
# A search has collapsed if every standard deviation is below this fraction of the first one,
# while the mean still moves by at least this fraction of its move on a slope.
_COLLAPSED_STD = 1e-4
_COLLAPSED_MOVE = 0.7
_NEWEST_WEIGHT = 0.1  # the weight of the newest generation in the average move
# The reasons that are tested, by priority. They are in a tuple, because access to the members
# of an enumeration takes time.
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
    """Finds the reasons to stop, from what it remembers of recent generations."""

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
        """Set the limits of the tests, and begin without any records.

        Args:
            settings: The constants of the search.
            first_std: The first standard deviation, shape (dim,).
            target: The fitness at which the search stops, or None.
            noisy: Whether the objective is noisy. Then the search never stops for stagnation.
            earlier: The best fitness of earlier searches, or None.
            xtol: The requested precision of the parameters; 0 means none.
            ftol: The requested precision of the fitness; 0 means none.
            constrained: Whether there are constraints. Then the search stops if it diverges,
                which happens if the objective outside the feasible region decreases faster than
                the penalty grows.
        """
        dim = len(first_std)
        size = settings.population_size
        # The search minimises the fitness times this sign.
        self._sign = -1.0 if settings.maximize else 1.0
        self.target = target
        # The best fitness of earlier searches with this sign; inf if there are none.
        self._earlier = math.inf if earlier is None else self._sign * earlier
        self._ftol = ftol
        self._set_precision(settings, xtol)
        self._set_std_limits(settings, first_std, constrained)
        # The number of generations for which the search may go on without an improvement. It is
        # larger for many parameters and for small populations.
        self._patience = math.inf if noisy else 100 + 50 * dim // size
        if constrained:
            self._patience *= _CONSTRAINED_PATIENCE
        self._best = math.inf
        self._improved_at = 0
        # As many generations as in Hansen's tutorial, appendix B.3, but integers do not count:
        # they converge soon, and a restart then finds more than further generations.
        self._window = _Window(10 + math.ceil(30 * len(self._real) / size))
        self._collapse = None if settings.config.paths else _Collapse(settings, dim)

    def _set_precision(self, settings: Settings, xtol: float) -> None:
        """Set the requested precision, and the parameters that are tested by it.

        Integers are not tested, because their standard deviations have a lower limit.
        """
        integers = settings.config.integers_of(settings.normal)
        self._real = np.delete(np.arange(settings.normal), integers)
        self._xtol = xtol if len(self._real) > 0 else 0.0

    def _set_std_limits(self, settings: Settings, first_std: Tensor, constrained: bool) -> None:
        """Set the least share and the greatest mean of the standard deviations.

        A share is a standard deviation divided by the first one. So that the quotient is
        finite, a first standard deviation of 0 is replaced by 1.
        """
        self._first_std = torch.where(first_std > 0, first_std, 1.0).cpu().numpy()
        self._max_first_std = float(self._first_std.max())
        self._min_share = max(STD, 1.001 * settings.config.floor_share)
        self._max_std_mean = _DIVERGED * self._max_first_std if constrained else math.inf

    def reasons(self, record: GenerationRecord) -> tuple[Reason, ...]:
        """Return the reasons to stop after a recorded generation; empty if there are none.

        Records are compared with earlier ones, so they must be passed in order, but they may
        skip generations.
        """
        generation = record.generation
        # The record before the first generation has no fitness.
        if not generation:
            return ()
        best = self._sign * record.best_fitness
        if best < self._best:
            self._best = best
            self._improved_at = generation
        fitness_range, window_is_full = self._window.add(record)
        largest_share = self._find_largest_share(record)
        negligible_range = self._find_negligible_range(best)
        is_precise = self._xtol > 0.0 and record.std.numpy()[self._real].max() < self._xtol
        # A long search may go on without an improvement for a fifth of its generations.
        patience = max(self._patience, generation // 5)

        # The tests are in the order of the reasons in _TESTED: target, xtol, ftol, std, fitness
        # range, stagnation, divergence. `compress` selects the reasons whose test is True.
        tests = (
            self.target is not None and best <= self._sign * self.target,
            is_precise,
            window_is_full and self._ftol > 0.0 and fitness_range <= self._ftol,
            largest_share < self._min_share,
            window_is_full and fitness_range <= negligible_range,
            generation - self._improved_at > patience,
            record.std_mean > self._max_std_mean,
        )
        return tuple(compress(_TESTED, tests))

    def _find_negligible_range(self, best: float) -> float:
        """Return the widest range of fitness that is negligible for a search with this best."""
        # How much worse this search is than the best earlier one; -inf if there is none.
        gap = best - self._earlier
        widest_range = min(1.0, self._window.widest_range)
        return max(_NEGLIGIBLE_RANGE * widest_range, _NEGLIGIBLE_BEHIND * gap)

    def _find_largest_share(self, record: GenerationRecord) -> float:
        """Return the largest share, and check for a collapse if it is time to do so.

        A share is a standard deviation divided by the first one. The largest share is slow to
        compute. So it is only computed for a check, or if the mean of the standard deviations
        is so small that the largest share may be below its limit. Otherwise the result is inf.
        """
        largest_share = math.inf
        collapse = self._collapse
        is_time_to_check = (
            collapse is not None
            and record.generation // _CHECK_EVERY > collapse.checked_at // _CHECK_EVERY
        )
        if is_time_to_check or record.std_mean <= 2 * self._min_share * self._max_first_std:
            largest_share = float((record.std.numpy() / self._first_std).max())
        if collapse is not None and is_time_to_check:
            collapse.check(record, largest_share)
        return largest_share


class _Window:
    """The fitness of recent generations, of which only some may have a record.

    Attributes:
        widest_range: The widest range of fitness that the window has had.
    """

    def __init__(self, size: int) -> None:
        """Begin without records; the window is the last ``size`` generations."""
        self._size = size
        # The best fitness in each record of the window, and the generations of the records.
        self._best: deque[float] = deque()
        self._generations: deque[int] = deque()
        self.widest_range = 0.0

    def add(self, record: GenerationRecord) -> tuple[float, bool]:
        """Add the record of a generation, and drop records that are too old.

        Returns:
            The range of the best fitness of every record in the window and of the fitness of
                the newest record's elites.
            Whether the records cover the whole window.
        """
        recent_best = self._best
        generations = self._generations
        recent_best.append(record.generation_best)
        generations.append(record.generation)
        # The window begins at generation `start`. The records cover all of it if the oldest
        # one is not later. As long as this is also true of the second one, drop the oldest.
        start = record.generation - self._size + 1
        while len(generations) > 2 and generations[1] <= start:
            recent_best.popleft()
            generations.popleft()
        worst_elite = record.elite_threshold
        fitness_range = max(max(recent_best), worst_elite) - min(min(recent_best), worst_elite)
        self.widest_range = max(self.widest_range, fitness_range)
        window_is_full = len(generations) > 1 and generations[0] <= start
        return fitness_range, window_is_full


class _Collapse:
    """A check for a search whose distribution shrank before it arrived.

    It compares the average move of the mean per generation, in standard deviations, with the
    move of a search on a slope.
    """

    def __init__(self, settings: Settings, dim: int) -> None:
        """Compute how far the mean of a search moves per generation, on a slope and by chance.

        Moves are measured in standard deviations. On a slope the elites are the tail of a
        normal distribution, so the mean moves to the mean of this tail. If the fitness is
        random, the mean of the elites has the variance 1 / (effective number of elites) in each
        of ``dim`` dimensions.
        """
        # With a share of 1 the quantile below would be infinite.
        elite_share = min(settings.num_elites / settings.population_size, 0.999)
        normal = NormalDist()
        # The tail above this quantile has the share of the elites. Its mean is the move.
        quantile = normal.inv_cdf(1.0 - elite_share)
        self._slope_move = normal.pdf(quantile) / elite_share
        weights = rank_weights(settings.num_elites, settings.config.weights)
        self._chance_square = dim / effective(weights)
        # The average of the squared moves, minus the squared move by chance.
        self._average_square = 0.0
        self._is_decided = False  # whether the test for a collapse has been made
        # The generation, the record and the largest share of the last check. A share is a
        # standard deviation divided by the first one.
        self.checked_at = 0
        self._record: GenerationRecord | None = None
        self._share = 0.0

    def check(self, record: GenerationRecord, share: float) -> None:
        """Update the average move of the mean, and warn if the search has collapsed.

        The test is made once, when ``share`` falls below ``_COLLAPSED_STD``. The search has
        collapsed if its mean still moves almost as far as on a slope.

        Args:
            record: The record of the newest generation.
            share: The largest ratio of a standard deviation to the first one.
        """
        last_record = self._record
        last_share = self._share
        self.checked_at = record.generation
        self._record = record
        self._share = share
        if last_record is None or self._is_decided:
            return

        # The mean has made `count` moves since the last check, one per generation. Each move is
        # shorter than the one before by the factor by which the standard deviation shrinks.
        count = max(1, record.generation - last_record.generation)
        shrinkage = 1.0
        if 0 < last_share < math.inf:
            shrinkage = min(1.0, (share / last_share) ** (1 / count))
        # The squared move of one generation, without what chance explains of it.
        excess = self._find_excess(_squared_move(last_record, record), count, shrinkage)
        # An exponential moving average, in which this check stands for ``count`` generations.
        weight = 1 - (1 - _NEWEST_WEIGHT) ** count
        self._average_square += weight * (excess - self._average_square)

        if share < _COLLAPSED_STD:
            self._is_decided = True
            if self._average_square > (_COLLAPSED_MOVE * self._slope_move) ** 2:
                warn(
                    f"the search has collapsed: after {record.generation} generations its "
                    "standard deviation is next to nothing, but its mean still moves by "
                    f"{math.sqrt(self._average_square):.1f} of it; "
                    "take CEMConfig.cma(), or start with a greater std or population"
                )

    def _find_excess(self, squared_move: float, count: int, shrinkage: float) -> float:
        """Return the squared move of one generation, without what chance explains of it.

        Args:
            squared_move: The squared distance that the mean has moved in ``count`` generations.
            count: The number of generations.
            shrinkage: The length of a move divided by the length of the move before it.
        """
        # The lengths of the moves, relative to the first one. If the fitness is random, their
        # squares add up. On a slope all moves have the same direction, so the lengths add up.
        lengths = [shrinkage**i for i in range(count)]
        by_chance = self._chance_square * sum(length * length for length in lengths)
        return (squared_move - by_chance) / sum(lengths) ** 2


def _squared_move(old: GenerationRecord, new: GenerationRecord) -> float:
    """Return the squared length of the mean's move, in units of the old standard deviations.

    A dimension with a standard deviation of 0 does not count. If the result is not finite, it
    is replaced by 0.
    """
    distance = new.unbounded_mean.numpy() - old.unbounded_mean.numpy()
    width = old.std.numpy()
    move = np.zeros(len(distance))
    np.divide(distance, width, out=move, where=width > 0)
    square = float(move @ move)
    return square if math.isfinite(square) else 0.0
