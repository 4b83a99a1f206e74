"""How long training takes to reach a score: the search for the moment, the verdicts, and the figures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from measure import time_to_target
from measure.cli import Unfinished
from measure.time_to_target import (
    PLAYED_LINES,
    Goal,
    figures,
    is_clear,
    look,
    measure_seed,
    measure_seeds,
    reached_at,
)
from sample_runs import estimating

from tetris import Score, published

GOOD = list(published("dt20").weights)
BAD = [-weight for weight in GOOD]


def test_a_verdict_takes_no_more_games_than_it_needs() -> None:
    # dt20 plays about 4,300 lines a game: far from both goals.
    far_above, far_below = (
        look(GOOD, "dt", Goal("10x10", 500), "cpu"),
        look(GOOD, "dt", Goal("10x10", 10**6), "cpu"),
    )
    assert far_above.ci95[0] > 500
    assert far_above.games < 400
    assert far_below.ci95[1] is not None
    assert far_below.ci95[1] < 10**6


@pytest.mark.parametrize(
    ("lines", "games", "clear"),
    [
        # A lucky start, beyond 3,900 by the interval of 95 %: [3,905, 18,121].
        (51_000, 7, False),
        (60_000, 3, True),
        (510_000, 70, True),
        (20_000, 0, False),
        (30_000, 0, True),
        (4_000, 7, True),
        (11_000, 7, False),
        (0, 3, True),
    ],
)
def test_a_few_lucky_games_are_no_verdict(lines: int, games: int, clear: bool) -> None:
    assert is_clear(Score(lines, games, 0), 3_900) is clear


def test_the_moment_says_what_was_known_then() -> None:
    moments = [
        {
            "seconds": float(index),
            "generation": 2 * index,
            "decisions": 300 * index,
            "weights": BAD if index < 3 else GOOD,
        }
        for index in range(6)
    ]
    found = reached_at(moments, "dt", Goal("10x10", 500), "cpu")
    assert found is not None
    assert (found["seconds"], found["generation"], found["decisions"]) == (3.0, 6, 900)
    assert found["ci95"][0] > 500
    assert reached_at(moments[:3], "dt", Goal("10x10", 500), "cpu") is None


@pytest.mark.parametrize(
    ("lines", "estimates", "high_enough"), [(15e6, 64, True), (14.9e6, 64, False), (60e6, 16, True)]
)
def test_goals_of_many_lines_are_estimated_on_a_processor(
    monkeypatch: pytest.MonkeyPatch, lines: float, estimates: int, high_enough: bool
) -> None:
    rate = 0.4 / lines
    monkeypatch.setattr(time_to_target, "estimate", estimating((0.5 * rate, 1.5 * rate) * 8, 1))
    goal = Goal("10x20", 15_000_000)
    assert goal.lines > PLAYED_LINES
    moments = [{"seconds": 2.5, "generation": 3, "decisions": 100, "weights": GOOD}]
    found = reached_at(moments, "dt", goal, "cpu")
    assert (found is not None) is high_enough
    if found is not None:
        assert (found["estimates"], found["lines_per_game"]) == (estimates, pytest.approx(lines))
        assert "games" not in found


def test_the_median_counts_runs_that_never_get_there(monkeypatch: pytest.MonkeyPatch) -> None:
    goal, easy = Goal("10x20", 35_000_000), Goal("10x10", 3_900)

    def run(*seconds: float | None) -> dict[str, object]:
        names = (goal.name, easy.name)
        return {"reached": {n: s and {"seconds": s} for n, s in zip(names, seconds, strict=True)}}

    monkeypatch.setattr(time_to_target, "GOALS", (goal, easy))
    found = figures([run(5.0, 1.0), run(None, 3.0), run(None, 2.0)])
    assert found == {"time_to_quality.10x10.3900.seconds": 2.0}
    found = figures([run(5.0, 1.0), run(None, 3.0), run(7.0, 2.0)])
    assert found["time_to_quality.10x20.35M.seconds"] == 7.0


def test_a_run_in_a_process_of_its_own_reaches_goals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_to_target, "GOALS", (Goal("5x6", 1), Goal("5x6", 10**6)))
    recipe = {"features": "holes,max_height,landing_height", "board": "5x6", "generations": 3}
    small = {"population": 6, "streams": 1, "decisions": 20}
    run = measure_seed({"device": "python", "seed": 1, **recipe, **small})
    assert (run["config"]["seed"], run["config"]["device"]) == (1, "python")
    assert (run["decisions"], "moments" in run) == (3 * 7 * 20, False)
    assert 0 < run["reached"]["5x6.1"]["seconds"] <= run["total_seconds"]
    assert run["reached"]["5x6.1M"] is None


class Laboratory:
    """Runs that take a hundred seconds each by a clock of its own and reach nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = 0.0
        self.seeds: list[int] = []
        monkeypatch.setattr("measure.time_to_target.time.monotonic", lambda: self.clock)
        monkeypatch.setattr(time_to_target, "measure_seed", self.measure_seed)
        monkeypatch.setattr(time_to_target, "prepare_engine", lambda recipe: None)

    def measure_seed(self, settings: dict[str, Any]) -> dict[str, Any]:
        self.seeds.append(settings["seed"])
        self.clock += 100.0
        reached = {goal.name: None for goal in time_to_target.GOALS}
        return {"seed": settings["seed"], "reached": reached}


def test_seeds_that_are_measured_are_kept_and_the_others_are_measured_next_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    laboratory = Laboratory(monkeypatch)
    arguments = ({"preset": "quick", "device": "cpu"}, 3, tmp_path, 150.0)
    with pytest.raises(Unfinished, match="2 of 3 seeds are measured"):
        measure_seeds(*arguments)
    assert laboratory.seeds == [1, 2]
    runs = measure_seeds(*arguments)
    assert laboratory.seeds == [1, 2, 3]
    assert [run["seed"] for run in runs] == [1, 2, 3]


def test_one_seed_is_measured_however_little_time_there_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    laboratory = Laboratory(monkeypatch)
    for count in (1, 2):
        with pytest.raises(Unfinished):
            measure_seeds({"device": "cpu"}, 3, tmp_path, 10.0)
        assert len(laboratory.seeds) == count


def test_the_result_has_goals_and_runs(
    script: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Laboratory(monkeypatch)
    out = tmp_path / "out.json"
    ended = script("measure.time_to_target", "--device", "python", "--seeds", 1, "--json", out)
    assert ended.status == 0, ended.err
    data = json.loads(out.read_text())["data"]
    assert data["goals"][0] == {"name": "10x10.3900", "board": "10x10", "lines": 3900}
    assert [run["seed"] for run in data["runs"]] == [1]
