"""scripts/measure/lookahead.py: rounds on pieces of their own, added up; it goes on where it stopped."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from measure import lookahead

from tetris import Rules, Score, published
from tetris.evaluation.scores import STREAMS, Limit, measure

DECISIONS = {"dt20.ahead": 2560, "dt20.known1": 6400}


def test_rounds_add_up_and_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(lookahead, "DECISIONS", DECISIONS)
    monkeypatch.setattr(lookahead, "STREAMS", STREAMS)
    monkeypatch.setattr(lookahead, "BOARD", "10x5")
    monkeypatch.setattr(lookahead, "RECORD", "dt20")
    asked = argparse.Namespace(keep=tmp_path / "kept", stop_after=1e-9)
    monkeypatch.setattr(lookahead, "ROUNDS", 2)
    figures, _, _ = lookahead.measure(asked, "cpu")
    assert figures["lookahead.rounds"] == 1  # at least one, whatever the time
    asked.stop_after = None
    figures, data, _ = lookahead.measure(asked, "cpu")
    assert figures["lookahead.rounds"] == 2
    for (of, decisions), found in zip(DECISIONS.items(), data["measurements"], strict=True):
        played = [
            measure(
                *(published("dt20"), Rules(10, 5), Limit(decisions=decisions)),
                *(lookahead.SCORE_SEED + number, "cpu"),
                lookahead=of.endswith("ahead"),
                streams=STREAMS,
            )[0]
            for number in range(2)
        ]
        score = sum(played, Score(0, 0, 0))
        assert {name: found[name] for name in vars(score)} == vars(score)
        assert figures[f"lookahead.{of}.10x5.lines_per_game"] == score.lines_per_game
