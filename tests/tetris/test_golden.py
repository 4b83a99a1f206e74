"""The Python engine against what the reference simulator, MDPTetris, did: every step, every feature."""

from __future__ import annotations

from pathlib import Path

import pytest

from tetris.game.decisions import landing_row, place, steps
from tetris.game.feature_sets import feature_names
from tetris.game.features import column_heights, feature_values
from tetris.game.pieces import PIECES
from tetris.game.rules import Rules
from tetris.play.controller import published

ALL_TEN = (*feature_names("bcts"), "diversity", "wells_fast")


def _rows(text: str) -> tuple[int, ...]:
    return () if text == "-" else tuple(int(row) for row in text.split(","))


def _records(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(
    ("trace", "pieces", "clear_on_overflow", "games"),
    [
        ("trace_10x10.txt", "pieces_10x10.txt", False, 0),
        ("trace_10x10_gameover_overflow0.txt", "pieces_10x10_gameover.txt", False, 1),
        ("trace_10x10_gameover_overflow1.txt", "pieces_10x10_gameover.txt", True, 1),
    ],
)
def test_bcts_plays_the_trace(
    golden: Path, trace: str, pieces: str, clear_on_overflow: bool, games: int
) -> None:
    controller = published("bcts")
    rules = Rules(10, 10, clear_on_overflow)
    sequence = [int(piece) for piece in (golden / pieces).read_text().split()]
    records = _records(golden / trace)
    played = list(steps((), sequence, controller.player(rules), rules, 0, len(records)))
    assert sum(step.game_over for step in played) == games
    lines = 0
    for step, record in zip(played, records, strict=True):
        lines += step.lines
        ours = [
            step.piece,
            step.orientation,
            step.column + 1,
            lines,
            step.lines,
            step.landing_row,
            len(step.rows),
        ]
        assert [*ours, step.game_over] == [int(field) for field in record[1:9]], record
        assert step.rows == _rows(record[9]), record
        assert list(step.features) == [float(field) for field in record[10:18]], record
        # Weights are rounded to 15 bits here, and not in the trace, in which -1e100 marks the end of a
        # game.
        assert step.game_over or step.value == pytest.approx(float(record[18]), rel=1e-4), record


def test_every_placement_and_all_ten_features(golden: Path) -> None:
    compared = overflowed = 0
    rules = Rules()
    rows: tuple[int, ...] = ()
    for record in _records(golden / "features.txt"):
        if record[0] == "B":
            rules, rows = Rules(int(record[2]), int(record[3])), _rows(record[4])
            continue
        shape, column = PIECES[int(record[1])][int(record[2])], int(record[3]) - 1
        row = landing_row(column_heights(rows, rules.width), shape, column)
        after = place(rows, shape, column, row, rules)
        ours = [after.lines, after.landing_row, after.piece_cells_removed, len(after.rows), after.game_over]
        assert ours == [int(field) for field in record[4:9]], record
        assert after.rows == _rows(record[9]), record
        assert feature_values(after, ALL_TEN) == [float(field) for field in record[10:20]], record
        compared += 1
        overflowed += after.game_over
    assert (compared, overflowed) == (2800, 287)
