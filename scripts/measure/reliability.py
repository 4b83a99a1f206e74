"""Break training runs in every way that can be done on purpose, and count what is lost.

python scripts/measure reliability --json reliability.json
python scripts/measure reliability kill.3

Every trial ends with the run resumed and compared with the run that nothing happened to: metrics, weights
and scores. Lost is a trial whose result differs, whose newest usable checkpoint is older than before, that
prints a traceback, or that takes longer than it may. All moments and damages are random with a fixed seed.
"""

from __future__ import annotations

import argparse
import functools
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from measure.cli import Options, choice, measurement
from measure.damaged_runs import trials
from measure.jobs import (
    HUNG_AFTER,
    LONG,
    RECIPE,
    SHORT,
    SIGNALS,
    TRAIN,
    Job,
    begun_or_new,
    hang,
    kill_at_random,
    outcome,
    recorded,
    stage,
    traceback_in,
    train,
)
from measure.processes import called, start
from measure.provenance import Measured

SAVED_WITHIN_S = 10.0  # after a signal
HUNG_TIMEOUT_S, HUNG_SLACK_S = 3, 10.0
SIGNALLED = (*RECIPE, "--population=40", "--score-decisions=20000")
FULL = (*SHORT, "--score-decisions=20000")
LEAST_SIZE, MOST_SIZE = 100, 300_000  # bytes of a file: from less than a recipe to a page
TINY = (
    *("--device=python", "--features=holes,max_height,landing_height", "--board=5x6", "--population=4"),
    *("--streams=2", "--decisions=20", "--generations=3", "--score-decisions=64"),
)


class Trial(NamedTuple):
    """What came of one trial."""

    lost: str = ""  # what was lost, and how; empty where nothing was
    seconds: float | None = None  # until the state was saved, or the failure told
    hit: bool = True  # whether it hit a run in progress


Trials = Iterator[Trial]


def killed(root: Path, ranks: int, kills: int) -> Trials:
    """Kill a process of a run again and again."""
    recipe = (*LONG, stage(10 * kills, 1000))
    train(1, root / "log", *recipe, "--out", root / "whole")
    said, steps = kill_at_random(root / "killed", ranks, kills, recipe)
    wrong = loss(root / "killed", root / "whole", said)
    for before, after in zip([0, *steps], steps, strict=False):
        older = f"generation {after} is kept after {before} was" if after < before else ""
        yield Trial(older or wrong, hit=after > 0)


def signalled(root: Path, ranks: int, number: signal.Signals, attempts: int) -> Trials:
    """Send a signal to a run, to torchrun where there are ranks, at a random moment; resume it."""
    recipe, chance = (*SIGNALLED, stage(20, 2000)), random.Random(int(number))
    # What compiles is no part of the run that is timed: moments would lie behind the end of the others.
    train(ranks, root / "log", *recipe, "--generations=1", "--out", root / "compiled")
    began = time.monotonic()
    train(ranks, root / "log", *recipe, "--out", root / "whole")
    duration, made = time.monotonic() - began, 0
    for trial in count():
        if made == attempts:
            return
        folder = root / f"{ranks}-{number.name}-{trial}"
        job = Job(ranks, folder.with_suffix(".log"), *recipe, "--out", folder)
        if ranks > 1:  # before its ranks are there, torchrun ends with a traceback of its own
            job.until(lambda folder=folder: recorded(folder) >= 1)  # type: ignore[misc]
        time.sleep(chance.uniform(0.0, duration if ranks == 1 else duration / 3))
        if job.over:
            continue
        job.process.send_signal(number)
        sent = time.monotonic()
        _, said = job.wait()
        seconds = time.monotonic() - sent
        late = f"{seconds:.1f} s after {number.name}" if seconds > SAVED_WITHIN_S else ""
        hit = f"stopped by {number.name}" in said
        yield Trial(late or resumed(folder, root / "whole", recipe, said), seconds, hit)
        made += 1


