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

from measure.cli import make_parser, measurement, read
from measure.engines import build_for_training
from measure.processes import python
from measure.provenance import Measured, write_result
from tetris.commands.command_line import positive_int, run
from tetris.evaluation.scores import find_estimate, find_measurement
from tetris.training import StopRequest
from tetris.training.curriculum import curriculum_text
from tetris.training.recipe import Recipe, make_recipe
from tetris.training.run_folder import RunFolder
from tetris.training.training import Training

GOAL = 45e6
"""Lines a game on 10x20 that training on a GPU aims at; the record of 2009 has 35 million."""

SCORED = 200_000_000_000
"""Decisions a controller after training on a GPU: on 10x20 1,600 games of DT-20."""


def on_cpu(seeds: int, folder: Path) -> Measured:
    """Return, for each seed, what training without any other flag comes to, and how long it takes in all."""
    runs, series = [], {}
    for seed in range(1, seeds + 1):
        out, began = folder / f"seed-{seed}", time.perf_counter()
        python("scripts/train_tetris.py", "--device", "cpu", "--seed", seed, "--out", out)
        total = time.perf_counter() - began
        controller = json.loads((out / "controller.json").read_text())
        series[f"-seed{seed}"] = metrics(out)
        provenance = controller["provenance"]
        told = {key: provenance.get(key, []) for key in ("decisions", "score", "estimates", "config")}
        took = {"training_seconds": provenance["seconds"], "total_seconds": total}
        runs.append({"seed": seed, **took, "weights": controller["weights"], **told})
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


def metrics(run: Path) -> list[dict[str, Any]]:
    """Return a run's records by generation, without mean and deviation, which make nine tenths of them."""
    records = [json.loads(line) for line in RunFolder(run).metrics.read_text().splitlines()]
    return [{key: value for key, value in each.items() if key not in ("mean", "std")} for each in records]


def on_gpu(folder: Path) -> Measured:
    """Return what the preset comes to on a GPU, seed 1."""
    settings: dict[str, str | int] = {"preset": "quick", "device": "cuda", "seed": 1}
    recipe = make_recipe("cuda", settings)
    build_for_training(recipe, ("dt", 10))
    flags = [word for name, value in settings.items() for word in (f"--{name}", value)]
    learned, began = folder / "learned", time.monotonic()
    python("scripts/train_tetris.py", *flags, "--score-decisions", 0, "--out", learned)
    seconds = time.monotonic() - began
    scoring = ("--board", "10x20", "--device", "cuda", "--decisions", SCORED, "--json")
    score, reference = json.loads(python("scripts/evaluate_tetris.py", learned, "dt20", *scoring))
    score["controller"] = "learned"
    lines = score["lines_per_game"] or score["ci95"][0]  # where no game ended, the least it can be
    busy = watch_training(recipe, folder)
    controller = json.loads((learned / "controller.json").read_text())
    provenance = controller["provenance"]
    figures = {
        "train.total_seconds": seconds,
        **({"train.seconds_to_45M_lines": seconds} if lines >= GOAL else {}),
        "train.10x20.lines_per_game": lines,
        "train.gpu_busy_fraction": busy["kernel_seconds"] / busy["seconds"],
    }
    data = {
        "goal": GOAL,
        "reached": lines >= GOAL,
        "score": [score, reference],
        "gpu": busy,
        "weights": controller["weights"],
        "training_seconds": provenance["seconds"],
        **{key: provenance[key] for key in ("decisions", "config")},
    }
    return figures, data, {}


def watch_training(recipe: Recipe, folder: Path) -> dict[str, float]:
    """Return what the GPU does in a training run; the folder takes the trace, a kilobyte a kernel."""

    def train(recipe: Recipe, path: Path) -> None:
        run = RunFolder(path)
        training = Training(recipe, run, StopRequest())
        with run.claimed(recipe):
            training.trainer.run()

    few = curriculum_text(replace(stage.entry, generations=2) for stage in recipe.stages)
    train(replace(recipe, curriculum=few, generations=0), folder / "warm-up")
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        began = time.perf_counter()
        train(recipe, folder / "run")
        torch.cuda.synchronize()
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


@measurement
def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print the figures, write the result."""
    parser = make_parser(__doc__)
    parser.add_argument("--seeds", type=positive_int, default=5, help="on a processor (default: 5)")
    arguments, device = read(parser, argv)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures, data, series = on_gpu(folder) if device == "cuda" else on_cpu(arguments.seeds, folder)
    print(json.dumps(figures, indent=1))
    write_result(arguments.json, figures, data, device, series)


if __name__ == "__main__":
    run(main)
