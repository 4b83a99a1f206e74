"""Measure how long the first command of README takes: once without anything compiled, once with.

python scripts/measure/first_run.py --json first_run.json
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure.cli import measurement
from measure.processes import learned, python
from measure.provenance import Measured
from tetris.commands.command_line import run

TIMEOUT_S = 900.0


def first_run(out: Path, device: str) -> dict[str, Any]:
    """Train and score without any other flag; the seconds of the whole process, and what it said."""
    began = time.perf_counter()
    said = python("scripts/train_tetris.py", "--device", device, "--out", out, timeout_s=TIMEOUT_S)
    seconds = time.perf_counter() - began
    verdict = next(line for line in reversed(said.splitlines()) if " lines a game on " in line)
    times = re.search(r"([\d.]+) times dt20", verdict)
    return {
        "seconds": seconds,
        "training_seconds": learned(out)["provenance"]["seconds"],
        "verdict": verdict,
        "times_dt20": float(times[1]) if times else None,
    }


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return both runs."""
    with tempfile.TemporaryDirectory() as name:
        os.environ["CEM_TETRIS_CACHE"] = str(Path(name) / "cache")
        runs = {state: first_run(Path(name) / state, device) for state in ("cold", "warm")}
    print(runs["warm"]["verdict"])
    figures = {f"first_run.{state}.seconds": each["seconds"] for state, each in runs.items()}
    if (times := runs["warm"]["times_dt20"]) is not None:
        figures["first_run.times_dt20"] = times
    return figures, runs, {}


main = measurement(measure, __doc__)

if __name__ == "__main__":
    run(main)
