"""``rare_event_probability``: importance sampling whose distribution the cross-entropy method finds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from cem.core.checks import Seed, as_real, check_real, draw_seed, outside
from cem.core.evaluation import call_with_copies
from cem.rare.families import Family
from cem.run.evaluator import Evaluator, Workers
from kernels.support.checks import check_integer

_Member = TypeVar("_Member", bound=Family)
_RHO, _BATCH = 0.1, 1 << 16  # the share of elites; the final samples drawn at once
_LEVELS, _POPULATIONS = 50, 10  # the most levels, and populations of a level
_ELITES, _SAMPLES = 30, 100  # the least effective numbers, of elites and of final samples in the event
_TAIL_INDEX, _QUANTILE = 0.5, 1.959964  # the greatest without doubt; the standard normal one of 97.5 %


@dataclass(frozen=True, repr=False)
class RareEvent(Generic[_Member]):
    """The probability of an event, and how it was estimated.

    Attributes:
        estimate: P(score >= level); 0 where no final sample reached the level.
        relative_error: The standard error divided by the estimate; infinite where that is 0.
        interval: Of 95 %, log-normal. Where the estimate is 0 it ends above P(score >= the last level).
        levels: They rise, and the last is the level if that was reached.
        members: The member of the family that each level gave.
        parameters: The last one, that the final samples were drawn from.
        samples: The scores computed, those of the levels included.
        effective_samples: (sum of w)^2 / (sum of w^2), w the weights of the final samples in the event.
        reached: Whether the levels reached the one asked for.
        message: Why not, and what else makes the estimate doubtful.
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
        return (
            f"estimate: {self.estimate:.4g}, 95 % interval {self.interval[0]:.4g} to {self.interval[1]:.4g}\n"
            f"relative error: {self.relative_error:.2g}, {self.effective_samples:,.0f} effective samples\n"
            f"message: {self.message}\n"
            f"samples: {self.samples:,}, levels: {', '.join(f'{level:.4g}' for level in self.levels)}\n"
            f"parameters: {self.parameters}"
        )


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
        >>> found = rare_event_probability(Exponential([1.0] * 5), lambda x: x.sum(-1), 30.0, seed=1)
        >>> abs(found.estimate / 3.624e-9 - 1) < 0.05
        True

    Algorithm 3.1 of P.-T. de Boer, D. Kroese, S. Mannor, R. Rubinstein, A Tutorial on the Cross-Entropy
    Method, Annals of Operations Research 134, 2005. A step draws N candidates x_i from a member v of the
    family, the first one from u, the given one:

        gamma = the 90 % quantile of the scores, at most the level
        w_i   = f(x_i; u) / f(x_i; v)
        v     = the greatest likelihood of those with score >= gamma, weighted by w_i

    With gamma at the level, the estimate is the mean of w_i, or 0 below the level, over the final samples.
    Levels rise: gamma is at least the median of the scores above the last one. A step draws up to ten times
    N candidates, until its elites have an effective number n of 30. A share of 1 / (1 + n) of the last v
    stays; of u in a discrete family, where v could rule values out.

    A RuntimeWarning with ``message`` comes where the level is not reached, a score is NaN, effective samples
    are fewer than 100, or the largest weights have a tail index (B. Hill, Annals of Statistics 3, 1975) above
    0.5, as of an infinite variance: a part of the event may hardly be drawn, and the estimate too low.

    Args:
        family: u, the distribution of the vector, of shape (d,).
        score: Maps candidates, shape (N, d), float64, on the family's device, to scores, shape (N,); with
            ``vectorize`` a candidate to a number. NaN is below every level.
        level: The event is score >= level.
        population_size: N.
        final_samples: The relative error falls with their root.
        vectorize: As of ``minimize``.
        workers: As of ``minimize``.
        seed: The result is a function of it. None: drawn from torch's global generator.
    """
    level, total = check_real("level", level), check_integer("final_samples", final_samples, 2)
    size = check_integer("population_size", population_size, 2)
    seed = check_integer("seed", draw_seed(seed), 0, 2**64 - 1)
    failed = list[int]()  # by generation

    def draw(member: Family, size: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return candidates, scores and logarithms of weights, of a new generation."""
        generation = len(failed)
        x = member.sample(size, seed=seed, generation=generation)
        scores = as_real("scores", call_with_copies(evaluate, x, generation).fitness).to(x)
        failed.append(int(scores.isnan().sum()))
        log_weights = family.log_density(x) - member.log_density(x)
        return x, torch.where(scores.isnan(), -math.inf, scores), log_weights

    with Evaluator(score, maximize=True, vectorize=vectorize, workers=workers) as evaluate:
        member, levels, members = family, [-math.inf], list[_Member]()
        while levels[-1] < level and len(levels) <= _LEVELS:
            if not (found := _elites(lambda: draw(member, size), levels[-1], level)):  # noqa: B023
                break
            gamma, x, weights = found
            kept = family if family.law.support.is_discrete else member  # type: ignore[union-attr]
            member = member.fit(x, weights).mixed(kept, 1 / (1 + 1 / float(weights.square().sum())))
            levels.append(gamma)
            members.append(member)
        drawn = [draw(member, min(_BATCH, total - start))[1:] for start in range(0, total, _BATCH)]
    scores, log_weights = map(torch.cat, zip(*drawn, strict=True))
    mean, error, low, high, effective, tail_index = _estimate(log_weights, scores >= level)
    high = high if mean else _estimate(log_weights, scores >= levels[-1])[3]
    why = f"{_LEVELS} are the most" if len(levels) > _LEVELS else f"none of {size * _POPULATIONS:,} is above"
    doubts = {
        f"the level is not reached: the last one is {levels[-1]:.6g}, {why}": levels[-1] < level,
        f"{sum(failed):,} scores were NaN": any(failed),
        f"{effective:.0f} effective samples are too few for an interval": effective < _SAMPLES,
        f"a part of the event may be missed: a tail index of {tail_index:.2f}": tail_index > _TAIL_INDEX,
    }
    message = "; ".join(doubt for doubt, holds in doubts.items() if holds)
    if message:
        warnings.warn(message, RuntimeWarning, stacklevel=outside())
    moved = (tuple(levels[1:]), tuple(members), member)
    found_by = (*moved, evaluate.evaluations, effective, levels[-1] == level)
    return RareEvent(mean, error, (low, high), *found_by, message or "the level is reached")


