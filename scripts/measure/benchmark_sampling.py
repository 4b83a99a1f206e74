"""Measure how fast populations are drawn: PyTorch's own ways, torch.compile, and this project's kernel.

python scripts/benchmark_sampling.py --json sampling.json
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure.cli import make_parser, measurement, read
from measure.provenance import title, write_result
from measure.sampling_methods import METHODS, Method, Sample, methods_for
from measure.timing import Function, Plan, event_times, graph_times, host_times, latency_times, wall_times
from tetris.commands.command_line import positive_int, run
from tetris.evaluation.text_table import table

SAMPLES = 1024
ARTICLE = (10, *range(500, 5001, 500))
ARTICLE_QUICK = (10, 1000, 5000)
LARGE = (10_000, 100_000, 1_000_000)
LARGE_QUICK = (100_000,)
CPU = (10, 100, 1000, 10_000)
CPU_QUICK = (10, 1000)
CLOCKS = {
    "latency": "us, events around a call, device idle (the article's method)",
    "event": "us, events around a call, device busy",
    "host": "us, host time of a call",
    "graph": "us, a call in a CUDA graph",
    "wall": "us, wall clock",
}

_EVENTS = Plan(rounds=10, calls=40, warm_up=3)
_HOST = Plan(rounds=7, calls=3, warm_up=1)
_GRAPH = Plan(rounds=7, calls=5, warm_up=1)
_LARGE = Plan(rounds=5, calls=8, warm_up=1)
_CPU = Plan(rounds=5, calls=3, warm_up=0)
_QUICK = Plan(rounds=3, calls=5, warm_up=1)


def _dimensions(text: str) -> tuple[int, ...]:
    return tuple(sorted({positive_int(part) for part in text.split(",")}))


def problem(dim: int, device: str) -> tuple[Tensor, Tensor]:
    """Return a mean and a standard deviation for one size; never zeros, which can be faster than data."""
    generator = torch.Generator(device).manual_seed(dim)
    mean, std = (torch.rand(dim, device=device, generator=generator) for _ in range(2))
    return mean - 0.5, std + 0.5


def calls(methods: Sequence[Method], dim: int, device: str) -> dict[str, Function]:
    """Return what is timed for one size, each called once, so that what has to be compiled is."""
    mean, std = problem(dim, device)

    def bound(sample: Sample) -> Function:
        return lambda: sample(mean, std, SAMPLES)

    functions = {method.name: bound(method.make()) for method in methods}
    for function in functions.values():
        function()
    return functions


def measure_article(dim: int, quick: bool) -> dict[str, Any]:
    """Return one size of the article's range: events with the device busy and idle, host time, graph time."""
    methods = methods_for("cuda")
    functions = calls(methods, dim, "cuda")
    capturable = {method.name: functions[method.name] for method in methods if method.capturable}
    return {
        "dim": dim,
        "event": event_times(functions, _QUICK if quick else _EVENTS),
        "latency": latency_times(functions, _QUICK if quick else _EVENTS),
        "host": host_times(functions, _QUICK if quick else _HOST),
        "graph": graph_times(capturable, _QUICK if quick else _GRAPH),
    }


def measure_call(quick: bool) -> dict[str, Any]:
    """Return what a call of the smallest size is made of, by the clocks in which the host shows."""
    from kernels.normal import sample_normal

    mean, std = problem(ARTICLE[0], "cuda")
    functions: dict[str, Function] = {
        "nothing": lambda: None,
        "launch": lambda: torch.cuda._sleep(0),  # the least that launches: a kernel that ends at once
        "empty": lambda: torch.empty(ARTICLE[0], SAMPLES, device="cuda"),
        "no_samples": lambda: sample_normal(mean, std, 0, seed=1),
        "ours": lambda: sample_normal(mean, std, SAMPLES, seed=1),
    }
    for function in functions.values():
        function()
    return {
        "latency": latency_times(functions, _QUICK if quick else _EVENTS),
        "host": host_times(functions, _QUICK if quick else _HOST),
    }


def measure_cuda(arguments: argparse.Namespace) -> tuple[dict[str, float], dict[str, Any]]:
    """Return figures and details of a GPU."""
    quick = arguments.quick
    dimensions = arguments.dimensions or (ARTICLE_QUICK if quick else ARTICLE)
    article = [measure_article(dim, quick) for dim in dimensions]
    large = []
    for dim in () if arguments.no_large else LARGE_QUICK if quick else LARGE:
        gc.collect()
        torch.cuda.empty_cache()
        size = dim * SAMPLES * 4
        if torch.cuda.mem_get_info()[0] < 5 * size:
            print(f"note: d = {dim:,} is left out, it needs {5 * size / 2**30:.0f} GiB free")
            continue
        times = event_times(calls(methods_for("cuda"), dim, "cuda"), _QUICK if quick else _LARGE)
        large.append({"dim": dim, "bytes": size, "event": times})
    figures = article_figures(article) | (large_figures(large[-1]) if large else {})
    return figures, {"article": article, "large": large, "call": measure_call(quick)}


