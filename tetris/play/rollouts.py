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
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kernels.ops.philox import signed64
from kernels.support.checks import check_flags, check_integer
from tetris.game.decisions import Rows, check_sight, play
from tetris.game.feature_sets import feature_names
from tetris.game.piece_stream import packed_source
from tetris.game.rules import RULES, Rules, check_rules
from tetris.play import engines as native
from tetris.play.devices import ENGINES
from tetris.play.launch_pacing import LaunchPacer
from tetris.play.quantized_weights import played_weights, whole_weights
from tetris.play.step_tables import engine_weights

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
        >>> games = Rollout([[-1.0, 1.0, -1.0, -1.0, -4.0, -1.0]], Rules(10, 20), 4, features="dellacherie",
        ...                 device="python")
        >>> games.advance(10).decisions
        tensor([40])

    Args:
        weights: Shape (population, features), finite; used as float32, and rounded as
            `tetris.play.quantized_weights` says. Weights on the GPU are not checked, which would wait for it.
        rules: The rules of the games.
        streams: Streams a candidate plays on, at least 1.
        seed: Chooses the pieces, 0 to 2^64 - 1.
        device: ``"cpu"``: the C++ engine; ``"cuda"``: the CUDA engine, on the GPU of the weights, or
            else on torch's current one; ``"python"``: the reference implementation.
        features: Name of a feature set, or feature names separated by commas.
        share_streams: Whether all candidates play on the streams ``first_stream`` onwards; otherwise
            candidate i has its own, from ``first_stream + i * streams`` onwards.
        games_per_stream: A stream stops at the end of this many games, at least 1, and costs almost nothing
            afterwards. None: streams never stop.
        first_stream: Number of the first stream, 0 to 2^62.
        pieces_known: 1: a controller knows the piece that falls; 2: the next one of its stream, too, and
            decides by both placements, see `decisions.choose`. A decision takes some twenty times as long.
        lookahead: Whether a controller that knows one piece compares its two best placements by all pieces
            that may come next, see `tetris.game.decisions.choose`. A decision takes 13 to 26 times as long.
        portable: Whether to compile the C++ engine for any processor of this architecture instead of this
            one: with SSE4 on x86-64 (any since 2011), elsewhere without vector instructions. Slower, with
            the same result. The CUDA engine ignores it.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If the weights have a wrong shape or a value that is not finite, an argument is out of
            range, or there is no GPU for ``"cuda"``.
        kernels.loader.CompilerMissingError: If the device is ``"cpu"`` or ``"cuda"``, without a compiler.
        kernels.loader.BuildError: If the engine could not be built.
    """

    def __init__(
        self,
        weights: npt.ArrayLike | torch.Tensor,
        rules: Rules | None = None,
        streams: int = 1,
        seed: int = 0,
        device: str = "cpu",
        *,
        features: str = "dt",
        share_streams: bool = True,
        games_per_stream: int | None = None,
        first_stream: int = 0,
        pieces_known: int = 1,
        lookahead: bool = False,
        portable: bool = False,
    ) -> None:
        """Set up empty boards; see the class."""
        self.rules = Rules() if rules is None else check_rules(rules)
        self.names = feature_names(features, self.rules.width)
        if not isinstance(device, str) or device not in ENGINES:
            known = f"{', '.join(ENGINES[:-1])} or {ENGINES[-1]}"
            raise ValueError(f"expected device to be {known}, got {device!r}")
        self.weights = _checked_weights(weights, len(self.names), "cuda" if device == "cuda" else "cpu")
        check_flags(share_streams=share_streams, portable=portable)
        self.streams = check_integer("streams", streams, 1, 1 << 31)
        self.seed = check_integer("seed", seed, 0, (1 << 64) - 1)
        self.device = device
        self.share_streams = share_streams
        self.first_stream = check_integer("first_stream", first_stream, 0, 1 << 62)
        if games_per_stream is not None:
            games_per_stream = check_integer("games_per_stream", games_per_stream, 1, 1 << 62)
        self.games_per_stream = games_per_stream
        check_sight(pieces_known, lookahead)
        self.pieces_known, self.lookahead = pieces_known, lookahead
        self.decisions = 0
        """Decisions made so far on each stream that has not stopped."""
        self._portable = portable
        self._load()
        place, shape = self.weights.device, (len(self.weights), self.streams)
        self._columns = torch.zeros((*shape, self.rules.width), dtype=torch.int32, device=place)
        self._lines = torch.zeros(shape, dtype=torch.int64, device=place)
        self._games = torch.zeros(shape, dtype=torch.int64, device=place)
        self._made = torch.zeros(shape, dtype=torch.int64, device=place)
        # Where the next piece is drawn, it goes with a board that is copied.
        self._known_in: torch.Tensor | None = None

    def _load(self) -> None:
        """Load the engine, and round the weights as it wants them."""
        python = self.device == "python"
        self._rounded = (played_weights if python else _whole_weights)(self.weights, self.names)
        cuda, boards = self.device == "cuda", len(self.weights) * self.streams
        self._operators = (
            native.operators(
                self.names,
                native=cuda or not self._portable,
                cuda=cuda,
                pieces_known=self.pieces_known,
                lookahead=self.lookahead,
            )
            if self.device != "python"
            else None
        )
        kind = (self.names, self.rules, boards, self.weights.device, self.pieces_known, self.lookahead)
        self._pacer = LaunchPacer(kind, boards, steady=self.games_per_stream is None) if cuda else None

    def __getstate__(self) -> dict[str, Any]:
        """Copy and pickle the games without the engine, which is loaded again, and built if need be."""
        loaded = ("_operators", "_pacer", "_rounded")
        return {name: value for name, value in vars(self).items() if name not in loaded}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._load()

    @property
    def boards(self) -> torch.Tensor:
        """The boards: shape (population, streams, height), int32; row 0 is the bottom, bit c is column c.

        On the CPU, a copy; it waits for the device.
        """
        rows = torch.arange(self.rules.height, dtype=torch.int32, device="cpu")
        full = (self._columns.cpu().unsqueeze(-2) >> rows.unsqueeze(-1)) & 1
        bits = torch.arange(self.rules.width, dtype=torch.int32, device="cpu")
        return (full << bits).sum(-1, dtype=torch.int32)

    @property
    def columns(self) -> torch.Tensor:
        """The boards by columns: shape (population, streams, width), int32, on the device that plays.

        Bit y of a column is row y. No copy: until `branch` they change as the games go on.
        """
        return self._columns

    @property
    def column_heights(self) -> torch.Tensor:
        """Rows up to each column's highest cell: shape (population, streams, width), int64, on the device."""
        bits = torch.arange(self.rules.height, device=self._columns.device)
        return torch.bucketize(self._columns, (1 << bits).int(), right=True)

    @property
    def stream_lines(self) -> torch.Tensor:
        """Lines removed on each stream, as `stream_games`."""
        return self._lines.clone()

    @property
    def stream_games(self) -> torch.Tensor:
        """Games that ended on each stream: shape (population, streams), int64, on the device that plays."""
        return self._games.clone()

    @property
    def next_drawn(self) -> bool:
        """Whether a board depends on the next piece: a controller knows it, or it had to appear inside."""
        return self.pieces_known > 1 or self.rules.original

    def branch(self, source: torch.Tensor) -> None:
        """Copy boards between streams of a candidate; pieces and counts stay those of the stream.

        Where `next_drawn`, the next piece goes with the board: it falls first, and the pieces after it are
        the stream's own.

        Args:
            source: Shape (population, streams), int64, on the device that plays: the stream of the same
                candidate whose board each stream takes, 0 to streams - 1; on a GPU not checked, which would
                wait for it.

        Raises:
            TypeError: If it is no int64 tensor.
            ValueError: If it is on another device, its shape is wrong, or there is no such stream.
        """
        if not isinstance(source, torch.Tensor) or source.dtype != torch.int64:
            got = source.dtype if isinstance(source, torch.Tensor) else type(source).__name__
            raise TypeError(f"expected source to be an int64 tensor, got {got}")
        if source.shape != self._games.shape or source.device != self._games.device:
            wanted = f"shape {tuple(self._games.shape)} on {self._games.device}"
            raise ValueError(f"expected source of {wanted}, got {tuple(source.shape)} on {source.device}")
        if source.is_cpu and not bool(((source >= 0) & (source < self.streams)).all()):
            raise ValueError(f"expected streams from 0 to {self.streams - 1} in source")
        index = source.unsqueeze(-1).expand_as(self._columns)
        self._columns = self._columns.gather(1, index)
        if self.next_drawn:
            known_in = self._known_in
            self._known_in = source.contiguous().clone() if known_in is None else known_in.gather(1, source)

    def advance(self, decisions: int, check: Callable[[], None] | None = None) -> RolloutResult:
        """Play on.

        Args:
            decisions: Pieces to place on every stream that has not stopped, at least 0; a stream that stops
                places fewer.
            check: Called a few times a second; an exception ends the rollout, which is unusable then.

        Returns:
            The totals since the rollout began. On the GPU they are queued: reading them waits for the
            device.
        """
        self.play_on(decisions, check)
        return RolloutResult(self._lines.sum(1), self._games.sum(1), self._made.sum(1))

    def play_on(self, decisions: int, check: Callable[[], None] | None = None) -> None:
        """Play on as `advance` does, without the totals."""
        remaining = check_integer("decisions", decisions, 0, 1 << 62)
        if self._pacer is not None:
            with torch.cuda.device(self._lines.device):
                self._pacer.run(remaining, self._play_native, check)
        else:
            self._play_in_slices(remaining, check)

    def _play_in_slices(self, remaining: int, check: Callable[[], None] | None) -> None:
        size, play_on = (
            (_FIRST_SLICE, self._play_native) if self._operators else (_FIRST_PYTHON_SLICE, self._play_python)
        )
        while remaining:
            size = min(size, remaining)
            began = time.perf_counter()
            play_on(size)
            remaining -= size
            size = max(1, int(size * min(8.0, _SLICE_SECONDS / max(time.perf_counter() - began, 1e-9))))
            if check is not None:
                check()

    def _play_native(self, decisions: int) -> None:
        assert self._operators is not None
        self._operators.advance(
            self._rounded,
            self._columns,
            self._lines,
            self._games,
            self._made,
            self._known_in,
            self.rules.height,
            RULES.index(self.rules.rule),
            *packed_source(self.rules),
            signed64(self.seed),
            self.first_stream,
            self.share_streams,
            self.decisions,
            decisions,
            _NEVER if self.games_per_stream is None else self.games_per_stream,
        )
        self._played(decisions)

    def _play_python(self, decisions: int) -> None:
        for candidate, weights in enumerate(self._rounded.numpy()):
            for index in range(self.streams):
                known_in = None if self._known_in is None else int(self._known_in[candidate, index])
                rows, lines, games, made = play(
                    _rows(self._columns[candidate, index].tolist()),
                    weights,
                    self.names,
                    self.rules,
                    self.seed,
                    self._stream(candidate, index),
                    self.decisions,
                    decisions,
                    self._games_left(candidate, index),
                    self.pieces_known,
                    None if known_in is None else self._stream(candidate, known_in),
                    self.lookahead,
                )
                columns = [
                    sum((row >> c & 1) << y for y, row in enumerate(rows)) for c in range(self.rules.width)
                ]
                self._columns[candidate, index] = torch.tensor(columns, dtype=torch.int32)
                self._lines[candidate, index] += lines
                self._games[candidate, index] += games
                self._made[candidate, index] += made
        self._played(decisions)

    def _stream(self, candidate: int, index: int) -> int:
        return self.first_stream + (index if self.share_streams else candidate * self.streams + index)

    def _played(self, decisions: int) -> None:
        self.decisions += decisions
        self._known_in = None

    def _games_left(self, candidate: int, index: int) -> int | None:
        if self.games_per_stream is None:
            return None
        return self.games_per_stream - int(self._games[candidate, index])


