"""Measure how fast populations are drawn: by PyTorch, torch.compile, and this project's kernel.

python scripts/measure sampling --json sampling.json

Noise is independent, or one value is shared by all dimensions of a sample, as in A. Kompella's
article, whose kernel is then measured, too.
"""

import argparse
import gc
import itertools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import kernels.ops
from cem.core.backend import torch_sampler
from kernels import Extension
from kernels.ops.normal import sample_normal
from measure.provenance import Measured
from measure.timing import (
    Function,
    Plan,
    event_times,
    graph_times,
    host_times,
    latency_times,
    wall_times,
)

SAMPLES = 1024
SEED = 1

# Dimensions: the article's, those of a GPU's memory, and those of a CPU.
ARTICLE = (10, 100, 500, 1000, 2500, 5000)
LARGE = (10_000, 100_000, 1_000_000)
CPU = (10, 100, 1000, 10_000)
PLANS = {
    "event": Plan(10, 40, 3),
    "host": Plan(7, 3, 1),
    "graph": Plan(7, 5, 1),
    # A round has one call: many calls that compute much take a GPU to its power limit, which
    # slows down the functions that follow.
    "large": Plan(40, 1, 0),
    "wall": Plan(5, 3, 0),
}

Sample = Callable[[Tensor, Tensor, int], Tensor]
"""Draws: (mean, std, number of samples) -> samples; mean and std of shape (dim,)."""


class Method(NamedTuple):
    """A way to draw a population.

    Attributes:
        label: Its name in tables.
        make: Makes the function; called for every size.
        devices: The devices on which it is measured.
    """

    name: str
    label: str
    make: Callable[[], Sample]
    devices: tuple[str, ...] = ("cuda", "cpu")


def _transform(mean: Tensor, std: Tensor, noise_rows: int, count: int) -> Tensor:
    noise = torch.randn((noise_rows, count), device=mean.device, dtype=mean.dtype)
    return mean.unsqueeze(1) + std.unsqueeze(1) * noise


def _eager(mean: Tensor, std: Tensor, count: int) -> Tensor:
    return _transform(mean, std, mean.shape[0], count)


def _shared_eager(mean: Tensor, std: Tensor, count: int) -> Tensor:
    return _transform(mean, std, 1, count)


def _compile(function: Sample) -> Sample:
    # Compiled for one size, code is fastest. The compiler gives up after eight sizes of a
    # function, hence the reset; `calls` makes all methods of a size before it calls the first
    # one.
    torch.compiler.reset()
    return torch.compile(function, dynamic=False, fullgraph=True)


def _article() -> Sample:
    folder = Path(__file__).parent
    headers = (Path(kernels.ops.__path__[0]),)
    Extension("article", (folder / "article.cu",), headers, cuda=True).load()
    sample: Sample = torch.ops.cem_tetris_article.sample.default._op
    return sample


def _empty(mean: Tensor, count: int) -> Tensor:
    return torch.empty((mean.shape[0], count), device=mean.device, dtype=mean.dtype)


def _in_place(mean: Tensor, std: Tensor, count: int) -> Tensor:
    samples = _empty(mean, count).normal_()
    return torch.addcmul(mean.unsqueeze(1), samples, std.unsqueeze(1), out=samples)


def _ours(**options: Any) -> Sample:
    """Return the operator with a seed and a new generation for every call."""
    generations = itertools.count()
    draw: Callable[..., Tensor] = sample_normal
    seeded = partial(draw, seed=SEED, **options)
    return lambda mean, std, count: seeded(mean, std, count, generation=next(generations))


def _fill(mean: Tensor, std: Tensor, count: int) -> Tensor:
    return _empty(mean, count).fill_(1.0)


