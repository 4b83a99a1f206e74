"""A run of processes that torchrun starts: that of one process, bit for bit, whatever dies on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jobs import HUNG_AFTER, LONG, SHORT, TORCHRUN, Job, kill_at_random, outcome, recorded, stage

ROOT = Path(__file__).parents[3]
SCRIPTS = ROOT / "scripts"
HARD = 1000  # decisions on a stream: some generations a second


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    Job(1, folder.with_name("log"), *SHORT, "--score-decisions=20000", "--out", folder).finish()
    return folder


@pytest.mark.slow
def test_any_number_of_ranks_gives_the_run_of_one_process(whole: Path, tmp_path: Path) -> None:
    out = Job(3, tmp_path / "log", *SHORT, "--score-decisions=20000", "--out", tmp_path / "run").finish()

    assert outcome(tmp_path / "run") == outcome(whole)
    assert out.count("lines a game on 10x20") <= 1  # rank 0 alone prints


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_ranks(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    flags = (*SHORT, "--score-decisions=20000", "--time-limit=0.05")
    Job(2, tmp_path / "log", *flags, "--out", folder).finish()
    assert recorded(folder) < 7
    Job(1, tmp_path / "log", "--resume", folder).finish()

    assert outcome(folder) == outcome(whole)


@pytest.mark.slow
def test_scores_are_those_of_one_process() -> None:
    script, *arguments = "evaluate_tetris.py", "dt20", "bcts", "--board=10x10", "--games=50", "--json"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = []
    for launch in ([sys.executable], [*TORCHRUN, "--nproc-per-node=3"]):
        command = [*launch, str(SCRIPTS / script), *arguments]
        said = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
        found.append([{k: v for k, v in each.items() if "second" not in k} for each in json.loads(said)])

    assert found[0] == found[1]


@pytest.mark.slow
def test_a_run_whose_ranks_are_killed_is_the_run_never_stopped(
    tmp_path: Path,
) -> None:
    ranks, kills = 2, 2
    recipe = (*LONG, stage(10 * kills, HARD))
    Job(1, tmp_path / "log", *recipe, "--out", tmp_path / "whole").finish()
    out, steps = kill_at_random(tmp_path / "killed", ranks, kills, recipe)

    assert f'File "{ROOT}/' not in out  # torchrun prints a traceback of its own
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "whole")
    assert steps == sorted(steps)
    assert max(steps) > 0, steps


@pytest.mark.slow
def test_a_signal_to_torchrun_saves_within_ten_seconds(tmp_path: Path) -> None:
    signum, folder = signal.SIGTERM, tmp_path / "run"
    job = Job(2, tmp_path / "log", *LONG, stage(120), "--out", folder)
    job.until(lambda: recorded(folder) >= 2)
    began = time.monotonic()
    job.process.send_signal(signum)
    _, out = job.wait()

    assert time.monotonic() - began < 10
    assert f"stopped by {signum.name} after {recorded(folder)} of 120 generations" in out
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == recorded(folder)


@pytest.mark.slow
def test_a_rank_that_hangs_ends_the_run_with_a_message(tmp_path: Path) -> None:
    folder, log = tmp_path / "run", tmp_path / "log"
    job = Job(2, log, *LONG, stage(120), "--out", folder, CEM_TETRIS_RANK_TIMEOUT="3")
    job.until(lambda: recorded(folder) >= 2)
    victim = job.workers()[1]
    os.kill(victim, signal.SIGSTOP)
    job.until(lambda: HUNG_AFTER in log.read_text(), 20.0)
    os.kill(victim, signal.SIGKILL)  # torchrun would wait half a minute for it
    status, out = job.wait()

    assert status == 1
    assert f"error: {HUNG_AFTER}, but one has gone or hangs" in out
