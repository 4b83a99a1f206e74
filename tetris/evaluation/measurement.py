"""Measures scores by playing games: how many streams to play, and when to stop."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from kernels.support import ranks
from kernels.support.progress import progress
from tetris import LinearController, Lookahead, Policy, Rollout, Rules, Score, Streams
from tetris.evaluation import DEFAULT_SEED
from tetris.play.splitting import BURN_IN
from tetris.record.score import ESTIMATOR, dispersion

FEW_STREAMS = 8
"""Parallel streams in Python if the limit is a time."""

STREAMS = 64
"""Parallel streams that keep every core busy."""

MOST_STREAMS = 1 << 17
"""Parallel streams that keep a large GPU busy."""

GPU_STREAMS = 132 * 1024
"""Parallel streams on a GPU if the limit is a time: 1024 for each multiprocessor of an H200."""

# With so many decisions or games on each stream, the burn-in is a small part of the work.
DECISIONS_PER_STREAM = 1 << 14
# With fewer decisions on each stream, games whose stack only rises, such as those with the
# pieces S and Z, would begin and rarely end: the score would be several times too high.
LEAST_DECISIONS = 16 * BURN_IN
GAMES_PER_STREAM = 8

# All streams begin a game at the same time. If games differ little in length, all streams also
# end them at about the same time. After this many games, the differences have added up.
_SETTLED_GAMES = 4
_REGULAR = 0.5  # Games differ little in length if the dispersion of the counts is below this.

_LARGEST_CHUNK = 1 << 14  # Decisions on a stream.
_LARGEST_STEP = 1 << 26  # Decisions on all streams.
_CHUNK_SECONDS = 0.2


@dataclass(frozen=True)
class Limit:
    """When to stop: after a number of games, decisions or seconds. Only one of them is set."""

    games: int | None = None
    decisions: int | None = None
    seconds: float | None = None

    def reached(self, score: Score, seconds: float) -> bool:
        """Return whether the limit is reached."""
        if self.games is not None:
            return score.games >= self.games
        if self.decisions is not None:
            return score.decisions >= self.decisions
        return self.seconds is not None and seconds >= self.seconds


@dataclass(frozen=True)
class Trial:
    """A controller and the games that it plays, for a measurement or an estimate.

    Attributes:
        label: Name of the controller in tables.
        controller: The controller.
        rules: The rules of the games.
        device: The engine.
        seed: Seed of the pieces.
        lookahead: What decisions consider.
    """

    label: str
    controller: LinearController
    rules: Rules
    device: str
    seed: int = DEFAULT_SEED
    lookahead: Lookahead = Lookahead.NONE

    @property
    def policy(self) -> Policy:
        """The controller as a rollout plays it."""
        return self.controller.policy(self.lookahead)

    def streams(self, count: int, first: int, *, shared: bool = True) -> Streams:
        """Return streams of pieces with the rules and the seed of the trial; see `Streams`."""
        return Streams(self.rules, count, self.seed, first, shared)

    def to_dict(self, **results: Any) -> dict[str, Any]:
        """Return the trial and the given results as a dictionary of plain values, for JSON."""
        return {
            "controller": self.label,
            "features": self.controller.features,
            "weights": list(self.controller.weights),
            "board": self.rules.board,
            "rule": self.rules.rule,
            "pieces": self.rules.pieces,
            "device": self.device,
            **results,
            "seed": self.seed,
            **self.lookahead.to_dict(),
        }


@dataclass(frozen=True)
class Measurement:
    """A score from played games, and the wall time in seconds without the burn-in."""

    trial: Trial
    score: Score
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the trial and its score as a dictionary of plain values, for JSON."""
        speed = self.score.decisions / self.seconds if self.seconds else None
        return self.trial.to_dict(
            estimator=ESTIMATOR,
            lines_per_game=self.score.lines_per_game,
            ci95=list(self.score.ci95),
            dispersion=self.score.dispersion,
            games=self.score.games,
            lines=self.score.lines,
            decisions=self.score.decisions,
            seconds=self.seconds,
            decisions_per_second=speed,
        )


