"""The C++ engine against what the reference simulator, MDPTetris, did."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from engine_games import decide, every_feature

from tetris.game.feature_sets import feature_names
from tetris.game.rules import Rules
from tetris.play.controller import published

FEATURES = every_feature(10)


@pytest.mark.parametrize("engine", ["cpu", "portable"])
@pytest.mark.parametrize(
    ("trace", "clear_on_overflow"),
    [
        ("trace_10x10.txt", False),
        ("trace_10x10_gameover_overflow0.txt", False),
        ("trace_10x10_gameover_overflow1.txt", True),
    ],
)
def test_bcts_plays_the_reference_trace(
    golden: Path, engine: str, trace: str, clear_on_overflow: bool
) -> None:
    lines = (golden / trace).read_text().splitlines()
    records = [line.split() for line in lines if not line.startswith("#")]
    rows = [[] if record[9] == "-" else [int(row) for row in record[9].split(",")] for record in records]
    over = torch.tensor([int(record[8]) for record in records])
    after = torch.tensor(
        [[sum((row >> c & 1) << y for y, row in enumerate(each)) for c in range(10)] for each in rows]
    )
    after[over == 1] = 0
    boards = torch.cat([torch.zeros_like(after[:1]), after[:-1]])
    bcts = dict(zip(feature_names("bcts"), published("bcts").weights, strict=True))
    weights = torch.tensor([[bcts.get(name, 0.0) for name in feature_names(FEATURES)]])
    pieces = [int(record[1]) for record in records]
    columns, cleared, games = decide(
        engine, weights, Rules(10, 10, clear_on_overflow), boards, pieces, FEATURES
    )
    assert torch.equal(columns[0].long(), after)
    assert cleared[0].tolist() == [int(record[5]) for record in records]
    assert torch.equal(games[0], over)
