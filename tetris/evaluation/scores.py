"""Played scores: when to stop, how many streams, and the table."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from kernels.support import ranks
from tetris import LinearController, Rules, Score
from tetris.progress import progress
from tetris.rollouts import Rollout
from tetris.score import ESTIMATOR

STREAMS, MOST_STREAMS = 64, 1 << 17
"""The least number of parallel streams: enough for every core and for a large GPU."""

GPU_STREAMS = 132 * 1024
"""The greatest number of parallel streams: 1024 for each multiprocessor of an H200."""

DECISIONS_PER_STREAM, GAMES_PER_STREAM = 1 << 16, 8
"""Decisions a stream, if the number of streams is free: the start on an empty board hardly counts."""

_LARGEST_CHUNK = 1 << 14  # decisions on a stream
_LARGEST_STEP = 1 << 26  # decisions on all streams
_CHUNK_SECONDS = 0.2


@dataclass(frozen=True)
class Limit:
    """When to stop; exactly one of the three is given.

    Attributes:
        games: The least number of games ended.
        decisions: Decisions in total.
        seconds: Wall time, in seconds.
    """

    games: int | None = None
    decisions: int | None = None
    seconds: float | None = None

    def reached(self, score: Score, seconds: float) -> bool:
        """Return whether the limit is reached."""
        if self.games is not None:
            return score.games >= self.games
        if self.decisions is not None:
            return score.decisions >= self.decisions
        assert self.seconds is not None
        return seconds >= self.seconds


@dataclass(frozen=True)
class Measurement:
    """The score of one controller and how it was measured.

    Attributes:
        label: Label of the controller.
        controller: The controller.
        rules: The rules.
        pieces: Piece source, or the file of the pieces.
        seed: Seed of the pieces; None for pieces of a file.
        device: The engine.
        score: The counts.
        seconds: Wall time, in seconds.
        pieces_known: 1, the piece that falls, or 2, the next one, too.
        lookahead: Whether all pieces that may come next are thought of.
    """

    label: str
    controller: LinearController
    rules: Rules
    pieces: str
    seed: int | None
    device: str
    score: Score
    seconds: float
    pieces_known: int = 1
    lookahead: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the measurement as plain values, for JSON."""
        return {
            **who_played(self.label, self.controller, self.rules, self.pieces, self.device),
            "estimator": ESTIMATOR,
            "lines_per_game": self.score.lines_per_game,
            "ci95": list(self.score.ci95),
            "games": self.score.games,
            "lines": self.score.lines,
            "decisions": self.score.decisions,
            "seconds": self.seconds,
            "decisions_per_second": self.score.decisions / self.seconds if self.seconds else None,
            "seed": self.seed,
            "pieces_known": self.pieces_known,
            "lookahead": self.lookahead,
        }


def who_played(
    label: str, controller: LinearController, rules: Rules, pieces: str, device: str
) -> dict[str, Any]:
    """Return the fields that measurements and estimates share, as plain values, for JSON."""
    return {
        "controller": label,
        "features": controller.features,
        "weights": list(controller.weights),
        "board": rules.board,
        "rule": rules.rule,
        "pieces": pieces,
        "device": device,
    }


def find_measurement(measurements: Sequence[dict[str, Any]], controller: str, board: str) -> dict[str, Any]:
    """Return a controller's measurement on a board from a list of plain values."""
    return next(m for m in measurements if m["controller"] == controller and m["board"] == board)


def find_estimate(run: Mapping[str, Any], controller: str, board: str) -> dict[str, Any] | None:
    """Return a controller's estimate on a board; None if there is none, or no game ended in it."""
    found = (
        each
        for each in run.get("estimates", ())
        if (each["controller"], each["board"]) == (controller, board) and each["lines_per_game"] is not None
    )
    return next(found, None)


