"""Restarts: what the next search is, and when no further search is needed."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cem.core.reasons import Reason, Then
from cem.optimizer import CrossEntropyMethod

# Two searches agree if their best fitness differs by no more, relative to the range of fitness.
_SAME = 1e-8


@dataclass(frozen=True)
class Attempt:
    """The choices of a restart policy for one search.

    Attributes:
        population_size: The number of candidates per generation.
        budget: The maximum number of evaluations.
        scale: The first standard deviation, relative to that of the call.
        is_large: Whether the search covers the whole space. Only such searches can end the call
            by their agreement.
    """

    population_size: int
    budget: int
    scale: float = 1.0
    is_large: bool = True


@dataclass(frozen=True)
class Ended:
    """A search that has ended, with its reason to end and its number of evaluations."""

    attempt: Attempt
    optimizer: CrossEntropyMethod
    reason: Reason
    evaluations: int

    @property
    def violation(self) -> float:
        """The largest violation of a constraint by the best candidate, or 0.0."""
        return getattr(self.optimizer, "violation", 0.0)

    @property
    def has_success(self) -> bool:
        """Whether a candidate did not fail, so that it can be compared with others.

        With constraints an infeasible candidate is compared by its violation.
        """
        return self.violation < math.inf and not math.isnan(self.optimizer.best_fitness)


class RestartPolicy(Protocol):
    """Chooses the next search.

    The choice must depend on the arguments alone: a resumed run then repeats it.
    """

    def next_attempt(self, ended: Sequence[Ended], left: int, seed: int) -> Attempt:
        """Return the next search.

        Args:
            ended: The searches so far, without those before the first success.
            left: The remaining evaluations of the budget.
            seed: The seed of the call, for a policy that makes random choices.
        """


@dataclass(frozen=True)
class Bipop:
    """The restarts of BIPOP-CMA-ES, which have either a large or a small population.

    A large search doubles the population of the last large one, and begins at the start of the
    call. A small search begins with a smaller standard deviation, and may use half the
    evaluations of the last large one: N. Hansen, Benchmarking a BI-population CMA-ES on the
    BBOB-2009 function testbed, GECCO 2009.
    """

    def next_attempt(self, ended: Sequence[Ended], left: int, seed: int) -> Attempt:
        """Return the settings of the next search, which has a large or a small population.

        The next search is of the kind that has used fewer evaluations so far. The first search
        belongs to neither kind. A large search has twice the population of the last large one.
        With U and V uniform in [0, 1), a small search has

            population = first * (large / (2 first))^(U^2),    std = first std * 10^(-2 V)

        Here ``first`` is the population of the first search, and ``large`` that of the last
        large search.

        Args:
            ended: The searches so far, the oldest first.
            left: The remaining evaluations of the budget.
            seed: The seed of U and V.
        """
        first, *restarts = ended
        large = [search for search in restarts if search.attempt.is_large]
        small = [search for search in restarts if not search.attempt.is_large]
        first_size = first.attempt.population_size
        large_size = first_size * 2 ** len(large)
        if _count_evaluations(large) <= _count_evaluations(small):
            return Attempt(2 * large_size, budget=left)
        generator = random.Random(f"restarts {seed}")
        for _ in range(2 * len(small)):
            generator.random()  # Skip U and V of the earlier small searches.
        u = generator.random()
        v = generator.random()
        ratio = max(1.0, large_size / first_size / 2)
        small_size = int(first_size * ratio ** (u**2))
        scale = 10 ** (-2 * v)
        last_large = large[-1] if large else first
        budget = max(last_large.evaluations // 2, small_size)
        return Attempt(small_size, budget, scale, is_large=False)


@dataclass(frozen=True)
class Ipop:
    """The restarts of IPOP-CMA-ES, which double the population: Auger and Hansen, CEC 2005."""

    def next_attempt(self, ended: Sequence[Ended], left: int, seed: int) -> Attempt:
        """Return the next search, with twice the population of the last one."""
        return Attempt(2 * ended[-1].attempt.population_size, left)


def _count_evaluations(searches: Sequence[Ended]) -> int:
    return sum(search.evaluations for search in searches)


@dataclass
class Agreement:
    """Counts consecutive large searches that converge to the same best fitness.

    Attributes:
        enough: The number of such searches that ends a call; infinity: no number does.
        count: The number of such searches so far.
    """

    enough: float
    count: int = 0

    def holds_after(
        self, search: Ended, best_before: float | None, fitness_range: float
    ) -> bool:
        """Count a search that has ended, and return whether enough searches agree.

        A search agrees with the earlier ones if it converged to their best fitness. The count
        changes by these rules:

        * A large search that agrees is counted. The first search is counted, too, but the
          result for it is always False.
        * A search that converged to any other value, better or worse, sets the count to 0.
        * All other searches leave the count unchanged.

        Args:
            search: The search that has ended.
            best_before: The best fitness of all earlier searches; None for the first search.
            fitness_range: The unit in which fitness is compared: the difference between the
                best fitness of all searches and the mean fitness of the first elites.
        """
        # ``reason.then`` says what follows: only a search that converged is compared.
        has_converged = search.reason.then is Then.COMPARE
        if not has_converged:
            return False
        is_large = search.attempt.is_large
        is_first = best_before is None
        best = search.optimizer.best_fitness
        # The first search agrees with itself.
        earlier_best = best if best_before is None else best_before
        agrees = abs(best - earlier_best) <= _SAME * fitness_range
        if not agrees:
            self.count = 0
        elif is_large:
            self.count += 1
        return agrees and is_large and not is_first and self.count >= self.enough
