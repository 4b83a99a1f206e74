"""Measuring controllers: limits, streams, the table of scores."""

from __future__ import annotations

import pytest
import torch

from tetris import RolloutResult, Rules, Score, published
from tetris.evaluation import scores
from tetris.evaluation.scores import (
    GPU_STREAMS,
    MOST_STREAMS,
    STREAMS,
    Limit,
    measure,
    streams_for,
)
from tetris.rollouts import Rollout

DEVICES = ("python", "cpu", "cuda")


@pytest.mark.parametrize(
    ("decisions", "streams"),
    [
        *((64, 64), (1_000_000, 64), (100, 50), (7, 7), (1009, 64), (60 * 1009, 60)),
        *((12_000_000, 160), (1 << 26, 1024), (10**9, 12_800), (5 * 10**9, 64_000), (6 * 10**10, 128_000)),
        *((1 << 40, MOST_STREAMS), (10**9 + 7, 15_258)),
    ],
)
def test_the_more_decisions_the_more_streams_and_they_are_split_evenly_where_they_can_be(
    decisions: int, streams: int
) -> None:
    assert {streams_for(Limit(decisions=decisions), device) for device in DEVICES} == {streams}


@pytest.mark.parametrize(
    ("games", "streams"),
    [(1, STREAMS), (512, 64), (8000, 1000), (1 << 20, MOST_STREAMS), (1 << 30, MOST_STREAMS)],
)
def test_the_more_games_the_more_streams(games: int, streams: int) -> None:
    assert {streams_for(Limit(games=games), device) for device in DEVICES} == {streams}


def test_by_the_clock_a_gpu_is_filled() -> None:
    streams = [streams_for(Limit(seconds=1.0), device) for device in DEVICES]
    assert streams == [STREAMS, STREAMS, GPU_STREAMS]


@pytest.fixture
def chunks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The decisions of each call of an engine that makes two billion a second and ends a game in 10,000."""
    made: list[int] = []
    clock = [0.0]

    class Engine:
        def __init__(self, weights: torch.Tensor, rules: Rules, streams: int, *rest: object, **named: object):
            self.streams = streams

        def advance(self, decisions: int, check: object) -> RolloutResult:
            made.append(decisions)
            clock[0] += decisions * self.streams / 2e9
            total = sum(made) * self.streams
            return RolloutResult(*(torch.tensor([count]) for count in (total // 3, total // 10_000, total)))

    monkeypatch.setattr(scores, "Rollout", Engine)
    monkeypatch.setattr(scores.time, "perf_counter", lambda: clock[0])
    return made


@pytest.mark.parametrize(
    "limit",
    [Limit(decisions=6 * 10**10), Limit(games=10**6), Limit(seconds=20.0)],
    ids=lambda limit: str(limit),
)
def test_a_gpu_is_looked_at_seldom_but_a_few_times_a_second(chunks: list[int], limit: Limit) -> None:
    score, seconds = measure(published("dt20"), Rules(), limit, 1, "cuda")
    assert limit.reached(score, seconds)
    assert chunks[:4] == [1, 2, 4, 8]
    longest = max(chunks) * streams_for(limit, "cuda") / 2e9
    assert 0.02 < longest < 0.25
    assert len(chunks) < 20 + seconds / 0.02


def test_decisions_and_games_are_counted_without_the_clock(
    chunks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in (Limit(decisions=10**9), Limit(games=3000)):
        first = measure(published("dt20"), Rules(), limit, 1, "cuda")[0], list(chunks)
        chunks.clear()
        with monkeypatch.context() as slow:
            slow.setattr(scores.time, "perf_counter", iter(range(10**6)).__next__)
            assert (measure(published("dt20"), Rules(), limit, 1, "cpu")[0], chunks) == first
        chunks.clear()


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
