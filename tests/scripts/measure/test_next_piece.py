"""scripts/measure/next_piece.py: the same streams with one piece known and with two; its block of a page."""

from __future__ import annotations

import argparse
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from measure import next_piece
from pages import limits_blocks

from tetris import Rules, published, rollout
from tetris.evaluation import DEFAULT_SEED
from tetris.evaluation.estimates import estimate
from tetris.evaluation.scores import STREAMS


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, float], dict[str, Any]]:
    monkeypatch.setattr(next_piece, "DECISIONS", {"10x5": {"dt20": 640}})
    monkeypatch.setattr(next_piece, "ONE_KNOWN", 6400)
    monkeypatch.setattr(next_piece, "ESTIMATED", {"10x5": 2})
    monkeypatch.setattr(next_piece, "estimate", partial(estimate, streams=8))
    figures, data, _ = next_piece.measure(argparse.Namespace(boards=["10x5"]), "cpu")
    return dict(figures), data


def test_it_is_what_rollouts_give(measured: tuple[dict[str, float], dict[str, Any]]) -> None:
    figures, data = measured
    for known, decisions, score in zip((1, 2), (6400, 640), data["measurements"], strict=True):
        weights = [published("dt20").weights]
        played = rollout(
            *(weights, Rules(10, 5), STREAMS, decisions // STREAMS, DEFAULT_SEED), pieces_known=known
        )
        assert (score["lines"], score["games"]) == (int(played.lines), int(played.games))
        assert (score["pieces_known"], score["decisions"]) == (known, decisions)
        key = f"next_piece.10x5.dt20.known{known}.lines_per_game"
        assert figures[key] == score["lines_per_game"]
    (estimated,) = data["estimates"]
    assert (estimated["board"], estimated["pieces_known"], estimated["estimates"]) == ("10x5", 2, 32)
    assert figures["next_piece.10x5.dt20.known2.estimated"] == estimated["lines_per_game"]


def test_the_page_shows_how_many_times_as_many_lines_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = [
        {"board": "10x5", "controller": "dt20", "lines_per_game": lines, "ci95": [low, high], "games": games}
        for lines, low, high, games in [(26.4, 26.0, 27.0, 3000), (205.9, 199.0, 213.2, 4000)]
    ]
    result = SimpleNamespace(data={"measurements": scores})
    monkeypatch.setattr(limits_blocks, "load_all", lambda name: [result])
    monkeypatch.setattr(limits_blocks, "table_block", lambda header, rows, *results: rows)
    assert limits_blocks.next_piece() == [
        ["10x5", "dt20", "26.4 (26 - 27), 3,000 games", "205.9 (199 - 213.2), 4,000 games", "7.8"]
    ]


def test_the_page_shows_what_is_estimated_beside_what_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    played = {"board": "10x5", "controller": "dt20", "pieces_known": 2, "lines_per_game": 200.0}
    played |= {"ci95": [190.0, 210.0], "lines": 2000, "decisions": 5100}
    found = {"lines_per_game": 204.0, "ci95": [200.0, None], "estimates": 16}
    estimates = [{"board": board, **found} for board in ("10x5", "10x10")]
    result = SimpleNamespace(data={"measurements": [played], "estimates": estimates})
    monkeypatch.setattr(limits_blocks, "load_all", lambda name: [result])
    monkeypatch.setattr(limits_blocks, "table_block", lambda header, rows, *results: rows)
    assert limits_blocks.next_piece_estimated() == [
        ["10x5", "510 (484.5 - 535.5)", "510 (500 - ?)", "204 (200 - ?)", "16"],
        ["10x10", "-", "510 (500 - ?)", "204 (200 - ?)", "16"],
    ]
