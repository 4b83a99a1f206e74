"""The probability of a rare event, by importance sampling from a searched distribution."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from cem.core.checks import Seed, as_real, check_real, draw_seed, warn
from cem.core.evaluation import call_with_copies
from cem.rare.distributions import IndependentDistribution
from cem.run.evaluator import Evaluator, Workers
from kernels.support.checks import check_integer, check_uint64

_Member = TypeVar("_Member", bound=IndependentDistribution)
_ELITE_SHARE = 0.1  # the share of the scores that reach the next level
_MOST_LEVELS = 50
_MOST_POPULATIONS = 10  # the maximum number of populations drawn for a level
_LEAST_ELITES = 30  # the effective number of elites that a level needs
_LEAST_SAMPLES = 100  # the effective number of samples in the event that an interval needs
_BATCH = 1 << 16  # the number of final samples drawn at once
_GREATEST_TAIL_INDEX = 0.5  # with a greater tail index the weights have an infinite variance
_LARGEST_LOG = 600.0  # the exponential of a greater number may overflow in a product
_NORMAL_QUANTILE = 1.959964  # the 97.5 % quantile of the standard normal distribution


@dataclass(frozen=True, repr=False)
class RareEvent(Generic[_Member]):
    """The probability of an event, and how it was estimated.

    Attributes:
        estimate: P(score >= level); 0 if no final sample reached the level.
        relative_error: The standard error divided by the estimate; infinite if the estimate is
            0.
        interval: The log-normal 95 % interval. If the estimate is 0, it is (0, bound), where
            bound is the upper end of the interval for P(score >= the last level), or 1 if that
            has too few effective samples or a tail index above 0.5.
        levels: The rising levels. The last one is the level of the event if it was reached.
        members: The distribution fitted at each level.
        parameters: The last of them, from which the final samples were drawn.
        samples: The number of scores computed, for the levels and for the estimate.
        effective_samples: (sum of w)^2 / (sum of w^2), where w are the weights of the final
            samples in the event.
        reached: Whether the levels reached the level of the event.
        message: Why they did not, and other reasons to doubt the estimate.
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
    """Candidates of one generation, drawn from v.

    Attributes:
        x: The candidates, shape (N, d).
        scores: Their scores, shape (N,); -inf in place of NaN.
        log_weights: The logarithms of their likelihood ratios f(x; u) / f(x; v), shape (N,).
    """

    x: Tensor
    scores: Tensor
    log_weights: Tensor


class _Elites(NamedTuple):
    """The candidates that reach the next level, and their weights, which sum to 1."""

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

    This is algorithm 3.1 of P.-T. de Boer, D. Kroese, S. Mannor, R. Rubinstein, A Tutorial on
    the Cross-Entropy Method, Annals of Operations Research 134, 2005. Every step draws N
    candidates x_i from a member v of the family. The first v is u, the distribution of the
    vector. Then

        gamma = the 90 % quantile of the scores, but at most the level
        w_i   = f(x_i; u) / f(x_i; v)
        v     = the maximum likelihood fit to the elites, the candidates with score >= gamma,
                weighted by w_i

    When gamma has reached the level, the final samples are drawn from v. The estimate is the
    mean of their weights w_i, where the weight of a score below the level counts as 0.

    To make the levels rise, gamma is at least the median of the scores above the last level. A
    step draws up to ten times N candidates, until its elites have an effective number n of 30.
    The new v is mixed with a share of 1 / (1 + n) of the old one. In a discrete family it is
    mixed with u instead, because the old v may exclude values.

    A RuntimeWarning with ``message`` is given

    - if the level is not reached;
    - if a score is NaN;
    - if there are fewer than 100 effective samples;
    - if the largest weights have a tail index above 0.5 (B. Hill, Annals of Statistics 3,
      1975), which indicates an infinite variance. Then a part of the event may hardly be drawn,
      and the estimate may be too low.

    Args:
        family: u, the distribution of the vector, of shape (d,).
        score: Maps candidates, shape (N, d), float64, on the family's device, to scores, shape
            (N,). With ``vectorize`` it maps one candidate to a number. NaN is below every
            level.
        level: The event is score >= level.
        population_size: N.
        final_samples: The number of final samples. The relative error is inversely proportional
            to its square root.
        vectorize: As for ``minimize``.
        workers: As for ``minimize``.
        seed: The result is a function of the seed. None: drawn from torch's global generator.
    """
    level = check_real("level", level)
    final_samples = check_integer("final_samples", final_samples, 2)
    size = check_integer("population_size", population_size, 2)
    seed = check_uint64("seed", draw_seed(seed))
    # The number of scores that were NaN in each generation so far.
    nan_counts: list[int] = []

    def draw(member: _Member, size: int) -> _Draw:
        """Draw the candidates of the next generation and compute their scores."""
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
            # If a discrete member gives a value the probability 0, it never draws the value
            # again. So the fit is mixed with the first distribution, which has all values.
            base = family if family.is_discrete else member
            member = fitted.mixed(base, 1 / (1 + elites.effective))
            levels.append(elites.level)
            members.append(member)
        # The final samples are drawn in batches, to limit the memory.
        batches = range(0, final_samples, _BATCH)
        draws = [draw(member, min(_BATCH, final_samples - first)) for first in batches]
    _, scores, log_weights = _concatenate(draws)
    estimate = _estimate(log_weights, scores >= level)
    high = estimate.high
    if estimate.mean == 0.0:
        # No sample is in the event, which is less probable than to reach the last level.
        above = _estimate(log_weights, scores >= levels[-1])
        is_doubtful = any(_doubts(above, levels[-1], levels, 0, size))
        high = 1.0 if is_doubtful else above.high
    message = "; ".join(_doubts(estimate, level, levels, sum(nan_counts), size))
    if message:
        warn(message)
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
        levels: The levels that the search has reached, in rising order. The first one is -inf.
            If the search has reached the event, the last one is ``level``.
        nan_count: The number of scores that were NaN.
        population_size: The number of candidates per population.
    """
    if levels[-1] < level:
        reason = f"none of {population_size * _MOST_POPULATIONS:,} is above"
        if len(levels) > _MOST_LEVELS:
            reason = f"{_MOST_LEVELS} levels are the maximum"
        yield f"the level is not reached: the last one is {levels[-1]:.6g}, {reason}"
    if nan_count:
        yield f"{nan_count:,} scores were NaN"
    if estimate.effective_samples < _LEAST_SAMPLES:
        yield f"{estimate.effective_samples:.0f} effective samples are too few for an interval"
    if estimate.tail_index > _GREATEST_TAIL_INDEX:
        yield f"a part of the event may be missed: a tail index of {estimate.tail_index:.2f}"


