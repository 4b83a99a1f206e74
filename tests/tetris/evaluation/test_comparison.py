"""Comparison of a learned controller with published ones: played, estimated and shipped scores;
tables."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from sample_runs import estimating

from tetris import LinearController, Lookahead, Policy, Rules, Score, Streams, published
from tetris.evaluation import comparison
from tetris.evaluation.comparison import (
    boards,
    compare,
    published_score,
    score_table,
    table,
    verdict,
)
from tetris.evaluation.estimates import PLAYED, Estimate, games_ended
from tetris.evaluation.measurement import Measurement, Trial

ROOT = Path(__file__).parents[3]
LOW, HIGH = Rules(10, 10), Rules(10, 20)
LEARNED = LinearController(published("dt10").features, published("dt10").weights, HIGH, "mine")
MINE = Trial("mine", published("dt20"), Rules(), "cpu", 1)


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many games end in the look before an estimate; estimates come ten million decisions
    at a time."""
    games = {"count": 0}
    monkeypatch.setattr(comparison, "estimate", estimating([1e-8] * 16, 10_000_000))
    monkeypatch.setattr(comparison, "games_ended", lambda *arguments: games["count"])
    return games


def trial(rules: Rules, device: str = "cpu", lookahead: Lookahead = Lookahead.NONE) -> Trial:
    return Trial("learned", LEARNED, rules, device, lookahead=lookahead)


def test_a_controller_that_rarely_loses_is_estimated_and_not_played(
    ended: dict[str, int],
) -> None:
    for decisions, estimates, streams in ((4_000_000, 16, 512), (12_000_000, 32, 1024)):
        found = next(compare(trial(HIGH), decisions))
        assert (found["estimates"], found["streams"]) == (estimates, streams)


def test_what_loses_is_played(ended: dict[str, int]) -> None:
    ended["count"] = 1000
    found = next(compare(trial(LOW), PLAYED))
    assert found["decisions"] == pytest.approx(PLAYED, rel=1e-4)  # as many on each stream
    assert "estimates" not in found


def test_the_decisions_that_look_for_ends_are_those_of_the_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def play(policy: Policy, streams: Streams, decisions: int, device: str) -> SimpleNamespace:
        return SimpleNamespace(games=torch.tensor([streams.count * decisions]))

    monkeypatch.setattr("tetris.evaluation.estimates.rollout", play)
    assert games_ended(MINE) == PLAYED


def test_with_the_next_piece_known_nothing_is_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tetris.evaluation.measurement.BURN_IN", 1)
    scores = list(compare(trial(LOW, "python", Lookahead.PREVIEW), 64))
    assert [
        (each["controller"], each["pieces_known"], each["decisions"]) for each in scores
    ] == [
        *(("learned", 2, 64), ("bcts", 2, 64), ("dt20", 2, 64)),
    ]


def test_published_scores_come_with_the_package_for_the_boards_of_the_literature() -> None:
    for rules in (
        Rules(10, 12),
        Rules(10, 10, clear_on_overflow=True),
        Rules(10, 10, pieces="bag"),
    ):
        assert published_score("dt20", rules, Lookahead.NONE) is None


def test_published_scores_are_those_of_the_result_file() -> None:
    result = json.loads(
        (ROOT / "benchmarks/results/h200/published.json").read_text(encoding="utf-8")
    )
    for measured in result["data"]["measurements"]:
        rules = Rules(*Rules.parse_board(measured["board"]))
        found = published_score(measured["controller"], rules, Lookahead.NONE)
        assert found is not None
        assert found["measured"]["commit"] == result["commit"]
        names = ("lines_per_game", "ci95", "games", "lines", "decisions", "seed")
        assert [found[name] for name in names] == [measured[name] for name in names]


def test_a_controller_is_measured_where_it_can_play() -> None:
    own = Rules(5, 6)
    assert boards(LEARNED, own) == [LOW, HIGH, own]
    assert boards(LEARNED, HIGH) == [LOW, HIGH]
    narrow = LinearController("bertsekas", (1.0,) * 11, own)
    assert boards(narrow, own) == [own]


def test_table_and_verdict_say_how_good_it_is_and_from_what(ended: dict[str, int]) -> None:
    scores = list(compare(trial(HIGH), 12_000_000))
    table = score_table(scores).splitlines()
    assert table[0] == "board 10x20, published rule, pieces uniform (seed 12345), engine cpu"
    assert table[3].split()[:2] == ["learned", "dt"]
    assert "32 estimates" in table[3]
    assert "2,103 games" in table[5]
    assert table[5].endswith("NVIDIA H200, 2026-11-22")
    assert verdict(scores) == (
        "40 M lines per game on 10x20 (estimated, 95 % interval 40 M - 40 M): "
        "0.78 times dt20, the best published linear one"
    )


def test_verdict_without_an_end_of_a_game_is_a_bound() -> None:
    score = {
        "controller": "learned",
        "board": "10x20",
        "lines_per_game": None,
        "ci95": [1.6e6, None],
    }
    assert verdict([score]) == "> 1.6 M lines per game on 10x20: no game ended"


def test_a_table_is_aligned() -> None:
    assert table(["name", "n"], [["a", "1,000"], ["longer", "2"]]).splitlines() == [
        "name        n",
        "------  -----",
        "a       1,000",
        "longer      2",
    ]


def test_a_score_stands_with_interval_counts_and_speed() -> None:
    measured = Measurement(MINE, Score(100_000, 10, 260_000), 2.0).to_dict()
    title, _, _, row = score_table([measured]).splitlines()
    assert title == "board 10x20, published rule, pieces uniform (seed 1), engine cpu"
    assert measured["decisions_per_second"] == 130_000
    assert " ".join(row.split()) == "mine dt 10,000 5,438 - 20,850 10 games 260,000 130,000/s"


def test_a_lower_bound_is_shown_where_no_game_has_ended() -> None:
    row = score_table(
        [Measurement(MINE, Score(100_000, 0, 260_000), 2.0).to_dict()]
    ).splitlines()[-1]
    assert row.split()[2:8] == ["-", ">", "33,380", "0", "games", "260,000"]


def test_an_estimate_beyond_what_is_resolved_is_marked() -> None:
    rates = (1e-25,) * 16
    found = Estimate(MINE, 64, rates, 39_000_000, 2.5)
    assert not found.resolved
    *_, row, note = score_table([found.to_dict()]).splitlines()
    assert " 16 estimates " in row
    assert note == (
        "mine: games end too rarely for the precision of the weights; the estimate is biased"
    )


@pytest.mark.parametrize(("times", "text"), [(0.512, "0.51"), (2.0, "2"), (20.3, "20")])
def test_the_best_of_the_literature_is_named_where_a_controller_knows_no_more(
    times: float, text: str
) -> None:
    game = {"board": "10x20", "rule": "published", "pieces": "uniform", "ci95": [1.0, 2.0]}
    scores = [
        {**game, "controller": "learned", "lines_per_game": 1e6 * times},
        {**game, "controller": "dt20", "lines_per_game": 1e6},
    ]
    assert f": {text} times dt20, the best published" in verdict(scores)
    for known in ({"pieces_known": 2}, {"pieces": "bag"}, {"board": "10x10"}):
        assert verdict([{**each, **known} for each in scores]).endswith(f": {text} times dt20")
