"""Measure training with the default settings, README's first command, and the record.

python scripts/measure training --json training.json
python scripts/measure first_run --json first_run.json
python scripts/measure record --seed 2 --json record_seed2.json
python scripts/measure record_10x10 --json record_10x10.json
python scripts/measure hidden_units --seed 2 --json hidden_units_seed2.json

Every run is a separate process. ``first_run`` trains twice with the same cache, which is empty
before the first run ("cold") but not before the second one ("warm"). ``record`` trains once,
with the preset of that name. ``record_10x10`` trains longer on 10x10, and on no other board.
``linear`` and ``hidden_units`` train with as many decisions, without and with hidden units.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from measure import ROOT
from measure.provenance import Measured
from measure.work import least_lines
from tetris.training.run_folder import RunFolder, read_records

NUM_SEEDS = 5  # The seeds of "training".
FLAGS = ()  # Additional flags of all runs.
RECORDS = {
    "record": ("--preset", "record"),
    "record_10x10": (
        *("--preset", "record", "--board", "10x10"),
        *("--curriculum", "10x10:30:500,10x10:1000:750:split"),
    ),
    "linear": ("--preset", "standard", "--features", "dt"),
    "hidden_units": ("--preset", "standard", "--features", "dt+16"),
}
"""The flags of the training of each record, and of the comparison with hidden units."""


def train(
    out: RunFolder, device: str, seed: int, flags: Sequence[str] = (), **variables: str
) -> tuple[dict[str, Any], str]:
    """Train a controller with the command ``python -m tetris train`` in a separate process.

    Args:
        out: The folder to which the run is written.
        device: The device that trains.
        seed: The seed of the run.
        flags: Further arguments of the command.
        variables: Environment variables of the process, in addition to those of this one.

    Returns:
        A description of the run: its times, weights and scores.
        The standard output of the process.
    """
    command = [sys.executable, "-m", "tetris", "train", "--device", device, "--seed", str(seed)]
    command += ["--out", str(out.path), *flags, *FLAGS]  # `FLAGS` are those of all runs.
    environment = os.environ | variables
    start_time = time.perf_counter()
    process = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, text=True, stdout=subprocess.PIPE
    )
    seconds = time.perf_counter() - start_time
    run = {"seed": seed, "total_seconds": seconds, **_describe_run(out)}
    return run, process.stdout


def _describe_run(out: RunFolder) -> dict[str, Any]:
    """Return the time, weights and scores of a run from the JSON file of its controller."""
    controller = json.loads(out.controller.read_text(encoding="utf-8"))
    provenance = controller["provenance"]
    run = {"training_seconds": provenance["seconds"], "weights": controller["weights"]}
    # An interrupted training has no scores, and not every training has estimates. A value that
    # is missing becomes an empty list.
    for key in ("decisions", "config", "score", "estimates"):
        run[key] = provenance.get(key) or []
    return run


def first_run(folder: Path, device: str, seed: int) -> Measured:
    """Run README's first command twice with the same cache, and return its times.

    The first run compiles the engine, since the cache is empty ("cold"). The second run loads
    it from the cache ("warm").
    """
    cache = str(folder / "cache")
    figures = {}
    runs = []
    for state in ("cold", "warm"):
        out = RunFolder(folder / state)
        run, output = train(out, device, seed, CEM_TETRIS_CACHE=cache)
        figures[f"first_run.{state}.seconds"] = run["total_seconds"]
        runs.append(run)
    # The output ends with the learned controller's score, as a multiple of that of dt20.
    figures["first_run.times_dt20"] = float(re.findall(r"([\d.]+) times dt20", output)[-1])
    return Measured(figures, {"runs": runs})


def record(name: str, folder: Path, device: str, seed: int) -> Measured:
    """Train with the flags of a record, and return the time and the scores."""
    out = RunFolder(folder / name)
    run, _ = train(out, device, seed, flags=RECORDS[name])
    figures = {f"{name}.{key}": run[key] for key in ("training_seconds", "decisions")}
    for score in [*run["score"], *run["estimates"]]:
        key = f"{name}.{score['controller']}.{score['board']}.lines_per_game"
        figures[key] = least_lines(score)
    return Measured(figures, run)


_OF_ONE_SEED: dict[str, Callable[[Path, str, int], Measured]] = {
    "first_run": first_run,
    **{name: partial(record, name) for name in RECORDS},
}


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Make one of four measurements, which ``arguments.what`` names.

    "first_run" and the records train with ``arguments.seed``, by the functions in
    ``_OF_ONE_SEED``. For "training" controllers are trained with `NUM_SEEDS` seeds from this
    one on:

    - The figures are the median and the largest time over all seeds, both of the training alone
      ("training_seconds") and of the command, which also measures scores ("total_seconds").
    - The details describe every run.
    - Each run has a series with the records of its generations.
    """
    with tempfile.TemporaryDirectory() as folder:
        if arguments.what in _OF_ONE_SEED:
            make_measurement = _OF_ONE_SEED[arguments.what]
            return make_measurement(Path(folder), device, arguments.seed)
        runs = []
        series = {}
        for seed in range(arguments.seed, arguments.seed + NUM_SEEDS):
            run_folder = RunFolder(Path(folder, f"seed{seed}"))
            run, _ = train(run_folder, device, seed)
            runs.append(run)
            series[f"-seed{seed}"] = read_records(run_folder.metrics)
    figures = {}
    for key in ("training_seconds", "total_seconds"):
        seconds = [run[key] for run in runs]
        figures[f"train.quick.{key}_median"] = median(seconds)
        figures[f"train.quick.{key}_max"] = max(seconds)
    return Measured(figures, {"runs": runs}, series)
