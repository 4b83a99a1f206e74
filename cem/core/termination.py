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

Without evolution paths a search can collapse: its standard deviations have become negligible
while its mean still moves as on a slope, because its elites lay on one side of the
distribution, which shrank before it arrived. A RuntimeWarning says so.
"""

import math
import warnings
from collections import deque
from itertools import compress
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from cem.core.adaptation import effective, rank_weights
from cem.core.checks import outside
from cem.core.reasons import Reason
from cem.core.snapshot import GenerationRecord
from cem.core.state import Settings

STD = 1e-9  # the least standard deviation, as a share of the first one
# A range of fitness is negligible if it is at most this share of the widest one so far, where
# that is below 1, or of what the best lacks to that of an earlier search.
_NEGLIGIBLE_RANGE = 1e-9
_NEGLIGIBLE_BEHIND = 1e-2
# A search with constraints has diverged if its mean standard deviation is this many times the
# largest of the first ones.
_DIVERGED = 1e4
# A better candidate has to be feasible, too, with constraints: so many times as many
# generations may pass without one.
_CONSTRAINED_PATIENCE = 3
# Of a collapse: the generations between two checks, the largest standard deviation as a share
# of the first one below which a search may have collapsed, its least move as a share of the
# move on a slope, and the weight of the newest generation in the averaged move.
_CHECK_EVERY = 8
_COLLAPSED_STD = 1e-4
_COLLAPSED_MOVE = 0.7
_NEWEST_WEIGHT = 0.1
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
        """Start with empty windows; their lengths depend on dimension and population size.

        Args:
            settings: The constants of the search.
            first_std: The first standard deviation, shape (dim,).
            target: The fitness at which the search is done. None: none is.
            noisy: Whether the objective is noisy; then the search never stagnates.
            earlier: The best fitness of earlier searches. None: there is none.
            xtol: The precision of the parameters that is asked for; 0: none.
            ftol: The precision of the fitness that is asked for; 0: none.
            constrained: Whether there are constraints. Then the search may diverge: where the
                objective falls faster outside than multipliers grow, nothing calls it back.
        """
        dim = len(first_std)
        size = settings.population_size
        # Fitness times this sign is minimised.
        self._sign = -1.0 if settings.maximize else 1.0
        self.target = target
        self._earlier = math.inf if earlier is None else self._sign * earlier
        # Integers keep a margin, so only the standard deviations of the others can be precise.
        integers = settings.config.integers_of(settings.normal)
        self._real = np.delete(np.arange(settings.normal), integers)
        self._has_xtol = xtol > 0.0 and len(self._real) > 0
        self._xtol = xtol
        self._ftol = ftol
        # Shares of the first standard deviation; a dimension of no width counts as one of 1.
        self._first_std = torch.where(first_std > 0, first_std, 1.0).cpu().numpy()
        self._max_first_std = float(self._first_std.max())
        self._min_share = max(STD, 1.001 * settings.config.floor_share)
        self._max_std_mean = math.inf
        # Numbers of generations: the window of the fitness range, and the patience.
        self._window = 10 + math.ceil(30 * dim / size)
        self._patience = math.inf if noisy else 100 + 50 * dim // size
        if constrained:
            self._patience *= _CONSTRAINED_PATIENCE
            self._max_std_mean = _DIVERGED * self._max_first_std
        # The best fitness of recent records, and their generations.
        self._recent_best: deque[float] = deque()
        self._recent_generations: deque[int] = deque()
        self._best = math.inf
        self._improved_at = 0
        self._widest_range = 0.0
        self._collapse = None if settings.config.paths else _Collapse(settings, dim)

    def reasons(self, record: GenerationRecord) -> tuple[Reason, ...]:
        """Return the reasons to stop after a recorded generation; empty if there are none.

        Records must come in order, because the tests compare them with earlier ones, but they
        may skip generations.
        """
        generation = record.generation
        if not generation:
            return ()
        best = self._sign * record.best_fitness
        if best < self._best:
            self._best = best
            self._improved_at = generation
        fitness_range, is_full = self._update_window(record)
        # The largest standard deviation as a share of the first is only computed where needed:
        # for the check of a collapse, or if the mean shows that it may be too small.
        largest_share = math.inf
        collapse = self._collapse
        is_check_due = (
            collapse is not None
            and generation // _CHECK_EVERY > collapse.checked_at // _CHECK_EVERY
        )
        if is_check_due or record.std_mean <= 2 * self._min_share * self._max_first_std:
            largest_share = float((record.std.numpy() / self._first_std).max())
        if collapse is not None and is_check_due:
            collapse.check(record, largest_share)
        # What the best lacks to that of an earlier search is -inf if there was none.
        lacking = best - self._earlier
        negligible_range = max(
            _NEGLIGIBLE_RANGE * min(1.0, self._widest_range), _NEGLIGIBLE_BEHIND * lacking
        )
        is_precise = self._has_xtol and record.std.numpy()[self._real].max() < self._xtol
        patience = max(self._patience, generation // 5)
        # The order is that of _TESTED.
        tests = (
            self.target is not None and best <= self._sign * self.target,
            is_precise,
            is_full and fitness_range <= self._ftol > 0.0,
            largest_share < self._min_share,
            is_full and fitness_range <= negligible_range,
            generation - self._improved_at > patience,
            record.std_mean > self._max_std_mean,
        )
        return tuple(compress(_TESTED, tests))

    def _update_window(self, record: GenerationRecord) -> tuple[float, bool]:
        """Return the range of fitness in the window of recent generations, and if it is full.

        The range covers the best of the window's records, and the elites of the newest one.
        """
        recent_best = self._recent_best
        generations = self._recent_generations
        recent_best.append(record.generation_best)
        generations.append(record.generation)
        # Drop old records as long as the others still reach back to the window's start.
        start = record.generation - self._window + 1
        while len(generations) > 2 and generations[1] <= start:
            recent_best.popleft()
            generations.popleft()
        worst_elite = record.elite_threshold
        fitness_range = max(max(recent_best), worst_elite) - min(min(recent_best), worst_elite)
        self._widest_range = max(self._widest_range, fitness_range)
        return fitness_range, len(generations) > 1 and generations[0] <= start


class _Collapse:
    """A check for a search whose distribution shrank before it arrived.

    It compares the average move of the mean per generation, in standard deviations, with the
    move on a slope.
    """

    def __init__(self, settings: Settings, dim: int) -> None:
        """Compute the move of the mean on a slope, and by chance, in standard deviations.

        On a slope the elites are the best share of a normal distribution, so the mean moves to
        the mean of its tail. By chance, if fitness says nothing, the new mean has the variance
        1 / (effective number of elites) in each of ``dim`` dimensions.
        """
        share = min(settings.num_elites / settings.population_size, 0.999)
        normal = NormalDist()
        self._slope_move = normal.pdf(normal.inv_cdf(1.0 - share)) / share
        weights = rank_weights(settings.num_elites, settings.config.weights)
        self._chance_square = dim / effective(weights)
        # The average of the squared moves, less what they are by chance.
        self._average_square = 0.0
        self._is_decided = False
        # What the last check saw.
        self.checked_at = 0
        self._record: GenerationRecord | None = None
        self._share = 0.0

    def check(self, record: GenerationRecord, share: float) -> None:
        """Average the mean's moves; warn, once, if it still moves after the search collapsed.

        ``share`` is the largest standard deviation as a share of the first one. When it falls
        below ``_COLLAPSED_STD``, the average move decides, once, whether to warn.
        """
        last = self._record
        last_share = self._share
        self.checked_at = record.generation
        self._record = record
        self._share = share
        if last is None or self._is_decided:
            return
        # The move in standard deviations is 0 in a dimension of no width.
        distance = record.mean.numpy() - last.mean.numpy()
        width = last.std.numpy()
        move = np.zeros(len(distance))
        np.divide(distance, width, out=move, where=width > 0)
        square = float(move @ move)
        if not math.isfinite(square):
            square = 0.0
        # It is the sum of the moves of ``count`` generations, which shrink as the standard
        # deviation does. By chance their squares add up, on a slope their lengths do.
        count = max(1, record.generation - last.generation)
        shrinkage = 1.0
        if 0 < last_share < math.inf:
            shrinkage = min(1.0, (share / last_share) ** (1 / count))
        lengths = [shrinkage**i for i in range(count)]
        by_chance = self._chance_square * sum(length * length for length in lengths)
        excess = (square - by_chance) / sum(lengths) ** 2
        weight = 1 - (1 - _NEWEST_WEIGHT) ** count
        self._average_square += weight * (excess - self._average_square)
        if share < _COLLAPSED_STD:
            self._is_decided = True
            if self._average_square > (_COLLAPSED_MOVE * self._slope_move) ** 2:
                warnings.warn(
                    f"the search has collapsed: after {record.generation} generations its "
                    "standard deviation is next to nothing, but its mean still moves by "
                    f"{math.sqrt(self._average_square):.1f} of it; "
                    "take CEMConfig.cma(), or start with a greater std or population",
                    RuntimeWarning,
                    stacklevel=outside(),
                )
