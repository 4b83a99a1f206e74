"""What the generated blocks say of results that the files do not have: bounds, misses, several machines."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pages import api_blocks, literature_blocks, result_files, score_blocks

import cem
from tetris.evaluation.papers import PaperFigure

PAPER = PaperFigure(31e6, 36e6, "a paper")
HEAD = {
    "commit": "0123456789abcdef",
    "dirty": False,
    "date": "2026-01-02T03:04:05+00:00",
    "command": "python x.py",
    "machine": {"processor": "Test(R) CPU", "cores": 2},
    "versions": {"torch": "2.13.0+cpu"},
    "figures": {},
    "data": {},
}


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of result files."""
    monkeypatch.setattr(result_files, "RESULTS", tmp_path)
    return tmp_path


def write(folder: Path, name: str, **changes: Any) -> None:
    """Write a result file."""
    path = folder / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**HEAD, **changes}))


def test_provenance_says_commit_date_machine_versions_and_file(results: Path) -> None:
    write(results, "here/tests")
    text = result_files.with_provenance("text", result_files.load("here/tests"))
    assert text == (
        "text\n\n<sub>Measured at 0123456 (2026-01-02) on 2 cores of Test CPU, torch 2.13.0: "
        "[here/tests.json]({root}benchmarks/results/here/tests.json).</sub>"
    )


def test_provenance_says_where_the_checkout_had_changes(results: Path) -> None:
    gpu = {**HEAD["machine"], "gpu": "NVIDIA Test", "cuda": "13.0"}
    write(results, "there/tests", dirty=True, machine=gpu)
    text = result_files.with_provenance("", result_files.load("there/tests"))
    assert "at 0123456 with changes (2026-01-02) on NVIDIA Test, torch 2.13.0, CUDA 13.0:" in text


def test_results_of_one_origin_share_it(results: Path) -> None:
    write(results, "here/a")
    write(results, "here/b")
    text = result_files.with_provenance("", result_files.load("here/a"), result_files.load("here/b"))
    assert text.count("0123456") == 1
    assert text.count("](") == 2


def test_processors_go_before_gpus(results: Path) -> None:
    write(results, "a/tests", machine={**HEAD["machine"], "gpu": "NVIDIA Test"})
    write(results, "b/tests")
    assert [result.name for result in result_files.load_all("tests")] == ["b/tests", "a/tests"]


@pytest.mark.parametrize(
    ("lines", "ci95", "games", "text"),
    [
        (33e6, [30e6, 37e6], 400, "yes"),
        (45e6, [40e6, 50e6], 400, "ours 25.0% higher"),
        (24.8e6, [23e6, 26e6], 400, "ours 20.0% lower"),
        (20.9e6, [10.8e6, 57e6], 6, "too few games to say"),
        (None, [2e6, None], 0, "too few games to say"),
        (None, [72e6, None], 0, "ours 100.0% higher"),
    ],
)
def test_a_paper_agrees_where_the_interval_holds_its_figure(
    lines: float | None, ci95: list[float | None], games: int, text: str
) -> None:
    measured = {"lines_per_game": lines, "ci95": ci95, "games": games}
    assert literature_blocks.verdict(measured, PAPER) == text


def test_a_target_that_seeds_miss_says_how_many_reach_it(results: Path) -> None:
    config = {"preset": "quick", "features": "dt"}
    reached = [{"easy": {"seconds": 2.0, "decisions": 4e6}, "hard": None}, {"easy": None, "hard": None}]
    runs = [{"seed": 1, "total_seconds": 9.0, "reached": each, "config": config} for each in reached]
    goals = [{"name": name, "board": "10x20", "lines": 1e6} for name in ("easy", "hard")]
    figures = {"time_to_quality.easy.seconds": 2.0}
    write(results, "here/time_to_target", figures=figures, data={"goals": goals, "runs": runs})
    text = score_blocks.time_to_target()
    assert "2.0 s (2.0-..., 1 of 2 seeds)" in text
    assert "not within 9 s, 0 of 2 seeds" in text


def test_the_first_command_is_timed_on_every_machine(results: Path) -> None:
    assert score_blocks.first_run() == ""
    figures = {"first_run.cold.seconds": 112.4, "first_run.warm.seconds": 80.2, "first_run.times_dt20": 5.94}
    write(results, "here/first_run", figures=figures)
    text = score_blocks.first_run()
    assert "takes 112 s on 2 cores of Test CPU (80 s once everything is compiled)" in text
    assert "5.9 times dt20" in text


def test_the_model_card_shows_the_scores_on_other_boards(results: Path) -> None:
    card = {
        "controller": "best",
        "board": "10x12",
        "lines_per_game": 164e3,
        "ci95": [129e3, 218e3],
        "games": 40,
    }
    write(results, "h200/best_scores", data={"measurements": [card, {**card, "controller": "dt20"}]})
    kept = Path(__file__).parents[3] / "benchmarks" / "results" / "h200"
    for name in ("record_training", "record_score"):
        (results / "h200" / f"{name}.json").write_text((kept / f"{name}.json").read_text())
    text = score_blocks.model_card()
    assert text.count("| lines a game on 10x12 | 164,000 (129,000-218,000), 40 games |") == 1


def test_the_api_page_has_every_public_name() -> None:
    text = api_blocks.api()
    assert all(f"| `{name}` |" in text for name in cem.__all__)
    assert "| `IDS` | value | The ids of the environments" in text


def test_the_api_page_has_every_package_that_says_what_is_public() -> None:
    root = Path(cem.__file__).parents[1]
    inits = [each for name in ("cem", "tetris", "kernels") for each in (root / name).rglob("__init__.py")]
    public = {
        ".".join(each.parent.relative_to(root).parts)
        for each in inits
        if re.search("^__all__ = ", each.read_text(), re.MULTILINE)
    }
    assert set(api_blocks.PACKAGES) == public
