"""How much of a training run the GPU computes: the time in which a kernel runs, as a share of the wall's.

The times of the kernels are the driver's own (CUPTI, through torch.profiler); where kernels overlap, the time
counts once. The run is whole, with metrics, checkpoints and all generations; what a process does once (the
CUDA context, loading libraries, the first launch of each kernel) is done before by a run of two
generations a stage.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from cem import StopRequest
from tetris.training.curriculum import curriculum_text
from tetris.training.recipe import Recipe
from tetris.training.run_folder import RunFolder
from tetris.training.training import Training

_WARM_UP_GENERATIONS = 2


@dataclass(frozen=True)
class Busy:
    """What a GPU did while something ran.

    Attributes:
        seconds: Wall time, until the GPU is done.
        kernel_seconds: The part of it in which a kernel ran.
        kernels: How many kernels ran.
        longest_gap: The longest time between two kernels, in seconds.
    """

    seconds: float
    kernel_seconds: float
    kernels: int
    longest_gap: float

    @property
    def fraction(self) -> float:
        """The share of the wall time in which a kernel ran."""
        return self.kernel_seconds / self.seconds

    def to_dict(self) -> dict[str, float]:
        """Return plain values for JSON."""
        return asdict(self)


def train(recipe: Recipe, path: Path) -> None:
    """Train by a recipe in a new folder; the clock, the closing table and pictures have no part in it."""
    folder = RunFolder(path)
    training = Training(recipe, folder, StopRequest())
    with folder.claimed(recipe):
        training.trainer.run()


def watch_training(recipe: Recipe, folder: Path) -> Busy:
    """Return what the GPU does in a training run.

    Args:
        recipe: Of the run.
        folder: For two runs and the trace, about a kilobyte a kernel.

    Raises:
        RuntimeError: If the profiler saw no kernel.
    """
    few = curriculum_text(replace(stage.entry, generations=_WARM_UP_GENERATIONS) for stage in recipe.stages)
    train(replace(recipe, curriculum=few, generations=0), folder / "warm-up")
    return watch(lambda: train(recipe, folder / "run"), folder / "trace.json")


def watch(work: Callable[[], object], trace: Path) -> Busy:
    """Return what the GPU does while a function runs.

    Args:
        work: The function.
        trace: The file for what the profiler saw.

    Raises:
        RuntimeError: If the profiler saw no kernel.
    """
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        began = time.perf_counter()
        work()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - began
    profiler.export_chrome_trace(str(trace))
    return busy(seconds, kernel_spans(trace))


def kernel_spans(trace: Path) -> list[tuple[float, float]]:
    """Return start and end of every kernel in a profiler's trace, in seconds.

    Raises:
        RuntimeError: If there is none: who profiles a GPU may need rights, in a container for one.
    """
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    spans = [
        (event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6)
        for event in events
        if event.get("cat") == "kernel"
    ]
    if not spans:
        raise RuntimeError(
            "expected kernels in the profiler's trace, found none: may this user profile the GPU?"
        )
    return spans


def busy(seconds: float, spans: Iterable[tuple[float, float]]) -> Busy:
    """Return how much of a wall time spans cover; where they overlap they count once.

    Args:
        seconds: The wall time.
        spans: Start and end of each kernel, in seconds, at least one.
    """
    ordered = sorted(spans)
    covered, longest_gap, reached = 0.0, 0.0, ordered[0][0]
    for start, end in ordered:
        longest_gap = max(longest_gap, start - reached)
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return Busy(seconds, covered, len(ordered), longest_gap)
