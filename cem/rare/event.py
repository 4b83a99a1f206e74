"""``rare_event_probability``: importance sampling by the multilevel cross-entropy method."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from cem.core.checks import as_real, check_real, outside
from cem.evaluate import Evaluator, Workers
from cem.rare.families import Family
from kernels.support.checks import check_integer

_Member = TypeVar("_Member", bound=Family)
_BATCH = 1 << 16


@dataclass(frozen=True, repr=False)
class RareEvent(Generic[_Member]):
    """The estimate."""

    estimate: float
    relative_error: float
    interval: tuple[float, float]
    levels: tuple[float, ...]
    parameters: _Member
    samples: int
    effective_samples: float
    reached: bool
    message: str


def rare_event_probability(
    family, score, level, *, population_size=1000, final_samples=100_000, elite_fraction=0.1,
    max_levels=100, vectorize=False, workers=None, seed=None, refine=0, anchor='eff', need=0.0, most=10,
):
    """Estimate."""
    level = check_real("level", level)
    seed = int(torch.randint(2**63 - 1, ())) if seed is None else check_integer("seed", seed, 0, 2**64 - 1)
    with Evaluator(score, maximize=True, vectorize=vectorize, workers=workers) as evaluate:

        def drawn(member, size, generation):
            x = member.sample(size, seed=seed, generation=generation)
            found = as_real("scores", evaluate(x, generation).fitness).to(x)
            return x, found.nan_to_num(-math.inf, math.inf, -math.inf), family.log_density(x) - member.log_density(x)

        member, levels = family, []
        last = -math.inf
        trace = []
        generation = 0
        why = ""
        while True:
            parts = []
            stuck = False
            while True:
                parts.append(drawn(member, population_size, generation))
                generation += 1
                x, scores, log_ratio = map(torch.cat, zip(*parts))
                ranked = scores.sort().values
                above = ranked[ranked > last] if last < level else ranked[ranked >= level]
                if len(above):
                    rank = math.ceil((1 - elite_fraction) * len(ranked)) - 1
                    new = min(level, max(float(ranked[rank]), float(above[0])))
                    elites = scores >= new
                    w = (log_ratio[elites] - log_ratio[elites].max()).exp()
                    eff = float(w.sum() ** 2 / w.square().sum())
                else:
                    eff = 0.0
                if eff >= need or len(parts) >= most:
                    break
            if not len(above):
                why = "nothing above"
                break
            last = new
            levels.append(last)
            trace.append((int(elites.sum()), eff))
            w = w / w.sum()
            member = member.fit(x[elites], w)
            if anchor:
                member = member.mixed(family, 1 / (1 + (eff if anchor == 'eff' else len(w))))
            if last >= level:
                if refine == 0:
                    break
                refine -= 1
            if len(levels) >= max_levels:
                why = "max levels"
                break
        logs = []
        left = final_samples
        while left:
            x, scores, log_ratio = drawn(member, min(left, _BATCH), generation)
            generation += 1
            left -= len(x)
            logs.append(torch.where(scores >= level, log_ratio, -math.inf))
    log_w = torch.cat(logs)
    w = (log_w - log_w.max()).exp()
    mean = float(w.mean())
    eff = float(w.sum() ** 2 / w.square().sum())
    re = math.sqrt(max(0.0, 1 / eff - 1 / final_samples))
    est = mean * math.exp(log_w.max())
    r = RareEvent(est, re, (est*math.exp(-1.96*re), est*math.exp(1.96*re)), tuple(levels), member, evaluate.evaluations, eff, last >= level, why)
    object.__setattr__(r, "trace", trace)
    object.__setattr__(r, "w", w)
    return r