def streams_for(limit: Limit, device: str) -> int:
    """Return the number of parallel streams, `STREAMS` to `MOST_STREAMS`.

    It grows with the limit. It divides a limit in decisions, so that exactly that many are played; without a
    divisor near, the number of decisions is rounded up. It depends on the device only for a limit in seconds.
    """
    if limit.seconds is not None:
        return GPU_STREAMS if device == "cuda" else STREAMS
    if limit.games is not None:
        return _clamped(limit.games // GAMES_PER_STREAM)
    assert limit.decisions is not None
    wanted = _clamped(limit.decisions // DECISIONS_PER_STREAM)
    divisors = (n for n in range(wanted, wanted // 4 - 1, -1) if limit.decisions % n == 0)
    return next(divisors, min(wanted, limit.decisions))


def _clamped(streams: int) -> int:
    return max(STREAMS, min(streams, MOST_STREAMS))


def measure(
    controller: LinearController,
    rules: Rules,
    limit: Limit,
    seed: int,
    device: str,
    progress: Callable[[Score], object] = lambda score: None,
    check: Callable[[], None] | None = None,
    *,
    pieces_known: int = 1,
    lookahead: bool = False,
    streams: int | None = None,
) -> tuple[Score, float]:
    """Play parallel streams of games and count.

    The result is a pure function of the arguments, the same on every device, unless the limit is in seconds.
    Ranks play their share of the streams each; see `kernels.support.ranks`.

    Args:
        controller: The controller.
        rules: The rules.
        limit: When to stop.
        seed: Seed of the pieces.
        device: ``"cpu"``, ``"cuda"`` or ``"python"``.
        progress: Called several times with the score so far.
        check: Called a few times a second; an exception ends the measurement.
        pieces_known: 1, the piece that falls, or 2, the next one, too.
        lookahead: See `tetris.Rollout`.
        streams: How many there are; by default `streams_for` the limit.

    Returns:
        The score, and the seconds it took.

    Raises:
        BuildError: If the engine cannot be built.
    """
    streams = streams_for(limit, device) if streams is None else streams
    weights = torch.tensor([controller.weights], dtype=torch.float32)
    own = ranks.share(streams)
    rollout = Rollout(
        weights,
        rules,
        max(1, own.stop - own.start),  # a rank without a stream plays one that is not counted
        seed,
        device,
        features=controller.features,
        first_stream=own.start,
        pieces_known=pieces_known,
        lookahead=lookahead,
    )
    began = time.perf_counter()
    score, seconds, chunk = Score(0, 0, 0), 0.0, 0

    def play() -> torch.Tensor:
        totals = rollout.advance(chunk, check)
        counts = int(totals.lines[0]), int(totals.games[0]), int(totals.decisions[0])
        microseconds = round((time.perf_counter() - began) * 1e6)
        return torch.tensor([[*(counts if own.stop > own.start else (0, 0, 0)), microseconds]])

    while not limit.reached(score, seconds):
        chunk = _next_chunk(limit, score, seconds, streams, chunk)
        found = ranks.gather(ranks.together(play), ranks.count())
        score, seconds = Score(*found[:, :3].sum(0).tolist()), int(found[:, 3].max()) / 1e6
        progress(score)
    return score, seconds


@contextmanager
def progress_bar(label: str, limit: Limit) -> Iterator[Callable[[Score], None]]:
    """Show the progress of a measurement on stderr; yields a function to call with the score so far."""
    unit = "games" if limit.games else "decisions"
    with progress(desc=label, total=limit.games or limit.decisions, unit=f" {unit}", leave=False) as bar:

        def update(score: Score) -> None:
            bar.set_postfix_str(
                "" if score.lines_per_game is None else f"{score.lines_per_game:,.0f} lines/game"
            )
            bar.update((score.games if limit.games else score.decisions) - bar.n)

        yield update


def _next_chunk(limit: Limit, score: Score, seconds: float, streams: int, last: int) -> int:
    """Return the decisions a stream until the next look at the limit, which interrupts a GPU.

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
