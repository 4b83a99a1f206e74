"""Training runs in processes of their own, alone or as ranks, that are killed and stopped."""

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
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sample_runs import metrics_of

from cem.checkpoint import CheckpointError, read_checkpoint
from tetris.training.run_folder import RunFolder

ROOT = Path(__file__).parents[1]
TRAIN = str(ROOT / "scripts" / "train_tetris.py")
TORCHRUN = (
    *(sys.executable, "-m", "torch.distributed.run"),
    *("--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"),
)
RECIPE = ("--device=cpu", "--backend=cpu", "--features=dt", "--elites=5", "--streams=32", "--decisions=240")
SHORT = (*RECIPE, "--population=22", "--curriculum=10x8:3:240,10x10:2:240:split", "--generations=2")
LONG = (*RECIPE, "--population=40", "--score-decisions=0")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_OURS = re.compile(rf'File "{re.escape(str(ROOT))}/(cem|kernels|scripts|tetris)/')
_NEAR_A_CHECKPOINT = 0.75  # of the kills
_MOMENT_S, _POLL_S = 0.3, 0.02


def environment() -> dict[str, str]:
    """Return the environment for a process of this checkout."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def stage(generations: int, decisions: int = 500) -> str:
    """Return the flag of a curriculum of one stage; 1000 decisions make some generations a second."""
    return f"--curriculum=10x8:{generations}:{decisions}"


def _heed_signals() -> None:
    """Undo what nohup and shells without job control do to what they start: a run then ignores the signal."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_DFL)


class Job:
    """A run of ranks with its output in a file; `wait` leaves nothing of it behind.

    Attributes:
        process: The process itself, or torchrun.
        log: The file.
    """

    def __init__(self, ranks: int, log: Path, *arguments: object, restarts: int = 0, **options: Any) -> None:
        """Start ``scripts/train_tetris.py`` as one process or as ranks; ``options`` are those of `Popen`."""
        torchrun = (*TORCHRUN, f"--nproc-per-node={ranks}", f"--max-restarts={restarts}")
        launch = (sys.executable,) if ranks == 1 else torchrun
        words = [*launch, TRAIN, *map(str, arguments)]
        self.log = log
        options = {"env": environment(), "preexec_fn": _heed_signals, **options}
        with log.open("a") as out:
            self.process = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, **options)

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    def workers(self) -> list[int]:
        """Return the processes of the ranks that torchrun has started."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                parent = re.search(r"PPid:\t(\d+)", (entry / "status").read_text())
                words = (entry / "cmdline").read_bytes()
                if parent and int(parent[1]) == self.process.pid and TRAIN.encode() in words:
                    found.append(int(entry.name))
        return sorted(found)

    def wait(self, seconds: float = 120.0) -> tuple[int, str]:
        """Wait for the end; return the exit status and the output.

        Raises:
            RuntimeError: If it takes longer; it is killed.
        """
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            for victim in (self.process.pid, *self.workers()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
            self.process.wait()
            said = self.log.read_text()[-3000:]
            raise RuntimeError(f"expected a run to end within {seconds} s, it said {said}") from None
        return self.process.returncode, self.log.read_text()

    def until(self, reached: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait for something that happens while it runs; RuntimeError where it ends or takes too long."""
        end = time.monotonic() + seconds
        while not reached():
            if self.over or time.monotonic() > end:
                raise RuntimeError(f"expected a run to go on, it said {self.wait(0.0)[1][-3000:]}")
            time.sleep(_POLL_S)


def train(ranks: int, log: Path, *arguments: object) -> str:
    """Train to the end; return the output. RuntimeError where it fails."""
    status, said = Job(ranks, log, *arguments).wait(400.0)
    if status:
        raise RuntimeError(f"expected a run to end well, got {status}: {said[-3000:]}")
    return said


def outcome(folder: Path) -> tuple[list[dict[str, Any]], list[float], list[dict[str, Any]]]:
    """Return what a run has that is no time: metrics, weights, and the score on its first board."""
    run = RunFolder(folder)
    controller = json.loads(run.controller.read_text())
    names = ("controller", "board", "lines", "games", "ci95")
    return (
        metrics_of(folder),
        controller["weights"],
        [{name: each[name] for name in names} for each in (controller["provenance"]["score"] or [])[:1]],
    )


def recorded(folder: Path) -> int:
    """Return the generation of the newest checkpoint; 0 where there is none."""
    names = (path.stem for path in RunFolder(folder).checkpoints.glob("checkpoint-*.json"))
    return max((int(name.rpartition("-")[2]) for name in names), default=0)


def kept(folder: Path) -> int:
    """Return the generation of the newest checkpoint that can be used; 0 where there is none."""
    for path in sorted(RunFolder(folder).checkpoints.glob("checkpoint-*.json"), reverse=True):
        with contextlib.suppress(CheckpointError):
            return read_checkpoint(path)[0]
    return 0


def traceback_in(said: str) -> bool:
    """Return whether a traceback of this project was printed; torchrun prints one of its own on a signal."""
    return "Traceback" in said and _OURS.search(said) is not None


def kill_at_random(folder: Path, ranks: int, kills: int, recipe: tuple[object, ...]) -> tuple[str, list[int]]:
    """Train while a random rank is killed again and again, and to the end; torchrun starts them again.

    Three quarters of the kills come within a moment of a new checkpoint, the others whenever all ranks are
    there.

    Returns:
        The output, and the generation of the newest usable checkpoint after each kill.

    Raises:
        RuntimeError: If the run ends too early or badly.
    """
    log, moments, steps = folder.with_name(f"{folder.name}.log"), random.Random(0), list[int]()
    job = Job(ranks, log, *recipe, "--out", folder, restarts=3 * kills)
    before: set[int] = set()
    while len(steps) < kills:
        job.until(lambda old=before: len(job.workers()) == ranks and not old & set(job.workers()))
        victims = job.workers()
        if moments.random() < _NEAR_A_CHECKPOINT:
            goal = recorded(folder) + 1
            job.until(lambda goal=goal: recorded(folder) >= goal)
        time.sleep(moments.uniform(0.0, _MOMENT_S))
        with contextlib.suppress(ProcessLookupError):  # it may have failed by itself
            os.kill(moments.choice(victims), signal.SIGKILL)
            steps.append(kept(folder))
        before = set(victims)
    status, said = job.wait(600.0)
    if status:
        raise RuntimeError(f"expected a run to end well, got {status}: {said[-3000:]}")
    return said, steps
