"""Played scores: when to stop, and how many streams."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernels.support import ranks
from kernels.support.progress import progress
from tetris import LinearController, Lookahead, Policy, Rules, Score, Streams
from tetris.evaluation import DEFAULT_SEED
from tetris.play.rollouts import Rollout
from tetris.play.splitting import BURN_IN
from tetris.record.score import ESTIMATOR, dispersion

FEW_STREAMS, STREAMS, MOST_STREAMS = 8, 64, 1 << 17
"""Numbers of parallel streams: for a few thousand decisions, for every core, and for a large GPU."""

GPU_STREAMS = 132 * 1024
"""The number of parallel streams on a GPU by the clock: 1024 for each multiprocessor of an H200."""

DECISIONS_PER_STREAM, GAMES_PER_STREAM = 1 << 14, 8
"""Decisions per stream, if the number of streams is free: the burn-in hardly costs, and a GPU is busy."""

_LARGEST_CHUNK = 1 << 14  # decisions on a stream
_LARGEST_STEP = 1 << 26  # decisions on all streams
_CHUNK_SECONDS = 0.2


@dataclass(frozen=True)
class Limit:
    """When to stop, exactly one of them: at least so many games ended, decisions in total, wall time."""

    games: int | None = None
    decisions: int | None = None
    seconds: float | None = None

    def reached(self, score: Score, seconds: float) -> bool:
        """Return whether the limit is reached."""
        found = (self.games, score.games), (self.decisions, score.decisions), (self.seconds, seconds)
        return any(most is not None and value >= most for most, value in found)


@dataclass(frozen=True)
class Trial:
    """Who plays which game on which engine: what a measurement and an estimate have in common."""

    label: str  # of the controller, in tables
    controller: LinearController
    rules: Rules
    device: str
    seed: int = DEFAULT_SEED  # of the pieces
    lookahead: Lookahead = Lookahead.NONE

    @property
    def policy(self) -> Policy:
        """The controller as a rollout plays it."""
        return self.controller.policy(self.lookahead)

    def streams(self, count: int, first: int = 0, *, shared: bool = True) -> Streams:
        """Return streams of its rules and seed."""
        return Streams(self.rules, count, self.seed, first, shared)

    def to_dict(self, **found: Any) -> dict[str, Any]:
        """Return the trial with what was found as plain values, for JSON."""
        return {
            "controller": self.label,
            "features": self.controller.features,
            "weights": list(self.controller.weights),
            "board": self.rules.board,
            "rule": self.rules.rule,
            "pieces": self.rules.pieces,
            "device": self.device,
            **found,
            "seed": self.seed,
            **self.lookahead.to_dict(),
        }


@dataclass(frozen=True)
class Measurement:
    """A played score, and the wall time without the burn-in."""

    trial: Trial
    score: Score
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the measurement as plain values, for JSON."""
        return self.trial.to_dict(
            estimator=ESTIMATOR,
            lines_per_game=self.score.lines_per_game,
            ci95=list(self.score.ci95),
            dispersion=self.score.dispersion,
            games=self.score.games,
            lines=self.score.lines,
            decisions=self.score.decisions,
            seconds=self.seconds,
            decisions_per_second=self.score.decisions / self.seconds if self.seconds else None,
        )


def streams_for(limit: Limit, device: str) -> int:
    """Return the number of parallel streams: it grows with the limit, up to `MOST_STREAMS`.

    It is less where fewer decisions are to be made than would be in the burn-in of so many. It depends on the
    device only for a limit in seconds.
    """
    if limit.seconds is not None:
        return {"cuda": GPU_STREAMS, "python": FEW_STREAMS}.get(device, STREAMS)
    if limit.games is not None:
        return max(STREAMS, min(limit.games // GAMES_PER_STREAM, MOST_STREAMS))
    assert limit.decisions is not None
    least = max(FEW_STREAMS, min(limit.decisions // BURN_IN, STREAMS))
    return max(least, min(limit.decisions // DECISIONS_PER_STREAM, MOST_STREAMS))


def measure(trial: Trial, limit: Limit, check: Callable[[], None] | None = None) -> Measurement:
    """Play parallel streams of games and count, after a burn-in of `BURN_IN` decisions on each.

    Without it the ratio would be biased: no game ends soon after its start. The score is a pure function of
    the arguments, the same on every device, unless the limit is in seconds; decisions are rounded up to as
    many on each stream. Ranks play their share of the streams each; see `kernels.support.ranks`. ``check`` is
    called a few times a second; an exception ends the measurement.
    """
    streams = streams_for(limit, trial.device)
    own = ranks.share(streams)
    share = max(1, own.stop - own.start)  # a rank without a stream plays one that is not counted
    rollout = Rollout(trial.policy, trial.streams(share, own.start), trial.device)

    def play() -> torch.Tensor:
        """Play on; lines and games ended of this rank's streams, shape (streams, 2), on the device."""
        rollout.play_on(chunk, check)
        counts = torch.stack([rollout.stream_lines[0], rollout.stream_games[0]], dim=1)
        return counts[: own.stop - own.start]

    desc, unit = f"{trial.label} on {trial.rules.board}", " games" if limit.games else " decisions"
    with progress(desc=desc, total=limit.games or limit.decisions, unit=unit, leave=False) as bar:
        chunk = BURN_IN
        before = counts = ranks.run_collective(play)
        before.sum().item()  # waits for a GPU: the burn-in takes no time of the measurement
        began = time.perf_counter()
        score, seconds, chunk = Score(0, 0, 0), 0.0, 0
        while not limit.reached(score, seconds):
            chunk = _next_chunk(limit, score, seconds, streams, chunk)
            counts = ranks.run_collective(play) - before
            lines, games = ranks.gather(counts.sum(0, keepdim=True).cpu(), ranks.count()).sum(0).tolist()
            score = Score(lines, games, score.decisions + chunk * streams)
            seconds = ranks.all_reduce_max([round((time.perf_counter() - began) * 1e6)])[0] / 1e6
            text = "" if score.lines_per_game is None else f"{score.lines_per_game:,.0f} lines/game"
            bar.set_postfix_str(text, refresh=False)
            bar.update((score.games if limit.games else score.decisions) - bar.n)
    score = replace(score, dispersion=dispersion(ranks.gather(counts.cpu(), streams)))
    return Measurement(trial, score, seconds)


def _next_chunk(limit: Limit, score: Score, seconds: float, streams: int, last: int) -> int:
    """Return the decisions per stream until the next look at the limit, which interrupts a GPU.

    At most twice those of the last time, and no more than are likely to be needed. With a limit in games or
    decisions the clock is not used, so that the result is a function of the arguments.
    """
    needed = float(_LARGEST_STEP // streams)
    if limit.games is not None and score.games:
        needed = min(needed, (limit.games - score.games) * score.decisions / (score.games * streams))
    elif limit.decisions is not None:
        needed = min(needed, (limit.decisions - score.decisions) / streams)
    elif limit.seconds is not None and score.decisions:
        rate = score.decisions / (seconds * streams)
        needed = rate * min(limit.seconds - seconds, _CHUNK_SECONDS)
    return max(1, min(math.ceil(needed), 2 * last, _LARGEST_CHUNK))
