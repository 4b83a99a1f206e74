"""A run of processes that torchrun starts: that of one process, bit for bit, whatever dies on the way."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPTS = ROOT / "scripts"
TRAIN = str(SCRIPTS / "train_tetris.py")
TORCHRUN = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--rdzv-backend=c10d",
    "--rdzv-endpoint=localhost:0",
]
RECIPE = ["--device=cpu", "--backend=cpu", "--features=dt", "--elites=5", "--streams=32", "--decisions=240"]
SHORT = [*RECIPE, "--population=22", "--curriculum=10x8:3:240,10x10:2:240:split", "--generations=2"]
LONG = [*RECIPE, "--population=40", "--score-decisions=0"]
HARD = 1000  # decisions on a stream: some generations a second


def stage(generations: int, decisions: int = 500) -> str:
    return f"--curriculum=10x8:{generations}:{decisions}"


CLOCK = re.compile(r"/s$|^seconds$|^elapsed_s$")


def command(ranks: int, *arguments: str, restarts: int = 0) -> list[str]:
    if ranks == 1:
        return [sys.executable, TRAIN, *arguments]
    return [*TORCHRUN, f"--nproc-per-node={ranks}", f"--max-restarts={restarts}", TRAIN, *arguments]


class Job:
    """A command with its output in a file, and what it started: none of it is left behind."""

    def __init__(self, words: list[str], log: Path, **variables: str) -> None:
        self.log = log
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
        with log.open("w") as out:
            self.process = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, env=environment)

    @property
    def over(self) -> bool:
        return self.process.poll() is not None

    def workers(self) -> list[int]:
        """Return the processes of the ranks."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                parent = re.search(r"PPid:\t(\d+)", (entry / "status").read_text())
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if parent and int(parent[1]) == self.process.pid and TRAIN.encode() in words:
                found.append(int(entry.name))
        return sorted(found)

    def wait(self, seconds: float = 120.0) -> tuple[int, str]:
        """Wait for the end; return the exit status and the output."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            for victim in (self.process.pid, *self.workers()):
                os.kill(victim, signal.SIGKILL)
            self.process.wait()
            raise AssertionError(f"still running after {seconds} s: {self.log.read_text()[-3000:]}") from None
        return self.process.returncode, self.log.read_text()


def train(ranks: int, log: Path, *arguments: str) -> str:
    status, out = Job(command(ranks, *arguments), log).wait(400)
    assert status == 0, out
    return out


def outcome(folder: Path) -> tuple[list[dict[str, object]], list[float], list[dict[str, object]]]:
    """Return what a run has that is no time: metrics, weights, scores."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    controller = json.loads((folder / "controller.json").read_text())
    scores = controller["provenance"]["score"] or []
    return (
        [{name: value for name, value in line.items() if not CLOCK.search(name)} for line in lines],
        controller["weights"],
        [
            {name: each[name] for name in ("controller", "board", "lines", "games", "ci95")}
            for each in scores[:1]
        ],
    )


def recorded(folder: Path) -> int:
    newest = max((folder / "checkpoints").glob("checkpoint-*.json"), default=None)
    return 0 if newest is None else int(newest.stem.rpartition("-")[2])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(1, folder.with_name("log"), *SHORT, "--score-decisions=20000", "--out", str(folder))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
def test_any_number_of_ranks_gives_the_run_of_one_process(whole: Path, tmp_path: Path, ranks: int) -> None:
    out = train(ranks, tmp_path / "log", *SHORT, "--score-decisions=20000", "--out", str(tmp_path / "run"))

    assert outcome(tmp_path / "run") == outcome(whole)
    assert out.count("lines a game on 10x20") <= 1  # rank 0 alone prints


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_ranks(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(
        2, tmp_path / "log", *SHORT, "--score-decisions=20000", "--out", str(folder), "--time-limit", "0.05"
    )
    assert recorded(folder) < 7
    train(3, tmp_path / "log", "--resume", str(folder), "--time-limit", "0.05")
    train(1, tmp_path / "log", "--resume", str(folder))

    assert outcome(folder) == outcome(whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["evaluate_tetris.py", "dt20", "bcts", "--board=10x10", "--games=50", "--json"],
        ["estimate_tetris.py", "best", "--decisions=1000", "--streams=64", "--json"],
    ],
    ids=lambda words: words[0],
)
def test_scores_and_estimates_are_those_of_one_process(words: list[str]) -> None:
    script, *arguments = words
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = []
    for launch in ([sys.executable], [*TORCHRUN, "--nproc-per-node=3"]):
        command = [*launch, str(SCRIPTS / script), *arguments]
        said = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
        found.append([{k: v for k, v in each.items() if "second" not in k} for each in json.loads(said)])

    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize("kills", [30])
def test_a_run_whose_ranks_are_killed_is_the_run_never_stopped(tmp_path: Path, kills: int) -> None:
    recipe = [*LONG, stage(6 * kills, HARD)]
    train(1, tmp_path / "log", *recipe, "--out", str(tmp_path / "whole"))
    folder, moments, steps = tmp_path / "killed", random.Random(0), []
    job = Job(command(3, *recipe, "--out", str(folder), restarts=3 * kills), tmp_path / "log")
    before: list[int] = []
    while len(steps) < kills:
        ranks = job.workers()
        assert not job.over, job.wait()
        if len(ranks) < 3 or set(ranks) & set(before):
            time.sleep(0.02)
            continue
        if moments.random() < 0.75:
            goal, patience = recorded(folder) + 1, time.monotonic() + 30
            while recorded(folder) < goal and time.monotonic() < patience:
                time.sleep(0.005)
        time.sleep(moments.uniform(0.0, 0.3))
        with contextlib.suppress(ProcessLookupError):  # it may have failed by itself
            os.kill(moments.choice(ranks), signal.SIGKILL)
            steps.append(recorded(folder))
        before = ranks
    status, out = job.wait(400)

    assert status == 0, out
    assert outcome(folder) == outcome(tmp_path / "whole")
    assert len({step for step in steps if step > 0}) >= kills // 4, steps


def training(job: Job, folder: Path) -> list[int]:
    """Return the ranks of a job once it trains."""
    while recorded(folder) < 2:
        assert not job.over, job.wait()
        time.sleep(0.02)
    return job.workers()


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_torchrun_saves_within_ten_seconds(tmp_path: Path, signum: signal.Signals) -> None:
    folder = tmp_path / "run"
    job = Job(command(2, *LONG, stage(120), "--out", str(folder)), tmp_path / "log")
    training(job, folder)
    began = time.monotonic()
    job.process.send_signal(signum)
    _, out = job.wait()

    assert time.monotonic() - began < 10
    assert f"stopped by {signum.name} after {recorded(folder)} of 120 generations" in out
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == recorded(folder)


@pytest.mark.slow
def test_a_rank_that_hangs_ends_the_run_with_a_message(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    job = Job(
        command(2, *LONG, stage(120), "--out", str(folder)), tmp_path / "log", CEM_TETRIS_RANK_TIMEOUT="3"
    )
    hung = training(job, folder)[1]
    os.kill(hung, signal.SIGSTOP)
    began = time.monotonic()
    while "expected all ranks to answer" not in (tmp_path / "log").read_text():
        assert time.monotonic() - began < 20
        time.sleep(0.1)
    os.kill(hung, signal.SIGKILL)  # torchrun would wait half a minute for it
    status, out = job.wait()

    assert status == 1
    assert "error: expected all ranks to answer, but one has gone or hangs" in out
