"""The probability of a rare event, by importance sampling from a searched distribution."""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from cem.core.checks import Seed, as_real, check_real, draw_seed, outside
from cem.core.evaluation import call_with_copies
from cem.rare.distributions import IndependentDistribution
from cem.run.evaluator import Evaluator, Workers
from kernels.support.checks import check_integer

_Member = TypeVar("_Member", bound=IndependentDistribution)
_ELITE_SHARE = 0.1  # of the scores, above the level that they give
_MOST_LEVELS = 50
_MOST_POPULATIONS = 10  # drawn for one level
_LEAST_ELITES = 30  # the effective number of elites of a level
_LEAST_SAMPLES = 100  # the effective number of final samples in the event
_BATCH = 1 << 16  # the final samples drawn at once
_GREATEST_TAIL_INDEX = 0.5  # of weights with a finite variance
_NORMAL_QUANTILE = 1.959964  # the standard normal one of 97.5 %


@dataclass(frozen=True, repr=False)
class RareEvent(Generic[_Member]):
    """The probability of an event, and how it was estimated.

    Attributes:
        estimate: P(score >= level); 0 if no final sample reached the level.
        relative_error: The standard error divided by the estimate; infinite if that is 0.
        interval: The log-normal interval of 95 %. If the estimate is 0, it is (0, a bound), the
            bound being the upper end for P(score >= the last level).
        levels: The rising levels; the last is the level of the event if that was reached.
        members: The distribution fitted at each level.
        parameters: The last one, from which the final samples were drawn.
        samples: The number of scores computed, for the levels and for the estimate.
        effective_samples: (sum of w)^2 / (sum of w^2) for the weights w of the final samples in
            the event.
        reached: Whether the levels reached the level of the event.
        message: Why they did not, and what else makes the estimate doubtful.
    """

    estimate: float
    relative_error: float
    interval: tuple[float, float]
    levels: tuple[float, ...]
    members: tuple[_Member, ...]
    parameters: _Member
    samples: int
    effective_samples: float
    reached: bool
    message: str

    def __repr__(self) -> str:
        low, high = self.interval
        levels = ", ".join(f"{level:.4g}" for level in self.levels)
        effective = f"{self.effective_samples:,.0f} effective samples"
        return (
            f"estimate: {self.estimate:.4g}, 95 % interval {low:.4g} to {high:.4g}\n"
            f"relative error: {self.relative_error:.2g}, {effective}\n"
            f"message: {self.message}\n"
            f"samples: {self.samples:,}, levels: {levels}\n"
            f"parameters: {self.parameters}"
        )


class _Draw(NamedTuple):
    """Candidates of one generation.

    Attributes:
        x: The candidates, shape (N, d).
        scores: Their scores, shape (N,); -inf for NaN.
        log_weights: The logarithms of their likelihood ratios f(x; u) / f(x; v), shape (N,).
    """

    x: Tensor
    scores: Tensor
    log_weights: Tensor


class _Elites(NamedTuple):
    """The candidates that reach the next level, with weights that sum to 1."""

    level: float
    x: Tensor
    weights: Tensor

    @property
    def effective(self) -> float:
        """The effective number of elites."""
        return 1 / float(self.weights.square().sum())


class _Estimate(NamedTuple):
    """An estimate of a probability by importance sampling; see ``RareEvent``."""

    mean: float = 0.0
    relative_error: float = math.inf
    low: float = 0.0
    high: float = 1.0
    effective_samples: float = 0.0
    tail_index: float = 0.0


