"""Estimates of lines per game by importance splitting, for controllers that rarely lose."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernels.support import ranks
from kernels.support.progress import progress
from tetris import rollout, split_rollout
from tetris.evaluation.scores import Trial
from tetris.play.splitting import BURN_IN, least_rate, lines_per_game

ESTIMATES = 16
"""Independent estimates of a batch, made in parallel; the least number of an estimate."""

STREAMS = 1024
"""Streams of an estimate, enough for 10x20; see `split_rollout`."""

DECISIONS = BURN_IN + 1000
"""Decisions on each stream of an estimate."""

PLAYED = 2 * STREAMS * DECISIONS
"""Decisions of `games_ended`, which are played without splitting."""

MOST_ENDS = 2
"""The most games that end in them under a controller that rarely loses; others are played instead."""

METHOD = "mean of importance splitting estimates, Student's t interval of their termination rate"


@dataclass(frozen=True)
class Estimate:
    """An estimate of a controller's lines per game, of at least two independent ones."""

    trial: Trial
    streams: int  # of each
    rates: Sequence[float]  # of termination: games ended per decision
    decisions: int  # of all
    seconds: float

    @property
    def lines_per_game(self) -> float | None:
        """The estimate, lines per game; None if no game ended."""
        rate = statistics.fmean(self.rates)
        return lines_per_game(self.trial.rules, rate) if rate else None

    @property
    def resolved(self) -> bool:
        """Whether the rate is high enough for the weights of streams: see `splitting.least_rate`."""
        rate = statistics.fmean(self.rates)
        return not rate or rate >= least_rate(self.streams)

    @property
    def ci95(self) -> tuple[float, float | None]:
        """Its 95 % interval; the upper end is None if the interval of the rate contains 0."""
        rate, count = statistics.fmean(self.rates), len(self.rates)
        if not rate:
            return 0.0, None
        margin = student_t(count - 1) * statistics.stdev(self.rates) / math.sqrt(count)
        high = lines_per_game(self.trial.rules, rate - margin) if rate > margin else None
        return lines_per_game(self.trial.rules, rate + margin), high

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as plain values, for JSON."""
        found = self.trial.to_dict(
            estimator=METHOD,
            lines_per_game=self.lines_per_game,
            ci95=list(self.ci95),
            estimates=len(self.rates),
            streams=self.streams,
            decisions=self.decisions,
            seconds=self.seconds,
        )
        return {**found, "resolved": self.resolved}


def student_t(degrees: int) -> float:
    """Return the 97.5 % quantile of Student's distribution, exact to 0.1 % from 15 degrees of freedom on.

    The expansion in Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.
    """
    z = statistics.NormalDist().inv_cdf(0.975)
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def estimate(
    trial: Trial,
    enough: Callable[[Estimate], bool],
    streams: int = STREAMS,
    check: Callable[[], None] | None = None,
) -> Estimate:
    """Estimate one controller in batches of `ESTIMATES` estimates until it is good enough.

    Ranks make a batch each; see `kernels.support.ranks`. In Python it would take hours. ``check`` is called a
    few times a second; an exception ends the estimate.
    """
    policy = replace(trial.policy, weights=[trial.controller.weights] * ESTIMATES)
    began = time.perf_counter()
    rates: list[float] = []
    made = 0
    desc = f"estimating {trial.label} on {trial.rules.board}"
    with progress(desc=desc, unit=" estimates", leave=False) as bar:

        def show() -> None:
            bar.update(0)
            if check is not None:
                check()

        def batch() -> torch.Tensor:
            first = (len(rates) + ranks.rank() * ESTIMATES) * streams
            own = trial.streams(streams, first, shared=False)
            found = split_rollout(policy, own, DECISIONS, trial.device, check=show)
            passed = time.perf_counter() - began
            return torch.tensor(
                [[*found.rate.tolist(), int(found.decisions.sum()), passed]], dtype=torch.float64
            )

        while True:
            found = ranks.gather(ranks.run_collective(batch), ranks.count()).tolist()
            passed = max(each[-1] for each in found)
            for *new, decisions, _ in found:  # as one process makes them
                rates += new
                made += int(decisions)
                bar.update(ESTIMATES)
                estimated = Estimate(trial, streams, tuple(rates), made, passed)
                if enough(estimated):
                    return estimated


def games_ended(trial: Trial) -> int:
    """Return the number of games that end in `PLAYED` decisions without splitting."""
    own = ranks.share(STREAMS)

    def play() -> torch.Tensor:
        streams = trial.streams(own.stop - own.start, own.start)
        return rollout(trial.policy, streams, 2 * DECISIONS, trial.device).games.cpu()

    return int(ranks.gather(ranks.run_collective(play), ranks.count()).sum())
