"""scripts/train_tetris.py: stopped in any way and resumed, a run is the run that was never
stopped."""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sample_runs import TINY, metrics_of

from tetris import LinearController
from tetris.commands.train import command_for
from tetris.evaluation import comparison
from tetris.training import objective, training
from tetris.training.run_folder import RunFolder

Script = Callable[..., Any]
ROOT = Path(__file__).parents[3]
RECIPE = (*TINY, "--generations", 5)


@pytest.fixture(autouse=True)
def _checkpoint_every_generation_and_draw_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr("tetris.commands.train.draw", lambda training: None)


def _defer(monkeypatch: pytest.MonkeyPatch, deferred: bool) -> None:
    """Let runs defer host sync by a generation, as on a GPU, or not."""
    monkeypatch.setattr("cem.run.trainer.defers_sync", lambda device: deferred)


@pytest.fixture
def whole(script: Script, tmp_path: Path) -> Path:
    """The run that is never stopped."""
    folder = tmp_path / "whole"
    assert script("train_tetris", *RECIPE, "--out", folder).status == 0
    return folder


def _weights(folder: Path) -> tuple[float, ...]:
    return LinearController.load(folder / "controller.json").weights


def _scored(folder: Path) -> set[str]:
    provenance = LinearController.load(folder / "controller.json").provenance
    return {score["board"] for score in provenance.get("score") or ()}


def _is_the_same(folder: Path, whole: Path) -> bool:
    return (metrics_of(folder), _weights(folder)) == (metrics_of(whole), _weights(whole))


def _stop_in(
    monkeypatch: pytest.MonkeyPatch, generation: int, act: Callable[[], object]
) -> None:
    """Do something in the middle of a generation, once."""
    games = objective.LinesPerGame.games

    def begun(self: Any, players: Any, now: int) -> Any:
        if now == generation:
            monkeypatch.setattr(objective.LinesPerGame, "games", games)
            act()
        return games(self, players, now)

    monkeypatch.setattr(objective.LinesPerGame, "games", begun)


@pytest.mark.parametrize(
    ("number", "status", "generation", "deferred"),
    [(signal.SIGINT, 130, 2, True), (signal.SIGTERM, 143, 0, False)],
)
def test_signal_drops_the_generation_and_says_how_to_go_on(
    script: Script,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    whole: Path,
    number: signal.Signals,
    status: int,
    generation: int,
    deferred: bool,
) -> None:
    _defer(monkeypatch, deferred)
    folder = tmp_path / "stopped"
    _stop_in(monkeypatch, generation, lambda: signal.raise_signal(number))
    ended = script("train_tetris", *RECIPE, "--out", folder)
    assert ended.status == status
    last = ended.err.splitlines()[-1]
    assert last.startswith(
        f"stopped by {number.name} after {generation} of 5 generations; to resume: python "
    )
    assert last.endswith(f"python -m tetris train --resume {folder}")
    assert len(metrics_of(folder)) == generation
    assert (folder / "controller.json").exists() == (generation > 0)
    if generation:
        assert f"{generation} of 5 generations" in (folder / "report.html").read_text(
            encoding="utf-8"
        )

    ended = script("train_tetris", "--resume", folder)
    assert ended.status == 0
    assert _is_the_same(folder, whole)
    assert "5 of 5 generations" in (folder / "report.html").read_text(encoding="utf-8")


def test_signal_while_measuring_leaves_the_controller_and_the_boards_that_are_done(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Path
) -> None:
    measure, measured = comparison.measure, itertools.count()

    def interrupted(*arguments: Any, **options: Any) -> Any:
        if next(measured) == 1:
            signal.raise_signal(signal.SIGTERM)
        return measure(*arguments, **options)

    folder = tmp_path / "stopped"
    monkeypatch.setattr(comparison, "measure", interrupted)
    ended = script("train_tetris", *RECIPE, "--score-decisions", 64, "--out", folder)
    assert ended.status == 143
    assert f"while measuring {folder / 'controller.json'}; to resume: python" in ended.err
    assert _is_the_same(folder, whole)
    assert len(_scored(folder)) == 1

    monkeypatch.setattr(comparison, "measure", measure)
    ended = script("train_tetris", "--resume", folder)
    assert ended.status == 0
    assert "dt20" in ended.out
    assert _scored(folder) == {"10x10", "10x20", *_scored(folder)}
    assert _is_the_same(folder, whole)


@pytest.mark.parametrize("decisions", [0, 64])
def test_finished_run_says_so(script: Script, tmp_path: Path, decisions: int) -> None:
    arguments = ("--score-decisions", decisions, "--out", tmp_path / "a")
    assert script("train_tetris", *RECIPE, *arguments).status == 0
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "a").iterdir()}
    ended = script("train_tetris", "--resume", tmp_path / "a")
    assert (ended.status, ended.err) == (0, "")
    scored = ", and the scores are measured" if decisions else ""
    assert ended.out == f"{tmp_path / 'a'} is finished: all 5 generations are trained{scored}\n"
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "a").iterdir()} == before
    (tmp_path / "a" / "report.html").unlink()
    noted = script("train_tetris", "--resume", tmp_path / "a", "--note", "wide \udcff #keep")
    assert noted.status == 0
    assert (tmp_path / "a" / "note.txt").read_bytes() == b"wide \xff #keep\n"
    assert "<b>#keep</b>" in (tmp_path / "a" / "report.html").read_text(encoding="utf-8")


