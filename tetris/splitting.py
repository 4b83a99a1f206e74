"""How rarely a good player loses, by importance splitting: games that come near an end are played many times.

A controller that ends a game in a hundred million decisions shows no end in a million, and all that are as
good as that look alike. But a game ends from a high wall only, and a wall rises row by row. So every stream
has a mass, all of them together the same at any time, and every few decisions the streams of a candidate are
drawn anew, such that as many are at every

    level = max(0, 0.6 rows to the highest cell + 0.9 rows to the highest cell of a column, in the mean - 6)

that is reached at all: a stream on a low wall is dropped or goes on with more mass, one that came to where
mass is rare goes on several times, with less mass each. What a level usually holds is learned on the way, for
each candidate by itself; where one holds more than usual for once, that counts, so that a rare climb does not
crowd out the streams below. The share of games that end in a decision is estimated by

    rate = mean over time of  sum of the mass of the streams that ended / sum of all mass.

Splitting and roulette are H. Kahn and T. Harris, Estimation of Particle Transmission by Random Sampling,
1951; streams in equal number at all levels are the weighted ensemble of G. Huber and S. Kim,
Weighted-ensemble Brownian dynamics simulations for protein association reactions, Biophysical Journal 70,
1996. The draws are systematic (G. Kitagawa, Monte Carlo Filter and Smoother, Journal of Computational and
Graphical Statistics 5, 1996). Sums are of whole numbers and all else is done number by number, so that all
engines draw the same and find the same rate.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy.typing as npt
import torch

from tetris import native
from tetris.rollouts import Rollout, checked_int
from tetris.rules import Rules

STEP = 4
"""Decisions from one draw to the next: about as many as lift the wall by a row or two."""

BAG_STEP = 7
"""The same where pieces come in bags: what is left of a bag stays with its stream."""

SETTLING = 203
"""Decisions on each stream before anything counts: by then the walls are as high as in the long run."""

MOST_STREAMS = 1 << 13
"""The streams that whole numbers of 64 bits suffice for."""

LEAST_DECISIONS = SETTLING + 10
"""On each stream, so that at least one step counts."""

_LEVELS = 32  # the highest wall there can be, all columns 24 rows high, is at 30
_MASS = 1 << 50  # of all streams of a candidate, about
_COPIES = 1 << 20  # asked for a stream that holds all that its level does; only their ratios count
_RANDOM_BITS = 12
_OWN = 2531  # draws of one candidate after the other, which are spread evenly: 4096 by the golden ratio, odd
_CELLS = 4  # of a piece

_Rate = TypeVar("_Rate", float, torch.Tensor)


@dataclass(frozen=True)
class SplitResult:
    """What the candidates of a rollout with splitting reached.

    Attributes:
        rate: Ends of games a decision, estimated; shape (population,), float64, on the GPU where the games
            are played there, otherwise on the CPU. 0 where no game ended.
        lines_per_game: What goes with it, see `lines_per_game`; infinite where no game ended. Likewise.
        lines: Lines removed on all streams, int64, likewise.
        games: Games that ended on them, however little mass they have, likewise.
        decisions: Pieces placed, likewise.
    """

    rate: torch.Tensor
    lines_per_game: torch.Tensor
    lines: torch.Tensor
    games: torch.Tensor
    decisions: torch.Tensor


def split_rollout(
    weights: npt.ArrayLike | torch.Tensor,
    rules: Rules | None = None,
    streams: int = 256,
    decisions: int = 2000,
    seed: int = 0,
    device: str = "cpu",
    *,
    features: str = "dt",
    share_streams: bool = True,
    first_stream: int = 0,
    check: Callable[[], None] | None = None,
) -> SplitResult:
    """Estimate how often each candidate loses, by importance splitting.

    It takes streams enough for all levels. With DT-20 on 10x14, 2000 decisions each, the mean of the
    estimates agrees with long play to some percent from 128 streams on, and their standard deviation is a
    quarter of it (with 264 a sixth, with 2048 a sixteenth); with 32 streams it is two thirds, and the rate a
    sixth too high in the mean. For those who lose often, long play is as fast.

    Args:
        weights: Shape (population, features), finite; used as float32.
        rules: The rules of the games.
        streams: Streams a candidate plays on, 2 to 8192.
        decisions: Pieces to place on every stream, at least ten more than `SETTLING`; those count that come
            after, but for what is left of a step.
        seed: Chooses the pieces and the draws, 0 to 2^64 - 1.
        device: ``"cpu"``, ``"cuda"`` or ``"python"``.
        features: Name of a feature set, or feature names separated by commas.
        share_streams: Whether all candidates meet the same pieces.
        first_stream: Number of the first stream.
        check: Called a few times a second; what it raises ends the rollout.

    Returns:
        Rates and counts of each candidate.

    Raises:
        TypeError: If a count is not an int.
        ValueError: If an argument is out of range; see `Rollout`.
        kernels.build.BuildError: If the engine could not be built.
    """
    rules = Rules() if rules is None else rules
    checked_int("streams", streams, 2, MOST_STREAMS)
    checked_int("decisions", decisions, LEAST_DECISIONS, 1 << 62)
    games = Rollout(
        weights,
        rules,
        streams,
        seed,
        device,
        features=features,
        share_streams=share_streams,
        first_stream=first_stream,
    )
    size = BAG_STEP if rules.pieces == "bag" else STEP
    settling, steps = -(-SETTLING // size), decisions // size
    draws = random.Random(f"splitting {seed} {first_stream}")
    masses = (_CudaMasses if device == "cuda" else Masses)(games)
    for step in range(steps):
        games.play_on(size, check)
        games.branch(masses.draw(draws.getrandbits(_RANDOM_BITS), counts=step >= settling))
    result = games.advance(decisions - steps * size, check)
    # By a number, a GPU would multiply by its inverse, which now and then rounds otherwise.
    rate = masses.ends / torch.full_like(masses.ends, (steps - settling) * size)
    return SplitResult(rate, lines_per_game(games.rules, rate), result.lines, result.games, result.decisions)


class Masses:
    """What the streams of a rollout weigh.

    Attributes:
        ends: The share of a candidate's mass on streams that ended, summed up from draw to draw; shape
            (population,), float64, on the device that plays.

    Args:
        games: The rollout, on whose streams all mass lies alike.
    """

    def __init__(self, games: Rollout) -> None:
        """Begin with no draw made."""
        self._games = games
        self._before = games.stream_games
        population, streams = self._before.shape
        place = self._before.device
        self._mass = torch.full_like(self._before, _MASS // streams)
        self._held = torch.zeros((population, _LEVELS), dtype=torch.float64, device=place)
        self._count = 0
        # With pieces in common candidates have the luck of the draw in common, too.
        self._apart = 0 if games.share_streams else _OWN
        self._own = torch.arange(population, device=place).unsqueeze(1) * self._apart
        self.ends = torch.zeros(population, dtype=torch.float64, device=place)

    def draw(self, bits: int, *, counts: bool = True) -> torch.Tensor:
        """Draw the streams anew.

        Args:
            bits: Which stream is drawn first: twelve random bits, others do not count.
            counts: Whether what ended since the last draw counts.

        Returns:
            From which stream each goes on, see `Rollout.branch`.
        """
        ended, self._count = self._games.stream_games, self._count + 1
        if counts:
            self.ends += (self._mass * (ended - self._before)).sum(1).double() / self._mass.sum(1).double()
        self._before = ended
        level = levels(self._games)
        source, self._mass = resampled(self._mass, level, self._held, self._count, bits + self._own)
        return source


class _CudaMasses(Masses):
    """The same by one launch of a kernel a draw: tetris/resampling."""

    def __init__(self, games: Rollout) -> None:
        """Begin with no draw made; compile the kernel where need be."""
        super().__init__(games)
        self._operators = native.resampling_operators()

    def draw(self, bits: int, *, counts: bool = True) -> torch.Tensor:
        """Draw the streams anew; see `Masses`."""
        self._count += 1
        source: torch.Tensor = self._operators.draw(
            self._games.columns,
            self._games.stream_games,
            self._before,
            self._mass,
            self._held,
            self.ends,
            self._count,
            counts,
            bits,
            self._apart,
        )
        return source


def lines_per_game(rules: Rules, rate: _Rate) -> _Rate:
    """Return the lines per game that go with a rate of ends a decision, where few cells are left at the end.

    A piece brings four cells, a line removes as many as there are columns.
    """
    return _CELLS / rules.width / rate


def levels(games: Rollout) -> torch.Tensor:
    """Return how high the walls are: shape (population, streams), int64, 0 to 31."""
    heights = games.column_heights
    width = heights.shape[-1]
    danger = 3 * (2 * width * heights.amax(-1) + 3 * heights.sum(-1)) // (10 * width)
    return (danger - 6).clamp(0, _LEVELS - 1)


def resampled(
    mass: torch.Tensor, level: torch.Tensor, held: torch.Tensor, count: int, bits: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw as many streams as there are, about the same number at every level, and share out the mass.

    Args:
        mass: Of the streams, shape (population, streams), int64, at least 1.
        level: Where they are, likewise.
        held: What the levels held in all the draws before, shape (population, levels), float64; what they
            hold now is added.
        count: How many draws that makes.
        bits: As for `drawn`.

    Returns:
        Which streams, in the order of their levels, and the mass of each.
    """
    now = torch.zeros(held.shape, dtype=torch.int64, device=held.device).scatter_add_(1, level, mass).double()
    held += now
    usual = held / torch.full_like(held, count)
    before = mass.double()
    share = before / torch.maximum(usual, now).gather(1, level)
    copies = (share * _COPIES).long().clamp(min=1)
    # In the order of the levels, so that every level has its number to less than one stream.
    order = level.sort(dim=1, stable=True).indices
    source = order.gather(1, drawn(copies.gather(1, order), bits))
    # A stream is drawn copies / sum of copies x streams times in the mean, and so much less is its mass.
    each = before * copies.sum(1, keepdim=True).double() / (copies * mass.shape[1]).double()
    after = each.long().gather(1, source)
    scale = torch.full_like(now[:, :1], _MASS) / after.sum(1, keepdim=True).double()
    return source, (after.double() * scale).long().clamp(min=1)


def drawn(worth: torch.Tensor, bits: torch.Tensor) -> torch.Tensor:
    """Draw as many streams as there are, each as often as it is worth, rounded up or down.

    Args:
        worth: Shape (population, streams), int64, at least 1, so that the sum of a row times the number of
            streams is below 2^63.
        bits: Where the first one is drawn, shape (population, 1): twelve random bits, others do not count.

    Returns:
        Which streams, in ascending order; of the same shape, int64.
    """
    streams = worth.shape[1]
    until = worth.cumsum(1)
    total = until[:, -1:]
    first = total * (bits % (1 << _RANDOM_BITS)) >> _RANDOM_BITS
    places = torch.arange(streams, device=worth.device) * total + first
    return torch.searchsorted(until * streams, places, right=True)
