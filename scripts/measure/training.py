"""Measure what training without a flag comes to, and how long README's first command takes.

python scripts/measure training --json training.json
python scripts/measure first_run --json first_run.json

Every run is a process. ``first_run`` trains twice with one cache, which is empty before: cold and warm.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from measure import ROOT
from measure.provenance import Measured
from tetris.training.run_folder import RunFolder, read_records

SEEDS = range(1, 6)
FLAGS: Sequence[str] = ()  # further ones of all runs


def train(out: RunFolder, device: str, seed: int, **own: str) -> tuple[dict[str, Any], str]:
    """Train in a process with variables of its own; what came of it, and what it printed."""
    settings = ("--device", device, "--seed", str(seed), "--out", str(out.path), *FLAGS)
    run = partial(subprocess.run, cwd=ROOT, env=os.environ | own, check=True, text=True)
    began = time.perf_counter()
    said = run([sys.executable, "-m", "tetris", "train", *settings], stdout=subprocess.PIPE).stdout
    found = {"seed": seed, "total_seconds": time.perf_counter() - began}
    learned = json.loads(out.controller.read_text(encoding="utf-8"))
    known = learned["provenance"]
    found |= {"training_seconds": known["seconds"], "weights": learned["weights"]}
    return found | {key: known.get(key) or [] for key in ("decisions", "config", "score", "estimates")}, said


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return what the seeds come to, with the series of each, or how long the first command takes."""
    with tempfile.TemporaryDirectory() as name:
        if arguments.what == "first_run":
            cache, states = str(Path(name, "cache")), ("cold", "warm")
            done = [train(RunFolder(Path(name, x)), device, 1, CEM_TETRIS_CACHE=cache) for x in states]
            seconds = (run["total_seconds"] for run, _ in done)
            figures = {f"first_run.{x}.seconds": each for x, each in zip(states, seconds, strict=True)}
            figures["first_run.times_dt20"] = float(re.findall(r"([\d.]+) times dt20", done[-1][1])[-1])
            return Measured(figures, {"runs": [run for run, _ in done]})
        folders = {seed: RunFolder(Path(name, f"seed{seed}")) for seed in SEEDS}
        runs = [train(folder, device, seed)[0] for seed, folder in folders.items()]
        series = {f"-seed{seed}": read_records(folder.metrics) for seed, folder in folders.items()}
    figures = {
        f"train.quick.{what}_{kind.__name__}": kind(run[what] for run in runs)
        for what in ("training_seconds", "total_seconds")
        for kind in (median, max)
    }
    return Measured(figures, {"runs": runs}, series)