def rollout(
    weights: npt.ArrayLike | torch.Tensor,
    rules: Rules | None = None,
    streams: int = 1,
    decisions: int = 1000,
    seed: int = 0,
    device: str = "cpu",
    *,
    features: str = "dt",
    share_streams: bool = True,
    games_per_stream: int | None = None,
    first_stream: int = 0,
    pieces_known: int = 1,
    lookahead: bool = False,
    check: Callable[[], None] | None = None,
) -> RolloutResult:
    """Play every candidate for a fixed number of decisions or games.

    Args:
        weights: Shape (population, features), finite; used as float32.
        rules: The rules of the games.
        streams: Streams a candidate plays on, at least 1.
        decisions: Pieces to place on every stream; an upper limit where ``games_per_stream`` is given.
        seed: Chooses the pieces, 0 to 2^64 - 1.
        device: ``"cpu"``, ``"cuda"`` or ``"python"``.
        features: Name of a feature set, or feature names separated by commas.
        share_streams: Whether all candidates have the same pieces.
        games_per_stream: Games after which a stream stops. None: never.
        first_stream: Number of the first stream.
        pieces_known: 1, the piece that falls, or 2, the next one, too.
        lookahead: Whether to think of all pieces that may come next.
        check: Called a few times a second; an exception ends the rollout.

    Returns:
        Lines, games and decisions of each candidate.

    Raises:
        TypeError: See `Rollout`.
        ValueError: See `Rollout`.
        kernels.loader.BuildError: If the engine could not be built.
    """
    games = Rollout(
        weights,
        rules,
        streams,
        seed,
        device,
        features=features,
        share_streams=share_streams,
        games_per_stream=games_per_stream,
        first_stream=first_stream,
        pieces_known=pieces_known,
        lookahead=lookahead,
    )
    return games.advance(decisions, check)