METHODS = (
    Method("eager", "mean + std * randn", lambda: _eager),
    Method("compile", "torch.compile of it", lambda: _compile(_eager), devices=("cuda",)),
    Method("normal_", "Tensor.normal_, addcmul", lambda: _in_place),
    Method(
        "backend_torch",
        "cem backend torch",
        lambda: partial(torch_sampler, seed=SEED, generation=0),
        devices=("cpu",),
    ),
    Method("ours", "sample_normal", _ours),
    # The optimizer's layout has a candidate per row.
    Method("rows", "sample_normal as (N, d)", lambda: _ours(dim_first=False)),
    # On CUDA this takes the generator's seed and offset, on a CPU it draws a seed.
    Method("unseeded", "sample_normal without a seed", lambda: sample_normal),
    Method("fill", "fill_, the floor", lambda: _fill),
    Method("shared_eager", "mean + std * randn(1, N)", lambda: _shared_eager),
    Method(
        "shared_compile",
        "torch.compile of it",
        lambda: _compile(_shared_eager),
        devices=("cuda",),
    ),
    Method("article", "the article's kernel", _article, devices=("cuda",)),
    Method("shared", "sample_normal, shared_noise", lambda: _ours(shared_noise=True)),
)
"""All methods."""

ARTICLE_SAMPLES = 1024  # The most that the article's kernel can draw.

NOISES = {
    "ours": ("independent noise", ("eager", "compile", "normal_", "fill")),
    "shared": (
        "one noise value for all dimensions",
        ("shared_eager", "shared_compile", "article"),
    ),
}
"""Our method of each kind of noise: the name of the kind, and methods that do the same."""

RATIOS = (
    ("ours", ("compile", "eager")),
    ("rows", ("compile", "eager")),
    ("unseeded", ("compile", "eager")),
    ("fill", ("compile", "eager")),
    ("shared", ("shared_compile", "shared_eager", "article", "ours")),
    ("article", ("shared_compile", "shared_eager")),
)
"""Methods, and those that each is compared with."""

CLOCKS = {"latency": "", "event": "_busy", "graph": "_graph"}
"""The clocks of the article's sizes, and the endings of their figures' names."""

CLOCK_LABELS = {"latency": "idle device", "graph": "CUDA graph", "wall": "CPU"}

LABELS = {method.name: method.label for method in METHODS}
"""The names of methods in tables and pictures."""


def median(size: Mapping[str, Any], clock: str, name: str) -> float:
    """Return the median time of a method at a measured size, in microseconds."""
    return float(size[clock][name]["median"])


def speedups(
    sizes: Sequence[Mapping[str, Any]], clock: str, over: str, of: str = "ours"
) -> list[float]:
    """Return how many times as long a method takes as another one, by size."""
    return [median(size, clock, over) / median(size, clock, of) for size in sizes]


def calls(
    dim: int, device: str, samples: int, methods: Iterable[Method] = METHODS
) -> dict[str, Function]:
    """Return the functions to be timed for a size; each was called once, and is compiled."""
    generator = torch.Generator(device).manual_seed(dim)
    # With zeros functions can be faster than with data.
    mean = torch.rand(dim, device=device, generator=generator) - 0.5
    std = torch.rand(dim, device=device, generator=generator) + 0.5
    functions: dict[str, Function] = {}
    for method in methods:
        if device in method.devices:
            functions[method.name] = partial(method.make(), mean, std, samples)
    for function in functions.values():
        function()
    return functions


def draw_sizes(
    figure: Any, sizes: Sequence[Mapping[str, Any]], columns: Sequence[tuple[str, str]]
) -> None:
    """Draw the article's plots, time and speed-up, for each (clock, our method)."""
    dimensions = [size["dim"] for size in sizes]
    panels = figure.subplots(2, len(columns), sharex=True, sharey="row", squeeze=False)
    for upper, lower, (clock, ours) in zip(*panels, columns, strict=True):
        noise, others = NOISES[ours]
        for name in (ours, *others):
            if name in sizes[0][clock]:
                medians = [median(size, clock, name) for size in sizes]
                ratios = speedups(sizes, clock, name, ours)
                upper.plot(dimensions, medians, label=LABELS[name], marker="o", markersize=3)
                lower.plot(dimensions, ratios, marker="o", markersize=3)
        upper.set(title=f"{noise}, {CLOCK_LABELS[clock]}", yscale="log")
        upper.legend(fontsize="small")
        lower.set_xlabel("dimensions d")
    panels[0, 0].set_ylabel("time of a call [us, log scale]")
    panels[1, 0].set_ylabel("speed-up of sample_normal [times]")
    for axes in panels.flat:
        axes.grid(color="0.9")


