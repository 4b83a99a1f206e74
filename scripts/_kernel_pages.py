"""The tables of README and docs that say how fast the kernels are, on a GPU and on a CPU."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from _markdown import Block, Report, markdown, part
from _operator_tables import Rows, digits, elementwise_rows, lltm_rows
from _sampling_plots import SPEEDUP, TIME
from _sampling_tables import CALL_LABELS, LABELS, median, speedups

_CLOCKS = ("latency", "event", "graph", "host")
_SHOWN = (10, 1000, 2500, 5000)
_RANGE = ("eager", "compile", "normal_", "ours", "rows", "unseeded", "fill")


@part("sampling")
def sampling(result: Report) -> str:
    """Return the article's range: speed-ups in words, and the pictures."""
    figures, article = result["figures"], "sampling.article"
    first, last = result["article"][0]["dim"], result["article"][-1]["dim"]

    def times(name: str) -> str:
        return f"{figures[f'{article}.{name}']:.2f}x"

    rows = statistics.fmean(speedups(result["article"], "graph", "compile", "rows"))
    words = (
        f"Over d = {first} to {last:,}, {result['samples']} samples, as (d, N), it is "
        f"{times('mean_speedup_over_compile')} as fast as `torch.compile` on average (never below "
        f"{times('min_speedup_over_compile')}) by events around a call on an "
        f"idle device, as the article measures (`fill_` itself: "
        f"{times('fill.mean_speedup_over_compile')}), and "
        f"{times('mean_speedup_over_compile_graph')} inside CUDA graphs (as (N, d), the optimizer's layout, "
        f"{rows:.2f}x); a call keeps the host busy for "
        f"{digits(figures['sampling.host_us'])} us (`torch.compile`: "
        f"{digits(figures['sampling.compile.host_us'])}, eager: {digits(figures['sampling.eager.host_us'])})."
    )
    if result["large"]:
        words += (
            f" The largest population, {result['large'][-1]['bytes'] / 1e9:.1f} GB, is written at "
            f"{figures['sampling.large.fraction_of_fill']:.1%} of the speed of `fill_` "
            f"({figures['sampling.large.rows.fraction_of_fill']:.1%} as (N, d))."
        )
    pictures = (
        f"![Time of a call against the number of dimensions]({{root}}docs/{TIME})\n"
        f"![Speed-up against the number of dimensions]({{root}}docs/{SPEEDUP})"
    )
    return f"{words}\n\n{pictures}"


@part("sampling")
def sampling_range(result: Report) -> str:
    """Return the article's range as a table, a size a column, the clocks in a cell."""
    sizes = [size for size in result["article"] if size["dim"] in _SHOWN]
    rows = [
        [
            LABELS[name],
            *(" / ".join(digits(median(size, clock, name)) for clock in _CLOCKS) for size in sizes),
        ]
        for name in _RANGE
    ]
    return markdown(["us: " + " / ".join(_CLOCKS), *_dimensions(sizes)], rows)


@part("sampling")
def sampling_call(result: Report) -> str:
    """Return what a call of the smallest size is made of."""
    call = result.get("call")
    if call is None:
        return "Not measured yet."
    rows = [
        [label, *(digits(median(call, clock, name)) for clock in ("latency", "host"))]
        for name, label in CALL_LABELS.items()
    ]
    return markdown(["us", "latency", "host"], rows)


@part("sampling")
def sampling_large(result: Report) -> str:
    """Return the large sizes as a table: GB/s written, and the share of the floor's."""
    return _bandwidths(result["large"], "event")


@part("sampling")
def sampling_cpu(result: Report) -> str:
    """Return the sizes of a CPU as a table: microseconds."""
    sizes = result["sizes"]
    rows = [
        [LABELS[name], *(digits(median(size, "wall", name)) for size in sizes)] for name in sizes[0]["wall"]
    ]
    return markdown(["us", *_dimensions(sizes)], rows)


@part("operators")
def elementwise(result: Report) -> str:
    """Return the elementwise operators: their share of a copy's bandwidth, and PyTorch's own beside them."""
    return _table(elementwise_rows(result["elementwise"]))


@part("operators")
def lltm(result: Report) -> str:
    """Return the LLTM cell: plain PyTorch, torch.compile and ours."""
    return _table(lltm_rows(result["lltm"]))


def _table(rows: Rows) -> str:
    return markdown(list(rows[0]), [list(row.values()) for row in rows])


def _bandwidths(sizes: Sequence[Report], clock: str) -> str:
    rows = []
    for name in sizes[0][clock] if sizes else ():
        cells = []
        for size in sizes:
            share = median(size, clock, "fill") / median(size, clock, name)
            cells.append(f"{size['bytes'] / median(size, clock, name) / 1e3:,.0f} ({share:.0%})")
        rows.append([LABELS[name], *cells])
    return markdown(["GB/s written (share of fill_)", *_dimensions(sizes)], rows)


def _dimensions(sizes: Sequence[Report]) -> list[str]:
    return [f"d = {size['dim']:,}" for size in sizes]


KERNEL_BLOCKS: dict[str, Block] = {
    "sampling": sampling,
    "sampling_range": sampling_range,
    "sampling_call": sampling_call,
    "sampling_large": sampling_large,
    "elementwise": elementwise,
    "lltm": lltm,
}
CPU_BLOCKS: dict[str, Block] = {
    "sampling_cpu": sampling_cpu,
    "elementwise_cpu": elementwise,
    "lltm_cpu": lltm,
}
