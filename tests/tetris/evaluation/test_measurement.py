"""Measuring controllers: limits, streams, the table of measurement."""

from __future__ import annotations

import math

import pytest
import torch

from tetris import Policy, Rollout, Rules, Score, Streams, published, rollout
from tetris.evaluation import measurement
from tetris.evaluation.measurement import (
    FEW_STREAMS,
    GPU_STREAMS,
    MOST_STREAMS,
    STREAMS,
    Limit,
    Trial,
    measure,
    streams_for,
)
from tetris.play.splitting import BURN_IN
from tetris.record.score import dispersion

DT20 = published("dt20")
DEVICES = ("python", "cpu", "cuda")


@pytest.mark.parametrize(
    ("limit", "streams"),
    [
        (Limit(decisions=1), [1] * 3),
        (Limit(decisions=32_480), [10] * 3),
        (Limit(decisions=1 << 26), [4096] * 3),
        (Limit(decisions=1 << 40), [MOST_STREAMS] * 3),
        (Limit(games=5), [5] * 3),
        (Limit(games=512), [STREAMS] * 3),
        (Limit(games=8000), [1000] * 3),
        (Limit(games=1 << 30), [MOST_STREAMS] * 3),
        (Limit(seconds=1.0), [FEW_STREAMS, STREAMS, GPU_STREAMS]),
    ],
)
def test_streams_grow_with_the_limit_and_by_the_clock_a_gpu_is_filled(
    limit: Limit, streams: list[int]
) -> None:
    assert [streams_for(limit, device) for device in DEVICES] == streams


def test_a_limit_is_reached_when_it_is_equalled() -> None:
    score = Score(10, 4, 100)
    for name, value in (("games", 4), ("decisions", 100), ("seconds", 9)):
        assert Limit(**{name: value}).reached(score, 9.0)
        assert not Limit(**{name: value + 1}).reached(score, 9.0)


