"""``rare_event_probability``: importance sampling whose distribution the cross-entropy method finds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from cem.core.checks import as_real, check_real, outside
from cem.evaluate import Evaluator, Workers
from cem.rare.families import Family
from kernels.support.checks import check_integer

_Member = TypeVar("_Member", bound=Family)
_BATCH = 1 << 16  # candidates of the final sample that are drawn at once
_LEVELS, _POPULATIONS = 50, 10  # the most levels, and populations of one
_ELITES, _SAMPLES = 30, 100  # the least effective numbers, of elites and of final samples in the event
_TAIL_INDEX = 0.7  # the greatest
_QUANTILE = 1.959964  # of the standard normal distribution at 97.5 %


@dataclass(frozen=True, repr=False)
class RareEvent(Generic[_Member]):
    """The probability of an event, and how it was estimated.

    Attributes:
        estimate: P(score >= level); 0 where no final sample reached the level.
        relative_error: The standard error divided by the estimate; infinite where that is 0.
        interval: Of 95 %, log-normal. Where the estimate is 0 it ends above P(score >= the last level).
        levels: gamma_1 < gamma_2 < .., the last of which is the level if it was reached.
        parameters: The member of the family that the final samples were drawn from.
        samples: The scores computed, those of the levels included.
        effective_samples: (sum of w)^2 / (sum of w^2), w the weights of the final samples in the event.
        reached: Whether the levels reached the one asked for.
        message: Why not, and what makes the estimate doubtful.
    """

    estimate: float
    relative_error: float
    interval: tuple[float, float]
    levels: tuple[float, ...]
    parameters: _Member
    samples: int
    effective_samples: float
    reached: bool
    message: str

    def __repr__(self) -> str:
        low, high = self.interval
        levels, values = ", ".join(f"{x:.4g}" for x in self.levels), self.parameters.parameters.items()
        return "\n".join(
            [
                f"estimate: {self.estimate:.4g}, 95 % interval {low:.4g} to {high:.4g}",
                f"relative error: {self.relative_error:.2g}, {self.effective_samples:,.0f} effective samples",
                f"message: {self.message}",
                f"samples: {self.samples:,}, levels {levels}",
                *(f"{name}: {[float(f'{x:.4g}') for x in value.tolist()]}" for name, value in values),
            ]
        )


def rare_event_probability(
    family: _Member,
    score: Callable[[Tensor], Any],
    level: float,
    *,
    population_size: int = 1000,
    final_samples: int = 100_000,
    elite_fraction: float = 0.1,
    vectorize: bool | str = False,
    workers: Workers | None = None,
    seed: int | None = None,
) -> RareEvent[_Member]:
    """Estimate the probability that the score of a random vector reaches a level.

    Examples:
        >>> import torch
        >>> from cem import rare_event_probability
        >>> from cem.rare import Exponential
        >>> lives = Exponential(torch.ones(5))
        >>> found = rare_event_probability(lives, lambda x: x.sum(-1), 30.0, seed=1)  # 3.624e-9, exactly
        >>> found.reached and abs(found.estimate / 3.624e-9 - 1) < 0.05
        True

    Algorithm 3.1 of P.-T. de Boer, D. Kroese, S. Mannor, R. Rubinstein, A Tutorial on the Cross-Entropy
    Method, Annals of Operations Research 134, 2005. In each step N candidates x_i are drawn from a member v
    of the family, first from u, the one given:

        gamma = the (1 - rho) quantile of the scores, at most the level
        w_i   = f(x_i; u) / f(x_i; v)
        v     = the greatest likelihood of the x_i with score >= gamma, by the weights w_i

    Once gamma is the level, the mean of w_i over ``final_samples``, 0 where one misses it, is the estimate.

    Three rules are added. At least half of the scores above the last gamma are at or above the next, unless
    equal scores forbid it; so levels rise. A step draws up to ten times N candidates, until its elites have
    an effective number n of 30. And a share of 1 / (1 + n) of the last v stays, or of u in discrete families,
    where v could else rule values out.

    A RuntimeWarning with ``message`` comes where the level is not reached, a score is NaN, the effective
    samples are below 100, or the tail index of the largest weights (B. Hill, Annals of Statistics 3, 1975) is
    above 0.7: their variance may be infinite, or a part of the event is hardly drawn.

    Args:
        family: u, the distribution of the vector, of shape (d,).
        score: Maps candidates, shape (N, d), float64, on the family's device, to scores, shape (N,); with
            ``vectorize`` a candidate to a number. A NaN counts as below every level.
        level: The event is score >= level.
        population_size: N.
        final_samples: The relative error falls with their root.
        elite_fraction: rho.
        vectorize: As of ``minimize``.
        workers: As of ``minimize``.
        seed: The result is a function of it; None: drawn from torch's global generator.
    """
    level, total = check_real("level", level), check_integer("final_samples", final_samples, 2)
    size = check_integer("population_size", population_size, 2)
    rho = check_real("elite_fraction", elite_fraction, 0.0, 1.0, open_low=True, open_high=True)
    seed = int(torch.randint(2**63 - 1, ())) if seed is None else check_integer("seed", seed, 0, 2**64 - 1)
    generations, failed = count(), list[int]()

    def draw(member: Family, size: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return candidates, scores and logarithms of weights, of a new generation."""
        generation = next(generations)
        x = member.sample(size, seed=seed, generation=generation)
        scores = as_real("scores", evaluate(x, generation).fitness).to(x)
        failed.append(int(scores.isnan().sum()))
        return (
            x,
            torch.where(scores.isnan(), -math.inf, scores),
            family.log_density(x) - member.log_density(x),
        )

    with Evaluator(score, maximize=True, vectorize=vectorize, workers=workers) as evaluate:
        member, gammas = family, [-math.inf]
        while gammas[-1] < level and len(gammas) <= _LEVELS:
            found = _elites(partial(draw, member, size), rho, gammas[-1], level)
            if found is None:
                break
            gamma, x, weights = found
            kept = family if family.law.support.is_discrete else member
            member = member.fit(x, weights).mixed(kept, 1 / (1 + 1 / float(weights.square().sum())))
            gammas.append(gamma)
        drawn = [draw(member, min(_BATCH, total - start))[1:] for start in range(0, total, _BATCH)]
    scores, log_weights = map(torch.cat, zip(*drawn, strict=True))
    mean, error, effective, tail_index = _estimate(log_weights, scores >= level)
    low, high = _interval(mean, error)
    if not mean:  # below the last level that was reached
        high = _interval(*_estimate(log_weights, scores >= gammas[-1])[:2])[1]
    reached = gammas[-1] == level
    why = f"{_LEVELS} levels" if len(gammas) > _LEVELS else f"no score of {_POPULATIONS * size:,} is above"
    notes = {
        f"the level is not reached: {why}, the last level is {gammas[-1]:.6g}": not reached,
        f"{sum(failed):,} scores were NaN": sum(failed),
        f"{effective:.0f} effective samples are too few for an interval": effective < _SAMPLES,
        f"the tail index of the weights is {tail_index:.2f}, their variance may be infinite and the estimate "
        "far too low": tail_index > _TAIL_INDEX,
    }
    doubts = "; ".join(note for note, holds in notes.items() if holds)
    if doubts:
        warnings.warn(doubts, RuntimeWarning, stacklevel=outside())
    return RareEvent(
        *(mean, error, (low, high), tuple(gammas[1:]), member, evaluate.evaluations, effective, reached),
        doubts or "the level is reached",
    )


