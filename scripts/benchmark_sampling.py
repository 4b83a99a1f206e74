"""Measure how fast populations are drawn: PyTorch's own ways, torch.compile, and this project's kernel.

python scripts/benchmark_sampling.py --output sampling.json
python scripts/benchmark_sampling.py --from sampling.json --plot docs
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from _results import DEVICES, describe, read_result, settle_device, write_json
from _sampling_methods import Method, Sample, methods_for
from _sampling_plots import HINT, draw_sampling_plots
from _sampling_tables import article_figures, cpu_figures, large_figures, tables
from _timing import Function, Plan, Timing, event_times, graph_times, host_times, latency_times, wall_times
from torch import Tensor

from kernels import BuildError
from kernels.files import check_writable
from tetris.commands.arguments import add_device
from tetris.commands.command_line import Parser, fail, one_line_errors, positive_int, run

BENCHMARK = "sampling"
SAMPLES = 1024
ARTICLE = (10, *range(500, 5001, 500))
ARTICLE_QUICK = (10, 1000, 5000)
LARGE = (10_000, 100_000, 1_000_000)
LARGE_QUICK = (100_000,)
CPU = (10, 100, 1000, 10_000)
CPU_QUICK = (10, 1000)

_EVENTS = Plan(turns=10, calls=40, warm_up=3)
_HOST = Plan(turns=7, calls=3, warm_up=1)
_GRAPH = Plan(turns=7, calls=5, warm_up=1)
_LARGE = Plan(turns=5, calls=8, warm_up=1)
_CPU = Plan(turns=5, calls=3, warm_up=0)
_QUICK = Plan(turns=3, calls=5, warm_up=1)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(description=__doc__, usage="%(prog)s [option ...]")
    add_device(parser, DEVICES, what="what is measured")
    parser.add_argument("--quick", action="store_true", help="a look: few sizes, few repeats")
    parser.add_argument(
        "--dimensions",
        type=_dimensions,
        metavar="D,D,...",
        help=f"instead of {ARTICLE[0]}, {ARTICLE[1]}, {ARTICLE[2]} ... {ARTICLE[-1]}, "
        f"or on a CPU {', '.join(map(str, CPU))}",
    )
    parser.add_argument("--no-large", action="store_true", help="leave the sizes up to 4 GB out")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the result as JSON")
    parser.add_argument("--plot", type=Path, metavar="FOLDER", help="draw two pictures (matplotlib)")
    parser.add_argument(
        "--from", dest="source", type=Path, metavar="FILE", help="measure nothing, take a result file"
    )
    return parser.parse_args(argv)


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


def plain(timings: Mapping[str, Timing]) -> dict[str, dict[str, float]]:
    """Return timings as plain values."""
    return {name: timing.to_dict() for name, timing in timings.items()}


def measure_article(methods: Sequence[Method], dim: int, quick: bool) -> dict[str, Any]:
    """Return one size of the article's range: events with the device busy and idle, host time, graph time."""
    functions = calls(methods, dim, "cuda")
    capturable = {method.name: functions[method.name] for method in methods if method.capturable}
    return {
        "dim": dim,
        "event": plain(event_times(functions, _QUICK if quick else _EVENTS)),
        "latency": plain(latency_times(functions, _QUICK if quick else _EVENTS)),
        "host": plain(host_times(functions, _QUICK if quick else _HOST)),
        "graph": plain(graph_times(capturable, _QUICK if quick else _GRAPH)),
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
        "latency": plain(latency_times(functions, _QUICK if quick else _EVENTS)),
        "host": plain(host_times(functions, _QUICK if quick else _HOST)),
    }


def measure_large(methods: Sequence[Method], dim: int, quick: bool) -> dict[str, Any]:
    """Return one large size: events around a call."""
    timings = event_times(calls(methods, dim, "cuda"), _QUICK if quick else _LARGE)
    return {"dim": dim, "bytes": dim * SAMPLES * 4, "event": plain(timings)}


def measure_cuda(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what is measured on a GPU, details and figures."""
    quick, methods = arguments.quick, methods_for("cuda")
    dimensions = arguments.dimensions or (ARTICLE_QUICK if quick else ARTICLE)
    article = [measure_article(methods, dim, quick) for dim in dimensions]
    large = []
    for dim in () if arguments.no_large else LARGE_QUICK if quick else LARGE:
        gc.collect()
        torch.cuda.empty_cache()
        if torch.cuda.mem_get_info()[0] < 5 * dim * SAMPLES * 4:
            print(f"note: d = {dim:,} is left out, it needs {5 * dim * SAMPLES * 4 / 2**30:.0f} GiB free")
            continue
        large.append(measure_large(methods, dim, quick))
    return {
        "figures": article_figures(article) | large_figures(large),
        "samples": SAMPLES,
        "article": article,
        "large": large,
        "call": measure_call(quick),
    }


def measure_cpu(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what is measured on the CPU, details and figures."""
    methods = methods_for("cpu")
    sizes = [
        {
            "dim": dim,
            "bytes": dim * SAMPLES * 4,
            "wall": plain(wall_times(calls(methods, dim, "cpu"), _QUICK if arguments.quick else _CPU)),
        }
        for dim in arguments.dimensions or (CPU_QUICK if arguments.quick else CPU)
    ]
    return {"figures": cpu_figures(sizes), "samples": SAMPLES, "sizes": sizes}


def measured(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure; the result as plain values for JSON.

    Raises:
        BuildError: If the kernel cannot be built here.
    """
    device = settle_device(arguments.device)
    measure = measure_cuda if device == "cuda" else measure_cpu
    return {**describe(BENCHMARK, device, ("normal",)), "quick": arguments.quick, **measure(arguments)}


def draw(result: Mapping[str, Any], folder: Path) -> None:
    """Draw the two pictures, or say what it takes."""
    if "article" not in result:
        fail("expected a result measured on a GPU for the pictures, got one of a CPU")
    if not draw_sampling_plots(result, folder):
        fail(HINT)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure or read, print the tables, write result and pictures."""
    arguments = parse_arguments(argv)
    with one_line_errors():
        for path in (arguments.output, arguments.plot and arguments.plot / "picture.png"):
            if path is not None:
                check_writable(path)
        if arguments.source is not None:
            result = read_result(arguments.source, BENCHMARK)
        else:
            settle_device(arguments.device)
    if arguments.source is None:
        try:
            result = measured(arguments)
        except BuildError as error:
            fail(error)
    print(tables(result))
    if arguments.output:
        write_json(arguments.output, result)
    if arguments.plot:
        draw(result, arguments.plot)
    return 0


if __name__ == "__main__":
    run(main)
