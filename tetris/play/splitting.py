"""Termination rates of good controllers, by importance splitting.

A controller that ends one game in a hundred million decisions ends none in a million, and
neither does one that is ten times as good. But a game ends from a high stack only, and a stack
rises row by row. So games near an end are continued many times. Every stream has a weight; the
sum over a candidate's streams is constant. Every few decisions the streams of a candidate are
resampled, so that about the same number is at every level reached:

    level = max(0, 0.6 * height of the highest column + 0.9 * mean height of the columns - 6)

A stream with a low stack is dropped or continues with more weight. A stream at a rare level is
continued several times, with less weight each. The mean weight of a level is learned during the
rollout, for each candidate separately. A level that holds more than its mean counts with what
it holds, so that a rare climb does not crowd out the streams below. The termination rate, games
ended per decision, is estimated by

    rate = mean over time of  weight of the streams that ended / weight of all streams.

Splitting and roulette are H. Kahn and T. Harris, Estimation of Particle Transmission by Random
Sampling, 1951; streams in equal number at all levels are the weighted ensemble of G. Huber and
S. Kim, Weighted-ensemble Brownian dynamics simulations for protein association reactions,
Biophysical Journal 70, 1996. Resampling is systematic (G. Kitagawa, Monte Carlo Filter and
Smoother, Journal of Computational and Graphical Statistics 5, 1996). Weights are multiples of a
unit, sums are of integers, and all else is elementwise, so that all engines resample the same
and give the same rate. The unit is 1 while all weights of a candidate are at least 1, and 2^-40
from then on.
"""

import math
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
"""Decisions from one resampling to the next with bags of pieces, which are not divided."""

BURN_IN = 203
"""Decisions on each stream that do not count, in which stacks reach their stationary height."""

MOST_STREAMS = 1 << 13
"""The greatest number of streams: 64-bit integers suffice for it."""

_LEVELS = 32  # The highest possible stack, all columns 24 rows high, is at level 30.
_WEIGHT = 1 << 50  # About the sum of the weights of all streams of a candidate.
_PARTS = 1 << 40  # The unit of a candidate's weights is 1 / _PARTS once one fell below 1.
_COPIES = 1 << 20  # Copies of a stream with all the weight of its level; only ratios count.
_RANDOM_BITS = 12
# Candidates with pieces of their own draw at offsets that spread them evenly: 4096 divided by
# the golden ratio, as an odd number.
_CANDIDATE_OFFSET = 2531
_CELLS = 4  # A piece has four.
_LEAST_ENDED = 4  # Below so many units per stream and decision, rounding biases a rate.

_Rate = TypeVar("_Rate", float, torch.Tensor)


@dataclass(frozen=True)
class SplitResult(RolloutResult):
    """The estimates and counts of a rollout with splitting by candidate.

    Attributes:
        lines: As in `RolloutResult`, and so are decisions and games, whatever their weight.
        rate: Estimated termination rate, games ended per decision; of the same shape and
            device, float64. It is 0 if no game ended.
        lines_per_game: From the rate, see `lines_per_game`; infinite if no game ended.
        resolved: Whether the rate is at least `least_rate`, bool. Otherwise no game ended, or
            the rate is biased by the rounding of weights.
    """

    rate: torch.Tensor
    lines_per_game: torch.Tensor
    resolved: torch.Tensor


def least_rate(streams: int) -> float:
    """Return the termination rate below which the rounding of weights biases an estimate.

    Weights are multiples of 2^-40, rounded down, and add up to 2^50. At a tenth of this rate an
    estimate is a tenth too low, at a hundredth a third; no estimate is below a 180th: see
    benchmarks/notes/splitting-weights.md.
    """
    return _LEAST_ENDED * streams / _WEIGHT / _PARTS


