"""Rollouts: weight vectors play streams of games for a fixed number of decisions, the same on every device.

A stream is an endless sequence of pieces; one game follows another on it. Every candidate makes the same
number of decisions on the same number of streams, so that all cost the same. With shared streams (common
random numbers) all candidates have the same pieces, which reduces the variance of comparisons. To measure
whole games, as the older literature does, a stream can stop after a given number of games.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy.typing as npt
import torch

from kernels.ops.philox import signed64
from kernels.support.checks import check_integer
from tetris.game.decisions import Rows, play
from tetris.game.feature_sets import feature_names
from tetris.game.piece_stream import Streams, packed_source
from tetris.game.policy import Lookahead, Player, Policy
from tetris.game.rules import RULES
from tetris.play import engines as native
from tetris.play.devices import ENGINES, check_gpu
from tetris.play.launch_pacing import LaunchPacer
from tetris.play.quantized_weights import engine_weights, played_weights

_SLICE_SECONDS = 0.2
_FIRST_SLICE = 64
_FIRST_PYTHON_SLICE = 4
_NEVER = (1 << 63) - 1


@dataclass(frozen=True)
class RolloutResult:
    """The counts of a rollout by candidate.

    Attributes:
        lines: Lines removed, those of unfinished games included; shape (population,), int64, on the GPU
            where the games are played there, otherwise on the CPU.
        games: Games that ended, of the same shape, type and device.
        decisions: Pieces placed, of the same shape, type and device; fewer than requested where streams have
            stopped.
    """

    lines: torch.Tensor
    games: torch.Tensor
    decisions: torch.Tensor


class Rollout:
    """Games in progress; the result does not depend on how the decisions are split into calls of `advance`.

    Examples:
        >>> policy = Policy([[-1.0, 1.0, -1.0, -1.0, -4.0, -1.0]], "dellacherie")
        >>> games = Rollout(policy, Streams(count=4), device="python")
        >>> games.advance(10).decisions
        tensor([40])

    Attributes:
        names: Names of the features, in their order.
        weights: Shape (population, features), float32, on the device that plays.
        decisions: Decisions made so far on each stream that has not stopped.
        operators: Those of the engine; None for ``"python"``.
        columns: The boards by columns: shape (population, streams, width), int32, on the device that plays.
            Bit y of a column is row y. Until `branch` they change as the games go on.

    Args:
        policy: The candidates; one, where its weights have one dimension. Weights on the GPU are not checked,
            which would wait for it.
        streams: The rules and the pieces.
        device: ``"cpu"``: the C++ engine; ``"cuda"``: the CUDA engine, on the GPU of the weights, or
            else on torch's current one; ``"python"``: the reference implementation.

    Raises:
        ValueError: If the weights have a wrong shape or a value that is not finite, the features are
            unknown, or there is no GPU for ``"cuda"``.
        kernels.loader.CompilerMissingError: If the device is ``"cpu"`` or ``"cuda"``, without a compiler.
        kernels.loader.BuildError: If the engine could not be built.
    """

    def __init__(self, policy: Policy, streams: Streams, device: str = "cpu") -> None:
        """Set up empty boards; see the class."""
        if device not in ENGINES:
            raise ValueError(f"expected device to be {', '.join(ENGINES)}, got {device!r}")
        self.streams, self.device = streams, device
        self.lookahead = Lookahead(policy.lookahead)
        self.names = feature_names(policy.features, streams.rules.width)
        self.weights = _checked_weights(policy.weights, len(self.names), on_gpu=device == "cuda")
        self.decisions = 0
        at, shape = self.weights.device, (len(self.weights), streams.count)
        self.columns = torch.zeros((*shape, streams.rules.width), dtype=torch.int32, device=at)
        self._lines = torch.zeros(shape, dtype=torch.int64, device=at)
        self._games = torch.zeros(shape, dtype=torch.int64, device=at)
        self._made = torch.zeros(shape, dtype=torch.int64, device=at)
        # Where the next piece is drawn, it goes with a board that is copied.
        self._known_in: torch.Tensor | None = None
        self._pacer: LaunchPacer | None = None
        self.operators: Any = None
        if device == "python":
            self._rounded = played_weights(self.weights, self.names)
            return
        self._rounded = engine_weights(self.weights, self.names)
        self.operators = native.load(native.extension(self.names, self.lookahead), cuda=device == "cuda")
        self._pace()

    def __reduce__(self) -> Any:
        """Raise TypeError: games in progress use a library of this process."""
        raise TypeError("expected a Rollout to stay in its process: it can be neither copied nor pickled")

    def _pace(self) -> None:
        if self.device == "cuda":
            boards = self._games.numel()
            kind = (self.names, self.streams.rules, boards, self._games.device, self.lookahead)
            self._pacer = LaunchPacer(kind, boards, steady=self.streams.games is None)

    @property
    def stream_lines(self) -> torch.Tensor:
        """Lines removed on each stream so far, a copy: shape (population, streams), int64, as ``columns``."""
        return self._lines.clone()

    @property
    def stream_games(self) -> torch.Tensor:
        """Games that ended on each stream so far, as ``stream_lines``."""
        return self._games.clone()

    @property
    def boards(self) -> torch.Tensor:
        """The boards: shape (population, streams, height), int32; row 0 is the bottom, bit c is column c.

        On the CPU, a copy; it waits for the device.
        """
        rules = self.streams.rules
        rows = torch.arange(rules.height, dtype=torch.int32, device="cpu")
        full = (self.columns.cpu().unsqueeze(-2) >> rows.unsqueeze(-1)) & 1
        bits = torch.arange(rules.width, dtype=torch.int32, device="cpu")
        return (full << bits).sum(-1, dtype=torch.int32)

    @property
    def column_heights(self) -> torch.Tensor:
        """Rows up to each column's highest cell: shape (population, streams, width), int64, on the device."""
        return torch.frexp(self.columns.float()).exponent.long()  # of 24 rows at most: exact in float32

    @property
    def next_drawn(self) -> bool:
        """Whether a board depends on the next piece: a controller knows it, or it had to appear inside."""
        return self.lookahead is Lookahead.PREVIEW or self.streams.rules.original

    def branch(self, source: torch.Tensor, columns: torch.Tensor | None = None) -> None:
        """Copy boards between streams of a candidate; pieces and counts stay those of the stream.

        Where `next_drawn`, the next piece goes with the board: it falls first, and the pieces after it are
        the stream's own.

        Args:
            source: Shape (population, streams), int64, on the device that plays: the stream of the same
                candidate whose board each stream takes, 0 to streams - 1; on a GPU not checked, which would
                wait for it.
            columns: What comes of it, as the attribute, where it is known.

        Raises:
            ValueError: If its shape is wrong.
        """
        if source.shape != self._games.shape:
            wanted = tuple(self._games.shape)
            raise ValueError(f"expected source of shape {wanted}, got {tuple(source.shape)}")
        at = source.unsqueeze(-1).expand_as(self.columns)
        self.columns = self.columns.gather(1, at) if columns is None else columns
        if self.next_drawn:
            known_in = self._known_in
            self._known_in = source.contiguous().clone() if known_in is None else known_in.gather(1, source)

    def keep(self, candidates: torch.Tensor) -> None:
        """Drop all candidates but these, shape (kept,), int64, on the device that plays."""
        if not self.streams.shared:
            raise ValueError("expected shared streams, where candidates can be dropped")
        for name in ("weights", "_rounded", "columns", "_lines", "_games", "_made", "_known_in"):
            if (value := getattr(self, name)) is not None:
                setattr(self, name, value[candidates])
        self._pace()

    def advance(self, decisions: int, check: Callable[[], None] | None = None) -> RolloutResult:
        """Play on; return the totals since the rollout began. On a GPU reading them waits for the device.

        Args:
            decisions: Pieces to place on every stream that has not stopped, at least 0.
            check: Called a few times a second; an exception ends the rollout, which is unusable then.
        """
        self.play_on(decisions, check)
        return RolloutResult(self._lines.sum(1), self._games.sum(1), self._made.sum(1))

    def play_on(self, decisions: int, check: Callable[[], None] | None = None) -> None:
        """Play on as `advance` does, without the totals."""
        remaining = check_integer("decisions", decisions, 0, 1 << 62)
        if self._pacer is not None:
            with torch.cuda.device(self._lines.device):
                self._pacer.run(remaining, self._play, check)
            return
        size = _FIRST_PYTHON_SLICE if self.device == "python" else _FIRST_SLICE
        while remaining:
            size = min(size, remaining)
            began = time.perf_counter()
            self._play(size)
            remaining -= size
            size = max(1, int(size * min(8.0, _SLICE_SECONDS / max(time.perf_counter() - began, 1e-9))))
            if check is not None:
                check()

    def _play(self, decisions: int) -> None:
        play = self._play_python if self.device == "python" else self._play_native
        play(decisions)
        self.decisions += decisions
        self._known_in = None

    def _play_native(self, decisions: int) -> None:
        streams = self.streams
        self.operators.advance(
            *(self._rounded, self.columns, self._lines, self._games, self._made, self._known_in),
            *(streams.rules.height, RULES.index(streams.rules.rule), *packed_source(streams.rules)),
            *(signed64(streams.seed), streams.first, streams.shared, self.decisions, decisions),
            _NEVER if streams.games is None else streams.games,
        )

    def _play_python(self, decisions: int) -> None:
        streams, rules = self.streams, self.streams.rules
        for candidate, weights in enumerate(self._rounded.numpy()):
            player = Player(self.names, weights, self.lookahead)
            for index in range(streams.count):
                at, falls = (candidate, index), None
                if self._known_in is not None:
                    falls = streams.pieces(candidate, int(self._known_in[at]))[self.decisions]
                pieces, columns = streams.pieces(*at), self.columns[at].tolist()
                rows: Rows = tuple(
                    sum((column >> y & 1) << c for c, column in enumerate(columns))
                    for y in range(max(columns).bit_length())
                )
                lines = made = 0
                games = int(self._games[at])
                most = 0 if games == streams.games else decisions
                for after in islice(play(pieces, player, rules, rows, self.decisions, falls), most):
                    rows = () if after.game_over else after.rows
                    lines, games, made = lines + after.lines, games + after.game_over, made + 1
                    if games == streams.games:
                        break
                columns = [sum((row >> c & 1) << y for y, row in enumerate(rows)) for c in range(rules.width)]
                self.columns[at] = torch.tensor(columns, dtype=torch.int32)
                self._lines[at] += lines
                self._games[at] = games
                self._made[at] += made


