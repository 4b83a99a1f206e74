"""Play the same rollouts on CPU and GPU, and compare lines, games and boards bit for bit.

python scripts/measure equality --json equality.json

The rollouts cover what one can be asked for: features, boards, rules, pieces, streams, weights, shapes.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from measure.cli import measurement
from measure.engines import build_engines, good_weights
from measure.provenance import Measured
from tetris import Rollout, Rules, feature_names
from tetris.rules import MAX_HEIGHT, MAX_WIDTH, MIN_HEIGHT, MIN_WIDTH, RULES

CONFIGURATIONS = 480
SLOW = 40
"""Configurations with the next piece known, and with lookahead."""

# Every list of features is a library of its own to compile, and those with heights follow the width.
_ANY = ("dellacherie", "bcts", "dt", "dt_surface", "dt_full")
WIDTHS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(_ANY, tuple(range(MIN_WIDTH, MAX_WIDTH + 1))),
    "dt_columns": (5, MAX_WIDTH),
    "dt_step_pairs": (4, MAX_WIDTH),
    "bertsekas": (MIN_WIDTH, MAX_WIDTH),
    "bdu": (7, MAX_WIDTH),
}

Shape = tuple[int, int, int]
"""Candidates, streams of each, decisions on each stream."""

# The CUDA engine has a kernel for few games and one for tens of thousands, whose warps go together in another
# way from some 200,000 on; warps of 32 divide few of these.
SHAPES: tuple[Shape, ...] = (
    (1, 1, 20_000),
    (1, 512, 3_000),
    (512, 1, 3_000),
    (7, 41, 5_000),
    (60, 60, 400),
    (1, 20_001, 150),
    (20_001, 1, 150),
    (150, 150, 150),
    (137, 131, 1_000),
    (513, 264, 25),
    (513, 528, 13),
)
PIECES = ("uniform", "bag", "SZ", "I", "IOTZJL", "TJ")
WEIGHTS = ("good", "random", "extreme")
GAMES = (None, None, 1, 3)
FIRST_STREAMS = (0, (1 << 32) - 3, (1 << 40) + 12_345, 1 << 62)
SEEDS = (0, 12_345, (1 << 64) - 1)
_SEED = 20_090_101
_AS_LONG = 24  # decisions that take as long as one with the next piece known, or with lookahead
# With these, sums overflow to infinity, vanish, are not a number, or tie.
_EXTREMES = (0.0, -0.0, 1e-45, -1e-38, 1.0, -1.0, 16_777_217.0, 3e38, -3e38)


class Configuration(NamedTuple):
    """A rollout that two engines play: the arguments of `tetris.Rollout`."""

    features: str
    rules: Rules
    weights: str  # one of WEIGHTS
    population: int
    streams: int
    parts: tuple[int, ...]  # decisions on each stream, a call of advance each
    share_streams: bool
    games_per_stream: int | None
    first_stream: int
    seed: int
    pieces_known: int = 1
    lookahead: bool = False


def configurations(
    count: int = CONFIGURATIONS, features: Sequence[str] = tuple(WIDTHS), shapes: Sequence[Shape] = SHAPES
) -> list[Configuration]:
    """Return configurations, the same for the same arguments: feature sets and shapes in rotation."""
    chance = random.Random(_SEED)
    found = []
    for number in range(count):
        lap, place = divmod(number, len(features))
        widths = WIDTHS[features[place]]
        # First the corners of what is possible, then the board of the literature, then any.
        boards = [*product((widths[0], widths[-1]), (MIN_HEIGHT, MAX_HEIGHT)), (10, 20)]
        if lap >= len(boards):
            boards.append((chance.choice(widths), chance.randint(MIN_HEIGHT, MAX_HEIGHT)))
        rules = Rules.of(*boards[min(lap, len(boards) - 1)], chance.choice(RULES), chance.choice(PIECES))
        population, streams, decisions = shapes[(lap + place) % len(shapes)]
        weights = chance.choice(WEIGHTS)
        # Calls: one, halves, a few and none before the rest, or anything.
        few, anything = min(7, decisions), sorted(chance.randint(0, decisions) for _ in range(5))
        cuts = chance.choice(([], [decisions // 2], [1, few, few], anything))
        parts = tuple(end - start for start, end in zip([0, *cuts], [*cuts, decisions], strict=True))
        share, games = chance.random() < 0.5, chance.choice(GAMES)
        streamed = (share, games, chance.choice(FIRST_STREAMS), chance.choice(SEEDS))
        found.append(Configuration(features[place], rules, weights, population, streams, parts, *streamed))
    return found


def slowly(chosen: Iterable[Configuration], **way: Any) -> list[Configuration]:
    """Return configurations that decide in another way, and fewer decisions: they take about as long."""
    return [each._replace(parts=tuple(-(-part // _AS_LONG) for part in each.parts), **way) for each in chosen]


def weights_of(configuration: Configuration) -> Tensor:
    """Return the weights of a configuration, shape (population, features), float32."""
    names = feature_names(configuration.features, configuration.rules.width)
    shape = (configuration.population, len(names))
    generator = torch.Generator().manual_seed(configuration.seed & 0xFFFF)
    noise = torch.randn(shape, generator=generator)
    if configuration.weights != "good":
        extreme = torch.tensor(_EXTREMES)[torch.randint(len(_EXTREMES), shape, generator=generator)]
        return noise if configuration.weights == "random" else extreme
    noise[0] = 0.0  # the controller itself comes first, and variants of it after
    good = good_weights(configuration.features, configuration.rules.width)
    return torch.tensor(good) * (1.0 + 0.2 * noise)


def play(configuration: Configuration, device: str, parts: Iterable[int]) -> dict[str, Tensor]:
    """Play a configuration; lines, games, decisions and boards, candidate by candidate, on the CPU."""
    named = ("features", "share_streams", "games_per_stream", "first_stream", "pieces_known", "lookahead")
    one = configuration
    games = (weights_of(one), one.rules, one.streams, one.seed, device)
    rollout = Rollout(*games, **{name: getattr(one, name) for name in named})
    for decisions in parts:
        totals = rollout.advance(decisions)
    played = {"lines": totals.lines, "games": totals.games, "decisions": totals.decisions}
    return {name: tensor.cpu() for name, tensor in {**played, "boards": rollout.boards}.items()}


def compare(configuration: Configuration, device: str, reference: str = "cpu") -> int:
    """Play a configuration on two engines, on the reference in one call; how many decisions each made."""
    expected = play(configuration, reference, [sum(configuration.parts)])
    found = play(configuration, device, configuration.parts)
    for name, tensor in expected.items():
        apart = (tensor != found[name]).flatten(1).any(1) if tensor.dim() > 1 else tensor != found[name]
        if apart.any():
            raise RuntimeError(
                f"expected {device} to play as {reference} does, got other {name} "
                f"of candidate {int(apart.nonzero()[0])} and {int(apart.sum()) - 1} more in {configuration}"
            )
    return int(expected["decisions"].sum())


def compare_all(chosen: Iterable[Configuration], device: str) -> dict[str, int]:
    """Play configurations on two engines; the figures of what was compared."""
    made = [compare(each, device) for each in chosen]
    counts = {"equality.configurations": len(made), "equality.decisions": sum(made)}
    return {**counts, "equality.differences": 0}


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return how much was compared."""
    plain, few = configurations(), configurations(SLOW, ("dt",))
    others = [slowly(few, pieces_known=2), slowly(few, lookahead=True)]
    for chosen in (plain, *others):
        way = chosen[0].pieces_known, chosen[0].lookahead
        build_engines(((each.features, each.rules.width) for each in chosen), [way])
    began = time.monotonic()
    figures = compare_all([*plain, *chain(*others)], device)
    return {**figures}, {"seconds": round(time.monotonic() - began, 1)}, {}


main = measurement(measure, __doc__, devices=("cuda",))