def measure_article(dim: int) -> dict[str, Any]:
    """Return times of one of the article's sizes by four clocks."""
    functions = calls(dim, "cuda", SAMPLES)
    return {
        "dim": dim,
        "event": event_times(functions, PLANS["event"]),
        "latency": latency_times(functions, PLANS["event"]),
        "host": host_times(functions, PLANS["host"]),
        "graph": graph_times(functions, PLANS["graph"]),
    }


def measure_large(dim: int) -> dict[str, Any] | None:
    """Return times of a size that memory bandwidth limits; None if it is too large."""
    gc.collect()
    torch.cuda.empty_cache()
    size = dim * SAMPLES * 4
    free, _ = torch.cuda.mem_get_info()
    if free < 5 * size:
        print(f"note: d = {dim:,} is left out, it needs {5 * size / 2**30:.0f} GiB free")
        return None
    times = event_times(calls(dim, "cuda", SAMPLES), PLANS["large"])
    return {"dim": dim, "bytes": size, "event": times}


def on_cpu() -> Measured:
    """Return the figures of a processor."""
    sizes: list[dict[str, Any]] = []
    for dim in CPU:
        times = wall_times(calls(dim, "cpu", SAMPLES), PLANS["wall"])
        sizes.append({"dim": dim, "bytes": dim * SAMPLES * 4, "wall": times})
    figures = {}
    for over in ("eager", "backend_torch"):
        mean = statistics.fmean(speedups(sizes, "wall", over))
        figures[f"sampling.cpu.mean_speedup_over_{over}"] = mean
    shared = speedups(sizes, "wall", "shared_eager", "shared")
    figures["sampling.cpu.shared.mean_speedup_over_shared_eager"] = statistics.fmean(shared)
    largest = sizes[-1]
    bandwidth = largest["bytes"] / median(largest, "wall", "ours") / 1e3
    figures["sampling.cpu.largest.gb_per_s"] = bandwidth
    return Measured(figures, {"samples": SAMPLES, "sizes": sizes})


def on_gpu() -> Measured:
    """Return the figures of a GPU: over the article's range, and of the largest size."""
    article = [measure_article(dim) for dim in ARTICLE]
    large = [size for size in map(measure_large, LARGE) if size is not None]
    figures: dict[str, float] = {}
    for method, overs in RATIOS:
        infix = "" if method == "ours" else f"{method}."
        for over, (clock, suffix) in itertools.product(overs, CLOCKS.items()):
            mean = statistics.fmean(speedups(article, clock, over, method))
            figures[f"sampling.article.{infix}mean_speedup_over_{over}{suffix}"] = mean
    for method in ("ours", "rows", "unseeded", "compile", "eager", "shared", "article"):
        infix = "" if method == "ours" else f"{method}."
        host_times_of = [median(size, "host", method) for size in article]
        figures[f"sampling.{infix}host_us"] = statistics.median(host_times_of)
        for size in large[-1:]:
            (fraction,) = speedups([size], "event", "fill", method)
            bandwidth = size["bytes"] / median(size, "event", method) / 1e3
            figures[f"sampling.large.{infix}fraction_of_fill"] = fraction
            figures[f"sampling.large.{infix}gb_per_s"] = bandwidth
    return Measured(figures, {"samples": SAMPLES, "article": article, "large": large})


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return figures and details."""
    return on_gpu() if device == "cuda" else on_cpu()
