"""Measure how fast populations are drawn: PyTorch's own ways, torch.compile, and this project's kernel.

python scripts/benchmark_sampling.py --json sampling.json
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure.cli import add_quick, measurement
from measure.provenance import Measured
from measure.sampling_methods import LABELS, Method, median, methods_for, speedups
from measure.timing import Function, Plan, event_times, graph_times, host_times, latency_times, wall_times
from tetris.commands.command_line import positive_int, run
from tetris.evaluation.text_table import table

SAMPLES = 1024
ARTICLE, ARTICLE_QUICK = (10, *range(500, 5001, 500)), (10, 1000, 5000)
LARGE, LARGE_QUICK = (10_000, 100_000, 1_000_000), (100_000,)
CPU, CPU_QUICK = (10, 100, 1000, 10_000), (10, 1000)
CLOCKS = ("latency", "event", "host", "graph", "wall")
PLANS = {"event": Plan(10, 40, 3), "host": Plan(7, 3, 1), "graph": Plan(7, 5, 1), "large": Plan(5, 8, 1)}
PLANS["wall"] = Plan(5, 3, 0)
QUICK = Plan(3, 5, 1)


def _dimensions(text: str) -> tuple[int, ...]:
    return tuple(sorted({positive_int(part) for part in text.split(",")}))


def problem(dim: int, device: str) -> tuple[Tensor, Tensor]:
    """Return a mean and a standard deviation for one size; never zeros, which can be faster than data."""
    generator = torch.Generator(device).manual_seed(dim)
    mean, std = (torch.rand(dim, device=device, generator=generator) for _ in range(2))
    return mean - 0.5, std + 0.5


def calls(methods: Sequence[Method], dim: int, device: str) -> dict[str, Function]:
    """Return what is timed for one size, each called once, so that what has to be compiled is."""
    functions = {each.name: partial(each.make(), *problem(dim, device), SAMPLES) for each in methods}
    for function in functions.values():
        function()
    return {**functions}


def measure_article(dim: int, plans: Mapping[str, Plan]) -> dict[str, Any]:
    """Return one size of the article's range: events with the device busy and idle, host time, graph time."""
    methods = methods_for("cuda")
    functions = calls(methods, dim, "cuda")
    capturable = {method.name: functions[method.name] for method in methods if method.capturable}
    return {
        "dim": dim,
        "event": event_times(functions, plans["event"]),
        "latency": latency_times(functions, plans["event"]),
        "host": host_times(functions, plans["host"]),
        "graph": graph_times(capturable, plans["graph"]),
    }


def measure_call(plans: Mapping[str, Plan]) -> dict[str, Any]:
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
    times = latency_times(functions, plans["event"]), host_times(functions, plans["host"])
    return dict(zip(("latency", "host"), times, strict=True))


def measure_cuda(
    article: Sequence[int], large: Sequence[int], plans: Mapping[str, Plan]
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return figures and details of a GPU."""
    data: dict[str, Any] = {"article": [measure_article(dim, plans) for dim in article], "large": []}
    for dim in large:
        gc.collect()
        torch.cuda.empty_cache()
        size = dim * SAMPLES * 4
        if torch.cuda.mem_get_info()[0] < 5 * size:
            print(f"note: d = {dim:,} is left out, it needs {5 * size / 2**30:.0f} GiB free")
            continue
        times = event_times(calls(methods_for("cuda"), dim, "cuda"), plans["large"])
        data["large"].append({"dim": dim, "bytes": size, "event": times})
    figures = article_figures(data["article"])
    figures |= large_figures(data["large"][-1]) if data["large"] else {}
    return figures, {**data, "call": measure_call(plans)}


def measure_cpu(dimensions: Sequence[int], plan: Plan) -> tuple[dict[str, float], dict[str, Any]]:
    """Return figures and details of the CPU."""
    sizes: list[dict[str, Any]] = []
    for dim in dimensions:
        times = wall_times(calls(methods_for("cpu"), dim, "cpu"), plan)
        sizes.append({"dim": dim, "bytes": dim * SAMPLES * 4, "wall": times})
    figures = {
        f"sampling.cpu.mean_speedup_over_{over}": statistics.fmean(speedups(sizes, "wall", over))
        for over in ("eager", "backend_torch")
    }
    figures["sampling.cpu.largest.gb_per_s"] = sizes[-1]["bytes"] / median(sizes[-1], "wall", "ours") / 1e3
    return figures, {"sizes": sizes}


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
        name = "sampling.host_us" if method == "ours" else f"sampling.{method}.host_us"
        figures[name] = statistics.median(median(size, "host", method) for size in sizes)
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


def tables(data: Mapping[str, Any]) -> str:
    """Return median times, a table for each clock."""
    blocks = []
    for sizes in (data.get(key, []) for key in ("article", "large", "sizes")):
        for clock in (key for key in CLOCKS if sizes and key in sizes[0]):
            rows = [
                [LABELS[name], *(f"{median(size, clock, name):,.1f}" for size in sizes)]
                for name in sizes[0][clock]
            ]
            blocks.append(table([f"{clock}, us", *(f"d={size['dim']:,}" for size in sizes)], rows) + "\n")
    return "\n".join(blocks)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give a parser the sizes."""
    sizes = f"of the article (default: {ARTICLE[0]}, {ARTICLE[1]} ... {ARTICLE[-1]}), or of a CPU"
    parser.add_argument("--dimensions", type=_dimensions, metavar="D,D,...", help=sizes)
    add_quick(parser)


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return figures and details; the median times go to stdout."""
    quick, chosen = arguments.quick, arguments.dimensions
    plans = dict.fromkeys(PLANS, QUICK) if quick else PLANS
    if device == "cuda":
        article, large = (ARTICLE_QUICK, LARGE_QUICK) if quick else (ARTICLE, LARGE)
        figures, data = measure_cuda(chosen or article, large, plans)
    else:
        figures, data = measure_cpu(chosen or (CPU_QUICK if quick else CPU), plans["wall"])
    print(f"float32, d x {SAMPLES}, medians\n\n{tables(data)}")
    return figures, {"quick": quick, "samples": SAMPLES, **data}, {}


main = measurement(measure, __doc__, add_arguments)

if __name__ == "__main__":
    run(main)
