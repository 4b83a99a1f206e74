"""scripts/measure/heights.py: it is what rollouts give, estimates beside it; its block of a page."""

from __future__ import annotations

import argparse
from functools import partial
from types import SimpleNamespace

import pytest
from measure import heights
from pages import limits_blocks

from tetris import Rules, published
from tetris.evaluation import DEFAULT_SEED
from tetris.evaluation.estimates import ESTIMATES, estimate
from tetris.evaluation.scores import Limit, measure


def test_it_is_what_rollouts_give_and_estimates_lie_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = (({"10x4": 6400}, ("dt20", "best"), 1), ({"10x4": 640}, ("dt20",), 2))
    monkeypatch.setattr(heights, "_PLANS", plans)
    monkeypatch.setattr(heights, "ESTIMATED", ("10x4",))
    monkeypatch.setattr(heights, "BATCHES", 1)
    monkeypatch.setattr(heights, "estimate", partial(estimate, streams=8))
    figures, data, _ = heights.measure(argparse.Namespace(boards=["10x4"]), "cpu")
    for name, known, score in zip(("dt20", "best", "dt20"), (1, 1, 2), data["measurements"], strict=True):
        decisions = 6400 if known == 1 else 640
        limit = Limit(decisions=decisions)
        played, _ = measure(published(name), Rules(10, 4), limit, DEFAULT_SEED, "cpu", pieces_known=known)
        assert (score["lines"], score["games"]) == (played.lines, played.games)
        assert figures[f"heights.10x4.{name}.known{known}"] == score["lines_per_game"]
    for name, estimated in zip(("dt20", "best"), data["estimates"], strict=True):
        assert (estimated["controller"], estimated["estimates"]) == (name, ESTIMATES)
        assert figures[f"heights.10x4.{name}.known1.estimated"] == estimated["lines_per_game"]


def test_every_height_up_to_20_is_measured() -> None:
    assert {int(board[3:]) for board in heights.BOARDS if board[:3] == "10x"} == set(range(4, 21))


def test_the_page_shows_estimates_in_italics_below_what_most_games_give(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = {"controller": "dt20", "board": "10x5", "pieces": "uniform", "ci95": [1900.0, 2100.0]}
    played = [{**one, "lines_per_game": lines, "games": games} for lines, games in ((2000, 90), (1950, 9))]
    others = [{**played[0], **other} for other in ({"pieces": "bag"}, {"board": "5x5"})]
    estimates = [{**one, "lines_per_game": 2050.0}]
    files = [
        SimpleNamespace(name="m/heights", data={"measurements": played, "estimates": estimates}),
        SimpleNamespace(name="m/record_score", data={"score": [{**played[0], "controller": "learned"}]}),
        SimpleNamespace(name="m/other_rules", data={"measurements": others}),
    ]
    monkeypatch.setattr(limits_blocks, "_of_heights", lambda: files)
    ahead = {"controller": "best.ahead", "lines_per_game": 7e9, "ci95": [1e9, None], "games": 1}
    looked = SimpleNamespace(name="m/lookahead", data={"measurements": [ahead]})
    monkeypatch.setattr(limits_blocks, "load_all", lambda name: [looked])
    monkeypatch.setattr(limits_blocks, "table_block", lambda header, rows, *results: rows)
    row, highest = limits_blocks.heights()
    assert highest == ["20", "-", "-", "-", "> 1,000 M", "-", "-"]
    assert row[0] == "5"
    assert row[1:] == ["2,000 (1,900-2,100)<br>*2,050 (1,900-2,100)*", "2,000 (1,900-2,100)", *"----"]
