"""scripts/train_tetris.py: however a run ends, it leaves a report; and without one the run is not lost."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tetris import LinearController
from tetris.commands import training_run
from tetris.training import objective
from tetris.training.run_folder import RunFolder

Script = Callable[..., Any]
RECIPE = (
    *("--device", "python", "--features", "holes,max_height", "--board", "5x6", "--generations", 4),
    *("--population", 6, "--streams", 1, "--decisions", 20, "--score-decisions", 64),
)
NOTHING = "Nothing was measured yet"


def page(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


def test_a_run_ends_with_its_report(script: Script, tmp_path: Path) -> None:
    ended = script("train_tetris", *RECIPE, "--out", tmp_path / "a")
    assert ended.status == 0
    first, second = (line for line in ended.out.splitlines() if "report.html: " in line)
    assert (first.partition(": ")[2], second.partition(": ")[2]) == (
        "curves, weights and a game, for a browser",
        "now with the scores",
    )
    assert "4 of 4 generations" in page(tmp_path / "a")
    assert NOTHING not in page(tmp_path / "a")


def test_while_a_run_goes_on_its_report_is_written_now_and_then(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script("train_tetris", *RECIPE, "--out", tmp_path / "a")
    (tmp_path / "a" / "report.html").unlink()
    now = 0.0
    monkeypatch.setattr(training_run, "time", SimpleNamespace(monotonic=lambda: now))
    live = training_run.LiveReport(RunFolder(tmp_path / "a"))
    now = training_run.LIVE_SECONDS - 1
    live.on_checkpoint(1, {})
    assert not (tmp_path / "a" / "report.html").exists()
    now += 1
    live.on_checkpoint(2, {})
    assert "location.reload" in page(tmp_path / "a")
    # A defect of the page does not end the run.
    monkeypatch.setattr(training_run, "write_report", lambda *_, **__: 1 / 0)
    now += training_run.LIVE_SECONDS
    live.on_checkpoint(3, {})


def test_an_interrupted_run_has_a_report_and_a_new_one_when_it_is_resumed(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = objective.LinesPerGame.play

    def interrupted(self: Any, players: Any, generation: int) -> Any:
        if generation == 2:
            signal.raise_signal(signal.SIGINT)
        return play(self, players, generation)

    monkeypatch.setattr(objective.LinesPerGame, "play", interrupted)
    assert script("train_tetris", *RECIPE, "--out", tmp_path / "a").status == 130
    assert "2 of 4 generations" in page(tmp_path / "a")
    assert NOTHING in page(tmp_path / "a")
    monkeypatch.undo()
    assert script("train_tetris", "--resume", tmp_path / "a").status == 0
    assert "4 of 4 generations" in page(tmp_path / "a")
    assert NOTHING not in page(tmp_path / "a")


def test_a_report_that_fails_is_a_note_and_the_run_is_kept(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise KeyError("lines")

    monkeypatch.setattr(training_run, "write_report", broken)
    ended = script("train_tetris", *RECIPE, "--out", tmp_path / "a")
    assert ended.status == 0
    (line,) = (line for line in ended.err.splitlines() if line.startswith("note: no "))
    assert line.startswith(f"note: no {tmp_path / 'a' / 'report.html'}: KeyError: 'lines'; to try again: ")
    assert line.endswith(f"report_tetris.py {tmp_path / 'a'}")
    assert LinearController.load(tmp_path / "a" / "controller.json").provenance["score"]
    assert not (tmp_path / "a" / "report.html").exists()
