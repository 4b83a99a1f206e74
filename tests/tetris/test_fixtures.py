"""The reference implementation against its verified record (make_fixtures.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tetris.game.decisions import landing_row, place, steps
from tetris.game.features import column_heights, feature_values
from tetris.game.piece_stream import PieceStream
from tetris.game.pieces import PIECES
from tetris.game.rules import Rules
from tetris.play.controller import LinearController

FOLDER = Path(__file__).parent / "fixtures"
GAMES: list[dict[str, Any]] = json.loads((FOLDER / "games.json").read_text())
PLACEMENTS: list[dict[str, Any]] = json.loads((FOLDER / "placements.json").read_text())


@pytest.mark.parametrize(
    "case", GAMES, ids=lambda case: f"{case['features']}-{Rules.from_dict(case['rules']).board}"
)
def test_recorded_game_is_played_again(case: dict[str, Any]) -> None:
    controller = LinearController(case["features"], case["weights"], Rules.from_dict(case["rules"]))
    rules = controller.rules
    pieces = PieceStream(rules, case["seed"], case["stream"])
    played = steps((), pieces, controller.player(rules), rules, case["start"], len(case["steps"]))
    assert [list(step.to_dict().values()) for step in played] == case["steps"]


def test_recorded_placements_have_the_same_outcome_and_features() -> None:
    for case in PLACEMENTS:
        rules, rows = Rules.from_dict(case["rules"]), tuple(case["rows"])
        heights = column_heights(rows, rules.width)
        for piece, orientation, column, *outcome, features in case["placements"]:
            shape = PIECES[piece][orientation]
            after = place(rows, shape, column, landing_row(heights, shape, column), rules)
            assert [after.landing_row, list(after.rows), after.lines, after.game_over] == outcome
            assert feature_values(after, tuple(case["names"])) == features
