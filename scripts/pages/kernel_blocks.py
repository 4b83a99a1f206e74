"""How fast the operators are, on a GPU and on a processor: blocks of README and docs/performance.md."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from measure.sampling_methods import LABELS, median, speedups

from pages.result_files import Result, load, table_block, with_provenance
from pages.wording import digits

CPU, GPU = "epyc-2core", "h200"
_CLOCKS = ("latency", "graph", "host")
_SHOWN = (10, 1000, 2500, 5000)
_RANGE = ("eager", "compile", "normal_", "ours", "rows", "unseeded", "fill")
_CALL = {
    "nothing": "nothing",
    "launch": "a kernel that does nothing",
    "empty": "torch.empty",
    "no_samples": "sample_normal of no samples",
    "ours": "sample_normal",
}
_PASSES = ("forward", "inference", "backward")
_CELLS = {"plain": "plain PyTorch", "compile": "torch.compile of it", "ours": "lltm"}


def sampling_claim() -> str:
    """Return the speed of the sampler in three sentences."""
    result = load(f"{GPU}/sampling")
    figures = result.figures
    words = (
        "Measured as the article measures, over d = 10 to 5,000 and 1,024 samples, `sample_normal` is on "
        f"average {figures['sampling.article.mean_speedup_over_compile']:.2f} times as fast as "
        "`torch.compile`. The article reports 3.79 times for its kernel, on another GPU. Inside a CUDA "
        "graph, where launches cost nothing, it is "
        f"{figures['sampling.article.mean_speedup_over_compile_graph']:.2f} times as fast. The largest "
        f"population, {result.data['large'][-1]['bytes'] / 1e9:.1f} GB, is written at "
        f"{figures['sampling.large.fraction_of_fill']:.0%} of the speed of `fill_`."
    )
    return with_provenance(words, result)


def sampling_summary() -> str:
    """Return the speed-ups over the article's range in words."""
    result = load(f"{GPU}/sampling")
    figures, article = result.figures, result.data["article"]
    times = {name.removeprefix("sampling.article."): f"{value:.2f}" for name, value in figures.items()}
    rows = statistics.fmean(speedups(article, "graph", "compile", "rows"))
    words = (
        f"Over d = {article[0]['dim']} to {article[-1]['dim']:,} `sample_normal` is "
        f"{times['mean_speedup_over_compile']} times as fast as `torch.compile` on average, never less than "
        f"{times['min_speedup_over_compile']} (`fill_`: {times['fill.mean_speedup_over_compile']}). Inside "
        f"CUDA graphs it is {times['mean_speedup_over_compile_graph']} times as fast, as (N, d) {rows:.2f}. "
        f"A call keeps the host busy for {digits(figures['sampling.host_us'])} us, `torch.compile`'s for "
        f"{digits(figures['sampling.compile.host_us'])} us, the eager one for "
        f"{digits(figures['sampling.eager.host_us'])} us."
    )
    return with_provenance(words, result)


def sampling_range() -> str:
    """Return the article's range as a table, a size a column, the clocks in a cell."""
    result = load(f"{GPU}/sampling")
    sizes = [size for size in result.data["article"] if size["dim"] in _SHOWN]
    return _times(result, "us: " + " / ".join(_CLOCKS), sizes, _RANGE, _CLOCKS)


def sampling_cpu() -> str:
    """Return the sizes of a processor as a table: microseconds."""
    result = load(f"{CPU}/sampling")
    sizes = result.data["sizes"]
    return _times(result, "us", sizes, sizes[0]["wall"], ("wall",))


def _times(
    result: Result, title: str, sizes: Sequence[Any], methods: Iterable[str], clocks: Sequence[str]
) -> str:
    rows = [
        [LABELS[name], *(" / ".join(digits(median(size, each, name)) for each in clocks) for size in sizes)]
        for name in methods
    ]
    return table_block([title, *_dimensions(sizes)], rows, result)


def sampling_call() -> str:
    """Return what a call of the smallest size is made of."""
    result = load(f"{GPU}/sampling")
    rows = [
        [label, *(digits(median(result.data["call"], clock, name)) for clock in ("latency", "host"))]
        for name, label in _CALL.items()
    ]
    return table_block(["us", "latency", "host"], rows, result)


def sampling_large() -> str:
    """Return the large sizes as a table: GB/s written, and the share of the floor's."""
    result = load(f"{GPU}/sampling")
    sizes, rows = result.data["large"], []
    for name in sizes[0]["event"]:
        cells = []
        for size in sizes:
            share = median(size, "event", "fill") / median(size, "event", name)
            cells.append(f"{size['bytes'] / median(size, 'event', name) / 1e3:,.0f} ({share:.0%})")
        rows.append([LABELS[name], *cells])
    return table_block(["GB/s written (share of fill_)", *_dimensions(sizes)], rows, result)


def elementwise(machine: str) -> str:
    """Return the elementwise operators: their share of a copy's bandwidth, and PyTorch's own beside them."""
    result = load(f"{machine}/operators")
    rows = []
    for row in result.data["elementwise"]["rows"]:
        compared = ["-", "-", "-"]
        if row["operator"] != "copy":
            compared = [f"{row['fraction_of_copy']:.0%}", digits(row["torch_us"]), f"{row['of_torch']:.2f}x"]
        cells = [row["operator"], row["dtype"], digits(row["us"]), digits(row["gb_per_s"])]
        rows.append([*cells, *compared, f"{row['spread']:.1%}"])
    elements = result.data["elementwise"]["rows"][0]["elements"]
    header = [
        f"operator, {elements:,} elements",
        "dtype",
        "us",
        "GB/s",
        "of a copy",
        "PyTorch's, us",
        "speed-up",
    ]
    return table_block([*header, "spread"], rows, result)


def lltm(machine: str) -> str:
    """Return the LLTM cell: plain PyTorch, torch.compile and ours; behind a time, how many times ours."""
    result = load(f"{machine}/operators")
    rows = []
    for size in result.data["lltm"]["sizes"]:
        shape = f"{size['batch']:,} x {size['inputs']:,} -> {size['states']:,}"
        for name, passes in size["microseconds"].items():
            cells = []
            for each in _PASSES:
                times = size["speedups"][each].get(name)
                share = "" if times is None else f" ({times:.2f}x)"
                cells.append(f"{digits(passes[each]['median'])}{share}")
            rows.append([shape, _CELLS[name], *cells])
    header = ["batch x inputs -> states", "us (times lltm's)", *_PASSES]
    return table_block(header, rows, result)


def _dimensions(sizes: Sequence[Mapping[str, Any]]) -> list[str]:
    return [f"d = {size['dim']:,}" for size in sizes]
