"""Estimates the termination rates of good controllers, by importance splitting.

If one game of a controller ends in a hundred million decisions, no game ends in a million. The
same is true for a controller that is ten times as good. But a game can only end from a high
stack, and a stack rises row by row. So games near their end are continued many times. Every
stream has a weight; the sum over the streams of a candidate is constant. Every few decisions
the streams of a candidate are resampled, so that about the same number of streams is at each
level:

    level = max(0, 0.6 * height of the highest column + 0.9 * mean height of the columns - 6)

A stream with a low stack is dropped, or it continues with more weight. A stream at a rare level
is continued several times, with less weight each. The mean weight of a level is learned during
the rollout, for each candidate separately. If a level now has more weight than its mean, this
weight counts instead, so that a rare climb does not crowd out the streams below. The
termination rate, games ended per decision, is estimated by

    rate = mean over time of  weight of the streams that ended / weight of all streams.

Splitting and roulette are from H. Kahn and T. Harris, Estimation of Particle Transmission by
Random Sampling, 1951. Equal numbers of streams at all levels are from the weighted ensemble of
G. Huber and S. Kim, Weighted-ensemble Brownian dynamics simulations for protein association
reactions, Biophysical Journal 70, 1996. Resampling is systematic (G. Kitagawa, Monte Carlo
Filter and Smoother, Journal of Computational and Graphical Statistics 5, 1996).

Weights are multiples of a unit, sums add integers, and all other operations are elementwise. So
all engines resample the same streams and give the same rate. The unit of a candidate is 1 as
long as all its weights are at least 1, and 2^-40 from then on.
"""

import math
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from kernels.support.checks import check_integer
from tetris.game.piece_stream import Streams
from tetris.game.policy import Policy
from tetris.game.rules import Rules
from tetris.play import engines
from tetris.play.rollouts import Rollout, RolloutResult

STEP = 4
"""Decisions from one resampling to the next. They lift the stack by a row or two."""

BAG_STEP = 7
"""Decisions from one resampling to the next with bags of pieces: a whole bag."""

BURN_IN = 203
"""Decisions on each stream that do not count, while stacks reach their stationary height."""

MOST_RATE = 2.0**-20
"""Above this termination rate a plain rollout is as fast, and it is right for short games."""

MOST_STREAMS = 1 << 13
"""The greatest number of streams for which 64-bit integers are sufficient."""

_LEVELS = 32  # The highest possible stack, all columns 24 rows high, is at level 30.
_WEIGHT = 1 << 50  # About the sum of the weights of all streams of a candidate.
_PARTS = 1 << 40  # The unit of a candidate's weights is 1 / _PARTS once a weight is below 1.
_COPIES = 1 << 20  # Copies of a stream that has all the weight of its level.
_RANDOM_BITS = 12
# Candidates with their own pieces draw at different offsets, spread evenly over the 4096: this
# is 4096 divided by the golden ratio, as an odd number.
_CANDIDATE_OFFSET = 2531
_CELLS = 4  # The cells of a piece.
_LEAST_ENDED = 4  # If fewer units end per stream and decision, rounding biases the rate.

_Rate = TypeVar("_Rate", float, Tensor)


@dataclass(frozen=True)
class SplitResult(RolloutResult):
    """The estimates and counts of a rollout with splitting, for each candidate.

    The counts of `RolloutResult` do not depend on the weights. All tensors have the shape
    (population,) and are on the same device.

    Attributes:
        rate: The estimated termination rate, games ended per decision, float64. It is 0 if no
            game ended.
        lines_per_game: The lines per game that follow from the rate; infinite if no game ended.
        resolved: Whether the rate is at least `least_rate`, bool. Otherwise no game ended, or
            the rounding of weights biases the rate.
    """

    rate: Tensor
    lines_per_game: Tensor
    resolved: Tensor


def least_rate(streams: int) -> float:
    """Return the termination rate below which the rounding of weights biases an estimate.

    Weights are multiples of 2^-40, rounded down, and add up to 2^50. If the true rate is a
    tenth of this rate, an estimate is a tenth too low; if it is a hundredth, a third. No
    estimate is below a 180th of this rate. See benchmarks/notes/splitting-weights.md.
    """
    return _LEAST_ENDED * streams / _WEIGHT / _PARTS