def rare_event_probability(
    family: _Member,
    score: Callable[[Tensor], Any],
    level: float,
    *,
    population_size: int = 1000,
    final_samples: int = 100_000,
    vectorize: bool | str = False,
    workers: Workers | None = None,
    seed: Seed = None,
) -> RareEvent[_Member]:
    """Estimate the probability that the score of a random vector reaches a level.

    Examples:
        >>> from cem import rare_event_probability
        >>> from cem.rare import Exponential
        >>> family = Exponential([1.0] * 5)
        >>> event = rare_event_probability(family, lambda x: x.sum(-1), 30.0, seed=1)
        >>> abs(event.estimate / 3.624e-9 - 1) < 0.05
        True

    Algorithm 3.1 of P.-T. de Boer, D. Kroese, S. Mannor, R. Rubinstein, A Tutorial on the
    Cross-Entropy Method, Annals of Operations Research 134, 2005. Every step draws N candidates
    x_i from a member v of the family; at first v is u, the distribution of the vector:

        gamma = the 90 % quantile of the scores, at most the level
        w_i   = f(x_i; u) / f(x_i; v)
        v     = the greatest likelihood of those with score >= gamma, weighted by w_i

    When gamma has reached the level, final samples are drawn from v, and the estimate is the
    mean of their w_i, in which a score below the level counts as 0.

    So that levels rise, gamma is at least the median of the scores above the last level. A step
    draws up to ten times N candidates, until its elites have an effective number n of 30. The
    new v is mixed with a share of 1 / (1 + n) of the last one; in a discrete family of u,
    because v could exclude values.

    A RuntimeWarning with ``message`` is given if the level is not reached, if a score is NaN,
    if the effective samples are fewer than 100, or if the largest weights have a tail index (B.
    Hill, Annals of Statistics 3, 1975) above 0.5, like that of an infinite variance: a part of
    the event may hardly be drawn, and the estimate may be too low.

    Args:
        family: u, the distribution of the vector, of shape (d,).
        score: Maps candidates, shape (N, d), float64, on the family's device, to scores, shape
            (N,); with ``vectorize`` a candidate to a number. NaN is below every level.
        level: The event is score >= level.
        population_size: N.
        final_samples: The number of final samples; the relative error falls with its root.
        vectorize: As for ``minimize``.
        workers: As for ``minimize``.
        seed: The result is a function of the seed. None: drawn from torch's global generator.
    """
    level = check_real("level", level)
    final_samples = check_integer("final_samples", final_samples, 2)
    size = check_integer("population_size", population_size, 2)
    seed = check_integer("seed", draw_seed(seed), 0, 2**64 - 1)
    nan_counts: list[int] = []  # of each generation

    def draw(member: _Member, size: int) -> _Draw:
        generation = len(nan_counts)
        x = member.sample(size, seed=seed, generation=generation)
        fitness = call_with_copies(evaluate, x, generation).fitness
        scores = as_real("scores", fitness).to(x)
        nan_counts.append(int(scores.isnan().sum()))
        log_weights = family.log_density(x) - member.log_density(x)
        return _Draw(x, torch.where(scores.isnan(), -math.inf, scores), log_weights)

    with Evaluator(score, maximize=True, vectorize=vectorize, workers=workers) as evaluate:
        member = family
        members: list[_Member] = []
        levels = [-math.inf]
        while levels[-1] < level and len(levels) <= _MOST_LEVELS:
            elites = _next_elites(partial(draw, member, size), levels[-1], level)
            if elites is None:
                break
            fitted = member.fit(elites.x, elites.weights)
            # A discrete member could give a value the probability 0, and would never draw it
            # again.
            base = family if family.is_discrete else member
            member = fitted.mixed(base, 1 / (1 + elites.effective))
            levels.append(elites.level)
            members.append(member)
        # Final samples come in batches, which bounds the memory that they take.
        batches = range(0, final_samples, _BATCH)
        draws = [draw(member, min(_BATCH, final_samples - first)) for first in batches]
    _, scores, log_weights = _concatenate(draws)
    estimate = _estimate(log_weights, scores >= level)
    high = estimate.high
    if estimate.mean == 0.0:
        high = _estimate(log_weights, scores >= levels[-1]).high
    message = "; ".join(_doubts(estimate, level, levels, sum(nan_counts), size))
    if message:
        warnings.warn(message, RuntimeWarning, stacklevel=outside())
    return RareEvent(
        estimate=estimate.mean,
        relative_error=estimate.relative_error,
        interval=(estimate.low, high),
        levels=tuple(levels[1:]),
        members=tuple(members),
        parameters=member,
        samples=evaluate.evaluations,
        effective_samples=estimate.effective_samples,
        reached=levels[-1] == level,
        message=message or "the level is reached",
    )


