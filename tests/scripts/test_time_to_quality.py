"""How long training takes to reach a score: the search for the moment, the verdicts, and the figures."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import time_to_quality
from _continued import Unfinished
from sample_runs import estimating
from time_to_quality import (
    PLAYED_LINES,
    Goal,
    figures,
    first_reached,
    is_clear,
    judge,
    measure,
    reached_at,
    without_moments,
)

from tetris import Score, published

GOOD = list(published("dt20").weights)
BAD = [-weight for weight in GOOD]


@pytest.mark.parametrize("count", [1, 2, 7, 64])
def test_the_first_moment_is_found(count: int) -> None:
    for first in range(count):
        asked: list[int] = []

        def reached(index: int, first: int = first, asked: list[int] = asked) -> bool:
            asked.append(index)
            return index >= first

        assert first_reached(count, reached) == first
        assert len(asked) == len(set(asked)) <= 1 + math.ceil(math.log2(count))


def test_what_is_never_reached_is_asked_once() -> None:
    asked: list[int] = []
    assert first_reached(9, lambda index: bool(asked.append(index))) is None
    assert asked == [8]
    assert first_reached(0, lambda index: True) is None


def test_a_verdict_takes_no_more_games_than_it_needs() -> None:
    # dt20 plays about 4,300 lines a game: far from both goals.
    far_above, far_below = (
        judge(GOOD, "dt", Goal("10x10", 500), "cpu"),
        judge(GOOD, "dt", Goal("10x10", 10**6), "cpu"),
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
    monkeypatch.setattr(time_to_quality, "estimate", estimating((0.5 * rate, 1.5 * rate) * 8, 1))
    goal = Goal("10x20", 15_000_000)
    assert goal.lines > PLAYED_LINES
    moments = [{"seconds": 2.5, "generation": 3, "decisions": 100, "weights": GOOD}]
    found = reached_at(moments, "dt", goal, "cpu")
    assert (found is not None) is high_enough
    if found is not None:
        assert (found["estimates"], found["lines_per_game"]) == (estimates, pytest.approx(lines))
        assert "games" not in found


def test_the_median_counts_runs_that_never_get_there() -> None:
    goal, easy = Goal("10x20", 35_000_000), Goal("10x10", 3_900)

    def run(*seconds: float | None) -> dict[str, object]:
        names = (goal.name, easy.name)
        return {"reached": {n: s and {"seconds": s} for n, s in zip(names, seconds, strict=True)}}

    found = figures([run(5.0, 1.0), run(None, 3.0), run(None, 2.0)], [goal, easy])
    assert found == {"time_to_quality.10x10.3900.seconds": 2.0}
    assert figures([run(5.0, 1.0), run(None, 3.0), run(7.0, 2.0)], [goal]) == {
        "time_to_quality.10x20.35M.seconds": 7.0
    }


def test_the_script_trains_in_processes_and_writes_a_result(
    script: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time_to_quality.GOALS", (Goal("5x6", 1), Goal("5x6", 10**6)))
    config, out = tmp_path / "config.json", tmp_path / "out.json"
    settings = {"features": "holes,max_height,landing_height", "board": "5x6", "generations": 3}
    config.write_text(json.dumps({**settings, "population": 6, "streams": 1, "decisions": 20}))
    ended = script("time_to_quality", "--device", "python", "--config", config, "--seeds", 1, "--json", out)
    assert ended.status == 0, ended.err
    result = json.loads(out.read_text())
    (run,) = result["runs"]
    assert (run["config"]["seed"], run["config"]["device"]) == (1, "python")
    assert run["moments"][-1]["generation"] == 3
    assert run["reached"]["5x6.1"]["seconds"] <= run["total_seconds"]
    assert run["reached"]["5x6.1M"] is None
    assert result["figures"] == {"time_to_quality.5x6.1.seconds": run["reached"]["5x6.1"]["seconds"]}
    assert "1,000,000 lines on 5x6" in ended.out


class Laboratory:
    """Where runs take no time, but say that they take a while."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.trained: list[dict[str, Any]] = []
        self.clock = 0.0
        monkeypatch.setattr(time_to_quality, "train", self.train)
        monkeypatch.setattr(time_to_quality, "reached_at", lambda *arguments: None)
        monkeypatch.setattr(time_to_quality.time, "monotonic", lambda: self.clock)

    def train(self, settings: dict[str, Any], folder: Path, longest_s: float | None = None) -> dict[str, Any]:
        self.trained.append({**settings, "longest": longest_s})
        self.clock += 100.0 if "seed" in settings else 1.0  # the warm-up has none
        moment = {"seconds": 50.0, "generation": 3, "decisions": 9, "weights": [1.0]}
        return {"config": {"features": "dt"}, "moments": [moment]}

    @property
    def seeds(self) -> list[int]:
        return [settings["seed"] for settings in self.trained if "seed" in settings]


