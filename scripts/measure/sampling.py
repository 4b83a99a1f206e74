"""Measure how fast PyTorch, torch.compile and this project's kernel draw populations.

python scripts/measure sampling --json sampling.json

Noise is independent, or all dimensions of a sample share one value, as in A. Kompella's
article. With shared noise the kernel of the article is measured, too.
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

# The numbers of dimensions: of the article, of populations that fill a GPU's memory, and for a
# CPU.
ARTICLE = (10, 100, 500, 1000, 2500, 5000)
LARGE = (10_000, 100_000, 1_000_000)
CPU = (10, 100, 1000, 10_000)
PLANS = {
    "event": Plan(10, 40, 3),
    "host": Plan(7, 3, 1),
    "graph": Plan(7, 5, 1),
    # A round has one call. Many long calls in a row bring the GPU to its power limit, and slow
    # down the functions that follow.
    "large": Plan(40, 1, 0),
    "wall": Plan(5, 3, 0),
}

Sample = Callable[[Tensor, Tensor, int], Tensor]
"""Draws samples from mean and std, each of shape (dim,), and the number of samples."""


class Method(NamedTuple):
    """A way to draw a population.

    Attributes:
        name: The name in result files.
        label: The name in tables.
        make: Returns the function that draws. It is called for every size.
        devices: The devices on which the method is measured.
    """

    name: str
    label: str
    make: Callable[[], Sample]
    devices: tuple[str, ...] = ("cuda", "cpu")


def _transform(mean: Tensor, std: Tensor, noise_rows: int, count: int) -> Tensor:
    """Return samples, shape (dim, count). With one row of noise, all dimensions share it."""
    noise = torch.randn((noise_rows, count), device=mean.device, dtype=mean.dtype)
    return mean.unsqueeze(1) + std.unsqueeze(1) * noise


def _eager(mean: Tensor, std: Tensor, count: int) -> Tensor:
    return _transform(mean, std, mean.shape[0], count)


def _shared_eager(mean: Tensor, std: Tensor, count: int) -> Tensor:
    return _transform(mean, std, 1, count)


def _compile(function: Sample) -> Sample:
    # Code that is compiled for one size is the fastest. The compiler gives up after eight sizes
    # of a function, so it is reset. The reset also drops compiled code, so `calls` makes all
    # functions of a size before it calls the first one.
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
    """Return our operator with a fixed seed, and with another generation in every call."""
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
    # The optimizer's layout: one candidate per row.
    Method("rows", "sample_normal as (N, d)", lambda: _ours(dim_first=False)),
    # Without a seed the operator uses the seed and offset of torch's generator on CUDA, and
    # draws a seed on a CPU.
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
"""All methods to draw a population."""

ARTICLE_SAMPLES = 1024  # The most that the article's kernel can draw.

NOISES = {
    "ours": ("independent noise", ("eager", "compile", "normal_", "fill")),
    "shared": (
        "one noise value for all dimensions",
        ("shared_eager", "shared_compile", "article"),
    ),
}
"""By our method: the kind of its noise, and the other methods that draw this kind of noise."""

RATIOS = (
    ("ours", ("compile", "eager")),
    ("rows", ("compile", "eager")),
    ("unseeded", ("compile", "eager")),
    ("fill", ("compile", "eager")),
    ("shared", ("shared_compile", "shared_eager", "article", "ours")),
    ("article", ("shared_compile", "shared_eager")),
)
"""Methods, and the other methods that each of them is compared with."""

CLOCKS = {"latency": "", "event": "_busy", "graph": "_graph"}
"""The clocks for the article's sizes, and the endings of the names of their figures."""

CLOCK_LABELS = {"latency": "idle device", "graph": "CUDA graph", "wall": "CPU"}

LABELS = {method.name: method.label for method in METHODS}
"""The names of methods in tables and pictures."""


def median(size: Mapping[str, Any], clock: str, name: str) -> float:
    """Return the median time of a method at a measured size, in microseconds."""
    return float(size[clock][name]["median"])


def speedups(
    sizes: Sequence[Mapping[str, Any]], clock: str, other: str, method: str = "ours"
) -> list[float]:
    """Return the time of another method divided by that of ``method``, at each size."""
    return [median(size, clock, other) / median(size, clock, method) for size in sizes]


def _gb_per_second(size: Mapping[str, Any], clock: str, name: str) -> float:
    """Return how many gigabytes of samples a method writes per second."""
    return float(size["bytes"]) / median(size, clock, name) / 1e3


