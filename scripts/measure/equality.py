"""Play the same rollouts on CPU and GPU, and compare lines, games and boards bit for bit.

python scripts/measure equality --json equality.json

The rollouts cover what one can be asked for: features, boards, rules, pieces, streams, weights, shapes, and
what is known of the next piece.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from measure.provenance import Measured
from measure.work import build_engines, good_weights
from tetris import Lookahead, Policy, Rollout, Rules, Streams, feature_names
from tetris.game.rules import MAX_HEIGHT, MAX_WIDTH, MIN_HEIGHT, MIN_WIDTH, RULES

COUNTS = {Lookahead.NONE: 480, Lookahead.PREVIEW: 40, Lookahead.EXPECTIMAX: 40}
"""Configurations by lookahead; the last two are played with `SLOW` features."""

# Every list of features is a library of its own to compile, and those with heights follow the width.
_ANY = ("dellacherie", "bcts", "dt", "dt_surface", "dt_full")
WIDTHS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(_ANY, tuple(range(MIN_WIDTH, MAX_WIDTH + 1))),
    "dt_columns": (5, MAX_WIDTH),
    "dt_step_pairs": (4, MAX_WIDTH),
    "bertsekas": (MIN_WIDTH, MAX_WIDTH),
    "bdu": (7, MAX_WIDTH),
}
SLOW = ("dt",)
_AS_LONG = 24  # decisions that take as long as one of these

# The CUDA engine has a kernel for few games and one for tens of thousands, whose warps go together in another
# way from some 200,000 on; warps of 32 divide few of these.
SHAPES: tuple[tuple[int, int, int], ...] = (  # candidates, streams of each, decisions on each
    *((1, 1, 20_000), (1, 512, 3_000), (512, 1, 3_000), (7, 41, 5_000), (60, 60, 400), (1, 20_001, 150)),
    *((20_001, 1, 150), (150, 150, 150), (137, 131, 1_000), (513, 264, 25), (513, 528, 13)),
)
PIECES = ("uniform", "bag", "SZ", "I", "IOTZJL", "TJ")
WEIGHTS = ("good", "random", "extreme")
GAMES = (None, None, 1, 3)
FIRST_STREAMS = (0, (1 << 32) - 3, (1 << 40) + 12_345, 1 << 62)
SEEDS = (0, 12_345, (1 << 64) - 1)
_SEED = 20_090_101
# With these, sums overflow to infinity, vanish, are not a number, or tie.
_EXTREMES = (0.0, -0.0, 1e-45, -1e-38, 1.0, -1.0, 16_777_217.0, 3e38, -3e38)


class Configuration(NamedTuple):
    """A rollout that two engines play."""

    weights: str  # one of WEIGHTS
    population: int
    parts: tuple[int, ...]  # decisions on each stream, a call of advance each
    features: str
    lookahead: Lookahead
    streams: Streams


def configurations(count: int, sets: Sequence[str], lookahead: Lookahead) -> list[Configuration]:
    """Return configurations, the same for the same arguments: feature sets and shapes in rotation."""
    chance = random.Random(_SEED)
    found = []
    for number in range(count):
        lap, place = divmod(number, len(sets))
        widths = WIDTHS[sets[place]]
        # First the corners of what is possible, then the board of the literature, then any.
        boards = [*product((widths[0], widths[-1]), (MIN_HEIGHT, MAX_HEIGHT)), (10, 20)]
        if lap >= len(boards):
            boards.append((chance.choice(widths), chance.randint(MIN_HEIGHT, MAX_HEIGHT)))
        rules = Rules.of(*boards[min(lap, len(boards) - 1)], chance.choice(RULES), chance.choice(PIECES))
        population, streams_each, decisions = SHAPES[(lap + place) % len(SHAPES)]
        decisions = decisions if lookahead is Lookahead.NONE else -(-decisions // _AS_LONG)
        # Calls: one, halves, a few and none before the rest, or anything.
        few, anything = min(7, decisions), sorted(chance.randint(0, decisions) for _ in range(5))
        cuts = chance.choice(([], [decisions // 2], [1, few, few], anything))
        shared, games, first = chance.random() < 0.5, chance.choice(GAMES), chance.choice(FIRST_STREAMS)
        parts = tuple(end - start for start, end in zip([0, *cuts], [*cuts, decisions], strict=True))
        kind, seed = chance.choice(WEIGHTS), chance.choice(SEEDS)
        streams = Streams(rules, streams_each, seed, first, shared, games)
        found.append(Configuration(kind, population, parts, sets[place], lookahead, streams))
    return found


def weights_of(one: Configuration) -> Tensor:
    """Return the weights of a configuration, shape (population, features), float32."""
    features, width = one.features, one.streams.rules.width
    shape = (one.population, len(feature_names(features, width)))
    generator = torch.Generator().manual_seed(one.streams.seed & 0xFFFF)
    noise = torch.randn(shape, generator=generator)
    if one.weights == "extreme":
        return torch.tensor(_EXTREMES)[torch.randint(len(_EXTREMES), shape, generator=generator)]
    if one.weights == "random":
        return noise
    noise[0] = 0.0  # the controller itself comes first, and variants of it after
    return torch.tensor(good_weights(features, width)) * (1.0 + 0.2 * noise)


def play(one: Configuration, device: str, parts: Iterable[int]) -> dict[str, Tensor]:
    """Play a configuration; lines, games, decisions and boards, candidate by candidate, on the CPU."""
    rollout = Rollout(Policy(weights_of(one), one.features, one.lookahead), one.streams, device)
    for decisions in parts:
        totals = rollout.advance(decisions)
    played = {"lines": totals.lines, "games": totals.games, "decisions": totals.decisions}
    return {name: tensor.cpu() for name, tensor in {**played, "boards": rollout.boards}.items()}


def compare(one: Configuration, device: str, reference: str = "cpu") -> int:
    """Play a configuration on two engines, on the reference in one call; how many decisions each made."""
    expected = play(one, reference, [sum(one.parts)])
    found = play(one, device, one.parts)
    for name, tensor in expected.items():
        apart = (tensor != found[name]).flatten(1).any(1) if tensor.dim() > 1 else tensor != found[name]
        if apart.any():
            raise RuntimeError(
                f"expected {device} to play as {reference} does, got other {name} "
                f"of candidate {int(apart.nonzero()[0])} and {int(apart.sum()) - 1} more in {one}"
            )
    return int(expected["decisions"].sum())


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return how much was compared."""
    chosen = []
    for lookahead, count in COUNTS.items():
        these = configurations(count, tuple(WIDTHS) if lookahead is Lookahead.NONE else SLOW, lookahead)
        if device == "cuda":
            build_engines(((x.features, x.streams.rules.width) for x in these), [lookahead])
        chosen += these
    began = time.monotonic()
    made = [compare(each, device) for each in chosen]
    counts = {"configurations": len(made), "decisions": sum(made), "differences": 0}
    figures = {f"equality.{name}": value for name, value in counts.items()}
    return Measured(figures, {"seconds": round(time.monotonic() - began, 1)})
