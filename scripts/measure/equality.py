"""Play the same rollouts on CPU and GPU, and compare lines, games and boards bit for bit.

python scripts/measure equality --json equality.json

The rollouts cover features, boards, rules, pieces, streams, weights, shapes and kinds of
lookahead.
"""

import argparse
import math
import random
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise, product
from typing import NamedTuple

import torch
from torch import Tensor

from measure.provenance import Measured
from measure.work import build_engines, good_weights
from tetris import Lookahead, Policy, Rollout, Rules, Streams, weight_names
from tetris.game.hidden_units import layout_of
from tetris.game.rules import MAX_HEIGHT, MAX_WIDTH, MIN_HEIGHT, MIN_WIDTH, RULES

COUNTS = {Lookahead.NONE: 480, Lookahead.PREVIEW: 40, Lookahead.EXPECTIMAX: 40}
"""Configurations by lookahead; the last two are played with `SLOW` features."""

# A library is compiled for every list of features. A set with the heights of the columns is
# another list of features on each width.
_ANY = ("dellacherie", "bcts", "dt", "dt_surface", "dt_full", "dt+8")
WIDTHS = {
    **dict.fromkeys(_ANY, tuple(range(MIN_WIDTH, MAX_WIDTH + 1))),
    "dt_columns": (5, MAX_WIDTH),
    "dt_step_pairs": (4, MAX_WIDTH),
    "bertsekas": (MIN_WIDTH, MAX_WIDTH),
    "bdu": (7, MAX_WIDTH),
}
SLOW = ("dt", "dt+8")  # The feature sets that are played with lookahead, which is slow.
_LOOKAHEAD_COST = 24  # The time of a decision with lookahead divided by that without.

