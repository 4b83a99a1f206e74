"""How fast operators, engines and environments are, on a GPU and on processors: blocks of README and docs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from measure.sampling import LABELS, median
from measure.table import TOOLS

from pages.result_files import Cell, Result, columns, crossed, figures, load, load_all, with_provenance
from pages.wording import count, digits, markdown

_CPU, _GPU = "epyc-2core", "h200"
_CLOCKS = ("latency", "graph", "host")
_SHOWN = (10, 1000, 2500, 5000)
_RANGE = ("eager", "compile", "normal_", "ours", "rows", "unseeded", "fill")
_PASSES = ("forward", "inference", "backward")
_CELLS = {"plain": "plain PyTorch", "compile": "torch.compile of it", "ours": "lltm"}
_PER_SECOND = "10x20.decisions_per_second"
_ENGINES = {
    f"rollout.python.dt.{_PER_SECOND}": "reference implementation (Python)",
    f"rollout.portable.dt.{_PER_SECOND}_per_core": "C++ for any x86-64 (SSE4.1), one core",
    f"rollout.cpu.dt.{_PER_SECOND}_per_core": "C++ with the processor's vectors, one core",
    f"rollout.cpu.dt.{_PER_SECOND}_all": "the same on all cores",
}
_CONTROLLERS = {"dt": "dt20", "dt_columns": "best", "bcts": "bcts", "bdu": "bdu", "bertsekas": "bertsekas"}
_ENVIRONMENTS = {
    "python": "`gymnasium.make`: Python, one game",
    "cpu.numpy": 'C++ engine, `output="numpy"`',
    "cpu.torch": 'C++ engine, `output="torch"`',
    "cpu.dt": 'C++ engine, `output="torch"`, `features="dt"`',
    "cuda": "CUDA engine, torch tensors on the GPU",
    "cuda.dt": 'CUDA engine, `features="dt"`',
}
_ENVIRONMENT_FIGURE = re.compile(r"env\.(?P<engine>[a-z.]+?)(\.(?P<games>\d+))?\.placements_per_second")
_GENERATIONS = {"128x20": "128 candidates, 20 parameters", "1000x100": "1,000 candidates, 100 parameters"}
_PEERS = {
    "Jumanji, 1,024 games of 10x10": ("ours.1024", r"jumanji\.\w+\.1024"),
    "Tetris-Gymnasium, one game, hard drops on 10x10": ("ours.1", r"tetris_gymnasium\.1"),
    "Tetris-Gymnasium, one game, placements by its wrapper on 10x10": ("ours.1", r"\w+_grouped\.1"),
    **{
        f"evosax {name}, {label}": (f"cem_auto.{shape}", rf"evosax_{name}\.\w+\.{shape}")
        for shape, label in _GENERATIONS.items()
        for name in ("SimpleES", "Sep_CMA_ES")
    },
}
"""What is compared with peers: ours, and the pattern of theirs, of which the fastest counts."""


def sampling_claim() -> str:
    """Return the speed of the sampler in three sentences."""
    result = load(f"{_GPU}/sampling")
    times = figures(result, "sampling.")
    words = (
        "Measured as the article measures, over d = 10 to 5,000 and 1,024 samples, `sample_normal` is on "
        f"average {times['article.mean_speedup_over_compile']:.2f} times as fast as "
        "`torch.compile`. The article reports 3.79 times for its kernel, on another GPU. Inside a CUDA "
        "graph, where launches cost nothing, it is "
        f"{times['article.mean_speedup_over_compile_graph']:.2f} times as fast. The largest "
        f"population, {result.data['large'][-1]['bytes'] / 1e9:.1f} GB, is written at "
        f"{times['large.fraction_of_fill']:.0%} of the speed of `fill_`."
    )
    return with_provenance(words, result)


def sampling_range() -> str:
    """Return the article's range as a table, a size a column, the clocks in a cell."""
    result = load(f"{_GPU}/sampling")
    sizes = [size for size in result.data["article"] if size["dim"] in _SHOWN]
    return _by_size(
        *(result, "us: " + " / ".join(_CLOCKS), sizes, _RANGE),
        lambda size, name: " / ".join(digits(median(size, clock, name)) for clock in _CLOCKS),
    )