def _whole_weights(weights: torch.Tensor, names: tuple[str, ...]) -> torch.Tensor:
    return engine_weights(whole_weights(weights, names)[0], names)


def _rows(columns: list[int]) -> Rows:
    height = max(columns).bit_length()
    return tuple(sum((column >> y & 1) << c for c, column in enumerate(columns)) for y in range(height))


def _checked_weights(weights: npt.ArrayLike | torch.Tensor, features: int, device: str) -> torch.Tensor:
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"expected a GPU for device cuda, torch {torch.__version__} finds none")
    if isinstance(weights, torch.Tensor) and (weights.is_complex() or weights.dtype == torch.bool):
        raise TypeError(f"expected real numbers as weights, got {weights.dtype}")
    if device == "cuda" and isinstance(weights, torch.Tensor) and weights.is_cuda:
        _check_shape(tuple(weights.shape), features)
        return weights.detach().to(torch.float32, copy=True).contiguous()
    try:
        # NumPy has no bfloat16.
        values = weights.detach().float().cpu().numpy() if isinstance(weights, torch.Tensor) else weights
        kind = np.asarray(values).dtype.kind
        if kind not in "iufO":
            raise TypeError(f"dtype {np.asarray(values).dtype}")
        with np.errstate(over="ignore"):
            array = np.array(values, dtype=np.float32, order="C")
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise TypeError(f"expected real numbers as weights, got {type(weights).__name__}: {error}") from error
    _check_shape(array.shape, features)
    if not np.isfinite(array).all():
        raise ValueError("expected finite float32 weights, got NaN or infinity")
    return torch.from_numpy(array).to(device)


def _check_shape(shape: tuple[int, ...], features: int) -> None:
    if len(shape) != 2 or shape[0] == 0 or shape[1] != features:
        raise ValueError(f"expected weights of shape (population, {features}), got {shape}")