def measure_cpu(arguments: argparse.Namespace) -> tuple[dict[str, float], dict[str, Any]]:
    """Return figures and details of the CPU."""
    plan = _QUICK if arguments.quick else _CPU
    sizes: list[dict[str, Any]] = [
        {
            "dim": dim,
            "bytes": dim * SAMPLES * 4,
            "wall": wall_times(calls(methods_for("cpu"), dim, "cpu"), plan),
        }
        for dim in arguments.dimensions or (CPU_QUICK if arguments.quick else CPU)
    ]
    figures = {
        f"sampling.cpu.mean_speedup_over_{over}": statistics.fmean(speedups(sizes, "wall", over))
        for over in ("eager", "backend_torch")
    }
    figures["sampling.cpu.largest.gb_per_s"] = sizes[-1]["bytes"] / median(sizes[-1], "wall", "ours") / 1e3
    return figures, {"sizes": sizes}


def median(size: Mapping[str, Any], clock: str, name: str) -> float:
    """Return the median time of a method at a size, in microseconds."""
    return float(size[clock][name]["median"])


def speedups(sizes: Sequence[Mapping[str, Any]], clock: str, over: str, of: str = "ours") -> list[float]:
    """Return how many times as long one method takes as another, ours by default, size by size."""
    return [median(size, clock, over) / median(size, clock, of) for size in sizes]


def article_figures(sizes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the figures of the article's range."""
    # What fill_ would have: no operator that allocates and launches has more where the host is what is timed.
    floor = statistics.fmean(speedups(sizes, "latency", "compile", "fill"))
    figures = {"sampling.article.fill.mean_speedup_over_compile": floor}
    for over in ("compile", "eager"):
        for clock, suffix in (("latency", ""), ("event", "_busy"), ("graph", "_graph")):
            for of, infix in (("ours", ""), ("rows", "rows."), ("unseeded", "unseeded.")):
                ratios, name = speedups(sizes, clock, over, of), f"speedup_over_{over}{suffix}"
                figures[f"sampling.article.{infix}mean_{name}"] = statistics.fmean(ratios)
                figures[f"sampling.article.{infix}min_{name}"] = min(ratios)
    for method in ("ours", "unseeded", "compile", "eager"):
        infix = "" if method == "ours" else f"{method}."
        figures[f"sampling.{infix}host_us"] = statistics.median(
            median(size, "host", method) for size in sizes
        )
    return figures


def large_figures(size: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of the largest size: what share of the floor's bandwidth ours reaches."""
    floor, ours = (median(size, "event", name) for name in ("fill", "ours"))
    figures = {
        f"sampling.large.{infix}fraction_of_fill": floor / median(size, "event", name)
        for name, infix in (("ours", ""), ("rows", "rows."), ("unseeded", "unseeded."))
    }
    figures["sampling.large.gb_per_s"] = size["bytes"] / ours / 1e3
    figures["sampling.large.fill.gb_per_s"] = size["bytes"] / floor / 1e3
    for over in ("compile", "eager"):
        figures[f"sampling.large.speedup_over_{over}"] = speedups([size], "event", over)[0]
    return figures


def tables(figures: Mapping[str, float], data: Mapping[str, Any]) -> str:
    """Return median times, a table for each clock, and the figures."""
    labels = {method.name: method.label for method in METHODS}
    blocks = []
    for sizes in (data.get(key, []) for key in ("article", "large", "sizes")):
        for clock in (key for key in CLOCKS if sizes and key in sizes[0]):
            rows = [
                [labels[name], *(f"{median(size, clock, name):,.1f}" for size in sizes)]
                for name in sizes[0][clock]
            ]
            blocks.append(table([CLOCKS[clock], *(f"d={size['dim']:,}" for size in sizes)], rows))
    blocks.append(table(["figure", "value"], [[name, f"{value:,.3f}"] for name, value in figures.items()]))
    return "\n\n".join(blocks)


@measurement
def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print the tables, write the result."""
    parser = make_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="a look: few sizes, few repeats")
    sizes = f"of the article (default: {ARTICLE[0]}, {ARTICLE[1]} ... {ARTICLE[-1]}), or of a CPU"
    parser.add_argument("--dimensions", type=_dimensions, metavar="D,D,...", help=sizes)
    parser.add_argument("--no-large", action="store_true", help="leave the sizes up to 4 GB out")
    arguments, device = read(parser, argv)
    figures, data = (measure_cuda if device == "cuda" else measure_cpu)(arguments)
    print(f"{title(device)}, float32, d x {SAMPLES}, medians\n\n{tables(figures, data)}")
    data = {"quick": arguments.quick, "samples": SAMPLES, **data}
    write_result(arguments.json, figures, data, device)


if __name__ == "__main__":
    run(main)
