"""Measuring controllers: limits, streams, the table of scores."""

from __future__ import annotations

import pytest
import torch
from _scoring import STREAMS, Limit, Measurement, measure, score_table, streams_for

from tetris import Rules, Score, published
from tetris.rollout import Rollout


@pytest.mark.parametrize(
    ("decisions", "streams"), [(64, 64), (1_000_000, 64), (100, 50), (7, 7), (1009, 64), (60 * 1009, 60)]
)
def test_decisions_are_split_evenly_where_they_can_be(decisions: int, streams: int) -> None:
    assert streams_for(Limit(decisions=decisions)) == streams


@pytest.mark.parametrize("limit", [Limit(games=5), Limit(seconds=1.0)])
def test_other_limits_play_all_streams(limit: Limit) -> None:
    assert streams_for(limit) == STREAMS


@pytest.mark.parametrize(
    ("limit", "score", "seconds", "reached"),
    [
        (Limit(games=5), Score(10, 4, 100), 9.0, False),
        (Limit(games=5), Score(10, 5, 100), 9.0, True),
        (Limit(decisions=101), Score(10, 4, 100), 9.0, False),
        (Limit(decisions=100), Score(10, 4, 100), 9.0, True),
        (Limit(seconds=10.0), Score(10, 4, 100), 9.0, False),
        (Limit(seconds=9.0), Score(10, 4, 100), 9.0, True),
    ],
)
def test_limit(limit: Limit, score: Score, seconds: float, reached: bool) -> None:
    assert limit.reached(score, seconds) is reached


def test_measure_counts_what_the_rollout_counts() -> None:
    controller, rules = published("dt20"), Rules(6, 6)
    score, _ = measure(controller, rules, Limit(decisions=1920), 3, "python")
    weights = torch.tensor([controller.weights], dtype=torch.float32)
    totals = Rollout(weights, rules, 64, 3, "python", features="dt").advance(30)
    assert score == Score(int(totals.lines[0]), int(totals.games[0]), 1920)


def test_progress_is_told_rising_scores() -> None:
    told: list[Score] = []
    score, _ = measure(published("dt20"), Rules(6, 6), Limit(games=8), 3, "python", told.append)
    decisions = [each.decisions for each in told]
    assert decisions == sorted(set(decisions))
    assert told[-1] == score


def _measurement(score: Score) -> Measurement:
    return Measurement("mine", published("dt20"), Rules(), "uniform", 1, "cpu", score, 2.0)


def test_table_states_what_belongs_beside_a_score() -> None:
    title, _, _, row = score_table([_measurement(Score(100_000, 10, 260_000))]).splitlines()
    assert title == "board 10x20, published rule, pieces uniform (seed 1), engine cpu"
    assert row.split() == [
        "mine",
        "dt",
        "10,000",
        "5,853",
        "-",
        "20,853",
        "10",
        "100,000",
        "260,000",
        "130,000",
    ]


def test_table_shows_a_lower_bound_where_no_game_has_ended() -> None:
    row = score_table([_measurement(Score(100_000, 0, 260_000))]).splitlines()[-1]
    assert row.split() == ["mine", "dt", "-", ">", "33,381", "0", "100,000", "260,000", "130,000"]
