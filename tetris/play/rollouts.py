"""Rollouts: weight vectors play streams of games, with the same result on every device.

A stream is an endless sequence of pieces, on which one game follows another. Every candidate
makes the same number of decisions on the same number of streams, so all candidates take the
same time. With shared streams (common random numbers) all candidates get the same pieces, which
reduces the variance of comparisons. To measure whole games, as the older literature does, a
stream can stop after a given number of games.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from kernels.ops.philox import signed64
from kernels.support.checks import check_integer
from tetris.game.decisions import Rows, play
from tetris.game.feature_sets import weight_names
from tetris.game.piece_stream import Streams, packed_source
from tetris.game.policy import Lookahead, Player, Policy
from tetris.game.positions import Boards, read_boards
from tetris.game.rules import RULES
from tetris.play import engines
from tetris.play.devices import ENGINES, check_gpu
from tetris.play.launch_pacing import LaunchPacer
from tetris.play.quantized_weights import engine_weights, played_weights

# On the CPU decisions are made in slices of about this duration, with a check after each slice.
_SLICE_SECONDS = 0.2
_FIRST_SLICE = 64
_FIRST_PYTHON_SLICE = 4
_GROWTH = 8.0  # A slice is at most this many times as long as the slice before.
_NEVER = (1 << 63) - 1  # In the engines, the number of games of a stream that never stops.


@dataclass(frozen=True)
class RolloutResult:
    """The counts of a rollout for each candidate: tensors of shape (population,), int64.

    They are on the GPU if the games are played there, otherwise on the CPU.

    Attributes:
        lines: Lines removed, including those of unfinished games.
        games: Games that ended.
        decisions: Pieces placed; fewer than requested if streams have stopped.
    """

    lines: Tensor
    games: Tensor
    decisions: Tensor


class Rollout:
    """Games in progress. `advance` plays on; the size of its steps does not change the games.

    Examples:
        >>> policy = Policy([[-1.0, 1.0, -1.0, -1.0, -4.0, -1.0]], "dellacherie")
        >>> games = Rollout(policy, Streams(count=4), device="python")
        >>> games.advance(10).decisions
        tensor([40])

    Attributes:
        names: Names of the features, in their order.
        weights: Shape (population, features), float32, on the device that plays.
        decisions: Decisions made so far on each stream that has not stopped.
        operators: The operators of the engine; None for ``"python"``.
        columns: The boards by columns: shape (population, streams, width), int32, on the device
            that plays. Bit y of a column is row y. The engine changes this tensor in place;
            `branch` replaces it.

    Args:
        policy: The candidates. Weights of one dimension are a single candidate. Weights on the
            GPU are not checked, because that would wait for the GPU.
        streams: The rules and the pieces.
        device: ``"cpu"``: the C++ engine. ``"cuda"``: the CUDA engine, on the GPU that has the
            weights, or else on torch's current GPU. ``"python"``: the reference implementation.
        boards: The stacks to begin with: one board for all streams, or a board for each stream,
            as `tetris.game.positions.read_board` reads them. The next game on a stream begins
            with an empty board.

    Raises:
        ValueError: If the weights have a wrong shape or a value that is not finite, the
            features are unknown, or there is no GPU for ``"cuda"``.
        kernels.loader.CompilerMissingError: If the device is ``"cpu"`` or ``"cuda"``, without a
        compiler. kernels.loader.BuildError: If the engine could not be built.
    """

    def __init__(
        self,
        policy: Policy,
        streams: Streams,
        device: str = "cpu",
        *,
        boards: Boards | None = None,
    ) -> None:
        """Set up the boards, and load the engine that will play.

        Args:
            policy: The features, and the weights of all candidates, called the population.
            streams: The rules, and the streams of pieces that every candidate plays.
            device: The engine: ``"cpu"``, ``"cuda"`` or ``"python"``.
            boards: The stacks to begin with, one for all streams or one for each; None: empty
                boards.
        """
        if device not in ENGINES:
            raise ValueError(f"expected device to be {', '.join(ENGINES)}, got {device!r}")
        self.streams = streams
        self.device = device
        self.lookahead = Lookahead(policy.lookahead)
        self.names = weight_names(policy.features, streams.rules.width)
        on_gpu = device == "cuda"
        self.weights = _checked_weights(policy.weights, len(self.names), on_gpu)
        self.decisions = 0  # The decisions made so far on each stream.
        # The counts of each stream of each candidate: lines removed, games that ended, and
        # pieces placed.
        shape = (len(self.weights), streams.count)
        self._lines = torch.zeros(shape, dtype=torch.int64, device=self.weights.device)
        self._games = self._lines.clone()
        self._placed = self._lines.clone()
        self.columns = self._first_columns(boards)
        # `branch` copies boards between streams. If the next piece of a board is already drawn,
        # it is copied with the board. Then this tensor says which stream the next piece of each
        # stream comes from. None: every stream has its own next piece.
        self._piece_source: Tensor | None = None
        self._pacer: LaunchPacer | None = None
        self.operators: Any = None
        # The engines take the weights in two forms. Both are rounded in the same way, so that
        # all engines play the same games.
        if device == "python":
            self._played_weights = played_weights(self.weights, self.names)
        else:
            self._played_weights = engine_weights(self.weights, self.names)
            library = engines.extension(self.names, self.lookahead)
            self.operators = engines.load(library, cuda=on_gpu)
            self._choose_pace()

    def _first_columns(self, boards: Boards | None) -> Tensor:
        """Return the boards to begin with as columns, the same for every candidate."""
        streams = self.streams
        width = streams.rules.width
        zeros = self._lines.new_zeros((*self._lines.shape, width), dtype=torch.int32)
        if boards is None:
            return zeros
        stacks = read_boards(boards, streams.rules, streams.count)
        columns = [_columns_of(rows, width) for rows in stacks]  # Shape (streams, width).
        return zeros + torch.tensor(columns, dtype=torch.int32, device=zeros.device)

    def __reduce__(self) -> Any:
        """Refuse to be copied or pickled: games in progress use a library of this process."""
        raise TypeError(
            "expected a Rollout to stay in its process: it can be neither copied nor pickled"
        )

    def _choose_pace(self) -> None:
        """Set up the pacer of launches on a GPU. A launch takes longer with more boards."""
        if self.device == "cuda":
            boards = self._games.numel()
            kind_of_work = (
                self.names,
                self.streams.rules,
                boards,
                self._games.device,
                self.lookahead,
            )
            self._pacer = LaunchPacer(kind_of_work, boards, steady=self.streams.games is None)

    @property
    def stream_lines(self) -> Tensor:
        """Lines removed on each stream so far, a copy: shape (population, streams), int64."""
        return self._lines.clone()

    @property
    def stream_games(self) -> Tensor:
        """Games ended on each stream so far, a copy: shape (population, streams), int64."""
        return self._games.clone()

    @property
    def boards(self) -> Tensor:
        """The boards: shape (population, streams, height), int32; row 0 is the bottom.

        Bit c of a row is column c. The tensor is a copy on the CPU, and waits for the device.
        """
        rules = self.streams.rules
        row_numbers = torch.arange(rules.height, dtype=torch.int32, device="cpu")
        column_numbers = torch.arange(rules.width, dtype=torch.int32, device="cpu")
        # Shape (population, streams, height, width): bit y of a column is its cell in row y.
        cells = (self.columns.cpu().unsqueeze(-2) >> row_numbers.unsqueeze(-1)) & 1
        return (cells << column_numbers).sum(-1, dtype=torch.int32)

    @property
    def column_heights(self) -> Tensor:
        """Height of each column: shape (population, streams, width), int64, on the device."""
        # The height is the position of the highest bit of a column. This is the exponent of the
        # column as a float. float32 holds columns of up to 24 rows exactly.
        return torch.frexp(self.columns.float()).exponent.long()

    @property
    def next_drawn(self) -> bool:
        """Whether the games so far already depend on their next piece.

        They do with a preview, which shows the next piece, and by the original rule, by which
        the next piece had to appear on the board.
        """
        return self.lookahead is Lookahead.PREVIEW or self.streams.rules.original

    def branch(self, source: Tensor, columns: Tensor | None = None) -> None:
        """Copy boards between the streams of each candidate.

        Each stream goes on with its own pieces. But if `next_drawn` is true, the next piece is
        copied with the board: it falls first, and then the stream's own pieces follow.

        Args:
            source: For each stream, the number of the stream whose board it takes, 0 to
                streams - 1. Shape (population, streams), int64, on the device that plays. On a
                GPU the values are not checked, because that would wait for the GPU.
            columns: The boards after the copies, if the caller has already made them.

        Raises:
            ValueError: If the shape of ``source`` is wrong.
        """
        if source.shape != self._games.shape:
            shape = tuple(self._games.shape)
            raise ValueError(f"expected source of shape {shape}, got {tuple(source.shape)}")
        if columns is None:
            columns = self.columns.gather(1, source.unsqueeze(-1).expand_as(self.columns))
        self.columns = columns
        if self._piece_source is not None:  # No decision was made since the last branch.
            self._piece_source = self._piece_source.gather(1, source)
        elif self.next_drawn:
            self._piece_source = source.contiguous().clone()

    def keep(self, candidates: Tensor) -> None:
        """Keep only some candidates, and drop all others.

        ``candidates`` has the numbers of those to keep: shape (n,), int64, on the device that
        plays.
        """
        if not self.streams.shared:
            raise ValueError("expected shared streams, where candidates can be dropped")
        self.weights = self.weights[candidates]
        self._played_weights = self._played_weights[candidates]
        self.columns = self.columns[candidates]
        self._lines = self._lines[candidates]
        self._games = self._games[candidates]
        self._placed = self._placed[candidates]
        if self._piece_source is not None:
            self._piece_source = self._piece_source[candidates]
        self._choose_pace()

    def advance(self, decisions: int, check: Callable[[], None] | None = None) -> RolloutResult:
        """Play on, and return the totals since the rollout began.

        Args:
            decisions: Pieces to place on every stream that has not stopped, at least 0.
            check: Called a few times a second. If it raises an exception, the rollout ends, and
                cannot be used any more.
        """
        self.play_on(decisions, check)
        return RolloutResult(self._lines.sum(1), self._games.sum(1), self._placed.sum(1))

    def play_on(self, decisions: int, check: Callable[[], None] | None = None) -> None:
        """Play ``decisions`` placements on every stream, in slices of a fraction of a second.

        A slice is one call of the engine. It plays the same number of decisions on every
        stream.

        Args:
            decisions: Pieces to place on every stream that has not stopped, at least 0.
            check: Called after every slice. If it raises an exception, the rollout ends, and
                cannot be used any more.
        """
        remaining = check_integer("decisions", decisions, 0, 1 << 62)
        if self._pacer is not None:  # On a GPU the pacer divides the decisions into launches.
            with torch.cuda.device(self._lines.device):
                self._pacer.run(remaining, self._play, check)
            return
        size = _FIRST_PYTHON_SLICE if self.device == "python" else _FIRST_SLICE
        while remaining:
            size = min(size, remaining)
            start_time = time.perf_counter()
            self._play(size)
            remaining -= size
            seconds = max(time.perf_counter() - start_time, 1e-9)
            # At the same speed the next slice takes _SLICE_SECONDS. It is at most _GROWTH times
            # as long as this one.
            growth = min(_GROWTH, _SLICE_SECONDS / seconds)
            size = max(1, int(size * growth))
            if check is not None:
                check()

    def _play(self, decisions: int) -> None:
        """Play ``decisions`` placements on every stream, with the engine of the device."""
        if self.device == "python":
            self._play_python(decisions)
        else:
            self._play_native(decisions)
        self.decisions += decisions
        self._piece_source = None

    def _play_native(self, decisions: int) -> None:
        """Play ``decisions`` placements on every stream, with the C++ or CUDA engine."""
        streams = self.streams
        rules = streams.rules
        # The operator changes the boards and the three counts in place.
        self.operators.advance(
            self._played_weights,
            self.columns,
            self._lines,
            self._games,
            self._placed,
            self._piece_source,
            rules.height,
            RULES.index(rules.rule),
            *packed_source(rules),  # The pieces that the rules allow, as numbers.
            signed64(streams.seed),  # The signed integer with the bits of the unsigned seed.
            streams.first,
            streams.shared,
            self.decisions,  # The decisions made so far.
            decisions,  # The decisions to make now.
            streams.games or _NEVER,  # The games after which a stream stops.
        )

    def _play_python(self, decisions: int) -> None:
        """Play every stream that has not stopped, with the reference implementation."""
        for candidate, weights in enumerate(self._played_weights.numpy()):
            player = Player(self.names, weights, self.lookahead)
            for stream in range(self.streams.count):
                if int(self._games[candidate, stream]) != self.streams.games:
                    self._play_stream(player, candidate, stream, decisions)

    def _play_stream(self, player: Player, candidate: int, stream: int, decisions: int) -> None:
        """Play one stream of a candidate with the reference implementation.

        Args:
            player: The candidate as a player.
            candidate: The number of the candidate.
            stream: The number of the stream.
            decisions: How many pieces to place; the stream may stop earlier.
        """
        rules = self.streams.rules
        index = candidate, stream  # The index of the stream in all tensors.
        pieces = self.streams.pieces(candidate, stream)
        first_piece = None
        if self._piece_source is not None:
            # The board was copied from another stream, together with its next piece.
            source = int(self._piece_source[index])
            first_piece = self.streams.pieces(candidate, source)[self.decisions]
        # `self.columns` has the columns of the board as integers, but `play` takes its rows.
        rows = _transpose(self.columns[index].tolist())
        lines = 0
        placed = 0
        games = int(self._games[index])
        after_states = play(pieces, player, rules, rows, self.decisions, first_piece)
        for after in islice(after_states, decisions):
            rows = after.next_rows
            lines += after.lines
            games += after.game_over
            placed += 1
            # The stream stops after this many games; None: it never stops.
            if games == self.streams.games:
                break
        self._lines[index] += lines
        self._games[index] = games
        self._placed[index] += placed
        self.columns[index] = torch.tensor(_columns_of(rows, rules.width), dtype=torch.int32)


def rollout(
    policy: Policy,
    streams: Streams,
    decisions: int = 1000,
    device: str = "cpu",
    *,
    boards: Boards | None = None,
    check: Callable[[], None] | None = None,
) -> RolloutResult:
    """Play every candidate for a fixed number of decisions or games.

    Args:
        policy: The candidates.
        streams: The rules and the pieces.
        decisions: Pieces to place on every stream. A stream that stops after a number of games
            may place fewer.
        device: ``"cpu"``, ``"cuda"`` or ``"python"``; see `Rollout`, also for the errors.
        boards: The stacks to begin with, as for `Rollout`; None: empty boards.
        check: Called a few times a second. If it raises an exception, the rollout ends.
    """
    return Rollout(policy, streams, device, boards=boards).advance(decisions, check)


def _columns_of(rows: Rows, width: int) -> tuple[int, ...]:
    """Return the columns of a stack, left to right, as integers whose bit y is row y."""
    columns = _transpose(rows)
    return columns + (0,) * (width - len(columns))  # Add the empty columns on the right.


def _checked_weights(weights: npt.ArrayLike | Tensor, features: int, on_gpu: bool) -> Tensor:
    """Check weights, and return a copy in float32 with the shape (population, features).

    Args:
        weights: Shape (population, features), or (features,) for one candidate.
        features: The expected number of features.
        on_gpu: Whether the copy is on the GPU; otherwise it is on the CPU.

    Raises:
        ValueError: If the shape is wrong, a weight is not finite, or there is no GPU. The
            values of weights that are already on the GPU are not checked, because that would
            wait for the GPU.
    """
    if on_gpu:
        check_gpu("device cuda", "device cpu")
    population = torch.as_tensor(weights, dtype=torch.float32).detach()
    if population.dim() == 1:
        population = population.unsqueeze(0)
    shape = tuple(population.shape)
    if len(shape) != 2 or shape[0] == 0 or shape[1] != features:
        raise ValueError(f"expected weights of shape (population, {features}), got {shape}")
    if on_gpu and population.is_cuda:
        return population.to(torch.float32, copy=True).contiguous()
    population = population.to("cpu", torch.float32, copy=True).contiguous()
    if not population.isfinite().all():
        raise ValueError("expected finite float32 weights, got NaN or infinity")
    return population.cuda() if on_gpu else population


def _transpose(lines: Sequence[int]) -> Rows:
    """Turn the rows of a board into its columns, or columns into rows, as integers.

    Empty rows or columns at the end are left out.
    """
    length = max(lines, default=0).bit_length()
    return tuple(
        sum((line >> place & 1) << number for number, line in enumerate(lines))
        for place in range(length)
    )
