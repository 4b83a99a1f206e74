"""Measure what training without a flag comes to, how long it takes, and how busy it keeps a GPU.

python scripts/measure/training.py --device cpu --seeds 5 --json training.json

On a processor the command that a person runs, several seeds, scores and estimates included. On a GPU the time
is that of the process, from its start to the learned controller; only what is compiled once on a machine is
compiled before. The learned controller and dt20 then make the same number of decisions. How busy the GPU is
comes from another run of the same recipe: the time in which a kernel runs by the driver's own clock (CUPTI,
through torch.profiler), as a share of the time by the wall clock. What a process does once (the CUDA context,
loading libraries, the first launch of each kernel) is done before by a run of two generations a stage.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure.cli import measurement
from measure.processes import evaluate, flags, learned, metrics, python
from measure.provenance import Measured
from tetris.commands.command_line import positive_int, run
from tetris.evaluation.scores import find_estimate, find_measurement
from tetris.training import StopRequest
from tetris.training.curriculum import curriculum_text
from tetris.training.recipe import Recipe, make_recipe
from tetris.training.run_folder import RunFolder
from tetris.training.training import Training, prepare_engine

GOAL = 45e6
"""Lines a game on 10x20 that training on a GPU aims at; the record of 2009 has 35 million."""

SCORED = 200_000_000_000
"""Decisions a controller after training on a GPU: on 10x20 1,600 games of DT-20."""


def timed_run(out: Path, *words: object) -> tuple[float, dict[str, Any], dict[str, Any]]:
    """Train in a process of its own; its seconds, what it learned, and what is kept of it."""
    began = time.perf_counter()
    python("scripts/train_tetris.py", *words, "--out", out)
    seconds = time.perf_counter() - began
    controller = learned(out)
    provenance = controller["provenance"]
    kept = {"training_seconds": provenance["seconds"], "weights": controller["weights"]}
    return seconds, provenance, {**kept, **{key: provenance[key] for key in ("decisions", "config")}}


def on_cpu(seeds: int, folder: Path) -> Measured:
    """Return, for each seed, what training without any other flag comes to, and how long it takes in all."""
    runs, series = [], {}
    for seed in range(1, seeds + 1):
        out = folder / f"seed-{seed}"
        seconds, provenance, kept = timed_run(out, "--device", "cpu", "--seed", seed)
        measured = {key: provenance.get(key, []) for key in ("score", "estimates")}
        runs.append({"seed": seed, "total_seconds": seconds, **kept, **measured})
        series[f"-seed{seed}"] = metrics(out)
    return cpu_figures(runs), {"runs": runs}, series


def cpu_figures(runs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return median and worst of the runs' scores and seconds; estimates where every run has one."""
    scores = [find_measurement(each["score"], "learned", "10x10")["lines_per_game"] for each in runs]
    estimates = [find_estimate(each, "learned", "10x20") for each in runs]
    lines = [each["lines_per_game"] for each in estimates if each is not None]
    seconds = [each["training_seconds"] for each in runs]
    estimated = {"median": statistics.median(lines), "worst": min(lines)} if len(lines) == len(runs) else {}
    return {
        **{f"train.quick.10x20.estimated_lines_per_game_{name}": value for name, value in estimated.items()},
        "train.quick.10x10.lines_per_game_median": statistics.median(scores),
        "train.quick.10x10.lines_per_game_worst": min(scores),
        "train.quick.training_seconds_median": statistics.median(seconds),
        "train.quick.training_seconds_slowest": max(seconds),
        "train.quick.total_seconds_slowest": max(each["total_seconds"] for each in runs),
    }


def on_gpu(folder: Path) -> Measured:
    """Return what the preset comes to on a GPU, seed 1."""
    settings: dict[str, str | int] = {"preset": "quick", "device": "cuda", "seed": 1}
    recipe = make_recipe("cuda", settings)
    prepare_engine(recipe)
    seconds, _, kept = timed_run(folder / "learned", *flags(settings), "--score-decisions", 0)
    score, reference = evaluate((folder / "learned", "dt20"), "10x20", SCORED)
    score["controller"] = "learned"
    lines = score["lines_per_game"] or score["ci95"][0]  # where no game ended, the least it can be
    busy = watch_training(recipe, folder)
    figures = {
        "train.total_seconds": seconds,
        **({"train.seconds_to_45M_lines": seconds} if lines >= GOAL else {}),
        "train.10x20.lines_per_game": lines,
        "train.gpu_busy_fraction": busy["kernel_seconds"] / busy["seconds"],
    }
    goal = {"goal": GOAL, "reached": lines >= GOAL}
    return figures, {**goal, "score": [score, reference], "gpu": busy, **kept}, {}


def watch_training(recipe: Recipe, folder: Path) -> dict[str, float]:
    """Return what the GPU does in a training run; the folder takes the trace, a kilobyte a kernel."""

    def train(recipe: Recipe, path: Path) -> None:
        run = RunFolder(path)
        training = Training(recipe, run, StopRequest())
        with run.claimed(recipe):
            training.trainer.run()
        torch.cuda.synchronize()

    few = curriculum_text(replace(stage.entry, generations=2) for stage in recipe.stages)
    train(replace(recipe, curriculum=few, generations=0), folder / "warm-up")
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        began = time.perf_counter()
        train(recipe, folder / "run")
        seconds = time.perf_counter() - began
    trace = folder / "trace.json"
    profiler.export_chrome_trace(str(trace))
    return busy(seconds, kernel_spans(json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]))


def kernel_spans(events: Iterable[dict[str, Any]]) -> list[tuple[float, float]]:
    """Return start and end of every kernel among a profiler's events, in seconds."""
    kernels = [event for event in events if event.get("cat") == "kernel"]
    if not kernels:
        raise RuntimeError(
            "expected kernels in the profiler's trace, found none: may this user profile the GPU?"
        )
    return [(event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6) for event in kernels]


def busy(seconds: float, spans: Iterable[tuple[float, float]]) -> dict[str, float]:
    """Return how much of a wall time spans cover, at least one; where they overlap they count once."""
    ordered = sorted(spans)
    covered, longest_gap, reached = 0.0, 0.0, ordered[0][0]
    for start, end in ordered:
        longest_gap = max(longest_gap, start - reached)
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return {
        "seconds": seconds,
        "kernel_seconds": covered,
        "kernels": len(ordered),
        "longest_gap": longest_gap,
    }


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return what training comes to on a device."""
    with tempfile.TemporaryDirectory() as name:
        return on_gpu(Path(name)) if device == "cuda" else on_cpu(arguments.seeds, Path(name))


def add_seeds(parser: argparse.ArgumentParser) -> None:
    """Give a parser ``--seeds``."""
    parser.add_argument("--seeds", type=positive_int, default=5, help="seeds 1 to that (default: 5)")


main = measurement(measure, __doc__, add_seeds)

if __name__ == "__main__":
    run(main)
