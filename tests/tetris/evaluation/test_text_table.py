"""Tables as text."""

from __future__ import annotations

from typing import Any

from tetris import Rules, Score, published
from tetris.evaluation.estimates import Estimate
from tetris.evaluation.scores import Measurement, Trial
from tetris.evaluation.text_table import score_table, table

MINE = Trial("mine", published("dt20"), Rules(), "cpu", 1)


def measurement(score: Score) -> dict[str, Any]:
    return Measurement(MINE, score, 2.0).to_dict()


def test_a_table_is_aligned() -> None:
    assert table(["name", "n"], [["a", "1,000"], ["longer", "2"]]).splitlines() == [
        "name        n",
        "------  -----",
        "a       1,000",
        "longer      2",
    ]


def test_a_score_stands_with_interval_counts_and_speed() -> None:
    title, _, _, row = score_table([measurement(Score(100_000, 10, 260_000))]).splitlines()
    assert title == "board 10x20, published rule, pieces uniform (seed 1), engine cpu"
    assert " ".join(row.split()) == "mine dt 10,000 5,438 - 20,850 10 games 260,000 130,000/s"


def test_a_lower_bound_is_shown_where_no_game_has_ended() -> None:
    row = score_table([measurement(Score(100_000, 0, 260_000))]).splitlines()[-1]
    assert row.split()[2:8] == ["-", ">", "33,380", "0", "games", "260,000"]


def test_an_estimate_beyond_what_is_resolved_is_marked() -> None:
    rates = (1e-25,) * 16
    found = Estimate(MINE, 64, rates, 39_000_000, 2.5)
    assert not found.resolved
    *_, row, note = score_table([found.to_dict()]).splitlines()
    assert " 16 estimates " in row
    assert note == "mine: beyond what the weights of streams resolve; the estimate is biased"
