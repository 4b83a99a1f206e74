"""Measure samples, errors and coverage of ``cem.rare_event_probability`` on events of a known probability.

python scripts/measure rare_events --json rare_events.json
"""

from __future__ import annotations

import argparse
import math
import statistics
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from scipy import stats
from torch import Tensor

from cem import rare_event_probability
from cem.rare import Bernoulli, Exponential, Family, Normal, Poisson, Weibull
from measure.provenance import Measured

RUNS, COVERAGE_RUNS, COVERAGE_SAMPLES = 50, 1000, 2000
BRIDGE = Exponential([0.25, 0.4, 0.1, 0.3, 0.2])


class Event(NamedTuple):
    """An event and its probability."""

    name: str
    label: str
    family: Family
    score: Callable[[Tensor], Tensor]
    level: float
    exact: float


def _sum(x: Tensor) -> Tensor:
    return x.sum(-1)


def shortest_path(x: Tensor) -> Tensor:
    """Return the lengths of the shortest paths, shape (N,), for those of the five edges, shape (N, 5)."""
    a, b, c, d, e = x.unbind(-1)
    return torch.stack([a + d, a + c + e, b + e, b + c + d]).amin(0)


def _events(exact: float) -> tuple[Event, ...]:
    """Return events of about that probability; those of the bridge are by quadrature."""
    level, path = (2.0, 1.34246e-5) if exact > 1e-7 else (3.5, 7.99690e-10)
    normal, poisson, binomial = stats.norm.isf(exact), stats.poisson(10), stats.binom(20, 0.1)
    count, ones = (int(law.isf(exact)) + 1 for law in (poisson, binomial))
    least, weibull = math.sqrt(-math.log(exact) / 2), math.log(exact) ** 2
    gamma = stats.gamma(5).isf(exact)
    return (
        Event("bridge", "bridge of the tutorial", BRIDGE, shortest_path, level, path),
        Event("exponential", "sum of 5 exponentials", Exponential([1.0] * 5), _sum, gamma, exact),
        Event("normal", "sum of 10 normals", Normal([0.0] * 10, 1.0), _sum, normal * 10**0.5, exact),
        Event("normal50", "sum of 50 normals", Normal([0.0] * 50, 1.0), _sum, normal * 50**0.5, exact),
        Event("weibull", "Weibull of shape 1/2", Weibull([0.5], 1.0), _sum, weibull, exact),
        Event("least", "least of 2 Weibulls", Weibull([2.0] * 2, 1.0), lambda x: x.amin(-1), least, exact),
        Event("poisson", "sum of 5 Poissons", Poisson([2.0] * 5), _sum, count, poisson.sf(count - 1)),
        Event("bernoulli", "sum of 20 Bernoullis", Bernoulli([0.1] * 20), _sum, ones, binomial.sf(ones - 1)),
    )


def _runs(event: Event, runs: int, **options: Any) -> dict[str, float]:
    """Return what so many runs, with seeds from 0 on, say of an event."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        _, _, family, score, level, exact = event
        found = [rare_event_probability(family, score, level, seed=i, **options) for i in range(runs)]
    error = statistics.fmean(each.relative_error for each in found)
    return {
        "exact": exact,
        "mean_over_exact": statistics.fmean(each.estimate for each in found) / exact,
        "spread": statistics.stdev(each.estimate for each in found) / exact,
        "relative_error": error,
        "samples": statistics.fmean(each.samples for each in found),
        "crude_samples": (1 - exact) / (exact * error**2),
        "coverage": statistics.fmean(each.interval[0] <= exact <= each.interval[1] for each in found),
    }


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return figures and details."""
    events = {f"{each.name}.{p:.0e}": each for p in (1e-5, 1e-9) for each in _events(p)}
    rows = {name: _runs(event, RUNS) for name, event in events.items()}
    coverage = {"bridge": _runs(_events(1e-5)[0], COVERAGE_RUNS)["coverage"]}
    for event in _events(1e-5)[1:]:
        if event.name in ("exponential", "normal", "poisson", "bernoulli"):
            options = {"final_samples": COVERAGE_SAMPLES}
            coverage[event.name] = _runs(event, COVERAGE_RUNS, **options)["coverage"]
    figures = {f"rare.{name}.{key}": value for name, row in rows.items() for key, value in row.items()}
    figures |= {f"rare.coverage.{name}": share for name, share in coverage.items()}
    labels = {name: event.label for name, event in events.items()}
    return Measured(figures, {"runs": RUNS, "coverage_runs": COVERAGE_RUNS, "labels": labels})
