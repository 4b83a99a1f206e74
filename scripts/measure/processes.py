"""Commands of this project in processes of their own, and measurements that take several commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from kernels.files import write_text
from measure.provenance import ROOT, commit, machine
from tetris.versions import versions


def python(*arguments: object, timeout_s: float | None = None) -> str:
    """Run Python as a person would in the checkout; what it prints on stdout.

    Raises:
        RuntimeError: If it fails or is not done in time.
    """
    words = [sys.executable, *map(str, arguments)]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    try:
        done = subprocess.run(
            words,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"expected {' '.join(words[1:])} to be done in {timeout_s:.0f} s") from error
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-30:])
        raise RuntimeError(f"{' '.join(words[1:])} ended with {done.returncode}:\n{tail}")
    return done.stdout


def begin(kept: Path, device: str, settings: Any) -> None:
    """Note with what a measurement of several commands begins, or make sure that it goes on with the same.

    Args:
        kept: Its folder, which is made.
        device: What is measured.
        settings: Plain values.

    Raises:
        ValueError: If commit, versions, machine or settings are others than those it was begun with.
    """
    here = machine(device)
    given = {
        "commit": list(commit()),
        "versions": versions(),
        "machine": [here["processor"], here["vectors"], here["cores"], here.get("gpu")],
        "settings": settings,
    }
    file = kept / "begun.json"
    if not file.is_file():
        kept.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(given))
    known = json.loads(file.read_text())
    differs = [key for key in given if known.get(key) != given[key]]
    if differs:
        raise ValueError(f"{kept} was begun with other {', '.join(differs)}: go on with those or remove it")
