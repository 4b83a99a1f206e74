"""Measure how fast populations are drawn: PyTorch's own ways, torch.compile, and this project's kernel.

python scripts/measure sampling --json sampling.json
"""

from __future__ import annotations

import argparse
import gc
import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cem.core.backend import torch_sampler
from kernels.ops.normal import sample_normal
from measure.provenance import Measured
from measure.timing import Function, Plan, event_times, graph_times, host_times, latency_times, wall_times

SAMPLES, SEED = 1024, 1
ARTICLE, LARGE = (10, *range(500, 5001, 500)), (10_000, 100_000, 1_000_000)
CPU = (10, 100, 1000, 10_000)
PLANS = {
    "event": Plan(10, 40, 3),
    "host": Plan(7, 3, 1),
    "graph": Plan(7, 5, 1),
    # Interleaved call by call: one that computes much, many times over, takes a GPU to its power limit, which
    # slows down what follows.
    "large": Plan(40, 1, 0),
    "wall": Plan(5, 3, 0),
}

Sample = Callable[[Tensor, Tensor, int], Tensor]
"""Draws: (mean, std, number of samples) -> samples; mean and std of shape (dim,)."""


class Method(NamedTuple):
    """A way to draw a population."""

    name: str
    label: str
    make: Callable[[], Sample]  # called again for every size
    devices: tuple[str, ...] = ("cuda", "cpu")  # where it is of interest


def _eager(mean: Tensor, std: Tensor, count: int) -> Tensor:
    noise = torch.randn((mean.shape[0], count), device=mean.device, dtype=mean.dtype)
    return mean.unsqueeze(1) + std.unsqueeze(1) * noise


def _compiled() -> Sample:
    # One compilation a size, for that size: what the compiler can do best. It gives up after eight sizes of a
    # function, hence the reset.
    torch.compiler.reset()
    return torch.compile(_eager, dynamic=False, fullgraph=True)


def _empty(mean: Tensor, count: int) -> Tensor:
    return torch.empty((mean.shape[0], count), device=mean.device, dtype=mean.dtype)


def _in_place(mean: Tensor, std: Tensor, count: int) -> Tensor:
    samples = _empty(mean, count).normal_()
    return torch.addcmul(mean.unsqueeze(1), samples, std.unsqueeze(1), out=samples)


def _ours(dim_first: bool = True) -> Sample:
    """Return the operator: with a seed, and a new generation for every call, as the optimizer has it."""
    numbers = itertools.count()
    kept = partial(sample_normal, seed=SEED, dim_first=dim_first)
    return lambda mean, std, count: kept(mean, std, count, generation=next(numbers))


METHODS = (
    Method("eager", "mean + std * randn", lambda: _eager),
    Method("compile", "torch.compile of it", _compiled, devices=("cuda",)),
    Method("normal_", "Tensor.normal_, addcmul", lambda: _in_place),
    Method(
        *("backend_torch", "cem backend torch", lambda: partial(torch_sampler, seed=SEED, generation=0)),
        devices=("cpu",),
    ),
    Method("ours", "sample_normal", _ours),
    # The optimizer's layout: a candidate a row.
    Method("rows", "sample_normal as (N, d)", lambda: _ours(dim_first=False)),
    # On CUDA with the generator's own seed and offset, on a CPU with a seed that it draws.
    Method("unseeded", "sample_normal without a seed", lambda: sample_normal),
    Method("fill", "fill_, the floor", lambda: lambda mean, std, n: _empty(mean, n).fill_(1.0)),
)
"""Every method there is."""

LABELS = {method.name: method.label for method in METHODS}
"""What tables and pictures call them."""


def median(size: Mapping[str, Any], clock: str, name: str) -> float:
    """Return the median time of a method at a measured size, in microseconds."""
    return float(size[clock][name]["median"])