# The CUDA engine has a kernel for few games, and one for tens of thousands of games. The second
# one arranges its warps differently from about 200,000 games on. Most of these numbers of games
# are no multiples of a warp's 32 threads.
SHAPES = (
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
"""Candidates, streams of each candidate, and decisions on each stream."""

PIECES = ("uniform", "bag", "SZ", "I", "IOTZJL", "TJ")
WEIGHTS = ("good", "random", "extreme")
GAMES = (None, None, 1, 3)
FIRST_STREAMS = (0, (1 << 32) - 3, (1 << 40) + 12_345, 1 << 62)
SEEDS = (0, 12_345, (1 << 64) - 1)
_SEED = 20_090_101
# With these weights, weighted sums overflow to infinity, underflow to 0, are NaN, or are equal.
_EXTREMES = (0.0, -0.0, 1e-45, -1e-38, 1.0, -1.0, 16_777_217.0, 3e38, -3e38)


class Configuration(NamedTuple):
    """A rollout that two engines play.

    Attributes:
        weights: One of `WEIGHTS`.
        parts: The number of decisions of each call of `Rollout.advance`.
    """

    weights: str
    population: int
    parts: tuple[int, ...]
    features: str
    lookahead: Lookahead
    streams: Streams


def _choose_board(rng: random.Random, number: int, widths: Sequence[int]) -> tuple[int, int]:
    """Return the width and the height of board ``number`` of a feature set.

    The first four boards have the smallest and largest sizes, the fifth one has the size of the
    literature, and all others have random sizes.
    """
    extremes = product((widths[0], widths[-1]), (MIN_HEIGHT, MAX_HEIGHT))
    boards = [*extremes, (10, 20)]
    if number < len(boards):
        return boards[number]
    width = rng.choice(widths)
    return width, rng.randint(MIN_HEIGHT, MAX_HEIGHT)


def _divide(rng: random.Random, decisions: int) -> tuple[int, ...]:
    """Divide ``decisions`` into parts at random, and return the sizes of the parts.

    The tested engine plays each part in a separate call.
    """
    few = min(7, decisions)
    random_cuts = sorted(rng.randint(0, decisions) for _ in range(5))
    # A cut is the number of decisions before the start of a part. Choose one of four divisions.
    cuts = rng.choice(
        (
            [],  # One part.
            [decisions // 2],  # Two halves.
            [1, few, few],  # One decision, a few, none, and the rest.
            random_cuts,  # Six parts of random sizes.
        )
    )
    return tuple(end - start for start, end in pairwise([0, *cuts, decisions]))


def configurations(
    count: int, feature_sets: Sequence[str], lookahead: Lookahead
) -> list[Configuration]:
    """Return random configurations of rollouts. Equal arguments give equal configurations.

    A rollout is many games of Tetris side by side: each candidate, a vector of weights, chooses
    the placements of several streams of pieces. The configurations come in rounds. A round has
    one configuration for every feature set. From round to round the board of a feature set
    changes, and so do the numbers of candidates, streams and decisions.

    Args:
        count: The number of configurations.
        feature_sets: The names of the feature sets.
        lookahead: What the candidates know of the next piece.
    """
    rng = random.Random(_SEED)
    result = []
    for number in range(count):
        round_number, set_number = divmod(number, len(feature_sets))
        features = feature_sets[set_number]
        # `WIDTHS` maps a feature set to the board widths on which it is compared.
        width, height = _choose_board(rng, round_number, WIDTHS[features])
        rules = Rules.of(width, height, rng.choice(RULES), rng.choice(PIECES))
        # `SHAPES` has triples of numbers: of candidates, of streams per candidate, and of
        # decisions per stream. From round to round a feature set gets the next triple. In the
        # first round, feature set i gets triple i.
        shape_number = (round_number + set_number) % len(SHAPES)
        population, stream_count, decisions = SHAPES[shape_number]
        if lookahead is not Lookahead.NONE:
            # A decision with lookahead takes about `_LOOKAHEAD_COST` times as long.
            decisions = math.ceil(decisions / _LOOKAHEAD_COST)
        # The tested engine makes the decisions in several calls.
        per_call = _divide(rng, decisions)
        streams, weights = _draw_streams(rng, rules, stream_count)
        result.append(
            Configuration(weights, population, per_call, features, lookahead, streams)
        )
    return result


def _draw_streams(rng: random.Random, rules: Rules, count: int) -> tuple[Streams, str]:
    """Return random streams of pieces, and a kind of weights, such as "random"."""
    is_shared = rng.random() < 0.5  # Whether all candidates play the same pieces.
    games = rng.choice(GAMES)  # After this many games a stream ends. None: never.
    first_stream = rng.choice(FIRST_STREAMS)
    weights = rng.choice(WEIGHTS)
    seed = rng.choice(SEEDS)
    streams = Streams(rules, count, seed, first_stream, shared=is_shared, games=games)
    return streams, weights


def weights_of(game: Configuration) -> Tensor:
    """Return the weights of the candidates, shape (population, features), float32.

    "random" weights are normal numbers. "extreme" weights are drawn from `_EXTREMES`. "good"
    weights are those of a good controller; all candidates but the first one change them by
    about 20 %. The good controllers have no hidden units, whose weights are then small normal
    numbers.
    """
    width = game.streams.rules.width
    names = weight_names(game.features, width)
    shape = (game.population, len(names))
    generator = torch.Generator().manual_seed(game.streams.seed & 0xFFFF)
    noise = torch.randn(shape, generator=generator)
    if game.weights == "random":
        return noise
    if game.weights == "extreme":
        indices = torch.randint(len(_EXTREMES), shape, generator=generator)
        return torch.tensor(_EXTREMES)[indices]
    noise[0] = 0.0  # The first candidate is the controller itself.
    of_units = torch.arange(len(names)) >= len(layout_of(names).features)
    weights = torch.tensor(good_weights(game.features, width)) * (1.0 + 0.2 * noise)
    return torch.where(of_units, 0.02 * noise, weights)


def play(game: Configuration, device: str, parts: Iterable[int]) -> dict[str, Tensor]:
    """Play a configuration; return lines, games, decisions and boards as tensors on the CPU.

    Args:
        game: The configuration.
        device: The device of the engine.
        parts: The number of decisions of each call of `Rollout.advance`.
    """
    policy = Policy(weights_of(game), game.features, game.lookahead)
    rollout = Rollout(policy, game.streams, device)
    for decisions in parts:
        totals = rollout.advance(decisions)
    return {
        "lines": totals.lines.cpu(),
        "games": totals.games.cpu(),
        "decisions": totals.decisions.cpu(),
        "boards": rollout.boards.cpu(),
    }


def compare(game: Configuration, device: str, reference: str = "cpu") -> int:
    """Play a configuration on two engines, and return how many decisions each of them made.

    The engine of ``device`` makes the decisions in parts, the reference in a single call.

    Raises:
        RuntimeError: If the engines play differently.
    """
    expected = play(game, reference, [sum(game.parts)])
    got = play(game, device, game.parts)
    for name, tensor in expected.items():
        differs = tensor != got[name]
        if differs.dim() > 1:  # Reduce boards to one value per candidate.
            differs = differs.flatten(1).any(1)
        if differs.any():
            raise RuntimeError(
                f"expected {device} to play as {reference} does, got other {name} of candidate "
                f"{int(differs.nonzero()[0])} and {int(differs.sum()) - 1} more in {game}"
            )
    return int(expected["decisions"].sum())


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Play random games on a device and on the CPU, and check that both play the same.

    A rollout is many games side by side. The figures are

    equality.configurations: The number of compared rollouts.
    equality.decisions: The number of compared decisions in all rollouts.
    equality.differences: Always 0, since `compare` raises a RuntimeError at the first one.
    """
    rollouts = []
    for lookahead, count in COUNTS.items():
        # Lookahead is slow, so with it only one feature set is played.
        feature_sets: Sequence[str] = SLOW
        if lookahead is Lookahead.NONE:
            feature_sets = tuple(WIDTHS)  # The keys are all feature sets.
        new_rollouts = configurations(count, feature_sets, lookahead)
        if device == "cuda":
            # Compile all engines now, in parallel: one by one would take longer. An engine is
            # compiled for a feature set and a board width.
            engines = [(game.features, game.streams.rules.width) for game in new_rollouts]
            build_engines(engines, [lookahead])
        rollouts += new_rollouts
    start_time = time.monotonic()
    # `compare` returns the number of decisions that it has compared.
    decision_counts = [compare(rollout, device) for rollout in rollouts]
    seconds = round(time.monotonic() - start_time, 1)
    figures = {
        "equality.configurations": len(rollouts),
        "equality.decisions": sum(decision_counts),
        "equality.differences": 0,
    }
    return Measured(figures, {"seconds": seconds})