def _elites(draw: Callable[[], Any], last: float, level: float) -> tuple[float, Tensor, Tensor] | None:
    """Return the next level, its elites and their weights, which sum to 1; None without a score above."""
    found, drawn = None, []
    for _ in range(_POPULATIONS):
        drawn.append(draw())
        x, scores, log_weights = map(torch.cat, zip(*drawn, strict=True))
        ranked = scores.sort().values
        above = ranked[ranked > last]
        if len(above):
            quantile = ranked[math.ceil((1 - _RHO) * len(ranked)) - 1]
            gamma = min(level, float(max(quantile, above[(len(above) - 1) // 2])))
            found = gamma, x[scores >= gamma], log_weights[scores >= gamma].softmax(0)
            if 1 / float(found[2].square().sum()) >= _ELITES:
                break
    return found


def _estimate(log_weights: Tensor, hit: Tensor) -> tuple[float, ...]:
    """Return the mean weight, 0 without a hit: relative error, interval, effective hits, tail index."""
    logs = log_weights[hit].sort(descending=True).values
    if not len(logs):
        return 0.0, math.inf, 0.0, 1.0, 0.0, 0.0
    weights = (logs - logs[0]).exp()
    effective = float(weights.sum().square() / weights.square().sum())
    mean = math.exp(float(logs[0])) * float(weights.sum()) / len(hit)
    error = math.sqrt(max(0.0, 1 / effective - 1 / len(hit)))
    spread = math.exp(_QUANTILE * math.sqrt(math.log1p(error * error)))
    most = math.isqrt(len(logs) - 1)  # the largest weights
    tail_index = float((logs[:most] - logs[most]).mean()) if most else 0.0
    return mean, error, mean / spread, min(mean * spread, 1.0), effective, tail_index