def least_decisions(burn_in: int = BURN_IN) -> int:
    """Return the fewest decisions on each stream, so that a step after the burn-in counts."""
    burn_in_of_bags = -(-burn_in // BAG_STEP) * BAG_STEP  # rounded up to whole bags
    return burn_in_of_bags + 10


def split_rollout(
    policy: Policy,
    streams: Streams,
    decisions: int = 2000,
    device: str = "cpu",
    *,
    check: Callable[[], None] | None = None,
) -> SplitResult:
    """Estimate the termination rate of each candidate, by importance splitting.

    There must be enough streams for all levels. With DT-20 on 10x14 and 2000 decisions on each
    stream, the mean of the estimates agrees with long play to some percent from 128 streams on.
    Their standard deviation is then a quarter of the mean (with 264 streams a sixth, with 2048
    a sixteenth). With 32 streams it is two thirds, and the mean is a sixth too high. For
    controllers that lose often, a plain rollout is as fast.

    Args:
        policy: The candidates.
        streams: The rules and the pieces: 2 to 8192 streams that do not stop. Their seed and
            first stream choose the resampling, too.
        decisions: Pieces to place on every stream, at least ten more than `BURN_IN`. Those
            after it count, up to the last resampling.
        device: As for `Rollout`, and so are the errors.
        check: Called a few times a second; an exception ends the rollout.
    """
    return SplitRollout(policy, streams, device).advance(decisions, check)


class SplitRollout:
    """Games in progress with importance splitting; for arguments see `split_rollout`."""

    def __init__(
        self, policy: Policy, streams: Streams, device: str = "cpu", burn_in: int = BURN_IN
    ) -> None:
        """Set up empty boards on streams of equal weights; nothing is played yet.

        Args:
            policy: The weight vectors of the candidates, and their features.
            streams: The rules of the games, and the streams of pieces that every candidate
                plays. Their seed chooses the resampling, too.
            device: The engine: ``"cpu"``, ``"cuda"`` or ``"python"``.
            burn_in: Decisions on each stream that do not count. Their number is rounded up to a
                multiple of a step, which is the number of decisions between two resamplings.
        """
        check_integer("count of streams", streams.count, 2, MOST_STREAMS)
        if streams.games is not None:
            raise ValueError(f"expected streams that do not stop, got games={streams.games}")
        self._games = Rollout(policy, streams, device)
        # The C++ engine can resample. On a GPU another library does, and in Python torch does.
        operators = self._games.operators
        if device == "cuda":
            operators = native.load(native.resampling_extension())
        self._weights = StreamWeights(self._games, operators)
        # With bags of seven pieces a resampling comes after every bag.
        self._step_size = BAG_STEP if streams.rules.pieces == "bag" else STEP
        self._burn_in_steps = math.ceil(burn_in / self._step_size)
        self._steps = 0  # Resamplings so far.
        self._least_decisions = least_decisions(burn_in)
        self._generator = random.Random(f"splitting {streams.seed} {streams.first}")
        # Candidates are dropped from the weights and from the games together.
        self.keep = self._weights.keep

    def advance(self, decisions: int, check: Callable[[], None] | None = None) -> SplitResult:
        """Play on by importance splitting, and estimate how often each candidate's games end.

        After every step of some decisions the streams are resampled: some boards are copied to
        other streams, with less weight each, and others are dropped.

        Args:
            decisions: Pieces to place on every stream; together with those of earlier calls
                they must go beyond the burn-in.
            check: Called a few times a second; an exception ends the rollout.

        Returns:
            For each candidate the number of games that ended per decision after the burn-in,
            the lines per game that follow from it, and the totals since the rollout began.
        """
        games = self._games
        total = games.decisions + decisions
        check_integer("decisions", total, self._least_decisions, 1 << 62)
        # If a game depends on its next piece, that piece is copied with the board. It must not
        # be the first one of a new bag, so the resampling is one decision earlier.
        decisions_earlier = int(games.next_drawn)
        steps = total // self._step_size
        for step in range(self._steps, steps):
            decisions_before_resampling = (step + 1) * self._step_size - decisions_earlier
            games.play_on(decisions_before_resampling - games.decisions, check)
            bits = self._generator.getrandbits(_RANDOM_BITS)
            is_after_burn_in = step >= self._burn_in_steps
            source, columns = self._weights.resample(bits, counts=is_after_burn_in)
            games.branch(source, columns)
        self._steps = steps
        # Decisions after the last resampling count for the totals, but not for the rate.
        result = games.advance(total - games.decisions, check)
        ended = self._weights.ended
        counted_decisions = (steps - self._burn_in_steps) * self._step_size
        # The divisor is a tensor because on a GPU torch multiplies by the inverse of a Python
        # number, which may be rounded differently.
        rate = ended / torch.full_like(ended, counted_decisions)
        return SplitResult(
            **vars(result),
            rate=rate,
            lines_per_game=lines_per_game(games.streams.rules, rate),
            resolved=rate >= least_rate(games.streams.count),
        )


class StreamWeights:
    """The weights of the streams of a rollout; at first they are equal.

    Attributes:
        ended: The share of a candidate's weight on streams that ended, summed over the
            resamplings; shape (population,), float64, on the device that plays.
    """

    def __init__(self, games: Rollout, operators: Any = None) -> None:
        """Give all streams of the games the same weight.

        Args:
            games: The rollout whose streams are resampled.
            operators: A library with the operator ``resample``: an engine or
                `engines.resampling_extension`. With None torch's operators are used instead.
        """
        self._games = games
        self._operators = operators
        # The games that had ended on each stream at the last resampling.
        self._last_games = games.stream_games
        population, streams = self._last_games.shape
        zeros = torch.zeros_like(self._last_games, dtype=torch.float64)
        # The weights of all streams of a candidate add up to about _WEIGHT.
        self._weight = zeros + _WEIGHT // streams
        # Weights are multiples of their candidate's unit.
        self._unit = zeros.new_ones(population, 1)
        # The weight on each level of danger, summed over all resamplings.
        self._level_sums = zeros.new_zeros(population, _LEVELS)
        self.ended = zeros.new_zeros(population)
        self._count = 0  # Resamplings so far.
        # Candidates that play the same pieces are resampled with the same random bits. For
        # others candidate number n adds n times an offset to the bits.
        self._offset = 0 if games.streams.shared else _CANDIDATE_OFFSET
        numbers = torch.arange(population, device=zeros.device)
        self._offsets = numbers.unsqueeze(1) * self._offset

    def keep(self, candidates: torch.Tensor) -> None:
        """Drop all candidates, and their games, except some: see `Rollout.keep`."""
        self._games.keep(candidates)
        self._last_games = self._last_games[candidates]
        self._weight = self._weight[candidates]
        self._unit = self._unit[candidates]
        self._level_sums = self._level_sums[candidates]
        self.ended = self.ended[candidates]
        self._offsets = self._offsets[candidates]

    def resample(
        self, bits: int, *, counts: bool = True
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Resample the streams of every candidate, and change their weights accordingly.

        Args:
            bits: Twelve random bits, the offset of systematic resampling.
            counts: Whether games that ended since the last resampling count for the estimate:
                the share of the weight on their streams is added to ``ended``.

        Returns:
            For each stream the number of the stream whose board it takes, shape (population,
            streams), int64; and the boards after these copies, or None if they remain to be
            made. These are the arguments of `Rollout.branch`.
        """
        self._count += 1
        if self._operators is not None:
            # The operator makes the copies, and updates the tensors of games and weights.
            return self._operators.resample(  # type: ignore[no-any-return]
                self._games.columns,
                self._games._games,
                self._last_games,
                self._weight,
                self._level_sums,
                self._unit,
                self.ended,
                self._count,
                counts,
                bits,
                self._offset,
            )
        games = self._games.stream_games
        # Add the share of the weight on streams whose games ended since the last resampling.
        if counts:
            ended = games - self._last_games
            weight_ended = _sum_exactly(self._weight, lambda part: (part * ended).sum(1))
            total_weight = self._weight.long().sum(1).double()
            self.ended += weight_ended / total_weight
        self._last_games = games
        source, self._weight = resampled(
            self._weight,
            levels(self._games),
            self._level_sums,
            self._unit,
            self._count,
            bits + self._offsets,
        )
        return source, None


def lines_per_game(rules: Rules, rate: _Rate) -> _Rate:
    """Return the lines per game of a termination rate.

    A piece adds four cells, a line removes as many as there are columns. The cells left at a
    game's end are neglected.
    """
    return _CELLS / rules.width / rate


def levels(games: Rollout) -> torch.Tensor:
    """Return the level of each stack: shape (population, streams), int64, 0 to 31."""
    heights = games.column_heights
    width = heights.shape[-1]
    # 0.6 times the greatest height plus 0.9 times the mean height, rounded down. Integers give
    # the same level on every processor.
    danger = 3 * (2 * width * heights.amax(-1) + 3 * heights.sum(-1)) // (10 * width)
    return (danger - 6).clamp(0, _LEVELS - 1)


def resampled(
    weight: torch.Tensor,
    level: torch.Tensor,
    level_sums: torch.Tensor,
    unit: torch.Tensor,
    count: int,
    bits: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Resample the streams of each candidate, so that all levels have about as many streams.

    A stream is a sequence of games, and its level says how near to its end the present game
    is. A stream is continued several times, or dropped. Its weight is divided by the number of
    times that it is continued on average, so that no estimate is biased.

    Args:
        weight: The weight of each stream, a multiple of the candidate's unit, above 0; shape
            (population, streams), float64.
        level: The level of each stream, of the same shape, int64.
        level_sums: The weight on each level, summed over all resamplings; shape (population,
            levels). The weights of this resampling are added to it.
        unit: Shape (population, 1): 1, and 2^-40 once a weight of the candidate fell below 1.
            It is updated.
        count: The number of resamplings, this one included.
        bits: Random bits, the offset of systematic resampling, shape (population, 1).

    Returns:
        For every stream the number of the stream that it continues, in the order of the levels,
        and its new weight; both have the shape of ``weight``.
    """
    copies = _copies_of_streams(weight, level, level_sums, count)
    # Draw streams in the order of their levels. So the number of streams that a level gets
    # differs from its share by less than one stream.
    # Systematic resampling draws a stream as often as its share of the copies says, rounded up
    # or down.
    order = level.sort(dim=1, stable=True).indices
    drawn = systematic(copies.gather(1, order), bits)
    source = order.gather(1, drawn)
    # A stream is drawn streams * copies / total_copies times on average. Divide its weight by
    # this number.
    streams = weight.shape[1]
    total_copies = copies.sum(1, keepdim=True).double()
    weight_of_copy = weight * total_copies / (copies * streams).double()
    return source, _rounded_weights(weight_of_copy.gather(1, source), unit)


def _copies_of_streams(
    weight: torch.Tensor, level: torch.Tensor, level_sums: torch.Tensor, count: int
) -> torch.Tensor:
    """Return how many copies of each stream take part in a draw, so that levels draw equally.

    Streams are drawn in proportion to their copies. A stream gets copies in proportion to its
    share of the weight of its level, so that all levels have about as many copies together.

    Args:
        weight: The weight of each stream, shape (population, streams), float64.
        level: The level of each stream, of the same shape, int64.
        level_sums: The weight on each level, summed over all earlier resamplings; shape
            (population, levels). The weights of this resampling are added to it.
        count: The number of resamplings, this one included.

    Returns:
        The copies, at least 1, of the shape of ``weight``, int64.
    """
    # Add up the weight on each level, now and on average over all resamplings. The sum is
    # exact, so that it does not depend on the order.
    zeros = torch.zeros(level_sums.shape, dtype=torch.int64, device=level_sums.device)
    level_weight = _sum_exactly(weight, lambda part: zeros.scatter_add(1, level, part))
    level_sums += level_weight
    mean_level_weight = level_sums / torch.full_like(level_sums, count)
    # A level that now has more weight than on average counts with the weight that it has.
    counted_weight = torch.maximum(mean_level_weight, level_weight)
    share = weight / counted_weight.gather(1, level)
    return (share * _COPIES).long().clamp(min=1)


def _rounded_weights(weight: torch.Tensor, unit: torch.Tensor) -> torch.Tensor:
    """Return weights of streams as multiples of a unit, whose sum is about `_WEIGHT`.

    Args:
        weight: Shape (population, streams), float64.
        unit: The unit of each candidate, shape (population, 1). It becomes 1 / `_PARTS` where a
            weight is below 1.
    """
    unit.masked_fill_((weight < 1).any(1, keepdim=True), 1 / _PARTS)
    # Round down, scale to the sum, and round down again; no weight becomes 0.
    weight = (weight / unit).floor() * unit
    scale = torch.full_like(unit, _WEIGHT) / weight.long().sum(1, keepdim=True).double()
    weight = (weight * scale / unit).floor() * unit
    return torch.maximum(weight, unit)


def _sum_exactly(
    weight: torch.Tensor, add: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Return a sum of weights, float64, which is the same in any order: it adds integers only.

    ``add`` sums integers. It is called with the integer parts of the weights, and then with
    their fractional parts in units of 1 / `_PARTS`.
    """
    integer_part = weight.floor()
    fraction = ((weight - integer_part) * _PARTS).long()
    return add(integer_part.long()).double() + add(fraction).double() / _PARTS


def systematic(copies: torch.Tensor, bits: torch.Tensor) -> torch.Tensor:
    """Draw as many streams as there are, in ascending order, in proportion to their copies.

    This is systematic resampling: equidistant points are drawn on a line on which each stream
    is as long as its number of copies. So a stream is drawn as often as its share of the line
    says, rounded up or down.

    Args:
        copies: The copies of each stream, at least 1; shape (population, streams), int64. The
            sum of a row times the number of streams must be below 2^63.
        bits: The offset of the first point, shape (population, 1): twelve random bits; higher
            bits are ignored.

    Returns:
        The numbers of the drawn streams, of the shape of ``copies``.
    """
    streams = copies.shape[1]
    ends = copies.cumsum(1)
    total = ends[:, -1:]
    offset = total * (bits % (1 << _RANDOM_BITS)) >> _RANDOM_BITS
    # All positions on the line are multiplied by the number of streams to stay integers.
    points = torch.arange(streams, device=copies.device) * total + offset
    return torch.searchsorted(ends * streams, points, right=True)