def sampling_cpu() -> str:
    """Return the sizes of a processor as a table: microseconds."""
    result = load(f"{_CPU}/sampling")
    sizes = result.data["sizes"]
    return _by_size(
        result, "us", sizes, sizes[0]["wall"], lambda size, name: digits(median(size, "wall", name))
    )


def sampling_large() -> str:
    """Return the large sizes as a table: GB/s written, and the share of the floor's."""
    result = load(f"{_GPU}/sampling")
    sizes = result.data["large"]

    def cell(size: Any, name: str) -> str:
        own, floor = median(size, "event", name), median(size, "event", "fill")
        return f"{size['bytes'] / own / 1e3:,.0f} ({floor / own:.0%})"

    return _by_size(result, "GB/s written (share of fill_)", sizes, sizes[0]["event"], cell)


def _by_size(
    result: Result, title: str, sizes: Sequence[Any], methods: Iterable[str], cell: Callable[[Any, str], str]
) -> str:
    header = {place: f"d = {size['dim']:,}" for place, size in enumerate(sizes)}
    labels = {name: LABELS[name] for name in methods}
    return crossed(title, header, labels, lambda name, place: cell(sizes[place], name), result)


def elementwise(machine: str) -> str:
    """Return the elementwise operators: their share of a copy's bandwidth, and PyTorch's own beside them."""
    result = load(f"{machine}/operators")
    rows = result.data["elementwise"]["rows"]
    cells: dict[str, Cell] = {
        f"operator, {rows[0]['elements']:,} elements": "operator",
        "dtype": "dtype",
        "us": lambda row: digits(row["us"]),
        "GB/s": lambda row: digits(row["gb_per_s"]),
        "of a copy": lambda row: f"{row['fraction_of_copy']:.0%}" if "of_torch" in row else "-",
        "PyTorch's, us": lambda row: digits(row["torch_us"]) if "of_torch" in row else "-",
        "speed-up": lambda row: f"{row['of_torch']:.2f}x" if "of_torch" in row else "-",
        "spread": lambda row: f"{row['spread']:.1%}",
    }
    return columns(cells, rows, result)


def lltm(machine: str) -> str:
    """Return the LLTM cell: plain PyTorch, torch.compile and ours; behind a time, how many times ours."""
    result = load(f"{machine}/operators")
    rows = []
    for size in result.data["lltm"]["sizes"]:
        for name, passes in size["microseconds"].items():
            of_ours = {each: size["speedups"][each].get(name) for each in _PASSES}
            times = {each: f" ({times:.2f}x)" if times else "" for each, times in of_ours.items()}
            cells = (digits(passes[each]["median"]) + times[each] for each in _PASSES)
            shape = "{batch:,} x {inputs:,} -> {states:,}".format(**size)
            rows.append([shape, _CELLS[name], *cells])
    header = ["batch x inputs -> states", "us (times lltm's)", *_PASSES]
    return with_provenance(markdown(header, rows), result)


def speed() -> str:
    """Return decisions per second of the engines on the processors that were measured, under dt20."""
    results = {result.name: result for result in load_all("rollout") if "gpu" not in result.machine}

    def cell(name: str, machine: str) -> str | None:
        value = results[machine].figures.get(name)
        return None if value is None else count(value)

    machines = {name: result.hardware for name, result in results.items()}
    return crossed("decisions/s, dt20 on 10x20", machines, _ENGINES, cell, *results.values())


