"""The pieces and stacks before games end, by play or from the weighted streams of importance splitting."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from tetris import LinearController, Rules
from tetris.evaluation import DEFAULT_SEED
from tetris.evaluation.estimates import ESTIMATES
from tetris.piece_stream import PieceStream
from tetris.rollouts import Rollout
from tetris.splitting import BAG_STEP, BURN_IN, STEP, levels, resampled

LAST = 160
"""The last pieces of a game that are kept."""

BEFORE = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 140, 200)
"""Pieces before the end at which the stack is kept: 1 is the stack on which the last piece falls."""

SAMPLED = 250
"""Ends of a batch that are looked at, drawn in proportion to their weights."""

BEGIN = BURN_IN + BEFORE[-1]
"""Decisions on each stream after which ends count: all that is kept of them comes after the burn-in."""

STREAMS = 1024
"""Streams of a batch."""

Pieces = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]

_KEPT = BEFORE[-1] + 1  # decisions that are remembered
_WEIGHT = 1 << 50  # of all streams of a batch, as in `tetris.splitting`
_LEVELS = 32  # more than there are


class Ends(NamedTuple):
    """What came before the ends of one batch of streams.

    Games shorter than two hundred pieces count, but are not looked at.
    """

    weight: float  # of all ends
    games: int  # that ended
    pieces: Pieces  # shape (ends looked at, 160), the last piece first
    heights: Numbers  # shape (ends looked at, BEFORE): rows to the highest cell
    holes: Numbers  # the same
    usual: tuple[float, float]  # mean height and holes of all stacks


class _Memory:
    """The last decisions of every stream, and of the streams that its board comes from."""

    def __init__(self, games: Rollout) -> None:
        self._games = games
        height, shape = games.rules.height, games.stream_games.shape
        bits = torch.arange(height)
        columns = torch.arange(1 << height)
        filled = sum(columns >> bit & 1 for bit in range(height))
        self._rows = torch.bucketize(columns, 1 << bits, right=True).short()
        self._holes = (self._rows - filled).short()
        self._own = torch.arange(shape[1], dtype=torch.int16).expand(shape)
        self.kept = torch.zeros(_KEPT, 3, *shape, dtype=torch.int16)  # height, holes, stream of the piece
        self.since = torch.zeros(shape, dtype=torch.int64)  # decisions since the game began

    def decide(self) -> torch.Tensor:
        """Make a decision on every stream, and return which games it ended."""
        slot, before = self._games.decisions % _KEPT, self._games.stream_games
        self._games.play_on(1)
        columns = self._games.columns.long()
        self.kept[slot, 0] = self._rows[columns].amax(-1)
        self.kept[slot, 1] = self._holes[columns].sum(-1)
        self.kept[slot, 2] = self._own
        self.since += 1
        return self._games.stream_games > before

    def branch(self, source: torch.Tensor) -> None:
        """Copy boards between streams, and what is remembered of them."""
        self._games.branch(source)
        self.since = self.since.gather(1, source)
        self.kept = self.kept.gather(3, source.expand(*self.kept.shape[:2], *source.shape))


def ends(
    controller: LinearController,
    rules: Rules,
    decisions: int,
    *,
    split: bool,
    streams: int = STREAMS,
    batches: int = ESTIMATES,
    first_stream: int = 0,
    seed: int = DEFAULT_SEED,
    step: Callable[[], object] = lambda: None,
) -> list[Ends]:
    """Play batches of streams, and return what came before the games that ended from decision `BEGIN` on.

    Args:
        controller: Who plays.
        rules: The rules.
        decisions: On each stream.
        split: Whether streams near an end are continued many times, as by `tetris.splitting.split_rollout`.
        streams: Of a batch.
        batches: Independent ones.
        first_stream: Number of the first stream.
        seed: Of pieces, resampling and choice of the ends that are looked at.
        step: Called after every few decisions.
    """
    games = Rollout(
        *([controller.weights] * batches, rules, streams, seed),
        features=controller.features,
        share_streams=False,
        first_stream=first_stream,
    )
    memory = _Memory(games)
    generator, chance = torch.Generator().manual_seed(seed), random.Random(f"{seed} {first_stream}")
    size = BAG_STEP if rules.pieces == "bag" else STEP
    weight = torch.full((batches, streams), float(_WEIGHT // streams), dtype=torch.float64)
    held, unit = (
        torch.zeros(batches, _LEVELS, dtype=torch.float64),
        torch.ones(batches, 1, dtype=torch.float64),
    )
    usual = torch.zeros(batches, 3, dtype=torch.float64)
    found: list[list[tuple[float, torch.Tensor, int]]] = [[] for _ in range(batches)]
    total, count = torch.zeros(batches, dtype=torch.float64), torch.zeros(batches, dtype=torch.int64)
    for group in range(decisions // size):
        for _ in range(size):
            t = games.decisions
            ended = memory.decide()
            if t < BEGIN:
                memory.since[ended] = 0
                continue
            heights, holes, _ = memory.kept[t % _KEPT].double()
            usual += torch.stack([(weight * each).sum(1) for each in (torch.ones(()), heights, holes)], 1)
            total += (weight * ended).sum(1)
            count += ended.sum(1)
            slots = torch.arange(t, t - _KEPT, -1) % _KEPT
            for batch, stream in (ended & (memory.since >= _KEPT)).nonzero().tolist():
                found[batch].append((float(weight[batch, stream]), memory.kept[slots, :, batch, stream], t))
            memory.since[ended] = 0
        if split:
            bits = torch.tensor([[chance.getrandbits(12)] for _ in range(batches)])
            source, weight = resampled(weight, levels(games), held, unit, group + 1, bits)
            memory.branch(source)
        step()
    measured = []
    for batch, each in enumerate(found):
        chosen = each
        if each and (split or len(each) > SAMPLED):
            weights = torch.tensor([weight for weight, _, _ in each], dtype=torch.float64)
            chosen = [each[i] for i in weights.multinomial(SAMPLED, True, generator=generator).tolist()]
        heights, holes, sources = (
            np.array([kept[:, i].tolist() for _, kept, _ in chosen], dtype=np.int64).reshape(-1, _KEPT)
            for i in range(3)
        )
        sources += first_stream + batch * streams
        measured.append(
            Ends(
                float(total[batch]),
                int(count[batch]),
                _pieces(rules, seed, sources[:, :LAST], [t for _, _, t in chosen]),
                heights[:, BEFORE].astype(np.float64),
                holes[:, BEFORE].astype(np.float64),
                (float(usual[batch, 1] / usual[batch, 0]), float(usual[batch, 2] / usual[batch, 0])),
            )
        )
    return measured


def _pieces(rules: Rules, seed: int, sources: Pieces, last: Sequence[int]) -> Pieces:
    """Return the pieces of the decisions ``last``, ``last - 1``, ..., each from its stream."""
    found = np.empty_like(sources)
    for row, (streams, t) in enumerate(zip(sources.tolist(), last, strict=True)):
        opened = {stream: PieceStream(rules, seed, stream) for stream in set(streams)}
        found[row] = [opened[stream][t - back] for back, stream in enumerate(streams)]
    return found


def anywhere(rules: Rules, count: int) -> Pieces:
    """Return stretches of pieces that end anywhere, the last piece first: shape (count, 160)."""
    ends = np.arange(count) % BAG_STEP + LAST
    streams = np.arange(count) + (1 << 61)
    return _pieces(rules, DEFAULT_SEED, np.repeat(streams[:, None], LAST, axis=1), ends.tolist())