def test_seeds_that_are_measured_are_kept_and_the_others_are_measured_next_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    laboratory = Laboratory(monkeypatch)
    goals = (Goal("10x10", 3_900),)
    with pytest.raises(Unfinished, match="2 of 3 seeds are measured"):
        measure("cpu", 3, {"preset": "quick"}, goals, 60.0, tmp_path, 250.0)
    assert laboratory.seeds == [1, 2]
    result = measure("cpu", 3, {"preset": "quick"}, goals, 60.0, tmp_path, 250.0)
    assert laboratory.seeds == [1, 2, 3]
    assert [run["seed"] for run in result["runs"]] == [1, 2, 3]
    assert laboratory.trained[-1]["longest"] == 60.0
    assert (result["time_limit"], result["figures"]) == (60.0, {})
    assert "moments" not in without_moments(result)["runs"][0]


def test_a_seed_is_measured_again_where_anything_it_depends_on_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    laboratory = Laboratory(monkeypatch)
    goals = (Goal("10x10", 3_900),)
    measure("cpu", 1, {"preset": "quick"}, goals, None, tmp_path)
    measure("cpu", 1, {"preset": "quick"}, goals, None, tmp_path)
    assert laboratory.seeds == [1]
    measure("cpu", 1, {"preset": "standard"}, goals, None, tmp_path)
    measure("cpu", 1, {"preset": "standard"}, goals, 60.0, tmp_path)
    measure("cpu", 1, {"preset": "standard"}, (Goal("10x20", 10**6),), 60.0, tmp_path)
    assert laboratory.seeds == [1] * 4


def test_one_seed_is_measured_however_little_time_there_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    laboratory = Laboratory(monkeypatch)
    for count in (1, 2):
        with pytest.raises(Unfinished):
            measure("cpu", 3, {}, (), None, tmp_path, 10.0)
        assert len(laboratory.seeds) == count


def test_a_run_is_cut_off_and_goals_are_chosen(
    script: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time_to_quality.GOALS", (Goal("5x6", 1), Goal("5x6", 10**6)))
    config, out = tmp_path / "config.json", tmp_path / "out.json"
    # Half a minute's work, of which a second at most is done.
    settings = {"features": "holes,max_height,landing_height", "board": "5x6", "generations": 500}
    config.write_text(json.dumps({**settings, "population": 6, "streams": 1, "decisions": 50}))
    arguments = ("--device", "python", "--config", config, "--seeds", 1, "--json", out)
    ended = script("time_to_quality", *arguments, "--goal", "5x6.1M", "--time-limit", 6)
    assert ended.status == 0, ended.err
    result = json.loads(out.read_text())
    (run,) = result["runs"]
    assert [goal["name"] for goal in result["goals"]] == list(run["reached"]) == ["5x6.1M"]
    assert run["moments"][-1]["generation"] < 500
    assert run["moments"][-1]["decisions"] == run["decisions"] == run["moments"][-1]["generation"] * 7 * 50
    assert result["time_limit"] == 6.0


def test_an_unknown_preset_is_one_line(script: Callable[..., Any]) -> None:
    ended = script("time_to_quality", "--device", "python", "--preset", "fast")
    assert ended.status == 2
    assert "got 'fast'" in ended.err


def test_an_unknown_device_is_one_line(script: Callable[..., Any]) -> None:
    ended = script("time_to_quality", "--device", "gpu")
    assert ended.status == 2
    assert "got 'gpu'; did you mean 'cuda'?" in ended.err


def test_an_unknown_goal_is_one_line_with_the_one_that_was_meant(script: Callable[..., Any]) -> None:
    ended = script("time_to_quality", "--goal", "10x20.53M")
    assert ended.status == 2
    (line,) = ended.err.splitlines()
    assert line.startswith("time_to_quality.py: error: argument --goal: expected a goal among 10x10.3900, ")
    assert line.endswith("; got '10x20.53M'; did you mean '10x20.51M'?")
