"""The engines against what the reference simulator, MDPTetris, did: every step, every feature.

The traces in ``golden`` are of the simulator of Thiery and Scherrer; their first lines name the
columns.
"""

from __future__ import annotations

import lzma
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from engine_games import decide, every_feature

from tetris.game.decisions import landing_row, place, play
from tetris.game.feature_sets import feature_names
from tetris.game.features import column_heights, feature_values
from tetris.game.pieces import PIECES
from tetris.game.rules import Rules
from tetris.play.controller import published

GOLDEN = Path(__file__).parent / "golden"
ALL_TEN = (*feature_names("bcts"), "diversity", "wells_fast")
TRACES = [
    ("trace_10x10.txt", "pieces_10x10.txt", False, 0),
    ("trace_10x10_gameover_overflow0.txt", "pieces_10x10_gameover.txt", False, 1),
    ("trace_10x10_gameover_overflow1.txt", "pieces_10x10_gameover.txt", True, 1),
]


def _rows(text: str) -> tuple[int, ...]:
    return () if text == "-" else tuple(int(row) for row in text.split(","))


def _read(name: str) -> str:
    return lzma.decompress((GOLDEN / f"{name}.xz").read_bytes()).decode()


def _records(name: str) -> list[list[str]]:
    return [line.split() for line in _read(name).splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(("trace", "pieces", "clear_on_overflow", "games"), TRACES)
def test_bcts_plays_the_trace(
    trace: str, pieces: str, clear_on_overflow: bool, games: int
) -> None:
    rules = Rules(10, 10, clear_on_overflow)
    player = published("bcts").player(rules)
    sequence = [int(piece) for piece in _read(pieces).split()]
    records = _records(trace)
    played = list(islice(play(sequence, player, rules), len(records)))
    assert sum(step.game_over for step in played) == games
    lines = 0
    for step, record in zip(played, records, strict=True):
        lines += step.lines
        placed = [step.piece, step.orientation, step.column + 1]
        became = [lines, step.lines, step.landing_row, len(step.rows), step.game_over]
        assert [*placed, *became] == [int(field) for field in record[1:9]], record
        assert step.rows == _rows(record[9]), record
        features = feature_values(step, player.names)
        assert features == [float(field) for field in record[10:18]], record
        # Weights are rounded to 15 bits here, and not in the trace, in which -1e100 marks the
        # end of a game.
        assert step.game_over or np.dot(features, player.weights) == pytest.approx(
            float(record[18]), rel=1e-4
        ), record


@pytest.mark.parametrize("engine", ["cpu", pytest.param("portable", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("trace", "pieces", "clear_on_overflow", "games"), TRACES)
def test_the_engine_in_cpp_makes_the_decisions_of_the_trace(
    engine: str, trace: str, pieces: str, clear_on_overflow: bool, games: int
) -> None:
    records, features = _records(trace), every_feature(10)
    over = torch.tensor([int(record[8]) for record in records])
    stacks = [_rows(record[9]) for record in records]
    after = torch.tensor(
        [
            [sum((row >> c & 1) << y for y, row in enumerate(each)) for c in range(10)]
            for each in stacks
        ]
    )
    after[over == 1] = 0
    boards = torch.cat([torch.zeros_like(after[:1]), after[:-1]])
    bcts = dict(zip(feature_names("bcts"), published("bcts").weights, strict=True))
    weights = torch.tensor([[bcts.get(name, 0.0) for name in feature_names(features)]])
    falls = [int(record[1]) for record in records]
    columns, cleared, ended = decide(
        engine, weights, Rules(10, 10, clear_on_overflow), boards, falls, features
    )
    assert torch.equal(columns[0].long(), after)
    assert cleared[0].tolist() == [int(record[5]) for record in records]
    assert torch.equal(ended[0], over)


def test_every_placement_and_all_ten_features() -> None:
    compared = overflowed = 0
    rules = Rules()
    rows: tuple[int, ...] = ()
    for record in _records("features.txt"):
        if record[0] == "B":
            rules, rows = Rules(int(record[2]), int(record[3])), _rows(record[4])
            continue
        shape, column = PIECES[int(record[1])][int(record[2])], int(record[3]) - 1
        row = landing_row(column_heights(rows, rules.width), shape, column)
        after = place(rows, shape, column, row, rules)
        ours = [
            after.lines,
            after.landing_row,
            after.piece_cells_removed,
            len(after.rows),
            after.game_over,
        ]
        assert ours == [int(field) for field in record[4:9]], record
        assert after.rows == _rows(record[9]), record
        assert feature_values(after, ALL_TEN) == [float(field) for field in record[10:20]], (
            record
        )
        compared += 1
        overflowed += after.game_over
    assert (compared, overflowed) == (2800, 287)


def test_every_orientation_is_that_of_the_simulator() -> None:
    def drawing(rows: tuple[int, ...], width: int) -> str:
        return "/".join("".join(".X"[row >> x & 1] for x in range(width)) for row in rows)

    expected = [tuple(record) for record in _records("pieces_table.txt")]
    numbers = [(s.piece, s.orientation, s.width, s.height) for shapes in PIECES for s in shapes]
    drawings = [drawing(shape.rows, shape.width) for shapes in PIECES for shape in shapes]
    assert [
        (*map(str, each), drawn) for each, drawn in zip(numbers, drawings, strict=True)
    ] == expected