def streams_for(limit: Limit, device: str) -> int:
    """Return how many parallel streams to play: more for a higher limit, up to `MOST_STREAMS`.

    If the decisions are few, so are the streams: each makes `LEAST_DECISIONS` if it can. There
    are never more streams than games. The number depends on the device only if the limit is in
    seconds.
    """
    if limit.seconds is not None:
        return {"cuda": GPU_STREAMS, "python": FEW_STREAMS}.get(device, STREAMS)
    if limit.games is not None:
        # With less than a game on each stream, the dispersion would not show that all streams
        # are still in their first games.
        fewest = min(limit.games, STREAMS)
        return max(fewest, min(limit.games // GAMES_PER_STREAM, MOST_STREAMS))
    assert limit.decisions is not None
    fewest = min(limit.decisions // LEAST_DECISIONS, STREAMS)
    return max(1, fewest, min(limit.decisions // DECISIONS_PER_STREAM, MOST_STREAMS))


def measure(trial: Trial, limit: Limit, check: Callable[[], None] | None = None) -> Measurement:
    """Measure the score of a controller: the lines that it removes per game.

    The controller plays many streams of games in parallel, with the same number of decisions on
    each stream. The first `BURN_IN` decisions do not count: no game ends soon after its start,
    so they would bias the score. If games are short, the first `_SETTLED_GAMES` games of each
    stream do not count, either. All streams begin at once, so games of similar lengths also end
    at once at first, and the number of ended games is too small by up to half a game per
    stream.

    Unless the limit is in seconds, the same arguments give the same score on every device. If
    several processes, called ranks, work together, each of them plays its share of the streams.

    Args:
        trial: The controller and its games.
        limit: When to stop.
        check: Called a few times a second. If it raises an exception, the measurement ends.
    """
    streams = streams_for(limit, trial.device)
    games = _Games(trial, streams, check)

    def show(score: Score) -> None:
        """Show a score, and the progress towards the limit, in the progress bar."""
        if score.lines_per_game is not None:
            bar.set_postfix_str(f"{score.lines_per_game:,.0f} lines/game", refresh=False)
        done = score.games if limit.games else score.decisions
        bar.update(done - bar.n)  # The bar takes the difference.

    desc = f"{trial.label} on {trial.rules.board}"
    unit = " games" if limit.games else " decisions"
    total = limit.games or limit.decisions
    settled = Limit(games=_SETTLED_GAMES * streams)
    with progress(desc=desc, total=total, unit=unit) as bar:
        # The lines and games that do not count: at first, the ones of the burn-in.
        before = ranks.run_collective(partial(games.play, BURN_IN))
        before.sum().item()  # Wait for the GPU before the clock starts.
        counts, score, seconds = games.count_on(before, (limit, settled), show)
        is_settled = settled.reached(score, seconds)
        # If the counts of the streams hardly differ, the streams still end their games
        # together. Then play until they no longer do, even if the limit is low.
        may_go_on = not is_settled and limit.seconds is None
        if may_go_on and games.measure_dispersion(counts) < _REGULAR:
            counts, score, seconds = games.count_on(before, (settled,), show)
            is_settled = True
        if is_settled:
            # Only the games that end from now on count.
            counts, score, seconds = games.count_on(before + counts, (limit,), show)
    # The interval of the score follows from how much the counts of the streams differ.
    score = replace(score, dispersion=games.measure_dispersion(counts))
    return Measurement(trial, score, seconds)


class _Games:
    """The games of a measurement. Each rank plays its share of their streams."""

    def __init__(self, trial: Trial, streams: int, check: Callable[[], None] | None) -> None:
        """Set up the games; nothing is played yet.

        Args:
            trial: The controller and its games.
            streams: The number of streams of all ranks.
            check: Called a few times a second. If it raises an exception, the games end.
        """
        share = ranks.share(streams)  # The streams that this rank plays, as a slice.
        self._share_size = share.stop - share.start
        # If there are more ranks than streams, the share of some ranks is empty. They play one
        # stream nevertheless, which `play` leaves out of the counts.
        rank_streams = trial.streams(max(1, self._share_size), share.start)
        self._rollout = Rollout(trial.policy, rank_streams, trial.device)
        self._streams = streams
        self._check = check
        self._chunk = 0  # The decisions on each stream from one check of the goals to the next.

    def play(self, decisions: int) -> Tensor:
        """Play on; return the lines and games of each stream so far, shape (share size, 2)."""
        self._rollout.play_on(decisions, self._check)
        # The controller is the only candidate of the rollout, number 0.
        lines = self._rollout.stream_lines[0]
        games = self._rollout.stream_games[0]
        return torch.stack([lines, games], dim=1)[: self._share_size]

    def count_on(
        self, before: Tensor, goals: Sequence[Limit], show: Callable[[Score], None]
    ) -> tuple[Tensor, Score, float]:
        """Play until one of the goals is reached, and count the lines and the games.

        Args:
            before: What `play` returned before the games that count.
            goals: When to stop. The first one determines how rarely the goals are checked.
            show: Called with the score so far after each check.

        Returns:
            The lines and games of each stream of this rank since ``before``, shape (share size,
            2); the score of all streams of all ranks; and the seconds that this call took.
        """
        start_time = time.perf_counter()
        counts = torch.zeros_like(before)
        score = Score(lines=0, games=0, decisions=0)
        seconds = 0.0
        while not any(goal.reached(score, seconds) for goal in goals):
            chunk = _next_chunk(goals[0], score, seconds, self._streams, self._chunk)
            # Play on this rank, and wait for the other ranks.
            counts = ranks.run_collective(partial(self.play, chunk)) - before
            # Sum the lines and the games over the streams of this rank, then over all ranks.
            own_sums = counts.sum(0, keepdim=True).cpu()
            lines, games = ranks.gather(own_sums, ranks.count()).sum(0).tolist()
            score = Score(lines, games, score.decisions + chunk * self._streams)
            seconds = _agree_on_seconds(start_time)
            show(score)
            self._chunk = chunk  # The next call also begins with chunks of this length.
        return counts, score, seconds

    def measure_dispersion(self, counts: Tensor) -> float:
        """Return how much the counts of the streams of all ranks differ."""
        return dispersion(ranks.gather(counts.cpu(), self._streams))


def _agree_on_seconds(start_time: float) -> float:
    """Return the seconds since the start on the slowest rank.

    All ranks get the same number, so they stop together.
    """
    # Ranks can only exchange integers.
    microseconds = round((time.perf_counter() - start_time) * 1e6)
    return ranks.all_reduce_max([microseconds])[0] / 1e6


def _next_chunk(limit: Limit, score: Score, seconds: float, streams: int, last: int) -> int:
    """Return how many decisions to play on each stream before the limit is checked again.

    Checks should be rare, because a GPU is idle during them. A chunk is at most twice as long
    as the last one, and no longer than the rest of the measurement probably is. If the limit is
    in games or decisions, the clock is not used, so that the score is reproducible.
    """
    # The decisions that are still needed on each stream. Assume that the rest of the
    # measurement has the pace of what was played so far.
    needed = float(_LARGEST_STEP // streams)
    if limit.games is not None and score.games:
        missing_games = limit.games - score.games
        needed = min(needed, missing_games * score.decisions / (score.games * streams))
    elif limit.decisions is not None:
        needed = min(needed, (limit.decisions - score.decisions) / streams)
    elif limit.seconds is not None and score.decisions:
        decisions_per_second = score.decisions / (seconds * streams)
        needed = decisions_per_second * min(limit.seconds - seconds, _CHUNK_SECONDS)
    return max(1, min(math.ceil(needed), 2 * last, _LARGEST_CHUNK))