def _elites(
    draw: Callable[[], tuple[Tensor, ...]], rho: float, last: float, level: float
) -> tuple[float, Tensor, Tensor] | None:
    """Return the next level, its elites and their weights, which sum to 1; None without a score above."""
    found, drawn = None, []
    for _ in range(_POPULATIONS):
        drawn.append(draw())
        x, scores, log_weights = map(torch.cat, zip(*drawn, strict=True))
        ranked = scores.sort().values
        above = ranked[ranked > last]
        if len(above):
            quantile = ranked[math.ceil((1 - rho) * len(ranked)) - 1]
            gamma = min(level, float(max(quantile, above[(len(above) - 1) // 2])))
            weights = log_weights[scores >= gamma].softmax(0)
            found = gamma, x[scores >= gamma], weights
            if 1 / float(weights.square().sum()) >= _ELITES:
                break
    return found


def _estimate(log_weights: Tensor, hit: Tensor) -> tuple[float, float, float, float]:
    """Return the mean weight of the samples that hit, its relative error, effective number and tail index."""
    logs = log_weights[hit].sort(descending=True).values
    if not len(logs):
        return 0.0, math.inf, 0.0, 0.0
    weights = (logs - logs[0]).exp()
    effective = float(weights.sum().square() / weights.square().sum())
    error = math.sqrt(max(0.0, 1 / effective - 1 / len(hit)))
    most = min(len(logs) // 5, int(3 * math.sqrt(len(logs))))
    tail_index = float((logs[:most] - logs[most]).mean()) if most else 0.0
    return math.exp(float(logs[0])) * float(weights.sum()) / len(hit), error, effective, tail_index


def _interval(mean: float, error: float) -> tuple[float, float]:
    """Return the log-normal interval of 95 %, within [0, 1]; that of no sample ends at 1."""
    if not mean:
        return 0.0, 1.0
    spread = math.exp(_QUANTILE * math.sqrt(math.log1p(error * error)))
    return mean / spread, min(mean * spread, 1.0)
