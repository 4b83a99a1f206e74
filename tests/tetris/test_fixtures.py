"""The reference implementation against its record: ``python tests/tetris/test_fixtures.py``
writes it again.

It was recorded after it was verified against the traces of the reference simulator
(test_golden.py), and has boards and rules that they lack. A change of the rules is a change of
these files; nothing else is.
"""

from __future__ import annotations

import json
import random
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tetris.game.decisions import landing_row, place, play
from tetris.game.feature_sets import feature_names
from tetris.game.features import FEATURES, AfterState, column_heights, feature_values
from tetris.game.piece_stream import PieceStream
from tetris.game.pieces import PIECES
from tetris.game.policy import Player
from tetris.game.rules import Rules
from tetris.play.controller import LinearController, published

FOLDER = Path(__file__).parent / "fixtures"
NARROW = LinearController(
    "bertsekas", tuple([-1.0, -0.5] + [-1.5] * 2 + [-0.75] * 3 + [-2.0, -8.0]), Rules(4, 24)
)
GAMES = [  # controller, rules, seed, stream, first decision, decisions
    (published("dt20"), Rules(10, 20), 1, 0, 0, 150),
    (published("bcts"), Rules(10, 10, clear_on_overflow=True, pieces="bag"), 2, 7, 5, 120),
    (published("bdu"), Rules(10, 8), 3, (1 << 40) + 1, 0, 100),
    (
        published("dellacherie"),
        Rules(7, 5, clear_on_overflow=True),
        (1 << 63) + 5,
        2,
        (1 << 34) + 3,
        120,
    ),
    (published("dt10"), Rules(6, 6), 4, 3, 0, 120),
    (published("dt10"), Rules(8, 12, pieces="SZ"), 5, 1, 0, 120),
    (NARROW, Rules(4, 24, pieces="IOL"), 6, 0, 0, 80),
    (published("dt20"), Rules(4, 4, clear_on_overflow=True), 7, 0, 0, 60),
]


def game_case(
    controller: LinearController,
    rules: Rules,
    seed: int,
    stream: int,
    start: int,
    decisions: int,
) -> dict[str, Any]:
    """Return what was played and every step of it."""
    pieces, player = PieceStream(rules, seed, stream), controller.player(rules)
    played = islice(play(pieces, player, rules, start=start), decisions)
    return {
        "features": controller.features,
        "weights": list(controller.weights),
        "rules": rules.to_dict(),
        "seed": seed,
        "stream": stream,
        "start": start,
        "steps": [_values(after, player) for after in played],
    }


def _values(step: AfterState, player: Player) -> list[Any]:
    features = feature_values(step, player.names)
    placed = [
        step.piece,
        step.orientation,
        step.column,
        step.lines,
        step.landing_row,
        list(step.rows),
    ]
    return [*placed, features, float(np.dot(features, player.weights)), step.game_over]


def placement_case(rng: random.Random) -> dict[str, Any]:
    """Return a random stack, some placements on it, and all features of what they make of
    it."""
    rules = Rules(
        rng.choice([4, 7, 8, 10]),
        rng.choice([4, 6, 10, 20]),
        clear_on_overflow=rng.random() < 0.5,
    )
    density = rng.choice([0.5, 0.8, 0.9])
    draws = [
        sum(1 << x for x in range(rules.width) if rng.random() < density)
        for _ in range(rules.height)
    ]
    stack = tuple(row for row in draws if row not in (0, rules.full_row))[
        : rng.randint(0, rules.height)
    ]
    heights = column_heights(stack, rules.width)
    listed = {*feature_names("bdu", rules.width), *feature_names("dt_full")}
    names = tuple(name for name in FEATURES if name in listed)
    placements = []
    for _ in range(4):
        shape = rng.choice(PIECES[rng.randrange(len(PIECES))])
        column = rng.randint(0, rules.width - shape.width)
        after = place(stack, shape, column, landing_row(heights, shape, column), rules)
        outcome = [after.landing_row, list(after.rows), after.lines, after.game_over]
        placements.append(
            [shape.piece, shape.orientation, column, *outcome, feature_values(after, names)]
        )
    return {
        "rules": rules.to_dict(),
        "rows": list(stack),
        "names": list(names),
        "placements": placements,
    }


def cases() -> dict[str, list[dict[str, Any]]]:
    """Return what the files hold."""
    rng = random.Random(1)
    return {
        "games": [game_case(*game) for game in GAMES],
        "placements": [placement_case(rng) for _ in range(40)],
    }


def test_the_record_is_what_is_played() -> None:
    for name, made in cases().items():
        recorded = json.loads((FOLDER / f"{name}.json").read_text())
        for case, expected in zip(made, recorded, strict=True):
            assert case == expected, (name, case["rules"])


if __name__ == "__main__":
    for name, made in cases().items():
        text = ",\n".join(json.dumps(case, separators=(",", ":")) for case in made)
        (FOLDER / f"{name}.json").write_text(f"[\n{text}\n]\n", encoding="utf-8")
