"""Termination rates of good controllers, by importance splitting: games near an end are continued many times.

A controller that ends one game in a hundred million decisions ends none in a million, and neither does one
that is ten times as good. But a game ends from a high stack only, and a stack rises row by row. Every stream
has a weight; the sum over a candidate's streams is constant. Every few decisions the streams of a candidate
are resampled, so that about the same number is at every level reached:

    level = max(0, 0.6 rows to the highest cell + 0.9 rows to the highest cell of a column, in the mean - 6)

A stream with a low stack is dropped or continues with more weight. A stream at a rare level is continued
several times, with less weight each. The mean weight of a level is learned during the rollout, for each
candidate separately. A level that holds more than its mean counts with what it holds, so that a rare climb
does not crowd out the streams below. The termination rate, games ended per decision, is estimated by

    rate = mean over time of  weight of the streams that ended / weight of all streams.

Splitting and roulette are H. Kahn and T. Harris, Estimation of Particle Transmission by Random Sampling,
1951; streams in equal number at all levels are the weighted ensemble of G. Huber and S. Kim,
Weighted-ensemble Brownian dynamics simulations for protein association reactions, Biophysical Journal 70,
1996. Resampling is systematic (G. Kitagawa, Monte Carlo Filter and Smoother, Journal of Computational and
Graphical Statistics 5, 1996). Weights are multiples of a unit, sums are of integers, and all else is
elementwise, so that all engines resample the same and give the same rate. The unit is 1 while all weights of
a candidate are at least 1, and 2^-40 from then on.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from kernels.support.checks import check_integer
from tetris.game.piece_stream import Streams
from tetris.game.policy import Policy
from tetris.game.rules import Rules
from tetris.play import engines as native
from tetris.play.rollouts import Rollout, RolloutResult

STEP = 4
"""Decisions from one resampling to the next: they lift the stack by a row or two."""

BAG_STEP = 7
"""The same with bags of pieces: no bag is divided between streams."""

BURN_IN = 203
"""Decisions of the burn-in on each stream, which do not count: stacks reach their stationary height."""

MOST_STREAMS = 1 << 13
"""The greatest number of streams: 64-bit integers suffice for it."""

_LEVELS = 32  # the highest stack there can be, all columns 24 rows high, is at 30
_WEIGHT = 1 << 50  # of all streams of a candidate, about
_PARTS = 1 << 40  # of 1, where a weight of the candidate has been below 1
_COPIES = 1 << 20  # of a stream that holds the whole weight of its level; only their ratios count
_RANDOM_BITS = 12
_OWN = 2531  # offset from one candidate to the next, which spreads them evenly: 4096 by the golden ratio, odd
_CELLS = 4  # of a piece
_LEAST_ENDED = 4  # weight that ends in a decision, by streams

_Rate = TypeVar("_Rate", float, torch.Tensor)


@dataclass(frozen=True)
class SplitResult(RolloutResult):
    """The estimates and counts of a rollout with splitting by candidate.

    Attributes:
        lines: As in `RolloutResult`, and so are games, of any weight, and decisions.
        rate: Termination rate, games ended per decision, estimated; of the same shape and device, float64. 0
            where no game ended.
        lines_per_game: From the rate, see `lines_per_game`; infinite where no game ended.
        resolved: Whether the rate is at least `least_rate`, bool. Otherwise no game ended, or the rate is
            biased by the rounding of weights.
    """

    rate: torch.Tensor
    lines_per_game: torch.Tensor
    resolved: torch.Tensor


def least_rate(streams: int) -> float:
    """Return the termination rate below which the rounding of weights biases an estimate.

    Weights are multiples of 2^-40, rounded down, and add up to 2^50. At a tenth of this rate an estimate is a
    tenth too low, at a hundredth a third; no estimate is below a 180th: see
    benchmarks/notes/splitting-weights.md.
    """
    return _LEAST_ENDED * streams / _WEIGHT / _PARTS


def least_decisions(burn_in: int = BURN_IN) -> int:
    """Return the least decisions on each stream: a step after the burn-in counts, of bags, too."""
    return -(-burn_in // BAG_STEP) * BAG_STEP + 10


def split_rollout(
    policy: Policy,
    streams: Streams,
    decisions: int = 2000,
    device: str = "cpu",
    *,
    check: Callable[[], None] | None = None,
) -> SplitResult:
    """Estimate the termination rate of each candidate, by importance splitting.

    It needs enough streams for all levels. With DT-20 on 10x14, 2000 decisions each, the mean of the
    estimates agrees with long play to some percent from 128 streams on, and their standard deviation is a
    quarter of it (with 264 a sixth, with 2048 a sixteenth); with 32 streams it is two thirds, and the rate a
    sixth too high in the mean. For controllers that lose often, a plain rollout is as fast.

    Args:
        policy: The candidates.
        streams: The rules and the pieces: 2 to 8192 streams that do not stop. Their seed and first stream
            choose the resampling, too.
        decisions: Pieces to place on every stream, at least ten more than `BURN_IN`. Those after it count, up
            to the last resampling.
        device: As for `Rollout`, and so are the errors.
        check: Called a few times a second; an exception ends the rollout.
    """
    return SplitRollout(policy, streams, device).advance(decisions, check)


class SplitRollout:
    """Games in progress with importance splitting; arguments as of `split_rollout`, and its burn-in."""

    def __init__(self, policy: Policy, streams: Streams, device: str = "cpu", burn_in: int = BURN_IN) -> None:
        """Set up empty boards, with equal weights."""
        check_integer("count of streams", streams.count, 2, MOST_STREAMS)
        if streams.games is not None:
            raise ValueError(f"expected streams that do not stop, got games={streams.games}")
        self._games = Rollout(policy, streams, device)
        operators = self._games.operators if device != "cuda" else native.load(native.resampling_extension())
        self._weighted = StreamWeights(self._games, operators)
        self._size = BAG_STEP if streams.rules.pieces == "bag" else STEP
        self._burn_in, self._steps = -(-burn_in // self._size), 0
        self._least = least_decisions(burn_in)
        self._generator = random.Random(f"splitting {streams.seed} {streams.first}")
        self.keep = self._weighted.keep

    def advance(self, decisions: int, check: Callable[[], None] | None = None) -> SplitResult:
        """Play on, beyond the burn-in; return the estimates since then, and the totals."""
        games, size = self._games, self._size
        until = check_integer("decisions", games.decisions + decisions, self._least, 1 << 62)
        known = int(games.next_drawn)  # of the pieces to come; that of a bag's last goes with its board
        for step in range(self._steps, until // size):
            games.play_on((step + 1) * size - known - games.decisions, check)
            bits = self._generator.getrandbits(_RANDOM_BITS)
            games.branch(*self._weighted.resample(bits, counts=step >= self._burn_in))
        self._steps = until // size
        result, ended = games.advance(until - games.decisions, check), self._weighted.ended
        # Divided by a number, a GPU would multiply by its inverse, which now and then rounds otherwise.
        rate = ended / torch.full_like(ended, (self._steps - self._burn_in) * size)
        lines, resolved = lines_per_game(games.streams.rules, rate), rate >= least_rate(games.streams.count)
        return SplitResult(**vars(result), rate=rate, lines_per_game=lines, resolved=resolved)


class StreamWeights:
    """The weights of the streams of a rollout; at first they are equal.

    Attributes:
        ended: The share of a candidate's weight on streams that ended, summed over the resamplings; shape
            (population,), float64, on the device that plays.
    """

    def __init__(self, games: Rollout, operators: Any = None) -> None:
        """With ``operators``, of an engine or `engines.resampling_extension`, a resampling is one of them."""
        self._games, self._operators = games, operators
        self._before = games.stream_games
        population, streams = self._before.shape
        doubles: dict[str, Any] = {"dtype": torch.float64, "device": self._before.device}
        self._weight = torch.full((population, streams), _WEIGHT // streams, **doubles)
        self._unit = torch.ones((population, 1), **doubles)
        self._held = torch.zeros((population, _LEVELS), **doubles)
        self.ended = torch.zeros(population, **doubles)
        self._count = 0
        # Candidates that share pieces share the resampling, too.
        self._offset = 0 if games.streams.shared else _OWN
        self._offsets = torch.arange(population, device=self._before.device).unsqueeze(1) * self._offset

    def keep(self, candidates: torch.Tensor) -> None:
        """Go on with some candidates, and with their games: see `Rollout.keep`."""
        self._games.keep(candidates)
        for name in ("_before", "_weight", "_unit", "_held", "ended", "_offsets"):
            setattr(self, name, getattr(self, name)[candidates])

    def resample(self, bits: int, *, counts: bool = True) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Resample the streams; return the arguments of `Rollout.branch`.

        ``bits`` are as for `systematic`; ``counts``: games that ended since the last resampling count.
        """
        self._count += 1
        if self._operators is not None:
            played = self._games.columns, self._games._games
            kept = self._before, self._weight, self._held, self._unit, self.ended, self._count
            return self._operators.resample(*played, *kept, counts, bits, self._offset)  # type: ignore[no-any-return]
        games = self._games.stream_games
        if counts:
            ended = games - self._before
            weight_ended = _sum(self._weight, lambda part: (part * ended).sum(1))
            self.ended += weight_ended / self._weight.long().sum(1).double()
        self._before = games
        level = levels(self._games)
        source, self._weight = resampled(
            *(self._weight, level, self._held, self._unit, self._count, bits + self._offsets)
        )
        return source, None