def _concatenate(draws: list[_Draw]) -> _Draw:
    """Join the candidates of several draws."""
    return _Draw(*map(torch.cat, zip(*draws, strict=True)))


def _next_elites(draw: Callable[[], _Draw], last_level: float, level: float) -> _Elites | None:
    """Find the next level, and return the elites: the candidates that reach it.

    The next level gamma is the 90 % quantile of the scores. It is at least the median of the
    scores above the last level, so that levels rise. It is at most the level of the event.

    Populations are drawn until the effective number of elites, 1 / (sum of w^2), is at least
    ``_LEAST_ELITES``. At most ``_MOST_POPULATIONS`` populations are drawn.

    Args:
        draw: Draws another population: the candidates x, their scores and log weights.
        last_level: The last level, which the next one must exceed.
        level: The level of the event.

    Returns:
        The elites; None if no score is above the last level.
    """
    elites = None
    # The populations drawn for this level. The quantile is that of all of them.
    draws = []
    for _ in range(_MOST_POPULATIONS):
        draws.append(draw())
        x, scores, log_weights = _concatenate(draws)
        ascending = scores.sort().values
        if ascending[-1] <= last_level:
            # Another population may have a score above the last level.
            continue
        gamma = min(level, _rising_quantile(ascending, last_level))
        is_elite = scores >= gamma
        # The softmax divides the weights by their sum.
        weights = log_weights[is_elite].softmax(0)
        elites = _Elites(gamma, x[is_elite], weights)
        if elites.effective >= _LEAST_ELITES:
            break
    return elites


def _rising_quantile(ascending: Tensor, last_level: float) -> float:
    """Return the 90 % quantile of sorted scores, but at least the median above a level."""
    above_last = ascending[ascending > last_level]
    median_above = above_last[(len(above_last) - 1) // 2]
    quantile = ascending[math.ceil((1 - _ELITE_SHARE) * len(ascending)) - 1]
    return float(max(quantile, median_above))


def _estimate(log_weights: Tensor, is_hit: Tensor) -> _Estimate:
    """Estimate the probability of an event by importance sampling.

    The estimate is the sum of the weights of the samples in the event, divided by the number N
    of all samples. It is infinite if the sum overflows. The 95 % interval is that of a
    log-normal variable with the estimate as its median and with the same relative error.

    Args:
        log_weights: The logarithms of the weights (likelihood ratios) of all samples, shape
            (N,).
        is_hit: Whether a sample is in the event, shape (N,).
    """
    # From here on only the samples in the event matter.
    logs = log_weights[is_hit].sort(descending=True).values
    if len(logs) == 0:
        return _Estimate()
    num_samples = len(is_hit)

    # The weights are divided by the largest one, so that they do not overflow.
    largest = logs[0]
    weights = (logs - largest).exp()
    total = weights.sum()
    effective = float(total.square() / weights.square().sum())
    if largest > _LARGEST_LOG:
        # The mean may be finite even if the largest weight is not.
        log_mean = largest + total.log() - math.log(num_samples)
        mean = float(log_mean.exp())
    else:
        mean = math.exp(float(largest)) * float(total) / num_samples

    # The relative variance of the mean is sum(w^2) / sum(w)^2 - 1 / N.
    relative_variance = max(0.0, 1 / effective - 1 / num_samples)
    relative_error = math.sqrt(relative_variance)
    # If a log-normal variable has this relative error, its logarithm has this deviation.
    log_std = math.sqrt(math.log1p(relative_error * relative_error))
    factor = math.exp(_NORMAL_QUANTILE * log_std)

    return _Estimate(
        mean=mean,
        relative_error=relative_error,
        low=mean / factor,
        high=min(mean * factor, 1.0),
        effective_samples=effective,
        tail_index=_find_tail_index(logs),
    )


def _find_tail_index(logs: Tensor) -> float:
    """Return Hill's estimator of the tail index, from descending logarithms of weights.

    It is the mean of log(w_i / v), where w_1 to w_n are the n largest weights, and v is the
    next one. Here n is about the square root of the number of weights.
    """
    n = math.isqrt(len(logs) - 1)
    return float((logs[:n] - logs[n]).mean()) if n else 0.0
