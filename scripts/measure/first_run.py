"""Measure how long the first command of README takes: once without anything compiled, once with.

python scripts/measure/first_run.py --json first_run.json
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure.cli import make_parser, measurement, read
from measure.processes import python
from measure.provenance import write_result
from tetris.commands.command_line import run
from tetris.numbers import lines

TIMEOUT_S = 900.0


def first_run(cache: Path, out: Path, device: str) -> tuple[float, dict[str, Any]]:
    """Train and score without any other flag; the seconds of the whole process, and what it said.

    Args:
        cache: The folder of compiled libraries.
        out: The folder of the run.
        device: The engine.
    """
    os.environ["CEM_TETRIS_CACHE"] = str(cache)
    began = time.perf_counter()
    said = python("scripts/train_tetris.py", "--device", device, "--out", out, timeout_s=TIMEOUT_S)
    seconds = time.perf_counter() - began
    provenance = json.loads((out / "controller.json").read_text())["provenance"]
    verdict = next(line for line in reversed(said.splitlines()) if " lines a game on " in line)
    times = re.search(r"([\d.]+) times dt20", verdict)
    return seconds, {
        "seconds": seconds,
        "training_seconds": provenance["seconds"],
        "verdict": verdict,
        "times_dt20": float(times[1]) if times else None,
    }


@measurement
def main(argv: Sequence[str] | None = None) -> None:
    """Measure both, print and write them."""
    arguments, device = read(make_parser(__doc__), argv)
    runs: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as name:
        for state in ("cold", "warm"):
            seconds, runs[state] = first_run(Path(name) / "cache", Path(name) / state, device)
            print(f"{state}: {seconds:.1f} s, {lines(runs[state]['training_seconds'])} s of it training")
            print(runs[state]["verdict"], flush=True)
    figures = {f"first_run.{state}.seconds": each["seconds"] for state, each in runs.items()}
    if (times := runs["warm"]["times_dt20"]) is not None:
        figures["first_run.times_dt20"] = times
    write_result(arguments.json, figures, runs, device)


if __name__ == "__main__":
    run(main)