def lines_per_game(rules: Rules, rate: _Rate) -> _Rate:
    """Return the lines per game of a termination rate; the cells left at the end of a game are neglected.

    A piece adds four cells, a line removes as many as there are columns.
    """
    return _CELLS / rules.width / rate


def levels(games: Rollout) -> torch.Tensor:
    """Return the level of each stack: shape (population, streams), int64, 0 to 31."""
    heights = games.column_heights
    width = heights.shape[-1]
    danger = 3 * (2 * width * heights.amax(-1) + 3 * heights.sum(-1)) // (10 * width)
    return (danger - 6).clamp(0, _LEVELS - 1)


def resampled(
    weight: torch.Tensor,
    level: torch.Tensor,
    held: torch.Tensor,
    unit: torch.Tensor,
    count: int,
    bits: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Resample the streams, about the same number at every level, and divide their weights.

    Weights, multiples of their unit above 0, and levels are of shape (population, streams), and so are the
    source streams that are returned, in the order of their levels, and their weights. ``held``, the weight of
    each level summed over all resamplings, shape (population, levels), grows by that of this one; ``unit``,
    shape (population, 1), changes where a weight falls below 1. ``count`` is of the resamplings, this one
    included; ``bits`` as for `systematic`.
    """
    empty = torch.zeros(held.shape, dtype=torch.int64, device=held.device)
    now = _sum(weight, lambda part: empty.scatter_add(1, level, part))
    held += now
    usual = held / torch.full_like(held, count)
    share = weight / torch.maximum(usual, now).gather(1, level)
    copies = (share * _COPIES).long().clamp(min=1)
    # In the order of the levels, so that every level has its number to less than one stream.
    order = level.sort(dim=1, stable=True).indices
    source = order.gather(1, systematic(copies.gather(1, order), bits))
    # In the mean a stream is taken copies / sum of copies x streams times, and its weight is divided by that.
    each = weight * copies.sum(1, keepdim=True).double() / (copies * weight.shape[1]).double()
    after = each.gather(1, source)
    unit.masked_fill_((after < 1).any(1, keepdim=True), 1 / _PARTS)
    after = (after / unit).floor() * unit
    scale = torch.full_like(unit, _WEIGHT) / after.long().sum(1, keepdim=True).double()
    return source, torch.maximum((after * scale / unit).floor() * unit, unit)


def _sum(weight: torch.Tensor, add: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Return a sum of weights, float64, the same in any order: whole parts and others added as integers."""
    whole = weight.floor()
    return add(whole.long()).double() + add(((weight - whole) * _PARTS).long()).double() / _PARTS


def systematic(copies: torch.Tensor, bits: torch.Tensor) -> torch.Tensor:
    """Draw as many streams as there are, in their order, each in proportion to its copies, up or down.

    Copies are of shape (population, streams), int64, at least 1, and the sum of a row times the number of
    streams is below 2^63. ``bits``, the offset of the first stream, is of shape (population, 1): twelve
    random bits; others are ignored.
    """
    streams = copies.shape[1]
    until = copies.cumsum(1)
    total = until[:, -1:]
    first = total * (bits % (1 << _RANDOM_BITS)) >> _RANDOM_BITS
    points = torch.arange(streams, device=copies.device) * total + first
    return torch.searchsorted(until * streams, points, right=True)