def test_time_limit_ends_a_run_that_can_be_resumed(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Path
) -> None:
    _defer(monkeypatch, True)
    folder = tmp_path / "stopped"
    now = time.monotonic
    _stop_in(
        monkeypatch, 2, lambda: monkeypatch.setattr("time.monotonic", lambda: now() + 3600)
    )
    ended = script("train_tetris", *RECIPE, "--out", folder, "--time-limit", 1000)
    assert ended.status == 0
    command = f"python -m tetris train --resume {folder}"
    assert f"time is up after 2 of 5 generations; to resume: {command}" in ended.err
    assert LinearController.load(folder / "controller.json").provenance["generation"] == 2

    assert script("train_tetris", "--resume", folder, "--time-limit", 1000).status == 0
    assert _is_the_same(folder, whole)


def test_a_printed_command_takes_no_folder_for_an_option() -> None:
    command = command_for(RunFolder(Path("-a")), Namespace(), "train", "--resume")
    assert command == "python -m tetris train --resume ./-a"


def test_full_disk_is_one_line_and_the_run_can_go_on(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Path
) -> None:
    _defer(monkeypatch, True)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        _stop_in(patch, 2, lambda: patch.setattr(os, "fsync", full))
        ended = script("train_tetris", *RECIPE, "--out", folder)
    assert ended.status == 2
    assert ended.err.splitlines()[-1].endswith("No space left on device")
    assert "Traceback" not in ended.err

    assert script("train_tetris", "--resume", folder).status == 0
    assert _is_the_same(folder, whole)


def test_damaged_checkpoint_is_passed_over_by_name(
    script: Script, tmp_path: Path, whole: Path
) -> None:
    folder = tmp_path / "torn"
    folder.mkdir()
    for name in ("config.json", "metrics.jsonl"):
        (folder / name).write_bytes((whole / name).read_bytes())
    (folder / "checkpoints").mkdir()
    for number in (3, 4):
        name = f"checkpoints/checkpoint-{number:06d}.json"
        data = (whole / name).read_bytes()
        (folder / name).write_bytes(data if number == 3 else data[: len(data) // 2])
    ended = script("train_tetris", "--resume", folder)
    assert ended.status == 0
    assert "note: skipped checkpoint-000004.json: torn" in ended.err
    assert "resuming after 3 of 5 generations" in ended.err
    assert _weights(folder) == _weights(whole)


def test_damaged_metrics_are_one_line_and_are_left_alone(script: Script, whole: Path) -> None:
    (whole / "controller.json").unlink()
    metrics = whole / "metrics.jsonl"
    metrics.write_text("{\n" + metrics.read_text())
    ended = script("train_tetris", "--resume", whole)
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert f"{metrics}: line 1 is damaged" in ended.err
    assert metrics.read_text().startswith("{\n")


def test_a_run_without_its_metrics_is_not_resumed(script: Script, whole: Path) -> None:
    (whole / "controller.json").unlink()
    metrics = whole / "metrics.jsonl"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:3]))
    ended = script("train_tetris", "--resume", whole)
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert f"{metrics}: expected lines of 5 generations, got 3; without the fo" in ended.err


def test_run_in_progress_is_left_alone(script: Script, whole: Path) -> None:
    with RunFolder(whole).claimed(None):
        ended = script("train_tetris", "--resume", whole)
    assert ended.status == 2
    assert f"expected {whole} to be at rest, but another process is training there" in ended.err


def test_run_killed_at_random_moments_is_the_run_never_stopped(tmp_path: Path) -> None:
    helper = Path(__file__).with_name("kill_and_resume.py")
    ended = subprocess.run(
        [sys.executable, str(helper), str(tmp_path), "10"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    assert metrics_of(tmp_path / "killed") == metrics_of(tmp_path / "whole")
    assert _weights(tmp_path / "killed") == _weights(tmp_path / "whole")
    # The kills did hit a running run, and between different checkpoints.
    assert len({step for step in report["steps"] if 0 < step < report["generations"]}) >= 4, (
        report
    )


def test_damaged_controller_is_one_line_and_is_left_alone(script: Script, whole: Path) -> None:
    (whole / "controller.json").write_text("{")
    ended = script("train_tetris", "--resume", whole)
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert f"{whole / 'controller.json'} holds no valid controller" in ended.err
    assert (whole / "controller.json").read_text() == "{"


def test_missing_controller_of_sound_checkpoints_is_made_again(
    script: Script, whole: Path
) -> None:
    weights = _weights(whole)
    (whole / "controller.json").unlink()
    assert script("train_tetris", "--resume", whole).status == 0
    assert _weights(whole) == weights