def speedups(sizes: Sequence[Mapping[str, Any]], clock: str, over: str, of: str = "ours") -> list[float]:
    """Return how many times as long one method takes as another, ours by default, size by size."""
    return [median(size, clock, over) / median(size, clock, of) for size in sizes]


def calls(dim: int, device: str) -> dict[str, Function]:
    """Return what is timed for one size, each called once, so that what has to be compiled is."""
    generator = torch.Generator(device).manual_seed(dim)
    # Never zeros, which can be faster than data.
    mean, std = (torch.rand(dim, device=device, generator=generator) + shift for shift in (-0.5, 0.5))
    chosen = (each for each in METHODS if device in each.devices)
    functions: dict[str, Function] = {each.name: partial(each.make(), mean, std, SAMPLES) for each in chosen}
    for function in functions.values():
        function()
    return functions


def measure_article(dim: int) -> dict[str, Any]:
    """Return one size of the article's range: events with the device busy and idle, host time, graph time."""
    functions = calls(dim, "cuda")
    return {
        "dim": dim,
        "event": event_times(functions, PLANS["event"]),
        "latency": latency_times(functions, PLANS["event"]),
        "host": host_times(functions, PLANS["host"]),
        "graph": graph_times(functions, PLANS["graph"]),
    }


def measure_large(dim: int) -> dict[str, Any] | None:
    """Return a size whose time is that of its bytes; None where it does not fit into memory."""
    gc.collect()
    torch.cuda.empty_cache()
    size = dim * SAMPLES * 4
    if torch.cuda.mem_get_info()[0] < 5 * size:
        print(f"note: d = {dim:,} is left out, it needs {5 * size / 2**30:.0f} GiB free")
        return None
    return {"dim": dim, "bytes": size, "event": event_times(calls(dim, "cuda"), PLANS["large"])}


def on_cpu() -> Measured:
    """Return the figures of a processor."""
    sizes: list[dict[str, Any]] = [
        {"dim": dim, "bytes": dim * SAMPLES * 4, "wall": wall_times(calls(dim, "cpu"), PLANS["wall"])}
        for dim in CPU
    ]
    figures = {
        f"sampling.cpu.mean_speedup_over_{over}": statistics.fmean(speedups(sizes, "wall", over))
        for over in ("eager", "backend_torch")
    }
    figures["sampling.cpu.largest.gb_per_s"] = sizes[-1]["bytes"] / median(sizes[-1], "wall", "ours") / 1e3
    return Measured(figures, {"samples": SAMPLES, "sizes": sizes})


def on_gpu() -> Measured:
    """Return the figures of a GPU: over the article's range, and of the largest size."""
    article = [measure_article(dim) for dim in ARTICLE]
    large = [each for each in map(measure_large, LARGE) if each is not None]
    figures: dict[str, float] = {}
    clocks, overs = {"latency": "", "event": "_busy", "graph": "_graph"}, ("compile", "eager")
    for over, (clock, suffix), of in itertools.product(
        overs, clocks.items(), ("ours", "rows", "unseeded", "fill")
    ):
        ratios, infix = speedups(article, clock, over, of), "" if of == "ours" else f"{of}."
        figures[f"sampling.article.{infix}mean_speedup_over_{over}{suffix}"] = statistics.fmean(ratios)
        figures[f"sampling.article.{infix}min_speedup_over_{over}{suffix}"] = min(ratios)
    for of in ("ours", "rows", "unseeded", "compile", "eager"):
        infix = "" if of == "ours" else f"{of}."
        figures[f"sampling.{infix}host_us"] = statistics.median(median(x, "host", of) for x in article)
        for size in large[-1:]:
            figures[f"sampling.large.{infix}fraction_of_fill"] = speedups([size], "event", "fill", of)[0]
            figures[f"sampling.large.{infix}gb_per_s"] = size["bytes"] / median(size, "event", of) / 1e3
    return Measured(figures, {"samples": SAMPLES, "article": article, "large": large})


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return figures and details."""
    return on_gpu() if device == "cuda" else on_cpu()
