"""The folder of a run: what is read from it, its starts, its lock, and what is not its own."""

from __future__ import annotations

import errno
import fcntl
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sample_runs import make_run

from tetris import LinearController, resolve
from tetris.report.page import report_page
from tetris.training import load_run, run_folder
from tetris.training.run_folder import RunFolder, read_records, start_record

Script = Callable[..., Any]


def test_a_run_is_shown_in_a_line(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "mine"))
    assert (
        repr(run)
        == "<RunRecord mine: holes,max_height, population 4, seed 3, on 5x6, 3 generations>"
    )


def test_a_run_is_taken_for_its_controller(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "mine"))
    assert (
        run.controller == resolve(tmp_path / "mine") == LinearController.load(tmp_path / "mine")
    )


def test_a_damaged_line_of_the_metrics_is_named(tmp_path: Path) -> None:
    path = make_run(tmp_path / "mine")
    metrics = path / "metrics.jsonl"
    first, *others = metrics.read_text().splitlines()
    metrics.write_text("\n".join([first, "", *others, ""]))
    with pytest.raises(ValueError, match=r"metrics.jsonl: line 2: Expecting value"):
        load_run(path)
    metrics.write_text(json.dumps({**json.loads(first), "lines": True}) + "\n")
    with pytest.raises(ValueError, match=r"line 1: lines: expected a whole number, got True"):
        load_run(path)


def test_a_link_in_a_run_is_neither_read_nor_written_through(
    script: Script, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run")
    (tmp_path / "mine").write_text("mine")
    (run / "report.html").symlink_to(tmp_path / "mine")
    for command in (
        ("train_tetris", "--resume"),
        ("report_tetris",),
        ("report_tetris", "--serve"),
    ):
        ended = script(*command, run)
        assert (ended.status, ended.err.count("\n")) == (2, 1)
        assert f"{run / 'report.html'}: expected a file of its own, got a link" in ended.err
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_record_tells_command_and_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["python -m tetris train", "--out", "a b"])
    record = start_record("cpu")
    assert record["command"] == "python -m tetris train --out 'a b'"
    assert " core" in record["hardware"]
    monkeypatch.setattr("sys.argv", ["scripts/train_tetris.py", "--seed", "1"])
    assert start_record("cpu")["command"] == "python scripts/train_tetris.py --seed 1"


def test_each_start_of_a_run_is_recorded_and_told(tmp_path: Path) -> None:
    folder = RunFolder(make_run(tmp_path / "mine"))
    with folder.starts.open("a") as file:
        file.write('{"date": "2026-')  # The disk was full.
    with folder.claimed(None):
        assert folder.in_use()
        folder.add_start("cpu")
    assert not folder.in_use()
    run = load_run(folder.path)
    assert len(run.starts) == 2
    assert report_page([run]).count(run.starts[0]["hardware"]) == 2


def test_an_old_config_has_the_settings_of_its_day(tmp_path: Path) -> None:
    folder = RunFolder(make_run(tmp_path / "mine"))
    config = json.loads(folder.config.read_text())
    del config["halvings"], config["burn_in"]
    folder.config.write_text(json.dumps(config))
    recipe = folder.recipe()
    assert (recipe.halvings, recipe.burn_in) == (0, 203)


def test_a_run_trains_on_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    folder = RunFolder(make_run(tmp_path / "mine"))
    assert f"note: {folder.path} is on a file system without locks" in capsys.readouterr().err
    assert not folder.in_use()


def test_the_line_that_a_run_is_writing_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert read_records(path) == []
    path.write_text('{"a": 1}\n{"a": 2}\n{"a":')
    assert read_records(path) == [{"a": 1}, {"a": 2}]


def test_a_commit_has_a_plus_where_files_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "_ROOT", tmp_path)
    assert run_folder.commit() == ""
    (tmp_path / "file").write_text("old")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "file"], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    clean = run_folder.commit()
    (tmp_path / "file").write_text("new")
    assert (len(clean), run_folder.commit()) == (40, f"{clean}+")
