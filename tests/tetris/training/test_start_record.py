"""tetris/training/start_record.py: hardware, commit and command of each start."""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path

import pytest
from sample_runs import make_run

from tetris.report.page import report_page
from tetris.training.run_folder import RunFolder
from tetris.training.run_record import load_run
from tetris.training.start_record import add_start, read_starts, start_record


def test_a_record_tells_command_and_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["python -m tetris train", "--out", "a b"])
    record = start_record("cpu")
    assert record["command"] == "python -m tetris train --out 'a b'"
    assert " core" in record["hardware"]
    monkeypatch.setattr("sys.argv", ["scripts/train_tetris.py", "--seed", "1"])
    assert start_record("cpu")["command"] == "python scripts/train_tetris.py --seed 1"


def test_each_start_of_a_run_is_recorded_and_told(tmp_path: Path) -> None:
    folder = RunFolder(make_run(tmp_path / "mine"))
    with folder.claimed(None):
        assert folder.in_use()
        add_start(folder.starts, "cpu")
    assert not folder.in_use()
    run = load_run(folder.path)
    assert len(run.starts) == 2
    assert report_page(run).count(run.starts[0]["hardware"]) == 2


def test_a_run_trains_on_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    folder = RunFolder(make_run(tmp_path / "mine"))
    assert f"note: {folder.path} is on a file system without locks" in capsys.readouterr().err
    assert not folder.in_use()


def test_damaged_lines_tell_nothing(tmp_path: Path) -> None:
    folder = RunFolder(make_run(tmp_path / "mine"))
    folder.starts.write_text('{"commit": 1}\n7\n{"da')
    assert read_starts(folder.starts) == [{"commit": 1}]
    folder.starts.unlink()
    run = load_run(folder.path)
    assert run.starts == []
    assert "Starts of the run" not in report_page(run)


def test_a_torn_last_line_costs_no_later_start(tmp_path: Path) -> None:
    path = tmp_path / "starts.jsonl"
    add_start(path, "cpu")
    (first,) = read_starts(path)
    add_start(path, "cpu")
    path.write_bytes(path.read_bytes()[:-20])
    add_start(path, "cpu")
    add_start(path, "cpu")
    assert len(path.read_text().splitlines()) == 4
    assert [record["command"] for record in read_starts(path)] == [first["command"]] * 3
