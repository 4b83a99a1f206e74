"""Measure what training without a flag comes to, how long it takes, and how busy it keeps a GPU.

python scripts/measure training preset --device cpu --seeds 5 --json training.json
python scripts/measure training first_run --json first_run.json

Every run is a process. On a processor several seeds run, scores and estimates included. On a GPU the time is
that from the start of the process to the learned controller, compiled before; how busy the GPU is comes from
another run of the recipe, by CUPTI through torch.profiler. ``first_run`` is the first command of README: once
without anything compiled, once with.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from measure.cli import Options, choice, measurement
from measure.processes import evaluate, flags, learned, least_lines, metrics, python
from measure.provenance import Measured
from tetris.commands.command_line import positive_int
from tetris.evaluation.scores import find_estimate, find_measurement
from tetris.training import StopRequest
from tetris.training.curriculum import curriculum_text
from tetris.training.recipe import Recipe, make_recipe
from tetris.training.run_folder import RunFolder
from tetris.training.training import Training, prepare_engine

GOAL = 45e6  # lines a game on 10x20 that training on a GPU aims at; the record of 2009 has 35 million
SCORED = 80_000_000_000  # decisions of a controller after training on a GPU: 600 games of DT-20 on 10x20


def timed_run(out: Path, *words: object) -> tuple[float, str, dict[str, Any]]:
    """Train in a process of its own; its seconds, what it said, and what it learned."""
    began = time.perf_counter()
    said = python("scripts/train_tetris.py", *words, "--out", out)
    seconds = time.perf_counter() - began
    controller = learned(out)
    told = controller["provenance"]
    kept = {key: told.get(key) or [] for key in ("decisions", "config", "score", "estimates")}
    return seconds, said, {"training_seconds": told["seconds"], "weights": controller["weights"], **kept}


def first_run(device: str, folder: Path) -> Measured:
    """Return how long the first command of README takes, cold and warm, and what it says at its end."""
    os.environ["CEM_TETRIS_CACHE"] = str(folder / "cache")
    runs: dict[str, dict[str, Any]] = {}
    for state in ("cold", "warm"):
        seconds, said, found = timed_run(folder / state, "--device", device)
        verdict = next(line for line in reversed(said.splitlines()) if " lines a game on " in line)
        kept = {"seconds": seconds, "training_seconds": found["training_seconds"]}
        runs[state] = {**kept, "verdict": verdict}
    figures = {f"first_run.{state}.seconds": each["seconds"] for state, each in runs.items()}
    if times := re.search(r"([\d.]+) times dt20", verdict):
        figures["first_run.times_dt20"] = float(times[1])
    return figures, runs, {}


def on_cpu(seeds: int, folder: Path) -> Measured:
    """Return, for each seed, what training without any other flag comes to, and how long it takes in all."""
    runs, series = [], {}
    for seed in range(1, seeds + 1):
        out = folder / f"seed-{seed}"
        seconds, _, found = timed_run(out, "--device", "cpu", "--seed", seed)
        runs.append({"seed": seed, "total_seconds": seconds, **found})
        series[f"-seed{seed}"] = metrics(out)
    return cpu_figures(runs), {"runs": runs}, series


def cpu_figures(runs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return median and worst of the runs' scores and seconds; estimates where every run has one."""
    scores = [find_measurement(each["score"], "learned", "10x10")["lines_per_game"] for each in runs]
    estimates = [find_estimate(each, "learned", "10x20") for each in runs]
    lines = [each["lines_per_game"] for each in estimates if each is not None]
    seconds = [each["training_seconds"] for each in runs]
    figures = {
        "10x10.lines_per_game_median": median(scores),
        "10x10.lines_per_game_worst": min(scores),
        "training_seconds_median": median(seconds),
        "training_seconds_slowest": max(seconds),
        "total_seconds_slowest": max(each["total_seconds"] for each in runs),
    }
    if len(lines) == len(runs):
        figures["10x20.estimated_lines_per_game_median"] = median(lines)
        figures["10x20.estimated_lines_per_game_worst"] = min(lines)
    return {f"train.quick.{name}": value for name, value in figures.items()}


def on_gpu(folder: Path) -> Measured:
    """Return what the preset comes to on a GPU, seed 1."""
    settings: dict[str, str | int] = {"preset": "quick", "device": "cuda", "seed": 1}
    recipe = make_recipe("cuda", settings)
    prepare_engine(recipe)
    seconds, _, found = timed_run(folder / "learned", *flags(settings), "--score-decisions", 0)
    score, reference = evaluate((folder / "learned", "dt20"), "10x20", SCORED)
    score["controller"] = "learned"
    lines = least_lines(score)
    busy = watch_training(recipe, folder)
    figures = {
        "train.total_seconds": seconds,
        **({"train.seconds_to_45M_lines": seconds} if lines >= GOAL else {}),
        "train.10x20.lines_per_game": lines,
        "train.gpu_busy_fraction": busy["kernel_seconds"] / busy["seconds"],
    }
    data = {"goal": GOAL, "reached": lines >= GOAL, "gpu": busy, **found, "score": [score, reference]}
    return figures, data, {}


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
        raise RuntimeError("expected kernels in the profiler's trace, found none: may you profile the GPU?")
    return [(event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6) for event in kernels]


def busy(seconds: float, spans: Iterable[tuple[float, float]]) -> dict[str, float]:
    """Return how much of a wall time spans cover, at least one; where they overlap they count once."""
    ordered = sorted(spans)
    covered, longest_gap, reached = 0.0, 0.0, ordered[0][0]
    for start, end in ordered:
        longest_gap = max(longest_gap, start - reached)
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    counted = {"kernels": len(ordered), "longest_gap": longest_gap}
    return {"seconds": seconds, "kernel_seconds": covered, **counted}


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return what training comes to on a device, or how long the first command takes."""
    with tempfile.TemporaryDirectory() as name:
        if arguments.what == "first_run":
            return first_run(device, Path(name))
        return on_gpu(Path(name)) if device == "cuda" else on_cpu(arguments.seeds, Path(name))


SEEDS: Options = {"--seeds": {"type": positive_int, "default": 5, "help": "seeds 1 to that (default: 5)"}}
WHAT = {"what": choice("measurement", ("preset", "first_run"))}
main = measurement(measure, __doc__, {**WHAT, **SEEDS}, "preset|first_run")
