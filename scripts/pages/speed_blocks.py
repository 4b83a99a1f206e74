"""How fast operators, engines and environments are, on a GPU and on processors: blocks of README and docs."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from measure.benchmark_sampling import LABELS, median, speedups
from measure.sanitizers import TOOLS

from pages.result_files import Result, load, load_all, processor, table_block, with_provenance
from pages.wording import count, digits, markdown, score

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
_GENERATIONS = {"128x20": "128 candidates, 20 parameters", "1000x100": "1,000 candidates, 100 parameters"}
_PEERS = (
    *(
        (f"{label} 10x10", f"peers.ours.{games}.placements_per_second", names)
        for label, games, names in (
            (
                "Jumanji, 1,024 games of",
                1024,
                [f"peers.jumanji.{way}.1024.placements_per_second" for way in ("jit", "scan")],
            ),
            (
                "Tetris-Gymnasium, one game, hard drops on",
                1,
                ["peers.tetris_gymnasium.1.placements_per_second"],
            ),
            (
                "Tetris-Gymnasium, one game, placements by its wrapper on",
                1,
                ["peers.tetris_gymnasium_grouped.1.placements_per_second"],
            ),
        )
    ),
    *(
        (
            f"evosax {name}, {label}",
            f"peers.cem_auto.{shape}.generations_per_second",
            [f"peers.evosax_{name}.{way}.{shape}.generations_per_second" for way in ("jit", "scan")],
        )
        for shape, label in _GENERATIONS.items()
        for name in ("SimpleES", "Sep_CMA_ES")
    ),
)
"""What is compared with peers: label, the figure of ours, and theirs, of which the fastest counts."""

_ENVIRONMENT_FIGURE = re.compile(r"env\.(?P<engine>[a-z.]+?)(\.(?P<games>\d+))?\.placements_per_second")


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
    return _times(result, "us", result.data["sizes"], result.data["sizes"][0]["wall"], ("wall",))


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
    sizes = result.data["large"]

    def cell(size: Mapping[str, Any], name: str) -> str:
        own, floor = median(size, "event", name), median(size, "event", "fill")
        return f"{size['bytes'] / own / 1e3:,.0f} ({floor / own:.0%})"

    rows = [[LABELS[name], *(cell(size, name) for size in sizes)] for name in sizes[0]["event"]]
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
    header = ["dtype", "us", "GB/s", "of a copy", "PyTorch's, us", "speed-up", "spread"]
    return table_block([f"operator, {row['elements']:,} elements", *header], rows, result)


def lltm(machine: str) -> str:
    """Return the LLTM cell: plain PyTorch, torch.compile and ours; behind a time, how many times ours."""
    result = load(f"{machine}/operators")
    rows = []
    for size in result.data["lltm"]["sizes"]:
        shape = f"{size['batch']:,} x {size['inputs']:,} -> {size['states']:,}"
        for name, passes in size["microseconds"].items():
            times = [size["speedups"][each].get(name) for each in _PASSES]
            shares = ["" if each is None else f" ({each:.2f}x)" for each in times]
            cells = [digits(passes[each]["median"]) for each in _PASSES]
            rows.append([shape, _CELLS[name], *map("".join, zip(cells, shares, strict=True))])
    header = ["batch x inputs -> states", "us (times lltm's)", *_PASSES]
    return table_block(header, rows, result)


def _dimensions(sizes: Sequence[Mapping[str, Any]]) -> list[str]:
    return [f"d = {size['dim']:,}" for size in sizes]


def speed() -> str:
    """Return decisions a second of the engines on the processors that were measured, under dt20."""
    results = [result for result in load_all("rollout") if "gpu" not in result.machine]
    rows = []
    for name, label in _ENGINES.items():
        values = [result.figures.get(name) for result in results]
        if any(values):
            rows.append([label, *("-" if value is None else count(value) for value in values)])
    header = ["decisions/s, dt20 on 10x20", *(result.hardware for result in results)]
    return table_block(header, rows, *results)


def speed_claim() -> str:
    """Return the speed of the engines in three sentences."""
    cpu, gpu, peer = load(f"{CPU}/rollout"), load(f"{GPU}/rollout"), load_all("mdptetris")[0]
    cuda = gpu.figures[f"rollout.cuda.dt.{_PER_SECOND}"]
    own = cpu.figures[f"rollout.cpu.dt.{_PER_SECOND}_per_core"]
    words = (
        f"One core of {processor(cpu.machine)} makes {count(own)} decisions a second with nine features on "
        f"10x20. In one run on one core the C++ engine makes {peer.figures['mdptetris.speedup']:.0f} times "
        "as many as [MDPTetris]({root}docs/comparison.md), the C program of Thiery & Scherrer. "
        f"One {gpu.hardware} makes {count(cuda)}."
    )
    return with_provenance(words, cpu, gpu, peer)


def mdptetris() -> str:
    """Return the C++ engine beside MDPTetris, played in one run on one machine."""
    result = load_all("mdptetris")[0]
    rows = []
    for name, label, side in (("mdptetris", "MDPTetris", ""), ("ours", "C++ engine", "ours.")):
        least, most = map(count, result.data["ranges"][name])
        middle = count(result.figures[f"mdptetris.{side}bcts.10x10.decisions_per_second_per_core"])
        rows.append([label, middle, f"{least} to {most}", score(result.data["scores"][name])])
    header = ["bcts on 10x10, one core", "decisions/s, median", "range", "lines a game (95 % interval)"]
    words = (
        f"The C++ engine makes {result.figures['mdptetris.speedup']:.0f} times as many decisions a second."
    )
    return with_provenance(f"{markdown(header, rows)}\n\n{words}", result)


def peers() -> str:
    """Return how many times as fast as its peers ours is, by processor time of one run on one core."""
    result, rows = load_all("peers")[0], []
    speeds = result.data["of_processor_time"]
    for label, ours, names in _PEERS:
        fastest = max((speeds[name] for name in names if name in speeds), default=None)
        if fastest is not None:
            rows.append([label, f"{speeds[ours] / fastest:.2g}"])
    versions = ", ".join(f"{name} {version}" for name, version in result.data["peers"].items())
    table = markdown(["one core", "ours is faster by a factor of"], rows)
    return with_provenance(f"{table}\n\n{versions}.", result)


def rollout() -> str:
    """Return decisions a second of the CUDA engine, and of the processor beside it."""
    result = load(f"{GPU}/rollout")
    figures, machine = result.figures, result.machine
    rows = []
    for name, value in figures.items():
        if match := re.fullmatch(rf"rollout\.cuda\.(\w+)\.{_PER_SECOND}", name):
            controller = _CONTROLLERS[match[1]]
            features = len(result.data["controllers"][controller])
            rows.append([f"CUDA, {controller} ({features} features)", count(value)])
    single = figures["rollout.cuda.single_game.us_per_decision"]
    core, every = (count(figures[f"rollout.cpu.dt.{_PER_SECOND}_{each}"]) for each in ("per_core", "all"))
    rows += [
        [f"CUDA, dt20, one game: {digits(single)} us a decision", count(1e6 / single)],
        [f"C++, dt20, one core of {processor(machine)}", core],
        [f"C++, dt20, {machine['cores']} cores", every],
    ]
    return table_block(["engine and controller on 10x20", "decisions/s"], rows, result)


def equality() -> str:
    """Return how much was played on the CPU and on the GPU with the same result."""
    result = load(f"{GPU}/equality")
    figures = result.figures
    words = (
        f"Played on the CPU and on the GPU: {count(figures['equality.decisions'])} decisions in "
        f"{figures['equality.configurations']:,} configurations of features, board, rule, pieces, weights "
        f"and streams. Differences in lines, games or boards: {figures['equality.differences']}."
    )
    return with_provenance(words, result)


def sanitizers() -> str:
    """Return how many GPU tests ran under each tool of compute-sanitizer, and what it found in kernels."""
    results = [load(f"{GPU}/{tool}") for tool in TOOLS]
    rows = [
        [tool, *(f"{result.figures[f'sanitizer.{tool}.{what}']:,}" for what in ("tests", "errors"))]
        for tool, result in zip(TOOLS, results, strict=True)
    ]
    return table_block(["tool", "GPU tests", "found in our kernels"], rows, *results)


def environments() -> str:
    """Return placements a second of random play; from a machine with a GPU the CUDA engine's alone."""
    results, rows = load_all("env"), []
    for result in results:
        for name, value in result.figures.items():
            match = _ENVIRONMENT_FIGURE.fullmatch(name)
            assert match is not None, name
            if ("gpu" in result.machine) == match["engine"].startswith("cuda"):
                least, most = map(count, result.data["ranges"][name])
                games = f"{int(match['games'] or 1):,}"
                rows.append([_ENVIRONMENTS[match["engine"]], games, count(value), f"{least} to {most}"])
    header = ["environment", "games", "placements/s, median", "range"]
    return table_block(header, rows, *results)


def scale() -> str:
    """Return how efficient training is on more ranks, measured and simulated."""
    blocks = []
    for result in load_all("scale"):
        rows = []
        for name, strong in result.figures.items():
            if name.endswith(".strong_efficiency"):
                ranks = name.removesuffix(".strong_efficiency")
                weak = result.figures[f"{ranks}.weak_efficiency"]
                how = "simulated" if ".simulated." in name else "measured"
                number = f"{int(ranks.rpartition('.')[2]):,}"
                rows.append([number, how, f"{strong:.1%}", f"{weak:.1%}"])
        blocks.append(table_block(["ranks", "", "strong efficiency", "weak efficiency"], rows, result))
    return "\n\n".join(blocks)
