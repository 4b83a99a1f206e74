"""Restarts: how a search begins again, and when no other one is needed."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cem.core.reasons import Reason, Then
from cem.optimizer import CrossEntropyMethod

# Two searches agree if their fitness differs by no more, as a share of the range of fitness.
_SAME = 1e-8


@dataclass(frozen=True)
class Attempt:
    """What a restart policy chooses for a search.

    Attributes:
        population_size: The candidates per generation.
        budget: The most evaluations.
        scale: The first standard deviation, as a share of the standard deviation of the call.
        is_large: Whether it searches all of the space. Only such searches count when restarts
            are compared.
    """

    population_size: int
    budget: int
    scale: float = 1.0
    is_large: bool = True


@dataclass(frozen=True)
class Ended:
    """A search that has ended, why, and the evaluations that it used."""

    attempt: Attempt
    optimizer: CrossEntropyMethod
    reason: Reason
    evaluations: int

    @property
    def violation(self) -> float:
        """By how much the best candidate violates a constraint; 0.0 without constraints."""
        return getattr(self.optimizer, "violation", 0.0)

    @property
    def has_success(self) -> bool:
        """Whether a candidate has a value, or can at least be compared by its violation."""
        return self.violation < math.inf and not math.isnan(self.optimizer.best_fitness)


class RestartPolicy(Protocol):
    """Chooses the next search by those before alone, so that a run can be resumed."""

    def next_attempt(self, ended: Sequence[Ended], left: int, seed: int) -> Attempt:
        """Return the next search.

        Args:
            ended: The searches so far, from the first one in which a candidate had a value.
            left: The evaluations left of the budget of the call.
            seed: The seed of the call, for a policy that draws.
        """


@dataclass(frozen=True)
class Bipop:
    """The restarts of BIPOP-CMA-ES, in two regimes; the one with fewer evaluations is next.

    A search with a large population has twice the last large one and begins at the start of the
    call. A search with a small population begins with a smaller standard deviation and may use
    half the evaluations of the last large one: N. Hansen, Benchmarking a BI-population CMA-ES
    on the BBOB-2009 function testbed, GECCO 2009.
    """

    def next_attempt(self, ended: Sequence[Ended], left: int, seed: int) -> Attempt:
        """Return the next search, which has a large or a small population.

        Both regimes share the evaluations equally: the one that has used fewer is next. The
        first search counts for neither of them. With U and V uniform in [0, 1), the small
        regime has

            population = first * (large / (2 first))^(U^2),    std = first std * 10^(-2 V)

        Args:
            ended: The searches so far, the oldest first.
            left: The evaluations that are left in the budget.
            seed: The seed of U and V.
        """
        first, *restarts = ended
        large = [search for search in restarts if search.attempt.is_large]
        small = [search for search in restarts if not search.attempt.is_large]
        first_size = first.attempt.population_size
        large_size = first_size * 2 ** len(large)
        if _count_evaluations(large) <= _count_evaluations(small):
            return Attempt(2 * large_size, left)
        generator = random.Random(f"restarts {seed}")
        for _ in range(2 * len(small)):
            generator.random()  # Earlier small searches drew these.
        ratio = max(1.0, large_size / first_size / 2)
        small_size = int(first_size * ratio ** (generator.random() ** 2))
        scale = 10 ** (-2 * generator.random())
        last_large = large[-1] if large else first
        budget = max(last_large.evaluations // 2, small_size)
        return Attempt(small_size, budget, scale, is_large=False)


@dataclass(frozen=True)
class Ipop:
    """Every restart doubles the population: A. Auger and N. Hansen, CEC 2005."""

    def next_attempt(self, ended: Sequence[Ended], left: int, seed: int) -> Attempt:
        """Return the next search."""
        return Attempt(2 * ended[-1].attempt.population_size, left)


def _count_evaluations(searches: Sequence[Ended]) -> int:
    return sum(search.evaluations for search in searches)


@dataclass
class Agreement:
    """Counts searches with large populations that have found the same, one after another.

    Attributes:
        enough: How many of them end a call; infinity: they do not end it.
        count: How many there have been so far.
    """

    enough: float
    count: int = 0

    def holds_after(
        self, search: Ended, best_before: float | None, fitness_range: float
    ) -> bool:
        """Count a search that has ended; return whether enough of them agree.

        A search agrees with those before if it came to rest at their best fitness. If it came
        to rest at any other value, better or worse, the count begins again. Only searches with
        a large population are counted, and the first search never ends the call.

        Args:
            search: The search that has ended.
            best_before: The best fitness of the searches before; None for the first search.
            fitness_range: The difference between the best fitness of all searches and the mean
                of the first elites, the unit of differences.
        """
        if search.reason.then is not Then.COMPARE:  # it did not come to rest
            return False
        is_large = search.attempt.is_large
        best = search.optimizer.best_fitness
        is_first = best_before is None
        if best_before is None:
            best_before = best
        agrees = abs(best - best_before) <= _SAME * fitness_range
        if not agrees:
            self.count = 0
        elif is_large:
            self.count += 1
        return agrees and is_large and not is_first and self.count >= self.enough
