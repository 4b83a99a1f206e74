"""The figures of README and docs are those of the result files."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tetris import LinearController, published
from tetris.training.recipe import make_recipe
from tetris.view.images import PALETTE, frame
from tetris.view.movies import GIF_CELL


@pytest.fixture
def figures() -> Any:
    return importlib.import_module("render_figures")


def test_the_pages_say_what_the_result_file_says(script: Any) -> None:
    assert script("render_figures", "--check").status == 0


def test_the_results_are_of_the_sources_that_are_here(figures: Any) -> None:
    # It skips, and does not fail: who changes a kernel need not have the GPU to measure it.
    cpu, gpu = (json.loads(path.read_text()) for path in (figures.CPU, figures.GPU))
    stale = figures.stale(cpu, gpu, figures.read_reproduced())
    if stale:
        pytest.skip("; ".join(stale))


def test_a_page_that_differs_is_named(
    script: Any, figures: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = tmp_path / "README.md"
    page.write_text("<!-- begin: training -->\n9,999 lines\n<!-- end: training -->\n")
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    monkeypatch.setattr(figures, "CPU", tmp_path / "cpu.json")
    monkeypatch.setattr(figures, "GPU", tmp_path / "gpu.json")
    monkeypatch.setattr(figures, "BEST", tmp_path / "best.json")
    monkeypatch.setattr(figures, "PAGES", ("README.md",))
    score = {"controller": "learned", "board": "10x10", "lines_per_game": 4567.8}
    estimates = [
        {"controller": name, "board": "10x20", "lines_per_game": value}
        for name, value in (("learned", 3.214e8), ("dt20", 5.1e7))
    ]
    run = {"score": [score], "estimates": estimates, "training_seconds": 60.2}
    (tmp_path / "cpu.json").write_text(json.dumps({"training": [run], "machine": {"cores": 2}}))
    outcome = script("render_figures", "--check")
    assert outcome.status == 1
    assert "README.md differs from the result files" in outcome.err
    monkeypatch.setattr(figures, "draw", lambda run: None)
    assert script("render_figures").status == 0
    text = page.read_text()
    assert "4,568 (worst 4,568, best 4,568) lines a game on 10x10" in text
    assert "321 M (worst 321 M, best 321 M) on 10x20 (estimated; dt20, the best published one, 51 M" in text
    assert script("render_figures", "--check").status == 0


def test_the_agent_at_play_is_the_one_of_the_result_file(figures: Any) -> None:
    image = pytest.importorskip("PIL.Image", reason='needs Pillow: pip install -e ".[watch]"')
    run = figures.median_run(json.loads(figures.CPU.read_text()))
    assert figures.AGENT.stat().st_size < 1_000_000
    assert f"docs/{figures.AGENT.name}" in (figures.ROOT / "README.md").read_text()
    with image.open(figures.AGENT) as gif:
        assert gif.n_frames == figures.AGENT_PIECES
        for number, scene in enumerate(figures.agent_scenes(run)):
            gif.seek(number)
            drawn = PALETTE[frame(scene, "learned", GIF_CELL)]
            assert (np.asarray(gif.convert("RGB")) == drawn).all(), f"frame {number}"


def test_without_pillow_the_agent_stays_as_it_is(
    figures: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    before = figures.AGENT.stat().st_mtime_ns
    figures.draw_agent({})
    assert "docs/agent.gif stays as it is: a GIF needs Pillow" in capsys.readouterr().err
    assert figures.AGENT.stat().st_mtime_ns == before


def test_a_block_that_nobody_renders_is_refused(
    figures: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("<!-- begin: nothing -->\n<!-- end: nothing -->\n")
    with pytest.raises(ValueError, match=r"expected a block named .* got 'nothing'"):
        figures.rendered(page, {})


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (831.2, "831"), (4567.8, "4,568"), (52_345.0, "52,340"), (35.16e6, "35.2 M")],
)
def test_lines_are_written_for_people(figures: Any, value: float | None, text: str) -> None:
    assert figures.lines(value) == text


def test_a_score_without_a_game_ended_is_a_bound(figures: Any) -> None:
    assert (
        figures.cell({"lines_per_game": None, "ci95": [2.1e6, None], "games": 0}) == "> 2.1 M (no game ended)"
    )
    one = {"lines_per_game": 3e6, "ci95": [0.8e6, 1.2e8], "games": 1}
    assert figures.cell(one) == "3 M [800,000, 120 M], 1 game"


def test_a_block_of_a_gpu_is_empty_until_it_was_measured(
    figures: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    empty = "<!-- begin: sampling_large -->\n<!-- end: sampling_large -->\n"
    page.write_text(empty.replace("large -->\n<", "large -->\n4,000 GB/s\n<"))
    assert figures.rendered(page, {}) == empty
    assert figures.rendered(page, {}, {"parts": {}}) == empty
    timing = {"fill": {"median": 1000.0}, "ours": {"median": 1250.0}}
    sampling = {
        "large": [{"dim": 1_000_000, "bytes": 4_000_000_000, "event": timing}],
        "machine": {"gpu": "NVIDIA Test", "cuda": "13.0"},
        "versions": {"torch": "2.11.0", "python": "3.12"},
        "date": "2026-01-02T03:04:05",
        "sources": "0123456789abcdef",
    }
    text = figures.rendered(page, {}, {"parts": {"sampling": sampling}})
    assert "| sample_normal | 3,200 (80%) |" in text
    assert "NVIDIA Test" in text


@pytest.fixture
def nowhere(figures: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A checkout with a page and empty results, to which nothing but files is written."""
    for name in ("ROOT", "DOCS"):
        monkeypatch.setattr(figures, name, tmp_path)
    monkeypatch.setattr(figures, "CPU", tmp_path / "cpu.json")
    monkeypatch.setattr(figures, "GPU", tmp_path / "gpu.json")
    monkeypatch.setattr(figures, "BEST", tmp_path / "best.json")
    monkeypatch.setattr(figures, "PAGES", ())
    monkeypatch.setattr(figures, "median_run", lambda result: {})
    monkeypatch.setattr(figures, "draw", lambda run: None)
    monkeypatch.setattr(figures, "stale", lambda *results: [])
    for name in ("cpu", "gpu"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"parts": {}} if name == "gpu" else {}))
    return tmp_path