def rollout(
    policy: Policy,
    streams: Streams,
    decisions: int = 1000,
    device: str = "cpu",
    *,
    check: Callable[[], None] | None = None,
) -> RolloutResult:
    """Play every candidate for a fixed number of decisions or games.

    Args:
        policy: The candidates.
        streams: The rules and the pieces.
        decisions: Pieces to place on every stream; an upper limit where streams stop after some games.
        device: ``"cpu"``, ``"cuda"`` or ``"python"``; see `Rollout`, for errors, too.
        check: Called a few times a second; an exception ends the rollout.
    """
    return Rollout(policy, streams, device).advance(decisions, check)


def _checked_weights(weights: npt.ArrayLike | torch.Tensor, features: int, on_gpu: bool) -> torch.Tensor:
    """Return weights of shape (population, features) as float32 on the device that plays, a copy."""
    if on_gpu:
        check_gpu("device cuda", "device cpu")
    given = torch.as_tensor(weights).detach()
    given = given.unsqueeze(0) if given.dim() == 1 else given
    if given.dim() != 2 or len(given) == 0 or given.shape[1] != features:
        raise ValueError(f"expected weights of shape (population, {features}), got {tuple(given.shape)}")
    if on_gpu and given.is_cuda:
        return given.to(torch.float32, copy=True).contiguous()
    numbers = given.to("cpu", torch.float32, copy=True).contiguous()
    if not numbers.isfinite().all():
        raise ValueError("expected finite float32 weights, got NaN or infinity")
    return numbers.cuda() if on_gpu else numbers
