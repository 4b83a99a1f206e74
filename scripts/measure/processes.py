"""Commands of this project in processes of their own, and measurements that take several commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernels.files import write_text
from measure.provenance import ROOT, commit
from tetris.training.run_folder import RunFolder
from tetris.versions import versions


def environment() -> dict[str, str]:
    """Return the environment for a process of this checkout."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def python(*arguments: object, timeout_s: float | None = None) -> str:
    """Run Python as a person would in the checkout; what it prints on stdout."""
    words = [sys.executable, *map(str, arguments)]
    try:
        done = subprocess.run(
            words,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment(),
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"expected {' '.join(words[1:])} to be done in {timeout_s:.0f} s") from error
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-30:])
        raise RuntimeError(f"{' '.join(words[1:])} ended with {done.returncode}:\n{tail}")
    return done.stdout


def flags(settings: Mapping[str, object]) -> list[object]:
    """Return settings as the flags of a command."""
    return [word for name, value in settings.items() for word in (f"--{name}", value)]


def evaluate(
    controllers: Sequence[object], board: str, decisions: int, **others: object
) -> list[dict[str, Any]]:
    """Return the measurements of controllers that play a number of decisions each, on a GPU by default."""
    words = flags({"board": board, "decisions": decisions, "device": "cuda", **others})
    told = python("scripts/evaluate_tetris.py", *controllers, *words, "--json")
    measured: list[dict[str, Any]] = json.loads(told)
    return measured


def learned(run: Path) -> dict[str, Any]:
    """Return what a training run learned so far, as its file holds it."""
    controller: dict[str, Any] = json.loads(RunFolder(run).controller.read_text())
    return controller


def metrics(run: Path) -> list[dict[str, Any]]:
    """Return a run's records by generation, without mean and deviation, which make nine tenths of them."""
    records = [json.loads(line) for line in RunFolder(run).metrics.read_text().splitlines()]
    return [{key: value for key, value in each.items() if key not in ("mean", "std")} for each in records]


def begin(kept: Path, settings: object) -> None:
    """Note with what a measurement of several commands begins, or make sure that it goes on with the same."""
    given = {"commit": list(commit()), "versions": versions(), "settings": settings}
    file = kept / "begun.json"
    if not file.is_file():
        kept.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(given))
    known = json.loads(file.read_text())
    differs = [key for key in given if known.get(key) != given[key]]
    if differs:
        raise ValueError(f"{kept} was begun with other {', '.join(differs)}: go on with those or remove it")
