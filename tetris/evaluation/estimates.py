"""Estimates of lines per game by importance splitting, for controllers that hardly ever lose."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tetris import LinearController, Rules, rollout, split_rollout
from tetris.evaluation import DEFAULT_SEED
from tetris.evaluation.scores import who_played
from tetris.evaluation.text_table import table
from tetris.feature_sets import feature_label
from tetris.numbers import lines
from tetris.progress import progress
from tetris.splitting import BURN_IN, least_rate, lines_per_game

DEVICES = ("cpu", "cuda")
"""The engines: in Python it would take hours."""

ESTIMATES = 16
"""Independent estimates that are made side by side, the least there are."""

STREAMS = 1024
"""Streams of an estimate: more than it takes on 10x20, see `split_rollout`."""

DECISIONS = BURN_IN + 1000
"""On each of them."""

PLAYED = 2 * STREAMS * DECISIONS
"""Decisions without splitting, in which at most `MOST_ENDS` games of who is estimated end."""

MOST_ENDS = 2
"""Who loses more often needs no estimate: see `split_rollout`."""

METHOD = "mean of importance splitting estimates, Student's t interval of their rate of ends"


@dataclass(frozen=True)
class Estimate:
    """What a controller was estimated to be.

    Attributes:
        label: What to call the controller.
        controller: Who played.
        rules: By which rules.
        device: On which engine.
        seed: Of the pieces.
        streams: Of each estimate.
        rates: Ends of games a decision, independent estimates, at least two.
        decisions: Decisions of all of them.
        seconds: How long they took.
        resolved: Whether the rates are high enough for the weights of streams to be exact enough: see
            `tetris.splitting.least_rate`.
    """

    label: str
    controller: LinearController
    rules: Rules
    device: str
    seed: int
    streams: int
    rates: Sequence[float]
    decisions: int
    seconds: float
    resolved: bool = True

    @property
    def lines_per_game(self) -> float | None:
        """The estimate; None where no game ended at all."""
        rate = statistics.fmean(self.rates)
        return lines_per_game(self.rules, rate) if rate else None

    @property
    def ci95(self) -> tuple[float, float | None]:
        """Its 95 % interval; the upper end is None where the rate may as well be zero."""
        return self.interval(0.95)

    def interval(self, confidence: float) -> tuple[float, float | None]:
        """Return the interval of another confidence."""
        rate, count = statistics.fmean(self.rates), len(self.rates)
        if not rate:
            return 0.0, None
        quantile = student_t(count - 1, (1 + confidence) / 2)
        margin = quantile * statistics.stdev(self.rates) / math.sqrt(count)
        high = lines_per_game(self.rules, rate - margin) if rate > margin else None
        return lines_per_game(self.rules, rate + margin), high

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            **who_played(self.label, self.controller, self.rules, self.rules.pieces, self.device),
            "estimator": METHOD,
            "lines_per_game": self.lines_per_game,
            "ci95": list(self.ci95),
            "estimates": len(self.rates),
            "streams": self.streams,
            "decisions": self.decisions,
            "seconds": self.seconds,
            "seed": self.seed,
            "resolved": self.resolved,
        }


def student_t(degrees: int, probability: float = 0.975) -> float:
    """Return a quantile of Student's distribution, that of 97.5 % to a thousandth from fifteen degrees on.

    The expansion in Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.
    """
    z = statistics.NormalDist().inv_cdf(probability)
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def hardly_ends(games: int, decisions: int) -> bool:
    """Tell whether so few games ended in so many decisions that an estimate is better than to play on."""
    return decisions >= PLAYED and games * PLAYED <= MOST_ENDS * decisions


def estimate(
    label: str,
    controller: LinearController,
    rules: Rules,
    device: str,
    enough: Callable[[Estimate], bool],
    seed: int = DEFAULT_SEED,
    streams: int = STREAMS,
    check: Callable[[], None] | None = None,
) -> Estimate:
    """Estimate one controller better and better, by `ESTIMATES` more at a time.

    Args:
        label: What to call it.
        controller: Who plays.
        rules: By which rules.
        device: One of `DEVICES`.
        enough: Tells whether an estimate is good enough.
        seed: Of the pieces.
        streams: Of each estimate, 2 to `tetris.splitting.MOST_STREAMS`.
        check: Called a few times a second; what it raises ends it.
    """
    weights = torch.tensor([controller.weights] * ESTIMATES)
    began = time.perf_counter()
    rates: list[float] = []
    made = 0
    with progress(desc=f"{label} on {rules.board}", unit=" estimates", leave=False) as bar:

        def show() -> None:
            bar.update(0)
            if check is not None:
                check()

        while True:
            found = split_rollout(
                weights,
                rules,
                streams,
                DECISIONS,
                seed,
                device,
                features=controller.features,
                share_streams=False,
                first_stream=len(rates) * streams,
                check=show,
            )
            rates += found.rate.tolist()
            made += int(found.decisions.sum())
            bar.update(ESTIMATES)
            passed = time.perf_counter() - began
            resolved = not statistics.fmean(rates) or statistics.fmean(rates) >= least_rate(streams)
            who = label, controller, rules, device, seed, streams
            estimated = Estimate(*who, tuple(rates), made, passed, resolved)
            if enough(estimated):
                return estimated


def games_ended(controller: LinearController, rules: Rules, device: str, seed: int) -> int:
    """Return how many games end in `PLAYED` decisions without splitting, for `hardly_ends`."""
    features = controller.features
    played = rollout([controller.weights], rules, STREAMS, 2 * DECISIONS, seed, device, features=features)
    return int(played.games)


def check_hardly_ends(label: str, controller: LinearController, rules: Rules, device: str, seed: int) -> None:
    """Raise ValueError where a controller loses so often that it can be played instead."""
    games, decisions = games_ended(controller, rules, device, seed), PLAYED
    if not hardly_ends(games, decisions):
        raise ValueError(
            f"{label} ends {games:,} games in {decisions:,} decisions on {rules.board}: "
            "scripts/evaluate_tetris.py scores it by them"
        )


def estimate_table(estimates: Sequence[Estimate]) -> str:
    """Return the estimates side by side."""
    header = ["controller", "features", "lines/game", "95 % interval", "estimates", "decisions", "seconds"]
    rows = []
    for each in estimates:
        low, high = each.ci95
        interval = f"> {lines(low)}" if high is None else f"{lines(low)} - {lines(high)}"
        counts = f"{len(each.rates)}", f"{each.decisions:,}", f"{each.seconds:.1f}"
        features = feature_label(each.controller.features)
        rows.append([each.label, features, lines(each.lines_per_game), interval, *counts])
    shown = table(header, rows)
    for each in estimates:
        if not each.resolved:
            shown += f"\n{each.label}: beyond what the weights of streams resolve; the estimate is biased"
    return shown
