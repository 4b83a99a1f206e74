"""Streams of games: which pieces a rollout plays, and by which rules."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernels.support.checks import check_flags, check_integer
from tetris.game.rules import Rules, check_rules


@dataclass(frozen=True)
class Streams:
    """Streams of pieces, the same number for every candidate; one game follows another on each.

    Attributes:
        rules: The rules of the games.
        count: Streams of a candidate, at least 1.
        seed: Chooses the pieces, 0 to 2^64 - 1.
        first: Number of the first stream, 0 to 2^62.
        shared: Whether all candidates play on the streams ``first`` onwards (common random numbers);
            otherwise candidate i has its own, from ``first + i * count`` onwards.
        games: A stream stops at the end of this many games, at least 1, and costs almost nothing afterwards.
            None: streams never stop.

    Raises:
        TypeError: If a value has the wrong type.
        ValueError: If one is out of range.
    """

    rules: Rules = field(default_factory=Rules)
    count: int = 1
    seed: int = 0
    first: int = 0
    shared: bool = True
    games: int | None = None

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_rules(self.rules)
        check_flags(shared=self.shared)
        ranges = {"count": (1, 1 << 31), "seed": (0, (1 << 64) - 1), "first": (0, 1 << 62)}
        if self.games is not None:
            ranges["games"] = (1, 1 << 62)
        for name, bounds in ranges.items():
            object.__setattr__(self, name, check_integer(name, getattr(self, name), *bounds))

    def stream(self, candidate: int, index: int) -> int:
        """Return the number of a candidate's stream, from 0, among all streams of the seed."""
        return self.first + (index if self.shared else candidate * self.count + index)


def check_streams(streams: object) -> Streams:
    """Return an argument if it is `Streams`, or raise TypeError."""
    if not isinstance(streams, Streams):
        raise TypeError(f"expected Streams, got {type(streams).__name__}")
    return streams
