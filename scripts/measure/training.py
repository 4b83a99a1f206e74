"""Measure what training without a flag comes to and how long it takes.

python scripts/measure first_run --json first_run.json
python scripts/measure training --seeds 5 --json training.json

Every run is a process. ``first_run`` is the first command of README as a newcomer runs it: in an empty
environment with nothing compiled, and once more.
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
from pathlib import Path
from statistics import median

from measure import ROOT
from measure.provenance import Measured
from measure.work import python

FLAGS: Sequence[str] = ()  # further ones of the runs of `training`


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return what training comes to on a device, or how long the first command takes."""
    with tempfile.TemporaryDirectory() as name:
        if arguments.what == "first_run":
            return first_run(Path(name))
        return training(arguments.seeds, device, Path(name))


def first_run(folder: Path) -> Measured:
    """Return how long README's first command takes in its two halves, and what it says at its end."""
    commands = (ROOT / "README.md").read_text().partition("```bash\n")[2]
    install, train = commands.splitlines()[0].partition("#")[0].split(" && ")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    path = f"{folder / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    own = {**os.environ, "PATH": path, "CEM_TETRIS_CACHE": str(folder / "cache")}
    own.pop("PYTHONPATH", None)

    def timed(command: str) -> tuple[float, str]:
        began = time.perf_counter()
        done = subprocess.run(
            command, shell=True, cwd=ROOT, env=own, text=True, stdout=subprocess.PIPE, check=True
        )
        return time.perf_counter() - began, done.stdout

    figures = {"first_run.install.seconds": timed(install)[0]}
    size = sum(file.lstat().st_size for file in (folder / "venv").rglob("*") if file.is_file())
    figures["first_run.install.gigabytes"] = size / 1e9
    said = ""
    for state in ("cold", "warm"):
        figures[f"first_run.{state}.seconds"], said = timed(f"{train} --out {folder / state}")
    verdict = next(line for line in reversed(said.splitlines()) if " lines per game on " in line)
    figures["first_run.times_dt20"] = float(re.findall(r"([\d.]+) times dt20", verdict)[0])
    installed = dict(line.split("==") for line in timed("python -m pip freeze --exclude-editable")[1].split())
    return Measured(figures, {"verdict": verdict, "versions": {"torch": installed["torch"]}})


def training(seeds: int, device: str, folder: Path) -> Measured:
    """Return, for each seed, what training without any other flag comes to, and how long it takes."""
    runs, series = [], {}
    for seed in range(1, seeds + 1):
        out = folder / f"seed-{seed}"
        command = ["scripts/train_tetris.py", "--device", device, "--seed", seed, "--out", out, *FLAGS]
        began = time.perf_counter()
        python(*command)
        seconds = time.perf_counter() - began
        learned = json.loads((out / "controller.json").read_text())
        provenance = learned["provenance"]
        run = {"seed": seed, "total_seconds": seconds, "training_seconds": provenance["seconds"]}
        run |= {key: provenance.get(key) or [] for key in ("decisions", "config", "score", "estimates")}
        runs.append({**run, "weights": learned["weights"]})
        metrics = (out / "metrics.jsonl").read_text().splitlines()
        series[f"-seed{seed}"] = list(map(json.loads, metrics))
    figures = {
        f"train.quick.{name}_{kind.__name__}": kind(run[name] for run in runs)
        for name in ("training_seconds", "total_seconds")
        for kind in (median, max)
    }
    return Measured(figures, {"runs": runs}, series)
