"""Estimates of lines per game by importance splitting, for controllers that rarely lose."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernels.support import ranks
from kernels.support.progress import progress
from tetris import LinearController, Rules, rollout, split_rollout
from tetris.evaluation import DEFAULT_SEED
from tetris.evaluation.scores import who_played
from tetris.play.splitting import BURN_IN, least_rate, lines_per_game

ESTIMATES = 16
"""Independent estimates of a batch, made in parallel; the least number of an estimate."""

STREAMS = 1024
"""Streams of an estimate, enough for 10x20; see `split_rollout`."""

DECISIONS = BURN_IN + 1000
"""Decisions on each stream of an estimate."""

PLAYED = 2 * STREAMS * DECISIONS
"""Decisions of the test without splitting; see `MOST_ENDS`."""

MOST_ENDS = 2
"""The most games that end in the test; controllers that lose more often are played instead."""

METHOD = "mean of importance splitting estimates, Student's t interval of their termination rate"


@dataclass(frozen=True)
class Estimate:
    """An estimate of a controller's lines per game.

    Attributes:
        label: Label of the controller.
        controller: The controller.
        rules: The rules.
        device: The engine.
        seed: Seed of the pieces.
        streams: Streams of each estimate.
        rates: Independent estimates of the termination rate, games ended a decision, at least two.
        decisions: Decisions of all estimates.
        seconds: Seconds they took.
        pieces_known: 1, the piece that falls, or 2, the next one, too.
        lookahead: See `tetris.Rollout`.
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
    pieces_known: int = 1
    lookahead: bool = False

    @property
    def lines_per_game(self) -> float | None:
        """The estimate, lines per game; None if no game ended."""
        rate = statistics.fmean(self.rates)
        return lines_per_game(self.rules, rate) if rate else None

    @property
    def resolved(self) -> bool:
        """Whether the rate is high enough for the weights of streams: see `splitting.least_rate`."""
        rate = statistics.fmean(self.rates)
        return not rate or rate >= least_rate(self.streams)

    @property
    def ci95(self) -> tuple[float, float | None]:
        """Its 95 % interval; the upper end is None if the interval of the rate contains 0."""
        return self.interval(0.95)

    def interval(self, confidence: float) -> tuple[float, float | None]:
        """Return the interval of another confidence level."""
        rate, count = statistics.fmean(self.rates), len(self.rates)
        if not rate:
            return 0.0, None
        quantile = student_t(count - 1, (1 + confidence) / 2)
        margin = quantile * statistics.stdev(self.rates) / math.sqrt(count)
        high = lines_per_game(self.rules, rate - margin) if rate > margin else None
        return lines_per_game(self.rules, rate + margin), high

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as plain values, for JSON."""
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
            "pieces_known": self.pieces_known,
            "lookahead": self.lookahead,
            "resolved": self.resolved,
        }


def student_t(degrees: int, probability: float = 0.975) -> float:
    """Return a quantile of Student's distribution.

    The expansion in Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5. The 97.5 % quantile is
    exact to 0.1 % from 15 degrees of freedom on.
    """
    z = statistics.NormalDist().inv_cdf(probability)
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def rarely_loses(games: int, decisions: int) -> bool:
    """Return whether a controller rarely loses: at most `MOST_ENDS` games in `PLAYED` decisions."""
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
    pieces_known: int = 1,
    lookahead: bool = False,
) -> Estimate:
    """Estimate one controller in batches of `ESTIMATES` estimates until it is good enough.

    Ranks make a batch each; see `kernels.support.ranks`.

    Args:
        label: Label of the controller.
        controller: The controller.
        rules: The rules.
        device: One of `tetris.play.devices.NATIVE`; in Python it would take hours.
        enough: Returns whether an estimate is good enough.
        seed: Seed of the pieces.
        streams: Streams of each estimate, 2 to `tetris.play.splitting.MOST_STREAMS`.
        check: Called a few times a second; an exception ends the estimate.
        pieces_known: 1, the piece that falls, or 2, the next one, too.
        lookahead: See `tetris.Rollout`.
    """
    weights = torch.tensor([controller.weights] * ESTIMATES)
    began = time.perf_counter()
    rates: list[float] = []
    made = 0
    with progress(desc=f"estimating {label} on {rules.board}", unit=" estimates", leave=False) as bar:

        def show() -> None:
            bar.update(0)
            if check is not None:
                check()

        def batch() -> torch.Tensor:
            found = split_rollout(
                weights,
                rules,
                streams,
                DECISIONS,
                seed,
                device,
                features=controller.features,
                share_streams=False,
                first_stream=(len(rates) + ranks.rank() * ESTIMATES) * streams,
                pieces_known=pieces_known,
                lookahead=lookahead,
                check=show,
            )
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
                estimated = Estimate(
                    *(
                        label,
                        controller,
                        rules,
                        device,
                        seed,
                        streams,
                        tuple(rates),
                        made,
                        passed,
                        pieces_known,
                        lookahead,
                    )
                )
                if enough(estimated):
                    return estimated


def games_ended(
    controller: LinearController,
    rules: Rules,
    device: str,
    seed: int,
    pieces_known: int = 1,
    lookahead: bool = False,
) -> int:
    """Return the number of games that end in `PLAYED` decisions without splitting."""
    features = controller.features
    own = ranks.share(STREAMS)

    def play() -> torch.Tensor:
        played = rollout(
            [controller.weights],
            rules,
            own.stop - own.start,
            2 * DECISIONS,
            seed,
            device,
            features=features,
            first_stream=own.start,
            pieces_known=pieces_known,
            lookahead=lookahead,
        )
        return played.games.cpu()

    return int(ranks.gather(ranks.run_collective(play), ranks.count()).sum())


def check_rarely_loses(
    label: str,
    controller: LinearController,
    rules: Rules,
    device: str,
    seed: int,
    pieces_known: int = 1,
    lookahead: bool = False,
) -> None:
    """Raise ValueError if a controller loses often enough to be played instead."""
    games, decisions = games_ended(controller, rules, device, seed, pieces_known, lookahead), PLAYED
    if not rarely_loses(games, decisions):
        raise ValueError(
            f"{label} ends {games:,} games in {decisions:,} decisions on {rules.board}: "
            "evaluate scores it by them"
        )
