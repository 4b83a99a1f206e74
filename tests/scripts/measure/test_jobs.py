"""scripts/measure/jobs.py: runs that are broken on purpose."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from measure import jobs


def test_a_run_heeds_the_signals_that_its_starter_ignores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train_tetris.py"
    script.write_text("import signal\nprint(signal.getsignal(signal.SIGHUP) is signal.SIG_DFL)\n")
    monkeypatch.setattr(jobs, "TRAIN", str(script))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    try:
        job = jobs.Job(1, tmp_path / "log")
    finally:
        signal.signal(signal.SIGHUP, before)
    assert job.wait() == (0, "True\n")


def test_a_run_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "train_tetris.py"
    script.write_text("import time\nprint('begun', flush=True)\ntime.sleep(600)\n")
    monkeypatch.setattr(jobs, "TRAIN", str(script))
    job = jobs.Job(1, tmp_path / "log")
    job.until(lambda: "begun" in job.log.read_text())
    with pytest.raises(RuntimeError, match=r"within 0.1 s, it said begun"):
        job.wait(0.1)
    assert job.over