@pytest.mark.parametrize(("games", "repeats"), [(130, 16), (20_000, 1)])
def test_games_of_similar_length_have_the_score_of_complete_games(
    games: int, repeats: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With the pieces S and Z the games of dt20 differ little in length: their variance is a
    # fifth of that of exponential games. They are shorter than the burn-in, so there is none.
    # Five standard errors have an error probability of 6e-7.
    monkeypatch.setattr(measurement, "BURN_IN", 0)
    rules = Rules.of(10, 20, "published", "SZ")
    count = 10_000
    complete = Rollout(DT20.policy(), Streams(rules, count, 0, games=1), "cpu")
    while int(complete.stream_games.sum()) < count:
        complete.advance(500)
    lines = complete.stream_lines.double()
    scores = [
        measure(Trial("dt20", DT20, rules, "cpu", seed), Limit(games=games)).score
        for seed in range(1, 1 + repeats)
    ]
    low, high = scores[0].ci95
    error = math.hypot(
        float(lines.std()) / math.sqrt(count), (high - low) / 3.92 / math.sqrt(repeats)
    )
    mean = sum(score.lines_per_game for score in scores) / repeats
    assert mean == pytest.approx(float(lines.mean()), abs=5 * error)


def test_time_runs_anew_when_the_streams_have_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    # Within 1,000 decisions a stream ends more than four games of dt20 with the pieces S and Z.
    monkeypatch.setattr(measurement, "_next_chunk", lambda *_: 1000)
    monkeypatch.setattr(measurement, "_agree_on_seconds", lambda _: 1.0)
    trial = Trial("dt20", DT20, Rules.of(10, 20, "published", "SZ"), "cpu", 2)
    assert measure(trial, Limit(seconds=1.0)).score.games > 4 * STREAMS


@pytest.fixture
def chunks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The decisions of each call of an engine that makes two billion a second and ends a game
    in 10,000."""
    made: list[int] = []
    clock = [0.0]

    class Engine:
        def __init__(self, policy: Policy, streams: Streams, device: str) -> None:
            self.streams = streams.count

        def play_on(self, decisions: int, check: object) -> None:
            made.append(decisions)
            clock[0] += decisions * self.streams / 2e9

        @property
        def stream_lines(self) -> torch.Tensor:
            return torch.full((1, self.streams), sum(made) // 3)

        @property
        def stream_games(self) -> torch.Tensor:
            games = torch.zeros(1, self.streams, dtype=torch.int64)
            games[0, 0] = sum(made) * self.streams // 10_000
            return games

    monkeypatch.setattr(measurement, "Rollout", Engine)
    monkeypatch.setattr(measurement.time, "perf_counter", lambda: clock[0])
    return made


@pytest.mark.parametrize(
    "limit",
    [Limit(decisions=10**10), Limit(games=10**5), Limit(seconds=2.0)],
    ids=lambda limit: str(limit),
)
def test_a_gpu_is_looked_at_seldom_but_a_few_times_a_second(
    chunks: list[int], limit: Limit
) -> None:
    found = measure(Trial("dt20", DT20, Rules(), "cuda"), limit)
    assert limit.reached(found.score, found.seconds)
    assert found.score.games < 1.01 * (
        limit.games or math.inf
    )  # the last part is what is missing
    assert chunks[:4] == [BURN_IN, 1, 2, 4]
    longest = max(chunks) * streams_for(limit, "cuda") / 2e9
    assert 0.02 < longest < 0.25
    assert len(chunks) < 20 + found.seconds / 0.02


def test_decisions_and_games_are_counted_without_the_clock(
    chunks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in (Limit(decisions=10**9), Limit(games=3000)):
        first = measure(Trial("dt20", DT20, Rules(), "cuda"), limit).score, list(chunks)
        chunks.clear()
        with monkeypatch.context() as slow:
            slow.setattr(measurement.time, "perf_counter", iter(range(10**6)).__next__)
            assert (measure(Trial("dt20", DT20, Rules(), "cpu"), limit).score, chunks) == first
        chunks.clear()


@pytest.mark.parametrize("device", ["python", "cpu"])
def test_measure_counts_what_the_rollout_counts_after_the_burn_in(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurement, "LEAST_DECISIONS", 100)  # On each of eight streams.
    score = measure(Trial("dt20", DT20, Rules(6, 6), device, 3), Limit(decisions=800)).score
    games = Rollout(DT20.policy(), Streams(Rules(6, 6), FEW_STREAMS, 3))
    games.play_on(BURN_IN)
    counts = -torch.stack([games.stream_lines[0], games.stream_games[0]], dim=1)
    games.play_on(100)
    counts += torch.stack([games.stream_lines[0], games.stream_games[0]], dim=1)
    assert score == Score(*counts.sum(0).tolist(), 800, dispersion(counts))


@pytest.mark.parametrize("limit", [Limit(decisions=16_000), Limit(games=5)])
def test_the_interval_covers_long_play_when_a_game_takes_a_thousand_decisions(
    limit: Limit,
) -> None:
    # Long play has 392 lines a game. The seed is fixed; 20 of 20 intervals cover it.
    trial = Trial("sz", published("sz"), Rules.of(10, 20, "published", "SZ"), "cpu", 1)
    low, high = measure(trial, limit).score.ci95
    assert low < 392 < (high or 0)


def test_the_interval_covers_the_mean_of_whole_games_on_a_small_board() -> None:
    # 6 intervals of 95 % miss the mean more than twice with a probability of 0.2 %; without the
    # burn-in most of them do.
    who, rules = published("bcts"), Rules(6, 6)
    whole = rollout(who.policy(), Streams(rules, 2000, first=1 << 32, games=100), 1 << 20)
    truth = int(whole.lines) / int(whole.games)
    trials = [Trial("bcts", who, rules, "cpu", seed) for seed in range(6)]
    ends = [measure(trial, Limit(games=20_000)).score.ci95 for trial in trials]
    assert sum(not low <= truth <= (high or math.inf) for low, high in ends) <= 2