def test_the_best_controller_is_that_of_the_result_file(
    script: Any, figures: Any, monkeypatch: pytest.MonkeyPatch, nowhere: Path
) -> None:
    assert script("render_figures").status == 0
    assert not (nowhere / "best.json").exists()
    best = LinearController("dt", published("dt20").weights, name="best", provenance={"seed": 1})
    monkeypatch.setattr(figures, "best_controller", lambda report: best)
    assert script("render_figures", "--check").status == 1
    assert script("render_figures").status == 0
    assert LinearController.load(nowhere / "best.json") == best
    assert script("render_figures", "--check").status == 0
    (nowhere / "best.json").write_text((nowhere / "best.json").read_text().replace("2.68", "2.69"))
    ended = script("render_figures", "--check")
    assert ended.status == 1
    assert "best.json differs from the result files" in ended.err


def test_the_learning_curve_of_the_record_is_drawn(
    script: Any, figures: Any, monkeypatch: pytest.MonkeyPatch, nowhere: Path
) -> None:
    drawn: list[tuple[Any, ...]] = []
    trained = {"config": {"preset": "record", "seed": 1}, "metrics": [{"generation": 1}]}
    monkeypatch.setattr(figures, "measured_record", lambda report: (trained, {}))
    monkeypatch.setattr(figures, "draw_metrics", lambda *arguments: drawn.append(arguments))
    assert script("render_figures").status == 0
    picture = nowhere / "record_learning_curve.png"
    assert drawn == [([{"generation": 1}], picture, "preset record, seed 1")]


def test_a_chart_is_drawn_where_the_time_to_given_scores_was_measured(
    script: Any, figures: Any, monkeypatch: pytest.MonkeyPatch, nowhere: Path
) -> None:
    drawn: list[tuple[Any, Path]] = []

    def draw(parts: Any, picture: Path) -> bool:
        drawn.append((parts, picture))
        return True

    monkeypatch.setattr(figures, "draw_time_to_quality", draw)
    assert script("render_figures").status == 0
    assert drawn == []
    (nowhere / "cpu.json").write_text(json.dumps({"time_to_quality": {"x": 1}}))
    assert script("render_figures").status == 0
    assert drawn == [([{"x": 1}], nowhere / "time_to_quality.png")]


def test_a_result_of_another_recipe_than_the_preset_is_named(
    figures: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "source_digest", lambda device: "now")
    monkeypatch.setattr("_results.part_digest", lambda part: "now")
    now = make_recipe("cuda", {"preset": "record", "backend": "cuda"}).to_dict()
    then = {**now, "population": now["population"] + 1}

    def notes(config: dict[str, Any]) -> list[str]:
        described = {"operators": [], "sources": "now"}
        timed = {**described, "runs": [{"config": config}]}
        gpu = {"parts": {"record_training": {**described, "controller": {}, "config": config}}}
        found: list[str] = figures.stale({"sources": "now", "time_to_quality": timed}, gpu)
        return found

    assert notes(now) == []
    in_cpu, in_gpu = notes(then)
    assert "cpu.json, part time_to_quality, was trained by another recipe than its preset is now" in in_cpu
    assert "run scripts/gpu_report.py --part record_training" in in_gpu


def test_results_of_other_sources_are_named(figures: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "source_digest", lambda device: "now")
    monkeypatch.setattr("_results.part_digest", lambda part: "now")
    gpu = {"parts": {"sampling": {"operators": ["normal"], "sources": "now"}}}
    assert figures.stale({"sources": "now"}, gpu) == []
    gpu["parts"]["operators"] = {"operators": ["sigmoid"], "sources": "then"}
    cpu_note, gpu_note = figures.stale({"sources": "then"}, gpu)
    assert "cpu.json was measured with other sources" in cpu_note
    assert "part operators, was measured with other sources" in gpu_note
