"""A run of processes that torchrun starts: that of one process, bit for bit, whatever dies on
the way."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sample_runs import metrics_of

from tetris.training.run_folder import RunFolder

ROOT = Path(__file__).parents[3]
TRAIN = str(ROOT / "scripts" / "train_tetris.py")
TORCHRUN = (
    *(sys.executable, "-m", "torch.distributed.run"),
    *("--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"),
)
RECIPE = (
    "--device=cpu",
    "--backend=cpu",
    "--features=dt",
    "--elites=5",
    "--streams=32",
    "--decisions=240",
)
SHORT = (
    *RECIPE,
    "--population=22",
    "--curriculum=10x8:3:240,10x10:2:240:split",
    "--generations=2",
)
LONG = (*RECIPE, "--population=40", "--score-decisions=0")
HUNG_AFTER = "expected all ranks to answer"  # what the ranks say that wait for one

_POLL_S = 0.005


def environment() -> dict[str, str]:
    """Return the environment for a process of this checkout."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def stage(generations: int, decisions: int = 500) -> str:
    """Return the flag of a curriculum of one stage; 1000 decisions make ten generations per
    second on two cores. The first checkpoint is written after a second."""
    return f"--curriculum=10x8:{generations}:{decisions}"


class Job:
    """A run of ranks with its output in a file; `finish` leaves nothing of it behind.

    Attributes:
        process: The process itself, or torchrun.
        log: The file.
    """

    def __init__(
        self, ranks: int, log: Path, *arguments: object, restarts: int = 0, **variables: str
    ) -> None:
        """Start ``scripts/train_tetris.py`` as one process or as ranks, with some environment
        variables."""
        torchrun = (*TORCHRUN, f"--nproc-per-node={ranks}", f"--max-restarts={restarts}")
        command = [
            *((sys.executable,) if ranks == 1 else torchrun),
            TRAIN,
            *map(str, arguments),
        ]
        self.log = log

        # What starts the tests may ignore signals, as nohup and shells without job control do.
        def heed() -> None:
            for number in (signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)

        options: dict[str, Any] = {"env": {**environment(), **variables}, "preexec_fn": heed}
        with log.open("a") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, **options
            )

    def workers(self) -> list[int]:
        """Return the processes of the ranks that torchrun started."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                parent = re.search(r"PPid:\t(\d+)", (entry / "status").read_text())
                words = (entry / "cmdline").read_bytes()
                if parent and int(parent[1]) == self.process.pid and TRAIN.encode() in words:
                    found.append(int(entry.name))
        return sorted(found)

    def finish(self, status: int | None = 0, seconds: float = 400.0) -> str:
        """Wait for the end, by an exit status unless it is None; return the output. What hangs
        is killed."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            for victim in (self.process.pid, *self.workers()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
            self.process.wait()
            raise AssertionError(self.log.read_text()[-3000:]) from None
        said = self.log.read_text()
        assert status in (None, self.process.returncode), said[-3000:]
        return said

    def until(self, reached: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait for something that happens while it runs."""
        end = time.monotonic() + seconds
        while not reached():
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(self.finish(None, 0.0)[-3000:])
            time.sleep(_POLL_S)


def outcome(folder: Path) -> tuple[list[dict[str, Any]], list[float], list[dict[str, Any]]]:
    """Return what a run has that is no time: metrics, weights, and the score on its first
    board."""
    controller = json.loads(RunFolder(folder).controller.read_text())
    names = ("controller", "board", "lines", "games", "ci95")
    scores = [
        {name: each[name] for name in names} for each in controller["provenance"]["score"] or []
    ]
    return metrics_of(folder), controller["weights"], scores[:1]


def recorded(folder: Path) -> int:
    """Return the generation of the newest checkpoint; 0 where there is none."""
    names = (path.stem for path in RunFolder(folder).checkpoints.glob("checkpoint-*.json"))
    return max((int(name.rpartition("-")[2]) for name in names), default=0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    Job(1, folder.with_name("log"), *SHORT, "--score-decisions=20000", "--out", folder).finish()
    return folder


@pytest.mark.slow
def test_any_number_of_ranks_gives_the_run_of_one_process(whole: Path, tmp_path: Path) -> None:
    out = Job(
        3, tmp_path / "log", *SHORT, "--score-decisions=20000", "--out", tmp_path / "run"
    ).finish()

    assert outcome(tmp_path / "run") == outcome(whole)
    assert out.count("lines per game on 10x20") <= 1  # rank 0 alone prints


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
    script, *arguments = (
        "evaluate_tetris.py",
        "dt20",
        "dt10",
        "--board=10x10",
        "--games=50",
        "--json",
    )
    found = []
    for launch in ([sys.executable], [*TORCHRUN, "--nproc-per-node=2"]):
        command = [*launch, str(ROOT / "scripts" / script), *arguments]
        said = subprocess.run(
            command, capture_output=True, text=True, check=True, env=environment()
        ).stdout
        found.append(
            [{k: v for k, v in each.items() if "second" not in k} for each in json.loads(said)]
        )

    assert found[0] == found[1]


@pytest.mark.slow
def test_a_run_whose_ranks_are_killed_is_the_run_never_stopped(tmp_path: Path) -> None:
    folder, recipe = tmp_path / "killed", (*LONG, stage(60, 1000))
    Job(1, tmp_path / "log", *recipe, "--out", tmp_path / "whole").finish()
    job = Job(2, tmp_path / "killed.log", *recipe, "--out", folder, restarts=3)
    job.until(lambda: recorded(folder) > 0)
    os.kill(job.workers()[1], signal.SIGKILL)
    assert recorded(folder) < 60
    assert f'File "{ROOT}/' not in job.finish()  # torchrun prints a traceback of its own
    assert outcome(folder) == outcome(tmp_path / "whole")


@pytest.mark.slow
def test_a_signal_to_torchrun_saves_within_ten_seconds(tmp_path: Path) -> None:
    signum, folder = signal.SIGTERM, tmp_path / "run"
    job = Job(2, tmp_path / "log", *LONG, stage(120), "--out", folder)
    job.until(lambda: recorded(folder) >= 2)
    began = time.monotonic()
    job.process.send_signal(signum)
    out = job.finish(None)

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
    out = job.finish(1)

    assert f"error: {HUNG_AFTER}, but one has gone or hangs" in out
