"""Restarts: how a search begins again, and when no other one is needed."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cem.core.reasons import Reason, Then
from cem.optimizer import CrossEntropyMethod

# Two searches found the same if they differ by no more, as a share of the range of fitness.
_SAME = 1e-8


@dataclass(frozen=True)
class Attempt:
    """One search of several.

    Attributes:
        population_size: The candidates per generation.
        budget: The most evaluations.
        scale: The first standard deviation, as a share of the one that the call has.
        is_large: Whether it looks at the whole of the space, and so counts where restarts are
            compared.
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
    """The restarts of BIPOP-CMA-ES, in two regimes; that of fewer evaluations is next.

    A large population is twice the last large one and begins at the start. A small one begins
    with a smaller standard deviation and may use half the evaluations of the last large one: N.
    Hansen, Benchmarking a BI-population CMA-ES on the BBOB-2009 function testbed, GECCO 2009.
    """

    def next_attempt(self, ended: Sequence[Ended], left: int, seed: int) -> Attempt:
        """Return the next search."""
        first, *restarts = ended
        large = [search for search in restarts if search.attempt.is_large]
        small = [search for search in restarts if not search.attempt.is_large]
        first_size = first.attempt.population_size
        size = first_size * 2 ** len(large)  # of the last large population
        if _count_evaluations(large) <= _count_evaluations(small):
            return Attempt(2 * size, left)
        generator = random.Random(f"restarts {seed}")
        for _ in range(2 * len(small)):
            generator.random()  # Earlier small searches drew these.
        ratio = max(1.0, size / first_size / 2)
        small_size = int(first_size * ratio ** (generator.random() ** 2))
        scale = 10 ** (-2 * generator.random())
        last_large = [first, *large][-1]
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
    """Counts restarts with large populations that found the same, one after the other.

    Attributes:
        enough: How many of them end a call; infinity: it does not end by that.
        count: How many there were so far.
    """

    enough: float
    count: int = 0

    def holds_after(
        self, search: Ended, best_before: float | None, fitness_range: float
    ) -> bool:
        """Count a search; return whether enough agree.

        Args:
            search: The search that has ended.
            best_before: The best fitness of the searches before; None for the first one.
            fitness_range: What the best fitness is better than the mean of the first elites.
        """
        if search.reason.then is not Then.COMPARE:
            return False
        best = search.optimizer.best_fitness
        earlier = best if best_before is None else best_before
        is_same = abs(best - earlier) <= _SAME * fitness_range
        if not is_same:
            self.count = 0
        elif search.attempt.is_large:
            self.count += 1
        is_large_restart = best_before is not None and search.attempt.is_large
        return is_same and is_large_restart and self.count >= self.enough