def calls(
    dim: int, device: str, samples: int, methods: Iterable[Method] = METHODS
) -> dict[str, Function]:
    """Return a function for each method, by its name, that draws a population.

    The functions take no arguments. Each function has already been called once, so that later
    calls include no compilation.

    Args:
        dim: The number of dimensions of a sample.
        device: The device of the population. Methods for other devices are left out.
        samples: The number of samples in a population.
        methods: The methods.
    """
    generator = torch.Generator(device).manual_seed(dim)
    # The mean and std are random: with zeros some functions would be faster.
    mean = torch.rand(dim, device=device, generator=generator) - 0.5
    std = torch.rand(dim, device=device, generator=generator) + 0.5
    functions: dict[str, Function] = {}
    for method in methods:
        if device in method.devices:
            sample = method.make()
            functions[method.name] = partial(sample, mean, std, samples)
    # The first call compiles a function. `Method.make` may reset torch's compiler, which drops
    # all compiled code. So no function is called before all functions are made.
    for function in functions.values():
        function()
    return functions


def draw_sizes(
    figure: Any, sizes: Sequence[Mapping[str, Any]], columns: Sequence[tuple[str, str]]
) -> None:
    """Draw the times of sampling methods, and our speed-ups, over the number of dimensions.

    A column of the figure compares one of our methods with the other methods that draw the same
    kind of noise. All times of a column are measured with the same clock. The upper panel shows
    the times of these methods. The lower panel shows their times divided by ours.

    Args:
        figure: The figure of Matplotlib.
        sizes: One dictionary per measured size: its number of dimensions ("dim"), and for each
            clock the statistics of the times by method.
        columns: For each column the name of its clock and the name of our method.
    """
    dimensions = [size["dim"] for size in sizes]
    panels = figure.subplots(2, len(columns), sharex=True, sharey="row", squeeze=False)
    for column, (clock, our_method) in enumerate(columns):
        upper, lower = panels[:, column]
        # `NOISES` has the kind of noise of our method, and the other methods with this kind.
        noise, others = NOISES[our_method]
        for name in (our_method, *others):
            if name not in sizes[0][clock]:  # The method was not measured.
                continue
            medians = [median(size, clock, name) for size in sizes]
            ratios = speedups(sizes, clock, name, our_method)
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
    """Return the times of all methods at one of the article's sizes, by four clocks."""
    functions = calls(dim, "cuda", SAMPLES)
    return {
        "dim": dim,
        "event": event_times(functions, PLANS["event"]),
        "latency": latency_times(functions, PLANS["event"]),
        "host": host_times(functions, PLANS["host"]),
        "graph": graph_times(functions, PLANS["graph"]),
    }


def measure_large(dim: int) -> dict[str, Any] | None:
    """Return the times of all methods at a large size; None if the memory is too small.

    At such a size the memory bandwidth limits the speed.
    """
    gc.collect()
    torch.cuda.empty_cache()
    size = dim * SAMPLES * 4  # Bytes of float32.
    free, _ = torch.cuda.mem_get_info()
    if free < 5 * size:  # Some methods need memory for several populations.
        print(f"note: d = {dim:,} is left out, it needs {5 * size / 2**30:.0f} GiB free")
        return None
    times = event_times(calls(dim, "cuda", SAMPLES), PLANS["large"])
    return {"dim": dim, "bytes": size, "event": times}


def on_cpu() -> Measured:
    """Measure on a CPU how fast our methods and PyTorch's draw normal populations.

    The figures are the mean speed-ups of our methods over others, for independent and for
    shared noise. The last figure is the number of gigabytes per second that our method writes
    at the largest size.
    """
    sizes = []
    for dim in CPU:  # The numbers of dimensions that a CPU draws.
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
    """Measure on a GPU how fast our methods and others draw normal populations.

    The populations have the sizes of the article, and larger sizes at which the memory
    bandwidth limits the speed. The figures of a method are

    mean_speedup_over_OTHER: Its mean speed-up over the method OTHER at the article's sizes.
        There is one such figure for each way to time a call (`CLOCKS`), whose suffix is added
        to the figure's name.
    host_us: The microseconds for which a call keeps the CPU busy.
    gb_per_s: The gigabytes per second that it writes at the largest size that fits into memory.
    fraction_of_fill: Its speed at that size divided by the speed of `Tensor.fill_`, which is
        the highest possible speed.

    The name of a figure contains the name of the method, unless it is "ours".
    """
    article = [measure_article(dim) for dim in ARTICLE]
    # `measure_large` returns None for a size that does not fit into memory.
    large = [size for size in map(measure_large, LARGE) if size is not None]
    figures = _article_speedups(article)
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


def _article_speedups(sizes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the mean speed-ups of methods over others, by the names of their figures.

    Args:
        sizes: For each of the article's sizes the times of all methods, by four clocks.
    """
    figures = {}
    # `RATIOS` has the methods that each method is compared with.
    for method, others in RATIOS:
        infix = "" if method == "ours" else f"{method}."
        for other in others:
            for clock, suffix in CLOCKS.items():
                mean = statistics.fmean(speedups(sizes, clock, other, method))
                figures[f"sampling.article.{infix}mean_speedup_over_{other}{suffix}"] = mean
    return figures


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Measure on a GPU or a CPU how fast populations are drawn."""
    return on_gpu() if device == "cuda" else on_cpu()
