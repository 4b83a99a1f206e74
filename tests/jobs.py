"""Training runs in processes of their own, alone or as ranks, that are killed, stopped and resumed."""

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
HUNG_AFTER = "expected all ranks to answer"  # what the ranks say that wait for one

_POLL_S = 0.005


def environment() -> dict[str, str]:
    """Return the environment for a process of this checkout."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def stage(generations: int, decisions: int = 500) -> str:
    """Return the flag of a curriculum of one stage; 1000 decisions make some generations a second."""
    return f"--curriculum=10x8:{generations}:{decisions}"


class Job:
    """A run of ranks with its output in a file; `wait` leaves nothing of it behind.

    Attributes:
        process: The process itself, or torchrun.
        log: The file.
    """

    def __init__(
        self, ranks: int, log: Path, *arguments: object, restarts: int = 0, **variables: str
    ) -> None:
        """Start ``scripts/train_tetris.py`` as one process or as ranks, with some environment variables."""
        torchrun = (*TORCHRUN, f"--nproc-per-node={ranks}", f"--max-restarts={restarts}")
        command = [*((sys.executable,) if ranks == 1 else torchrun), TRAIN, *map(str, arguments)]
        self.log = log
        # What starts the tests may ignore signals, as nohup and shells without job control do.
        heed = lambda: [signal.signal(each, signal.SIG_DFL) for each in (signal.SIGINT, signal.SIGHUP)]  # noqa: E731
        options: dict[str, Any] = {"env": {**environment(), **variables}, "preexec_fn": heed}
        with log.open("a") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, **options)

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

    def finish(self, seconds: float = 400.0) -> str:
        """Wait for the end; return the output. RuntimeError where it fails."""
        status, said = self.wait(seconds)
        if status:
            raise RuntimeError(f"expected a run to end well, got {status}: {said[-3000:]}")
        return said

    def until(self, reached: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait for something that happens while it runs; RuntimeError where it ends or takes too long."""
        end = time.monotonic() + seconds
        while not reached():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"expected a run to go on, it said {self.wait(0.0)[1][-3000:]}")
            time.sleep(_POLL_S)


def outcome(folder: Path) -> tuple[list[dict[str, Any]], list[float], list[dict[str, Any]]]:
    """Return what a run has that is no time: metrics, weights, and the score on its first board."""
    controller = json.loads(RunFolder(folder).controller.read_text())
    names = ("controller", "board", "lines", "games", "ci95")
    scores = (controller["provenance"]["score"] or [])[:1]
    return (
        metrics_of(folder),
        controller["weights"],
        [{name: each[name] for name in names} for each in scores],
    )


def recorded(folder: Path) -> int:
    """Return the generation of the newest checkpoint; 0 where there is none."""
    names = (path.stem for path in RunFolder(folder).checkpoints.glob("checkpoint-*.json"))
    return max((int(name.rpartition("-")[2]) for name in names), default=0)


def kill_at_random(folder: Path, ranks: int, kills: int, recipe: tuple[object, ...]) -> tuple[str, list[int]]:
    """Train while a random rank is killed again and again, a moment after a new checkpoint, and to the end.

    ``torchrun --max-restarts`` starts the ranks again.

    Returns:
        The output, and the generation of the newest checkpoint after each kill.

    Raises:
        RuntimeError: If the run ends too early or badly.
    """
    moments, steps = random.Random(0), list[int]()
    job = Job(ranks, folder.with_name(f"{folder.name}.log"), *recipe, "--out", folder, restarts=3 * kills)
    before: set[int] = set()

    def started_again() -> bool:
        now = {*job.workers()}
        return len(now) == ranks and not before & now

    for _ in range(kills):
        job.until(started_again)
        last = recorded(folder)
        job.until(lambda last=last: recorded(folder) > last)  # type: ignore[misc]
        time.sleep(moments.uniform(0.0, 0.3))
        before = {*job.workers()}
        os.kill(moments.choice(sorted(before)), signal.SIGKILL)
        steps.append(recorded(folder))
    return job.finish(), steps