def full_disk(root: Path, attempts: int) -> Trials:
    """Let no file grow beyond a random size, as where a disk is full; resume the run where there is room."""
    chance = random.Random(0)
    train(1, root / "log", *FULL, "--out", root / "whole")
    for trial in range(attempts):
        size = round(LEAST_SIZE * (MOST_SIZE / LEAST_SIZE) ** chance.random())
        full = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (size, size))
        folder, told = root / f"full-{trial}", {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with start(TRAIN, *FULL, "--out", folder, preexec_fn=full, **told) as process:
            said, _ = process.communicate()
        wrong = "" if process.returncode in (0, 2) else f"status {process.returncode}: {said[-500:]}"
        yield Trial(wrong or resumed(folder, root / "whole", FULL, said), hit=process.returncode == 2)


def damaged(root: Path, attempts: int) -> Trials:
    """Damage the files of a finished run, and let every command read it."""
    (root / "sound").mkdir()
    sound = root / "sound" / "mine"
    ended = called("train_tetris", *TINY, "--out", sound)
    if ended.status:
        raise RuntimeError(f"expected a run to end well, got {ended}")
    for found in trials(called, sound, root, attempts, seed=0):
        yield Trial("\n".join(found))


def hung(root: Path, attempts: int) -> Trials:
    """Let one of two ranks hang; resume the run."""
    recipe = (*LONG, stage(60))
    train(1, root / "log", *recipe, "--out", root / "whole")
    for trial in range(attempts):
        folder = root / f"hung-{trial}"
        seconds, status, said = hang(folder, recipe, HUNG_TIMEOUT_S)
        late = "" if seconds < HUNG_TIMEOUT_S + HUNG_SLACK_S else f"{seconds:.1f} s"
        wrong = "" if status == 1 and HUNG_AFTER in said else f"status {status}: {said[-500:]}"
        yield Trial(late or wrong or resumed(folder, root / "whole", recipe, said), seconds)


def resumed(folder: Path, whole: Path, recipe: tuple[object, ...], said: str) -> str:
    """Resume a run to its end in one process; return what was lost."""
    try:
        said += train(1, folder.with_suffix(".resumed.log"), *begun_or_new(folder, recipe))
    except RuntimeError as error:
        return str(error)
    return loss(folder, whole, said)


def loss(folder: Path, whole: Path, said: str) -> str:
    """Return in what a run differs from the one that nothing happened to, or its output with a traceback."""
    if traceback_in(said):
        return said[-2000:]
    parts = zip(("metrics", "weights", "scores"), outcome(folder), outcome(whole), strict=True)
    return ", ".join(name for name, found, wanted in parts if found != wanted)


KINDS: dict[str, Callable[[Path], Trials]] = {
    "damaged": functools.partial(damaged, attempts=1000),
    "kill.1": functools.partial(killed, ranks=1, kills=50),
    "kill.3": functools.partial(killed, ranks=3, kills=50),
    **{
        f"{each.name}.{ranks}": functools.partial(signalled, ranks=ranks, number=each, attempts=attempts)
        for ranks, attempts in ((1, 10), (2, 4))
        for each in SIGNALS
    },
    "hung": functools.partial(hung, attempts=5),
    "full_disk": functools.partial(full_disk, attempts=20),
}


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return attempts and losses of every kind of trial."""
    figures: dict[str, float] = {}
    data: dict[str, Any] = {}
    for name in arguments.trials or KINDS:
        with tempfile.TemporaryDirectory() as folder:
            found = list(KINDS[name](Path(folder)))
        seconds = [each.seconds for each in found if each.seconds is not None]
        told = {
            "attempts": len(found),
            "hit": sum(each.hit for each in found),
            "lost": sum(bool(each.lost) for each in found),
            **({"slowest_seconds": max(seconds)} if seconds else {}),
        }
        figures |= {f"reliability.{name}.{key}": value for key, value in told.items()}
        data[name] = {"lost": [each.lost for each in found if each.lost], "seconds": seconds}
        print(name, *(f"{key} {value:.4g}" for key, value in told.items()), file=sys.stderr, flush=True)
    return figures, data, {}


NAMES: Options = {"trials": {"nargs": "*", **choice("trial", tuple(KINDS))}}
main = measurement(measure, __doc__, NAMES, "[TRIAL ...]", ("cpu",))