def _doubts(
    estimate: _Estimate,
    level: float,
    levels: list[float],
    nan_count: int,
    population_size: int,
) -> Iterator[str]:
    """Yield a sentence for every reason to doubt an estimate.

    Args:
        estimate: The estimate of the probability that the score reaches the level.
        level: The level of the rare event.
        levels: The rising levels that the search has reached; the last should be ``level``.
        nan_count: How many scores were NaN.
        population_size: The candidates of one draw.
    """
    if levels[-1] < level:
        reason = f"none of {population_size * _MOST_POPULATIONS:,} is above"
        if len(levels) > _MOST_LEVELS:
            reason = f"{_MOST_LEVELS} are the most"
        yield f"the level is not reached: the last one is {levels[-1]:.6g}, {reason}"
    if nan_count:
        yield f"{nan_count:,} scores were NaN"
    if estimate.effective_samples < _LEAST_SAMPLES:
        yield f"{estimate.effective_samples:.0f} effective samples are too few for an interval"
    if estimate.tail_index > _GREATEST_TAIL_INDEX:
        yield f"a part of the event may be missed: a tail index of {estimate.tail_index:.2f}"


def _concatenate(draws: list[_Draw]) -> _Draw:
    """Return the candidates of several draws as one draw."""
    return _Draw(*map(torch.cat, zip(*draws, strict=True)))


def _next_elites(draw: Callable[[], _Draw], last_level: float, level: float) -> _Elites | None:
    """Return the candidates that reach the next level, or None if no score is above the last.

    The next level gamma is a quantile of the scores, so that a tenth of them are elites, but at
    least the median of the scores above the last level, so that levels rise, and at most the
    level of the event. Candidates are drawn until the elites have an effective number of
    ``_LEAST_ELITES``, but at most ``_MOST_POPULATIONS`` times.

    Args:
        draw: Draws a population.
        last_level: The last level, which the next one must exceed.
        level: The level of the event.
    """
    elites = None
    draws = []
    for _ in range(_MOST_POPULATIONS):
        draws.append(draw())
        x, scores, log_weights = _concatenate(draws)
        ascending = scores.sort().values
        above_last = ascending[ascending > last_level]
        if len(above_last) == 0:
            continue
        quantile_index = math.ceil((1 - _ELITE_SHARE) * len(ascending)) - 1
        quantile = ascending[quantile_index]
        median_above = above_last[(len(above_last) - 1) // 2]
        gamma = min(level, float(max(quantile, median_above)))
        is_elite = scores >= gamma
        weights = log_weights[is_elite].softmax(0)
        elites = _Elites(gamma, x[is_elite], weights)
        if elites.effective >= _LEAST_ELITES:
            break
    return elites


def _estimate(log_weights: Tensor, is_hit: Tensor) -> _Estimate:
    """Estimate the probability of an event: the mean of the weights, 0 outside the event.

    The interval holds 95 % of a log-normal variable with this mean and relative error.

    Args:
        log_weights: The logarithms of the likelihood ratios of N samples, shape (N,).
        is_hit: Whether a sample is in the event, shape (N,).
    """
    logs = log_weights[is_hit].sort(descending=True).values
    if len(logs) == 0:
        return _Estimate()
    num_samples = len(is_hit)
    greatest = logs[0]
    weights = (logs - greatest).exp()  # divided by the largest, so that none overflows
    total = weights.sum()
    effective = float(total.square() / weights.square().sum())
    mean = math.exp(float(greatest)) * float(total) / num_samples
    # The variance of the mean, divided by its square.
    relative_variance = max(0.0, 1 / effective - 1 / num_samples)
    relative_error = math.sqrt(relative_variance)
    log_std = math.sqrt(math.log1p(relative_error * relative_error))
    factor = math.exp(_NORMAL_QUANTILE * log_std)
    # Hill's estimator of the tail takes the largest weights: about the root of their number.
    num_largest = math.isqrt(len(logs) - 1)
    tail_index = 0.0
    if num_largest:
        tail_index = float((logs[:num_largest] - logs[num_largest]).mean())
    return _Estimate(
        mean=mean,
        relative_error=relative_error,
        low=mean / factor,
        high=min(mean * factor, 1.0),
        effective_samples=effective,
        tail_index=tail_index,
    )
