"""Commands of this project, most of them in processes of their own, and what they leave behind."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from measure.provenance import ROOT
from tetris.commands import command_line
from tetris.training.run_folder import RunFolder


def environment() -> dict[str, str]:
    """Return the environment for a process of this checkout."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def start(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Start Python as a person would in the checkout."""
    words = [sys.executable, *map(str, arguments)]
    return subprocess.Popen(words, text=True, cwd=ROOT, env=environment(), **options)


def python(*arguments: object) -> str:
    """Run Python as a person would in the checkout; what it prints on stdout."""
    with start(*arguments, stdout=subprocess.PIPE) as process:
        said, _ = process.communicate()
    if process.returncode:
        tail = "\n".join(said.splitlines()[-30:])
        raise RuntimeError(f"{' '.join(map(str, arguments))} ended with {process.returncode}:\n{tail}")
    return said


class Ended(NamedTuple):
    """How a script ended and what it printed."""

    status: int
    out: str
    err: str


def called(name: str, *arguments: object) -> Ended:
    """Run a script in this process, which saves the seconds of importing torch."""
    main = importlib.import_module(name).main
    out, err, words = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = [f"scripts/{name}.py", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            command_line.run(main)
    except SystemExit as ended:
        return Ended(int(ended.code or 0), out.getvalue(), err.getvalue())
    finally:
        sys.argv = words


def flags(settings: Mapping[str, object]) -> list[object]:
    """Return settings as the flags of a command."""
    return [word for name, value in settings.items() for word in (f"--{name}", value)]


def evaluate(
    controllers: Sequence[object], board: str, decisions: int, **others: object
) -> list[dict[str, Any]]:
    """Return the measurements of controllers that play a number of decisions each, on a GPU by default."""
    words = flags({"board": board, "decisions": decisions, "device": "cuda", **others})
    measured: list[dict[str, Any]] = json.loads(
        python("scripts/evaluate_tetris.py", *controllers, *words, "--json")
    )
    return measured


def learned(run: Path) -> dict[str, Any]:
    """Return what a training run learned so far, as its file holds it."""
    controller: dict[str, Any] = json.loads(RunFolder(run).controller.read_text())
    return controller


def metrics(run: Path) -> list[dict[str, Any]]:
    """Return a run's records by generation, without mean and deviation, which make nine tenths of them."""
    records = [json.loads(line) for line in RunFolder(run).metrics.read_text().splitlines()]
    return [{key: value for key, value in each.items() if key not in ("mean", "std")} for each in records]


def least_lines(measured: Mapping[str, Any]) -> float:
    """Return lines a game; where no game ended, the least it can be."""
    lines: float | None = measured["lines_per_game"]
    return float(measured["ci95"][0]) if lines is None else lines
