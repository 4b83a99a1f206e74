"""Estimates of lines per game by importance splitting, for controllers that rarely lose."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernels.support import ranks
from kernels.support.progress import progress
from tetris import rollout
from tetris.evaluation.measurement import Trial
from tetris.play.splitting import (
    BURN_IN,
    MOST_RATE,
    SplitRollout,
    least_rate,
    lines_per_game,
)

ESTIMATES = 16
"""The independent estimates of a batch, made in parallel; an `Estimate` has whole batches."""

STREAMS = 1024
"""The streams of an independent estimate, enough for 10x20; see `tetris.split_rollout`."""

DECISIONS = BURN_IN + 1000
"""The decisions on each stream of an independent estimate."""

PLAYED = 2 * STREAMS * DECISIONS
"""The decisions that `games_ended` plays without splitting."""

MOST_ENDS = int(MOST_RATE * PLAYED)
"""If more games than this end in `PLAYED` decisions, the controller is scored by playing."""

METHOD = (
    "mean of importance splitting estimates, Student's t interval of their termination rate"
)


@dataclass(frozen=True)
class Estimate:
    """An estimate of a controller's lines per game, from several independent estimates.

    Attributes:
        trial: The controller, and the games that it played.
        streams: The streams of each independent estimate.
        rates: The termination rate of each independent estimate: games ended per decision.
        decisions: The decisions of all independent estimates together.
        seconds: The wall time.
    """

    trial: Trial
    streams: int
    rates: Sequence[float]
    decisions: int
    seconds: float

    @property
    def rate(self) -> float:
        """The mean termination rate."""
        return statistics.fmean(self.rates)

    @property
    def lines_per_game(self) -> float | None:
        """The estimate, lines per game; None if no game ended."""
        return lines_per_game(self.trial.rules, self.rate) if self.rate else None

    @property
    def resolved(self) -> bool:
        """Whether the rate is high enough for the weights of streams; see `least_rate`."""
        return not self.rate or self.rate >= least_rate(self.streams)

    @property
    def ci95(self) -> tuple[float, float | None]:
        """The 95 % interval. Its upper end is None if the interval of the rate contains 0."""
        rules = self.trial.rules
        rate = self.rate
        count = len(self.rates)
        if not rate:
            return 0.0, None
        margin = student_t(count - 1) * statistics.stdev(self.rates) / math.sqrt(count)
        low = lines_per_game(rules, rate + margin)
        high = lines_per_game(rules, rate - margin) if rate > margin else None
        return low, high

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as plain values, for JSON."""
        values = self.trial.to_dict(
            estimator=METHOD,
            lines_per_game=self.lines_per_game,
            ci95=list(self.ci95),
            estimates=len(self.rates),
            streams=self.streams,
            decisions=self.decisions,
            seconds=self.seconds,
        )
        return {**values, "resolved": self.resolved}


def student_t(degrees: int) -> float:
    """Return the 97.5 % quantile of Student's t distribution.

    The error is below 0.1 % from 15 degrees of freedom on. The formula is the expansion 26.7.5
    in Abramowitz and Stegun, Handbook of Mathematical Functions.
    """
    z = statistics.NormalDist().inv_cdf(0.975)
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def estimate(
    trial: Trial,
    is_enough: Callable[[Estimate], bool],
    streams: int = STREAMS,
    check: Callable[[], None] | None = None,
) -> Estimate:
    """Estimate the lines per game of one controller, as the mean of independent estimates.

    Each independent estimate is a rollout with importance splitting, on its own streams of
    pieces. It yields a termination rate: games ended per decision. This function makes batches
    of `ESTIMATES` independent estimates until ``is_enough`` returns True. If several processes,
    called ranks, work together, each of them makes one batch at a time.

    Args:
        trial: The controller, and the games to play. With the Python engine this takes hours.
        is_enough: Called after each batch; returns whether the result is good enough.
        streams: The streams of each independent estimate.
        check: Called a few times a second. If it raises an exception, the estimate ends.
    """
    start_time = time.perf_counter()
    # A rollout plays several candidates at once. Here the candidates are copies of the
    # controller, one for each estimate of a batch.
    policy = replace(trial.policy, weights=[trial.controller.weights] * ESTIMATES)
    result = Estimate(trial, streams, rates=(), decisions=0, seconds=0.0)
    desc = f"estimating {trial.label} on {trial.rules.board}"
    with progress(desc=desc, unit=" estimates") as bar:

        def update_bar() -> None:
            """Update the time in the progress bar, and let ``check`` interrupt the estimate."""
            bar.update(0)
            if check is not None:
                check()

        def play_batch() -> torch.Tensor:
            """Play a batch; return a row: its rates, its decisions, and the seconds so far."""
            # Earlier batches of all ranks, and the batches of lower ranks, come first. No two
            # estimates share streams of pieces.
            number = len(result.rates) + ranks.rank() * ESTIMATES
            batch_streams = trial.streams(streams, number * streams, shared=False)
            games = SplitRollout(policy, batch_streams, trial.device)
            batch = games.advance(DECISIONS, update_bar)
            row = [*batch.rate.tolist(), int(batch.decisions.sum())]
            seconds = time.perf_counter() - start_time
            return torch.tensor([[*row, seconds]], dtype=torch.float64)

        while True:
            # Play a batch on every rank, and get the rows of all ranks.
            own_row = ranks.run_collective(play_batch)
            rows = ranks.gather(own_row, ranks.count()).tolist()
            seconds = max(row[-1] for row in rows)
            # Add the batches of the ranks one by one, and stop as soon as the result is good
            # enough. A single process would make the same batches and stop at the same one.
            for *rates, decisions, _ in rows:
                result = replace(
                    result,
                    rates=(*result.rates, *rates),
                    decisions=result.decisions + int(decisions),
                    seconds=seconds,
                )
                bar.update(ESTIMATES)
                if is_enough(result):
                    return result


def games_ended(trial: Trial) -> int:
    """Return how many games of a controller end in `PLAYED` decisions without splitting.

    They are 2 * `DECISIONS` on each of `STREAMS` streams. If several processes, called ranks,
    work together, each of them plays its share of the streams.
    """
    share = ranks.share(STREAMS)

    def count_own_games() -> torch.Tensor:
        """Play this rank's streams; return how many games ended, shape (1,)."""
        streams = trial.streams(share.stop - share.start, share.start)
        return rollout(trial.policy, streams, 2 * DECISIONS, trial.device).games.cpu()

    own_games = ranks.run_collective(count_own_games)
    games_of_ranks = ranks.gather(own_games, ranks.count())
    return int(games_of_ranks.sum())
