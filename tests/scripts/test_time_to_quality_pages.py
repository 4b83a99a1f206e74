"""What docs/results.md says of the time to given scores: the table, the chart, and papers' efforts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from _time_to_quality_pages import QUALITY_BLOCKS, measured
from _time_to_quality_plot import draw_time_to_quality
from time_to_quality import GOALS, Goal, figures

from tetris.evaluation.papers import EFFORTS

CPU, GPU = "benchmarks/results/cpu.json", "benchmarks/results/h200.json"
LOW, MILLION, RECORD, DT20 = GOALS


def result(machine: dict[str, Any], goals: list[Goal], *seconds: list[float | None]) -> dict[str, Any]:
    """A result with a list of seconds for each goal."""
    runs = [
        {
            "seed": seed,
            "total_seconds": 60.0,
            "config": {"preset": "quick", "features": "dt"},
            "reached": {
                goal.name: None if when is None else {"seconds": when, "decisions": round(1e6 * when)}
                for goal, when in zip(goals, of_seed, strict=True)
            },
        }
        for seed, of_seed in enumerate(zip(*seconds, strict=True), start=1)
    ]
    return {
        "machine": {"processor": "Test CPU", "cores": 2, **machine},
        "versions": {"torch": "2.13", "python": "3.11"},
        "date": "2026-01-02T03:04:05",
        "sources": "0123456789abcdef",
        "goals": [{"name": goal.name, "board": goal.board, "lines": goal.lines} for goal in goals],
        "time_limit": None,
        "figures": figures(runs, goals),
        "runs": runs,
    }


@pytest.fixture
def reports() -> dict[str, Any]:
    """A processor's and a GPU's, of three seeds."""
    on_cpu = result({}, [LOW, MILLION], [20.0, 31.26, 25.0], [50.0, 40.0, None])
    on_gpu = result(
        {"gpu": "NVIDIA Test", "cuda": "13.0"},
        [LOW, MILLION, RECORD, DT20],
        *([10.5, 11.0, 12.0], [15.0, 14.0, 13.0], [30.0, 31.0, 32.0], [None, 50.0, None]),
    )
    return {
        CPU: {"time_to_quality": on_cpu},
        GPU: {"parts": {"time_to_quality": {**on_gpu, "time_limit": 60}}},
    }


def test_both_machines_stand_side_by_side(reports: dict[str, Any]) -> None:
    text = QUALITY_BLOCKS["time_to_quality"](reports)
    assert [line for line in text.splitlines() if line.startswith("|")] == [
        "| from nothing to | 2 cores, Test CPU | decisions until then | NVIDIA Test | decisions until then |",
        "| --- | --- | --- | --- | --- |",
        "| 3,900 lines on 10x10 | 25.0 s (20.0-31.3) | 25,000,000 | 11.0 s (10.5-12.0) | 11,000,000 |",
        "| 1 M lines on 10x20 | 50.0 s (40.0-..., 2 of 3 seeds) | 50,000,000 "
        "| 14.0 s (13.0-15.0) | 14,000,000 |",
        "| 35 M lines on 10x20 | - | - | 31.0 s (30.0-32.0) | 31,000,000 |",
        "| 51 M lines on 10x20 | - | - | not within 60 s, 1 of 3 seeds | - |",
    ]
    assert "the median of 3 seeds" in text
    assert "NVIDIA Test: preset quick, features dt, cut off after 60 s." in text
    assert "(time_to_quality.png)" in text
    assert text.count("<sub>") == 2


@pytest.mark.parametrize(("there", "missing"), [(CPU, "On an H200"), (GPU, "On a processor")])
def test_a_machine_that_was_not_measured_says_so(reports: dict[str, Any], there: str, missing: str) -> None:
    text = QUALITY_BLOCKS["time_to_quality"]({there: reports[there]})
    assert f"{missing}: Not measured yet." in text
    assert text.count("Not measured yet.") == 1


def test_without_any_there_is_no_table() -> None:
    for nothing in ({}, {CPU: {"speed": {}}, GPU: {"parts": {}}}):
        assert QUALITY_BLOCKS["time_to_quality"](nothing) == "Not measured yet."


def test_papers_are_quoted_with_their_place() -> None:
    text = QUALITY_BLOCKS["published_efforts"]({})
    assert len(text.splitlines()) == 2 + len(EFFORTS)
    assert "almost 1/10 of the samples" in text
    assert "almost 1/6 of the samples" in text


@pytest.mark.parametrize("files", [(CPU,), (GPU,), (CPU, GPU)])
def test_the_chart_is_drawn(reports: dict[str, Any], tmp_path: Path, files: tuple[str, ...]) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "picture.png"
    found = [part for part, _ in measured({file: reports[file] for file in files})]
    assert draw_time_to_quality(found, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    first = picture.read_bytes()
    assert draw_time_to_quality(found, picture)
    assert picture.read_bytes() == first  # so that a page without changes has a picture without changes
