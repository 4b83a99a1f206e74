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
    draw: Any = sample_normal
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
    sizes: Sequence[Mapping[str, Any]], clock: str, other: str, method: str = "ours"
) -> list[float]:
    """Return how many times as fast as another method a method is, at each of the sizes."""
    return [median(size, clock, other) / median(size, clock, method) for size in sizes]


def _gb_per_second(size: Mapping[str, Any], clock: str, name: str) -> float:
    """Return the gigabytes of a population that a method writes in a second."""
    return float(size["bytes"]) / median(size, clock, name) / 1e3


def calls(
    dim: int, device: str, samples: int, methods: Iterable[Method] = METHODS
) -> dict[str, Function]:
    """Return functions to time, each of which draws a population, by the name of the method.

    They take no arguments and have been called once, so that they are compiled.

    Args:
        dim: The number of dimensions of a sample.
        device: The device of the population. Methods that it does not have are left out.
        samples: The number of samples.
        methods: The methods.
    """
    generator = torch.Generator(device).manual_seed(dim)
    # With zeros functions can be faster than with data, so mean and std are random.
    mean = torch.rand(dim, device=device, generator=generator) - 0.5
    std = torch.rand(dim, device=device, generator=generator) + 0.5
    functions: dict[str, Function] = {}
    for method in methods:
        if device in method.devices:
            sample = method.make()
            functions[method.name] = partial(sample, mean, std, samples)
    # `make` can reset torch's compiler, which would drop what is compiled. So all functions are
    # made before the first calls compile them.
    for function in functions.values():
        function()
    return functions


def draw_sizes(
    figure: Any, sizes: Sequence[Mapping[str, Any]], columns: Sequence[tuple[str, str]]
) -> None:
    """Draw the times of sampling methods by the number of dimensions, and our speed-ups.

    The figure has one column for each clock and method of ours. Its upper panel has the times
    of our method and of others that draw the same kind of noise; its lower panel has how many
    times as fast as each of them ours is.

    Args:
        figure: The figure of Matplotlib.
        sizes: For each size the number of dimensions, and the measured times by clock and
            method.
        columns: The clock and our method of every column.
    """
    dimensions = [size["dim"] for size in sizes]
    panels = figure.subplots(2, len(columns), sharex=True, sharey="row", squeeze=False)
    time_panels, speedup_panels = panels
    for column, (clock, our_method) in enumerate(columns):
        time_panel = time_panels[column]
        speedup_panel = speedup_panels[column]
        noise, others = NOISES[our_method]
        for name in (our_method, *others):
            if name not in sizes[0][clock]:  # The device does not have the method.
                continue
            medians = [median(size, clock, name) for size in sizes]
            ratios = speedups(sizes, clock, name, our_method)
            time_panel.plot(dimensions, medians, label=LABELS[name], marker="o", markersize=3)
            speedup_panel.plot(dimensions, ratios, marker="o", markersize=3)
        time_panel.set(title=f"{noise}, {CLOCK_LABELS[clock]}", yscale="log")
        time_panel.legend(fontsize="small")
        speedup_panel.set_xlabel("dimensions d")
    time_panels[0].set_ylabel("time of a call [us, log scale]")
    speedup_panels[0].set_ylabel("speed-up of sample_normal [times]")
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
    size = dim * SAMPLES * 4  # Bytes of float32.
    free, _ = torch.cuda.mem_get_info()
    if free < 5 * size:
        print(f"note: d = {dim:,} is left out, it needs {5 * size / 2**30:.0f} GiB free")
        return None
    times = event_times(calls(dim, "cuda", SAMPLES), PLANS["large"])
    return {"dim": dim, "bytes": size, "event": times}


def on_cpu() -> Measured:
    """Measure on a CPU how fast methods, ours and PyTorch's, draw a normal population.

    The figures are mean speed-ups of ours over other methods, for independent noise and for one
    value that all dimensions share; and the gigabytes per second that ours writes at the
    largest size.
    """
    sizes = []
    for dim in CPU:
        times = wall_times(calls(dim, "cpu", SAMPLES), PLANS["wall"])
        bytes_written = dim * SAMPLES * 4  # The samples are float32.
        sizes.append({"dim": dim, "bytes": bytes_written, "wall": times})
    figures = {}
    for other in ("eager", "backend_torch"):
        ratios = speedups(sizes, "wall", other)
        figures[f"sampling.cpu.mean_speedup_over_{other}"] = statistics.fmean(ratios)
    shared_ratios = speedups(sizes, "wall", "shared_eager", "shared")
    figures["sampling.cpu.shared.mean_speedup_over_shared_eager"] = statistics.fmean(
        shared_ratios
    )
    largest = sizes[-1]
    figures["sampling.cpu.largest.gb_per_s"] = _gb_per_second(largest, "wall", "ours")
    return Measured(figures, {"samples": SAMPLES, "sizes": sizes})


def on_gpu() -> Measured:
    """Measure on a GPU how fast methods, ours and others, draw a normal population.

    The populations have the sizes of an article, for which there are three clocks, and larger
    sizes, which memory bandwidth limits. The figures are

    - mean speed-ups of a method over others at the article's sizes, by each clock;
    - the time that a call of a method keeps the CPU busy, in microseconds;
    - at the largest size that fits into memory, the bandwidth of a method, and its speed as a
      fraction of that of `Tensor.fill_`, which is the most that is possible.

    The names of figures contain the method, except for "ours".
    """
    article = [measure_article(dim) for dim in ARTICLE]
    # A size that does not fit into memory is None.
    large = [size for size in map(measure_large, LARGE) if size is not None]
    figures = {}
    for method, others in RATIOS:
        infix = "" if method == "ours" else f"{method}."
        for other in others:
            for clock, suffix in CLOCKS.items():
                mean = statistics.fmean(speedups(article, clock, other, method))
                figures[f"sampling.article.{infix}mean_speedup_over_{other}{suffix}"] = mean
    for method in ("ours", "rows", "unseeded", "compile", "eager", "shared", "article"):
        infix = "" if method == "ours" else f"{method}."
        host_medians = [median(size, "host", method) for size in article]
        figures[f"sampling.{infix}host_us"] = statistics.median(host_medians)
        if large:
            largest = large[-1]
            fill_time = median(largest, "event", "fill")
            fraction = fill_time / median(largest, "event", method)
            bandwidth = _gb_per_second(largest, "event", method)
            figures[f"sampling.large.{infix}fraction_of_fill"] = fraction
            figures[f"sampling.large.{infix}gb_per_s"] = bandwidth
    return Measured(figures, {"samples": SAMPLES, "article": article, "large": large})


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return figures and details."""
    return on_gpu() if device == "cuda" else on_cpu()
