"""What docs/results.md says: the figures of the result files, or that there are none yet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import render_figures
from _noisy_ce import NOISES
from _reproduce_pages import CPU_FILE, GPU_FILE, REPRODUCE_BLOCKS, games_cut, verdict

from tetris.evaluation.papers import PaperFigure

PAPER = PaperFigure(31e6, 36e6, "a paper")
ORIGIN = {
    "machine": {"processor": "Test CPU", "cores": 2},
    "versions": {"torch": "2.13", "python": "3.11"},
    "date": "2026-01-02T03:04:05",
    "sources": "0123456789abcdef",
}


def search(noise: str, lines: float) -> dict[str, Any]:
    score = {"lines_per_game": lines, "ci95": [0.9 * lines, 1.1 * lines], "games": 300}
    cut = {"mean_games_cut": [0, 3], "candidate_games_cut": [2]}
    return {"noise": noise, "seed": 1, "mean_lines": [0.0, lines], **cut, "score": score}


@pytest.fixture
def report() -> dict[str, Any]:
    """A report of a CPU."""
    bcts = {"controller": "bcts", "board": "10x10", "lines_per_game": 3934.5}
    dellacherie = {"controller": "dellacherie", "board": "10x20", "lines_per_game": None}
    experiment = {
        **ORIGIN,
        "plan": {
            **{"features": "bertsekas", "board": "10x20", "seeds": 3, "generations": 1, "limit": 4_000_000},
            "score_decisions": 1000,
        },
        "method": {"population": 100, "games_of_the_mean": 30},
        "searches": [search(noise, lines) for noise in NOISES for lines in (1000.0, 3000.0, 200_000.0)],
    }
    return {
        "parts": {
            "published": {
                **ORIGIN,
                "precision": {"10x10": 0.03},
                "seconds": 20.0,
                "measurements": [
                    {**bcts, "ci95": [3890.0, 3978.0], "games": 30_000},
                    {**dellacherie, "ci95": [2.1e6, None], "games": 0},
                ],
            },
            "noisy_ce_bertsekas_10x20": experiment,
        }
    }


@pytest.mark.parametrize(
    ("lines", "ci95", "games", "text"),
    [
        (33e6, [30e6, 37e6], 400, "agree"),
        (37e6, [35.5e6, 38.6e6], 2000, "agree"),
        (30e6, [27e6, 31.5e6], 400, "agree"),
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
    assert verdict({"lines_per_game": lines, "ci95": ci95, "games": games}, PAPER) == text


def test_nothing_is_said_of_what_no_paper_has() -> None:
    assert verdict({"lines_per_game": 1.0, "ci95": [0.9, 1.1], "games": 400}, None) == "-"


def test_published_controllers_stand_beside_the_papers_and_the_reference_simulator(
    report: dict[str, Any],
) -> None:
    text = REPRODUCE_BLOCKS["published_cpu"]({CPU_FILE: report})
    for line in (
        "| bcts | 10x10 | 3,934 [3,890, 3,978], 30,000 games | 3,800 | ours 3.5% higher |",
        "|  |  |  | MDPTetris itself: 3,887 ± 83, 2,000 games | agree |",
        "| dellacherie | 10x20 | > 2.1 M (no game ended) | 5.2 M | too few games to say |",
        "Played for 95 % intervals of at most 3.0% on 10x10 to either side; 10x20 for 20 s a controller.",
    ):
        assert line in text.splitlines()
    assert "Test CPU" in text


def test_searches_are_told_by_their_quartiles_and_the_best(report: dict[str, Any]) -> None:
    text = REPRODUCE_BLOCKS["noisy_ce_10x20"]({CPU_FILE: report})
    row = "| 3,000 | 2,000 and 101,500 | 200,000 [180,000, 220,000], 300 games |"
    for noise in ("no noise", "constant 4", "max(5 - t / 10, 0)"):
        assert f"| {noise} {row}" in text.splitlines()
    assert "cut off after 4,000,000 decisions (45 of 1,440 games were). The best of Szita" in text
    assert "about 348,895." in text
    assert "(noisy_ce_10x20.png)" in text
    assert "**bcts, 10x20**: Not measured yet." in text


def test_a_search_whose_games_do_not_end_counts_as_the_least_it_can_be(report: dict[str, Any]) -> None:
    searches = report["parts"]["noisy_ce_bertsekas_10x20"]["searches"]
    for each in searches[2::3]:
        each["score"] = {"lines_per_game": None, "ci95": [200_000.0, None], "games": 0}
    text = REPRODUCE_BLOCKS["noisy_ce_10x20"]({CPU_FILE: report})
    assert "| no noise | 3,000 | 2,000 and > 101,500 | > 200,000 (no game ended) |" in text.splitlines()


def test_games_cut_off_are_counted_over_all_searches(report: dict[str, Any]) -> None:
    assert games_cut(report["parts"]["noisy_ce_bertsekas_10x20"]) == (9 * 5, 9 * 160)


def test_what_a_gpu_measured_goes_before_what_a_cpu_did(report: dict[str, Any]) -> None:
    machine = {"gpu": "NVIDIA Test", "cuda": "13.0"}
    experiment = {**report["parts"]["noisy_ce_bertsekas_10x20"], "machine": machine}
    gpu = {"parts": {"noisy_ce_bertsekas_10x20": experiment}}
    text = REPRODUCE_BLOCKS["noisy_ce_10x20"]({CPU_FILE: report, GPU_FILE: gpu})
    assert "NVIDIA Test" in text
    assert "Test CPU" not in text


def test_what_was_not_measured_says_so() -> None:
    assert {write({}) for write in REPRODUCE_BLOCKS.values()} == {"Not measured yet."}


def test_a_figure_that_differs_from_the_file_is_found(
    script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, report: dict[str, Any]
) -> None:
    for name in ("ROOT", "DOCS"):
        monkeypatch.setattr(render_figures, name, tmp_path)
    for name in ("CPU", "GPU"):
        monkeypatch.setattr(render_figures, name, tmp_path / f"{name}.json")
    monkeypatch.setattr(render_figures, "BEST", tmp_path / "best.json")
    monkeypatch.setattr(render_figures, "PAGES", ("results.md",))
    monkeypatch.setattr(render_figures, "median_run", lambda result: {})
    monkeypatch.setattr(render_figures, "draw", lambda run: None)
    monkeypatch.setattr(render_figures, "stale", lambda *results: [])
    (tmp_path / "CPU.json").write_text("{}")
    file = tmp_path / CPU_FILE
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(report))
    page = tmp_path / "results.md"
    page.write_text("".join(f"<!-- begin: {name} -->\n<!-- end: {name} -->\n" for name in REPRODUCE_BLOCKS))
    assert script("render_figures").status == 0
    assert script("render_figures", "--check").status == 0
    text = page.read_text()
    assert text.count("Not measured yet.") == 3  # on a GPU, on 10x10, with bcts
    page.write_text(text.replace("3,934", "3,935"))
    ended = script("render_figures", "--check")
    assert ended.status == 1
    assert "results.md differs from the result files" in ended.err


def test_parts_of_other_sources_are_named(monkeypatch: pytest.MonkeyPatch, report: dict[str, Any]) -> None:
    monkeypatch.setattr(render_figures, "source_digest", lambda device: "now")
    monkeypatch.setattr("_results.part_digest", lambda part: "now")
    report["parts"]["published"]["sources"] = "now"
    notes = render_figures.stale({"sources": "now"}, None, {CPU_FILE: report})
    assert notes == [
        "reproduce-cpu.json, part noisy_ce_bertsekas_10x20, was measured with other sources of what it "
        "measures: run scripts/reproduce.py --part noisy_ce_bertsekas_10x20"
    ]