def least_decisions(burn_in: int) -> int:
    """Return the fewest decisions on each stream with which a step after the burn-in counts."""
    burn_in_of_bags = -(-burn_in // BAG_STEP) * BAG_STEP  # Round up to whole bags.
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

    There must be enough streams for all levels. For example, take DT-20 on 10x14 with 2000
    decisions on each stream. From 128 streams on, the mean of many estimates agrees with long
    play to a few percent. The standard deviation of an estimate is a quarter of the mean with
    128 streams, a sixth with 264 and a sixteenth with 2048. With 32 streams it is two thirds,
    and the mean is a sixth too high.

    Where games are short, the lines per game are too high: the cells that are left at the ends
    of games are neglected, and the burn-in may be too short. There a plain rollout is as fast.

    Args:
        policy: The candidates.
        streams: The rules and the pieces: 2 to 8192 streams that do not stop. Their seed and
            first stream also determine the resampling.
        decisions: Pieces to place on every stream, at least ten more than `BURN_IN`. Decisions
            count from the end of the burn-in to the last resampling.
        device: The engine, as for `Rollout`; the errors are also the same.
        check: Called a few times a second. If it raises an exception, the rollout ends.

    Warns:
        RuntimeWarning: If a candidate's rate is above `MOST_RATE`, one game in a million
            decisions.
    """
    result = SplitRollout(policy, streams, device).advance(decisions, check)
    greatest = float(result.rate.max())
    if greatest > MOST_RATE:
        warnings.warn(
            f"expected at most {MOST_RATE:.1e} games ended per decision, got {greatest:.1e}: "
            "score such candidates with tetris.rollout instead",
            RuntimeWarning,
            stacklevel=2,
        )
    return result


class SplitRollout:
    """Games in progress with importance splitting; see `split_rollout` for the arguments."""

    def __init__(
        self, policy: Policy, streams: Streams, device: str = "cpu", burn_in: int = BURN_IN
    ) -> None:
        """Set up empty boards on streams of equal weights; nothing is played yet.

        Args:
            policy: The weight vectors of the candidates, and their features.
            streams: The rules of the games, and the streams of pieces that every candidate
                plays. Their seed also determines the resampling.
            device: The engine: ``"cpu"``, ``"cuda"`` or ``"python"``.
            burn_in: How many decisions on each stream do not count for the estimate. The number
                is rounded up to whole steps. A step lasts from one resampling to the next.
        """
        check_integer("count of streams", streams.count, 2, MOST_STREAMS)
        if streams.games is not None:
            raise ValueError(f"expected streams that do not stop, got games={streams.games}")
        self._games = Rollout(policy, streams, device)
        # The library of the C++ engine also has the operator `resample`. A GPU needs another
        # library for it. The engine in Python has none: `operators` is None, and
        # `StreamWeights` uses torch.
        operators = self._games.operators
        if device == "cuda":
            operators = engines.load(engines.resampling_extension())
        self._weights = StreamWeights(self._games, operators)
        # If pieces come in bags of seven, resample after every bag.
        self._step_size = BAG_STEP if streams.rules.pieces == "bag" else STEP
        self._burn_in_steps = math.ceil(burn_in / self._step_size)
        self._steps = 0  # The number of resamplings so far.
        self._least_decisions = least_decisions(burn_in)
        self._generator = random.Random(f"splitting {streams.seed} {streams.first}")
        # This method drops candidates from the weights and from the games.
        self.keep = self._weights.keep

    def advance(self, decisions: int, check: Callable[[], None] | None = None) -> SplitResult:
        """Play on with importance splitting, and estimate how often each candidate's games end.

        A step is a few decisions on each stream. After every step the streams are resampled.
        Boards with high stacks are copied to several streams, which share their weight. Some of
        the other boards are dropped. So games that are near their end are played many times.

        Args:
            decisions: Pieces to place on every stream. Together with the decisions of earlier
                calls they must exceed the burn-in.
            check: Called a few times a second. If it raises an exception, the rollout ends.

        Returns:
            For each candidate: the games ended per decision after the burn-in, the lines per
            game that follow from this rate, and the totals since the rollout began.
        """
        games = self._games
        total = games.decisions + decisions
        check_integer("decisions", total, self._least_decisions, 1 << 62)
        while self._steps < total // self._step_size:
            self._play_step(check)
        # Play the decisions after the last resampling. They count for the totals only.
        result = games.advance(total - games.decisions, check)
        ended = self._weights.ended
        counted_decisions = (self._steps - self._burn_in_steps) * self._step_size
        # Divide by a tensor. To divide by a Python number, torch on a GPU multiplies by its
        # inverse, and the result can be rounded differently.
        rate = ended / torch.full_like(ended, counted_decisions)
        # Add the estimates to the totals of the rollout.
        return SplitResult(
            **vars(result),
            rate=rate,
            lines_per_game=lines_per_game(games.streams.rules, rate),
            resolved=rate >= least_rate(games.streams.count),
        )

    def _play_step(self, check: Callable[[], None] | None) -> None:
        """Play until the next resampling, and resample."""
        games = self._games
        end_of_step = (self._steps + 1) * self._step_size
        # If the next piece of each game is already drawn, a board is copied together with it.
        # Then resample one decision before the end of a step, while that piece still belongs to
        # the same bag.
        resampling_time = end_of_step - int(games.next_drawn)
        games.play_on(resampling_time - games.decisions, check)
        bits = self._generator.getrandbits(_RANDOM_BITS)
        is_after_burn_in = self._steps >= self._burn_in_steps
        source, columns = self._weights.resample(bits, counts=is_after_burn_in)
        games.branch(source, columns)
        self._steps += 1


class StreamWeights:
    """The weights of the streams of a rollout. At first they are equal.

    Attributes:
        ended: A sum over the resamplings: the share of a candidate's weight that is on streams
            whose games ended. Shape (population,), float64, on the device that plays.
    """

    def __init__(self, games: Rollout, operators: Any = None) -> None:
        """Give all streams of games the same weight.

        Args:
            games: The rollout whose streams are resampled.
            operators: A library with the operator ``resample``: the C++ engine, or on a GPU
                `engines.resampling_extension`. None: use torch's operators instead.
        """
        self._games = games
        self._operators = operators
        # The number of games that had ended on each stream at the last resampling.
        self._last_games = games.stream_games
        population, streams = self._last_games.shape
        zeros = torch.zeros_like(self._last_games, dtype=torch.float64)
        # The weights of a candidate add up to _WEIGHT, less the remainder of this division.
        self._weight = zeros + _WEIGHT // streams
        # Every weight of a candidate is a multiple of its unit: of 1, or of a small fraction
        # once a weight has fallen below 1.
        self._unit = zeros.new_ones(population, 1)
        # A histogram of the stack heights: the weight of the streams on each level of height,
        # summed over all resamplings.
        self._level_sums = zeros.new_zeros(population, _LEVELS)
        self.ended = zeros.new_zeros(population)
        self._count = 0  # The number of resamplings so far.
        # Candidates that play the same pieces are resampled with the same random bits. Other
        # candidates get different bits: n * stride is added for candidate n.
        self._bits_stride = 0 if games.streams.shared else _CANDIDATE_OFFSET

    def keep(self, candidates: Tensor) -> None:
        """Keep only some candidates and their games, as `Rollout.keep` does."""
        self._games.keep(candidates)
        self._last_games = self._last_games[candidates]
        self._weight = self._weight[candidates]
        self._unit = self._unit[candidates]
        self._level_sums = self._level_sums[candidates]
        self.ended = self.ended[candidates]

    def resample(self, bits: int, *, counts: bool = True) -> tuple[Tensor, Tensor | None]:
        """Resample the streams of every candidate, and update their weights.

        The results are the arguments of `Rollout.branch`, which copies the boards.

        Args:
            bits: Twelve random bits: the offset of systematic resampling.
            counts: Whether games that ended since the last resampling count for the estimate.
                If so, the share of the weight on their streams is added to ``ended``.

        Returns:
            For each stream, the number of the stream whose board it takes: shape (population,
            streams), int64.
            The boards after the copies; None if `Rollout.branch` must make the copies.
        """
        self._count += 1
        if self._operators is not None:
            return self._resample_by_operator(bits, counts)  # type: ignore[no-any-return]
        games = self._games.stream_games  # The games ended on each stream so far.
        if counts:
            self.ended += self._share_of_ended(games - self._last_games)
        self._last_games = games
        candidates = torch.arange(len(games), device=games.device)
        source, self._weight = resampled(
            self._weight,
            levels(self._games),
            self._level_sums,
            self._unit,
            self._count,
            bits + self._bits_stride * candidates.unsqueeze(1),
        )
        return source, None

    def _resample_by_operator(self, bits: int, counts: bool) -> Any:
        """Do the work of `resample` with the operator of an engine, which copies the boards.

        The operator updates the last games, the weights and the sums in place.
        """
        return self._operators.resample(
            self._games.columns,
            self._games._games,  # The games ended on each stream.
            self._last_games,
            self._weight,
            self._level_sums,
            self._unit,
            self.ended,
            self._count,
            counts,
            bits,
            self._bits_stride,
        )

    def _share_of_ended(self, new_games: Tensor) -> Tensor:
        """Return the share of each candidate's weight that is on streams with new games."""
        # `_sum_exactly` adds the integer parts and the fractions of the weights separately.
        weight_ended = _sum_exactly(self._weight, lambda part: (part * new_games).sum(1))
        total_weight = self._weight.long().sum(1).double()
        return weight_ended / total_weight


def lines_per_game(rules: Rules, rate: _Rate) -> _Rate:
    """Return the lines per game that follow from a termination rate.

    A piece adds four cells, and a line removes as many cells as the board has columns. The
    cells that are left at the end of a game are neglected.
    """
    return _CELLS / rules.width / rate


def levels(games: Rollout) -> Tensor:
    """Return the level of each stack: shape (population, streams), int64, 0 to 31."""
    heights = games.column_heights
    width = heights.shape[-1]
    # 0.6 times the greatest height plus 0.9 times the mean height, rounded down. With integers
    # the level is the same on every processor.
    danger = 3 * (2 * width * heights.amax(-1) + 3 * heights.sum(-1)) // (10 * width)
    return (danger - 6).clamp(0, _LEVELS - 1)


def resampled(
    weight: Tensor,
    level: Tensor,
    level_sums: Tensor,
    unit: Tensor,
    count: int,
    bits: Tensor,
) -> tuple[Tensor, Tensor]:
    """Resample the streams of each candidate, so that levels get about equally many streams.

    A stream is a sequence of games. Its level says how close the current game is to its end.
    Some streams are drawn several times, and others are dropped. A drawn stream gets its old
    weight divided by the expected number of its draws, so that no estimate is biased.

    Args:
        weight: The weight of each stream, a positive multiple of the candidate's unit. Shape
            (population, streams), float64.
        level: The level of each stream, of the same shape, int64.
        level_sums: The weight on each level, summed over all resamplings. Shape (population,
            levels). This function adds the weights of this resampling.
        unit: The unit of each candidate: its weights are multiples of the unit. It is 1 at
            first, and 2^-40 once a weight of the candidate was below 1. This function updates
            it. Shape (population, 1).
        count: The number of resamplings, including this one.
        bits: Random bits for each candidate, shape (population, 1). `systematic` takes the
            lowest twelve as its offset.

    Returns:
        For each new stream, the number of the old stream that it continues. The new streams are
        in the order of their levels.
        The weight of each new stream. Both tensors have the shape of ``weight``.
    """
    # How often each stream takes part in the draw, as an integer.
    copies = _copies_of_streams(weight, level, level_sums, count)
    # Systematic resampling draws a stream as often as its share of the copies says, rounded up
    # or down. Because the streams are sorted by level, this also holds for a level as a whole.
    order = level.sort(dim=1, stable=True).indices
    sorted_copies = copies.gather(1, order)
    drawn_positions = systematic(sorted_copies, bits)
    source = order.gather(1, drawn_positions)
    # On average a stream is drawn streams * copies / total_copies times. Divide its weight by
    # this number.
    streams = weight.shape[1]
    total_copies = copies.sum(1, keepdim=True).double()
    weight_of_copy = weight * total_copies / (copies * streams).double()
    return source, _rounded_weights(weight_of_copy.gather(1, source), unit)


def _copies_of_streams(weight: Tensor, level: Tensor, level_sums: Tensor, count: int) -> Tensor:
    """Return how many copies of each stream take part in the draw.

    Streams are drawn in proportion to their copies. The copies of a stream are in proportion to
    its share of the weight on its level. So all levels have about equally many copies.

    Args:
        weight: The weight of each stream, shape (population, streams), float64.
        level: The level of each stream, of the same shape, int64.
        level_sums: The weight on each level, summed over all earlier resamplings. Shape
            (population, levels). This function adds the weights of this resampling.
        count: The number of resamplings, including this one.

    Returns:
        The number of copies of each stream, at least 1: int64, with the shape of ``weight``.
    """
    # Add up the weight on each level, now and on average over all resamplings. The sum is
    # exact, so it does not depend on the order of addition.
    zeros = torch.zeros(level_sums.shape, dtype=torch.int64, device=level_sums.device)
    level_weight = _sum_exactly(weight, lambda part: zeros.scatter_add(1, level, part))
    level_sums += level_weight
    mean_level_weight = level_sums / torch.full_like(level_sums, count)
    # If a level now has more weight than on average, its current weight counts instead.
    counted_weight = torch.maximum(mean_level_weight, level_weight)
    share = weight / counted_weight.gather(1, level)
    return (share * _COPIES).long().clamp(min=1)


def _rounded_weights(weight: Tensor, unit: Tensor) -> Tensor:
    """Scale weights to a sum of about `_WEIGHT`, and round them to multiples of the unit.

    Args:
        weight: The weight of each stream, shape (population, streams), float64.
        unit: The unit of each candidate, shape (population, 1). If a weight of the candidate is
            below 1, this function changes the unit to 1 / `_PARTS`.
    """
    unit.masked_fill_((weight < 1).any(1, keepdim=True), 1 / _PARTS)
    # Round down, scale the sum, and round down again. No weight becomes 0.
    weight = (weight / unit).floor() * unit
    scale = torch.full_like(unit, _WEIGHT) / weight.long().sum(1, keepdim=True).double()
    weight = (weight * scale / unit).floor() * unit
    return torch.maximum(weight, unit)


def _sum_exactly(weight: Tensor, add: Callable[[Tensor], Tensor]) -> Tensor:
    """Return a sum of weights, float64, that does not depend on the order of addition.

    ``add`` computes a sum of integers. It is called with the integer parts of the weights, and
    then with their fractional parts in units of 1 / `_PARTS`.
    """
    integer_part = weight.floor()
    fraction = ((weight - integer_part) * _PARTS).long()
    return add(integer_part.long()).double() + add(fraction).double() / _PARTS


def systematic(copies: Tensor, bits: Tensor) -> Tensor:
    """Draw as many streams as there are, in proportion to their copies.

    This is systematic resampling. The streams lie side by side on a line; the length of each is
    its number of copies. Equidistant points on the line select the streams. So a stream is
    drawn as often as its share of the line says, rounded up or down.

    Args:
        copies: The copies of each stream, at least 1: shape (population, streams), int64. The
            sum of a row, times the number of streams, must be below 2^63.
        bits: The offset of the first point: twelve random bits, shape (population, 1). Higher
            bits are ignored.

    Returns:
        The numbers of the drawn streams in ascending order, with the shape of ``copies``.
    """
    streams = copies.shape[1]
    ends = copies.cumsum(1)
    total = ends[:, -1:]
    # Multiply all positions on the line by the number of streams, so that they are integers.
    # The distance between two points is then `total`, and the offset is a random part of it.
    offset = total * (bits % (1 << _RANDOM_BITS)) >> _RANDOM_BITS
    points = torch.arange(streams, device=copies.device) * total + offset
    return torch.searchsorted(ends * streams, points, right=True)
