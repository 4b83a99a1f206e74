"""The figures of README and docs are those of the result files."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def figures() -> Any:
    return importlib.import_module("render_figures")


def test_the_pages_say_what_the_result_file_says(script: Any) -> None:
    assert script("render_figures", "--check").status == 0


def test_a_page_that_differs_is_named(
    script: Any, figures: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = tmp_path / "README.md"
    page.write_text("<!-- begin: training -->\n9,999 lines\n<!-- end: training -->\n")
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    monkeypatch.setattr(figures, "CPU", tmp_path / "cpu.json")
    monkeypatch.setattr(figures, "PAGES", ("README.md",))
    score = {"controller": "learned", "board": "10x10", "lines_per_game": 4567.8}
    run = {"score": [score], "training_seconds": 60.2}
    (tmp_path / "cpu.json").write_text(json.dumps({"training": [run], "machine": {"cores": 2}}))
    outcome = script("render_figures", "--check")
    assert outcome.status == 1
    assert "README.md differs from cpu.json" in outcome.err
    monkeypatch.setattr(figures, "draw", lambda run: None)
    assert script("render_figures").status == 0
    assert "4,568 lines a game" in page.read_text()
    assert script("render_figures", "--check").status == 0


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
