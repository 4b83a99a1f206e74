"""scripts/measure/next_piece.py: the same streams with one piece known and with two; its block of a page."""

from __future__ import annotations

import argparse
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from measure import next_piece
from pages import limits_blocks

from tetris import Rules, published
from tetris.evaluation import DEFAULT_SEED
from tetris.evaluation.estimates import estimate
from tetris.evaluation.scores import Limit, measure


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, float], dict[str, Any]]:
    monkeypatch.setattr(next_piece, "DECISIONS", {"10x5": {"dt20": 640}})
    monkeypatch.setattr(next_piece, "FIRST", 6400)
    monkeypatch.setattr(next_piece, "ESTIMATED", ("10x5",))
    monkeypatch.setattr(next_piece, "ESTIMATES_OF", (("dt20", "ahead"), ("dt20", "known2")))
    monkeypatch.setattr(next_piece, "estimate", partial(estimate, streams=8))
    figures, data, _ = next_piece.measure(argparse.Namespace(boards=["10x5"]), "cpu")
    return dict(figures), data


def test_it_is_what_rollouts_give(measured: tuple[dict[str, float], dict[str, Any]]) -> None:
    figures, data = measured
    ways: dict[str, tuple[int, dict[str, Any]]] = {
        "known1": (6400, {}),
        "ahead": (640, {"lookahead": True}),
        "known2": (640, {"pieces_known": 2}),
    }
    for (way, (decisions, how)), score in zip(ways.items(), data["measurements"], strict=True):
        limit = Limit(decisions=decisions)
        played, _ = measure(published("dt20"), Rules(10, 5), limit, DEFAULT_SEED, "cpu", **how)
        assert (score["lines"], score["games"]) == (played.lines, played.games)
        assert (score["pieces_known"], score["lookahead"]) == (how.get("pieces_known", 1), way == "ahead")
        assert score["decisions"] == played.decisions
        assert figures[f"next_piece.10x5.dt20.{way}.lines_per_game"] == score["lines_per_game"]
    for estimated, way in zip(data["estimates"], ("ahead", "known2"), strict=True):
        assert (estimated["board"], estimated["lookahead"], estimated["estimates"]) == (
            *("10x5", way == "ahead", 32),
        )
        assert figures[f"next_piece.10x5.dt20.{way}.estimated"] == estimated["lines_per_game"]


def test_the_page_shows_how_many_times_as_many_lines_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = [(1, False, 26.4, 26.0, 27.0), (1, True, 50.0, 49.5, 50.5), (2, False, 305.9, 299.0, 313.2)]
    scores = [
        {
            **{"board": "10x5", "controller": "dt20", "pieces_known": known, "lookahead": ahead},
            **{"lines_per_game": lines, "ci95": [low, high], "games": 3000},
        }
        for known, ahead, lines, low, high in ways
    ]
    result = SimpleNamespace(data={"measurements": scores})
    monkeypatch.setattr(limits_blocks, "load", lambda name: result)
    monkeypatch.setattr(limits_blocks, "table_block", lambda header, rows, *results: rows)
    assert limits_blocks.next_piece() == [
        ["10x5", "dt20", "unknown", "26.4 (26 - 27), 3,000 games", "1.0"],
        ["10x5", "dt20", "looks ahead", "50 (49.5 - 50.5), 3,000 games", "1.9"],
        ["10x5", "dt20", "known", "305.9 (299 - 313.2), 3,000 games", "12"],
    ]


def test_the_page_shows_what_is_estimated_beside_what_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    who = {"board": "10x5", "controller": "dt20", "pieces_known": 2}
    played = {**who, "lines_per_game": 200.0, "ci95": [190.0, 210.0], "lines": 2000, "decisions": 5100}
    found = {**who, "lines_per_game": 204.0, "ci95": [200.0, None], "estimates": 16}
    estimates = [found, {**found, "pieces_known": 1, "lookahead": True}]
    result = SimpleNamespace(data={"measurements": [played], "estimates": estimates})
    monkeypatch.setattr(limits_blocks, "load", lambda name: result)
    monkeypatch.setattr(limits_blocks, "table_block", lambda header, rows, *results: rows)
    assert limits_blocks.next_piece_estimated() == [
        ["10x5", "dt20", "known", "510 (484.5 - 535.5)", "510 (500 - ?)", "204 (200 - ?)", "16"],
        ["10x5", "dt20", "looks ahead", "-", "510 (500 - ?)", "204 (200 - ?)", "16"],
    ]
