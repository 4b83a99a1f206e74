"""What scripts/benchmark_sampling.py makes of its measurements: figures by name, and tables."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from _machine import processor_of
from _operator_tables import digits
from _sampling_methods import METHODS

from tetris.evaluation.text_table import table

LABELS = {method.name: method.label for method in METHODS}
OURS = "ours"
CALL_LABELS = {
    "nothing": "nothing",
    "launch": "a kernel that does nothing",
    "empty": "torch.empty",
    "no_samples": "sample_normal of no samples",
    OURS: "sample_normal",
}
"""What a call is made of, each measured alone."""


def median(size: Mapping[str, Any], clock: str, name: str) -> float:
    """Return the median time of a method at a size, in microseconds."""
    return float(size[clock][name]["median"])


def speedups(sizes: Sequence[Mapping[str, Any]], clock: str, over: str, of: str = OURS) -> list[float]:
    """Return how many times as long one method takes as another, ours by default, size by size."""
    return [median(size, clock, over) / median(size, clock, of) for size in sizes]


def article_figures(sizes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the figures of the article's range."""
    figures = {}
    # What fill_ would have: no operator that allocates and launches has more where the host is what is timed.
    figures["sampling.article.fill.mean_speedup_over_compile"] = statistics.fmean(
        speedups(sizes, "latency", "compile", "fill")
    )
    for over in ("compile", "eager"):
        for clock, suffix in (("latency", ""), ("event", "_busy"), ("graph", "_graph")):
            for of, infix in ((OURS, ""), ("rows", "rows."), ("unseeded", "unseeded.")):
                ratios = speedups(sizes, clock, over, of)
                figures[f"sampling.article.{infix}mean_speedup_over_{over}{suffix}"] = statistics.fmean(
                    ratios
                )
                figures[f"sampling.article.{infix}min_speedup_over_{over}{suffix}"] = min(ratios)
    for name in (OURS, "unseeded", "compile", "eager"):
        infix = "" if name == OURS else f"{name}."
        times = [median(size, "host", name) for size in sizes]
        figures[f"sampling.{infix}host_us"] = statistics.median(times)
    return figures


def large_figures(sizes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the figures of the largest size: what share of the floor's bandwidth ours reaches."""
    if not sizes:
        return {}
    size = sizes[-1]
    floor = median(size, "event", "fill")
    figures = {
        f"sampling.large.{infix}fraction_of_fill": floor / median(size, "event", name)
        for name, infix in ((OURS, ""), ("rows", "rows."), ("unseeded", "unseeded."))
    }
    return figures | {
        "sampling.large.gb_per_s": size["bytes"] / median(size, "event", OURS) / 1e3,
        "sampling.large.fill.gb_per_s": size["bytes"] / floor / 1e3,
        **{
            f"sampling.large.speedup_over_{over}": speedups([size], "event", over)[0]
            for over in ("compile", "eager")
        },
    }


def cpu_figures(sizes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the figures of a CPU."""
    return {
        "sampling.cpu.mean_speedup_over_eager": statistics.fmean(speedups(sizes, "wall", "eager")),
        "sampling.cpu.mean_speedup_over_backend_torch": statistics.fmean(
            speedups(sizes, "wall", "backend_torch")
        ),
        "sampling.cpu.largest.gb_per_s": sizes[-1]["bytes"] / median(sizes[-1], "wall", OURS) / 1e3,
    }


def tables(result: Mapping[str, Any]) -> str:
    """Return the tables of a result, its machine on top."""
    machine, samples = result["machine"], result["samples"]
    name = machine["gpu"] if "gpu" in machine else f"{processor_of(machine)}, {machine['threads']} threads"
    lines = [f"{name}, torch {result['versions']['torch']}, float32, d x {samples}, medians"]
    if result["device"] == "cuda":
        for clock, title in (
            ("latency", "us, events around a call, device idle (the article's method)"),
            ("event", "us, events around a call, device busy"),
            ("host", "us, host time of a call"),
            ("graph", "us, a call in a CUDA graph"),
        ):
            lines += ["", _times(result["article"], clock, title)]
        if "call" in result:
            lines += ["", _call(result["call"])]
        if result["large"]:
            lines += ["", _bandwidths(result["large"], "event", "GB/s written, events around a call")]
    else:
        lines += ["", _times(result["sizes"], "wall", "us, wall clock")]
        lines += ["", _bandwidths(result["sizes"], "wall", "GB/s written")]
    figures = [[figure, f"{value:,.3f}"] for figure, value in result["figures"].items()]
    return "\n".join([*lines, "", table(["figure", "value"], figures)])


def _times(sizes: Sequence[Mapping[str, Any]], clock: str, title: str) -> str:
    rows = [
        [LABELS[name], *(digits(median(size, clock, name)) for size in sizes)] for name in sizes[0][clock]
    ]
    rows.append(["spread of ours, %", *(f"{_spread(size[clock][OURS]):.0f}" for size in sizes)])
    return table([title, *(f"d={size['dim']:,}" for size in sizes)], rows)


def _call(call: Mapping[str, Any]) -> str:
    clocks = ("latency", "host")
    rows = [
        [label, *(digits(median(call, clock, name)) for clock in clocks)]
        for name, label in CALL_LABELS.items()
    ]
    return table(["us, what a call is made of", *clocks], rows)


def _bandwidths(sizes: Sequence[Mapping[str, Any]], clock: str, title: str) -> str:
    rows = []
    for name in sizes[0][clock]:
        cells = []
        for size in sizes:
            time = median(size, clock, name)
            share = median(size, clock, "fill") / time
            cells.append(f"{digits(size['bytes'] / time / 1e3)} ({share:.0%})")
        rows.append([LABELS[name], *cells])
    return table([f"{title} (of fill_)", *(f"d={size['dim']:,}" for size in sizes)], rows)


def _spread(timing: Mapping[str, float]) -> float:
    """Return how far apart the least and the greatest median of a turn lie, in per cent of the median."""
    return 100 * (timing["most"] - timing["least"]) / timing["median"]
