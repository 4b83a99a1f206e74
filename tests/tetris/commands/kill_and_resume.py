"""Kill a training run at random moments and resume it: started by test_train_resume.py.

The run that is never killed syncs at once. Every other killed run defers host sync, as on a
GPU.

A process of its own, so that it can fork: a fork from pytest would inherit its threads.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from sample_runs import TINY

import cem.run.trainer
from tetris.commands import train
from tetris.training import training

GENERATIONS = 40
RECIPE = tuple(map(str, (*TINY, "--generations", GENERATIONS)))


def start(*arguments: str, deferred: bool = False) -> int:
    """Train in a child; return its number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        cem.run.trainer.defers_sync = lambda device: deferred
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
            sys.argv[1:] = arguments
            code = train.main()
    finally:
        os._exit(code)


def newest(folder: Path) -> int:
    """Return the number of the newest checkpoint; 0 where there is none."""
    return max((int(path.stem[-6:]) for path in folder.glob("checkpoints/*.json")), default=0)


def kill_later(child: int, folder: Path, moments: random.Random) -> None:
    """Kill a run some generations on, before its last, or in the first milliseconds of its
    life."""
    if moments.random() < 0.75:
        goal = min(newest(folder) + moments.randint(1, 6), GENERATIONS - 1)
        while newest(folder) < goal and os.waitpid(child, os.WNOHANG) == (0, 0):
            time.sleep(0.0005)
    time.sleep(moments.uniform(0.0, 0.01))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def main(root: Path, kills: int) -> None:
    """Train once without and once with being killed."""
    training.CHECKPOINT_SECONDS = 0.0
    sys.modules["matplotlib.figure"] = None  # type: ignore[assignment]  # a picture takes longer than the run
    train.report = lambda *arguments, **options: None  # so does a report
    gc.collect()
    gc.freeze()  # or a child may look through all that was imported before it begins
    assert os.waitpid(start(*RECIPE, "--out", str(root / "whole")), 0)[1] == 0
    folder, moments, steps = root / "killed", random.Random(0), []

    def go_on(deferred: bool) -> int:
        begun = (folder / "config.json").exists()
        arguments = ("--resume", str(folder)) if begun else (*RECIPE, "--out", str(folder))
        return start(*arguments, deferred=deferred)

    for count in range(kills):
        kill_later(go_on(deferred=count % 2 == 0), folder, moments)
        steps.append(newest(folder))
    assert os.waitpid(go_on(deferred=True), 0)[1] == 0
    print(json.dumps({"steps": steps, "generations": GENERATIONS}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