def speed_claim() -> str:
    """Return the speed of the engines in three sentences."""
    cpu, gpu, peer = load(f"{_CPU}/rollout"), load(f"{_GPU}/rollout"), load_all("mdptetris")[0]
    words = (
        f"One core of {cpu.processor} makes {count(cpu.figures[f'rollout.cpu.dt.{_PER_SECOND}_per_core'])} "
        "decisions per second with nine features on 10x20. In one run on one core the C++ engine makes "
        f"{peer.figures['mdptetris.speedup']:.0f} times as many as "
        "[MDPTetris]({root}docs/comparison.md), the C program of Thiery & Scherrer. "
        f"One {gpu.hardware} makes {count(gpu.figures[f'rollout.cuda.dt.{_PER_SECOND}'])}."
    )
    return with_provenance(words, cpu, gpu, peer)


def peers() -> str:
    """Return how many times as fast as its peers ours is, by processor time of one run on one core."""
    result, rows = load_all("peers")[0], []
    found = {
        name.split(".", 1)[1].rpartition(".")[0]: x for name, x in result.data["of_processor_time"].items()
    }
    for label, (ours, pattern) in _PEERS.items():
        theirs = [value for name, value in found.items() if re.fullmatch(pattern, name)]
        rows += [[label, f"{found[ours] / max(theirs):.2g}"]] if theirs else []
    versions = ", ".join(f"{name} {version}" for name, version in result.data["peers"].items())
    table = markdown(["one core", "ours is faster by a factor of"], rows)
    return with_provenance(f"{table}\n\n{versions}.", result)


def rollout() -> str:
    """Return decisions per second of the CUDA engine, and of the processor beside it."""
    result = load(f"{_GPU}/rollout")
    of, cores = figures(result, "rollout."), result.machine["cores"]
    rows = [
        [f"CUDA, {name} ({len(result.data['controllers'][name])} features)", count(value)]
        for features, name in _CONTROLLERS.items()
        if (value := of.get(f"cuda.{features}.{_PER_SECOND}"))
    ]
    single = of["cuda.single_game.us_per_decision"]
    rows += [
        [f"CUDA, dt20, one game: {digits(single)} us per decision", count(1e6 / single)],
        [f"C++, dt20, one core of {result.processor}", count(of[f"cpu.dt.{_PER_SECOND}_per_core"])],
        [f"C++, dt20, {cores} cores", count(of[f"cpu.dt.{_PER_SECOND}_all"])],
    ]
    return with_provenance(markdown(["engine and controller on 10x20", "decisions/s"], rows), result)


def equality() -> str:
    """Return how much was played on the CPU and on the GPU with the same result."""
    result = load(f"{_GPU}/equality")
    found = figures(result, "equality.")
    words = (
        f"Played on the CPU and on the GPU: {count(found['decisions'])} decisions in "
        f"{found['configurations']:,} configurations of features, board, rule, pieces, weights "
        f"and streams. Differences in lines, games or boards: {found['differences']}."
    )
    return with_provenance(words, result)


def sanitizers() -> str:
    """Return how many GPU tests ran under each tool of compute-sanitizer, and what it found in kernels."""
    results = [max(load_all(tool), key=lambda result: result.date) for tool in TOOLS]
    header = {"tests": "GPU tests", "errors": "found in our kernels"}
    every = {name: x for result in results for name, x in figures(result, "sanitizer.").items()}
    labels = {tool: tool for tool in TOOLS}
    return crossed("tool", header, labels, lambda tool, what: f"{every[f'{tool}.{what}']:,}", *results)


def environments() -> str:
    """Return placements per second of random play; from a machine with a GPU the CUDA engine's alone."""
    results, rows = load_all("env"), []
    for result in results:
        for name, value in result.figures.items():
            match = _ENVIRONMENT_FIGURE.fullmatch(name)
            assert match is not None, name
            if ("gpu" in result.machine) == match["engine"].startswith("cuda"):
                games = f"{int(match['games'] or 1):,}"
                spread = " to ".join(map(count, result.data["ranges"][name]))
                rows.append([_ENVIRONMENTS[match["engine"]], games, count(value), spread])
    return with_provenance(
        markdown(["environment", "games", "placements/s, median", "range"], rows), *results
    )
